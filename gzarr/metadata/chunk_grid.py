"""Chunk grids: the positions of an array's chunks. A grid is part of the metadata, hence in this package.

A :class:`ChunkGrid` has one :class:`ChunkAxis` per dimension, with either one length for all chunks or a length for
each. Callers use the methods of the grid and its axes. Only the planner, which is faster for chunks of one length,
looks at the type of an axis.

Source: https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

#: Most chunks along one dimension of a rectilinear grid: their lengths are kept in memory.
MAX_UNEVEN_CHUNKS: Final = 10_000_000
#: Most chunks along one dimension whose lengths are listed.
MAX_LISTED_CHUNKS: Final = 10_000_000
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
    def listing(self) -> int | list[int]:
        """Length of all chunks, or a list of the length of each chunk."""

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
        coords = np.arange(count)
        return np.array_equal(self.lengths(coords), other.lengths(coords))

    @abstractmethod
    def resized(self, size: int) -> ChunkAxis:
        """Return the axis for an array of another length.

        Raises
        ------
        ArgumentError
            If a rectilinear axis would get more than ``MAX_UNEVEN_CHUNKS`` chunks.
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
    def listing(self) -> int | list[int]:
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


@dataclass(frozen=True, slots=True, eq=False)
class RectilinearAxis(ChunkAxis):
    """Chunks with a length for each.

    Attributes
    ----------
    size
        Length of the array along the dimension, in elements.
    each
        int64 ``(n,)``, length of each chunk in elements, at least 1; their sum is at least ``size``.
    starts
        int64 ``(n + 1,)``: chunk ``i`` has the elements from ``starts[i]`` to ``starts[i + 1]``.
    """

    size: int
    each: IntArray
    starts: IntArray = field(init=False)

    is_regular: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.append(np.int64(0), np.cumsum(self.each)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RectilinearAxis):
            return NotImplemented
        return self.size == other.size and np.array_equal(self.each, other.each)

    def __hash__(self) -> int:
        return hash((self.size, self.each.tobytes()))

    @property
    def count(self) -> int:
        """Number of chunks, including those beyond the array's end."""
        return len(self.each)

    @property
    def longest(self) -> int:
        """Length of the longest chunk; 1 if there are no chunks."""
        return int(self.each.max(initial=1))

    @property
    def common_length(self) -> int:
        """Greatest common divisor of the lengths; 1 if there are no chunks."""
        return int(np.gcd.reduce(self.each)) or 1

    @property
    def end(self) -> int:
        """End of the last chunk, in elements."""
        return int(self.starts[-1])

    @property
    def listing(self) -> int | list[int]:
        """Length of each chunk."""
        return list(self.each.tolist())

    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end; 0 for chunks beyond it."""
        return tuple((self.starts[1:].clip(max=self.size) - self.starts[:-1].clip(max=self.size)).tolist())

    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the first length that is not a multiple of ``unit``, or None if all are."""
        wrong = self.each[self.each % unit != 0]
        return int(wrong[0]) if len(wrong) else None

    def count_within(self, size: int) -> int:
        """Return the number of chunks with elements before ``size``."""
        return int(np.searchsorted(self.starts[:-1], size))

    def length_of(self, i: int) -> int:
        """Return the length of one chunk."""
        return int(self.each[i])

    def begin(self, i: int) -> int:
        """Return the start of one chunk, cut at the array's end."""
        return min(int(self.starts[min(i, len(self.each))]), self.size)

    def begins(self, coords: IntArray) -> IntArray:
        """Return the starts of chunks."""
        return self.starts[coords]

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the lengths of chunks."""
        return self.each[coords]

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return the chunk of each element."""
        return np.searchsorted(self.starts, indices, side="right") - 1

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks extend beyond the array's end."""
        return self.starts[coords + 1] > self.size

    def resized(self, size: int) -> RectilinearAxis:
        """Return the axis for an array of another length, with more chunks of the last one's length if needed.

        Chunks beyond the new end are kept.
        """
        missing = size - self.end
        if missing <= 0:
            return RectilinearAxis(size, self.each)
        length = int(self.each[-1]) if len(self.each) else self.longest
        count = -(-missing // length)
        if self.count + count > MAX_UNEVEN_CHUNKS:
            raise ArgumentError(
                f"a length of {size} would need {count} more chunks of length {length}, that of the last chunk; a "
                f"rectilinear grid has at most {MAX_UNEVEN_CHUNKS} chunks along one dimension"
            )
        return RectilinearAxis(size, np.append(self.each, np.full(count, length, np.int64)))

    def merged(self, length: int) -> RectilinearAxis:
        """Return the axis whose chunks are runs of these, without chunks beyond the array's end."""
        begins: list[int] = []
        inside = self.starts[: self.count_within(self.size)].tolist()
        for begin, end in pairwise([*inside, self.size]):
            if not begins or end - begins[-1] > length:
                begins.append(begin)
        lengths = [end - begin for begin, end in pairwise([*begins, self.size])]
        return RectilinearAxis(self.size, np.array(lengths, np.int64))


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
            If there are more than ``MAX_LISTED_CHUNKS`` along one dimension.
        """
        for d, axis in enumerate(self.axes):
            if axis.count > MAX_LISTED_CHUNKS:
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
            If a rectilinear grid would get more than ``MAX_UNEVEN_CHUNKS`` chunks along a dimension.
        """
        return ChunkGrid(tuple(axis.resized(size) for axis, size in zip(self.axes, shape, strict=True)))
