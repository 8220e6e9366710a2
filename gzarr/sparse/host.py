"""Entries in host memory: compiled kernels choose columns and make rows dense, SciPy has the matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import sparse as s

from ..arrays.outputs import HOST
from ..engines import kernels, pool
from ..engines.cpu.native import STREAM_BYTES
from ..engines.kernels import address
from ..errors import ArgumentError
from ..installing import COMMANDS
from .entries import Entries, joined_offsets, narrow_offsets
from .wanted import number_of

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt

    from ..arrays.outputs import Results
    from .entries import DenseTarget
    from .wanted import Wanted

    IntArray = npt.NDArray[np.int64]

#: Entries or elements for each thread.
_WORKER_ITEMS: Final = 1 << 16
#: Turns of each thread, so that rows of different lengths are shared evenly.
_TURNS: Final = 8


class HostMemory:
    """Entries in NumPy's arrays."""

    def kept_types(
        self, wanted: Wanted, indices: np.dtype[Any], values: np.dtype[Any]
    ) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Return the types that indices and values are best read in: as stored, if kernels have these types."""
        narrow = indices.kind == "u" and indices.itemsize <= 2
        return indices.newbyteorder("=") if narrow else index_dtype(indices), wanted.kept_dtype(values)

    def narrowed(self, indices: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
        """Return indices as int32, or as they are if they are narrower."""
        if indices.dtype.itemsize <= 4:
            return indices
        result: npt.NDArray[np.int32] = indices.astype(np.int32)
        if len(indices):
            wide = indices.view(np.uint64)
            if wide.max() >= columns:
                result[wide >= columns] = -1
        return result

    def first_wrong(self, entries: Entries, columns: int) -> int:
        """Return the place of the first index that is no column, or -1."""
        # A negative number is a large one without its sign.
        unsigned = entries.indices.view(f"u{entries.indices.dtype.itemsize}")
        if not len(unsigned) or unsigned.max() < columns:
            return -1
        return int(np.argmax(unsigned >= columns))

    def prepared(self, entries: Entries, wanted: Wanted) -> Entries:
        """Return the entries with the wanted columns: kernels scale values when they make something of them."""
        columns, indices = wanted.columns, entries.indices
        if columns is not None and not columns.have_table(len(indices)):
            columns, indices = columns.ranked(indices)
        return replace(entries, indices=indices, columns=columns)

    def taken(
        self, entries: Entries, wanted: Wanted, rows: IntArray | None = None, results: Results | None = None
    ) -> Entries:
        """Return the entries of some rows that are wanted."""
        begins, ends = entries.bounds(rows)
        offsets = np.zeros(len(begins) + 1, np.int64)
        job = _Job(entries, wanted, begins, ends)
        if entries.columns is None:
            np.subtract(ends, begins, out=offsets[1:])
        else:
            job.slots[s.NEW_OFFSETS] = address(offsets)
            job.run("count", len(entries.values))
        np.cumsum(offsets, out=offsets)
        made = HOST if results is None else results
        indices = made.empty((int(offsets[-1]),), np.dtype(np.int32))
        values = made.empty(indices.shape, wanted.dtype)
        job.slots[s.NEW_OFFSETS] = address(offsets)
        job.slots[s.NEW_INDICES], job.slots[s.NEW_VALUES] = address(indices), address(values)
        job.run("take", len(entries.values))
        return Entries(offsets, indices, values)

    def joined(self, parts: list[Entries]) -> Entries:
        """Return several parts as one."""
        if len(parts) == 1:
            return parts[0]
        return Entries(
            joined_offsets(parts),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
        )

    def address(self, array: npt.NDArray[Any]) -> int:
        """Return the address of an array's first element."""
        return address(array)

    def densify(self, entries: Entries, wanted: Wanted, target: DenseTarget, rows: IntArray | None = None) -> None:
        """Write rows to dense arrays."""
        if not target.width:
            return
        job = _Job(entries, wanted, *entries.bounds(rows))
        job.slots[s.TARGETS] = address(target.addresses)
        job.slots[s.COLUMN_STRIDE], job.slots[s.COLUMNS] = target.stride, target.width
        chosen = entries.columns
        job.slots[s.INDEXED] = target.width if chosen is None else len(chosen.offsets) - 1
        itemsize, count = wanted.dtype.itemsize, len(target.addresses)
        is_plain = chosen is None and target.stride == itemsize and itemsize in (4, 8) and wanted.dtype.kind != "c"
        job.slots[s.STREAM] = is_plain and count * target.width * itemsize > STREAM_BYTES
        job.run("densify", target.width * count)

    def offsets(self, entries: Entries) -> npt.NDArray[Any]:
        """Return the offsets."""
        return narrow_offsets(entries)

    def matrix(self, entries: Entries, shape: tuple[int, int], form: str) -> Any:
        """Return a ``csr_array`` or ``csc_array`` of SciPy."""
        make = getattr(scipy_sparse(), f"{form}_array")
        return make((entries.values, entries.indices, narrow_offsets(entries)), shape=shape, copy=False)


def scipy_sparse() -> ModuleType:
    """Return ``scipy.sparse``.

    Raises
    ------
    ArgumentError
        If SciPy is not installed.
    """
    try:
        import scipy.sparse as sparse
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"sparse matrices in host memory are SciPy's, which is not installed: {COMMANDS['sparse']}"
        ) from error
    result: ModuleType = sparse
    return result


def index_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that indices are read in so that those that do not fit 31 bits are found."""
    # Numbers of 64 bits that do not fit would become others; of 32 bits, negative.
    return np.dtype(np.int32) if stored.itemsize <= 4 else stored.newbyteorder("=")


class _Job:
    """A job of the kernels, with all that its addresses refer to.

    Parameters
    ----------
    entries, wanted
        The entries, and what is made of them.
    begins, ends
        int64 ``(n,)``, of the rows.
    """

    def __init__(self, entries: Entries, wanted: Wanted, begins: IntArray, ends: IntArray) -> None:
        columns, scaling, values = entries.columns, wanted.scaling, entries.values
        self._kept = entries, wanted, begins, ends
        self.slots: IntArray = np.zeros(s.SIZE, np.int64)
        job = self.slots
        job[s.ROWS] = len(begins)
        job[s.BEGINS], job[s.ENDS] = address(begins), address(ends)
        job[s.INDICES], job[s.INDEX_BYTES] = address(entries.indices), entries.indices.dtype.itemsize
        job[s.VALUES], job[s.ITEMSIZE] = address(values), values.dtype.itemsize
        kind = "u" if wanted.dtype.kind == "i" else wanted.dtype.kind
        job[s.KIND], job[s.RESULT_ITEMSIZE] = s.KINDS.index(f"{kind}{wanted.dtype.itemsize}"), wanted.dtype.itemsize
        if scaling:
            job[s.TO_F8] = number_of(values.dtype, np.dtype(np.float64))
            job[s.FROM_F8] = number_of(np.dtype(np.float64), wanted.dtype)
            job[s.SCALING] = (scaling.total is not None) * s.NORMALIZE | scaling.log1p * s.LOG1P
            job[s.TOTAL : s.TOTAL + 1].view(np.float64)[0] = 0.0 if scaling.total is None else scaling.total
        else:
            job[s.CONVERSION] = number_of(values.dtype, wanted.dtype)
        if columns is not None:
            job[s.CHOSEN_OFFSETS], job[s.CHOSEN] = address(columns.offsets), address(columns.places)

    def run(self, name: str, items: int) -> None:
        """Run a kernel, in as many threads as this number of items is worth."""
        rows = int(self.slots[s.ROWS])
        if not rows:
            return
        work = kernels.entry("sparse", name)
        workers = max(1, min(pool.thread_count(), rows, items // _WORKER_ITEMS))
        turns = min(rows, 1 if workers == 1 else _TURNS * workers)
        per_turn = -(-rows // turns)
        turns = -(-rows // per_turn)
        shared = np.zeros(3, np.int64)
        self.slots[s.SHARED], self.slots[s.TURNS], self.slots[s.PER_TURN] = address(shared), turns, per_turn
        kernels.run(work, address(self.slots), shared, turns, workers)
        if shared[2]:
            raise MemoryError(
                f"rows whose indices do not ascend (in CSC, columns) are added up in 8 bytes for each of their "
                f"{self.slots[s.INDEXED]} elements"
            )
