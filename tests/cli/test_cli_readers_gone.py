"""Output whose reader has gone: commands do the same, and exit with the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.cli.streams import for_any_reader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    group = gzarr.create_group(tmp_path / "x.zarr")
    group.create_array("a", data=np.arange(100, dtype="i4"), chunks=(1,))
    return tmp_path / "x.zarr"


@pytest.fixture
def damaged(root: Path) -> Path:
    for file in (root / "a/c").iterdir():
        file.write_bytes(b"?")
    return root


def unread(*command: object) -> int:
    """Run a command whose output and errors go to a pipe that nobody reads; return its exit code."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        arguments = [sys.executable, "-m", "gzarr", *map(str, command)]
        return subprocess.run(arguments, stdout=theirs, stderr=theirs, check=False, timeout=100).returncode
    finally:
        os.close(theirs)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_codes_of_failures(damaged: Path, tmp_path: Path, unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert unread("info", tmp_path / "nothing.zarr") == 1
    assert unread("copy", damaged, tmp_path / "copy.zarr", "--chunks", 20) == 1
    assert unread("verify", damaged) == 1
    assert unread("bench", damaged, "--rounds", 1, "--peer", "none") == 1
    assert unread("copy", damaged) == 2


def test_optimize_copies(root: Path, tmp_path: Path) -> None:
    assert unread("optimize", root, tmp_path / "y.zarr") == 0
    assert (gzarr.open_array(tmp_path / "y.zarr/a")[...] == np.arange(100)).all()


def test_verify_ends_at_a_problem_that_nobody_reads(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gzarr.cli.verify.is_read", lambda: False)
    assert main(["verify", str(damaged)]) == 1
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_errors_that_cannot_be_written(root: Path) -> None:
    script = '"$@" 2>/dev/full'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "gzarr", "copy", str(root), str(root)]
    assert subprocess.run(command, check=False, timeout=100).returncode == 2


def test_streams_of_the_caller_are_left(root: Path) -> None:
    before = sys.stdout, sys.stderr
    assert main(["tree", str(root)]) == 0
    assert (sys.stdout, sys.stderr) == before


def test_streams_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may print to one while a command ends: it must not be freed then."""
    with (tmp_path / "out").open("w", encoding="utf-8") as out, (tmp_path / "err").open("w", encoding="utf-8") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        seen = []
        for i in range(2):
            print("before", i)
            with for_any_reader():
                print("é", i)
                print("begun", i, end=" ", file=sys.stderr)
                seen.append((sys.stdout, sys.stderr))
            assert (sys.stdout, sys.stderr) == (out, err)
            assert (tmp_path / "err").read_text(encoding="utf-8").endswith(f"begun {i} ")
            out.reconfigure(errors="backslashreplace", encoding="ascii")
        assert seen[0] == seen[1]
    assert (tmp_path / "out").read_bytes().splitlines() == [b"before 0", "é 0".encode(), b"before 1", b"\\xe9 1"]
