"""Rows of several arrays, gathered from boxes of other arrays in memory by compiled code: one call for many copies."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import kernels, pool
from ..job_slots import BatchSlots, ChunkElements, PlacedMemory, PlacedPieces
from ..kernels import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Bytes for each thread: for fewer, starting it would cost more than the copies.
WORKER_BYTES: Final = 1 << 20


def available() -> bool:
    """Return whether compiled code can run here."""
    return "loop" in kernels.available()


@dataclass(frozen=True, eq=False)
class Pieces:
    """Boxes of some inputs, for the rows of one array; ``m`` pieces, ``g`` inputs, rows of ``k`` dimensions.

    Every box must be within its row and within its input.

    Attributes
    ----------
    shape, dtype
        Shape of a row, and the dtype of the array and of all inputs, which holds no Python objects.
    row
        int64 ``(m,)``, ascending: the row that each piece goes to.
    start, count, first
        int64 ``(m, k)``: first element of each box in its row, its shape, and its first element in its input.
    which
        int64 ``(m,)``, the input of each piece.
    bases, strides
        int64 ``(g,)`` and ``(g, k)``: address of each input's element ``(0, …)``, and its strides in bytes, of any
        sign. The caller keeps the memory alive.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    row: IntArray
    start: IntArray
    count: IntArray
    first: IntArray
    which: IntArray
    bases: IntArray
    strides: IntArray


class Gathering:
    """Copies of pieces to arrays, prepared once to be made for some rows at a time.

    Parameters
    ----------
    arrays
        The pieces of each array; at least one.
    """

    def __init__(self, arrays: Sequence[Pieces]) -> None:
        self._gather = kernels.entry("batch", "gather_rows")
        self._slots = slots = BatchSlots()
        self._rows = [pieces.row for pieces in arrays]
        self._geometries = [_geometry(slots, pieces) for pieces in arrays]
        slots.set_arrays(self._geometries)

    def run(
        self,
        low: int,
        high: int,
        targets: Sequence[npt.NDArray[Any]],
        bases: Sequence[IntArray] | None = None,
    ) -> None:
        """Fill rows.

        Parameters
        ----------
        low, high
            First row, and end.
        targets
            For each array, a C-contiguous one for these rows, ``(high - low, *shape)``.
        bases
            For each array, the addresses of its inputs, of as many as the pieces have; None for the pieces' own.
        """
        ranges = [rows.searchsorted([low, high]).tolist() for rows in self._rows]
        before = [0, *accumulate(end - begin for begin, end in ranges)]
        turns = before[-1]
        shared = np.zeros(2, np.int64)
        slots = self._slots.copy()
        slots.set_rows(turns, shared)
        if bases is not None:
            slots.set_arrays(list(map(slots.with_bases, self._geometries, bases)))
        slots.set_gathered(
            low,
            high,
            np.array([address(target) for target in targets], np.int64),
            np.array([begin for begin, _ in ranges], np.int64),
            np.array(before, np.int64),
        )
        nbytes = sum(target.nbytes for target in targets)
        workers = max(1, min(pool.thread_count(), turns, nbytes // WORKER_BYTES))
        kernels.run(self._gather, slots.address, shared, turns, workers)


def _geometry(slots: Any, pieces: Pieces) -> IntArray:
    """Return the geometry of an array: rows are the slowest dimension of a chunk, and its pieces are one row long."""
    k = 1 + len(pieces.shape)
    shape = np.array([int(pieces.row[-1]) + 1 if len(pieces.row) else 0, *pieces.shape], np.int64)
    strides = pieces.dtype.itemsize * np.append(np.cumprod(shape[:0:-1])[::-1], 1)
    start = np.column_stack([pieces.row, pieces.start])
    count, target = _with_rows(pieces.count, 1), _with_rows(pieces.first, 0)
    geometry: IntArray = slots.geometry(
        PlacedPieces(start, count, target, pieces.which, np.ones(k, np.int64)),
        ChunkElements(shape, strides, np.arange(k), itemsize=pieces.dtype.itemsize, swap=0),
        PlacedMemory(pieces.bases, _with_rows(pieces.strides, 0), np.zeros(2 * k, np.int64)),
    )
    return geometry


def _with_rows(columns: IntArray, value: int) -> IntArray:
    """Return columns of pieces with one for the rows before them."""
    return np.column_stack([np.full(len(columns), value, np.int64), columns])
