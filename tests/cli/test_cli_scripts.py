"""What scripts rely on: JSON of every command, dry runs, quiet and verbose output, usage, paths."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main, make_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COMMANDS = ["info", "tree", "verify", "copy", "optimize", "consolidate", "pyramid", "view", "bench", "doctor"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    group = gzarr.create_group(tmp_path / "x.zarr", attributes={"title": "t"})
    data = np.arange(64 * 64, dtype="f4").reshape(64, 64)
    group.create_array(
        "a", data=data, chunks=(8, 8), shards=(32, 32), fill_value=np.nan, dimension_names=("y", "x"),
        attributes={"units": "K"},
    )  # fmt: skip
    group.create_array("g/b", data=data.astype("u2"), chunks=(16, 64))
    return tmp_path / "x.zarr"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    logger = logging.getLogger("gzarr")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers, logger.level = handlers, level


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(*arguments: object, code: int = 0) -> Any:
        assert main(list(map(str, arguments))) == code
        return json.loads(capsys.readouterr().out)

    return call


def listing(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_info_of_an_array(root: Path, run: Callable[..., Any]) -> None:
    found = run("info", root, "--path", "a", "--json")
    store = found.pop("store")
    assert str(root) in store
    path = found.pop("decode_path")
    assert path.startswith("cpu")
    stored = found.pop("stored")
    assert stored["chunks"] == stored["chunks_of_grid"] == 4
    assert stored["complete"] is True
    assert stored["nbytes"] == sum((root / f"a/c/{i}/{j}").stat().st_size for i in range(2) for j in range(2))
    assert found == {
        "node": "/a", "kind": "array", "zarr_format": 3, "shape": [64, 64], "dtype": "float32",
        "data_type": "float32", "dimension_names": ["y", "x"], "chunks": [8, 8], "shards": [32, 32],
        "codecs": found["codecs"], "fill_value": "NaN", "nbytes": 16384, "nchunks": 64, "device": found["device"],
        "attributes": {"units": "K"},
    }  # fmt: skip


def test_info_of_a_group(root: Path, run: Callable[..., Any]) -> None:
    found = run("info", root, "--json", "--strict")
    assert found["kind"] == "group"
    assert found["attributes"] == {"title": "t"}
    assert sorted(member["name"] for member in found["members"]) == ["a", "g"]
    assert found["departures"] == []
    document = json.loads((root / "a/zarr.json").read_text())
    document["unknown"] = {"must_understand": False}
    (root / "a/zarr.json").write_text(json.dumps(document | {"fill_value": None}))
    found = run("info", root, "--json", "--strict", code=1)
    assert {one["node"] for one in found["departures"]} == {"/a"}


def test_tree(root: Path, run: Callable[..., Any]) -> None:
    found = run("tree", root, "--json")
    assert found["kind"] == "group"
    nodes = {node.pop("path"): node for node in found["nodes"]}
    assert nodes == {
        "a": {"kind": "array", "shape": [64, 64], "dtype": "float32"},
        "g": {"kind": "group"},
        "g/b": {"kind": "array", "shape": [64, 64], "dtype": "uint16"},
    }
    assert {node["path"] for node in run("tree", root, "--json", "--level", 0)["nodes"]} == {"a", "g"}
    (root / "a/zarr.json").write_text("{")
    nodes = {node["path"]: node for node in run("tree", root, "--json")["nodes"]}
    assert nodes["a"]["kind"] == "unreadable"
    assert "zarr.json" in nodes["a"]["error"]


def test_copy(root: Path, tmp_path: Path, run: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("copy", root, tmp_path / "y.zarr", "--zarr-format", 2, "--chunks", 32, "--shards", "none")
    planned = run(*arguments, "--json", "--dry-run")
    assert not (tmp_path / "y.zarr").exists()
    assert planned["dry_run"] is True
    assert planned["zarr_format"] == [3, 2]
    arrays = {array["node"]: array for array in planned["arrays"]}
    assert arrays["/a"]["from"]["shards"] == [32, 32]
    assert arrays["/a"]["to"]["chunks"] == [32, 32]
    assert arrays["/a"]["to"]["shards"] is None
    assert planned["parts_written"] == 0
    assert main(list(map(str, (*arguments, "--dry-run")))) == 0
    out = capsys.readouterr().out
    assert "Zarr format 3 becomes 2" in out
    assert "/a  (64, 64) float32: chunks [8, 8], shards [32, 32]" in out
    assert "nothing written" in out
    done = run(*arguments, "--json", "--read-back")
    assert done["parts_written"] > 0
    assert done["read_back"] is True
    assert done["arrays"] == planned["arrays"]
    # What is there is compared when it is copied, and counted only then.
    assert run(*arguments, "--json", "--dry-run", "--resume")["parts_present"] is None
    assert main(list(map(str, (*arguments, "--dry-run", "--resume", "--read-back")))) == 0
    assert capsys.readouterr().out.endswith("nothing written\n")
    assert run(*arguments, "--json", "--resume")["parts_present"] == done["parts_written"]
    assert (gzarr.open_array(tmp_path / "y.zarr/a")[...] == gzarr.open_array(root / "a")[...]).all()


def test_consolidate_and_pyramid(root: Path, run: Callable[..., Any]) -> None:
    before = listing(root)
    assert run("consolidate", root, "--dry-run", "--json") == {"node": "/", "nodes": 3, "dry_run": True}
    found = run("pyramid", root, "--path", "g/b", "--axes", "yx", "--levels", 3, "--dry-run", "--json")
    assert found["added_levels"] == [{"shape": [32, 32]}, {"shape": [16, 16]}]
    assert listing(root) == before
    assert run("consolidate", root, "--json") == {"node": "/", "nodes": 3, "dry_run": False}
    assert run("pyramid", root, "--path", "g/b", "--axes", "yx", "--levels", 3, "--json")["dry_run"] is False
    assert len(gzarr.ome.open(root, path="g").levels) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_them(command: str) -> None:
    parser = make_parser(whole=True)
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    flags = set(commands[command]._option_string_actions)
    assert {"--json", "-v", "--verbose", "-q", "--quiet"} <= flags


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_flags_are_answered_by_the_command(
    command: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [] if command == "doctor" else [str(root)] * (2 if command in ("copy", "optimize") else 1)
    with pytest.raises(SystemExit) as caught:
        main([command, *places, "--nonesuch"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: gzarr {command} ")
    assert f"gzarr {command}: error: unrecognized arguments: --nonesuch" in said


def test_quiet_and_verbose(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(root), "-q"]) == 0
    assert main(["copy", str(root), str(tmp_path / "quiet.zarr"), "--quiet"]) == 0
    assert main(["consolidate", str(root), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    (root / "g/b/c/1/0").write_bytes(b"nothing")
    assert main(["verify", str(root), "-q"]) == 1
    assert "/g/b, chunk (1, 0)" in capsys.readouterr().out
    assert main(["copy", str(root), str(tmp_path / "loud.zarr"), "--path", "a", "-v"]) == 0
    out, err = capsys.readouterr()
    assert "1 array" in out
    assert "gzarr.tools.copy_array: copying '/a'" in err


def test_home_and_nodes_in_paths(root: Path, tmp_path: Path, run: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("info", "~/x.zarr#g/b", "--json")["node"] == "/g/b"
    assert run("info", "~/x.zarr", "--path", "a", "--json")["node"] == "/a"
    run("copy", "~/x.zarr#a", "~/y.zarr#one/two", "--json")
    assert gzarr.open_array(tmp_path / "y.zarr", path="one/two").shape == (64, 64)
    assert main(["info", f"{root}#a", "--path", "g"]) == 2
    # A directory of that name means itself.
    gzarr.create_array(tmp_path / "odd#a", data=[1, 2])
    assert run("info", tmp_path / "odd#a", "--json")["shape"] == [2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    # That of tcsh has the commands only.
    for text in ("consolidate", "optimize", *(("--read-back", "--dry-run", "--strict") if shell != "tcsh" else ())):
        assert text in script
    if shell == "bash":
        check = f"{script}\nCOMP_WORDS=(gzarr opt); COMP_CWORD=1; _shtab_gzarr; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", check], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["optimize"]


def test_completion_without_its_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'gzarr[completion]'" in capsys.readouterr().err


def in_shell(redirection: str, *arguments: object) -> subprocess.Popen[str]:
    command = ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-m", "gzarr", *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(root: Path, tmp_path: Path, redirection: str) -> None:
    for name in "cop":
        gzarr.copy(root, tmp_path / f"{name}.zarr")
    commands: list[tuple[object, ...]] = [
        ("info", root), ("tree", root), ("verify", "-q", root), ("copy", root, tmp_path / "copied.zarr"),
        ("optimize", root, tmp_path / "optimized.zarr"), ("consolidate", tmp_path / "c.zarr"),
        ("pyramid", tmp_path / "p.zarr", "--path", "g/b", "--axes", "yx"),
        ("view", tmp_path / "o.zarr#g", "--out", tmp_path / "o.png"), ("bench", root, "--rounds", 1, "--peer", "none"),
        ("completion", "bash"), ("doctor", "--device", "cpu"), ("--help",),
    ]  # fmt: skip
    gzarr.ome.pyramid(tmp_path / "o.zarr", path="g/b", axes="yx", progress=False)
    running = [in_shell(redirection, *command) for command in commands]
    for command, process in zip(commands, running, strict=True):
        _, err = process.communicate(timeout=100)
        assert (command[0], process.returncode, "Traceback" in err) == (command[0], 0, False)
    assert (gzarr.open_array(tmp_path / "copied.zarr/a")[...] == gzarr.open_array(root / "a")[...]).all()
    failed = in_shell(redirection, "info", tmp_path / "nothing.zarr")
    assert (failed.wait(100), "Traceback" in failed.communicate()[1]) == (1, False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written(root: Path, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    running = [in_shell(">/dev/full", command, root, "--json") for command in ("info", "tree", "verify", "consolidate")]
    running += [in_shell(">/dev/full", *command) for command in (["--version"], ["--help"], ["info", "--help"])]
    for process in running:
        assert process.communicate(timeout=100)[1] == (
            "gzarr: error: cannot write the output: No space left on device\n"
        )
        assert process.returncode == 1


def test_the_current_directory_is_gone(root: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir ../gone; "$@" "$0" && "$@" x.zarr'
    command = ["sh", "-c", script, str(root), sys.executable, "-m", "gzarr", "tree"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=gone, check=False)
    assert done.returncode == 1
    assert "a (64, 64) float32" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "'x.zarr' is relative to the current directory, which no longer exists" in done.stderr
