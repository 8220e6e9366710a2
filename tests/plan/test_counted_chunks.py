"""Chunks that are counted without a plan are those of the plan."""

from __future__ import annotations

import math
import tracemalloc
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gzarr
from gzarr.errors import SelectionError
from gzarr.metadata.chunk_grid import ChunkGrid, RectilinearAxis, RegularAxis
from gzarr.metadata.v3.write import chunk_grid
from gzarr.plan.planner import count_chunks, plan
from gzarr.plan.selection import parse_orthogonal
from gzarr.plan.view import Extent, View, axis_of_view


@st.composite
def axes_and_parts(draw: st.DrawFn) -> tuple[Any, Any]:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=9))
    size = sum(lengths)
    regular = draw(st.booleans())
    axis = RegularAxis(size, draw(st.integers(1, 9))) if regular else RectilinearAxis(size, np.array(lengths))
    index = st.integers(0, size - 1)
    part = st.one_of(index, st.lists(index, max_size=5), st.slices(size))
    return axis, draw(part)


@given(st.lists(axes_and_parts(), min_size=1, max_size=3))
def test_counted_chunks_are_those_of_the_plan(dimensions: list[tuple[Any, Any]]) -> None:
    grid = ChunkGrid(tuple(axis for axis, _ in dimensions))
    selection = parse_orthogonal(tuple(part for _, part in dimensions), grid.shape)
    chunks = plan([selection], grid).chunks
    assert count_chunks(selection, grid) == (len(chunks), int(np.prod(grid.lengths(chunks), axis=1).sum()))


def test_limits_are_those_of_the_plan() -> None:
    for shape in ((2**32,), (2**63 - 1,)):
        grid = ChunkGrid.regular(shape, (1,))
        selection = parse_orthogonal(slice(None), shape)
        found = []
        for function in (plan, count_chunks):
            with pytest.raises(SelectionError) as error:
                function(*([[selection], grid] if function is plan else [selection, grid]))  # type: ignore[arg-type, operator]
            found.append(str(error.value))
        assert len(set(found)) == 1
    grid = ChunkGrid.regular((10**6, 10**6), (1, 10**6))
    assert count_chunks(parse_orthogonal((slice(None), 3), grid.shape), grid) == (10**6, math.prod(grid.shape))


def test_slices_of_many_uneven_chunks_take_memory_by_runs_and_touched_chunks() -> None:
    lengths, counts = np.array([3, 1, 5]), np.array([10, 9_000_000, 10])
    size = int((lengths * counts).sum())
    grid = ChunkGrid((RectilinearAxis(size, lengths, counts),))
    metadata = gzarr.create_array({}, (size,), "u1", chunks=[grid.axes[0].listing], device="cpu").metadata
    everything, few = parse_orthogonal(slice(None), (size,)), parse_orthogonal(slice(7, None, 10**6), (size,))
    tracemalloc.start()
    try:
        assert count_chunks(everything, grid) == (9_000_020, size)
        assert count_chunks(few, grid) == (10, 12)
        assert plan([few], grid).chunks[:3, 0].tolist() == [2, 999_987, 1_999_987]
        whole = View(grid, [Extent(0, 1, size)]).grid.axes[0]
        part = View(grid, [Extent(size - 2, -1, size - 3)]).grid.axes[0]
        listed = chunk_grid(metadata)["configuration"]["chunk_shapes"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert listed == [[[3, 10], [1, 9_000_000], [5, 10]]]
    assert whole == grid.axes[0]
    assert part.listing == [4, [5, 9], [1, 9_000_000], [3, 9], 1]


@given(axes_and_parts(), st.data())
def test_chunks_of_a_view_are_what_it_has_of_chunks(drawn: tuple[Any, Any], data: st.DataObject) -> None:
    axis, _ = drawn
    start = data.draw(st.integers(0, axis.size - 1))
    step = data.draw(st.sampled_from([*range(1, 8), *range(-7, 0)]))
    most = (axis.size - 1 - start) // step + 1 if step > 0 else start // -step + 1
    extent = Extent(start, step, data.draw(st.integers(1, most)))
    owners = [int(axis.chunk_of(np.array([start + i * step]))[0]) for i in range(extent.count)]
    assert list(axis_of_view(axis, extent).lengths_inside()) == [len(list(group)) for _, group in groupby(owners)]
