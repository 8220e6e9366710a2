"""Hierarchies to be copied, and comparison of copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from support import zarr_arrays as z

import gzarr
from gzarr.hierarchy.create import create_group

DATA = z.sample((50, 41), "f4")


def hierarchy(zarr_format: Any = 3, store: Any = None) -> Any:
    """Return a store with groups and arrays of several kinds; no chunk has only fill values."""
    store = {} if store is None else store
    root = create_group(store, attributes={"title": "t", "nested": {"a": [1, None]}}, zarr_format=zarr_format)
    group = root.create_group("g", attributes={"units": "m"})
    names = {"dimension_names": ("y", "x")}
    full = group.create_array("full", data=DATA, chunks=(16, 16), fill_value=np.nan, attributes={"n": 1}, **names)
    assert full.nchunks_initialized == 12
    sparse = group.create_array("sparse", shape=(400, 60), dtype="i2", chunks=(20, 30), fill_value=-7)
    sparse[:25, 31:] = 3
    sparse[397] = np.arange(60)
    root.create_array("times", data=np.arange(10).astype("M8[ns]"), chunks=3)
    root.create_array("scalar", data=np.float64(2.5), fill_value=np.nan, dimension_names=())
    root.create_array("none", shape=(0, 3), chunks=(1, 3), dtype="u1")
    return store


def check_same(one: Any, other: Any) -> None:
    """Compare two hierarchies, node by node."""
    a, b = gzarr.open_group(one, device="cpu"), gzarr.open_group(other, device="cpu")
    assert dict(a.attrs) == dict(b.attrs)
    members = dict(a.members(None)), dict(b.members(None))
    assert list(members[0]) == list(members[1])
    for path, node in members[0].items():
        its = members[1][path]
        rest = [{k: v for k, v in n.attrs.items() if k != "_ARRAY_DIMENSIONS"} for n in (node, its)]
        assert rest[0] == rest[1], path
        if isinstance(node, gzarr.Array):
            assert isinstance(its, gzarr.Array)
            assert node.dimension_names == its.dimension_names, path
            z.same(its.fill_value, node.fill_value, path)
            z.same(its[...], node[...], path)


def draft_hierarchy(zarr_format: Any) -> dict[str, bytes]:
    """Return a hierarchy that the drafts of version 3 can express."""
    store: dict[str, bytes] = {}
    root = create_group(store, attributes={"title": "t"}, zarr_format=zarr_format)
    root.create_array("g/full", data=DATA, chunks=(16, 16), fill_value=np.nan, codecs=["gzip"], attributes={"n": 1})
    root.create_array("sparse", shape=(400, 60), dtype="i2", chunks=(20, 30), fill_value=-7, codecs=["gzip"])[:25] = 3
    return store
