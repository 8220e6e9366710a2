"""All levels of a pyramid in one pass over level 0.

Level 0 is visited box by box, in threads (``plan.in_order``). Each box is downsampled into a part of a box of level
1, which is written and passed on to level 2 when it is complete, and so on: level 0 is read once, nothing that is
written is read again, and of each level only a few boxes are in memory. A box of a level consists of whole chunks
(shards) of its array, so that no two threads write to the same one.
"""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...arrays.array import Array
from ...arrays.view import ArrayView
from ...blocks import workers
from ...dtypes.masks import refuse_masked
from ...dtypes.nulls import is_of_dask
from ...engines import pool
from ...engines.cuda.devices import get_device
from ...guarded import ForkSafeLock, Lock
from .downsample import cells_of, downsample_into
from .plan import PlannedGrid, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .plan import Box, LevelShape, Shape

#: Limit of the memory of a pass, unless single chunks or shards need more.
DEFAULT_BUDGET_BYTES: Final = 256 << 20
#: Boxes of level 0 grow to about this size: far less costs time for each, far more leaves the processor's caches.
_BOX_BYTES: Final = 4 << 20
#: netCDF4 lets other threads run while netCDF-C reads, which is not safe for threads, not even of several files.
_NETCDF: Final = ForkSafeLock()


@dataclass(frozen=True)
class LevelSource:
    """What level 0 is read from.

    Attributes
    ----------
    array
        :class:`gzarr.Array` or a view of one, NumPy or CuPy array, or any object with ``shape``, ``dtype`` and
        ``array[box]``.
    """

    array: Any

    @property
    def chunk_shape(self) -> Shape | None:
        """Shape of the parts that are decoded as one; None if reading any part costs the same, or it is unknown."""
        chunks = getattr(self.array, "chunks", None)
        if isinstance(self.array, np.ndarray) or not isinstance(chunks, tuple) or len(chunks) != len(self.array.shape):
            return None
        # dask has a tuple of lengths for each axis.
        lengths = [max(c) if isinstance(c, tuple) and c else c for c in chunks]
        return tuple(lengths) if all(isinstance(c, int) and c > 0 for c in lengths) else None

    def read(self, box: Box, buffers: Buffers) -> Any:
        """Return the elements of a box, in memory of the calling thread that is reused for its next box.

        Raises
        ------
        ArgumentError
            If an element is masked.
        """
        array = self.array
        if isinstance(array, (Array, ArrayView)):
            if array.device != "cpu":
                return array.read(box)
            return array.read(box, out=buffers.take(tuple(s.stop - s.start for s in box), array.dtype))
        with _NETCDF.lock if _is_of_netcdf(array) else contextlib.nullcontext():
            found = array[box]
        if is_of_dask(found):
            # Its own conversion to an array drops masks.
            found = found.compute()
        if isinstance(found, np.ndarray) or not hasattr(found, "get"):
            refuse_masked(found, "data")
            found = np.asarray(found)
            return found.astype(found.dtype.newbyteorder("="), copy=False)
        return found


def _is_of_netcdf(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "netCDF4"


class Buffers(threading.local):
    """Memory of each thread, which is reused so that the system does not have to clear new memory for every box."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, shape: Shape, dtype: np.dtype[Any]) -> Any:
        """Return an array whose content is undefined."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._memory.nbytes < nbytes:
            self._memory = np.empty(nbytes, np.uint8)
        return self._memory[:nbytes].view(dtype).reshape(shape)


class _PartOfLevel:
    """A box of a level that is being put together.

    Attributes
    ----------
    elements
        Array of the box's shape.
    missing
        Number of elements that are not there yet.
    """

    __slots__ = ("elements", "memory", "missing")

    def __init__(self, memory: Any, shape: Shape) -> None:
        self.memory = memory
        self.elements = memory[tuple(slice(0, n) for n in shape)]
        self.missing = math.prod(shape)


class _Level:
    """A level below level 0 in the making; used by several threads."""

    def __init__(self, grid: PlannedGrid, target: Array) -> None:
        self.grid = grid
        self._target = target
        self._lock = Lock()
        self._parts: dict[Shape, _PartOfLevel] = {}
        self._spare: list[Any] = []

    def put(self, box: Box, elements: Any, method: str) -> Iterator[tuple[Box, Any]]:
        """Downsample a box of the level before; yield the boxes that are complete by that, after writing them."""
        grid = self.grid
        assert grid.factors is not None
        begin = tuple(s.start // f for s, f in zip(box, grid.factors, strict=True))
        cells = cells_of(elements.shape, grid.factors)
        end = tuple(b + n for b, n in zip(begin, cells, strict=True))
        for place in _places(begin, end, grid.unit):
            own = grid.box(place)
            inner = [(max(s.start, b), min(s.stop, e)) for s, b, e in zip(own, begin, end, strict=True)]
            part = self._part(place, own, elements)
            downsample_into(
                elements[
                    tuple(
                        slice((b - first) * f, (e - first) * f)
                        for (b, e), first, f in zip(inner, begin, grid.factors, strict=True)
                    )
                ],
                part.elements[tuple(slice(b - s.start, e - s.start) for (b, e), s in zip(inner, own, strict=True))],
                grid.factors,
                method,
            )
            if self._is_complete(place, part, math.prod(e - b for b, e in inner)):
                self._target.write(own, part.elements)
                yield own, part.elements
                with self._lock:
                    self._spare.append(part.memory)

    def _part(self, place: Shape, box: Box, like: Any) -> _PartOfLevel:
        with self._lock:
            part = self._parts.get(place)
            if part is None:
                memory = self._spare.pop() if self._spare else None
                if memory is None:
                    unit = tuple(min(u, n) for u, n in zip(self.grid.unit, self.grid.shape, strict=True))
                    memory = np.empty_like(like, shape=unit, order="C")
                part = self._parts[place] = _PartOfLevel(memory, tuple(s.stop - s.start for s in box))
            return part

    def _is_complete(self, place: Shape, part: _PartOfLevel, count: int) -> bool:
        """Count elements of a part as there; return whether they all are, to exactly one thread."""
        with self._lock:
            part.missing -= count
            if part.missing:
                return False
            del self._parts[place]
            return True


def _places(begin: Shape, end: Shape, unit: Shape) -> Iterator[Shape]:
    """Yield the grid coordinates of the boxes that a region touches."""
    ranges = [range(b // u, -(-e // u)) for b, e, u in zip(begin, end, unit, strict=True)]
    first = tuple(r.start for r in ranges)
    for offset in np.ndindex(*map(len, ranges)):
        yield tuple(f + o for f, o in zip(first, offset, strict=True))


class Pass:
    """One pass over level 0.

    Parameters
    ----------
    source
        What level 0 is read from.
    target
        Array of level 0, of the same shape, to be written; None if it is there already.
    levels, targets
        The levels below, and their arrays. None of them may be changed by others meanwhile.
    method
        One of ``downsample.METHODS``.
    budget_bytes
        Limit of the memory used; fewer threads work if each needs much. One box of each level may need more.

    Attributes
    ----------
    total
        Number of boxes of level 0.
    """

    def __init__(
        self,
        source: LevelSource,
        target: Array | None,
        levels: Sequence[LevelShape],
        targets: Sequence[Array],
        *,
        method: str,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
    ) -> None:
        self._source = source
        self._target = target
        self._method = method
        self._grids = grids_of(source, target, levels, targets, budget_bytes)
        self._levels = [_Level(grid, array) for grid, array in zip(self._grids[1:], targets, strict=True)]
        self._buffers = Buffers()
        self._threads = _threads(self._grids, _itemsize(source, target), budget_bytes)
        self.total: int = self._grids[0].count

    def steps(self) -> Iterator[None]:
        """Work; yield after each box of level 0."""
        wait_for_maker(self._source.array)
        helped = getattr(self._source.array, "device", "cpu") != "cpu"
        boxes = in_order(self._grids)
        for _ in workers.run(boxes, self._work, threads=self._threads, describe=_describe, helped=helped):
            yield

    def _work(self, box: Box) -> None:
        elements = self._source.read(box, self._buffers)
        if self._target is not None:
            self._target.write(box, elements)
        self._pass_on(0, box, elements)

    def _pass_on(self, level: int, box: Box, elements: Any) -> None:
        if level < len(self._levels):
            with on_device_of(elements):
                for complete, its in self._levels[level].put(box, elements, self._method):
                    self._pass_on(level + 1, complete, its)


def on_device_of(elements: Any) -> contextlib.AbstractContextManager[Any]:
    """Make the device of a CuPy array the thread's current one, which runs what is computed with it."""
    if isinstance(elements, np.ndarray):
        return contextlib.nullcontext()
    device: contextlib.AbstractContextManager[Any] = elements.device
    return device


def wait_for_maker(array: Any) -> None:
    """Wait until a CuPy array is made, on the caller's stream: the threads that read it have other streams."""
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "get"):
        with on_device_of(array):
            get_device(f"cuda:{array.device.id}").current_stream().synchronize()


def _describe(box: Box) -> str:
    return "the box [" + ", ".join(f"{s.start}:{s.stop}" for s in box) + "] of level 0"


def grids_of(
    source: LevelSource, target: Array | None, levels: Sequence[LevelShape], targets: Sequence[Array], budget_bytes: int
) -> list[PlannedGrid]:
    """Return the boxes in which each level is worked on, from level 0 on."""
    shape = tuple(source.array.shape)
    after = [*(level.factors for level in levels), (1,) * len(shape)][1:]
    below = [
        PlannedGrid(level.shape, _multiple(array.metadata.chunk_shape, factors), level.factors)
        for level, array, factors in zip(levels, targets, after, strict=True)
    ]
    chunk = source.chunk_shape
    unit = (1,) * len(shape) if chunk is None else chunk
    if target is not None:
        unit = target.metadata.chunk_shape
    if levels:
        unit = _multiple(unit, levels[0].factors)
    itemsize = _itemsize(source, target)
    if target is not None and chunk is not None:
        # Chunks of the source are decoded once, if that does not take too much memory.
        joint = tuple(math.lcm(u, c) for u, c in zip(unit, chunk, strict=True))
        if _nbytes(joint, shape, itemsize) <= budget_bytes // 16:
            unit = joint
    unit = _grown(unit, shape, itemsize, below[0] if below else None)
    return [PlannedGrid(shape, unit, None), *below]


def _multiple(unit: Shape, factors: Shape) -> Shape:
    """Return the shape of the smallest boxes of whole units in which no cell is cut by the next one."""
    return tuple(math.lcm(u, f) for u, f in zip(unit, factors, strict=True))


def _nbytes(unit: Shape, shape: Shape, itemsize: int) -> int:
    return itemsize * math.prod(min(u, n) for u, n in zip(unit, shape, strict=True))


def _grown(unit: Shape, shape: Shape, itemsize: int, above: PlannedGrid | None) -> Shape:
    """Return the shape of boxes of level 0: of whole units, up to some size, and up to a whole box of level 1."""
    most = shape
    if above is not None and above.factors is not None:
        most = tuple(u * f for u, f in zip(above.unit, above.factors, strict=True))
    lengths = list(unit)
    while True:
        # The axis along which the box is the smallest part of what it may become.
        can = [
            d
            for d in range(len(shape))
            if lengths[d] * 2 <= max(most[d], 1) and most[d] % (lengths[d] * 2) == 0 and lengths[d] < shape[d]
        ]
        can = [
            d for d in can if _nbytes((*lengths[:d], lengths[d] * 2, *lengths[d + 1 :]), shape, itemsize) <= _BOX_BYTES
        ]
        if not can:
            return tuple(lengths)
        lengths[max(can, key=lambda d: (most[d] / lengths[d], d))] *= 2


def _itemsize(source: LevelSource, target: Array | None) -> int:
    # Packed numbers state a smaller one than that of the elements which they give.
    return int((source.array if target is None else target).dtype.itemsize)


def _threads(grids: Sequence[PlannedGrid], itemsize: int, budget_bytes: int) -> int:
    """Return how many threads may work at a time: each has a box, and may need another part of each level."""
    each = sum(_nbytes(grid.unit, grid.shape, itemsize) for grid in grids)
    return max(1, min(pool.thread_count(), budget_bytes // max(each, 1) - 1))
