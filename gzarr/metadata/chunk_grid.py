"""Where the chunks of an array are. The grid is part of an array's metadata, so it lives here and not with the planner.

A :class:`ChunkGrid` has one :class:`ChunkAxis` for each dimension: chunks of one length, or a length for each chunk.
Callers ask the grid and its axes; only the planner, which has a faster way for chunks of one length, looks at the kind.

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

#: Chunks along one dimension of a rectilinear grid, whose lengths are kept in memory.
MAX_UNEVEN_CHUNKS: Final = 10_000_000
#: Most chunks along one dimension whose lengths are listed.
MAX_LISTED_CHUNKS: Final = 10_000_000
_MAX_LENGTH: Final = 2**63 - 1


class ChunkAxis(ABC):
    """The chunks along one dimension.

    Chunk coordinates and indices of elements count from 0. Methods for one chunk take and return integers of any size;
    those for many take and return int64 arrays of one shape.

    Attributes
    ----------
    size
        Length of the array, in elements.
    """

    __slots__ = ()

    size: int
    #: Whether all chunks have one length; the last may reach beyond the array's end.
    is_regular: ClassVar[bool]

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of chunks in the grid; a rectilinear one may have some beyond the array's end."""

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
        """Where the last chunk ends, in elements; at ``size`` or beyond."""

    @property
    @abstractmethod
    def listing(self) -> int | list[int]:
        """The length of all chunks, or a list with the length of each."""

    @abstractmethod
    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end."""

    @abstractmethod
    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the first length that is not a multiple of ``unit``, or None if all are."""

    @abstractmethod
    def count_within(self, size: int) -> int:
        """Return how many chunks have elements before ``size``."""

    @abstractmethod
    def length_of(self, i: int) -> int:
        """Return the length of one chunk, in elements."""

    @abstractmethod
    def begin(self, i: int) -> int:
        """Return where one chunk begins, cut at the array's end."""

    def extent(self, i: int) -> tuple[int, int]:
        """Return where one chunk begins and ends, cut at the array's end."""
        return self.begin(i), self.begin(i + 1)

    def touching(self, begin: int, end: int) -> range:
        """Return the chunks that have elements from ``begin`` to before ``end``, neither beyond the array's end."""
        return range(self.count_within(begin + 1) - 1, self.count_within(end)) if begin < end else range(0)

    @abstractmethod
    def begins(self, coords: IntArray) -> IntArray:
        """Return where chunks begin."""

    @abstractmethod
    def lengths(self, coords: IntArray) -> IntArray:
        """Return the lengths of chunks, also where they reach beyond the array's end."""

    @abstractmethod
    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return which chunk each element is in."""

    @abstractmethod
    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks, all of which begin in the array, reach beyond its end."""

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
        """Return the axis of runs of whole chunks, each run as long as fits ``length``, and at least one chunk."""


@dataclass(frozen=True, slots=True)
class RegularAxis(ChunkAxis):
    """Chunks of one ``length``."""

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
        """Where the last chunk ends."""
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
        """Return the one length if it is not a multiple."""
        return self.length if self.length % unit else None

    def count_within(self, size: int) -> int:
        """Return how many chunks have elements before ``size``."""
        return -(-size // self.length)

    def length_of(self, i: int) -> int:
        """Return the one length."""
        return self.length

    def begin(self, i: int) -> int:
        """Return where one chunk begins, cut at the array's end."""
        return min(i * self.length, self.size)

    def begins(self, coords: IntArray) -> IntArray:
        """Return where chunks begin."""
        return coords * self.length

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the one length for each chunk."""
        return np.full(len(coords), self.length, np.int64)

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return which chunk each element is in."""
        return indices // self.length

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks reach beyond the array's end; where they end may not fit 64 bits."""
        return self.size - coords * self.length < self.length

    def resized(self, size: int) -> RegularAxis:
        """Return the axis for an array of another length."""
        return RegularAxis(size, self.length)

    def merged(self, length: int) -> RegularAxis:
        """Return the axis of runs of whole chunks."""
        return RegularAxis(self.size, max(length // self.length, 1) * self.length)


@dataclass(frozen=True, slots=True, eq=False)
class RectilinearAxis(ChunkAxis):
    """Chunks whose lengths are listed.

    Attributes
    ----------
    size
        Length of the array, in elements.
    each
        int64 ``(n,)``, the length of each chunk in elements, at least 1; together they have ``size`` or more.
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
        """Number of chunks, those beyond the array's end among them."""
        return len(self.each)

    @property
    def longest(self) -> int:
        """Length of the longest chunk; 1 if there is none."""
        return int(self.each.max(initial=1))

    @property
    def common_length(self) -> int:
        """Greatest common divisor of the lengths; 1 if there is no chunk."""
        return int(np.gcd.reduce(self.each)) or 1

    @property
    def end(self) -> int:
        """Where the last chunk ends."""
        return int(self.starts[-1])

    @property
    def listing(self) -> int | list[int]:
        """The length of each chunk."""
        return list(self.each.tolist())

    def lengths_inside(self) -> tuple[int, ...]:
        """Return the length of each chunk, cut at the array's end; 0 beyond it."""
        return tuple((self.starts[1:].clip(max=self.size) - self.starts[:-1].clip(max=self.size)).tolist())

    def length_not_multiple_of(self, unit: int) -> int | None:
        """Return the first length that is not a multiple of ``unit``, or None if all are."""
        wrong = self.each[self.each % unit != 0]
        return int(wrong[0]) if len(wrong) else None

    def count_within(self, size: int) -> int:
        """Return how many chunks have elements before ``size``."""
        return int(np.searchsorted(self.starts[:-1], size))

    def length_of(self, i: int) -> int:
        """Return the length of one chunk."""
        return int(self.each[i])

    def begin(self, i: int) -> int:
        """Return where one chunk begins, cut at the array's end."""
        return min(int(self.starts[min(i, len(self.each))]), self.size)

    def begins(self, coords: IntArray) -> IntArray:
        """Return where chunks begin."""
        return self.starts[coords]

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the lengths of chunks."""
        return self.each[coords]

    def chunk_of(self, indices: IntArray) -> IntArray:
        """Return which chunk each element is in."""
        return np.searchsorted(self.starts, indices, side="right") - 1

    def are_cut(self, coords: IntArray) -> BoolArray:
        """Return which chunks reach beyond the array's end."""
        return self.starts[coords + 1] > self.size

    def resized(self, size: int) -> RectilinearAxis:
        """Return the axis for an array of another length: with more chunks as long as the last, where it needs them.

        Chunks beyond the new end stay.
        """
        missing = size - self.end
        if missing <= 0:
            return RectilinearAxis(size, self.each)
        length = int(self.each[-1]) if len(self.each) else self.longest
        count = -(-missing // length)
        if self.count + count > MAX_UNEVEN_CHUNKS:
            raise ArgumentError(
                f"a length of {size} would take {count} more chunks of {length}, as long as the last one; more than "
                f"{MAX_UNEVEN_CHUNKS} chunks along one dimension of a rectilinear grid are refused"
            )
        return RectilinearAxis(size, np.append(self.each, np.full(count, length, np.int64)))

    def merged(self, length: int) -> RectilinearAxis:
        """Return the axis of runs of whole chunks, as far as they have elements in the array."""
        begins: list[int] = []
        inside = self.starts[: self.count_within(self.size)].tolist()
        for begin, end in pairwise([*inside, self.size]):
            if not begins or end - begins[-1] > length:
                begins.append(begin)
        lengths = [end - begin for begin, end in pairwise([*begins, self.size])]
        return RectilinearAxis(self.size, np.array(lengths, np.int64))


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Where the chunks (shards, in a sharded array) of an array are.

    Attributes
    ----------
    axes
        One for each dimension.
    shape
        Of the array, in elements.
    chunk_shape
        Of a chunk, in elements; the longest along each dimension of a rectilinear grid.
    is_regular
        Whether all chunks have ``chunk_shape``; the last ones may reach beyond the array's end.
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
        """Return the grid of an array of ``shape`` in chunks of ``chunk_shape``, in elements."""
        return cls(tuple(RegularAxis(size, length) for size, length in zip(shape, chunk_shape, strict=True)))

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(axis.count for axis in self.axes)

    @property
    def covered_shape(self) -> tuple[int, ...]:
        """Shape that all chunks together have, in elements, as far as a shape can be that large."""
        return tuple(min(axis.end, _MAX_LENGTH) for axis in self.axes)

    @property
    def chunk_lengths(self) -> tuple[tuple[int, ...], ...]:
        """Length of each chunk along each dimension, in elements, cut at the array's end.

        Raises
        ------
        ArgumentError
            If there are more than ``MAX_LISTED_CHUNKS`` along one.
        """
        for d, axis in enumerate(self.axes):
            if axis.count > MAX_LISTED_CHUNKS:
                raise ArgumentError(f"{axis.count} chunks along dimension {d} are too many to list one by one")
        return tuple(axis.lengths_inside() for axis in self.axes)

    def extent(self, coords: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the box of one chunk, cut at the array's end: where it begins and ends along each dimension."""
        return tuple(axis.extent(i) for axis, i in zip(self.axes, coords, strict=True))

    def shape_of(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one chunk, in elements, also where it reaches beyond the array's end."""
        return tuple(axis.length_of(i) for axis, i in zip(self.axes, coords, strict=True))

    def count_within(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return how many chunks along each dimension have elements in an array of ``shape``."""
        return tuple(axis.count_within(size) for axis, size in zip(self.axes, shape, strict=True))

    def begins(self, coords: IntArray) -> IntArray:
        """Return the first element of each chunk: int64 ``(n, k)`` for coordinates ``(n, k)``."""
        result = np.empty_like(coords)
        for d, axis in enumerate(self.axes):
            result[:, d] = axis.begins(coords[:, d])
        return result

    def lengths(self, coords: IntArray) -> IntArray:
        """Return the shape of each chunk, also where it reaches beyond the array's end: int64 ``(n, k)``."""
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
        """Return which chunks, coordinates ``(n, k)`` in the array, reach beyond its end: bool ``(n,)``."""
        cut = np.zeros(len(coords), np.bool_)
        for d, axis in enumerate(self.axes):
            cut |= axis.are_cut(coords[:, d])
        return cut

    def resized(self, shape: Sequence[int]) -> ChunkGrid:
        """Return the grid of an array of another shape.

        A rectilinear grid that does not reach far enough gets more chunks, as long as its last one. Chunks that it has
        beyond the new shape stay in it.

        Raises
        ------
        ArgumentError
            If a rectilinear grid would get more than ``MAX_UNEVEN_CHUNKS`` chunks along a dimension.
        """
        return ChunkGrid(tuple(axis.resized(size) for axis, size in zip(self.axes, shape, strict=True)))
