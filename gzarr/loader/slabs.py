"""Slabs: elements that several samples of a block have in common, decoded once and in memory once.

Samples that overlap (runs of steps, patches with a halo) take less memory as the box around a group of them than one by
one. So a block of them is read as boxes, and each batch is gathered from these when its turn comes. The boxes are
bounded: where the samples of a group are so far apart that the box around them is larger than they are together, each
sample is a box of its own.

Boxes of small samples are whole groups. There may be millions of them in a block, so which they are is asked for a few
thousand at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from ..engines.cpu.batch import Gathering, available
from ..plan.planner import plan
from ..plan.selection import parse_basic
from .boxes import Boxes, runs_of
from .gathering import GatheredWindows, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from .memory import Memory
    from .reading import Source
    from .volumes import Volumes, VolumesCells

    IntArray = npt.NDArray[np.int64]

# Boxes begin at multiples of this number of bytes, and there is room for the gaps of this number of boxes.
_ALIGNMENT = 64
_BOXES = 1024
#: Samples whose copies are planned at a time: a plan takes more memory than small samples do.
PLANNED: Final = 1 << 13
# Chunks are counted for this many samples at a time.
_AT_ONCE = 1 << 16


class Told(Protocol):
    """Samples, which are told some at a time."""

    def __len__(self) -> int: ...

    def some(self, begin: int, end: int) -> tuple[IntArray, IntArray]:
        """Return the numbers and the origins of the samples from ``begin`` to ``end``, ``(n,)`` and ``(n, axes)``."""


class Listed:
    """Samples whose numbers and origins are in memory.

    Parameters
    ----------
    numbers, origins
        int64 ``(n,)`` and ``(n, axes)``.
    """

    def __init__(self, numbers: IntArray, origins: IntArray) -> None:
        self._told = numbers, origins

    def __len__(self) -> int:
        return len(self._told[0])

    def some(self, begin: int, end: int) -> tuple[IntArray, IntArray]:
        """As for :class:`Told`."""
        return self._told[0][begin:end], self._told[1][begin:end]


class Slabs:
    """The slabs of a block of samples.

    Parameters
    ----------
    volumes, cells
        The volumes, and the cells of the epoch.
    samples
        The samples.
    groups
        int64, ascending: all groups that have some of them, of which boxes are made; None for boxes around the samples.

    Attributes
    ----------
    boxes
        The boxes around the samples, for each volume and each of its sources; none for volumes without samples. Those
        of groups have no ``which``.
    """

    def __init__(self, volumes: Volumes, cells: VolumesCells, samples: Told, groups: IntArray | None = None) -> None:
        self._samples = samples
        self._volumes, self._cells = volumes, cells
        # The groups of each volume, if boxes are these.
        self._groups: dict[int, IntArray] | None = None
        if groups is None:
            self.boxes: list[list[Boxes]] = _boxes(volumes, cells, *samples.some(0, len(samples)))
        else:
            self._groups = dict(cells.groups_of_volumes(groups))
            self.boxes = _whole_groups(volumes, cells, self._groups)
        self._arrays: list[list[Any]] | None = None
        # Of the sources that compiled code gathers: their windows in each volume, and the copies of those told.
        self._windows: dict[int, dict[int, GatheredWindows]] = {}
        self._gathering: Gathering | None = None
        # Of the samples that were told last: their origins; and of each volume that has some, their places, and for
        # each source the boxes of their windows.
        self._origins: IntArray = np.empty((0, volumes.columns), np.int64)
        self._parts: list[tuple[int, IntArray, list[IntArray]]] = []
        # Places of the samples of each volume, if there are several.
        self._places: dict[int, IntArray] | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._samples)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the slabs take."""
        return sum(
            found.size * source.array.dtype.itemsize
            for volume, each in zip(self._volumes.each, self.boxes, strict=True)
            for source, found in zip(volume.sources, each, strict=bool(each))
        )

    @property
    def uses(self) -> int:
        """Chunks that the samples need, counted for each sample; of whole groups, as many as the first ones need."""
        if self._groups is not None:
            some = min(len(self), PLANNED)
            return round(self._uses(*self._samples.some(0, some)) / max(some, 1) * len(self))
        return sum(
            self._uses(*self._samples.some(begin, min(begin + _AT_ONCE, len(self))))
            for begin in range(0, len(self), _AT_ONCE)
        )

    def _uses(self, numbers: IntArray, origins: IntArray) -> int:
        return sum(
            source.uses(origins[places])
            for volume, places, _ in self._cells.parts(numbers)
            for source in self._volumes.each[volume].sources
        )

    @property
    def is_read(self) -> bool:
        """Whether the elements are in memory."""
        return self._arrays is not None

    def chunks(self) -> Iterator[tuple[Source, IntArray]]:
        """Yield the chunks that are read of each array, as their coordinates."""
        for volume, each in zip(self._volumes.each, self.boxes, strict=True):
            for source, found in zip(volume.sources, each, strict=bool(each)):
                selections = [parse_basic(selection, source.array.shape) for selection in found.selections]
                yield source, plan(selections, source.grid).chunks

    def read(self, memory: Memory, room: int) -> None:
        """Read the elements of all boxes, each chunk once.

        Parameters
        ----------
        memory
            Memory of the slabs.
        room
            Most bytes of the slabs of a block: their memory has this size, so that it can be used again.

        Raises
        ------
        GzarrError
            If they cannot be read; nothing is kept then.
        """
        count = sum(len(found.low) for each in self.boxes for found in each)
        whole = memory.slabs(self.nbytes + count * _ALIGNMENT, room + _BOXES * _ALIGNMENT)
        arrays: list[list[Any]] = []
        begin = 0
        for volume, each in zip(self._volumes.each, self.boxes, strict=True):
            arrays.append([])
            for source, found in zip(volume.sources, each, strict=bool(each)):
                out = None
                if whole is not None and not source.array.dtype.hasobject:
                    out, begin = _views(whole, begin, found, source.array.dtype)
                arrays[-1].append(source.array.read_many(found.selections, out=out, stream=memory.stream))
        if whole is not None and available():
            for i, source in enumerate(self._volumes.each[0].sources):
                if not source.array.dtype.hasobject and source.part.posed is None:
                    self._windows[i] = {
                        volume: GatheredWindows(self._volumes.each[volume].sources[i], boxes[i], arrays[volume][i])
                        for volume, boxes in enumerate(self.boxes)
                        if boxes
                    }
        self._arrays = arrays

    def told(self) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Tell all samples, a few thousand at a time, which are to be gathered before the next ones are told.

        Yields
        ------
        Place of the first one, and the numbers and the origins of all of them.
        """
        for begin in range(0, len(self), PLANNED):
            end = min(begin + PLANNED, len(self))
            numbers, self._origins = self._samples.some(begin, end)
            self._parts = list(self._boxes_of(begin, end, numbers))
            self._gathering = None
            yield begin, numbers, self._origins

    def gather(self, samples: slice, outputs: Sequence[Any], memory: Memory) -> None:
        """Copy some of the samples out of the slabs.

        Parameters
        ----------
        samples
            Which of the samples that were told last.
        outputs
            The arrays of a batch, for this number of samples.
        memory
            Memory of the arrays.
        """
        assert self._arrays is not None
        if self._windows:
            if self._gathering is None:
                self._gathering = self._planned()
            sources = self._volumes.each[0].sources
            self._gathering.run(samples.start, samples.stop, [outputs[sources[i].number] for i in self._windows])
        if len(self._windows) == len(self._volumes.each[0].sources):
            return
        for volume, all_places, boxes in self._parts:
            some = slice(*all_places.searchsorted([samples.start, samples.stop]).tolist())
            places = all_places[some]
            origins = self._origins[places]
            for i, source in enumerate(self._volumes.each[volume].sources):
                if i in self._windows:
                    continue
                found, arrays = self.boxes[volume][i], self._arrays[volume][i]
                which = boxes[i][_windows_of(some, source)]
                starts, inside = source.part.starts(origins), source.inside(origins)
                offsets = (inside - found.low[which]).tolist()
                rows = source.rows(places - samples.start).tolist()
                (target,) = source.targets([outputs[source.number]])
                if source.part.posed is not None:
                    cut = [
                        arrays[box][tuple(slice(o, o + n) for o, n in zip(offset, source.read_shape, strict=True))]
                        for box, offset in zip(which.tolist(), offsets, strict=True)
                    ]
                    source.pose(cut, inside, origins, [target[row, ...] for row in rows], memory)
                    continue
                for j, (row, box) in enumerate(zip(rows, which.tolist(), strict=True)):
                    window = tuple(slice(o, o + n) for o, n in zip(offsets[j], source.read_shape, strict=True))
                    source.pad(target[row, ...], arrays[box][window], starts[j], inside[j], memory)

    def _planned(self) -> Gathering:
        """Plan the copies of the samples that were told last."""
        return Gathering(
            [
                pieces(
                    [
                        (windows[volume], places, boxes[i], self._origins[places])
                        for volume, places, boxes in self._parts
                    ]
                )
                for i, windows in self._windows.items()
            ]
        )

    def _boxes_of(self, begin: int, end: int, numbers: IntArray) -> Iterator[tuple[int, IntArray, list[IntArray]]]:
        """Yield each volume that has samples from ``begin`` to ``end``, their places there, and their boxes."""
        if self._groups is not None:
            for volume, places, own in self._cells.parts(numbers):
                present, groups = self._groups[volume], self._cells.each[volume].groups(own)
                which = np.searchsorted(present, groups)
                # The box of a neighbour would be wrong data.
                if not np.array_equal(present.take(which, mode="clip"), groups):
                    raise AssertionError(f"samples of volume {volume} are in groups that were not read")
                yield volume, places, [which] * len(self.boxes[volume])
            return
        if len(self._volumes.each) == 1:
            yield 0, np.arange(end - begin), self._which(0, slice(begin, end))
            return
        if self._places is None:
            everything, _ = self._samples.some(0, len(self))
            self._places = {volume: places for volume, places, _ in self._cells.parts(everything)}
        for volume, places in self._places.items():
            low, high = places.searchsorted([begin, end]).tolist()
            if high > low:
                yield volume, places[low:high] - begin, self._which(volume, slice(low, high))

    def _which(self, volume: int, samples: slice) -> list[IntArray]:
        """Return the boxes of the windows of some samples of a volume, for each source."""
        sources = self._volumes.each[volume].sources
        return [
            found.which[_windows_of(samples, source)] for found, source in zip(self.boxes[volume], sources, strict=True)
        ]


def _boxes(volumes: Volumes, cells: VolumesCells, numbers: IntArray, origins: IntArray) -> list[list[Boxes]]:
    """Return the boxes around some samples, as :attr:`Slabs.boxes`."""
    result: list[list[Boxes]] = [[] for _ in volumes.each]
    for volume, places, own in cells.parts(numbers):
        samples, at = volumes.each[volume].samples, origins[places]
        boxes = cells.each[volume].boxes(own)
        for source in volumes.each[volume].sources:
            starts = source.inside(at)
            # Along one axis, each run of windows that touch has a box: nothing is read that no sample needs.
            keys = runs_of(starts, source) if len(samples.counts) == 1 else np.repeat(boxes, source.part.windows)
            result[volume].append(Boxes.of(starts, source.read_shape, keys))
    return result


def _whole_groups(volumes: Volumes, cells: VolumesCells, groups: dict[int, IntArray]) -> list[list[Boxes]]:
    """Return the boxes of some groups of each volume, as :attr:`Slabs.boxes`."""
    result: list[list[Boxes]] = [[] for _ in volumes.each]
    for volume, present in groups.items():
        each, stride = cells.each[volume], np.array(volumes.each[volume].samples.stride)
        # Each sample of a group is where its cell is.
        _, first, end = each.coordinates(each.offsets[present])
        for source in volumes.each[volume].sources:
            low, high = source.inside(first * stride), source.inside((end - 1) * stride)
            result[volume].append(Boxes(low, high + np.array(source.read_shape), np.empty(0, np.int64)))
    return result


def _windows_of(samples: slice, source: Source) -> slice:
    """Return the windows of some samples."""
    return slice(source.part.windows * samples.start, source.part.windows * samples.stop)


def _views(memory: npt.NDArray[np.uint8], begin: int, found: Boxes, dtype: np.dtype[Any]) -> tuple[list[Any], int]:
    """Return an array for each box, in memory from byte ``begin`` on, and where they end."""
    views = []
    for shape in (found.high - found.low).tolist():
        begin = -(-begin // _ALIGNMENT) * _ALIGNMENT
        end = begin + math.prod(shape) * dtype.itemsize
        views.append(memory[begin:end].view(dtype).reshape(shape))
        begin = end
    return views, begin
