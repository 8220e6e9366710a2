"""Rows of a dense view that are kept as they are stored, until they are made dense or taken: for loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .entries import DenseTarget, Entries
from .parts import Parts
from .snapshot import memory_of
from .wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..arrays.outputs import Results
    from .view import DenseView

    IntArray = npt.NDArray[np.int64]


def row_nbytes(view: DenseView) -> int:
    """Return the mean bytes of a row that stays sparse, in a batch."""
    now = view._snapshot
    return -(-now.nnz * (view.dtype.itemsize + 4) // max(now.shape[0], 1)) + 8


def entry_nbytes(view: DenseView) -> int:
    """Return the bytes of memory that each entry of a view's rows takes."""
    now = view._snapshot
    memory = memory_of(now.options(None))
    indices, values = memory.kept_types(view.wanted, now.layout.indices.dtype, now.dtype)
    # A device has indices of 64 bits while they are read only.
    return min(indices.itemsize, 4) + values.itemsize


class KeptRows:
    """Some rows in memory.

    Parameters
    ----------
    view
        The view.
    rows
        int64 ``(n,)``, numbers of the rows, ascending.
    stream
        As for :meth:`gzarr.Array.read`.

    Raises
    ------
    ChunkError, DeviceError, MemoryError, SelectionError
        As for :meth:`gzarr.sparse.Matrix.read`.
    """

    def __init__(self, view: DenseView, rows: IntArray, stream: Any) -> None:
        now, self._wanted = view._snapshot, view.wanted
        options = now.options(stream)
        self._memory = memory_of(options)
        self._entries = now.fetch(rows, self._wanted, options, self._memory)

    def make_dense(self, which: IntArray, array: Any, places: IntArray) -> None:
        """Make rows dense.

        Parameters
        ----------
        which
            int64 ``(m,)``, which of the rows.
        array
            Array ``(k, columns)`` of the view's type, with any strides, where the view is read to.
        places
            int64 ``(m,)``, the place of each in the array.
        """
        by_row, by_column = array.strides
        addresses = self._memory.address(array) + by_row * places
        target = DenseTarget(array, addresses, by_column, array.shape[1], lambda i: array[int(places[i])])
        self._memory.densify(self._entries, self._wanted, target, which)

    def taken(self, which: IntArray, results: Results) -> Entries:
        """Return some rows, int64 ``(m,)``, as entries of the view's type, in memory of the caller's."""
        return self._memory.taken(self._entries, self._wanted, which, results)


class SparseRows:
    """Rows of a batch that stay sparse, put together of parts.

    Parameters
    ----------
    view
        The view that they are from, or another one of as many columns on its device.
    count
        Number of rows.
    stream
        As for :meth:`gzarr.Array.read`.
    """

    def __init__(self, view: DenseView, count: int, stream: Any) -> None:
        self._wanted = view.wanted
        self._options = view._snapshot.options(stream)
        self._memory = memory_of(self._options)
        self._count, self._width, self._parts = count, view.shape[1], list[tuple["IntArray", "Entries"]]()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: slice) -> _SomeRows:
        return _SomeRows(self, range(self._count)[rows])

    def put(self, places: IntArray, entries: Entries) -> None:
        """Put some rows to their places, int64 ``(m,)``; what was put there before is forgotten."""
        kept = []
        for known, part in self._parts:
            left = np.flatnonzero(~np.isin(known, places))
            if len(left) == len(known):
                kept.append((known, part))
            elif len(left):
                kept.append((known[left], self._memory.taken(part, Wanted(self._wanted.dtype), left)))
        self._parts = [*kept, (places, entries)]

    def taken(self, rows: Sequence[int] | None = None) -> Parts:
        """Return some rows, or all; all of them were put."""
        if not self._parts:
            kinds = (self._wanted.dtype, np.dtype(np.int32))
            values, indices = (self._options.memory.empty((0,), dtype) for dtype in kinds)
            self._parts = [(np.empty(0, np.int64), Entries(np.zeros(1, np.int64), indices, values))]
        places = np.concatenate([places for places, _ in self._parts])
        entries = self._memory.joined([part for _, part in self._parts])
        order = np.argsort(places, kind="stable")
        if rows is not None:
            order = order[np.searchsorted(places[order], rows)]
        if not np.array_equal(order, np.arange(entries.rows)):
            entries = self._memory.taken(entries, Wanted(self._wanted.dtype), order)
        shape = (entries.rows, self._width)
        return Parts(entries.values, entries.indices, self._memory.offsets(entries), shape)


class _SomeRows:
    """Some rows of a batch."""

    def __init__(self, whole: SparseRows, rows: range) -> None:
        self._whole, self._rows = whole, rows

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, places: IntArray, entries: Entries) -> None:
        """As for :class:`SparseRows`."""
        self._whole.put(self._rows.start + places, entries)
