"""The report of ``gzarr verify`` in a file, while its bar is on the terminal."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
from support.terminals import on_terminal, output_on_terminal

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import sys
from gzarr import progress
from gzarr.cli.main import main
from gzarr.tools import verify
progress.QUIET_SECONDS = -1
verify._BATCH_CHUNKS = 1
assert main(["verify", sys.argv[1]]) == 1
"""


def damaged(path: Path) -> Path:
    gzarr.create_array(path, data=np.arange(40), chunks=8, codecs=["gzip"])
    for i in (0, 2, 4):
        (path / f"c/{i}").write_bytes(b"garbage")
    return path


def test_all_problems_are_in_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(damaged(tmp_path / "x"))]
    plain = subprocess.run(command, capture_output=True, check=True).stdout
    out, seen = on_terminal(command)
    assert out == plain
    assert len(plain.splitlines()) == 4
    assert b"decoding chunks" in seen


def test_keys_on_the_terminal_are_not_broken(tmp_path: Path) -> None:
    name = "a/long/path/" * 10
    path = damaged(tmp_path / "x" / name).relative_to(tmp_path)
    code, shown = output_on_terminal([sys.executable, "-c", CODE, str(tmp_path / path.parts[0] / "a")], 60)
    assert code == 0
    for i in (0, 2, 4):
        assert f"key '{name[2:]}c/{i}'" in shown
