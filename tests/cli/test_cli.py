"""The command line, by subprocess: its output, exit codes, and errors on one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr
from support.terminals import on_terminal

import gzarr
from gzarr.cli.main import main


def run(*args, env=None, **kwargs):
    command = [sys.executable, "-m", "gzarr", *map(str, args)]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"} | (env or {})
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, **kwargs)


def rows(text):
    return {label.strip(): value for label, _, value in (line.partition(" : ") for line in text.splitlines())}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "x.zarr"
    group = zarr.open_group(path, mode="w", attributes={"title": "t"})
    volume = group.create_array("g/volume", shape=(10, 10), chunks=(4, 4), dtype="u2", compressors=None, fill_value=7)
    volume[:8, :8] = np.arange(64).reshape(8, 8)
    shards = group.create_array("shards", shape=(64, 64), chunks=(8, 8), shards=(32, 32), dtype="f4")
    shards[:32] = 1.5
    group.create_array("scalar", shape=(), dtype="i8")[...] = 3
    group.create_array("none", shape=(0, 3), chunks=(1, 3), dtype="i8")
    return path


@pytest.fixture(scope="module")
def root_v2(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "v2.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.create_array("a", shape=(6, 4), chunks=(3, 2), dtype="i4", order="F", fill_value=0)[...] = 5
    return path


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"gzarr {gzarr.__version__}\n")


def test_help():
    result = run("--help")
    assert result.returncode == 0
    for command in ("info", "tree", "bench", "doctor"):
        assert command in result.stdout
        assert run(command, "--help").returncode == 0


class TestInfo:
    def test_array(self, root):
        result = run("info", root, "--path", "g/volume")
        assert (result.returncode, result.stderr) == (0, "")
        shown = rows(result.stdout)
        array = gzarr.open_array(root, path="g/volume")
        assert shown["Name"] == "/g/volume"
        assert shown["Shape"] == "(10, 10)"
        assert shown["Data type"] == "uint16"
        assert shown["Chunks"] == "(4, 4)"
        assert shown["Fill value"] == "7"
        assert shown["Decode path"] == array.decode_path
        assert shown["Codecs"] == " → ".join(codec.label for codec in array.codecs)
        assert shown["Size"] == "200 bytes"
        # Four uncompressed chunks of 4 × 4 × 2 bytes.
        assert shown["Stored"] == "128 bytes"
        assert shown["Compression ratio"] == "1.00"
        assert shown["Chunks stored"] == "4 of 9 (44.4%)"
        assert run("info", root / "g" / "volume").stdout.splitlines()[1:] != []

    def test_sharded(self, root):
        shown = rows(run("info", root / "shards").stdout)
        assert (shown["Chunks"], shown["Shards"]) == ("(8, 8)", "(32, 32)")
        assert shown["Shards stored"] == "2 of 4 (50.0%)"
        stored = sum(path.stat().st_size for path in (root / "shards" / "c").rglob("*") if path.is_file())
        assert shown["Stored"].endswith(f"({stored:,} bytes)")
        assert float(shown["Compression ratio"]) == pytest.approx(2 * 32 * 32 * 4 / stored, abs=0.006)

    def test_odd_shapes(self, root):
        shown = rows(run("info", root / "scalar").stdout)
        assert (shown["Shape"], shown["Chunks stored"]) == ("()", "1 of 1 (100.0%)")
        shown = rows(run("info", root / "none").stdout)
        assert (shown["Shape"], shown["Chunks stored"], shown["Stored"]) == ("(0, 3)", "0 of 0", "0 bytes")

    def test_v2_and_foreign_keys(self, root_v2):
        (root_v2 / "a" / "9.9").write_bytes(b"outside the grid")
        (root_v2 / "a" / "0.00").write_bytes(b"no key of a chunk")
        shown = rows(run("info", root_v2, "--path", "/a").stdout)
        assert shown["Zarr format"] == "2"
        assert shown["Chunks stored"] == "4 of 4 (100.0%)"
        assert shown["Other keys"] == "2 that are not chunks of this array"

    def test_group(self, root):
        result = run("info", root)
        assert result.returncode == 0
        shown = rows(result.stdout)
        assert shown["Members"] == "3 arrays, 1 group"
        assert shown["Attributes"] == "1: title"
        assert result.stdout.splitlines()[-4:] == [
            "├── g",
            "├── none (0, 3) int64",
            "├── scalar () int64",
            "└── shards (64, 64) float32",
        ]

    def test_long_work_has_a_bar_on_a_terminal(self, root, monkeypatch):
        """The progress bar goes to stderr, and only if that is a terminal."""
        code = (
            "import sys; from gzarr import progress; from gzarr.cli import main as cli; progress.QUIET_SECONDS = -1; "
            f"sys.exit(cli.main(['info', {str(root / 'g' / 'volume')!r}]))"
        )
        out, seen = on_terminal([sys.executable, "-c", code])
        assert b"listing chunks" in seen
        assert b"\x1b" not in out


class TestTree:
    def test_against_zarr_python(self, root):
        result = run("tree", root)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout == str(zarr.open_group(root, mode="r").tree())
        assert run("tree", root, "--level", "0").stdout == str(zarr.open_group(root, mode="r").tree(level=0))
        assert run("tree", root, "--path", "g").stdout == "/g\n└── volume (10, 10) uint16\n"

    def test_array(self, root):
        assert run("tree", root / "scalar").stdout.startswith("<gzarr.Array / () int64")

    def test_any_locale(self, tmp_path):
        zarr.open_group(tmp_path, mode="w").create_group("é\udc80" if os.name == "posix" else "é")
        result = run("tree", tmp_path, env={"PYTHONIOENCODING": "ascii"})
        assert result.returncode == 0
        assert "\\xe9" in result.stdout


class TestFailures:
    @pytest.mark.parametrize(
        "args",
        [
            [],
            ["nonesuch"],
            ["info"],
            ["tree"],
            ["info", "a", "b"],
            ["tree", ".", "--level", "-1"],
            ["tree", ".", "--level", "x"],
            ["info", "s3://bucket/x?versionId=1"],
            ["info", ".", "--storage-option", "region=x"],
            ["info", "s3://bucket/x", "--storage-option", "region"],
            ["info", ".", "--path", "../x"],
        ],
    )
    def test_usage(self, args, tmp_path):
        result = run(*args, cwd=tmp_path, env={"PYTHONPATH": os.pathsep.join(sys.path)})
        assert result.returncode == 2
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert result.stderr

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["tree", ".", "--level", "-1"], "argument --level: '-1' is not a level; pass 0 for the children only"),
            (["tree", ".", "--level", "x"], "argument --level: 'x' is not a level; pass 0 for the children only"),
            (["view", ".", "--level", "x"], "argument --level: 'x' is not a level; pass a number such as 0, or auto"),
            (["view", ".", "--size", "0"], "argument --size: '0' is not a size; pass a number of pixels"),
            (["view", ".", "--time", "x"], "argument --time: 'x' is not an index; pass an integer"),
            (["view", ".", "--channels", "9" * 5000], "argument --channels: a number is too long"),
            (["pyramid", ".", "--levels", "x"], "argument --levels: 'x' is not a number of levels; pass an integer"),
            (["optimize", ".", "o", "--levels", ""], "argument --levels: '' is not a number of levels"),
            (["pyramid", ".", "--scale", "1,x"], "argument --scale: '1,x' are not distances; pass a number for each"),
            (["copy", ".", "o", "--zarr-format", "9"], "argument --zarr-format: invalid choice: '9' (choose from 1"),
            (["copy", ".", "o", "--zarr-format", "9" * 5000], "argument --zarr-format: invalid choice: '999"),
            (["bench", ".", "--rounds", "9" * 5000], "is not a positive integer"),
        ],
    )
    def test_usage_says_what_is_allowed(self, args, message, capsys):
        with pytest.raises(SystemExit) as info:
            main(args)
        assert info.value.code == 2
        found = capsys.readouterr().err
        assert message in found
        assert "value: " not in found

    def test_data(self, tmp_path, root):
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "zarr.json").write_bytes(b'{"zarr_format":\n 3,')
        (tmp_path / "loop").mkdir()
        (tmp_path / "loop" / "zarr.json").symlink_to("zarr.json")
        for args, message in [
            (["info", tmp_path / "nope"], "nearest existing parent"),
            (["tree", tmp_path / "nope\n\x1b"], "\\n\\x1b"),
            (["info", root, "--path", "g/volum"], "did you mean 'volume'"),
            (["info", tmp_path / "broken"], "zarr.json"),
            (["tree", tmp_path / "loop"], "zarr.json"),
        ]:
            result = run(*args)
            assert result.returncode == 1
            assert result.stdout == ""
            assert result.stderr.startswith("gzarr: error: ")
            assert message in result.stderr
            assert result.stderr.count("\n") == 1

    def test_broken_pipe(self, tmp_path):
        zarr.open_group(tmp_path, mode="w")
        for i in range(400):
            (tmp_path / f"{'x' * 200}{i}").mkdir()
            (tmp_path / f"{'x' * 200}{i}" / "zarr.json").write_bytes(b'{"zarr_format": 3, "node_type": "group"}')
        process = subprocess.Popen(
            [sys.executable, "-m", "gzarr", "tree", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        process.stdout.read(1)
        process.stdout.close()
        with process.stderr as errors:
            assert errors.read() == b""
        assert process.wait() == 0

    def test_interrupt(self, tmp_path):
        code = (
            "import signal, time, sys\n"
            "from gzarr.cli import main as cli\n"
            # Who runs the tests in the background of a shell has interrupts ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "cli._info = lambda args: (print('ready', flush=True), time.sleep(30))\n"
            f"sys.exit(cli.main(['info', {str(tmp_path)!r}]))"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (130, "gzarr: interrupted\n")
        assert time.monotonic() - started < 10


def test_bench_is_loaded_for_bench_only():
    code = (
        "import sys; from gzarr.cli import main as cli; cli.make_parser().parse_args(['tree', '.']); "
        "print('gzarr.cli.bench' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_main_returns_its_code(root, capsys):
    assert main(["tree", str(root)]) == 0
    assert capsys.readouterr().out.startswith("/\n")
    assert main(["tree", str(root / "nope")]) == 1
    with pytest.raises(SystemExit) as info:
        main(["nonesuch"])
    assert info.value.code == 2


@pytest.mark.parametrize(
    "command",
    ["tree", "tree --json", "info", "info --json", "info --strict", "info --strict --json", "verify", "verify --json"],
)
def test_what_nodes_below_need_is_said_in_options(tmp_path, capsys, command):
    array = gzarr.create_group(tmp_path, zarr_format=2).create_array(
        "o", data=np.array([1, "a"], object), dtype=object, filters=[{"id": "json2"}]
    )
    path = tmp_path / array.path / ".zarray"
    path.write_text(path.read_text().replace("json2", "pickle"))
    main([*command.split(), str(tmp_path)])
    out = capsys.readouterr().out
    assert "open with --allow-pickle" in out
    assert "allow_pickle" not in out
