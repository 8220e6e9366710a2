"""Names and paths that look like something else: like control characters, markup, or arguments of the library."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.terminals import on_terminal

import gzarr
from gzarr.cli.main import _parsed, main
from gzarr.cli.output import in_options

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

BENCH = ("bench", "--rounds", "1", "--peer", "none")


def parser_of(command: str) -> argparse.ArgumentParser:
    return _parsed([command, "x", "y"])[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in '/a/my path=x.zarr': pass overwrite=True", "in '/a/my path=x.zarr': pass --overwrite"),
        ("in \"/it's/my path=x\": pass chunks='auto'", 'in "/it\'s/my path=x": pass --chunks auto'),
        (r"in '/it\'s \"a path=x': pass resume=True", r"in '/it\'s \"a path=x': pass --resume"),
        (
            "the array's shape needs chunks={'z': 16}, the axis' own",
            "the array's shape needs --chunks z=16, the axis' own",
        ),
        ("the arrays' shape needs chunks=16; it's so", "the arrays' shape needs --chunks 16; it's so"),
    ],
    ids=["single", "double", "escaped", "apostrophe", "plural"],
)
def test_what_is_quoted_stays(text: str, expected: str) -> None:
    assert in_options(text, parser_of("copy")) == expected


def test_a_path_with_the_name_of_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gzarr.create_group(tmp_path / "s.zarr")
    gzarr.create_group(tmp_path / "my path=x.zarr")
    assert main(["copy", str(tmp_path / "s.zarr"), str(tmp_path / "my path=x.zarr")]) == 2
    err = capsys.readouterr().err
    assert "my path=x.zarr'" in err
    assert "pass --resume" in err


def test_names_that_look_like_markup(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x.zarr", path="[/x]", data=np.arange(4))
    out, seen = on_terminal([sys.executable, "-m", "gzarr", *BENCH, str(tmp_path / "x.zarr")])
    assert out.startswith(b"/[/x]  (4,) int64\n")
    assert b"/[/x]" in seen


def test_names_with_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root: Any = tmp_path / "x.zarr"
    group = gzarr.create_group(root, path="\x1b[31m")
    group.create_array("a\x1b", data=np.arange(64 * 64).reshape(64, 64).astype("u2"), chunks=(8, 8))
    group.create_array("damaged\x1b", data=np.arange(4))
    (root / "\x1b[31m" / "damaged\x1b" / "c" / "0").write_bytes(b"?")
    at = ("--path", "\x1b[31m")
    assert main([*BENCH, str(root)]) == 1
    bench = capsys.readouterr()
    assert "/\\x1b[31m/a\\x1b  (64, 64) uint16" in bench.out
    assert "gzarr: error: /\\x1b[31m/damaged\\x1b: " in bench.err
    assert main(["consolidate", str(root), *at, "--dry-run"]) == 0
    consolidated = capsys.readouterr()
    assert consolidated.out == "/\\x1b[31m: 2 nodes, nothing written\n"
    assert main(["pyramid", str(root), "--path", "\x1b[31m/a\x1b", "--axes", "yx", "--dry-run"]) == 0
    pyramid = capsys.readouterr()
    assert pyramid.out.startswith("/\\x1b[31m: ")
    for shown in (bench, consolidated, pyramid):
        assert "\x1b" not in shown.out + shown.err


def test_bench_beside_nodes_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = gzarr.create_group(tmp_path / "x.zarr")
    for name in ("g/a", "g/b", "g/c"):
        group.create_array(name, data=np.arange(4))
    (tmp_path / "x.zarr/g/b/zarr.json").write_text("{")
    assert main([*BENCH, str(tmp_path / "x.zarr")]) == 1
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("/")] == ["/g/a  (4,) int64", "/g/c  (4,) int64"]
    assert shown.err.startswith("gzarr: error: /g/b: 'g/b/zarr.json'")
    assert shown.err.count("\n") == 1
    for name in "ac":
        (tmp_path / f"x.zarr/g/{name}/zarr.json").write_text("{")
    assert main([*BENCH, str(tmp_path / "x.zarr")]) == 1
    assert capsys.readouterr().err.count("gzarr: error: /g/") == 3
