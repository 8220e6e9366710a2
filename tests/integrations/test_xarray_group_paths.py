"""Paths of groups as xarray's own engine takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import xarray as xr

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ["a/b", "/a/b/", "a//b", "/a///b//"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated", "ignore:Consolidated metadata is")
def test_slashes_that_follow_each_other_are_one(path: str, consolidated: bool, tmp_path: Path) -> None:
    data = xr.Dataset({"v": ("x", [1, 2, 3])})
    tree = xr.DataTree.from_dict({"/a/b": data, "/a/b/c": data * 2})
    tree.to_zarr(tmp_path, consolidated=consolidated)
    for function in (xr.open_dataset, xr.open_datatree):
        ours, theirs = (function(tmp_path, engine=engine, group=path) for engine in ("gzarr", "zarr"))  # type: ignore[operator]
        xr.testing.assert_identical(ours, theirs)
        assert ours["v"].values.tolist() == [1, 2, 3]
    assert list(xr.open_groups(tmp_path, engine="gzarr", group=path)) == [".", "c"]
