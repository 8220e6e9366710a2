"""Arguments of dask, xarray and remote stores: what is meant works, and anything else is an error that says so."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

da: Any = pytest.importorskip("dask.array")
xr: Any = pytest.importorskip("xarray")


def one_dimension() -> Any:
    return gzarr.create_array({}, shape=6, dtype="f8", device="cpu")


@pytest.mark.parametrize("region", [slice(1, 4), (slice(1, 4),), [slice(1, 4, 1)]], ids=repr)
def test_regions_of_one_dimension(region: Any) -> None:
    a = gzarr.store(da.ones(3, chunks=3), one_dimension(), region=region, lock=False)
    assert a[:].tolist() == [0, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "region", [0, (0,), slice(0, 3, 2), slice("a", 3), (slice(3), slice(3)), 10**5000], ids="abcdef"
)
def test_what_is_no_region(region: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="region must be a tuple of 1 slices"):
        gzarr.store(da.ones(3), one_dimension(), region=region)


def test_arguments_of_dask() -> None:
    a: Any = one_dimension()
    calls: dict[str, Callable[[], Any]] = {
        "name must be": lambda: a.to_dask(name=["t"]),
        "name must be a": lambda: a.to_dask(name=b"x"),
        "chunks must be": lambda: a.to_dask(chunks=b"\1"),
        "chunks must be lengths": lambda: a.to_dask(chunks={2}),
        "compute_options must be a dict": lambda: gzarr.from_dask(da.ones(3), {}, compute_options=1),  # type: ignore[arg-type]
        "overwrite must be": lambda: gzarr.from_dask(da.ones(3), {}, overwrite=np.array([True, False])),
    }
    for message, call in calls.items():
        with pytest.raises(gzarr.ArgumentError, match=message):
            call()
    assert a.to_dask(chunks={0: -1}).chunks == ((6,),)


def test_groups_and_names_for_xarray() -> None:
    store: dict[str, Any] = {}
    group = gzarr.create_group(store).create_group("g")
    for name in "ab":
        group.create_array(name, data=np.arange(3), dimension_names=["x"])
    options: dict[str, Any] = {"engine": "gzarr", "consolidated": False}
    assert sorted(xr.open_dataset(store, group=pathlib.PurePosixPath("g"), **options)) == ["a", "b"]
    assert list(xr.open_dataset(store, group="g", drop_variables=np.array(["a", "z"]), **options)) == ["b"]
    with pytest.raises(gzarr.ArgumentError, match="group must be the path of a group, such as 'a/b', not 1"):
        xr.open_dataset(store, group=1, **options)
    with pytest.raises(gzarr.ArgumentError, match="group must be the path"):
        xr.open_groups(store, group=1, **options)
    with pytest.raises(gzarr.ArgumentError, match="drop_variables must be a name or a list of names, not 1"):
        xr.open_dataset(store, group="g", drop_variables=1, **options)


def test_numbers_of_numpy_for_stores() -> None:
    pytest.importorskip("obstore")
    url = "http://localhost:1/x"
    for seconds in (30, np.int64(30), np.float32(30), np.float64(30)):
        made: Any = gzarr.open_store(url, storage_options={"timeout": seconds, "concurrency": np.int64(8)})
        assert type(made.timeout) is float
        assert made.timeout == 30
    for wrong in (True, np.True_, np.timedelta64(3), "30", 10**5000, np.float32("nan")):
        with pytest.raises(gzarr.ArgumentError, match="must be a positive number of seconds"):
            gzarr.open_store(url, storage_options={"timeout": wrong})
    for address in (url, "s3://b/x"):
        with pytest.raises(gzarr.ArgumentError, match="names of storage_options are strings, not 1"):
            gzarr.open_store(address, storage_options={1: 2})  # type: ignore[dict-item]
