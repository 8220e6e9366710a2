"""Arrays in files of HDF5 and netCDF, given as values: their masks, the type of their elements, and attributes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Way = Callable[..., Any]

MASKED = np.ma.masked_equal(np.array([1, 2, 3], "f4"), 2)


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[Any]:
    """Variables of a netCDF file: with a masked element, packed, packed and unsigned, and text."""
    with netCDF4.Dataset(tmp_path / "x.nc", "w") as file:
        file.createDimension("x", 3)
        file.createDimension("length", 2)
        file.createVariable("masked", "f4", "x", fill_value=1e20)[:] = MASKED
        file.createVariable("number", "i2", (), fill_value=-1)[...] = np.ma.masked
        for name, kind, scale in (("packed", "i2", 0.25), ("whole", "i2", 2.0), ("holes", "i2", 0.5)):
            variable = file.createVariable(name, kind, "x", fill_value=-99)
            variable.scale_factor = scale
            variable[:] = np.ma.masked_equal([2, 4, 6], 4) if name == "holes" else np.array([2, 4, 6])
        unsigned = file.createVariable("unsigned", "i1", "x")
        unsigned.setncattr("_Unsigned", "true")
        unsigned[:] = np.array([1, 200, 3], "u1")
        text = file.createVariable("text", "S1", ("x", "length"))
        text._Encoding = "ascii"
        text[:] = np.array(["a", "bc", "d"], "S2")
        yield file.variables


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[h5py.Dataset]:
    """A dataset of HDF5 without elements, and without a shape."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        yield file.create_dataset("x", data=h5py.Empty("f4"))


def assigned(value: Any, **options: Any) -> Any:
    a = gzarr.full(3, 7, dtype="f8", chunks=2)
    a.write((), value, **options)
    return a


def created(value: Any, **options: Any) -> Any:
    return gzarr.create_array({}, data=value, fill_value=7, **options)


def appended(value: Any, **options: Any) -> Any:
    a = gzarr.full(0, 7, dtype="f8", chunks=2)
    a.append(value, **options)
    return a


def many(value: Any, **options: Any) -> Any:
    a = gzarr.full(3, 7, dtype="f8", chunks=2)
    a.write_many([slice(0, 3)], [value], **options)
    return a


def saved(value: Any) -> Any:
    store: dict[str, Any] = {}
    gzarr.save(store, a=value, b=np.ones(2))
    return gzarr.open_array(store, path="a")


def in_group(value: Any) -> Any:
    group = gzarr.create_group({})
    group["x"] = value
    return group["x"]


FILLING = (assigned, created, appended, many)


@pytest.mark.parametrize("way", [*FILLING, saved, in_group])
@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("name", ["masked", "holes"])
def test_masked_elements_of_netcdf(variables: Any, way: Way, always: bool, name: str) -> None:
    variable = variables[name]
    # Whether parts without masked elements are masked arrays, too.
    variable.set_always_mask(always)
    with pytest.raises(ArgumentError, match=r"masked.*\.filled\("):
        way(variable)
    if way in FILLING:
        found = way(variable, fill_masked=True)
        np.testing.assert_array_equal(found[...], variable[...].filled(7))
    variable.set_auto_mask(False)
    np.testing.assert_array_equal(way(variable)[...], np.asarray(variable))


def test_a_masked_number_of_netcdf(variables: Any) -> None:
    with pytest.raises(ArgumentError, match="masked"):
        gzarr.array(variables["number"])
    assert gzarr.zeros_like(variables["number"]).dtype == "int16"
    assert gzarr.create_array({}, data=variables["number"], fill_value=7, fill_masked=True)[...] == 7


def test_masked_elements_of_several_files(tmp_path: Path) -> None:
    """Variables of several files have no conversion of their own."""
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w", format="NETCDF4_CLASSIC") as file:
            file.createDimension("t", None)
            file.createVariable("v", "f4", "t", fill_value=1e20)[0:3] = MASKED
    with netCDF4.MFDataset([str(tmp_path / f"{i}.nc") for i in range(2)]) as files:
        variable = files.variables["v"]
        with pytest.raises(ArgumentError, match=r"masked.*\.filled\("):
            gzarr.array(variable)
        found = gzarr.create_array({}, data=variable, fill_value=7, fill_masked=True)
        assert (found.dtype, found[...].tolist()) == ("float32", [1, 7, 3] * 2)


@pytest.mark.parametrize("name", ["packed", "whole", "unsigned", "text"])
def test_the_type_is_that_of_the_elements(variables: Any, name: str) -> None:
    variable = variables[name]
    expected = np.asarray(variable)
    for way in (gzarr.array, saved, in_group):
        found = way(variable)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found[...], expected)
    like = gzarr.zeros_like(variable)
    assert (like.dtype, like.shape) == (expected.dtype, expected.shape)


def test_a_given_type_stays(variables: Any) -> None:
    assert gzarr.array(variables["whole"], dtype="i2").dtype == "int16"
    with pytest.raises(ArgumentError, match=r"200\) cannot be stored as int8"):
        gzarr.array(variables["unsigned"], dtype="i1")


def test_like_a_variable_with_masked_elements(variables: Any) -> None:
    for name, dtype in (("masked", "f4"), ("holes", "f8")):
        assert gzarr.full_like(variables[name], 1)[...].tolist() == [1, 1, 1]
        assert gzarr.zeros_like(variables[name]).dtype == dtype


def test_like_a_masked_array() -> None:
    """Only its shape and type are wanted."""
    values = np.ma.masked_array(np.arange(3, dtype="i2"), [0, 1, 0])
    assert gzarr.zeros_like(values)[...].tolist() == [0, 0, 0]
    assert gzarr.full_like(values, 7).dtype == "i2"


class Proxy:
    """An array that states another type than its elements have, as those of nibabel."""

    shape, dtype = (3,), np.dtype("i2")

    def __init__(self) -> None:
        self.reads = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self.reads += 1
        return np.array([0.5, 1, 2])


class IndexedProxy(Proxy):
    """The same, which can be indexed."""

    def __getitem__(self, selection: Any) -> Any:
        found = np.array([0.5, 1, 2])[selection]
        self.reads += found.size > 0
        return found


@pytest.mark.parametrize("kind", [Proxy, IndexedProxy])
def test_the_type_that_a_proxy_gives(kind: type[Proxy]) -> None:
    proxy = kind()
    found = gzarr.array(proxy)
    assert (found.dtype, found[...].tolist(), proxy.reads) == ("float64", [0.5, 1, 2], 1)
    assert gzarr.ones_like(proxy).dtype == "float64"
    # A part without elements tells it.
    assert proxy.reads == (1 if kind is IndexedProxy else 2)


def test_the_type_of_stored_arrays_is_known_without_reading_them(tmp_path: Path, monkeypatch: Any) -> None:
    theirs = zarr.create_array(MemoryStore(), data=np.arange(6), chunks=2)
    monkeypatch.setattr(MemoryStore, "get", None)
    assert gzarr.zeros_like(theirs).dtype == "int64"


def test_what_has_no_elements(nothing: h5py.Dataset) -> None:
    a = gzarr.zeros(3)
    ways = (gzarr.array, gzarr.zeros_like, saved, in_group, created, appended, a.append, assigned)
    for value in (nothing, h5py.Empty("f4")):
        for way in ways:
            with pytest.raises(ArgumentError, match=r"of type (Dataset|Empty) without a shape .* has no elements"):
                way(value)
    assert a.shape == (3,)


def test_text_in_attributes(tmp_path: Path) -> None:
    a = gzarr.zeros(3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["names"] = ["a", "ü"]
        file.attrs["table"] = np.array([["a", "b"], ["c", "d"]], h5py.string_dtype())
        file.attrs["number"] = np.float32(1)
        a.attrs.update(file.attrs)
    a.attrs["strings"] = np.array(["a", "b"], np.dtypes.StringDType())
    a.attrs["mixed"] = np.array([1, None, "x", np.float32(2), [np.int8(3)]], object)
    for i, item in enumerate(["x", np.float32(2), {"y": np.int8(1)}]):
        held = np.empty((), object)
        held[()] = item
        a.attrs[f"item {i}"] = held
    assert json.loads(json.dumps(dict(a.attrs))) == {
        "names": ["a", "ü"],
        "table": [["a", "b"], ["c", "d"]],
        "number": 1,
        "strings": ["a", "b"],
        "mixed": [1, None, "x", 2, [3]],
        "item 0": "x",
        "item 1": 2,
        "item 2": {"y": 1},
    }


def test_what_is_no_attribute(tmp_path: Path) -> None:
    a = gzarr.zeros(3)
    itself = np.empty((), object)
    itself[()] = itself
    with h5py.File(tmp_path / "x.h5", "w") as file:
        x = file.create_dataset("x", data=[1])
        references = np.array([x.ref], h5py.ref_dtype)
        for value in (h5py.Empty("f4"), x.ref, references, np.array([b"a"], object), itself):
            with pytest.raises(ArgumentError, match=r"^'/': attributes\['k'\].*(is not JSON|nested)"):
                a.attrs["k"] = value
    assert not a.attrs
