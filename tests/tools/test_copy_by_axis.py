"""Copies whose chunks and shards are given by the names of axes, of hierarchies with arrays of several kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(2 * 20 * 70 * 90, dtype="u2").reshape(2, 20, 70, 90)
LAYOUTS = {
    "0": ((1, 16, 64, 64), (1, 32, 128, 128)),
    "1": ((1, 16, 35, 45), (1, 32, 35, 45)),
    "labels/cells/0": ((16, 64, 64), (32, 128, 128)),
    "labels/cells/1": ((16, 35, 45), (32, 35, 45)),
}


def make(store: Any, version: str) -> None:
    """Write an image with labels of fewer axes, and an array without names."""
    options = {"levels": 2, "factors": {"y": 2, "x": 2}, "chunks": 8, "progress": False}
    gzarr.ome.create(store, DATA, axes="czyx", version=version, channels=["a", "b"], **options)
    gzarr.ome.create_labels(store, "cells", DATA[0].astype("u4"), axes="zyx", chunks=8, progress=False)
    table = np.arange(50, dtype="i8")
    gzarr.create_array(store, path="table", data=table, chunks=7, zarr_format=2 if version == "0.4" else 3)


def check(source: Any, target: Any, shards: bool) -> None:
    for path, (chunks, shard) in LAYOUTS.items():
        array = gzarr.open_array(target, path=path)
        assert (array.chunks, array.shards) == (chunks, shard if shards else None), path
        np.testing.assert_array_equal(array[...], gzarr.open_array(source, path=path)[...])
    table = gzarr.open_array(target, path="table")
    assert (table.chunks, table.shards) == ((7,), None)
    np.testing.assert_array_equal(table[...], np.arange(50))


@pytest.mark.parametrize(("version", "zarr_format"), [("0.4", 2), ("0.4", 3), ("0.5", 3), ("0.5", 2)])
def test_copies_of_images(tmp_path: Path, version: str, zarr_format: Any) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    make(source, version)
    chunks = {"c": 1, "z": 16, "y": 64, "x": 64}
    shards: Any = {"z": 32, "y": 128, "x": 128} if zarr_format == 3 else "keep"
    gzarr.copy(source, target, chunks=chunks, shards=shards, zarr_format=zarr_format, progress=False)
    check(source, target, zarr_format == 3)
    read: Any = zarr.open_group(target, mode="r")
    np.testing.assert_array_equal(read["labels/cells/0"][...], DATA[0])
    assert gzarr.ome.open(target).labels["cells"].axes == ("z", "y", "x")


def test_axes_that_are_not_named_stay(tmp_path: Path) -> None:
    source: dict[str, Any] = {}
    make(source, "0.5")
    target: dict[str, Any] = {}
    gzarr.copy(source, target, chunks={"z": -1}, progress=False)
    assert gzarr.open_array(target, path="0").chunks == (2, 20, 8, 8)
    assert gzarr.open_array(target, path="labels/cells/1").chunks == (20, 8, 8)
    target = {}
    gzarr.copy(source, target, shards={"y": 24, "x": None}, progress=False)
    array = gzarr.open_array(target, path="labels/cells/0")
    assert (array.chunks, array.shards) == ((8, 8, 8), (8, 24, 96))
    again: dict[str, Any] = {}
    gzarr.copy(target, again, chunks={"x": 4}, progress=False)
    array = gzarr.open_array(again, path="labels/cells/0")
    assert (array.chunks, array.shards) == ((8, 8, 4), (8, 24, 96))


def test_arrays_of_other_kinds() -> None:
    """Rectilinear grids, no dimensions, no elements yet, names of some dimensions, and names of version 2."""
    source: dict[str, Any] = {}
    elements = np.arange(60).reshape(6, 10)
    names = ["t", "x"]
    gzarr.create_array(source, path="grid", data=elements, chunks=[[1, 2, 3], [5, 5]], dimension_names=names)
    gzarr.create_array(source, path="number", data=np.float64(3))
    gzarr.create_array(source, path="some", data=elements, chunks=5, dimension_names=[None, "x"])
    gzarr.create_array(source, path="later", shape=(0, 10), dtype="u1", chunks=(4, 8), dimension_names=names)
    target: dict[str, Any] = {}
    gzarr.copy(source, target, chunks={"x": 4}, progress=False)
    grid = gzarr.open_array(target, path="grid")
    assert [list(axis.listing) if i == 0 else axis.length for i, axis in enumerate(grid.metadata.chunk_grid.axes)] == [
        [1, 2, 3],
        4,
    ]
    np.testing.assert_array_equal(grid[...], elements)
    assert gzarr.open_array(target, path="number")[...] == 3
    assert gzarr.open_array(target, path="some").chunks == (5, 4)
    assert gzarr.open_array(target, path="later").chunks == (4, 4)
    target = {}
    gzarr.copy(source, target, chunks={"t": 16, "x": 5}, shards={"t": 32, "x": 10}, path="later", progress=False)
    assert (gzarr.open_array(target).chunks, gzarr.open_array(target).shards) == ((16, 5), (32, 10))
    old: dict[str, Any] = {}
    gzarr.create_array(old, path="a", data=elements, chunks=4, zarr_format=2, dimension_names=names)
    target = {}
    gzarr.copy(old, target, chunks={"t": -1}, progress=False)
    assert gzarr.open_array(target, path="a").chunks == (6, 4)


def test_what_is_refused() -> None:
    source: dict[str, Any] = {}
    make(source, "0.5")
    target: dict[str, Any] = {}
    for arguments, text in (
        ({"chunks": {"q": 4}}, "chunks: no array has an axis 'q'; the axes are c, x, y, z"),
        ({"shards": {"q": 4}}, "shards: no array has an axis 'q'"),
        ({"chunks": {"z": 0}}, "lengths must be positive integers, or -1"),
        ({"chunks": {"z": "a"}}, "lengths must be positive integers, or -1"),
        ({"chunks": {"z": 8}, "shards": {"z": 12}}, "multiple"),
        ({"chunks": "auto", "shards": {"z": 16}}, "shards by name need chunks of given lengths"),
        ({"chunks": (1, 16, 64, 64)}, "take them by name"),
    ):
        with pytest.raises(ArgumentError, match=text):
            gzarr.copy(source, target, progress=False, **arguments)
        assert not target
    with pytest.raises(ArgumentError, match="the arrays do not name their dimensions"):
        gzarr.copy(gzarr.array(np.zeros((4, 4))), target, chunks={"x": 2})
    assert not target


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a"
    make(source, "0.5")
    names = ["--chunks", "c=1,z=16,y=64,x=64", "--shards", "z=32,y=128,x=128"]
    assert main(["copy", str(source), str(tmp_path / "b"), *names]) == 0
    check(source, tmp_path / "b", shards=True)
    assert main(["copy", str(source / "0"), str(tmp_path / "c"), "--chunks", "-1,8,-1,16"]) == 0
    assert gzarr.open_array(tmp_path / "c").chunks == (2, 8, 70, 16)
    assert main(["copy", str(source / "0"), str(tmp_path / "d"), "--shards", "-1", "--chunks", "2"]) == 0
    assert main(["copy", str(source), str(tmp_path / "e"), "--chunks", "z=-1"]) == 0
    assert gzarr.open_array(tmp_path / "e/0").chunks == (2, 20, 8, 8)
    capsys.readouterr()
    for wrong in ("z", "z=", "z=0", "z=1,z=2", "=4", "z=-2"):
        with pytest.raises(SystemExit):
            main(["copy", str(source), str(tmp_path / "f"), "--chunks", f"y=2,{wrong}"])
        assert "does not give a length to an axis" in capsys.readouterr().err


def test_optimize_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    make(source, "0.5")
    names = ["--chunks", "c=1,z=16,y=64,x=64", "--shards", "z=32,y=128,x=128"]
    assert main(["optimize", str(source), str(target), *names]) == 0
    check(source, target, shards=True)
    assert main(["optimize", str(source / "0"), str(tmp_path / "c"), "--chunks", "-1,4,-1,9", "--shards", "none"]) == 0
    array = gzarr.open_array(tmp_path / "c")
    assert (array.chunks, array.shards) == ((2, 4, 70, 9), None)
    capsys.readouterr()
