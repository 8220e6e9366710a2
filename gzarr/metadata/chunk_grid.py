"""Chunk grids: the positions of an array's chunks. A grid is part of the metadata, hence in this package.

A :class:`ChunkGrid` has one :class:`ChunkAxis` per dimension, with either one length for all chunks or a length for
each. Lengths are kept as runs of equal ones, as documents write them: a short document may describe millions of chunks,
and its grid must not take more memory than it. Callers use the methods of the grid and its axes. Only the planner,
which is faster for chunks of one length, looks at the type of an axis.

Source: https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

#: Most chunks along one dimension of a rectilinear grid: those that a read touches are listed in memory.
MAX_UNEVEN_CHUNKS: Final = 10_000_000
#: Most chunks, along all dimensions together, whose lengths are listed.
MAX_LISTED_CHUNKS: Final = 10_000_000
#: Most chunks a run, on average, of an axis that keeps the run of each chunk: it takes no more memory than the runs.
_CHUNKS_A_RUN: Final = 4
_MAX_LENGTH: Final = 2**63 - 1


class ChunkAxis(ABC):
    """The chunks along one dimension.

    Chunk coordinates and indices of elements start at 0. Methods for one chunk take and return integers of any size;
    methods for many chunks take and return int64 arrays of one shape.

    Attributes
    ----------
    size
        Length of the array along the dimension, in elements.
    """

    __slots__ = ()

    size: int
    #: Whether all chunks have one length; the last may extend beyond the array's end.
    is_regular: ClassVar[bool]

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of chunks in the grid. A rectilinear grid may have chunks beyond the array's end."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """Length of the longest chunk, in elements."""

    @property
    @abstractmethod
    def common_length(self) -> int:
        """Greatest common divisor of the lengths of all chunks."""

    @property
    @abstractmethod
    def end(self) -> int:
        """End of the last chunk, in elements; at least ``size``."""

    @property
    @abstractmethod
    def run_chunks(self) -> IntArray:
        """First chunk of each run of chunks of one length: int64 ``(r,)``, with at least one run."""

    @property
    @abstractmethod
    def listing(self) -> int | list[int | list[int]]:
        """Length of all chunks, or a list as in documents: the length of a chunk, or ``[length, count]`` for a run."""

    @abstractmethod
    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end."""

    @abstractmethod
    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the first length that is not a multiple of ``unit``, or None if all are."""

    @abstractmethod
    def count_within(self, size: int) -> int:
        """Return the number of chunks with elements before ``size``."""

    @abstractmethod
    def length_of(self, i: int) -> int:
        """Return the length of one chunk, in elements."""

    @abstractmethod
    def begin(self, i: int) -> int:
        """Return the start of one chunk, cut at the array's end."""

    def extent(self, i: int) -> tuple[int, int]:
        """Return the start and end of one chunk, cut at the array's end."""
        return self.begin(i), self.begin(i + 1)

    def touching(self, begin: int, end: int) -> range:
        """Return the chunks with elements from ``begin`` to before ``end``; both must be within the array."""
        return range(self.count_within(begin + 1) - 1, self.count_within(end)) if begin < end else range(0)

    @abstractmethod
    def begins(self, coords: IntArray) -> IntArray:
        """Return the starts of chunks."""

    @abstractmethod
    def lengths(self, coords: IntArray) -> IntArray:
        """Return the full lengths of chunks, including any part beyond the array's end."""

    @abstractmethod
    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return the chunk of each element."""

    @abstractmethod
    def touched(self, start: int, step: int, count: int) -> tuple[int, int]:
        """Count the chunks with some of the elements ``start + i * step`` for ``i < count``, without listing them.

        Parameters
        ----------
        start, step, count
            A slice within the array; ``step`` and ``count`` are at least 1.

        Returns
        -------
        Their number, and the sum of their full lengths.
        """

    @abstractmethod
    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which of the chunks, all of which begin in the array, extend beyond its end."""

    def agrees(self, other: ChunkAxis) -> bool:
        """Return whether an axis of another length has the same chunks, as far as both arrays have elements."""
        common = min(self.size, other.size)
        count = self.count_within(common)
        if not count:
            return True
        if self.is_regular and other.is_regular:
            return self.longest == other.longest
        if count != other.count_within(common):
            return False
        # Lengths change only where runs begin.
        coords = np.concatenate([self.run_chunks, other.run_chunks])
        coords = coords[coords < count]
        return np.array_equal(self.lengths(coords), other.lengths(coords))

    @abstractmethod
    def resized(self, size: int) -> ChunkAxis:
        """Return the axis for an array of another length.

        Raises
        ------
        ArgumentError
            If a rectilinear axis would get more than ``MAX_UNEVEN_CHUNKS`` chunks, or end beyond 2⁶³ - 1.
        """

    @abstractmethod
    def merged(self, length: int) -> ChunkAxis:
        """Return the axis whose chunks are runs of these, each at least one chunk and otherwise at most ``length``."""


@dataclass(frozen=True, slots=True)
class RegularAxis(ChunkAxis):
    """Chunks that all have the same ``length``."""

    size: int
    length: int

    is_regular: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Number of chunks."""
        return -(-self.size // self.length)

    @property
    def longest(self) -> int:
        """The one length."""
        return self.length

    @property
    def common_length(self) -> int:
        """The one length."""
        return self.length

    @property
    def end(self) -> int:
        """End of the last chunk, in elements."""
        return self.count * self.length

    @property
    def run_chunks(self) -> IntArray:
        """The first chunk."""
        return np.zeros(1, np.int64)

    @property
    def listing(self) -> int | list[int | list[int]]:
        """The one length."""
        return self.length

    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end."""
        full, rest = divmod(self.size, self.length)
        return (self.length,) * full + ((rest,) if rest else ())

    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the one length if it is not a multiple of ``unit``, else None."""
        return self.length if self.length % unit else None

    def count_within(self, size: int) -> int:
        """Return the number of chunks with elements before ``size``."""
        return -(-size // self.length)

    def length_of(self, i: int) -> int:
        """Return the one length."""
        return self.length

    def begin(self, i: int) -> int:
        """Return the start of one chunk, cut at the array's end."""
        return min(i * self.length, self.size)

    def begins(self, coords: IntArray) -> IntArray:
        """Return the starts of chunks."""
        return coords * self.length

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the one length for each chunk."""
        return np.full(len(coords), self.length, np.int64)

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return the chunk of each element."""
        return indices // self.length

    def touched(self, start: int, step: int, count: int) -> tuple[int, int]:
        """Return how many chunks have elements of a slice, and the sum of their lengths."""
        last = start + (count - 1) * step
        number = count if step > self.length else last // self.length - start // self.length + 1
        return number, number * self.length

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks extend beyond the array's end."""
        # The end of a chunk may not fit 64 bits, so it is not computed.
        return self.size - coords * self.length < self.length

    def resized(self, size: int) -> RegularAxis:
        """Return the axis for an array of another length."""
        return RegularAxis(size, self.length)

    def merged(self, length: int) -> RegularAxis:
        """Return the axis of runs of whole chunks."""
        return RegularAxis(self.size, max(length // self.length, 1) * self.length)


@dataclass(frozen=True, slots=True, eq=False, init=False)
class RectilinearAxis(ChunkAxis):
    """Chunks with a length for each, kept as runs of chunks of one length.

    Parameters
    ----------
    size
        Length of the array along the dimension, in elements.
    lengths
        int64 ``(n,)``, lengths of chunks in elements, at least 1; all chunks together have at least ``size``.
    counts
        int64 ``(n,)``, number of chunks of each length, one after the other; None for one each.

    Attributes
    ----------
    run_lengths, run_counts
        int64 ``(r,)``, length of the chunks of each run, and their number. Neighbouring runs have different lengths.
        Without chunks, there is one run of 0 chunks of length 1.
    run_chunks, run_begins
        int64 ``(r,)``, first chunk and first element of each run.
    """

    size: int
    run_lengths: IntArray
    run_counts: IntArray
    run_chunks: IntArray
    run_begins: IntArray
    #: Where the first chunk of all would begin if it were of the run: less than 0 for many; it may wrap.
    _run_offsets: IntArray
    #: The run of each chunk, and of the one after the last; None if there are many chunks a run.
    _run_of_chunk: IntArray | None

    is_regular: ClassVar[bool] = False

    def __init__(self, size: int, lengths: IntArray, counts: IntArray | None = None) -> None:
        if counts is None:
            counts = np.ones(len(lengths), np.int64)
        if not len(lengths):
            lengths, counts = np.ones(1, np.int64), np.zeros(1, np.int64)
        first = np.flatnonzero(np.append(True, lengths[1:] != lengths[:-1]))
        lengths, counts = lengths[first], np.add.reduceat(counts, first)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "run_lengths", lengths)
        object.__setattr__(self, "run_counts", counts)
        object.__setattr__(self, "run_chunks", np.cumsum(counts) - counts)
        object.__setattr__(self, "run_begins", np.cumsum(lengths * counts) - lengths * counts)
        object.__setattr__(self, "_run_offsets", self.run_begins - self.run_chunks * lengths)
        run_of_chunk = None
        if self.count <= _CHUNKS_A_RUN * len(counts):
            run_of_chunk = np.append(np.repeat(np.arange(len(counts)), counts), len(counts) - 1)
        object.__setattr__(self, "_run_of_chunk", run_of_chunk)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RectilinearAxis):
            return NotImplemented
        return (
            self.size == other.size
            and np.array_equal(self.run_lengths, other.run_lengths)
            and np.array_equal(self.run_counts, other.run_counts)
        )

    def __hash__(self) -> int:
        return hash((self.size, self.run_lengths.tobytes(), self.run_counts.tobytes()))

    @property
    def count(self) -> int:
        """Number of chunks, including those beyond the array's end."""
        return int(self.run_chunks[-1] + self.run_counts[-1])

    @property
    def longest(self) -> int:
        """Length of the longest chunk; 1 if there are no chunks."""
        return int(self.run_lengths.max())

    @property
    def common_length(self) -> int:
        """Greatest common divisor of the lengths; 1 if there are no chunks."""
        return int(np.gcd.reduce(self.run_lengths))

    @property
    def end(self) -> int:
        """End of the last chunk, in elements."""
        return int(self.run_begins[-1] + self.run_lengths[-1] * self.run_counts[-1])

    @property
    def listing(self) -> int | list[int | list[int]]:
        """Length of each chunk, or ``[length, count]`` for several in a row."""
        runs = zip(self.run_lengths.tolist(), self.run_counts.tolist(), strict=True)
        return [length if count == 1 else [length, count] for length, count in runs if count]

    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end; 0 for chunks beyond it."""
        lengths = np.repeat(self.run_lengths, self.run_counts)
        within = self.count_within(self.size)
        lengths[within:] = 0
        if within:
            lengths[within - 1] = self.size - self.begin(within - 1)
        return tuple(lengths.tolist())

    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the first length that is not a multiple of ``unit``, or None if all are."""
        wrong = self.run_lengths[(self.run_lengths % unit != 0) & (self.run_counts > 0)]
        return int(wrong[0]) if len(wrong) else None

    def count_within(self, size: int) -> int:
        """Return the number of chunks with elements before ``size``."""
        run = self.run_begins[1:].searchsorted(size)
        within = -(-(size - int(self.run_begins[run])) // int(self.run_lengths[run]))
        return min(int(self.run_chunks[run]) + within, self.count)

    def length_of(self, i: int) -> int:
        """Return the length of one chunk."""
        return int(self.run_lengths[self._run_of(i)])

    def begin(self, i: int) -> int:
        """Return the start of one chunk, cut at the array's end."""
        run = self._run_of(i)
        within = i - int(self.run_chunks[run])
        return min(int(self.run_begins[run]) + within * int(self.run_lengths[run]), self.size)

    def begins(self, coords: IntArray) -> IntArray:
        """Return the starts of chunks."""
        runs = self._runs_of(coords)
        # In place: memory that is touched for the first time takes longer than the sums.
        begins = self.run_lengths.take(runs)
        begins *= coords
        begins += self._run_offsets.take(runs)
        return begins

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the lengths of chunks."""
        return self.run_lengths.take(self._runs_of(coords))

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return the chunk of each element."""
        runs = self.run_begins[1:].searchsorted(indices, "right")
        return self.run_chunks[runs] + (indices - self.run_begins[runs]) // self.run_lengths[runs]

    def touched(self, start: int, step: int, count: int) -> tuple[int, int]:
        """Return how many chunks have elements of a slice, and the sum of their lengths; by runs."""
        end = start + (count - 1) * step + 1
        first, last = self.run_begins[1:].searchsorted([start, end - 1], "right").tolist()
        runs = slice(first, last + 1)
        lengths, begins = self.run_lengths[runs], self.run_begins[runs]
        low, high = begins.clip(min=start), (begins + lengths * self.run_counts[runs]).clip(max=end)
        # Elements of long chunks are in all of those between the first and the last; each of short ones has its own.
        chunks = (high - 1 - begins) // lengths - (low - begins) // lengths + 1
        elements = (high - 1 - start) // step - -(-(low - start) // step) + 1
        touched = np.where(lengths < step, elements, chunks)
        return int(touched.sum()), int((touched * lengths).sum())

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks extend beyond the array's end."""
        return self.begins(coords + 1) > self.size

    def resized(self, size: int) -> RectilinearAxis:
        """Return the axis for an array of another length, with more chunks of the last one's length if needed.

        Chunks beyond the new end are kept.
        """
        missing = size - self.end
        length = int(self.run_lengths[-1])
        count = max(-(-missing // length), 0)
        if self.count + count > MAX_UNEVEN_CHUNKS:
            raise ArgumentError(
                f"a length of {size} would need {count} more chunks of length {length}, that of the last chunk; a "
                f"rectilinear grid has at most {MAX_UNEVEN_CHUNKS} chunks along one dimension"
            )
        if self.end + count * length > _MAX_LENGTH:
            raise ArgumentError(f"for a length of {size}, chunks of length {length} would end beyond 2**63 - 1")
        return RectilinearAxis(size, np.append(self.run_lengths, length), np.append(self.run_counts, count))

    def merged(self, length: int) -> RectilinearAxis:
        """Return the axis whose chunks are runs of these, without chunks beyond the array's end."""
        merged: list[tuple[int, int]] = []
        filled = 0  # Length of the last chunk so far, which may take more.
        for each, count in self._runs_inside():
            more = 0
            if filled:
                more = min(max(length - filled, 0) // each, count)
                filled += more * each
                if more == count:
                    continue
                merged.append((filled, 1))
            per_chunk = max(length // each, 1)
            full, rest = divmod(count - more - 1, per_chunk)
            merged.append((per_chunk * each, full))
            filled = (rest + 1) * each
        merged.append((filled, min(filled, 1)))
        lengths, counts = np.array([run for run in merged if run[1]], np.int64).reshape(-1, 2).T
        return RectilinearAxis(self.size, lengths, counts)

    def _runs_inside(self) -> list[tuple[int, int]]:
        """Return lengths and numbers of chunks that end where the array does."""
        last = self.count_within(self.size) - 1
        if last < 0:
            return []
        runs = zip(self.run_lengths.tolist(), self.run_counts.tolist(), self.run_chunks.tolist(), strict=True)
        whole = [(each, min(count, last - first)) for each, count, first in runs if first < last]
        return [*whole, (self.size - self.begin(last), 1)]

    def _run_of(self, i: int) -> int:
        """Return the run of one chunk."""
        return int(self.run_chunks[1:].searchsorted(i, "right"))

    def _runs_of(self, coords: IntArray) -> IntArray:
        """Return the runs of chunks."""
        if self._run_of_chunk is not None:
            return self._run_of_chunk.take(coords, mode="clip")
        return self.run_chunks[1:].searchsorted(coords, "right")


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Grid of an array's chunks (shards, in a sharded array).

    Attributes
    ----------
    axes
        One axis per dimension.
    shape
        Shape of the array, in elements.
    chunk_shape
        Shape of a chunk, in elements; for a rectilinear grid, the largest length along each dimension.
    is_regular
        Whether all chunks have ``chunk_shape``; the last ones may extend beyond the array's end.
    """

    axes: tuple[ChunkAxis, ...]
    shape: tuple[int, ...] = field(init=False, compare=False)
    chunk_shape: tuple[int, ...] = field(init=False, compare=False)
    is_regular: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(axis.size for axis in self.axes))
        object.__setattr__(self, "chunk_shape", tuple(axis.longest for axis in self.axes))
        object.__setattr__(self, "is_regular", all(axis.is_regular for axis in self.axes))

    @classmethod
    def regular(cls, shape: Sequence[int], chunk_shape: Sequence[int]) -> ChunkGrid:
        """Return the grid of an array of ``shape`` in chunks of ``chunk_shape``, both in elements."""
        return cls(tuple(RegularAxis(size, length) for size, length in zip(shape, chunk_shape, strict=True)))

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(axis.count for axis in self.axes)

    @property
    def covered_shape(self) -> tuple[int, ...]:
        """Shape covered by all chunks together, in elements, limited to the largest possible lengths."""
        return tuple(min(axis.end, _MAX_LENGTH) for axis in self.axes)

    @property
    def chunk_lengths(self) -> tuple[tuple[int, ...], ...]:
        """Length of each chunk along each dimension, in elements, cut at the array's end.

        Raises
        ------
        ArgumentError
            If there are more than ``MAX_LISTED_CHUNKS`` along all dimensions.
        """
        listed = 0
        for d, axis in enumerate(self.axes):
            listed += axis.count
            if listed > MAX_LISTED_CHUNKS:
                raise ArgumentError(f"{axis.count} chunks along dimension {d} are too many to list one by one")
        return tuple(axis.lengths_inside() for axis in self.axes)

    def extent(self, coords: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the start and end of one chunk along each dimension, cut at the array's end."""
        return tuple(axis.extent(i) for axis, i in zip(self.axes, coords, strict=True))

    def shape_of(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Return the full shape of one chunk, in elements, including any part beyond the array's end."""
        return tuple(axis.length_of(i) for axis, i in zip(self.axes, coords, strict=True))

    def count_within(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the number of chunks along each dimension with elements in an array of ``shape``."""
        return tuple(axis.count_within(size) for axis, size in zip(self.axes, shape, strict=True))

    def begins(self, coords: IntArray) -> IntArray:
        """Return the first element of each chunk: int64 ``(n, k)`` for coordinates ``(n, k)``."""
        result = np.empty_like(coords)
        for d, axis in enumerate(self.axes):
            result[:, d] = axis.begins(coords[:, d])
        return result

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the full shape of each chunk, including any part beyond the array's end: int64 ``(n, k)``."""
        result = np.empty_like(coords)
        for d, axis in enumerate(self.axes):
            result[:, d] = axis.lengths(coords[:, d])
        return result

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return the coordinates of the chunk of each element: int64 ``(n, k)`` for indices ``(n, k)``."""
        result = np.empty_like(indices)
        for d, axis in enumerate(self.axes):
            result[:, d] = axis.chunk_of(indices[:, d])
        return result

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks extend beyond the array's end: bool ``(n,)`` for coordinates ``(n, k)`` within it."""
        cut = np.zeros(len(coords), np.bool_)
        for d, axis in enumerate(self.axes):
            cut |= axis.are_cut(coords[:, d])
        return cut

    def resized(self, shape: Sequence[int]) -> ChunkGrid:
        """Return the grid of an array of another shape.

        A rectilinear grid that is too short gets more chunks of the length of its last one. It keeps chunks beyond the
        new shape.

        Raises
        ------
        ArgumentError
            If a rectilinear grid would get more than ``MAX_UNEVEN_CHUNKS`` chunks along a dimension, or end beyond
            2⁶³ - 1.
        """
        return ChunkGrid(tuple(axis.resized(size) for axis, size in zip(self.axes, shape, strict=True)))
