"""Datasets for tests of the engine for xarray."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
import zarr.storage

from gzarr.integrations.xarray import GzarrBackendEntrypoint

if TYPE_CHECKING:
    from pathlib import Path

#: The engine as xarray takes it whether its entry point is installed or not.
ENGINE = GzarrBackendEntrypoint


def varied() -> xr.Dataset:
    """Return a dataset of which each variable is decoded in a way of its own."""
    y, x = 5, 10
    grid = ("y", "x")
    numbers = np.arange(y * x).reshape(y, x)
    integers = numbers.astype("i2")
    integers[1, 2:5] = -99
    floats = numbers.astype("f4")
    floats[3] = 1e20
    days = np.arange(y).astype("timedelta64[D]") + np.datetime64("2001-02-03", "ns")
    variables: dict[str, Any] = {
        "plain": (grid, numbers.astype("f8"), {"units": "K"}),
        "integers": (grid, numbers.astype("u1")),
        "complex": (grid, numbers.astype("c8")),
        "scalar": ((), np.float32(3)),
        "packed": (grid, integers, {"scale_factor": 0.25, "add_offset": 3.0, "_FillValue": np.int16(-99)}),
        "packed_f4": (grid, integers, {"scale_factor": 0.5, "missing_value": np.int16(-99), "units": "1"}),
        "offset": (grid, numbers.astype("i4"), {"add_offset": 100}),
        "masked": (grid, floats, {"_FillValue": np.float32(1e20), "coordinates": "area height"}),
        "not_a_number": (grid, floats, {"_FillValue": np.float32(np.nan)}),
        "several": (grid, integers, {"_FillValue": np.int16(-99), "missing_value": [np.int16(7).item(), 8]}),
        "unsigned": (grid, (numbers - 25).astype("i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1)}),
        "signed": (grid, (numbers + 90).astype("u1"), {"_Unsigned": "false", "_FillValue": np.uint8(100)}),
        "flag": (grid, numbers % 2 == 0, {"coordinates": "depth"}),
        "level_flag": (("y",), np.arange(y), {"dtype": "bool", "scale_factor": 0.5, "add_offset": -1.0}),
        "depth": (grid, numbers + 0.5),
        "text": (grid, numbers.astype("U2")),
        "objects": (("y",), np.array(["a", "bcd", "", "é", "ef"], object)),
        "bytes": (("y",), np.array([b"a", b"bc", b"", b"d", b"e"])),
        "characters": (("y", "letter"), np.array([list("abc")] * y, "S1")),
        # Not joined, because numbers have this dimension, too.
        "codes": (("y", "code"), np.array([list("xy")] * y, "S1")),
        "weights": (("code",), [0.25, 0.75]),
        "lag": (("y",), np.arange(y), {"units": "hours"}),
        "delay": (("y",), np.array([3, -9, 0, 2, -1], "i2"), {"units": "minutes", "_FillValue": np.int16(-9)}),
        "elapsed": (("y",), np.arange(y), {"units": "days accumulated"}),
        "time_bounds": (("time", "side"), np.arange(2 * y).reshape(y, 2)),
        "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
        "mapped": (grid, numbers, {"grid_mapping": "crs", "coordinates": "area absent"}),
        "filled": (("y",), np.array([7, 1, 2, 3, 4], "f4")),
    }
    coordinates = {
        "x": ("x", np.arange(x) * 10, {"units": "m"}),
        "area": (grid, numbers * 0.5, {"scale_factor": 2.0}),
        "height": ((), 2.0),
        "time": ("time", (days - days[0]).astype("m8[D]").astype("i8"),
                 {"units": "days since 2001-02-03", "calendar": "standard", "bounds": "time_bounds"}),
    }  # fmt: skip
    return xr.Dataset({**coordinates, **variables}, attrs={"title": "varied", "numbers": [1, 2]})


def written(dataset: xr.Dataset, path: Any, zarr_format: Any) -> Path:
    """Write a dataset of encoded variables as it is; return the path."""
    encoding = {name: {"chunks": (2, 4)} for name, variable in dataset.variables.items() if variable.dims == ("y", "x")}
    dataset = dataset.copy()
    if "filled" in dataset:
        encoding["filled"] = {"_FillValue": 7.0} if zarr_format == 2 else {"fill_value": 7.0}
    dataset.to_zarr(path, zarr_format=zarr_format, encoding=encoding, consolidated=True)
    return path


@functools.cache
def stores(zarr_format: Any) -> zarr.storage.MemoryStore:
    """Return a store with the dataset; it is not to be changed."""
    store = zarr.storage.MemoryStore({})
    written(varied(), store, zarr_format)
    return store


def values(zarr_format: Any) -> dict[str, bytes]:
    """Return the values in the store, by key."""
    return {key: value.to_bytes() for key, value in stores(zarr_format)._store_dict.items()}


def check(found: xr.Dataset, expected: xr.Dataset) -> None:
    """Check that all there is to see of two datasets is the same."""
    assert list(found) == list(expected)
    xr.testing.assert_identical(found, expected)
    assert set(found.xindexes) == set(expected.xindexes)
    for name, variable in expected.variables.items():
        assert found[name].dtype == variable.dtype, name
        assert type(found[name].variable._data) is type(variable._data), name
        encoding, wanted = found[name].encoding, variable.encoding
        assert encoding.keys() == wanted.keys(), name
        for key, value in wanted.items():
            np.testing.assert_equal(encoding[key], value, err_msg=f"{name}: {key}")
            assert type(encoding[key]) is type(value) or key == "serializer", (name, key)
    assert found.encoding.keys() == expected.encoding.keys()
