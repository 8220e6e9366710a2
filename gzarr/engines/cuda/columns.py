"""Arguments of a wave's kernels: int64 columns after the encoded bytes in page-locked memory, copied with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import DeviceError
from .. import stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ...plan.planner import Plan
    from ..access.access import ReadRequest
    from .device_protocol import Device

    IntArray = npt.NDArray[np.int64]

#: Largest unit in which the assemble kernel moves elements.
MAX_WORD_BYTES: Final = 8


class Columns:
    """int64 columns, one after the other.

    Parameters
    ----------
    memory
        int64 host memory to fill.
    start
        Index of ``memory[0]`` in the arena's int64 view.
    """

    def __init__(self, memory: IntArray, start: int) -> None:
        self._memory = memory
        self._start = start
        self.used: int = 0

    def put(self, values: npt.ArrayLike) -> int:
        """Append a column; return its index in the arena's int64 view."""
        column = np.asarray(values, np.int64).reshape(-1)
        index, memory = self.place(column.size)
        memory[:] = column
        return index

    def place(self, words: int) -> tuple[int, IntArray]:
        """Append a column; return its index in the arena's int64 view, and its memory, to be filled.

        New memory of many columns would cost more than to compute them: the system has to provide its pages.
        """
        end = self.used + words
        if end > self._memory.size:
            # The wave's shape was computed wrongly; the kernels must not see half a column.
            raise DeviceError(f"a wave's columns need more than the {self._memory.size} words reserved for them")
        index, memory = self._start + self.used, self._memory[self.used : end]
        self.used = end
        return index, memory

    def put_bytes(self, data: npt.NDArray[np.uint8], words: int) -> int:
        """Append bytes at a multiple of 16 bytes, zero-padded to ``words`` words; return their offset in the arena."""
        padded = np.zeros(8 * words, np.uint8)
        padded[: data.size] = data
        if (self._start + self.used) % 2:
            self.put([0])
        return 8 * self.put(padded.view(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """The memory of a read's results.

    Attributes
    ----------
    memory, address
        1-d uint8 device memory, from the lowest to the highest byte of the results, and its address.
    word
        Bytes of the units in which the assemble kernel moves elements.
    base
        int64 ``(g,)``, in words: offset of the first element of each output.
    strides
        int64 ``(g, k)``, in words.
    """

    memory: Any
    address: int
    word: int
    base: IntArray
    strides: IntArray


def output_memory(device: Device, whole: Any, outputs: Sequence[Any], k: int) -> Output:
    """Return the memory of a read's results.

    Parameters
    ----------
    device
        Device that holds the arrays.
    whole
        Device array that all ``outputs`` are views of.
    outputs
        Device arrays of ``k`` dimensions (any number for points), at least one.
    k
        Number of placement dimensions, at least 1.
    """
    memory, first = device.flat(whole)
    start = device.address(whole) - first
    offsets = stack.addresses(outputs, device.address) - start
    strides = stack.strides(outputs, k)
    distances = int(np.gcd.reduce(strides, axis=None)), int(np.gcd.reduce(offsets))
    word = math.gcd(MAX_WORD_BYTES, outputs[0].dtype.itemsize, start, *distances)
    return Output(memory, start, word, offsets // word, strides // word)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How decoded chunks become results; shared by all waves of a read.

    Attributes
    ----------
    plan
        Plan of the whole read.
    k
        Number of placement dimensions, at least 1.
    itemsize
        Bytes of an element of the results.
    field_offset
        Offset of the field to place, in bytes.
    fill
        uint8, the fill value as one element of the results, in native byte order.
    tables
        int64 host column: index tables and points.
    table_source, table_target
        Index into ``tables`` for each dimension; -1 for none.
    point_source, point_target
        Index into ``tables``; -1 for none.
    """

    plan: Plan
    k: int
    itemsize: int
    field_offset: int
    fill: npt.NDArray[np.uint8]
    tables: IntArray
    table_source: tuple[int, ...]
    table_target: tuple[int, ...]
    point_source: int
    point_target: int


def placement(request: ReadRequest) -> Placement:
    """Return the placement of a read."""
    plan = request.plan
    k = max(plan.chunks.shape[1], 1)
    chunk = request.chunk
    one = np.zeros(1, chunk.dtype)
    if request.fill_value is not None:
        one[0] = request.fill_value
    field_offset = 0
    if request.field is not None:
        fields = chunk.dtype.fields
        assert fields is not None
        field_offset = fields[request.field][1]
        one = np.ascontiguousarray(one[request.field])
    parts: list[IntArray] = [np.zeros(1, np.int64)]
    at = 1

    def put(column: IntArray) -> int:
        nonlocal at
        index = at
        parts.append(column.reshape(-1))
        at += column.size
        return index

    source, target = [-1] * k, [-1] * k
    for d, table in enumerate(plan.tables):
        if table is not None:
            source[d], target[d] = put(table.source), put(table.target)
    point_source = point_target = -1
    if plan.points is not None:
        points = plan.points.source
        point_source = put(points if points.shape[1] else np.zeros((len(points), 1), np.int64))
        point_target = put(plan.points.target)
    return Placement(
        plan=plan,
        k=k,
        itemsize=one.dtype.itemsize,
        field_offset=field_offset,
        fill=one.view(np.uint8),
        tables=np.concatenate(parts),
        table_source=tuple(source),
        table_target=tuple(target),
        point_source=point_source,
        point_target=point_target,
    )


def pieces_of(plan: Plan, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the pieces of some chunks.

    Returns
    -------
    pieces
        int64, rows of the plan's piece columns.
    owner
        int64, position in ``rows`` of each piece's chunk.
    """
    begin = plan.piece_offsets[rows]
    counts = plan.piece_offsets[rows + 1] - begin
    if (counts == 1).all():
        return begin, np.arange(len(rows))
    owner = np.repeat(np.arange(len(rows)), counts)
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(begin - before, counts), owner
