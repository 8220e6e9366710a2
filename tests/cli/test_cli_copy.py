"""``gzarr copy``, ``gzarr optimize`` and ``gzarr consolidate``, by subprocess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr
from support import zarr_arrays as z
from support.copied_hierarchies import check_same, hierarchy

import gzarr
from gzarr.cli.copy import parse_codecs
from gzarr.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gzarr", *map(str, args)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=os.environ, check=False)


def test_copy_command(tmp_path: Path) -> None:
    hierarchy(2, tmp_path / "a")
    options = ["--zarr-format", "3", "--chunks", "auto", "--shards", "none", "--codecs", "zstd:2+crc32c"]
    result = run("copy", tmp_path / "a", tmp_path / "b", "--read-back", "--budget", "4MiB", *options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("5 arrays and 2 groups: ")
    check_same(tmp_path / "a", tmp_path / "b")
    made = gzarr.open_array(tmp_path / "b", path="g/full")
    assert [codec.label for codec in made.codecs] == ["bytes", "zstd", "crc32c"]
    result = run("copy", tmp_path / "a", tmp_path / "b", *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--resume" in result.stderr
    result = run("copy", tmp_path / "a", tmp_path / "b", "--resume", *options)
    assert result.returncode == 0
    assert " 0 parts written" in result.stdout
    (tmp_path / "a/g/full/0.1").write_bytes(b"damaged")
    result = run("copy", tmp_path / "a", tmp_path / "c", "--chunks", "9", "--path", "g", "--dest-path", "x")
    assert result.returncode == 1
    assert "in the source" in result.stderr
    assert "run the same command with --resume" in result.stderr
    for wrong in (["--chunks", "a,b"], ["--codecs", "zstd:x"], ["--zarr-format", "4"], ["--resume", "--overwrite"]):
        assert run("copy", tmp_path / "a", tmp_path / "d", *wrong).returncode == 2


def test_codecs_as_text() -> None:
    assert parse_codecs("auto") == "auto"
    assert parse_codecs("none") == []
    assert parse_codecs("zstd") == [{"name": "zstd"}]
    configuration = {"cname": "lz4", "clevel": 5, "shuffle": "bitshuffle"}
    assert parse_codecs("blosc:lz4:5:bitshuffle+crc32c") == [
        {"name": "blosc", "configuration": configuration},
        {"name": "crc32c"},
    ]
    assert parse_codecs('[{"name": "gzip"}]') == [{"name": "gzip"}]
    for wrong in ("", "zstd:", "zstd:1:2", "blosc:lz4:5:up", "blosc:lz4:5:shuffle:1", "[", "+"):
        with pytest.raises(Exception, match=r"pass for example|is not JSON"):
            parse_codecs(wrong)


def test_optimize_command(tmp_path: Path) -> None:
    data = np.cumsum(np.random.default_rng(0).integers(0, 5, (256, 1024), "i4"), axis=1, dtype="i4")
    zarr.create_array(tmp_path / "a", data=data, chunks=(256, 1024), zarr_format=2)
    result = run("optimize", tmp_path / "a", tmp_path / "b", "--json", "--dry-run")
    assert result.returncode == 0, result.stderr
    (forecast,) = json.loads(result.stdout)
    assert not (tmp_path / "b").exists()
    now, then = forecast["now"], forecast["then"]
    assert now["frames"] == 1
    assert now["frame_nbytes"] == data.nbytes
    assert then["frames"] > 1
    assert now["stored_nbytes"] == (tmp_path / "a/0.0").stat().st_size
    assert now["decode"] in ("cpu", "cuda")
    result = run("optimize", tmp_path / "a", tmp_path / "b", "--read-back")
    assert result.returncode == 0
    assert "1 frame of up to 1.0 MiB" in result.stdout
    array = gzarr.open_array(tmp_path / "b", device="cpu")
    z.same(array[...], data)
    # All chunks were in the sample, so the size was not even estimated.
    stored = sum(path.stat().st_size for path in (tmp_path / "b").iterdir() if not path.name.startswith("."))
    assert array.nchunks <= 8
    assert then["stored_nbytes"] == pytest.approx(stored, rel=0.02)


def test_optimize_command_takes_arrays_of_all_kinds(tmp_path: Path) -> None:
    hierarchy(2, tmp_path / "a")
    zarr.create_array(tmp_path / "a/texts", shape=2, chunks=1, dtype=str, zarr_format=2)[...] = ["a", "b"]
    result = run("optimize", tmp_path / "a", tmp_path / "b")
    assert result.returncode == 0, result.stderr
    for name in ("/g/full", "/g/sparse", "/none", "/scalar", "/texts", "/times"):
        assert f"{name}  " in result.stdout
    assert result.stdout.splitlines()[-1].startswith("6 arrays and 2 groups: ")
    check_same(tmp_path / "a", tmp_path / "b")


def test_optimize_command_knows_images(tmp_path: Path) -> None:
    data = np.arange(16 * 64 * 64, dtype="u2").reshape(16, 64, 64)
    image = {"axes": "zyx", "chunks": 8, "version": "0.4"}
    gzarr.ome.create(tmp_path / "a", data, path="one", **image, levels=1)
    gzarr.ome.create_labels(tmp_path / "a", "cells", data % 3, path="one", chunks=8)
    gzarr.ome.create(tmp_path / "a", data, path="two", **image, levels=2)
    result = run("optimize", tmp_path / "a", tmp_path / "b")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "2 images of OME-Zarr with one level only; --levels auto adds others"
    copied = gzarr.ome.open(tmp_path / "b", path="one")
    assert (copied.metadata.version, len(copied.levels)) == ("0.4", 1)
    result = run("optimize", tmp_path / "a", tmp_path / "b5", "--zarr-format", "3")
    assert "Zarr format 2 becomes 3" in result.stdout
    assert gzarr.ome.open(tmp_path / "b5", path="one").metadata.version == "0.5"
    result = run("optimize", tmp_path / "a", tmp_path / "c", "--levels", "3", "--dest-path", "x/y")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["/x/y/one: 3 levels", "/x/y/one/labels/cells: 3 levels"]
    one, two = (gzarr.ome.open(tmp_path / "c", path=f"x/y/{name}") for name in ("one", "two"))
    assert (len(one.levels), len(two.levels)) == (3, 2)
    expected = gzarr.ome.create({}, data, axes="zyx", chunks=8, levels=3)
    for level, other in zip(one.levels, expected.levels, strict=True):
        z.same(level.array[...], other.array[...])
    z.same(two.level(0)[...], data)


def test_consolidate_command(tmp_path: Path) -> None:
    hierarchy(2, tmp_path / "a")
    result = run("consolidate", tmp_path / "a")
    assert (result.returncode, result.stdout) == (0, "/: 6 nodes\n")
    assert gzarr.open_group(tmp_path / "a").consolidated
    result = run("consolidate", tmp_path / "a", "--path", "scalar")
    assert result.returncode == 1


def test_optimize_command_consolidates_with_new_levels(tmp_path: Path) -> None:
    """Groups that were consolidated are so with the levels, and the others are not."""
    data = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    for name in ("plate/one", "two"):
        gzarr.ome.create(tmp_path / "a", data, path=name, axes="yx", chunks=32, version="0.5", levels=1)
    for path in ("plate/one", "plate"):
        gzarr.consolidate_metadata(tmp_path / "a", path=path)
    assert main(["optimize", str(tmp_path / "a"), str(tmp_path / "b"), "--levels", "2"]) == 0
    for path, expected in (("plate/one", ["0", "1"]), ("plate", ["one", "one/0", "one/1"]), ("two", None)):
        document = json.loads((tmp_path / "b" / path / "zarr.json").read_text())
        assert document.get("consolidated_metadata", {}).get("metadata", {}).keys() == set(expected or ())
        theirs = zarr.open_group(tmp_path / "b", path=path, mode="r")
        assert (theirs.metadata.consolidated_metadata is not None) == (expected is not None)
