"""The rows of sparse matrices of a block, kept as they are stored, and the samples of the arrays beside them.

A row of single cells takes a twentieth of its memory as long as it is sparse. So a block keeps entries, each chunk of
which is decoded once for all of its rows, and each batch is made of them when its turn comes, by one kernel that also
chooses columns and scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plan.planner import plan_windows
from ..sparse.kept_rows import KeptRows
from ..sparse.view import DenseView
from .row_sizes import entries_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from .memory import Memory
    from .reading import Source
    from .volumes import Volumes, VolumesCells

    IntArray = npt.NDArray[np.int64]


class RowSlabs:
    """The samples of a block that has rows of sparse matrices; it has the methods of :class:`Slabs`.

    Parameters
    ----------
    volumes, cells
        The volumes, and the cells of the epoch.
    numbers, origins
        int64 ``(n,)`` and ``(n, axes)``, of the samples.
    """

    def __init__(self, volumes: Volumes, cells: VolumesCells, numbers: IntArray, origins: IntArray) -> None:
        self._volumes, self._numbers, self._origins = volumes, numbers, origins
        self._parts = [(volume, places) for volume, places, _ in cells.parts(numbers)]
        # Of each matrix of each volume: its rows, and which of them each sample is.
        self._rows: dict[tuple[int, int], tuple[IntArray, IntArray]] = {}
        for volume, places in self._parts:
            for i, source in enumerate(volumes.each[volume].sources):
                if source.is_rows:
                    rows = source.inside(origins[places])[:, 0]
                    self._rows[volume, i] = np.unique(rows, return_inverse=True)
        self._kept: dict[tuple[int, int], KeptRows] = {}
        # Of each array of a batch: the places of the samples, ascending, that others than rows are read for. What is
        # rows in one volume may be an array in another.
        self._others: dict[int, IntArray] = {}
        found: dict[int, list[IntArray]] = {}
        for volume, places in self._parts:
            for number in {source.number for source in volumes.each[volume].sources if not source.is_rows}:
                found.setdefault(number, []).append(places)
        for number, parts in found.items():
            self._others[number] = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
        # Their samples.
        self._arrays: dict[int, Any] | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._numbers)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        kept = sum(
            entries_nbytes(self._volumes.each[volume].sources[i], rows) for (volume, i), (rows, _) in self._rows.items()
        )
        outputs = self._volumes.each[0].reading.outputs
        return kept + sum(len(places) * outputs[number].nbytes for number, places in self._others.items())

    @property
    def uses(self) -> int:
        """Chunks that the samples need, counted for each sample."""
        return sum(
            source.uses(self._origins[places])
            for volume, places in self._parts
            for source in self._volumes.each[volume].sources
        )

    @property
    def is_read(self) -> bool:
        """Whether they are in memory."""
        return self._arrays is not None

    def chunks(self) -> Iterator[tuple[Source, IntArray]]:
        """Yield the chunks that are read of arrays beside the matrices, as their coordinates."""
        for volume, places in self._parts:
            for source in self._volumes.each[volume].sources:
                if not source.is_rows:
                    starts = source.inside(self._origins[places])
                    yield source, plan_windows(starts, source.read_shape, (1,) * source.array.ndim, source.grid).chunks

    def read(self, memory: Memory, room: int) -> None:
        """Read all of them, each chunk once; arguments and errors as for :meth:`Slabs.read`."""
        outputs = self._volumes.each[0].reading.outputs
        arrays = {number: outputs[number].empty(len(places), memory) for number, places in self._others.items()}
        for volume, places in self._parts:
            for i, source in enumerate(self._volumes.each[volume].sources):
                if source.is_rows:
                    view = source.array
                    assert isinstance(view, DenseView)
                    self._kept[volume, i] = KeptRows(view, self._rows[volume, i][0], memory.stream)
                    continue
                others = self._others[source.number]
                rows = None if len(others) == len(places) else others.searchsorted(places)
                source.read(self._origins[places], [arrays[source.number]], memory, rows)
        self._arrays = arrays

    def told(self) -> Iterator[tuple[int, IntArray, IntArray]]:
        """Tell all samples, as :meth:`Slabs.told`."""
        yield 0, self._numbers, self._origins

    def gather(self, samples: slice, outputs: Sequence[Any], memory: Memory) -> None:
        """Write some of the samples to the arrays of a batch; arguments as for :meth:`Slabs.gather`."""
        assert self._arrays is not None
        for volume, all_places in self._parts:
            low, high = all_places.searchsorted([samples.start, samples.stop]).tolist()
            if low == high:
                continue
            places = all_places[low:high] - samples.start
            for i, source in enumerate(self._volumes.each[volume].sources):
                if source.is_rows:
                    which = self._rows[volume, i][1][low:high]
                    write_rows(source, self._kept[volume, i], which, outputs[source.number], places, memory)
        for number, array in self._arrays.items():
            low, high = self._others[number].searchsorted([samples.start, samples.stop]).tolist()
            places = self._others[number][low:high] - samples.start
            # Neighbours at once: all of them, but for what is rows in some volumes.
            ends = [*(np.flatnonzero(np.diff(places) > 1) + 1).tolist(), high - low] if high > low else []
            begin = 0
            for end in ends:
                at = int(places[begin])
                memory.results.copy(outputs[number][at : at + end - begin], array[low + begin : low + end])
                begin = end


def write_rows(source: Source, kept: KeptRows, which: IntArray, output: Any, places: IntArray, memory: Memory) -> None:
    """Write rows to an array of a batch, or to its sparse rows.

    Parameters
    ----------
    source
        The window that a row is.
    kept
        The rows.
    which
        int64 ``(m,)``, which of them.
    output
        The array, or :class:`gzarr.sparse.kept_rows.SparseRows`.
    places
        int64 ``(m,)``, the sample that each is for.
    memory
        Memory of the batch.
    """
    if source.output.sparse is not None:
        output.put(places, kept.taken(which, memory.results))
        return
    (target,) = source.targets([output])
    kept.make_dense(which, target[:, 0], places)
