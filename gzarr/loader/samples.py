"""The samples of an epoch: where the windows of each sample are in its arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..cached import cached_property
from ..errors import ArgumentError
from .arguments import MOST
from .cells import Cells, box_numbers
from .drawing import TABLED, drawn, total_count
from .permutation import Permutation, hashed, mix, uniform
from .places import Places

if TYPE_CHECKING:
    from .cells import IntArray
    from .factors import Factor
    from .posing import Posing

Pad: TypeAlias = Literal["reflect", "symmetric", "edge", "fill"]

# What a hash is for; a part of its key.
_JITTER = 11
_SHIFT = 12
RESAMPLING = 13
_STARTS = 14
_POSES = 15
COUNTS = 16
_PLACES = 17


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a sampler knows of an array.

    Attributes
    ----------
    shape
        Shape in elements.
    chunks
        Shape of a chunk (inner chunk) in elements.
    dtype
        Data type of the elements.
    spacing
        Distances of neighbouring elements, if they are known.
    is_light
        Whether its chunks cost little, however often they are needed: groups are not made for their sake.
    names
        Names of the axes, if they are known.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    spacing: tuple[float, ...] | None = None
    is_light: bool = False
    names: tuple[str, ...] | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a sample: a window of one of the loader's arrays, or several.

    Attributes
    ----------
    names
        Keys of the result in a batch, from the outermost to the innermost. Parts of the same names make up one array,
        with an axis for them after that of the samples.
    array
        Name of the array that is read.
    shape
        Shape of the window, in elements of the array.
    low
        For each dimension, the distance of the window's first element from the sample's origin (from the array's first
        element, where the sampler does not move the window).
    axes
        For each dimension, the axis of the sampler's grid that moves the window, or None.
    factor
        For each dimension, how many elements of the origin's array one element of this array stands for; of posed
        patches, fractions too.
    pad
        What stands for elements outside of the array; None if windows are always inside.
    take
        Index of the part of the window that the result holds, after the axis of samples (of windows, with ``steps``).
    steps
        Distances of several windows from the sample's origin along the first axis of the grid, beside ``low``; in
        elements of the origin's array. The windows have the length 1 along the dimension that this axis moves, and the
        result has all of them there. Empty for one window, in its place.
    flip
        Dimensions along which the result is reversed.
    posed
        How the result is resampled from the window; None if it is the window.
    """

    names: tuple[str, ...]
    array: str
    shape: tuple[int, ...]
    low: tuple[int, ...]
    axes: tuple[int | None, ...]
    factor: tuple[Factor, ...]
    pad: Pad | None = None
    take: tuple[Any, ...] = ()
    steps: tuple[int, ...] = ()
    flip: tuple[int, ...] = ()
    posed: Posing | None = None

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result, before ``take``."""
        return self.shape if self.posed is None else self.posed.result_shape(self.shape)

    @property
    def windows(self) -> int:
        """Number of windows of a sample."""
        return len(self.steps) or 1

    def starts(self, origins: IntArray) -> IntArray:
        """Return the first element of each window, int64 ``(n * windows, ndim)``.

        Parameters
        ----------
        origins
            int64 ``(n, axes of the grid)``.
        """
        if self.steps:
            origins = np.repeat(origins, len(self.steps), axis=0)
            origins[:, 0] += np.tile(self.steps, len(origins) // len(self.steps))
        result = np.empty((len(origins), len(self.shape)), np.int64)
        for d, axis in enumerate(self.axes):
            result[:, d] = self.low[d]
            if axis is not None:
                result[:, d] += origins[:, axis] * self.factor[d].denominator // self.factor[d].numerator
        return result


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of an epoch.

    Attributes
    ----------
    parts
        The arrays of a sample.
    counts
        Cells along each axis of the grid.
    stride
        Distance of neighbouring cells along each axis, in elements of the origin's array.
    lengths
        Cells of a group along each axis.
    size
        Elements of the origin's array along each axis of the grid.
    chosen
        int64 ``(n, axes)``, origins of the samples if they are not all cells of the grid.
    weights
        float64 ``(n,)``, how often each of them, or each cell, is a sample, relative to the others; None for once each.
    number
        Samples that are drawn for an epoch; None for as many as there are.
    replace
        Whether a sample may be drawn several times.
    every
        Distance between the samples of an epoch in the list of all, which begins elsewhere in each epoch.
    jitter
        Length of the window along each axis if samples do not lie on the grid: anywhere in their group, or in the part
        of all places that a listed sample has. Else None.
    share
        Samples of an epoch to the number of different ones.
    posed
        Whether origins have a column more: the key that the pose of each sample is drawn by.
    begin
        Distance along each axis from a sample's origin to the element that it is said to begin at: to its own step, if
        others before it are read. None if that is the origin.
    classes
        int64 ``(n,)``, class of each sample, or cell: by their weights, all classes come equally often. None if not so.
    shown
        int64 ``(n, axes)``, an element that each of the chosen samples shows wherever it lies, but for its pose; None
        if these lie around their origins.
    unit
        What the places of samples with ``jitter`` are multiples of, along each axis: elements of smaller arrays begin
        there, too. The stride, the size, the chosen origins and ``jitter`` are multiples of it. None for any places.
    """

    parts: tuple[Part, ...]
    counts: tuple[int, ...]
    stride: tuple[int, ...]
    lengths: tuple[int, ...]
    size: tuple[int, ...]
    chosen: IntArray | None = None
    weights: npt.NDArray[np.float64] | None = None
    jitter: tuple[int, ...] | None = None
    share: float = 1.0
    number: int | None = None
    replace: bool = True
    every: int = 1
    posed: bool = False
    begin: tuple[int, ...] | None = None
    classes: IntArray | None = None
    shown: IntArray | None = None
    unit: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        count = self.total if self.total > MOST else round(self.expected)
        if count > MOST:
            raise ArgumentError(
                f"there are {count} samples, and orders are made of at most 2**48: give a part of the array, such "
                "as array.view[:10**9]"
            )

    @property
    def total(self) -> int:
        """Number of different samples, of all epochs."""
        return math.prod(self.counts) if self.chosen is None else len(self.chosen)

    @property
    def count(self) -> int:
        """Number of samples of an epoch if there are no others; see ``Volumes.count``."""
        return total_count([self.expected])

    @property
    def groups(self) -> int:
        """Most groups of an epoch: boxes of the grid that have samples, and those of samples that come many times."""
        boxes = math.prod(-(-n // length) for n, length in zip(self.counts, self.lengths, strict=True))
        # See ``_usual``: of a list, a group may have one sample.
        least = 1 if self.chosen is not None else max(math.prod(map(min, self.lengths, self.counts)), 1)
        further = 2 * self.count // least if self.may_repeat else 0
        return min(boxes + further, self.count)

    @property
    def expected(self) -> float:
        """Number of samples of an epoch in the mean of all epochs."""
        return (self._pool if self.number is None else self.number) * self.share

    @property
    def _pool(self) -> int:
        """Number of samples to draw from in an epoch: of any, at least one."""
        return max(self.total // self.every, min(self.total, 1))

    @property
    def columns(self) -> int:
        """Columns of origins."""
        return len(self.counts) + self.posed

    @property
    def is_weighed(self) -> bool:
        """Whether an epoch has not each sample once."""
        return self.weights is not None or self.number is not None or self.share != 1 or self.every != 1

    @property
    def is_line(self) -> bool:
        """Whether all cells of a grid with one axis are samples, each where its cell is."""
        return len(self.counts) == 1 and self.chosen is None and self.jitter is None and not self.is_weighed

    @property
    def is_drawn(self) -> bool:
        """Whether chance tells which samples an epoch has: not if each comes once, or all equally often."""
        if self.weights is not None:
            return True
        return self._pool > 0 and self.expected % self._pool != 0

    @property
    def is_drawn_of_many(self) -> bool:
        """Whether it does so for so many equal ones that not each of them is looked at."""
        return self.weights is None and self._pool > TABLED and self.is_drawn

    @property
    def may_repeat(self) -> bool:
        """Whether some samples may come several times in an epoch."""
        return (self.weights is not None and self.replace) or self.comes_in_rounds or self.expected > self._pool

    @property
    def comes_in_rounds(self) -> bool:
        """Whether weighed samples come several times because there are too few of them to come once."""
        if self.weights is None or self.replace:
            return False
        return self.count > int(np.count_nonzero(self.weights))

    @property
    def may_be_rounded_up(self) -> bool:
        """Whether they come in rounds only in epochs in which their number is rounded up, and that of others down."""
        if self.weights is None or self.replace or self.comes_in_rounds:
            return False
        return math.ceil(self.expected) > int(np.count_nonzero(self.weights))

    def cells(
        self, seed: int, epoch: int, *, grouped: bool = True, rows: IntArray | None = None, volume: int = 0
    ) -> Cells:
        """Return the cells of an ``epoch`` with a ``seed``; in one group, so in their own order, if not ``grouped``.

        Random windows have other groups in each epoch, so that each place is met as often as the others.

        Parameters
        ----------
        seed, epoch, grouped
            See above.
        rows
            What is drawn of these samples together with those of others; None where there are no others.
        volume
            Number of the volume whose samples they are.
        """
        key = (volume,) if volume else ()
        lengths = self.lengths if grouped else tuple(max(n, 1) for n in self.counts)
        if self.chosen is not None or self.is_weighed:
            rows = self.rows(seed, epoch, key=key) if rows is None else rows
            count = len(rows)
            usual = (lambda boxes: self._usual(boxes, count)) if grouped and self.may_repeat else None
            return Cells.of_some(self.counts, lengths, self._cells_of(rows), rows, usual)
        if self.jitter is None:
            return Cells.of_grid(self.counts, lengths)
        if not self.are_in_places:
            shift = tuple(mix(seed, epoch, _SHIFT, d, *key) % length for d, length in enumerate(lengths))
            return Cells.of_grid(self.counts, lengths, shift)
        along = zip(self.counts, lengths, *(n.tolist() for n in self._in_units), strict=True)
        return Cells.of_places(
            tuple(
                Places.of(count, length, stride, window, size, _draws(seed, epoch, _PLACES, d, *key))
                for d, (count, length, stride, size, window) in enumerate(along)
            )
        )

    def _cells_of(self, rows: IntArray) -> IntArray:
        """Return the cells of samples by their rows in the list of all, int64 ``(n, axes)``."""
        if self.chosen is None:
            return np.stack(np.unravel_index(rows, self.counts), axis=1)
        return np.asarray(self.chosen[rows] // np.array(self.stride), np.int64)

    def _usual(self, boxes: IntArray, count: int) -> IntArray:
        """Return how many samples make a group of each of some boxes; those of a box with more are split.

        As many as if each sample came once, and at least as many as in the mean of all boxes. Random windows of one
        place differ and have their elements in common, so a group has as many of them as the epoch has for each box,
        apart from the weight of its volume.
        """
        if self.chosen is None:
            result = np.full(len(boxes), math.prod(map(min, self.lengths, self.counts)), np.int64)
        else:
            listed, counts = self._listed_in_boxes
            result = np.maximum(counts[np.searchsorted(listed, boxes)], -(-self.total // len(listed)))
        without_weight = int(count / max(self.share, 1.0))
        return result if self.jitter is None else np.maximum(result, -(-without_weight // len(boxes)))

    @cached_property
    def _listed_in_boxes(self) -> tuple[IntArray, IntArray]:
        """The boxes that have chosen samples, ascending, and how many each of them has."""
        return np.unique(
            box_numbers(self.counts, self.lengths, self._cells_of(np.arange(self.total))), return_counts=True
        )

    def origins(
        self, cells: Cells, numbers: IntArray, seed: int, epoch: int, first: tuple[int, int] = (0, 0)
    ) -> IntArray:
        """Return the origin of each sample, int64 ``(n, columns)``, in elements of the origin's array.

        Parameters
        ----------
        cells, seed, epoch
            Result and arguments of :meth:`cells`.
        numbers
            int64 ``(n,)``, numbers of the samples.
        first
            Number and label of the first sample of the volume, where there are others: else samples of all volumes
            would have the same places and poses.
        """
        rows = cells.labels(numbers) if self.posed or self.jitter is None else None
        if self.jitter is None:
            assert rows is not None
            places = self._listed(rows)
        else:
            places = self._random(cells, numbers, seed, epoch, numbers + first[0]) * self._unit
        if not self.posed:
            return places
        assert rows is not None
        # By the sample, not by its number: that depends on groups, and so on shuffle= and buffer_bytes=.
        keys = hashed(mix(seed, epoch, _POSES), rows + first[1]).view(np.int64)
        if self.may_repeat or self.may_be_rounded_up:
            nth = cells.nth[numbers]
            again = nth > 0
            keys[again] = hashed(mix(seed, epoch, _POSES, 1), keys[again] + nth[again]).view(np.int64)
        return np.column_stack([places, keys])

    def _random(self, cells: Cells, numbers: IntArray, seed: int, epoch: int, drawn: IntArray) -> IntArray:
        """Return the random place of each sample, in units."""
        _, size, window = self._in_units
        fractions = np.stack([uniform(mix(seed, epoch, _JITTER, d), drawn, 2**31) for d in range(len(window))], axis=1)
        if cells.chosen is not None:
            low, high = self._range_of(cells.chosen[numbers])
            return np.asarray(low + ((fractions * (high - low + 1)) >> 31), np.int64)
        where, first, last = cells.coordinates(numbers)
        within = where + fractions / 2**31
        if cells.places is None:
            return np.asarray(np.minimum(self._slice_begins(within), size - window), np.int64)
        # The places of a group are divided among its cells.
        parts = (within - first) / (last - first)
        along = zip(cells.places, cells.along_axes(cells.groups(numbers)), parts.T, strict=True)
        return np.stack([places.at(groups, part) for places, groups, part in along], axis=1)

    def _range_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first and the last place of each of some listed samples, which are random, in units.

        Both are int64 ``(n, axes)``.

        Where an element of each is known that it shows, all places that show it. Otherwise cells share all places of an
        axis evenly, and a sample has those of the cell that begins at its origin.
        """
        stride, size, window = self._in_units
        last = size - window
        if self.shown is not None:
            high = self.shown[rows] // self._unit
            low = high - window + 1
        else:
            cells = self._listed(rows) // self._unit / stride
            low, high = self._slice_begins(cells), self._slice_begins(cells + 1) - 1
        low = np.clip(low, 0, last)
        return low, np.clip(high, low, last)

    def spans(self, cells: Cells) -> tuple[IntArray, IntArray]:
        """Return the lowest and the highest origin that samples of each group of ``cells`` may have.

        Both are int64 ``(groups, axes)``.
        """
        if len(cells.offsets) == 1:
            return (np.empty((0, len(self.stride)), np.int64),) * 2
        if cells.chosen is not None:
            lows, highs = (self._listed(cells.chosen),) * 2
            if self.jitter is not None:
                lows, highs = (places * self._unit for places in self._range_of(cells.chosen))
            begins = cells.offsets[:-1]
            return np.minimum.reduceat(lows, begins, axis=0), np.maximum.reduceat(highs, begins, axis=0)
        if cells.places is not None:
            which = cells.along_axes(np.arange(len(cells.offsets) - 1))
            pairs = [(p.low[own], p.high[own]) for p, own in zip(cells.places, which, strict=True)]
            low, high = (np.stack(each, axis=1) for each in zip(*pairs, strict=True))
            return low * self._unit, high * self._unit
        _, first, last = cells.coordinates(cells.offsets[:-1])
        if self.jitter is None:
            return first * np.array(self.stride), (last - 1) * np.array(self.stride)
        _, size, window = self._in_units
        low, high = self._slice_begins(first), self._slice_begins(last)
        return np.minimum(low, size - window) * self._unit, np.minimum(high, size - window) * self._unit

    @property
    def are_in_places(self) -> bool:
        """Whether all cells are samples at random places, of windows that stay within their group.

        These read fewer chunks than those of cells that have places of their own, which is no use where windows around
        poses lead across the edges of groups anyway.
        """
        if self.jitter is None or self.chosen is not None or self.is_weighed:
            return False
        return all(part.posed is None or part.posed.copies for part in self.parts)

    def _slice_begins(self, cells: IntArray | npt.NDArray[np.float64]) -> IntArray:
        """Return the first place of cells that share all places of an axis evenly, in units, of the same shape."""
        _, size, window = self._in_units
        places = size - window + 1
        return np.asarray(np.floor(cells * places / np.array(self.counts)), np.int64)

    @cached_property
    def _unit(self) -> IntArray:
        """What random places are multiples of, int64 ``(axes,)``."""
        return np.array((1,) * len(self.stride) if self.unit is None else self.unit, np.int64)

    @cached_property
    def _in_units(self) -> tuple[IntArray, IntArray, IntArray]:
        """The stride, the size and the window of random places in units, each int64 ``(axes,)``."""
        assert self.jitter is not None
        stride, size, window = (np.array(n, np.int64) // self._unit for n in (self.stride, self.size, self.jitter))
        return stride, size, window

    def _listed(self, rows: IntArray) -> IntArray:
        """Return the origins of samples by their rows in the list of all, without jitter."""
        if self.chosen is not None:
            return np.asarray(self.chosen[rows], np.int64)
        return np.asarray(np.stack(np.unravel_index(rows, self.counts), axis=1) * np.array(self.stride), np.int64)

    def rows(self, seed: int, epoch: int, count: int | None = None, key: tuple[int, ...] = ()) -> IntArray:
        """Return the samples of an epoch by their rows in the list of all, ascending.

        Parameters
        ----------
        seed, epoch
            Those of the epoch.
        count
            Number of samples; None for :attr:`count`.
        key
            Integers that determine what is drawn, with those of the epoch.
        """
        if not self.is_weighed or not self.total:
            return np.arange(self.total)
        count = self.count if count is None else count
        drawing = mix(seed, epoch, RESAMPLING, *key)
        if self.every == 1:
            return drawn(self.total, count, self.weights, drawing, replace=self.replace, classes=self.classes)
        # All phases come before one comes again. Where a phase has one sample more than others, the first or the last
        # of them is left out.
        pool = self._pool
        phases = min(self.every, self.total)
        turn, nth = divmod(epoch, phases)
        first = int(Permutation(phases, (seed, turn, _STARTS, *key))(np.array([nth]))[0])
        if first + self.every * pool < self.total:
            first += self.every * (mix(seed, epoch, _STARTS, *key) & 1)
        rows = np.arange(pool) if count == pool else drawn(pool, count, None, drawing, replace=True)
        return first + self.every * rows


def _draws(*key: int) -> tuple[float, float]:
    """Return two numbers of at least 0 and below 1."""
    return (mix(*key, 0) >> 11) / 2**53, (mix(*key, 1) >> 11) / 2**53
