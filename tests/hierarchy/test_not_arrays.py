"""Values that are no arrays, given as data of new ones: an error says what to do, and nothing is written."""

from __future__ import annotations

import collections
import io
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "create_array": lambda store, data: gzarr.create_array(store, path="new", data=data),
    "with dtype": lambda store, data: gzarr.create_array(store, path="new", data=data, dtype="U1"),
    "with dtype=str": lambda store, data: gzarr.create_array(store, path="new", data=data, dtype=str),
    "array": lambda store, data: gzarr.array(data, store, path="new"),
    "zeros_like": lambda store, data: gzarr.zeros_like(data, store, path="new"),
    "assignment": lambda store, data: gzarr.open_group(store, mode="r+").__setitem__("new", data),
    "save": lambda store, data: gzarr.save(store, data, path="new"),
    "save by name": lambda store, data: gzarr.save(store, named={"a": [1], "b": data}, path="new"),
    "in a list": lambda store, data: gzarr.array([[data, data]], store, path="new"),
}


def group() -> gzarr.Group:
    made = gzarr.create_group({}, attributes={"k": 1})
    made["sub/x"], made["sub/y"] = np.arange(3), np.ones(2)
    return made


def their_group() -> Any:
    made = zarr.create_group({})
    made.create_array("q", data=np.arange(3))
    return made


def archive() -> Any:
    file = io.BytesIO()
    np.savez(file, a=np.arange(3))
    file.seek(0)
    return np.load(file)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [lambda: group()["sub"], lambda: gzarr.create_group({}), their_group])
def test_groups(way: str, make: Callable[[], Any]) -> None:
    store: dict[str, Any] = {}
    gzarr.create_group(store)
    before = dict(store)
    with pytest.raises(ArgumentError, match=r"a Group is no array; .* gzarr\.copy\("):
        WAYS[way](store, make())
    assert store == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: group().attrs,
        lambda: their_group().attrs,
        lambda: {"a": 1},
        dict,
        lambda: collections.UserDict(a=1),
        lambda: types.MappingProxyType({"a": 1}),
        lambda: xr.Dataset({"v": ("x", [1])}).coords,
        archive,
    ],
)
def test_mappings(way: str, make: Callable[[], Any]) -> None:
    store: dict[str, Any] = {}
    gzarr.create_group(store)
    before = dict(store)
    message = r"is a mapping, not an array; .* gzarr\.save\(store, named=|elements are of type str, not "
    with pytest.raises(ArgumentError, match=message):
        WAYS[way](store, make())
    assert store == before


def test_what_the_messages_say_works() -> None:
    store: dict[str, Any] = {}
    gzarr.copy(group()["sub"], store, dest_path="copy")
    gzarr.copy(their_group(), store, dest_path="theirs")
    np.testing.assert_array_equal(gzarr.open_array(store, path="copy/x")[...], np.arange(3))
    np.testing.assert_array_equal(gzarr.open_array(store, path="theirs/q")[...], np.arange(3))
    gzarr.save(store, named=archive(), path="npz")
    np.testing.assert_array_equal(gzarr.open_array(store, path="npz/a")[...], np.arange(3))
    table = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    gzarr.save(store, named={name: table[name] for name in table.columns}, path="table")
    assert {name: part.tolist() for name, part in gzarr.load(store, path="table").items()} == table.to_dict("list")


def test_datasets_of_xarray() -> None:
    data = xr.Dataset({"v": ("x", [1, 2])})
    for value in (data, xr.DataTree(data)):
        with pytest.raises(ArgumentError, match=r"create an xarray\.DataArray first"):
            gzarr.array(value)
    np.testing.assert_array_equal(gzarr.array(data["v"])[...], [1, 2])


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": [1, 2], "b": [3, 4]}, "int64"),
        ({"a": [1, 2], "b": [1.5, 2.5]}, "float64"),
        ({"a": ["x", "y"], "b": ["z", ""]}, object),
    ],
)
def test_tables(columns: dict[str, Any], dtype: Any) -> None:
    made = gzarr.array(pd.DataFrame(columns))
    assert made.dtype == dtype
    assert made[...].tolist() == [list(row) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize(
    "columns",
    [
        {"a": [1, 2], "b": ["x", "y"]},
        {"a": [1, 2], "b": [True, False]},
        {"a": [0.5], "b": pd.to_datetime(["2020"])},
        # pandas makes 2**53 of it.
        {"a": [2**53 + 1], "b": [0.5]},
    ],
)
def test_tables_of_several_types(columns: dict[str, Any]) -> None:
    store: dict[str, Any] = {}
    with pytest.raises(ArgumentError, match=r"columns of a DataFrame of several types .* gzarr\.save\("):
        gzarr.array(pd.DataFrame(columns), store)
    assert not store


def test_lists_that_contain_themselves() -> None:
    endless: list[Any] = [1]
    endless[0] = endless
    with pytest.raises(ArgumentError):
        gzarr.array([endless, endless])


@pytest.mark.parametrize("dtype", ["U8", "str"])
def test_elements_are_not_the_names_in_a_group(dtype: str) -> None:
    group = gzarr.open_group({}, mode="a")
    group["sub/x"] = np.ones(2)
    array = group.create_array("words", shape=(1,), dtype=dtype)
    array[...] = "old"
    for value in (group["sub"], [group["sub"]]):
        with pytest.raises(gzarr.ArgumentError, match=r"a Group is no array; to copy .* gzarr\.copy"):
            array[...] = value
        with pytest.raises(gzarr.ArgumentError, match=r"a Group is no array"):
            array.append(value)
    assert array[...].tolist() == ["old"]


def test_a_table_can_be_saved_by_its_columns() -> None:
    store: dict[str, Any] = {}
    gzarr.save(store, named=pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}))
    found = gzarr.load(store, device="cpu")
    assert {name: found[name].tolist() for name in found} == {"a": [1, 2], "b": [1.5, 2.5]}
