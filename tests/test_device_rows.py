"""How the engine places decoded chunks: by which kernel, and that it writes what the plan means, in the simulator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from device_arena import launch, random_bytes
from gzarr_kernels.device import assemble as a
from gzarr_kernels.device import rows as r
from gzarr_kernels.device.target import SIMULATED
from guarded_memory import Guarded
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placed_chunks import Case, cases, check, stored

from gzarr.engines.cuda.columns import Columns, output_memory, placement
from gzarr.engines.cuda.placing import Layout, placing_words, placings
from gzarr.plan import plan
from gzarr.selection import parse_basic, parse_orthogonal, parse_points

if TYPE_CHECKING:
    from gzarr.plan import Plan

SETTINGS = settings(max_examples=400, deadline=None)
NAMES = {id(kernel): kernel.__name__ for kernel in (a.assemble, r.place_rows, r.place_planes)}


@pytest.fixture(scope="module", autouse=True)
def _loops_are_compiled() -> None:
    """Compile the loops by themselves: in a launch, the simulator's waiting threads slow the compiler down."""
    assert SIMULATED
    nothing = np.zeros(64, np.int64)
    memory = nothing.view(np.uint8)
    r._place(memory, nothing, nothing, memory, 0, 0, 1, 0, 1, False)
    for width in (1, 2, 4, 8):
        words = nothing.view(f"u{width}")
        a._assemble(memory, words, nothing, nothing, words, 0, 0, 1, 0, 1)


class Host:
    """What of a device says where arrays lie."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    def address(self, array: np.ndarray[Any, Any]) -> int:
        return int(array.__array_interface__["data"][0])

    def flat(self, array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
        return self.memory, 0


def run_placings(
    case: Case, planned: Plan, chunks: list[Any], fill: bytes, views: list[Any], memory: np.ndarray[Any, Any]
) -> list[str]:
    """Place chunks as a wave does; return the kernels that ran. Reading behind the last chunk, or before, crashes."""
    k = max(planned.chunks.shape[1], 1)
    words = -(-placing_words(k, len(views), len(chunks), len(planned.start)) // 2) * 2
    encoded = [None if chunk is None else stored(case, chunk) for chunk in chunks]
    source, at = [], 8 * words
    for i, data in enumerate(encoded):
        # An absent chunk is where anything may be.
        source.append(at + case.misaligned if data is not None else -16 * i - 7)
        at = -(-(at + case.misaligned + len(data or b"")) // 16) * 16
    arena = Guarded(random_bytes(at, 3)).array
    for data, begin in zip(encoded, source, strict=True):
        if data is not None:
            arena[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
    present = [data is not None for data in encoded]
    nbytes = int(np.prod(case.chunk_shape)) * case.dtype.itemsize
    value = np.zeros(1, case.dtype)
    value["f"] = np.frombuffer(fill, f"V{case.itemsize}")
    request: Any = SimpleNamespace(
        plan=planned, chunk=SimpleNamespace(dtype=case.dtype), fill_value=value[0], field="f"
    )
    place = placement(request)
    output = output_memory(Host(memory), memory, tuple(views), k)  # type: ignore[arg-type]
    layout = Layout(
        np.arange(len(planned)),
        np.array(source, np.int64).reshape(len(planned)),
        np.where(present, case.typesize, 0),
        np.full(len(planned), min(case.blocksize, max(nbytes, 1))),
        nbytes,
    )
    columns = arena[: 8 * words].view(np.int64)
    launches = placings(Columns(columns, 0), place, layout, output, case.chunk_strides, case.swap)
    before = arena.copy()
    everything = arena.view(np.int64)
    for one in launches:
        given = [arena, everything, place.tables, output.memory]
        if one.unit:
            unit = f"u{one.unit}"
            given = [arena, arena.view(unit), everything, place.tables, output.memory.view(unit)]
        launch(one.kernel, *given, one.header)
    assert np.array_equal(arena, before), "the arena is only read"
    return [NAMES[id(one.kernel)] for one in launches]


@st.composite
def long_rows(draw: st.DrawFn) -> Case:
    """Draw a case in which rows of some dozens to thousands of bytes are the rule."""
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
        found.update(check(case, run_placings))

    draw()
    assert found == {"assemble", "place_rows", "place_planes"}
