"""Arrays that are made like others: xarray reads the same of them, in every format."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

DATA = xr.Dataset(
    {
        "integers": ("x", np.arange(4), {"units": "m"}),
        "masked": ("x", [0.0, 1, np.nan, 3]),
        "floats": ("x", [0.0, 1, np.nan, 3]),
        "scalar": ((), 0),
        "table": (("y", "x"), np.arange(8).reshape(2, 4)),
    }
)


@pytest.fixture(params=[2, 3])
def source(request: Any, tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = tmp_path / "source"
        DATA.to_zarr(path, zarr_format=request.param, encoding={"masked": {"_FillValue": -9.0}})
    return path


def opened(path: Path) -> Any:
    with xr.open_dataset(path, engine="zarr", consolidated=False) as found:
        return found.load()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("view", [False, True])
def test_array_of_an_array(source: Path, zarr_format: Any, view: bool, tmp_path: Path) -> None:
    for name in DATA.variables:
        array = gzarr.open_array(source, path=str(name))
        gzarr.array(array.view[...] if view else array, tmp_path / "new", path=str(name), zarr_format=zarr_format)
    made = opened(tmp_path / "new")
    xr.testing.assert_identical(made, opened(source))
    assert made.masked.encoding["_FillValue"] == -9


def test_array_of_another_data_type(source: Path, tmp_path: Path) -> None:
    for zarr_format in (2, 3):
        new = tmp_path / f"new{zarr_format}"
        for name, dtype in (("integers", "f4"), ("table", "i2")):
            array = gzarr.open_array(source, path=name)
            gzarr.array(array, new, path=name, dtype=dtype, zarr_format=zarr_format)  # type: ignore[arg-type]
        xr.testing.assert_equal(opened(new), DATA[["integers", "table"]].astype("f8"))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_masks_in_the_notation_of_another_data_type(zarr_format: Any, tmp_path: Path) -> None:
    store = zarr.create_group(tmp_path / "source", zarr_format=5 - zarr_format)
    names: Any = {"dimension_names": ["x"]} if zarr_format == 2 else {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
    store.create_array("n", data=np.arange(3), fill_value=2, **names)
    if zarr_format == 2:
        store["n"].attrs["_FillValue"] = 2
    array = gzarr.open_array(tmp_path / "source", path="n")
    gzarr.array(array, tmp_path / "new", path="n", dtype="f8", zarr_format=zarr_format)
    np.testing.assert_array_equal(opened(tmp_path / "new").n, [0, 1, 2])


def test_like_another_array(source: Path, tmp_path: Path) -> None:
    array = gzarr.open_array(source, path="table")
    for number, more in enumerate(({}, {"shape": (3, 4)}, {"dtype": "f4"})):
        new = tmp_path / str(number)
        gzarr.empty_like(array, new, path="v", **more)[...] = 0  # type: ignore[arg-type]
        assert (opened(new).v == 0).all()
    # Another number of dimensions: without names, xarray reads none.
    assert gzarr.empty_like(array, shape=5).shape == (5,)
    assert gzarr.full_like(array, 7).fill_value == 7


def test_names_of_some_dimensions_are_refused_before_version_3() -> None:
    array = gzarr.create_array({}, data=np.ones((2, 3)), dimension_names=(None, "x"))
    with pytest.raises(ArgumentError, match="either all dimensions have a name or none"):
        gzarr.array(array, zarr_format=2)


def test_outputs_of_blocks(source: Path, tmp_path: Path) -> None:
    array = gzarr.open_array(source, path="table")
    gzarr.create_group(tmp_path / "new", zarr_format=array.zarr_format)  # type: ignore[arg-type]
    for name, call in (("more", lambda block: block > 1), ("less", lambda block: block - block)):
        gzarr.map_blocks(call, array, out=str(tmp_path / "new" / name))
    made = opened(tmp_path / "new")
    xr.testing.assert_identical(made.more, (DATA.table > 1).rename("more"))
    xr.testing.assert_identical(made.less, (DATA.table * 0).rename("less"))


def test_empty_arrays_have_the_fill_value_in_each_format() -> None:
    source = gzarr.create_array({}, shape=(2,), dtype="i4", fill_value=5, zarr_format=3, dimension_names=("x",))
    assert gzarr.empty_like(source, zarr_format=2)[...].tolist() == [5, 5]
    assert gzarr.array(source, dtype=None).fill_value == 5
