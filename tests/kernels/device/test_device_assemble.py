"""The assemble kernel, as compiled for a GPU, against a plain implementation of plans."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels.device import assemble as a
from gzarr_kernels.device import filters
from hypothesis import given, settings
from support.device_arena import Arena, launch, random_bytes, to_byte_planes
from support.guarded_memory import Guarded
from support.placed_chunks import CONVERSIONS, Case, cases, check, conversions, stored

from gzarr.plan.selection import parse_basic, parse_orthogonal, parse_points

if TYPE_CHECKING:
    from gzarr.plan.planner import Plan

SETTINGS = settings(max_examples=150, deadline=None)


pytestmark = pytest.mark.slow


def run_assemble(
    case: Case, planned: Plan, chunks: list[np.ndarray[Any, Any] | None], fill: bytes, views: list[Any], memory: Any
) -> None:
    """Write the columns as documented by ``assemble``, and run it into ``memory``, of which ``views`` are parts."""
    k = len(case.chunk_shape)
    width = case.width
    encoded = [None if chunk is None else stored(case, chunk) for chunk in chunks]
    arena = Arena.of(sum(len(data or fill) + 64 for data in encoded) + 128 * planned.start.size)
    source = [
        arena.put_bytes(fill, width * (i % 2)) if data is None else arena.put_bytes(data, case.misaligned)
        for i, data in enumerate(encoded)
    ]
    tables: list[int] = [-7, -7]
    table_source, table_target = [-1] * k, [-1] * k
    point_source = point_target = -1

    def table(values: Any) -> int:
        tables.extend(values.ravel().tolist())
        return len(tables) - values.size

    for d, entry in enumerate(planned.tables):
        if entry is not None:
            table_source[d], table_target[d] = table(entry.source), table(entry.target)
    elements = np.prod(planned.count, axis=1)
    strides = np.zeros((len(views), k), np.int64)
    if planned.points is not None:
        point_source, point_target = table(planned.points.source), table(planned.points.target)
    else:
        strides[:] = [view.strides for view in views]
    start = memory.__array_interface__["data"][0]
    base = [view.__array_interface__["data"][0] - start for view in views]
    tiles = np.concatenate([[0], np.cumsum(-(-elements // a.TILE))])
    nbytes = math.prod(case.chunk_shape) * case.dtype.itemsize
    header = np.zeros(a.SIZE, np.int64)
    header[a.K], header[a.ITEMSIZE], header[a.FIELD_OFFSET], header[a.SWAP] = k, case.itemsize, case.offset, case.swap
    header[a.CHUNK_SOURCE] = arena.put(source)
    header[a.CHUNK_TYPESIZE] = arena.put([0 if data is None else case.typesize for data in encoded])
    header[a.CHUNK_BLOCKSIZE] = arena.put([case.blocksize] * len(encoded))
    header[a.CHUNK_NBYTES] = arena.put([nbytes] * len(encoded))
    header[a.PIECES], header[a.TILES] = len(elements), tiles[-1]
    header[a.TILE_OFFSETS] = arena.put(tiles)
    header[a.PIECE_CHUNK] = arena.put(np.repeat(np.arange(len(planned)), np.diff(planned.piece_offsets)))
    header[a.START], header[a.COUNT] = arena.put(planned.start), arena.put(planned.count)
    header[a.TARGET], header[a.OUTPUT] = arena.put(planned.target), arena.put(planned.output)
    header[a.STEP], header[a.STRIDES] = arena.put(planned.step), arena.put(case.chunk_strides)
    header[a.OUTPUT_BASE] = arena.put(np.array(base) // width)
    header[a.OUTPUT_STRIDES] = arena.put(strides // width)
    header[a.TABLE_SOURCE], header[a.TABLE_TARGET] = arena.put(table_source), arena.put(table_target)
    header[a.POINT_SOURCE], header[a.POINT_TARGET] = point_source, point_target
    kernel = a.assemble
    if case.conversion is not None:
        kernel = a.assemble_converted
        before, after = map(np.dtype, case.conversion)
        header[a.CONVERSION] = arena.put(filters.header_of(before, after))
    job = arena.put(header)
    content = arena.memory.copy()
    unit = f"u{width}"
    launch(
        kernel,
        arena.memory,
        arena.memory.view(unit),
        arena.columns,
        np.array(tables, np.int64),
        memory.view(unit),
        job,
    )
    assert np.array_equal(arena.memory, content), "the arena is only read"


@given(cases())
@SETTINGS
def test_assemble_does_what_the_plan_says(case: Case) -> None:
    check(case, run_assemble)


@given(conversions())
@SETTINGS
def test_elements_are_converted_where_they_are_placed(case: Case) -> None:
    check(case, run_assemble)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=" to ".join)
def test_all_pairs_of_types_in_many_tiles(conversion: tuple[str, str]) -> None:
    shape = (3, 40, 35)
    size, itemsize = (np.dtype(name).itemsize for name in conversion)
    steps = parse_basic((slice(1, 3), slice(None, None, -1), slice(0, 35, 2)), shape)
    case = Case(shape, (3, 32, 35), (steps, parse_basic((), shape)), itemsize, width=itemsize, conversion=conversion)
    check(replace(case, swap=size, absent=True), run_assemble)
    check(replace(case, typesize=size, blocksize=640 * size), run_assemble)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shuffled", [False, True])
def test_assemble_pieces_of_many_tiles(itemsize: int, shuffled: bool) -> None:
    shape = (13, 21, 35)
    steps = parse_basic((slice(1, 12), slice(None, None, -1), slice(0, 35, 2)), shape)
    whole = parse_basic((), shape)
    for selection in (whole, steps):
        check(
            Case(
                shape,
                (13, 16, 35),
                (selection,),
                itemsize,
                width=min(itemsize, 8),
                swap=itemsize if itemsize < 16 else 8,
                typesize=itemsize if shuffled else 1,
                blocksize=640 * itemsize,
            ),
            run_assemble,
        )


def test_assemble_many_points_and_long_tables() -> None:
    shape = (5000, 3)
    rng = np.random.default_rng(2)
    points = parse_points((rng.integers(0, 5000, 3000), rng.integers(0, 3, 3000)), shape)
    rows = parse_orthogonal((rng.integers(0, 5000, 3000), slice(None)), shape)
    columns = parse_orthogonal((slice(2, 4), rng.integers(0, 5000, 3000)), (5, 5000))
    check(Case(shape, (5000, 3), (points,), 4, width=4, typesize=4, blocksize=4096), run_assemble)
    check(Case(shape, (5000, 3), (rows,), 4, width=2), run_assemble)
    check(Case((5, 5000), (5, 4999), (columns,), 2, width=2), run_assemble)


def test_assemble_with_indices_beyond_31_bits() -> None:
    far = (1 << 31) + 64
    arena = Arena(Guarded(far + 8192).array)
    data = np.frombuffer(random_bytes(4096), np.uint32)
    arena.used = far
    source = arena.put_bytes(to_byte_planes(data.tobytes(), 4))
    out = Guarded(far + 4 * 4096).array.view(np.uint32)
    header = np.zeros(a.SIZE, np.int64)
    header[[a.K, a.ITEMSIZE, a.PIECES, a.TILES]] = 1, 4, 1, 1
    columns = {
        a.CHUNK_SOURCE: [source],
        a.CHUNK_TYPESIZE: [4],
        a.CHUNK_BLOCKSIZE: [4096],
        a.CHUNK_NBYTES: [4096],
        a.TILE_OFFSETS: [0, 1],
        a.PIECE_CHUNK: [0],
        a.START: [0],
        a.COUNT: [1024],
        a.TARGET: [far // 4],
        a.OUTPUT: [0],
        a.STEP: [1],
        a.STRIDES: [4],
        a.OUTPUT_BASE: [0],
        a.OUTPUT_STRIDES: [1],
        a.TABLE_SOURCE: [-1],
        a.TABLE_TARGET: [-1],
    }
    for entry, values in columns.items():
        header[entry] = arena.put(values)
    header[[a.POINT_SOURCE, a.POINT_TARGET]] = -1
    job = arena.put(header)
    tables = np.zeros(1, np.int64)
    launch(a.assemble, arena.memory, arena.memory.view(np.uint32), arena.columns, tables, out, job)
    assert np.array_equal(out[far // 4 : far // 4 + 1024], data)
