"""The fast path for small reads of local files: a job is prepared once, and each read only fills in its numbers.

A read of one chunk spends most of its time in Python, so there is as little Python here as possible: plain integers,
one NumPy assignment, one call of the compiled loop in the caller's thread. After a failure, the caller reads again on
the normal path, which reports the error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.slots import geometry as g
from gzarr_kernels.slots import read as r

from .. import kernels
from ..kernels import address
from .job_slots import ReadSlots

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding
    from ...plan.planner import Term
    from .native_program import NativeProgram

#: Most decoded bytes of the chunks of a small read; more are worth a second thread.
SMALL_BYTES = 256 << 10
#: Most idle jobs kept, for each number of chunks.
_KEEP = 8


class SmallReads:
    """Small reads of one array.

    Parameters
    ----------
    program
        Decoding program of a chunk.
    path_prefix
        Path of a chunk's file up to its first coordinate.
    encoding
        Chunk key encoding, which gives the separator of the coordinates.
    ndim
        Number of dimensions, at least 1.
    most_encoded
        As in :class:`gzarr.engines.request.ReadRequest`.
    """

    def __init__(
        self, program: NativeProgram, path_prefix: bytes, encoding: ChunkKeyEncoding, ndim: int, most_encoded: int
    ) -> None:
        self._program = program
        self._most_encoded = most_encoded
        self._prefix = np.frombuffer(path_prefix, np.uint8)
        self._separator = ord(encoding.separator)
        self._ndim = ndim
        self._fill = address(program.fill)
        # Idle jobs by number of chunks. Popping one is atomic, so threads never share a job.
        self._jobs: dict[int, deque[tuple[npt.NDArray[np.int64], int, int]]] = {}

    def read(self, rows: list[tuple[Term, ...]], step: tuple[int, ...], view: npt.NDArray[Any], *, fill: bool) -> bool:
        """Read whole elements of some chunks; return whether that succeeded.

        Parameters
        ----------
        rows
            The chunks, from :func:`gzarr.plan.planner.box_chunks`.
        step
            Step in the chunks along each dimension, in elements.
        view
            Output, with as many dimensions as the array.
        fill
            Whether absent chunks are filled; otherwise they are failures.
        """
        n = len(rows)
        jobs = self._jobs.setdefault(n, deque())
        try:
            arena, job, fill_slot = prepared = jobs.pop()
        except IndexError:
            arena, job, fill_slot = prepared = self._prepare(n)
        numbers = [0, 0, *([0, 0] * n), address(view), *view.strides, *step]
        for i in (1, 2, 3, 0):
            numbers += [term[i] for row in rows for term in row]
        try:
            arena[: len(numbers)] = numbers
            arena[fill_slot] = self._fill if fill else 0
        except OverflowError:
            return False
        work = kernels.load()
        worker = kernels.take_worker()
        try:
            work(job, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker, small=True)
        codes = arena[2 : 2 + 2 * n : 2].tolist()
        if len(jobs) < _KEEP:
            jobs.append(prepared)
        # 0 is success, 1 an absent chunk.
        worst: int = max(codes)
        return worst <= (1 if fill else 0)

    def _prepare(self, n: int) -> tuple[npt.NDArray[np.int64], int, int]:
        """Return the arena of a job of ``n`` chunks, the job's address, and the position of its fill slot.

        The arena holds the job and its columns. The columns that differ between reads come first, in the order of
        :meth:`read`, so that one assignment fills them.
        """
        k = self._ndim
        program = self._program
        sizes = (2, 2 * n, 1, k, k, n * k, n * k, n * k, n * k, n, n + 1, 2 * k, g.SIZE, r.JOB_SIZE)
        arena = np.zeros(sum(sizes), np.int64)
        shared, status, base, strides, step, start, count, target, grid, output, offsets, tables, geometry, job = (
            np.split(arena, np.cumsum(sizes[:-1]))
        )
        offsets[:] = range(n + 1)
        slots = ReadSlots(job)
        slots.set_rows(n, shared)
        slots.set_files(self._prefix, grid, k, self._separator)
        slots.set_program(program.words, program.operations, program.chunk_nbytes)
        slots.set_read(status, self._most_encoded, 0, program.zeros)
        slots.geometry(
            geometry,
            k=k,
            itemsize=program.itemsize,
            swap=program.swap,
            start=start,
            count=count,
            target=target,
            output=output,
            step=step,
            chunk_shape=program.shape,
            chunk_strides=program.strides,
            order=program.order,
            bases=base,
            strides=strides,
            tables=tables,
        )
        slots.set_pieces(offsets, geometry)
        return arena, slots.address, arena.size - r.JOB_SIZE + r.FILL
