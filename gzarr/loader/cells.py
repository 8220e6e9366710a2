"""Cells: a sample's place among all samples, and the groups of cells whose chunks are read together.

Samples lie on a grid of cells, one to a cell. A group is a box of cells. The larger it is, the fewer chunks are decoded
for several groups; the smaller, the better blocks of several groups are mixed. :func:`group_lengths` finds the smallest
boxes that decode hardly more than once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..cached import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .places import Places

IntArray: TypeAlias = npt.NDArray[np.int64]

#: A block keeps at least so many groups, whatever arrays beside the main one ask for, as long as chunks are decoded no
#: more often than this in the mean.
_LEAST_GROUPS: Final = 64
_MOST_DECODED: Final = 2.0
#: Larger groups are no use unless they decode less by more than this factor.
_HARDLY_MORE: Final = 1.1


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a sample needs of one array, along the grid's axes.

    A cell with coordinate ``i`` along an axis needs the elements from ``i * stride + low`` on, ``length`` of them.

    Attributes
    ----------
    stride, low, length
        Integers, one for each axis of the grid, in elements of the array.
    chunk
        Length of the array's chunks along each axis of the grid; 1 or more.
    size
        Size of the array along each axis of the grid.
    weight
        Bytes of the array, to weigh it among others.
    is_light
        Whether its chunks cost little, however often they are needed.
    """

    stride: tuple[int, ...]
    low: tuple[int, ...]
    length: tuple[int, ...]
    chunk: tuple[int, ...]
    size: tuple[int, ...]
    weight: float
    is_light: bool = False

    def amplification(self, axis: int, cells: int, length: int) -> float:
        """Return how often each needed chunk is decoded along an axis, in the mean, by groups of ``length`` cells.

        There may be thousands of millions of groups, so their chunks are summed up in closed form.
        """
        stride, chunk, size = self.stride[axis], self.chunk[axis], self.size[axis]
        step, groups = length * stride, -(-cells // length)
        # Elements at which the first group, the second one and the last one begin; at which the first and the last end.
        begin, over = self.low[axis], self.length[axis] - 1
        end, last_end = begin + (length - 1) * stride + over, begin + (cells - 1) * stride + over
        first, last = _chunk_of(begin, chunk, size), _chunk_of(last_end, chunk, size)
        begins = _sum_of_chunks(groups, step, begin, chunk, size)
        ends = _sum_of_chunks(groups - 1, step, end, chunk, size) + last
        # Neighbouring groups share at most their edge; chunks between two cells are few enough to be counted as needed.
        between = 0
        if chunk < min(stride - over, size):
            # From a group to the next one that begins in another chunk. This one is at least one chunk further on.
            least = max(-((begin - chunk) // step), 1)
            most = min(((size - 1) // chunk * chunk - 1 - end) // step + 1, groups - 1)
            between = (begins - first) - (ends - last) - max(most - least + 1, 0)
        return (ends - begins + groups) / (last - first + 1 - between)

    def group_bytes(self, lengths: Sequence[int]) -> float:
        """Return the bytes of memory that a group of ``lengths`` cells takes: of its samples, or of all they are in."""
        cells = math.prod(lengths)
        window = math.prod(min(n / s, 1.0) for n, s in zip(self.length, self.size, strict=True))
        box = math.prod(
            min(((g - 1) * step + n) / s, 1.0)
            for g, step, n, s in zip(lengths, self.stride, self.length, self.size, strict=True)
        )
        return self.weight * min(cells * window, box)


def _chunk_of(element: int, chunk: int, size: int) -> int:
    """Return the chunk of an element, or of the next one inside of the array."""
    return min(max(element, 0), size - 1) // chunk


def _sum_of_chunks(count: int, step: int, first: int, chunk: int, size: int) -> int:
    """Return the sum of the chunks of ``count`` elements from ``first`` on, ``step`` apart; see :func:`_chunk_of`."""
    before = min(max(-(first // step), 0), count)
    end = min(max((size - 1 - first) // step + 1, before), count)
    return _sum_of_floors(end - before, chunk, step, first + before * step) + (count - end) * _chunk_of(
        size, chunk, size
    )


def _sum_of_floors(count: int, divisor: int, step: int, first: int) -> int:
    """Return the sum of ``(first + i * step) // divisor`` for each ``i`` below ``count``, by Euclid's algorithm."""
    result = 0
    while count > 0:
        result += count * (count - 1) // 2 * (step // divisor) + count * (first // divisor)
        step, first = step % divisor, first % divisor
        # What is left are points of integers below a line; those of the other axis are counted.
        (count, first), step, divisor = divmod(step * count + first, divisor), divisor, step
    return result


def amplification(
    footprints: Sequence[Footprint], counts: Sequence[int], lengths: Sequence[int], blocks: float = math.inf
) -> float:
    """Return the bytes decoded by groups of some shape to the bytes of the chunks that are needed.

    With a number of ``blocks``, groups in random order share them, and a chunk that several groups of one need is
    decoded once.
    """
    total = sum(f.weight for f in footprints)
    if not total:
        return 1.0
    result = 0.0
    for f in footprints:
        times = math.prod(f.amplification(d, counts[d], lengths[d]) for d in range(len(counts)))
        if blocks < math.inf:
            times = blocks * (1 - (1 - 1 / blocks) ** times)
        result += f.weight / total * times
    return result


def group_lengths(
    footprints: Sequence[Footprint], counts: Sequence[int], target: float, most_bytes: int
) -> tuple[int, ...]:
    """Return the cells of a group along each axis.

    Parameters
    ----------
    footprints
        What a sample needs, of each array.
    counts
        Cells along each axis.
    target
        Amplification to reach.
    most_bytes
        Most bytes that a group takes in memory, half of a block; a chunk's cells stay together even if they take more.

    Returns
    -------
    Integers of at least 1: as few cells as reach ``target``, or as come nearest to it, for the array with the most
    bytes alone. For others, more cells as far as blocks still have enough groups, or too much is decoded otherwise, and
    as it helps.
    """
    if 0 in counts:
        return (1,) * len(counts)
    # Along each axis, groups of one chunk, two chunks, and so on, of the array with the most bytes.
    main = max(footprints, key=lambda f: f.weight)
    steps = [max(c / s, 1.0) for c, s in zip(main.chunk, main.stride, strict=True)]

    def cells(chunks: Sequence[int]) -> tuple[int, ...]:
        return tuple(min(math.ceil(m * s), n) for m, s, n in zip(chunks, steps, counts, strict=True))

    def group_bytes(lengths: Sequence[int]) -> float:
        return sum(f.group_bytes(lengths) for f in footprints)

    def larger(asking: Sequence[Footprint], chunks: Sequence[int], most_bytes: float) -> tuple[float, list[int]] | None:
        """Return the next larger groups that decode least, after how much that is; None if they are too large."""
        candidates = []
        for d, (length, count) in enumerate(zip(cells(chunks), counts, strict=True)):
            groups = -(-count // length)
            if groups > 1:
                # The next length with fewer groups: longer ones with as many only leave a shorter group at the end.
                more = list(chunks)
                more[d] = max(math.ceil(math.ceil(count / (groups - 1)) / steps[d]), chunks[d] + 1)
                lengths = cells(more)
                if group_bytes(lengths) <= most_bytes:
                    candidates.append((amplification(asking, counts, lengths), more))
        return min(candidates, default=None)

    chunks = [1] * len(counts)
    reached = amplification([main], counts, cells(chunks))
    while reached > target and (found := larger([main], chunks, most_bytes)):
        reached, chunks = found
    # Labels in one chunk are no reason for large groups, by which images would hardly be mixed.
    asking = [f for f in footprints if f is main or not f.is_light]
    if len(asking) == 1:
        return cells(chunks)

    def decoded(lengths: Sequence[int]) -> float:
        """Return how often chunks are decoded, in the mean, as each block has several groups."""
        if math.prod(lengths) == 1:
            # Nor are blocks read whole, but a few samples at a time.
            return amplification(asking, counts, lengths)
        total = group_bytes(lengths) * math.prod(-(-n // g) for n, g in zip(counts, lengths, strict=True))
        return amplification(asking, counts, lengths, max(total / max(2 * most_bytes, 1), 1.0))

    path = [(cells(chunks), decoded(cells(chunks)))]
    reached = amplification(asking, counts, cells(chunks))
    while reached > target:
        enough = path[-1][1] <= _MOST_DECODED
        found = larger(asking, chunks, 2 * most_bytes / _LEAST_GROUPS if enough else most_bytes)
        if found is None:
            break
        reached, chunks = found
        path.append((cells(chunks), decoded(cells(chunks))))
    return next(lengths for lengths, times in path if times <= _HARDLY_MORE * path[-1][1])


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of an epoch, numbered one group after the other.

    Attributes
    ----------
    bounds
        For each axis of the grid, the first cell of each group and the end, int64 ``(groups along the axis + 1,)``.
    offsets
        int64 ``(groups + 1,)``: group ``g`` has the cells ``offsets[g]`` to ``offsets[g + 1]``.
    chosen
        int64 ``(n,)``: the rows of a list of cells, in this order, if not all cells of the grid are samples.
    box
        int64 ``(groups,)``: the box of cells that each group has samples of; None if each group has its own.
    places
        Of random windows that stay within their group: the places along each axis; else None.
    """

    bounds: tuple[IntArray, ...]
    offsets: IntArray
    chosen: IntArray | None = None
    box: IntArray | None = None
    places: tuple[Places, ...] | None = None

    @classmethod
    def of_grid(cls, counts: tuple[int, ...], lengths: tuple[int, ...], shift: tuple[int, ...] | None = None) -> Cells:
        """Return all cells of a grid, in groups of some lengths.

        With ``shift``, groups begin that number of cells earlier along each axis, and none is shorter than its length
        (if the grid is not): what is left over at the ends belongs to the neighbours.
        """
        if shift is None:
            bounds = tuple(np.append(np.arange(0, n, g), n) for n, g in zip(counts, lengths, strict=True))
        else:
            bounds = tuple(_shifted(n, g, s) for n, g, s in zip(counts, lengths, shift, strict=True))
        return cls(bounds, _offsets(bounds))

    @classmethod
    def of_places(cls, places: tuple[Places, ...]) -> Cells:
        """Return all cells of a grid, in groups of places along each axis."""
        bounds = tuple(along.bounds for along in places)
        return cls(bounds, _offsets(bounds), places=places)

    @classmethod
    def of_some(
        cls,
        counts: tuple[int, ...],
        lengths: tuple[int, ...],
        listed: IntArray,
        rows: IntArray,
        usual: Callable[[IntArray], IntArray] | None = None,
    ) -> Cells:
        """Return listed cells of a grid; equal ones are different samples.

        Parameters
        ----------
        counts, lengths
            Cells of the grid and of a box along each axis.
        listed, rows
            int64 ``(n, k)``, the cells, and int64 ``(n,)``, their rows in a list of the caller's.
        usual
            A function that returns how many samples a group of some boxes usually has, int64 ``(boxes,)``. The samples
            of a box that has more, because some of them come many times, are dealt to several groups: in one, they
            would all be in one block. None for a group for each box.
        """
        if not len(listed):
            return cls((), np.zeros(1, np.int64), np.empty(0, np.int64))
        number = box_numbers(counts, lengths, listed)
        order = np.argsort(number, kind="stable")
        begins = np.flatnonzero(np.append(True, np.diff(number[order])))
        sizes = np.diff(begins, append=len(listed))
        if usual is not None:
            enough = usual(number[order[begins]])
            parts = np.maximum((sizes + enough // 2) // enough, 1)
            if parts.max() > 1:
                # Equal samples are neighbours, and go to different groups.
                nth = np.arange(len(listed)) - np.repeat(begins, sizes)
                group = np.repeat(np.cumsum(parts) - parts, sizes) + nth % np.repeat(parts, sizes)
                order = order[np.argsort(group, kind="stable")]
                offsets = np.append(0, np.cumsum(np.bincount(group)))
                return cls((), offsets, rows[order], np.repeat(np.arange(len(parts)), parts))
        return cls((), np.append(begins, len(listed)), rows[order])

    @cached_property
    def _length(self) -> int | None:
        """Cells of every group but the last one, which has no more; None if they differ."""
        sizes = np.diff(self.offsets)
        even = len(sizes) > 0 and sizes[0] > 0 and sizes[-1] <= sizes[0] and (sizes[:-1] == sizes[0]).all()
        return int(sizes[0]) if even else None

    def labels(self, numbers: IntArray) -> IntArray:
        """Return what users call each cell: its place in C order of the grid, or the row in the list of cells."""
        if self.chosen is not None:
            return self.chosen[numbers]
        counts = tuple(int(along[-1]) for along in self.bounds)
        return np.asarray(np.ravel_multi_index(tuple(self.coordinates(numbers)[0].T), counts), np.int64)

    @cached_property
    def nth(self) -> IntArray:
        """How many equal samples come before each of the listed ones, int64 ``(n,)``."""
        assert self.chosen is not None
        return times_before(self.chosen)

    def groups(self, numbers: IntArray) -> IntArray:
        """Return the group of each cell."""
        if (length := self._length) is not None:
            return np.minimum(numbers // length, len(self.offsets) - 2)
        return np.searchsorted(self.offsets, numbers, "right") - 1

    def boxes(self, numbers: IntArray) -> IntArray:
        """Return the box of the grid that each cell is in, by a number."""
        groups = self.groups(numbers)
        return groups if self.box is None else self.box[groups]

    def along_axes(self, groups: IntArray) -> tuple[IntArray, ...]:
        """Return the number of groups along each axis; not for listed cells."""
        return np.unravel_index(groups, tuple(len(along) - 1 for along in self.bounds))

    def coordinates(self, numbers: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the coordinates of cells, of the first cells and the ends of their groups; not for listed cells.

        Each is int64 ``(n, k)``.
        """
        group = self.groups(numbers)
        rest = numbers - self.offsets[group]
        which = self.along_axes(group)
        result, begin, end = (np.empty((len(numbers), len(self.bounds)), np.int64) for _ in range(3))
        for d in reversed(range(len(self.bounds))):
            begin[:, d], end[:, d] = self.bounds[d][which[d]], self.bounds[d][which[d] + 1]
            rest, nth = np.divmod(rest, end[:, d] - begin[:, d])
            result[:, d] = begin[:, d] + nth
        return result, begin, end


def _offsets(bounds: tuple[IntArray, ...]) -> IntArray:
    """Return the first cell of each group, and the number of all, by the bounds of groups along each axis."""
    sizes = np.ones((), np.int64)
    for along in bounds:
        sizes = np.multiply.outer(sizes, np.diff(along))
    return np.append(0, np.cumsum(sizes.ravel()))


def times_before(numbers: IntArray) -> IntArray:
    """Return how often each number comes before its place, int64 ``(n,)``."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    result = np.empty(len(numbers), np.int64)
    result[order] = np.arange(len(numbers)) - np.searchsorted(ascending, ascending)
    return result


def box_numbers(counts: tuple[int, ...], lengths: tuple[int, ...], cells: IntArray) -> IntArray:
    """Return the box of each cell of a grid, ``(n, k)``, by number in C order; those outside are in the last ones."""
    boxes = tuple(-(-n // g) for n, g in zip(counts, lengths, strict=True))
    return np.asarray(np.ravel_multi_index(tuple((cells // np.array(lengths)).T), boxes, mode="clip"), np.int64)


def _shifted(count: int, length: int, shift: int) -> IntArray:
    """Return the bounds of groups that begin ``shift`` cells before the first cell."""
    inner = np.arange(length - shift, count, length)
    return np.array([0, *inner[(inner >= length) & (count - inner >= length)], count], np.int64)
