"""Chunk grids, compared with lists of the start and end of each chunk."""

from __future__ import annotations

import pickle
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gzarr.errors import ArgumentError
from gzarr.metadata.chunk_grid import (
    MAX_LISTED_CHUNKS,
    MAX_UNEVEN_CHUNKS,
    ChunkAxis,
    ChunkGrid,
    RectilinearAxis,
    RegularAxis,
)


@st.composite
def axes(draw: st.DrawFn) -> tuple[ChunkAxis, list[int]]:
    """Return an axis, and the stored lengths of its chunks."""
    if draw(st.booleans()):
        size, length = draw(st.integers(0, 30)), draw(st.integers(1, 12))
        return RegularAxis(size, length), [length] * -(-size // length)
    lengths = draw(st.lists(st.integers(1, 9), max_size=7))
    size = draw(st.integers(0, sum(lengths)))
    return RectilinearAxis(size, np.array(lengths, np.int64)), lengths


def cut(lengths: list[int], size: int) -> list[int]:
    return [max(min(end, size) - begin, 0) for begin, end in pairwise(accumulate(lengths, initial=0))]


def spelled(axis: ChunkAxis) -> list[int]:
    """Return the length of each chunk of a rectilinear axis, as it is listed."""
    assert isinstance(axis.listing, list)
    runs = [item if isinstance(item, list) else [item, 1] for item in axis.listing]
    assert all(length != other for (length, _), (other, _) in pairwise(runs))
    return [length for length, count in runs for _ in range(count)]


@settings(deadline=None)
@given(axes())
def test_axis(drawn: tuple[ChunkAxis, list[int]]) -> None:
    axis, lengths = drawn
    bounds = list(accumulate(lengths, initial=0))
    owner = [i for i, length in enumerate(lengths) for _ in range(length)]
    coords = np.arange(len(lengths))
    assert (axis.count, axis.end) == (len(lengths), sum(lengths))
    assert axis.lengths(coords).tolist() == lengths
    assert axis.begins(coords).tolist() == bounds[:-1]
    assert axis.chunk_of(np.arange(axis.size)).tolist() == owner[: axis.size]
    assert [axis.length_of(i) for i in range(len(lengths))] == lengths
    assert list(axis.lengths_inside()) == cut(lengths, axis.size)
    if lengths:
        assert axis.longest == max(lengths)
        assert axis.common_length == np.gcd.reduce(lengths)
        assert lengths[0] == axis.listing if axis.is_regular else spelled(axis) == lengths
    # Chunks beyond the grid are nowhere.
    for i, (begin, end) in enumerate([*pairwise(bounds), (bounds[-1], bounds[-1] + 1), (bounds[-1] + 1,) * 2]):
        assert axis.extent(i) == (min(begin, axis.size), min(end, axis.size))
    for end in range(axis.size + 1):
        assert axis.count_within(end) == len(set(owner[:end]))
        for begin in range(end + 1):
            assert list(axis.touching(begin, end)) == sorted(set(owner[begin:end]))
    inside = coords[axis.begins(coords) < axis.size]
    assert axis.are_cut(inside).tolist() == [bounds[i + 1] > axis.size for i in inside.tolist()]
    for unit in (1, 2, 3):
        wrong = [length for length in lengths if length % unit]
        if lengths:
            assert axis.length_not_multiple_of(unit) == (wrong[0] if wrong else None)
    assert pickle.loads(pickle.dumps(axis)) == axis


@settings(deadline=None)
@given(axes(), st.integers(1, 40))
def test_merged_axis(drawn: tuple[ChunkAxis, list[int]], length: int) -> None:
    axis, _ = drawn
    merged = axis.merged(length)
    runs = [merged.extent(i) for i in range(merged.count)]
    assert merged.size == axis.size
    assert [begin for begin, _ in runs] + [axis.size] == [0, *(end for _, end in runs)]
    for begin, end in runs:
        chunks = axis.touching(begin, end)
        assert (axis.extent(chunks[0])[0], axis.extent(chunks[-1])[1]) == (begin, end), "whole chunks"
        assert end - begin <= length or len(chunks) == 1
    for run, other in pairwise(runs):
        following = axis.extent(axis.touching(*other)[0])
        assert following[1] - run[0] > length or following[1] == axis.size, "as long as fits"


@settings(deadline=None)
@given(axes(), st.integers(0, 60))
def test_resized_axis(drawn: tuple[ChunkAxis, list[int]], size: int) -> None:
    axis, lengths = drawn
    new = axis.resized(size)
    assert (type(new), new.size) == (type(axis), size)
    if isinstance(axis, RegularAxis):
        assert new == RegularAxis(size, axis.length)
        return
    last = lengths[-1] if lengths else 1
    more = -(-max(size - sum(lengths), 0) // last)
    assert spelled(new) == lengths + [last] * more
    assert new.end >= size


@settings(deadline=None)
@given(st.lists(axes(), max_size=3), st.data())
def test_grid(drawn: list[tuple[ChunkAxis, list[int]]], data: st.DataObject) -> None:
    grid = ChunkGrid(tuple(axis for axis, _ in drawn))
    lengths = [listed for _, listed in drawn]
    assert grid.shape == tuple(axis.size for axis, _ in drawn)
    assert grid.chunk_shape == tuple(axis.longest for axis, _ in drawn)
    assert grid.grid_shape == tuple(map(len, lengths))
    assert grid.covered_shape == tuple(map(sum, lengths))
    assert grid.is_regular == all(isinstance(axis, RegularAxis) for axis, _ in drawn)
    assert grid.chunk_lengths == tuple(tuple(cut(listed, axis.size)) for axis, listed in drawn)
    assert grid.resized(grid.covered_shape).chunk_lengths == tuple(map(tuple, lengths))
    assert grid.count_within(grid.shape) == tuple(axis.count_within(axis.size) for axis, _ in drawn)
    assert grid == ChunkGrid(grid.axes)
    if not all(grid.shape):
        return
    indices = np.array([[data.draw(st.integers(0, size - 1)) for size in grid.shape] for _ in range(4)], np.int64)
    coords = grid.chunk_of(indices)
    for index, chunk, begins, shape, is_cut in zip(
        indices.tolist(),
        coords.tolist(),
        grid.begins(coords).tolist(),
        grid.lengths(coords).tolist(),
        grid.are_cut(coords).tolist(),
        strict=True,
    ):
        extent = grid.extent(chunk)
        assert all(begin <= i < end for i, (begin, end) in zip(index, extent, strict=True))
        assert begins == [begin for begin, _ in extent]
        assert grid.shape_of(chunk) == tuple(shape)
        assert is_cut == any(b + n > size for b, n, size in zip(begins, shape, grid.shape, strict=True))


def test_sizes_beyond_64_bits() -> None:
    most = 2**63 - 1
    grid = ChunkGrid.regular((most, 5), (2**62 + 1, 2**62))
    assert grid.grid_shape == (2, 1)
    assert grid.covered_shape == (most, 2**62)
    assert grid.extent((1, 0)) == ((2**62 + 1, most), (0, 5))
    # Where the chunk ends does not fit 64 bits.
    assert grid.are_cut(np.array([[0, 0], [1, 0]])).tolist() == [True, True]
    assert grid.axes[0].are_cut(np.array([0, 1])).tolist() == [False, True]


def test_equal_grids() -> None:
    def uneven(size: int, *lengths: int) -> ChunkGrid:
        return ChunkGrid((RectilinearAxis(size, np.array(lengths, np.int64)), RegularAxis(4, 2)))

    assert uneven(5, 2, 3) == uneven(5, 2, 3)
    assert hash(uneven(5, 2, 3)) == hash(uneven(5, 2, 3))
    others: list[Any] = [uneven(4, 2, 3), uneven(5, 3, 2), uneven(5, 2, 3, 1), ChunkGrid.regular((5, 4), (3, 2)), None]
    assert all(uneven(5, 2, 3) != other for other in others)


def test_too_many_chunks() -> None:
    with pytest.raises(ArgumentError, match="along dimension 1 are too many"):
        _ = ChunkGrid.regular((4, MAX_LISTED_CHUNKS + 1), (2, 1)).chunk_lengths
    with pytest.raises(ArgumentError, match=f"at most {MAX_UNEVEN_CHUNKS} chunks"):
        RectilinearAxis(5, np.array([4, 1])).resized(5 + MAX_UNEVEN_CHUNKS)
