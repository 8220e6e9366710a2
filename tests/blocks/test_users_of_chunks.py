"""Which blocks need which chunks, found without looking at all blocks."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.blocks.axes import AxisScale, InputAxis
from gzarr.metadata.chunk_grid import ChunkAxis, RectilinearAxis, RegularAxis
from gzarr.windows.boundary import MODES


@st.composite
def axes(draw: st.DrawFn, size: int) -> ChunkAxis:
    if draw(st.booleans()):
        return RegularAxis(size, draw(st.integers(1, size + 2)))
    lengths = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    count = next(i for i, end in enumerate(itertools.accumulate(lengths), 1) if end >= size)
    return RectilinearAxis(size, np.array(lengths[:count]))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_users_are_the_blocks_whose_windows_have_elements_of_the_chunk(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 20))
    scale = AxisScale(*data.draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)])))
    chunks, blocks = data.draw(axes(size)), data.draw(axes(scale.of_length(size)))
    halo = data.draw(st.sampled_from([(0, 0), (1, 1), (0, 3), (2, 0), (25, 30)]))
    boundary = data.draw(st.sampled_from([None, 0, *MODES]))
    padded = boundary is not None and data.draw(st.booleans())
    axis = InputAxis(size, chunks, blocks, 0, scale, halo, boundary, padded)
    needed = [axis.chunks_of(block) for block in range(blocks.count_within(blocks.size))]
    users = [[i for i, found in enumerate(needed) if chunk in found] for chunk in range(chunks.count_within(size))]
    assert [list(axis.users(chunk)) for chunk in range(len(users))] == users
    assert axis.is_shared == any(len(blocks) > 1 for blocks in users)


@pytest.mark.parametrize("options", [{}, {"halo": 1}, {"halo": 1, "boundary": "reflect"}], ids=["none", "halo", "both"])
def test_millions_of_blocks_take_no_memory_before_the_first(options: dict[str, Any]) -> None:
    array = gzarr.create_array({}, shape=3_000_000, chunks=1, dtype="u1", device="cpu")

    class FirstCall(Exception):
        pass

    def function(_: Any) -> Any:
        raise FirstCall

    tracemalloc.start()
    try:
        with pytest.raises(FirstCall):
            gzarr.map_blocks(function, array, block=1, **options)
        # Less than four bytes for each block, with the modules that are imported meanwhile.
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
