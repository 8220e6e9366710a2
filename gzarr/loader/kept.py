"""Chunks that stay decoded, and reads that take from them what they can."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..engines.cpu.batch import Gathering, Pieces, available
from ..engines.kernels import address
from ..engines.stack import Stack
from ..plan.planner import plan_windows, some_chunks
from ..sparse.view import DenseView
from .keeping import numbers_of
from .reading import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..plan.planner import Plan
    from .keeping import Keeping
    from .memory import Memory
    from .reading import Source

    IntArray = npt.NDArray[np.int64]

#: Bytes of the pieces in which host memory is taken, about.
_PIECE_BYTES: Final = 8 << 20


class Wanted:
    """What one read wants of the chunks of one source.

    Parameters
    ----------
    source
        The source.
    first
        Number of its first chunk.
    origins, outputs, memory, rows
        As for :meth:`gzarr.loader.reading.Source.read`.

    Attributes
    ----------
    numbers
        int64 ``(n,)``, the chunks.
    """

    def __init__(
        self,
        source: Source,
        first: int,
        origins: IntArray,
        outputs: Sequence[Any],
        memory: Memory,
        rows: IntArray | None,
    ) -> None:
        self.source: Source = source
        self._memory, self._origins = memory, origins
        self._target = target = Target(source, origins, outputs, memory, rows)
        self._plan = plan_windows(target.inside, source.read_shape, (1,) * source.array.ndim, source.grid)
        self.numbers: IntArray = numbers_of(self._plan, source, first)
        if target.rows is not None:
            self._plan = replace(self._plan, output=target.rows[self._plan.output])
        self._outputs = Stack(target.outputs)

    @property
    def uses(self) -> int:
        """Chunks that samples need, counted for each sample."""
        # Chunks of views of matrices are none of these: their rows have elements in chunks of two arrays.
        if isinstance(self.source.array, DenseView):
            return self.source.uses(self._origins)
        return int(self._plan.piece_offsets[-1])

    def decode(self, rows: IntArray) -> None:
        """Decode some of the chunks right into the outputs."""
        self.source.array._read_planned(self._some(rows), self._outputs.arrays, self._memory.stream)

    def decoded(self, rows: IntArray, memory: ChunkMemory) -> list[Any]:
        """Return some of the chunks, cut at the array's end, in some memory."""
        source, chunks = self.source, self._plan.chunks[rows]
        begins = source.grid.begins(chunks)
        ends = np.minimum(begins + source.grid.lengths(chunks), source.array.shape)
        boxes = [tuple(map(slice, *ends_of)) for ends_of in zip(begins.tolist(), ends.tolist(), strict=True)]
        arrays = [memory.empty(shape, source.array.dtype, source.chunk_nbytes) for shape in (ends - begins).tolist()]
        source.array.read_many(boxes, out=arrays, stream=self._memory.stream)
        return arrays

    def copy(self, rows: IntArray, arrays: Sequence[Any]) -> None:
        """Copy what is wanted of some of the chunks, which were decoded before."""
        part = self._some(rows)
        if not len(part):
            return
        which = np.repeat(np.arange(len(rows)), np.diff(part.piece_offsets))
        contiguous = not self.source.part.flip
        if contiguous and self._memory.stream is None and available():
            self._gather(part, which, arrays)
            return
        columns = part.output.tolist(), part.start.tolist(), part.target.tolist(), part.count.tolist()
        for chunk, output, start, at, count in zip(which.tolist(), *columns, strict=True):
            taken = tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))
            place = tuple(slice(a, a + n) for a, n in zip(at, count, strict=True))
            self._memory.results.copy(self._outputs[output][place], arrays[chunk][taken])

    def _gather(self, part: Plan, which: IntArray, arrays: Sequence[Any]) -> None:
        """Copy pieces in compiled code, each from one of some arrays in host memory."""
        order = np.argsort(part.output, kind="stable")
        pieces = Pieces(
            self.source.read_shape,
            self.source.array.dtype,
            part.output[order],
            part.target[order],
            part.count[order],
            part.start[order],
            which[order],
            np.array([address(array) for array in arrays], np.int64),
            np.array([array.strides for array in arrays], np.int64),
        )
        gathering, low = Gathering([pieces]), 0
        for output in self._outputs.arrays:
            high = low + len(output)
            gathering.run(low, high, [output])
            low = high

    def complete(self) -> None:
        """Fill what is outside of the array, once everything else is there."""
        self._target.pad()

    def _some(self, rows: IntArray) -> Plan:
        return some_chunks(self._plan, rows)


class _Slot:
    """The base of a chunk's array in host memory; gives its memory back when the last array over it is gone."""

    __slots__ = ("__array_interface__", "_free", "_memory")

    def __init__(self, memory: Any, free: list[Any]) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._memory)


class ChunkMemory:
    """Memory of chunks, used again for others of their size.

    In host memory, chunks lie in large pieces, which are used again by the next epoch: pages of new memory cost more
    than to decode a chunk.

    Parameters
    ----------
    memory
        Where from.
    room
        Most bytes of the chunks.
    """

    def __init__(self, memory: Memory, room: int) -> None:
        self._memory, self._room = memory, room
        self._free: dict[int, list[Any]] = {}

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any], room: int) -> Any:
        """Return an array in a place of ``room`` bytes, uninitialised."""
        free = self._free.setdefault(room, [])
        if not free:
            count = max(min(_PIECE_BYTES, self._room) // room, 1)
            piece = self._memory.slabs(count * room, count * room)
            if piece is None:
                return self._memory.results.empty(tuple(shape), dtype)
            free.extend(piece[begin : begin + room] for begin in range(0, count * room, room))
        slot = np.asarray(_Slot(free.pop(), free))
        return slot[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def close(self) -> None:
        """Free what no chunk is in."""
        self._free.clear()


class Kept:
    """The chunks of an epoch that stay decoded.

    Parameters
    ----------
    keeping
        Tells which.
    memory
        Their memory.
    at_once
        Bytes of chunks that are decoded together to stay: a device takes as much memory besides.
    """

    def __init__(self, keeping: Keeping, memory: ChunkMemory, at_once: int) -> None:
        self.keeping = keeping
        self._memory = memory
        self._at_once = at_once
        self._arrays: dict[int, Any] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks."""
        return sum(array.nbytes for array in self._arrays.values())

    def read(self, all_wanted: Sequence[Wanted], stay: IntArray) -> int:
        """Read what is wanted, and have some chunks stay.

        Parameters
        ----------
        all_wanted
            What is wanted, for each source.
        stay
            int64, ascending: the chunks that stay.

        Returns
        -------
        Chunks that samples need, counted for each sample.

        Raises
        ------
        GzarrError
            If a chunk cannot be read. What stayed before is still there, unless it is not to stay.
        """
        arrays = self._arrays
        try:
            fresh = []
            for wanted in all_wanted:
                here = np.array([number in arrays for number in wanted.numbers.tolist()], bool)
                new = ~here & np.isin(wanted.numbers, stay)
                # First what is decoded right into the outputs: a device may write more of them than that.
                wanted.decode(np.flatnonzero(~here & ~new))
                rows = np.flatnonzero(here)
                wanted.copy(rows, [arrays[number] for number in wanted.numbers[rows].tolist()])
                fresh.append(np.flatnonzero(new))
        finally:
            # What no longer stays makes way before more is decoded.
            held = np.fromiter(arrays, np.int64, len(arrays))
            for number in held[~np.isin(held, stay)].tolist():
                del arrays[number]
        for wanted, rows in zip(all_wanted, fresh, strict=True):
            each = max(self._at_once // wanted.source.chunk_nbytes, 1)
            for begin in range(0, len(rows), each):
                some = rows[begin : begin + each]
                decoded = wanted.decoded(some, self._memory)
                wanted.copy(some, decoded)
                arrays.update(zip(wanted.numbers[some].tolist(), decoded, strict=True))
            wanted.complete()
        return sum(wanted.uses for wanted in all_wanted)

    def clear(self) -> None:
        """Free all of them, and their memory."""
        self._arrays.clear()
        self._memory.close()
