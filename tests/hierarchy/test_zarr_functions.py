"""Functions with zarr-python's names: ``array``, ``group``, ``consolidate_metadata``, ``open_consolidated``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("data", [[[1, 2], [3, 4]], 5, np.arange(6, dtype="f4"), np.zeros((0, 3), "u1")])
def test_array_of_data(data: Any, tmp_path: Path) -> None:
    theirs = zarr.array(data)
    for ours in (gzarr.array(data, device="cpu"), gzarr.array(data, tmp_path, zarr_format=2, device="cpu")):
        same(ours[...], theirs[...])
        assert ours.attrs == {}
        assert not ours.read_only
    same(zarr.open_array(str(tmp_path))[...], theirs[...])


def test_array_of_an_array() -> None:
    first = gzarr.array(
        np.arange(20).reshape(4, 5),
        chunks=(2, 5),
        shards=(4, 5),
        codecs="gzip",
        fill_value=3,
        attributes={"k": [1]},
        dimension_names=("y", "x"),
        device="cpu",
    )
    second = gzarr.array(first, device="cpu")
    for name in ("shape", "chunks", "shards", "codecs", "fill_value", "attrs", "dimension_names", "zarr_format"):
        assert getattr(second, name) == getattr(first, name), name
    same(second[...], first[...])
    other = gzarr.array(
        first, chunks=(1, 5), shards=None, dtype="f8", zarr_format=2, attributes={}, dimension_names=None, device="cpu"
    )
    assert (other.chunks, other.shards, other.dtype, other.attrs) == ((1, 5), None, np.dtype("f8"), {})
    same(other[...], first[...].astype("f8"))


def test_group(tmp_path: Path) -> None:
    made = gzarr.group(tmp_path, path="a", attributes={"k": 1}, zarr_format=2, device="cpu")
    made.create_array("x", data=[1])
    assert zarr.open_group(str(tmp_path / "a")).attrs["k"] == 1
    again = gzarr.group(tmp_path, path="a", device="cpu")
    assert (list(again), again.attrs, again.zarr_format, again.read_only) == (["x"], {"k": 1}, 2, False)
    assert list(gzarr.group(tmp_path, path="a", overwrite=True, zarr_format=2, device="cpu")) == []
    assert list(gzarr.group(device="cpu")) == []
    with pytest.raises(gzarr.NodeTypeError):
        gzarr.group(again.create_array("y", data=[1]).store, path="a/y", device="cpu")


def test_consolidated(tmp_path: Path) -> None:
    group = gzarr.group(tmp_path, device="cpu")
    group.create_array("a/x", data=[1, 2])
    with pytest.raises(gzarr.ArgumentError, match="no consolidated metadata"):
        gzarr.open_consolidated(tmp_path, device="cpu")
    gzarr.consolidate_metadata(tmp_path, device="cpu")
    found = gzarr.open_consolidated(tmp_path, device="cpu")
    assert found.consolidated
    assert [path for path, _ in found.members(None)] == ["a", "a/x"]
    assert "a/x" in zarr.open_consolidated(str(tmp_path))
    with pytest.raises(gzarr.ArgumentError, match="open_group"):
        gzarr.open_consolidated(tmp_path, use_consolidated=False)


def test_walk_yields_nodes_and_errors() -> None:
    store: dict[str, Any] = {}
    group = gzarr.group(store, device="cpu")
    group.create_array("a/x", data=[1, 2])
    group.create_group("b")
    store["c/zarr.json"] = b"{"
    store["b/d/zarr.json"] = b'{"zarr_format": 3, "node_type": "array"}'
    walked = list(group.walk())
    assert [path for path, _ in walked] == ["a", "a/x", "b", "b/d", "c"]
    nodes = dict(walked)
    assert isinstance(nodes["a"], gzarr.Group)
    assert isinstance(nodes["a/x"], gzarr.Array)
    assert (nodes["a/x"].path, nodes["a/x"][...].tolist()) == ("a/x", [1, 2])
    assert all(isinstance(nodes[path], gzarr.MetadataError) for path in ("b/d", "c"))
    assert [path for path, _ in group.walk(0)] == ["a", "b", "c"]
    assert "not readable" in str(group.tree())
    assert str(group.info).splitlines()[-1].endswith("0 arrays, 2 groups, 1 not readable")
