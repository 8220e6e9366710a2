"""Chunks that are counted without a plan are those of the plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.errors import SelectionError
from gzarr.metadata.chunk_grid import ChunkGrid, RectilinearAxis, RegularAxis
from gzarr.plan.planner import count_chunks, plan
from gzarr.plan.selection import parse_orthogonal


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
