"""Chunks that documents describe by runs: compared with lists of all chunks, and small where such lists are large."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.metadata.chunk_grid import (
    MAX_LISTED_CHUNKS,
    MAX_UNEVEN_CHUNKS,
    ChunkAxis,
    ChunkGrid,
    RectilinearAxis,
    RegularAxis,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    Runs = list[tuple[int, int]]

MANY = MAX_UNEVEN_CHUNKS


def runs(most: int = 5) -> st.SearchStrategy[Runs]:
    """Return a strategy for lengths of chunks and their numbers, in which neighbours may have the same length."""
    return st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=most)


def listed(of: Runs) -> list[int]:
    return [length for length, count in of for _ in range(count)]


def axis(size: int, of: Runs) -> RectilinearAxis:
    lengths, counts = np.array(of, np.int64).reshape(-1, 2).T
    return RectilinearAxis(size, lengths, counts)


@contextmanager
def at_most(mib: float) -> Iterator[None]:
    """Fail if the ``with`` block allocates more."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert peak <= mib


@settings(deadline=None)
@given(runs(), st.data())
def test_runs_are_the_chunks_that_they_stand_for(of: Runs, data: st.DataObject) -> None:
    lengths = listed(of)
    size = data.draw(st.integers(0, sum(lengths)))
    found, other = axis(size, of), RectilinearAxis(size, np.array(lengths, np.int64))
    assert (found, hash(found), found.listing) == (other, hash(other), other.listing)
    assert [n for item in found.listing for n in ([item[0]] * item[1] if isinstance(item, list) else [item])] == lengths
    assert pickle.loads(pickle.dumps(found)) == other
    bounds = list(accumulate(lengths, initial=0))
    owner = [i for i, length in enumerate(lengths) for _ in range(length)]
    coords = np.arange(len(lengths))
    assert (found.count, found.end) == (len(lengths), bounds[-1])
    assert found.lengths(coords).tolist() == lengths
    assert found.begins(coords).tolist() == bounds[:-1]
    assert found.chunk_of(np.arange(size)).tolist() == owner[:size]
    assert [found.count_within(n) for n in range(size + 1)] == [len(set(owner[:n])) for n in range(size + 1)]
    assert [found.extent(i) for i in range(len(lengths))] == [(min(a, size), min(b, size)) for a, b in pairwise(bounds)]
    if lengths:
        grown = found.resized(bounds[-1] + 9)
        assert grown == RectilinearAxis(bounds[-1] + 9, np.array(lengths + [lengths[-1]] * -(-9 // lengths[-1])))


@settings(deadline=None)
@given(runs(), st.integers(1, 30), st.data())
def test_merged_runs_are_as_long_as_fits(of: Runs, length: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, sum(listed(of))))
    expected: list[int] = []
    left = size
    for chunk in listed(of):
        inside = min(chunk, left)
        left -= inside
        if inside and expected and expected[-1] + inside <= length:
            expected[-1] += inside
        elif inside:
            expected.append(inside)
    assert axis(size, of).merged(length) == RectilinearAxis(size, np.array(expected, np.int64))


@settings(deadline=None)
@given(runs(3), st.one_of(runs(3), st.integers(1, 4)), st.data())
def test_axes_agree_whose_chunks_do(of: Runs, others: Any, data: st.DataObject) -> None:
    some = listed(of)
    size = data.draw(st.integers(0, sum(some)))
    if isinstance(others, int):
        other: ChunkAxis = RegularAxis(data.draw(st.integers(0, 30)), others)
        more = [others] * other.count
    else:
        more = listed(others)
        other = axis(data.draw(st.integers(0, sum(more))), others)
    common = min(size, other.size)
    inside, others_inside = (
        [length for length, begin in zip(lengths, accumulate(lengths, initial=0), strict=False) if begin < common]
        for lengths in (some, more)
    )
    assert axis(size, of).agrees(other) == other.agrees(axis(size, of)) == (inside == others_inside)


def array_document(dimensions: int) -> bytes:
    """Return the document of an array whose chunks are one run along each dimension."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [MANY] * dimensions,
            "data_type": "int8",
            "chunk_grid": {
                "name": "rectilinear",
                "configuration": {"kind": "inline", "chunk_shapes": [[[1, MANY]]] * dimensions},
            },
            "chunk_key_encoding": {"name": "default"},
            "fill_value": 7,
            "codecs": [{"name": "bytes"}],
        }
    ).encode()


def test_a_short_document_takes_little_memory() -> None:
    group = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
    stored = {"zarr.json": group, **{f"a{i}/zarr.json": array_document(31) for i in range(12)}}
    store = gzarr.MemoryStore(stored)
    with at_most(16):
        root = gzarr.open_group(store)
        assert "a11" in str(root.tree())
        arrays = [array for _, array in root.arrays()]
        assert {array.metadata.grid_shape for array in arrays} == {(MANY,) * 31}
        assert "int8" in str(arrays[0].info)
        assert len(pickle.dumps([array.metadata.chunk_grid for array in arrays])) < 10**6
        last = (MANY - 1,) * 31
        assert arrays[3][last] == 7


def test_a_copy_without_chunks_lists_none() -> None:
    source = gzarr.open_array(gzarr.MemoryStore({"zarr.json": array_document(2)}))
    target = gzarr.MemoryStore({})
    with at_most(16):
        gzarr.copy(source, target)
    assert gzarr.open_array(target).metadata.chunk_grid == source.metadata.chunk_grid


def test_many_chunks_are_merged_and_compared_as_runs() -> None:
    with at_most(1):
        whole, cut = axis(2 * MANY, [(2, MANY)]), axis(2 * MANY - 1, [(2, MANY)])
        assert whole.merged(2001) == axis(2 * MANY, [(2000, MANY // 1000)])
        assert cut.merged(2001) == axis(2 * MANY - 1, [(2000, MANY // 1000 - 1), (1999, 1)])
        assert whole.agrees(cut)
        assert whole.agrees(RegularAxis(10**15, 2))
        assert not whole.agrees(axis(2 * MANY, [(2, MANY - 1), (1, 2)]))
        # The same number of chunks, which differ only where runs of the other one begin.
        other = axis(2 * MANY, [(2, MANY - 2), (1, 1), (3, 1)])
        assert not whole.agrees(other)
        assert not other.agrees(whole)


def test_chunks_that_are_too_many_to_list_together() -> None:
    half = MAX_LISTED_CHUNKS // 2 + 1
    with pytest.raises(gzarr.ArgumentError, match=f"{half} chunks along dimension 1 are too many to list"):
        _ = ChunkGrid((axis(half, [(1, half)]), RegularAxis(half, 1))).chunk_lengths


def test_an_array_does_not_grow_beyond_what_its_document_can_say() -> None:
    array = gzarr.create_array({}, 5, "i1", chunks=[[3, 2**40]])
    with pytest.raises(gzarr.ArgumentError, match=r"chunks of length 1099511627776 would end beyond 2\*\*63 - 1"):
        array.resize(2**63 - 1)
    array.resize(2**50)
    assert array.metadata.chunk_grid.axes[0].end == 3 + 2**50
