"""Slabs: elements that several samples of a block have in common, decoded once and in memory once.

Samples that overlap (runs of steps, patches with a halo) take less memory as the box around a group of them than one by
one. So a block of them is read as boxes, and each batch is gathered from these when its turn comes. The boxes are
bounded: where the samples of a group are so far apart that the box around them is larger than they are together, each
sample is a box of its own.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..distinct import distinct
from ..engines.cpu.batch import Gathering, available
from . import side_by_side
from .boxes import Boxes, runs_of
from .gathering import Windows, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from .memory import Memory
    from .reading import Source
    from .volumes import Volumes, VolumesCells

    IntArray = npt.NDArray[np.int64]

# Each box begins at a multiple of so many bytes, and there is room for that for so many boxes.
_ALIGNMENT = 64
_BOXES = 1024
# Copies are planned for so many samples at a time: a plan takes more memory than small samples do.
_PLANNED = 4096
# Chunks are counted for this many samples at a time.
_AT_ONCE = 1 << 16


class Slabs:
    """The slabs of a block of samples.

    Parameters
    ----------
    volumes, cells
        The volumes, and the cells of the epoch.
    numbers, origins
        int64 ``(n,)`` and ``(n, axes)``, the samples.
    whole
        Whether boxes are whole groups.

    Attributes
    ----------
    numbers, origins
        The samples.
    boxes
        The boxes around them, for each volume and each of its sources; none for volumes without samples.
    """

    def __init__(
        self, volumes: Volumes, cells: VolumesCells, numbers: IntArray, origins: IntArray, *, whole: bool = False
    ) -> None:
        self.numbers: IntArray = numbers
        self.origins: IntArray = origins
        self._volumes, self._cells = volumes, cells
        found = _whole_groups(volumes, cells, numbers) if whole else _boxes(volumes, cells, numbers, origins)
        self.boxes: list[list[Boxes]] = found
        self._arrays: list[list[Any]] | None = None
        # Of the sources that compiled code gathers: their windows in each volume, and what is planned for which turns.
        self._windows: dict[int, dict[int, Windows]] = {}
        self._gathering: Gathering | None = None
        self._planned = range(0)
        # Places of the samples of each volume, if there are several.
        self._places: dict[int, IntArray] | None = None

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
        """Chunks that the samples need, counted for each sample."""
        return sum(
            source.uses(self.origins[places[begin : begin + _AT_ONCE]])
            for volume, places, _ in self._cells.parts(self.numbers)
            for source in self._volumes.each[volume].sources
            for begin in range(0, len(places), _AT_ONCE)
        )

    @property
    def is_read(self) -> bool:
        """Whether the elements are in memory."""
        return self._arrays is not None

    def read(self, memory: Memory, room: int, *, together: bool = False) -> None:
        """Read the elements of all boxes, each chunk once.

        Parameters
        ----------
        memory
            Memory of the slabs.
        room
            Most bytes of the slabs of a block: their memory has this size, so that it can be used again.
        together
            Whether arrays are read side by side.

        Raises
        ------
        GzarrError
            If they cannot be read; nothing is kept then.
        """
        count = sum(len(found.low) for each in self.boxes for found in each)
        whole = memory.slabs(self.nbytes + count * _ALIGNMENT, room + _BOXES * _ALIGNMENT)
        arrays: list[list[Any]] = [[None] * len(each) for each in self.boxes]
        begin = 0

        def read_to(place: tuple[int, int], source: Source, found: Boxes, out: list[Any] | None) -> None:
            volume, i = place
            arrays[volume][i] = source.array.read_many(found.selections, out=out, stream=memory.stream)

        tasks = []
        for v, (volume, each) in enumerate(zip(self._volumes.each, self.boxes, strict=True)):
            for i, (source, found) in enumerate(zip(volume.sources, each, strict=bool(each))):
                out = None
                if whole is not None and not source.array.dtype.hasobject:
                    out, begin = _views(whole, begin, found, source.array.dtype)
                tasks.append(partial(read_to, (v, i), source, found, out))
        side_by_side.run(tasks, together=together)
        if whole is not None and available():
            for i, source in enumerate(self._volumes.each[0].sources):
                if not source.array.dtype.hasobject:
                    self._windows[i] = {
                        volume: Windows(self._volumes.each[volume].sources[i], boxes[i], arrays[volume][i])
                        for volume, boxes in enumerate(self.boxes)
                        if boxes
                    }
        self._arrays = arrays

    def gather(self, samples: slice, outputs: Sequence[Any], memory: Memory) -> None:
        """Copy some of the samples out of the slabs.

        Parameters
        ----------
        samples
            Which of the samples.
        outputs
            The arrays of a batch, for so many samples.
        memory
            Memory of the arrays.
        """
        assert self._arrays is not None
        if self._windows:
            if not (samples.start in self._planned and samples.stop - 1 in self._planned):
                self._plan(samples.start, max(samples.stop, samples.start + _PLANNED))
            assert self._gathering is not None
            sources = self._volumes.each[0].sources
            self._gathering.run(samples.start, samples.stop, [outputs[sources[i].number] for i in self._windows])
        if len(self._windows) == len(self._volumes.each[0].sources):
            return
        for volume, wanted, places in self._parts(samples.start, samples.stop):
            origins = self.origins[places]
            for i, source in enumerate(self._volumes.each[volume].sources):
                if i in self._windows:
                    continue
                found, arrays = self.boxes[volume][i], self._arrays[volume][i]
                which = found.which[_windows_of(wanted, source)]
                starts, inside = source.part.starts(origins), source.inside(origins)
                offsets = (inside - found.low[which]).tolist()
                rows = source.rows(places - samples.start).tolist()
                (target,) = source.targets([outputs[source.number]])
                for j, (row, box) in enumerate(zip(rows, which.tolist(), strict=True)):
                    window = tuple(slice(o, o + n) for o, n in zip(offsets[j], source.read_shape, strict=True))
                    source.pad(target[row, ...], arrays[box][window], starts[j], inside[j], memory)

    def _plan(self, begin: int, end: int) -> None:
        """Plan the copies of the samples from ``begin`` to ``end``."""
        parts = list(self._parts(begin, end))
        self._gathering = Gathering(
            [
                pieces(
                    [
                        (
                            windows[volume],
                            places,
                            self.boxes[volume][i].which[_windows_of(wanted, windows[volume].source)],
                            self.origins[places],
                        )
                        for volume, wanted, places in parts
                    ]
                )
                for i, windows in self._windows.items()
            ]
        )
        self._planned = range(begin, end)

    def _parts(self, begin: int, end: int) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Yield each volume, and its samples from ``begin`` to ``end``: which of its own they are, and their places."""
        if len(self._volumes.each) == 1:
            places = np.arange(begin, min(end, len(self.numbers)))
            yield 0, places, places
            return
        if self._places is None:
            self._places = {volume: places for volume, places, _ in self._cells.parts(self.numbers)}
        for volume, places in self._places.items():
            low, high = places.searchsorted([begin, end]).tolist()
            if high > low:
                yield volume, np.arange(low, high), places[low:high]


def _boxes(volumes: Volumes, cells: VolumesCells, numbers: IntArray, origins: IntArray) -> list[list[Boxes]]:
    """Return the boxes around some samples, as :attr:`Slabs.boxes`."""
    result: list[list[Boxes]] = [[] for _ in volumes.each]
    for volume, places, own in cells.parts(numbers):
        samples, at = volumes.each[volume].samples, origins[places]
        groups = cells.each[volume].groups(own)
        for source in volumes.each[volume].sources:
            starts = source.inside(at)
            # Along one axis, each run of windows that touch has a box: nothing is read that no sample needs.
            keys = runs_of(starts, source) if len(samples.counts) == 1 else np.repeat(groups, source.part.windows)
            result[volume].append(Boxes.of(starts, source.read_shape, keys))
    return result


def _whole_groups(volumes: Volumes, cells: VolumesCells, numbers: IntArray) -> list[list[Boxes]]:
    """Return the boxes of all groups that have some of the samples, as :attr:`Slabs.boxes`."""
    result: list[list[Boxes]] = [[] for _ in volumes.each]
    for volume, _, own in cells.parts(numbers):
        samples, each = volumes.each[volume].samples, cells.each[volume]
        groups = each.groups(own)
        present = distinct(groups)
        which = np.searchsorted(present, groups)
        low, high = samples.spans(each)
        for source in volumes.each[volume].sources:
            first, last = source.inside(low[present]), source.inside(high[present])
            result[volume].append(Boxes(first, last + np.array(source.read_shape), which))
    return result


def _windows_of(samples: IntArray, source: Source) -> IntArray:
    """Return the numbers of the windows of some samples."""
    windows = source.part.windows
    return samples if windows == 1 else (windows * samples[:, np.newaxis] + np.arange(windows)).reshape(-1)


def _views(memory: npt.NDArray[np.uint8], begin: int, found: Boxes, dtype: np.dtype[Any]) -> tuple[list[Any], int]:
    """Return an array for each box, in memory from byte ``begin`` on, and where they end."""
    views = []
    for shape in (found.high - found.low).tolist():
        begin = -(-begin // _ALIGNMENT) * _ALIGNMENT
        end = begin + math.prod(shape) * dtype.itemsize
        views.append(memory[begin:end].view(dtype).reshape(shape))
        begin = end
    return views, begin
