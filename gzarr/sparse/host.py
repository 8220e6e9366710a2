"""Entries in host memory: compiled kernels choose columns and make rows dense, SciPy has the matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import sparse as s

from ..engines import kernels, pool
from ..engines.kernels import address
from ..errors import ArgumentError
from ..installing import COMMANDS
from .entries import Entries, joined_offsets, narrow_offsets

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt

    from .chosen import Columns
    from .entries import DenseTarget

#: A thread more for each so many entries or elements.
_WORKER_ITEMS: Final = 1 << 16
#: Turns of each thread, so that rows of different lengths are shared evenly.
_TURNS: Final = 8


class HostMemory:
    """Entries in NumPy's arrays."""

    def narrowed(self, indices: npt.NDArray[Any], columns: int) -> npt.NDArray[np.int32]:
        """Return indices as int32."""
        if indices.dtype == np.int32:
            return indices
        result: npt.NDArray[np.int32] = indices.astype(np.int32)
        if indices.dtype.itemsize > 4 and len(indices):
            wide = indices.view(np.uint64)
            if wide.max() >= columns:
                result[wide >= columns] = -1
        return result

    def first_wrong(self, entries: Entries, columns: int) -> int:
        """Return the place of the first index that is no column, or -1."""
        # A negative number is a large one without its sign.
        unsigned = entries.indices.view(np.uint32)
        if not len(unsigned) or unsigned.max() < columns:
            return -1
        return int(np.argmax(unsigned >= columns))

    def taken(self, entries: Entries, columns: Columns) -> Entries:
        """Return the entries in some columns."""
        offsets = np.zeros(entries.rows + 1, np.int64)
        job = _job(entries, columns)
        job[s.NEW_OFFSETS] = address(offsets)
        _run("count", job, len(entries.values))
        np.cumsum(offsets, out=offsets)
        indices = np.empty(int(offsets[-1]), np.int32)
        values = np.empty(len(indices), entries.values.dtype)
        job[s.NEW_INDICES], job[s.NEW_VALUES] = address(indices), address(values)
        _run("take", job, len(entries.values))
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

    def densify(self, entries: Entries, columns: Columns | None, target: DenseTarget) -> None:
        """Write rows to dense arrays."""
        if not target.width:
            return
        job = _job(entries, columns)
        job[s.TARGETS] = address(target.addresses)
        job[s.COLUMN_STRIDE], job[s.COLUMNS] = target.stride, target.width
        dtype = entries.values.dtype
        kind = "u" if dtype.kind == "i" else dtype.kind
        job[s.KIND] = s.KINDS.index(f"{kind}{dtype.itemsize}")
        _run("densify", job, target.width * entries.rows)

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


def _job(entries: Entries, columns: Columns | None) -> npt.NDArray[np.int64]:
    job = np.zeros(s.SIZE, np.int64)
    job[s.ROWS] = entries.rows
    job[s.OFFSETS], job[s.INDICES] = address(entries.offsets), address(entries.indices)
    job[s.VALUES], job[s.ITEMSIZE] = address(entries.values), entries.values.dtype.itemsize
    if columns is not None:
        job[s.CHOSEN_OFFSETS], job[s.CHOSEN] = address(columns.offsets), address(columns.places)
    return job


def _run(name: str, job: npt.NDArray[np.int64], items: int) -> None:
    """Run a kernel, in as many threads as so many items are worth."""
    rows = int(job[s.ROWS])
    if not rows:
        return
    work = kernels.entry("sparse", name)
    workers = max(1, min(pool.thread_count(), rows, items // _WORKER_ITEMS))
    turns = min(rows, 1 if workers == 1 else _TURNS * workers)
    per_turn = -(-rows // turns)
    turns = -(-rows // per_turn)
    shared = np.zeros(2, np.int64)
    job[s.SHARED], job[s.TURNS], job[s.PER_TURN] = address(shared), turns, per_turn
    kernels.run(work, address(job), shared, turns, workers)
