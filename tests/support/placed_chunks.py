"""Random chunks of every geometry that kernels place into results, and the expected results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from support.device_arena import blocks_of, random_bytes, to_byte_planes

from gzarr.engines.cpu.threads import place
from gzarr.metadata.chunk_grid import ChunkGrid
from gzarr.plan.planner import Plan, plan
from gzarr.plan.selection import parse_basic, parse_orthogonal, parse_points

#: Function that places chunks by kernels, given a case, its plan, the chunks (None for absent ones), the bytes of the
#: fill value, views of a memory, and that memory.
Run = Callable[["Case", Plan, list[Any], bytes, list[Any], np.ndarray[Any, Any]], Any]


@dataclass(frozen=True)
class Case:
    """A read of an array of ``shape`` in chunks: their storage, and the layout of the results."""

    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    selections: tuple[Any, ...]
    itemsize: int
    width: int = 1
    offset: int = 0
    behind: int = 0
    swap: int = 0
    typesize: int = 1
    blocksize: int = 1 << 30
    chunk_order: str = "C"
    output_order: str = "C"
    misaligned: int = 0
    absent: bool = False
    skew: int = 0
    #: Native data types of stored elements and of those of ``itemsize`` that they become; None for no conversion.
    conversion: tuple[str, str] | None = None

    @property
    def stored_itemsize(self) -> int:
        """Bytes of a stored element, or of its field."""
        return self.itemsize if self.conversion is None else np.dtype(self.conversion[0]).itemsize

    @property
    def chunk_strides(self) -> tuple[int, ...]:
        """Strides of a stored chunk, in bytes."""
        strides = [0] * len(self.chunk_shape)
        stride = self.dtype.itemsize
        for d in range(len(strides)) if self.chunk_order == "F" else reversed(range(len(strides))):
            strides[d] = stride
            stride *= self.chunk_shape[d]
        return tuple(strides)

    @property
    def dtype(self) -> np.dtype[Any]:
        size = self.stored_itemsize
        whole = self.offset + size + self.behind
        return np.dtype({"names": ["f"], "formats": [f"V{size}"], "offsets": [self.offset], "itemsize": whole})

    def results_of(self, chunk: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a chunk of what its elements become."""
        if self.conversion is None:
            return chunk["f"]
        stored, result = self.conversion
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(chunk["f"]).view(stored).astype(result).view(f"V{self.itemsize}")


def stored(case: Case, chunk: np.ndarray[Any, Any]) -> bytes:
    """Return a chunk in the form in which decoders leave it."""
    raw = np.ascontiguousarray(chunk.transpose() if case.chunk_order == "F" else chunk)
    elements = raw.reshape(-1).view(np.uint8).reshape(raw.size, case.dtype.itemsize).copy()
    if case.swap > 1:
        taken = elements[:, case.offset : case.offset + case.stored_itemsize]
        taken[:] = taken.reshape(raw.size, -1, case.swap)[:, :, ::-1].reshape(raw.size, -1)
    data = elements.tobytes()
    if case.typesize == 1:
        return data
    return b"".join(to_byte_planes(block, case.typesize) for block in blocks_of(data, case.blocksize))


def check(case: Case, run: Run) -> Any:
    """Compare the output of kernels with the plan's meaning; return the result of ``run``."""
    count = math.prod(case.shape)
    content = np.frombuffer(random_bytes(count * case.dtype.itemsize, count), case.dtype).reshape(case.shape)
    planned = plan(case.selections, ChunkGrid.regular(case.shape, case.chunk_shape))
    fill = random_bytes(case.itemsize, 5)
    chunks: list[np.ndarray[Any, Any] | None] = []
    for i, coords in enumerate(planned.chunks.tolist()):
        chunk = np.zeros(case.chunk_shape, case.dtype)
        begin = [x * size for x, size in zip(coords, case.chunk_shape, strict=True)]
        part = content[tuple(slice(b, b + size) for b, size in zip(begin, case.chunk_shape, strict=True))]
        chunk[tuple(slice(0, size) for size in part.shape)] = part
        chunks.append(None if case.absent and i % 2 == 0 else chunk)
    result_dtype = np.dtype(f"V{case.itemsize}")
    nbytes = [math.prod(selection.result_shape) * case.itemsize for selection in case.selections]
    room = -(-(sum(nbytes) + 16 * len(nbytes) + 16) // 8) * 8
    # Both begin at the same distance after a multiple of 16.
    found, expected = (np.full(room + 16, 0x5A, np.uint8)[case.skew :][:room] for _ in range(2))
    views: dict[int, list[Any]] = {}
    for memory in (found, expected):
        at = 8 + case.width
        views[id(memory)] = []
        for selection, size in zip(case.selections, nbytes, strict=True):
            order: Any = case.output_order if selection.points is None else "C"
            output = np.ndarray(selection.result_shape, result_dtype, memory.data, at, order=order)
            views[id(memory)].append(output if selection.points is not None else selection.view(output))
            at += size + 8
    for i, chunk in enumerate(chunks):
        if chunk is None:
            results = np.full(case.chunk_shape, np.frombuffer(fill, result_dtype)[0])
        else:
            results = case.results_of(chunk)
        place(results, planned, i, views[id(expected)], None)
    answer = run(case, planned, chunks, fill, views[id(found)], found)
    assert np.array_equal(found, expected)
    return answer


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    def slices(size: int) -> st.SearchStrategy[Any]:
        bound = st.none() | st.integers(-size - 1, size + 1)
        steps = st.none() | st.integers(1, size) | st.integers(-size, -1)
        return st.builds(slice, bound, bound, steps) | st.integers(0, size - 1)

    def indices(size: int) -> st.SearchStrategy[Any]:
        return st.lists(st.integers(0, size - 1), min_size=1, max_size=9).map(lambda v: np.array(v, np.int64))

    kind = draw(st.sampled_from(["basic", "windows", "orthogonal", "points"]))
    if kind == "points":
        n = draw(st.integers(1, 12))
        points = [draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n)) for size in shape]
        return (parse_points(tuple(np.array(column, np.int64) for column in points), shape),)
    if kind == "orthogonal":
        return (parse_orthogonal(tuple(draw(slices(size) | indices(size)) for size in shape), shape),)
    windows = 1 if kind == "basic" else draw(st.integers(2, 4))
    return tuple(parse_basic(tuple(draw(slices(size)) for size in shape), shape) for _ in range(windows))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 16, 24]))
    offset, behind = draw(st.sampled_from([(0, 0), (0, 0), (4, 0), (3, 2), (0, 8)]))
    element = offset + itemsize + behind
    return Case(
        shape=shape,
        chunk_shape=tuple(draw(st.integers(1, 11)) for _ in shape),
        selections=draw(selections(shape)),
        itemsize=itemsize,
        width=draw(st.sampled_from([w for w in (1, 2, 4, 8) if itemsize % w == 0])),
        offset=offset,
        behind=behind,
        swap=draw(st.sampled_from([0, *(w for w in range(1, itemsize + 1) if itemsize % w == 0)])),
        typesize=draw(st.sampled_from([1, element, element, 2, 3, 4, 7, 8])),
        blocksize=draw(st.sampled_from([1 << 30, 16 * element, 40, 33, 1, 1000])),
        chunk_order=draw(st.sampled_from("CF")),
        output_order=draw(st.sampled_from("CF")),
        misaligned=draw(st.sampled_from([0, 0, 4, 1])),
        absent=draw(st.booleans()),
    )


#: Pairs of data types that kernels convert as NumPy does.
CONVERSIONS = [
    (stored, result)
    for stored in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?")
    for result in ("f4", "f8", *(("u1", "i2", "u4", "i8", "?") if stored[0] != "f" else ()))
    if stored != result
]


@st.composite
def conversions(draw: st.DrawFn) -> Case:
    """Return cases with a conversion."""
    stored, result = draw(st.sampled_from(CONVERSIONS))
    size, itemsize = np.dtype(stored).itemsize, np.dtype(result).itemsize
    case = draw(cases())
    return replace(
        case,
        itemsize=itemsize,
        width=draw(st.sampled_from([w for w in (1, 2, 4, 8) if itemsize % w == 0])),
        offset=0,
        behind=0,
        swap=draw(st.sampled_from([0, size])),
        typesize=draw(st.sampled_from([1, size, size, 2, 3, 4, 7, 8])),
        blocksize=draw(st.sampled_from([1 << 30, 16 * size, 40, 33, 1, 1000])),
        conversion=(stored, result),
    )
