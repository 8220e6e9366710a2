"""Placement of decoded chunks by the engine: the kernel that is used, and its results."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels.device import assemble as a
from gzarr_kernels.device import rows as r
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.device_arena import launch, random_bytes, to_byte_planes
from support.guarded_memory import Guarded
from support.placed_chunks import Case, cases, check, stored

from gzarr.engines.cuda.columns import Columns, output_memory, placement
from gzarr.engines.cuda.placing import DecodedChunks, placing_words, placings
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.plan.planner import plan
from gzarr.plan.selection import parse_basic, parse_orthogonal, parse_points

if TYPE_CHECKING:
    from gzarr.plan.planner import Plan

pytestmark = pytest.mark.slow
SETTINGS = settings(max_examples=400, deadline=None)
NAMES = {id(kernel): kernel.py_func.__name__ for kernel in (a.assemble, r.place_rows, r.place_planes)}


class Host:
    """The part of a device that gives the addresses of arrays."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    def address(self, array: np.ndarray[Any, Any]) -> int:
        return int(array.__array_interface__["data"][0])

    def flat(self, array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
        return self.memory, 0


def place_chunks(
    case: Case, planned: Plan, fill: bytes, source: list[int | None], arena: Any, views: list[Any], memory: Any
) -> list[tuple[str, list[int], int]]:
    """Place chunks in an arena at ``source``, after room for columns.

    Returns the name of each kernel that ran, the bytes per row of each of its pieces, and the number of dimensions
    above the rows.
    """
    k = max(planned.chunks.shape[1], 1)
    words = placing_words(k, len(views), len(planned), len(planned.start))
    nbytes = math.prod(case.chunk_shape) * case.dtype.itemsize
    value = np.zeros(1, case.dtype)
    value["f"] = np.frombuffer(fill, f"V{case.itemsize}")
    request: Any = SimpleNamespace(
        plan=planned, chunk=SimpleNamespace(dtype=case.dtype), fill_value=value[0], field="f"
    )
    place = placement(request)
    device: Any = Host(memory)
    output = output_memory(device, memory, tuple(views), k)
    layout = DecodedChunks(
        np.arange(len(planned)),
        # An absent chunk is where anything may be.
        np.array([-7 if at is None else at for at in source], np.int64),
        np.array([0 if at is None else case.typesize for at in source], np.int64),
        np.full(len(planned), case.blocksize),
        nbytes,
        case.chunk_strides,
        case.swap,
    )
    everything = arena.view(np.int64)
    columns = Columns(everything[:words], 0)
    found = []
    for one in placings(columns, place, layout, output):
        name = NAMES[id(one.kernel)]
        given = [arena, everything, place.tables, output.memory]
        rows, dims = [], 0
        if one.word:
            unit = f"u{one.word}"
            given = [arena, arena.view(unit), everything, place.tables, output.memory.view(unit)]
        else:
            header = everything[one.header : one.header + r.SIZE].tolist()
            size = r.FIELDS + r.DIM_FIELDS * header[r.DIMS]
            records = everything[header[r.RECORDS] :][: size * header[r.PIECES]].reshape(-1, size)
            rows = records[:, r.ROW].tolist()
            dims = int((records[:, r.FIELDS + r.COUNT :: r.DIM_FIELDS] > 1).any(axis=0).sum())
        launch(one.kernel, *given, one.header)
        found.append((name, rows, dims))
    return found


def run_placings(
    case: Case, planned: Plan, chunks: list[Any], fill: bytes, views: list[Any], memory: np.ndarray[Any, Any]
) -> list[tuple[str, list[int], int]]:
    """Place chunks like a wave. Reads before or after them crash."""
    source: list[int | None] = []
    encoded = [None if chunk is None else stored(case, chunk) for chunk in chunks]
    at = -(-8 * placing_words(max(len(case.shape), 1), len(views), len(chunks), len(planned.start)) // 16) * 16
    for data in encoded:
        source.append(None if data is None else at + case.misaligned)
        at = -(-(at + case.misaligned + len(data or b"")) // 16) * 16
    arena = Guarded(random_bytes(at, 3)).array
    for data, begin in zip(encoded, source, strict=True):
        if data is not None and begin is not None:
            arena[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
    return place_chunks(case, planned, fill, source, arena, views, memory)


def kernels_of(case: Case) -> list[str]:
    """Check a case, and return the names of the kernels that ran."""
    return [name for name, _, _ in check(case, run_placings)]


@st.composite
def long_rows(draw: st.DrawFn) -> Case:
    """Draw a case, mostly with rows of some dozens to thousands of bytes."""
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 3, 6, 12]))
    shape = (*draw(st.lists(st.integers(1, 7), max_size=3)), draw(st.integers(1, 300)))
    chunk_shape = [draw(st.integers(max(1, n // 2), n + 3)) for n in shape]
    exact = draw(st.booleans())
    if exact:
        chunk_shape[-1] = min(-(-shape[-1] // 8) * 8, 64)
    order = draw(st.sampled_from("CCCF"))

    def part(size: int, row: bool) -> Any:
        begin = draw(st.integers(0, size - 1))
        end = draw(st.integers(begin + 1, size))
        step = 1 if row else draw(st.sampled_from([1, 1, 1, 2, -1]))
        return slice(begin, end, step) if step > 0 else slice(end - 1, begin - 1 if begin else None, step)

    everything = parse_basic((), shape)
    row = 0 if order == "F" else len(shape) - 1
    kind = draw(st.sampled_from(["all", "part", "windows", "orthogonal"]))
    if kind == "all":
        selections = (everything,)
    elif kind == "orthogonal":
        tabled = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        chosen = tuple(
            np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9)), np.int64)
            if table and d != row
            else part(n, d == row)
            for d, (n, table) in enumerate(zip(shape, tabled, strict=True))
        )
        selections = (parse_orthogonal(chosen, shape),)
    else:
        windows = 1 if kind == "part" else draw(st.integers(2, 3))
        selections = tuple(
            parse_basic(tuple(part(n, d == row) for d, n in enumerate(shape)), shape) for _ in range(windows)
        )
    return Case(
        shape=shape,
        chunk_shape=tuple(chunk_shape),
        selections=selections,
        itemsize=itemsize,
        width=draw(st.sampled_from([w for w in (1, 2, 4, 8) if itemsize % w == 0])),
        swap=draw(st.sampled_from([0, *(w for w in range(1, itemsize + 1) if itemsize % w == 0)])),
        typesize=draw(st.sampled_from([1, itemsize, itemsize, itemsize, 2, 4, 7])),
        blocksize=draw(st.sampled_from([1 << 30, 1 << 30, 64 * itemsize, 16 * itemsize, 40, 33, 1, 1000])),
        chunk_order=order,
        output_order=order,
        misaligned=draw(st.sampled_from([0, 0, 0, 8, 1, 6])),
        absent=draw(st.booleans()),
        skew=draw(st.sampled_from([0, 0, 8, 4, 1, 15])) if itemsize not in (2, 4, 8, 16) else 8 * draw(st.booleans()),
    )


@given(long_rows())
@SETTINGS
def test_rows_go_where_the_plan_says(case: Case) -> None:
    check(case, run_placings)


@given(cases())
@SETTINGS
def test_all_else_goes_where_the_plan_says(case: Case) -> None:
    # A device's results have no larger elements, and no room for their fill value.
    assume(case.itemsize <= 16)
    check(case, run_placings)


def test_every_kernel_is_drawn() -> None:
    found: set[str] = set()

    @given(long_rows() | cases())
    @settings(max_examples=200, deadline=None, database=None, derandomize=True)
    def draw(case: Case) -> None:
        assume(case.itemsize <= 16)
        found.update(kernels_of(case))

    draw()
    assert found == {"assemble", "place_rows", "place_planes"}


def test_typical_reads_take_the_fast_kernels() -> None:
    shape = (70, 66, 80)
    volume = parse_basic((), shape)
    crop = parse_basic((slice(3, 69), slice(None, None, -1), slice(5, 78)), shape)
    for selection in (volume, crop):
        case = Case(shape, (64, 64, 64), (selection,), 2, width=2, typesize=2, blocksize=1 << 16)
        assert kernels_of(case) == ["place_planes"]
        assert kernels_of(replace(case, typesize=1, swap=2)) == ["place_rows"]
    small = (40, 30, 30)
    for itemsize in (2, 4, 8, 16):
        cube = Case(small, (16, 16, 16), (parse_basic((), small),), itemsize, min(itemsize, 8), typesize=itemsize)
        assert kernels_of(cube) == ["place_planes"]
        assert sorted(kernels_of(replace(cube, absent=True))) == ["place_planes", "place_rows"]
        assert kernels_of(replace(cube, chunk_order="F", output_order="F")) == ["place_planes"]
        assert kernels_of(replace(cube, chunk_order="F")) == ["assemble"]
    shape = (200, 300, 3)
    image = Case(shape, (128, 128, 3), (parse_basic((), shape),), 1)
    assert kernels_of(image) == ["place_rows"]
    chosen = parse_orthogonal((np.array([150, 3, 199, 3]), slice(7, 290), slice(None)), shape)
    assert kernels_of(replace(image, selections=(chosen,))) == ["place_rows"]
    for indices in ([35, 3, 17, 3], [35, 3]):
        box = parse_orthogonal((np.array(indices), slice(3, 29), slice(2, 30)), small)
        for typesize in (1, 4):
            chosen_box = Case(small, (16, 16, 16), (box,), 4, 4, typesize=typesize)
            assert kernels_of(chosen_box) == ["place_rows" if typesize == 1 else "place_planes"]


def test_what_is_not_rows_goes_element_by_element() -> None:
    shape = (40, 50)
    whole = parse_basic((), shape)
    case = Case(shape, (20, 30), (whole,), 4, width=4)
    assert kernels_of(case) == ["place_rows"]
    for selection in (
        parse_basic((slice(None), slice(None, None, 2)), shape),
        parse_basic((slice(None), slice(None, None, -1)), shape),
        parse_basic((slice(None), slice(7, 10)), shape),
        parse_basic((slice(None), 3), shape),
        parse_orthogonal((slice(None), np.arange(50)[::-3]), shape),
        parse_points((np.arange(20), np.arange(20)), shape),
    ):
        assert kernels_of(replace(case, selections=(selection,))) == ["assemble"]
    assert kernels_of(replace(case, offset=4)) == ["assemble"]
    assert kernels_of(replace(case, typesize=7)) == ["assemble"]
    assert kernels_of(replace(case, itemsize=6, width=2, swap=3)) == ["assemble"]
    # Element by element where the bytes of a unit would have to come from another one.
    assert kernels_of(replace(case, width=1, skew=1, swap=4)) == ["assemble"]
    assert kernels_of(replace(case, width=1, skew=1, typesize=4)) == ["assemble"]
    assert kernels_of(replace(case, width=1, skew=1)) == ["place_rows"]


def test_a_chunk_as_it_is_in_memory_is_one_row() -> None:
    shape = (24, 10, 12)
    whole = Case(shape, (8, 10, 12), (parse_basic((), shape),), 4, width=4)
    assert check(whole, run_placings) == [("place_rows", 3 * [8 * 10 * 12 * 4], 0)]
    part = Case(shape, (8, 10, 12), (parse_basic((slice(2, 20), slice(3, 7)), shape),), 4, width=4)
    assert check(part, run_placings) == [("place_rows", 3 * [4 * 12 * 4], 1)]
    split = Case(shape, (8, 5, 12), (parse_basic((), shape),), 4, width=4, typesize=4)
    assert check(split, run_placings) == [("place_planes", 6 * [5 * 12 * 4], 1)]
    both = Case((20, 4, 6, 12), (8, 2, 3, 12), (parse_basic((), (20, 4, 6, 12)),), 4, width=4, typesize=4)
    assert check(both, run_placings) == [("place_planes", 12 * [3 * 12 * 4], 2)]


def test_a_launch_of_several_tiles_a_piece_and_a_piece_of_several_tiles() -> None:
    assert r.tile_of(0) == r.tile_of(10_000) == r.LEAST_TILE
    assert r.tile_of(1 << 40) == r.MOST_TILE
    assert r.tile_of(5000 * r.ENOUGH_TILES) == 4864
    shape = (3, 100_003)
    selection = parse_basic((slice(None), slice(1, None)), shape)
    for typesize in (1, 8):
        case = Case(shape, (2, 70_001), (selection,), 8, width=8, typesize=typesize, blocksize=100_000)
        assert kernels_of(case) == ["place_rows" if typesize == 1 else "place_planes"]


@pytest.mark.parametrize("typesize", [1, 4])
def test_far_memory(typesize: int) -> None:
    """Chunks and results beyond 2 GiB, and rows of results further apart than that."""
    far = (1 << 31) + 64
    case = Case((3, 250), (3, 250), (parse_basic((), (3, 250)),), 4, 4, typesize=typesize)
    data = random_bytes(3000)
    # Memory that a launch shares: nothing of it is copied, and most of it never touched.
    arena = Guarded(far + 4096).array
    arena[far : far + 3000] = np.frombuffer(to_byte_planes(data, typesize), np.uint8)
    memory = Guarded(3 * far + 4096).array
    view = np.ndarray((3, 250), "V4", memory.data, far - 48, (far, 4))
    planned = plan(case.selections, ChunkGrid.regular(case.shape, case.chunk_shape))
    (found,) = place_chunks(case, planned, bytes(4), [far], arena, [view], memory)
    assert found == ("place_rows" if typesize == 1 else "place_planes", [1000], 1)
    assert view.tobytes() == data
    for i in range(3):
        begin = far - 48 + far * i
        assert not memory[begin - 64 : begin].any()
        assert not memory[begin + 1000 : begin + 1064].any()


@pytest.mark.parametrize("order", ["C", "F"])
def test_there_is_room_for_the_columns_of_many_pieces(order: str) -> None:
    shape = (40, 100)
    case = Case(shape, (1, 4), (parse_basic((), shape),), 8, 8, chunk_order="C", output_order=order, absent=True)
    assert kernels_of(case) == ["place_rows" if order == "C" else "assemble"]
    assert len(kernels_of(replace(case, typesize=8))) == (2 if order == "C" else 1)
