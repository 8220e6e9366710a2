"""``gzarr pyramid``, by subprocess."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

DATA = np.arange(20 * 40 * 60, dtype="u2").reshape(20, 40, 60)


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gzarr", "pyramid", *map(str, args)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=os.environ, check=False)


def test_levels_of_an_image(tmp_path: Path) -> None:
    gzarr.ome.create(tmp_path / "a", DATA, axes="zyx", chunks=8, levels=1)
    gzarr.ome.create(tmp_path / "b", DATA, axes="zyx", chunks=8, levels=3)
    done = run(tmp_path / "a", "--levels", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "/: 3 levels, mean\n  10 × 20 × 30\n  5 × 10 × 15\n"
    made, expected = (gzarr.ome.open(tmp_path / name) for name in "ab")
    for one, other in zip(made.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(one.array[...], other.array[...])
    done = run(tmp_path / "a")
    assert done.returncode == 2
    assert "has 3 levels; pass --overwrite to make those below level 0 anew" in done.stderr
    done = run(tmp_path / "a", "--overwrite", "--factors", "z=1,y=2,x=3", "--levels", "2", "--method", "max")
    assert done.stdout == "/: 2 levels, max\n  20 × 20 × 20\n"


def test_an_array(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path, data=DATA, path="raw", chunks=8)
    done = run(tmp_path, "--path", "raw", "--axes", "zyx", "--scale", "3,1,1", "--units", "micrometer", "--levels", "2")
    assert done.returncode == 0, done.stderr
    image = gzarr.ome.open(tmp_path)
    assert (image.scale, image.units, len(image.levels)) == ((3, 1, 1), ("micrometer",) * 3, 2)


def test_failures(tmp_path: Path) -> None:
    assert run(tmp_path / "nothing").returncode == 1
    for wrong in (["--levels", "x"], ["--factors", "z=a"], ["--scale", "a"], ["--budget", "x"]):
        assert run(tmp_path, *wrong).returncode == 2
    # A chunk that is read late.
    gzarr.ome.create(tmp_path / "a", Zeros(), axes="zyx", chunks=32, levels=1)
    (tmp_path / "a/0/c/15/7/7").write_bytes(b"damaged")
    done = run(tmp_path / "a")
    assert done.returncode == 1
    assert "0/c/15/7/7" in done.stderr
    assert "the image names level 0 only" in done.stderr


class Zeros:
    shape = (512, 256, 256)
    dtype = np.dtype("u1")

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray:
        return np.ones(tuple(s.stop - s.start for s in box), "u1")


def test_errors_name_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages of the library name its arguments; the command has options instead."""
    gzarr.create_array(tmp_path, path="raw", data=DATA, chunks=8)
    gzarr.create_array(tmp_path, path="levels=3", data=DATA, chunks=8)
    gzarr.ome.create(tmp_path, DATA, path="image", axes="zyx", chunks=8, levels=2)
    for arguments, text in (
        (["raw"], "/raw does not name its dimensions; pass --axes, such as --axes zyx"),
        (["levels=3"], "/levels=3 does not name its dimensions; pass --axes, such as --axes zyx"),
        (["image", "--axes", "zyx"], "--axes, --scale and --units are for arrays; an image has its own"),
        (["image"], "pass --overwrite to make those below level 0 anew"),
    ):
        assert main(["pyramid", str(tmp_path), "--path", *arguments]) == 2
        assert text in capsys.readouterr().err
    gzarr.copy(tmp_path, tmp_path.parent / "copied")
    assert main(["copy", str(tmp_path), str(tmp_path.parent / "copied")]) == 2
    assert "pass --resume to continue an interrupted copy, or --overwrite to erase it" in capsys.readouterr().err
    assert main(["copy", str(tmp_path), str(tmp_path.parent / "none"), "--chunks", "4,4"]) == 2
    assert "take them by name (--chunks z=16)" in capsys.readouterr().err
    # Calls stay as they are.
    store = tmp_path.parent / "alone"
    gzarr.create_array(store, data=DATA, chunks=8)
    assert main(["pyramid", str(store), "--axes", "zyx"]) == 2
    assert "with gzarr.ome.create(…, data=array)" in capsys.readouterr().err
