"""The short way for small reads of local files: a job that is prepared once and only filled with numbers.

A read of one chunk spends its time in Python, so here is as little of it as can be: plain integers, one NumPy
assignment, one call of the compiled loop in the caller's own thread. Whatever goes wrong is left to the long way, which
says what it was.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..kernels import address

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding
    from ...plan.planner import Term
    from .native_program import NativeProgram

#: Decoded bytes of the chunks of a small read, at most: more is worth a second thread.
SMALL_BYTES = 256 << 10
_KEEP = 8
#: How chunk files are opened. Without O_NONBLOCK, a named pipe that someone put into a store would be waited for for
#: ever.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class SmallReads:
    """Small reads of one array.

    Parameters
    ----------
    program
        Of a chunk.
    path_prefix
        Path of a chunk's file up to its first coordinate.
    encoding
        How the coordinates are joined.
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
        # Jobs that no read is using, by number of chunks; taking one is a single step, so threads never share one.
        self._jobs: dict[int, deque[tuple[npt.NDArray[np.int64], int, int]]] = {}

    def read(self, rows: list[tuple[Term, ...]], step: tuple[int, ...], view: npt.NDArray[Any], *, fill: bool) -> bool:
        """Read whole elements of some chunks; return whether all went well.

        Parameters
        ----------
        rows
            From :func:`gzarr.plan.planner.box_chunks`.
        step
            In the chunks, one a dimension.
        view
            Output with the array's dimensions.
        fill
            Whether absent chunks are filled; they are a failure otherwise.
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
        """Return the arena of a job of ``n`` chunks with all that stays, the job's address, and where the fill's is."""
        from gzarr_kernels import geometry as g
        from gzarr_kernels import read as r

        k = self._ndim
        program = self._program
        # What changes comes first, so that one assignment fills it; the order is that of ``read``.
        status = 2
        base = status + 2 * n
        strides = base + 1
        step = strides + k
        start = step + k
        count = start + n * k
        target = count + n * k
        grid = target + n * k
        output = grid + n * k
        offsets = output + n
        tables = offsets + n + 1
        geometry = tables + 2 * k
        job = geometry + g.SIZE
        arena = np.zeros(job + r.JOB_SIZE, np.int64)
        at = address(arena)
        arena[offsets : offsets + n + 1] = range(n + 1)
        for slot, value in {
            g.K: k,
            g.ITEMSIZE: program.itemsize,
            g.SWAP: program.swap,
            g.START: at + 8 * start,
            g.COUNT: at + 8 * count,
            g.TARGET: at + 8 * target,
            g.OUTPUT: at + 8 * output,
            g.STEP: at + 8 * step,
            g.SOURCE_STRIDES: address(program.strides),
            g.BASES: at + 8 * base,
            g.TARGET_STRIDES: at + 8 * strides,
            g.TABLE_SOURCE: at + 8 * tables,
            g.TABLE_TARGET: at + 8 * (tables + k),
            g.ORDER: address(program.order),
            g.CHUNK_SHAPE: address(program.shape),
        }.items():
            arena[geometry + slot] = value
        for slot, value in {
            r.MODE: r.MODE_FILES,
            r.SHARED: at,
            r.SPANS: n,
            r.PATHS: address(self._prefix),
            r.PREFIX_NBYTES: len(self._prefix),
            r.GRID: at + 8 * grid,
            r.COORDINATES: k,
            r.SEPARATOR: self._separator,
            r.PROGRAM: address(program.words),
            r.OPERATIONS: program.operations,
            r.CHUNK_NBYTES: program.chunk_nbytes,
            r.MOST_ENCODED: self._most_encoded,
            r.PIECE_OFFSETS: at + 8 * offsets,
            r.GEOMETRY: at + 8 * geometry,
            r.STATUS: at + 8 * status,
            r.ZERO_STRIDES: address(program.zeros),
            r.OPEN_FLAGS: OPEN_FLAGS,
        }.items():
            arena[job + slot] = value
        return arena, at + 8 * job, job + r.FILL
