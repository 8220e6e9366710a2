"""Reading samples into batches: each window is placed where its sample is in its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..metadata.chunk_grid import ChunkGrid
    from .memory import Memory
    from .samples import Pad, Part

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Source:
    """One window of one array, for all parts of a sample that are cut from it.

    Attributes
    ----------
    array
        The array.
    part
        A part that needs the window; the others differ in ``names`` and ``take`` only.
    read_shape
        Shape of the windows that are read: the part's, or the array's where that is smaller.
    """

    array: Array
    part: Part
    read_shape: tuple[int, ...]

    @property
    def sample_nbytes(self) -> int:
        """Bytes of one window."""
        return int(np.prod(self.part.shape, dtype=np.int64)) * self.array.dtype.itemsize

    @property
    def grid(self) -> ChunkGrid:
        """Grid of the array's chunks, or of the inner chunks of its shards."""
        return self.array._planned_grid

    @property
    def nchunks(self) -> int:
        """Number of chunks of :attr:`grid`."""
        return math.prod(self.grid.grid_shape)

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of a chunk of :attr:`grid`, decoded; of the largest one if they differ."""
        return math.prod(self.grid.chunk_shape) * self.array.dtype.itemsize

    def empty(self, count: int, memory: Memory) -> Any:
        """Return a new array for ``count`` windows."""
        return memory.results.empty((count, *self.part.shape), self.array.dtype)

    def inside(self, origins: IntArray) -> IntArray:
        """Return the first element of each window that is read, int64 ``(n, ndim)``: moved into the array."""
        return np.clip(self.part.starts(origins), 0, np.array(self.array.shape) - np.array(self.read_shape))

    def uses(self, origins: IntArray) -> int:
        """Return how many chunks windows need, counted for each window."""
        first, chunks = self.inside(origins), np.array(self.array.chunks)
        last = first + np.array(self.read_shape) - 1
        return int((last // chunks - first // chunks + 1).prod(axis=1).sum())

    def overlaps(self, stride: Sequence[int]) -> bool:
        """Return whether windows of neighbouring samples, ``stride`` apart along each axis, share elements."""
        part = self.part
        return any(
            axis is not None and length * factor > stride[axis]
            for axis, length, factor in zip(part.axes, self.read_shape, part.factor, strict=True)
        )

    def is_dense(self, stride: Sequence[int]) -> bool:
        """Return whether windows of neighbouring samples, ``stride`` apart along each axis, leave no gap."""
        part = self.part
        return all(
            axis is None or length * factor >= stride[axis]
            for axis, length, factor in zip(part.axes, self.read_shape, part.factor, strict=True)
        )

    def read(self, origins: IntArray, outputs: Sequence[Any], memory: Memory, rows: IntArray | None = None) -> None:
        """Read the windows of some samples.

        Parameters
        ----------
        origins
            int64 ``(n, axes of the grid)``.
        outputs
            Arrays for ``n`` windows together.
        memory
            Memory of the arrays.
        rows
            int64 ``(n,)``, place of each window along the first axes of ``outputs``; None for 0 to n − 1.
        """
        target = Target(self, origins, outputs, memory, rows)
        self.array.read_windows(
            target.inside, self.read_shape, out=target.outputs, rows=target.rows, stream=memory.stream
        )
        target.pad()

    def pad(self, sample: Any, window: Any, start: IntArray, inside: IntArray, memory: Memory) -> None:
        """Fill a sample from the window that was read for it, which may share its memory.

        Parameters
        ----------
        sample
            Array of the part's shape.
        window
            Elements of the array from ``inside`` on.
        start
            First element of the sample, which may be outside of the array.
        memory
            Memory of the arrays.
        """
        empty, copy = memory.results.empty, memory.results.copy
        whole = window
        axes = [d for d, length in enumerate(self.part.shape) if start[d] != inside[d] or length != window.shape[d]]
        for d in axes:
            shape = (*whole.shape[:d], self.part.shape[d], *whole.shape[d + 1 :])
            padded = empty(shape, whole.dtype)
            wanted = padded_indices(start[d] + np.arange(shape[d]), self.array.shape[d], self.part.pad)
            before = (slice(None),) * d
            for at, count, first, step in runs(np.where(wanted < 0, wanted, wanted - inside[d])):
                if first < 0:
                    target = padded[(*before, slice(at, at + count))]
                    copy(target, memory.constant(self.array.metadata.absent_value, target.dtype, target.shape))
                elif step:
                    end = first + step * count
                    source = slice(first, end if end >= 0 else None, step)
                    copy(padded[(*before, slice(at, at + count))], whole[(*before, source)])
                else:
                    for i in range(at, at + count):
                        copy(padded[(*before, slice(i, i + 1))], whole[(*before, slice(first, first + 1))])
            whole = padded
        copy(sample, whole)


def runs(indices: IntArray) -> Iterator[tuple[int, int, int, int]]:
    """Cut indices into runs: yield where each begins, its length, its first index, and its step: -1, 0 or 1.

    Negative indices stand for fill values; their step is 0.
    """
    listed: list[int] = indices.tolist()
    at = 0
    while at < len(listed):
        first, end = listed[at], at + 1
        following = listed[end] if end < len(listed) else first
        step = following - first if first >= 0 and following >= 0 and abs(following - first) <= 1 else 0
        # A run that descends to 0 does not go on with a fill value.
        while end < len(listed) and listed[end] == first + step * (end - at) and (first < 0 or listed[end] >= 0):
            end += 1
        yield at, end - at, first, step
        at = end


def padded_indices(indices: IntArray, size: int, pad: Pad | None) -> IntArray:
    """Return the elements that stand for some indices along an axis, as in ``numpy.pad``; -1 for fill values."""
    if pad == "edge":
        return np.clip(indices, 0, size - 1)
    if pad == "reflect":
        period = max(2 * (size - 1), 1)
        folded = indices % period
        return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(indices)
    return np.where((indices >= 0) & (indices < size), indices, -1)


def sources(parts: Sequence[Part], arrays: Mapping[str, Array]) -> tuple[list[Source], list[int]]:
    """Return the windows to read, and for each part which of them it is cut from."""
    found: list[Source] = []
    which = []
    for part in parts:
        if part.array not in arrays:
            raise ArgumentError(f"the sampler wants an array {part.array!r}; the loader has {sorted(arrays)}")
        same = [i for i, source in enumerate(found) if _same_window(source.part, part)]
        if not same:
            array = arrays[part.array]
            shape = tuple(min(w, n) for w, n in zip(part.shape, array.shape, strict=True))
            found.append(Source(array, part, shape))
        which.append(same[0] if same else len(found) - 1)
    return found, which


def _same_window(a: Part, b: Part) -> bool:
    return (a.array, a.shape, a.low, a.axes, a.factor, a.pad) == (b.array, b.shape, b.low, b.axes, b.factor, b.pad)


def _row(outputs: Sequence[Any], i: int) -> Any:
    for output in outputs:
        if i < len(output):
            return output[i]
        i -= len(output)
    raise IndexError(i)


class Target:
    """Where the windows of some samples are read to.

    Parameters
    ----------
    source, origins, outputs, memory, rows
        As for :meth:`Source.read`.

    Attributes
    ----------
    inside
        int64 ``(n, ndim)``, first element of each window that is read.
    outputs, rows
        Arrays for windows of the shape that is read, and their places along the first axes of these.
    """

    def __init__(
        self, source: Source, origins: IntArray, outputs: Sequence[Any], memory: Memory, rows: IntArray | None
    ) -> None:
        self._source, self._memory, self._samples = source, memory, outputs
        self._starts = source.part.starts(origins)
        self.inside: IntArray = source.inside(origins)
        self._places = np.arange(len(origins)) if rows is None else rows
        self.outputs: list[Any] = list(outputs)
        self.rows: IntArray | None = rows
        self._apart = source.read_shape != source.part.shape
        if self._apart:
            shape = (len(origins), *source.read_shape)
            self.outputs, self.rows = [memory.results.empty(shape, source.array.dtype)], None

    def pad(self) -> None:
        """Fill what is outside of the array, once the windows have been read."""
        moved = np.arange(len(self.inside))
        if not self._apart:
            moved = np.flatnonzero((self.inside != self._starts).any(axis=1))
        for i in moved.tolist():
            sample = _row(self._samples, int(self._places[i]))
            window = self.outputs[0][i, ...] if self._apart else sample
            self._source.pad(sample, window, self._starts[i], self.inside[i], self._memory)
