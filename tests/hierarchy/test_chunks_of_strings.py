"""Chunks that are chosen for strings, bytes and objects: by the elements that are given."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.hierarchy import auto_chunks

KIB, MIB = 1 << 10, 1 << 20
#: Elements of 400 to 24,000 bytes, 12 MB.
LENGTHS = np.random.default_rng(0).integers(400, 24_000, 1000)


def texts(character: str = "x") -> Any:
    return np.array([character * (n // len(character.encode())) for n in LENGTHS], object)


@pytest.mark.parametrize("data", [texts(), texts("ä"), np.array([bytes(n) for n in LENGTHS], object)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_of_long_strings_have_about_a_mebibyte(data: Any, zarr_format: Any) -> None:
    store: dict[str, bytes] = {}
    array = gzarr.create_array(store, data=data, codecs=None, zarr_format=zarr_format)
    sizes = [len(value) for key, value in store.items() if key.rpartition("/")[2].isdecimal()]
    assert len(sizes) == -(-len(data) // array.chunks[0]) > 8
    # The last one may be short.
    assert all(400 * KIB < nbytes < 1.25 * MIB for nbytes in sizes[:-1])
    assert array[...].tolist() == data.tolist()


def test_several_dimensions_and_shards() -> None:
    data = np.full((100, 100), "x" * 24_000, object)
    array = gzarr.create_array({}, data=data, shards="auto")
    assert 512 * KIB <= np.prod(array.chunks) * 24_000 <= MIB
    assert array.shards is not None
    assert 64 * MIB <= np.prod(array.shards) * 24_004 < 128 * MIB
    assert gzarr.create_array({}, data=data[:10, :10], shards=(10, 10)).chunks == (5, 5)


def test_other_places_that_create_arrays() -> None:
    data = np.full(1000, "x" * 10_000, object)
    group = gzarr.create_group({})
    group["a"] = data
    group.create_array("b", data=data.tolist(), dtype=str)
    gzarr.save(group.store, data, path="c")
    group.create_array("d", data=data.astype("U10000"), dtype=str)
    assert {group[name].chunks for name in "abcd"} | {gzarr.array(data).chunks} == {(63,)}


def test_objects_of_other_codecs() -> None:
    data = np.empty(1000, object)
    data[:] = [{"numbers": list(range(i, i + 1000))} for i in range(1000)]
    array = gzarr.create_array({}, data=data, dtype=object, zarr_format=2, filters=[{"id": "json2"}])
    assert 10 < array.chunks[0] < 100


def test_strings_larger_than_a_chunk_are_alone() -> None:
    assert gzarr.create_array({}, data=np.full(3, "x" * 3_000_000, object)).chunks == (1,)


def test_short_strings_and_arrays_without_data_have_the_chunks_that_they_had() -> None:
    assert gzarr.create_array({}, data=np.full(100_000, "x", object)).chunks == (50_000,)
    assert gzarr.create_array({}, shape=100_000, dtype=str).chunks == (50_000,)
    assert gzarr.create_array({}, data=np.full(100_000, "x" * 1000, object), chunks=60_000).chunks == (60_000,)
    assert gzarr.create_array({}, data=np.array([], object), dtype=str).chunks == (32_768,)


def test_a_sample_of_the_elements_is_looked_at() -> None:
    few = np.full(1000, "abcdef", object)
    many = np.broadcast_to(few, (100_000, 1000))
    start = time.process_time()
    assert auto_chunks.mean_nbytes(many) == auto_chunks.mean_nbytes(few) == 10
    assert time.process_time() - start < 1
    assert auto_chunks.mean_nbytes(np.zeros(10)) == 0
