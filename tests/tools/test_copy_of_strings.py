"""The budget of a copy holds for strings: their size is seen in a few chunks."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountingStore

import gzarr
from gzarr.arrays.element_size import OBJECT_NBYTES, element_nbytes
from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_array import region_shape
from gzarr.tools.copy_options import CopyOptions

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def strings(count: int = 1000, length: int = 2000, chunks: int = 100, **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=np.full(count, "x" * length, object), chunks=chunks, **options)


# -- the size of an element


def test_of_numbers() -> None:
    assert element_nbytes(gzarr.create_array({}, shape=(3, 4), dtype="f4")) == 4
    assert element_nbytes(gzarr.create_array({}, shape=(), dtype="u1")) == 1


@pytest.mark.parametrize("options", [{}, {"shards": 500}, {"zarr_format": 2}, {"codecs": None}])
def test_of_strings(options: dict[str, Any]) -> None:
    array = strings(**options)
    for part in (array, array.view[37:800:3]):
        assert 2000 < element_nbytes(part) < 2100


def test_of_uneven_and_scalar_and_empty_arrays() -> None:
    assert 2000 < element_nbytes(gzarr.create_array({}, data=np.array("x" * 2000, object))) < 2100
    assert 2000 < element_nbytes(strings(chunks=[[100, 300, 600]])) < 2100
    for shape in ((0,), (5, 0), (10,)):
        assert element_nbytes(gzarr.create_array({}, shape=shape, dtype=str)) == OBJECT_NBYTES


def test_of_objects_that_hold_others() -> None:
    data = np.empty(10, object)
    data[:] = [{"a": ["x" * 1000, {"b": "y" * 1000}]} for _ in data]
    options: dict[str, Any] = {"dtype": object, "zarr_format": 2}
    array = gzarr.create_array({}, data=data, filters=[{"id": "json2"}], **options)
    assert 2000 < element_nbytes(array) < 4000
    rows = np.empty(10, object)
    rows[:] = [np.zeros(500) for _ in rows]
    array = gzarr.create_array({}, data=rows, filters=[{"id": "vlen-array", "dtype": "<f8"}], **options)
    assert 4000 < element_nbytes(array) < 5000


def test_chunks_that_are_absent_or_damaged_do_not_count() -> None:
    store: dict[str, bytes] = {}
    array = gzarr.create_array(store, shape=1000, dtype=str, chunks=100)
    array[400:500] = np.full(100, "x" * 2000, object)
    assert 2000 < element_nbytes(array) < 2100
    store["c/0"] = b"nothing"
    assert 2000 < element_nbytes(array) < 2100
    store["c/4"] = b"nothing"
    assert element_nbytes(array) == OBJECT_NBYTES


def test_three_chunks_are_read_at_most() -> None:
    store = CountingStore()
    array = gzarr.create_array(store, data=np.full(1000, "x" * 2000, object), chunks=10)
    store.asked.clear()
    element_nbytes(array)
    assert [request.key for request in store.asked] == ["c/0", "c/99", "c/49"]


# -- copies


def test_regions_by_the_length_of_strings() -> None:
    source = strings()
    target = gzarr.create_array({}, shape=1000, dtype=str, chunks=50)
    assert region_shape(source, target, 1) == (50,)
    assert region_shape(source, target, 500_000) == (200,)
    assert region_shape(source, target, 10_000_000) == (1000,)


def test_a_copy_keeps_within_its_budget(tmp_path: Path) -> None:
    budget = 4 * MIB
    source = tmp_path / "a"
    array = gzarr.create_array(source, shape=16_000, dtype=str, chunks=100)
    for i in range(0, 16_000, 100):
        array[i : i + 100] = np.array([f"{n:02000}" for n in range(i, i + 100)], object)
    gzarr.copy(array.view[:200], tmp_path / "warm", chunks=30)
    tracemalloc.start()
    try:
        gzarr.copy(source, tmp_path / "b", chunks=300, budget_bytes=budget)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of 32 MB.
    assert peak < 2 * budget
    made = gzarr.open_array(tmp_path / "b")
    assert made[[0, 7777, 15_999]].tolist() == [f"{n:02000}" for n in (0, 7777, 15_999)]


@pytest.mark.parametrize(("dtype", "fill_value"), [(str, "missing value"), ("variable_length_bytes", b"none")])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_fill_value_that_stays_is_no_change(dtype: Any, fill_value: Any, zarr_format: Any) -> None:
    array = gzarr.create_array({}, shape=4, chunks=2, dtype=dtype, fill_value=fill_value, zarr_format=3, device="cpu")
    planned = prepare_copy(array, {}, CopyOptions(chunks=(4,), zarr_format=zarr_format))
    assert "fill value" not in str(planned.differences.changes)
