"""Masks of NumPy's masked arrays: an array has no place for them, so nothing takes one without a word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Way = Callable[..., Any]

MASKED = np.ma.masked_equal(np.array([1, -99, 3], "i4"), -99)
WHOLE = np.ma.MaskedArray(np.array([1, 2, 3], "i4"))


def dask_array(value: Any) -> Any:
    import dask.array

    return dask.array.from_array(value, chunks=3)


def assigned(value: Any, **options: Any) -> Any:
    a = gzarr.full(3, 7, dtype="i4", chunks=2)
    a.write((), value, **options)
    return a


def created(value: Any, **options: Any) -> Any:
    return gzarr.create_array({}, data=value, fill_value=7, **options)


def appended(value: Any, **options: Any) -> Any:
    a = gzarr.full(0, 7, dtype="i4", chunks=2)
    a.append(value, **options)
    return a


def created_in_a_group(value: Any, **options: Any) -> Any:
    return gzarr.create_group({}).create_array("x", data=value, fill_value=7, **options)


def opened(value: Any, **options: Any) -> Any:
    return gzarr.open_array({}, mode="w", data=value, fill_value=7, **options)


def many(value: Any, **options: Any) -> Any:
    a = gzarr.full(3, 7, dtype="i4", chunks=2)
    a.write_many([slice(0, 3)], [value], **options)
    return a


def from_dask(value: Any, **options: Any) -> Any:
    x = value if hasattr(value, "compute") else dask_array(value)
    return gzarr.from_dask(x, gzarr.MemoryStore(), fill_value=7, compute_options={"scheduler": "threads"}, **options)


WAYS = (assigned, created, appended, created_in_a_group, opened, many, from_dask)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nested", [np.ma.asarray, dask_array], ids=["numpy", "dask"])
def test_masks_are_errors_or_filled(way: Way, nested: Callable[[Any], Any]) -> None:
    with pytest.raises(ArgumentError, match=r"masked.*\.filled\(.*fill_masked=True"):
        way(nested(MASKED))
    np.testing.assert_array_equal(way(nested(WHOLE))[...], [1, 2, 3])
    np.testing.assert_array_equal(way(nested(MASKED), fill_masked=True)[...], [1, 7, 3])
    np.testing.assert_array_equal(way(nested(WHOLE), fill_masked=True)[...], [1, 2, 3])


def test_nothing_is_written_before_the_error() -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(ArgumentError):
        gzarr.create_array(store, data=MASKED)
    assert not store


@pytest.mark.parametrize(
    "value",
    [np.ma.masked, [1, np.ma.masked, 3], [MASKED[:1], MASKED[1:2], MASKED[2:]], np.ma.masked_invalid([1, np.nan, 3])],
    ids=["constant", "list", "arrays", "invalid"],
)
def test_masked_elements(value: Any) -> None:
    a = gzarr.zeros(3, dtype="f4")
    with pytest.raises(ArgumentError, match="masked"):
        a[...] = value
    with pytest.raises(ArgumentError, match="masked"):
        a.vindex[[0, 1, 2]] = value
    with pytest.raises(ArgumentError, match="masked"):
        a.attrs["x"] = value
    np.testing.assert_array_equal(a[...], 0)


def test_what_is_below_a_mask_need_not_be_an_element() -> None:
    a = gzarr.full(3, 7, dtype="u1")
    a.write((), np.ma.masked_greater(np.array([1, 3000, 3]), 255), fill_masked=True)
    np.testing.assert_array_equal(a[...], [1, 7, 3])
    with pytest.raises(ArgumentError, match="3000"):
        a.write((), np.ma.masked_equal(np.array([1, 3000, 3]), 1), fill_masked=True)


def test_records_and_strings() -> None:
    records = np.ma.array([(1, 2.0), (3, 4.0)], mask=[(False, True), (False, False)], dtype=[("a", "i4"), ("b", "f4")])
    with pytest.raises(ArgumentError, match="masked"):
        gzarr.create_array({}, data=records)
    with pytest.raises(ArgumentError, match=r"fields of records.*filled"):
        gzarr.create_array({}, data=records, fill_masked=True)
    text = np.ma.array(np.array(["a", 5], object), mask=[False, True])
    found = gzarr.create_array({}, data=text, dtype=str, fill_value="none", fill_masked=True)
    assert found[...].tolist() == ["a", "none"]


def test_results_of_map_blocks() -> None:
    a = gzarr.create_array({}, data=np.arange(8), chunks=4)
    for out in (None, gzarr.zeros(8, dtype="i8", chunks=4), np.zeros(8, "i8")):
        with pytest.raises(ArgumentError, match=r"masked.*\.filled\("):
            gzarr.map_blocks(lambda block: np.ma.masked_equal(block, 3), a, out=out)
    np.testing.assert_array_equal(gzarr.map_blocks(lambda b: np.ma.masked_equal(b, 3).filled(9), a)[3], 9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, [1, np.nan], {"a": np.float32("nan")}, np.array([np.nan])])
def test_attributes_that_json_lacks(value: Any, tmp_path: Path) -> None:
    """What gzarr writes is JSON, so that browsers read it, and ``info --strict`` has nothing to say."""
    a = gzarr.create_array(tmp_path / "x", shape=2, dtype="f4", fill_value=np.nan)
    for change in (
        lambda: a.attrs.update(x=value),
        lambda: gzarr.create_group(tmp_path / "g", attributes={"x": value}),
        lambda: gzarr.create_array(tmp_path / "y", shape=2, dtype="f4", attributes={"x": value}),
    ):
        with pytest.raises(ArgumentError, match=r"JSON has no -?(nan|inf).*None or a string"):
            change()
    a.attrs["x"] = None
    json.loads((tmp_path / "x/zarr.json").read_text(), parse_constant=pytest.fail)
    assert main(["info", "--strict", str(tmp_path / "x")]) == 0


def test_attributes_of_others_stay(tmp_path: Path) -> None:
    import zarr

    theirs = zarr.create_array(tmp_path / "x", shape=2, dtype="f4", attributes={"x": float("nan"), "y": 1})
    a = gzarr.open_array(tmp_path / "x", mode="r+")
    a.attrs["y"] = 2
    assert np.isnan(a.attrs["x"])
    assert np.isnan(zarr.open_array(theirs.store_path).attrs["x"])
    assert main(["info", "--strict", str(tmp_path / "x")]) != 0


def test_xarray_makes_nan_of_them() -> None:
    import xarray

    for value in (MASKED, dask_array(MASKED)):
        found = xarray.DataArray(value, dims="x")
        np.testing.assert_array_equal(gzarr.create_array({}, data=found)[...], [1, np.nan, 3])
        with pytest.raises(ArgumentError, match="nan"):
            gzarr.zeros(3, dtype="i4")[...] = found


@pytest.mark.parametrize("hard", [False, True])
def test_no_mask_hides_what_is_read(hard: bool) -> None:
    a = gzarr.array([[1, 2], [3, 4]], device="cpu")
    hidden = np.ma.MaskedArray(np.zeros((2, 2), a.dtype), [[False, True], [False, False]], hard_mask=hard)
    for read in (
        lambda out: a.read(out=out),
        lambda out: a.oindex.read(..., out=out),
        lambda out: a.get_basic_selection(out=out),
        lambda out: a.read_windows([[0, 0]], 2, out=out[None]),
        lambda out: gzarr.map_blocks(lambda x: x, a, out=out),
    ):
        with pytest.raises(gzarr.OutputError, match=r"masked elements.*pass out\.data"):
            read(hidden)
        read(hidden.data)
        clear = np.ma.MaskedArray(np.zeros((2, 2), a.dtype), np.zeros((2, 2), bool), hard_mask=hard)
        read(clear)
        assert clear.tolist() == hidden.data.tolist() == [[1, 2], [3, 4]]
