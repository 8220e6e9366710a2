"""Fills the page-locked memory of a wave with encoded chunks, and lists their frames.

``gzarr_kernels.stage`` reads files, verifies them and divides them into frames, in native threads. For other stores,
threads fetch batches of values, which are then processed the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.operations import ALGORITHMS, OPERATIONS
from gzarr_kernels.slots import frames as f
from gzarr_kernels.slots import read as r
from gzarr_kernels.slots import stage as s

from ...guarded import Lock
from .. import kernels, pool
from ..access.files import Places
from ..access.requests import BUDGET_BYTES
from ..job_slots import JobSlots
from ..kernels import FILE_FLAGS, address
from ..monitor import spent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..access.access import ReadRequest

    IntArray = npt.NDArray[np.int64]

# States of a staged chunk (``gzarr_kernels.stage``). READY: in staging memory. ABSENT: not in the store. DEFERRED: did
# not fit, left for the next wave. FALLBACK: unsuitable for the device, or faulty; the CPU engine decodes it, or reports
# the error.
READY: Final = 0
ABSENT: Final = 1
DEFERRED: Final = 2
FALLBACK: Final = 3

#: Alignment in bytes of frames after the usual header, for algorithms that require alignment.
_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """Format of an encoded chunk.

    Attributes
    ----------
    compressor
        Name of an operation in ``gzarr_kernels.operations``, or None for uncompressed bytes.
    algorithm
        Algorithm of its frames, a name in ``gzarr_kernels.operations.ALGORITHMS``; None for uncompressed bytes.
    checksums
        Number of crc32c checksums that follow, each of everything before it.
    nbytes
        Decoded bytes.
    """

    compressor: str | None
    algorithm: str | None
    checksums: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """Staged chunks of a wave, one row per chunk.

    Attributes
    ----------
    rows
        int64 ``(n,)``, rows of the plan.
    state
        int64 ``(n,)``: READY, ABSENT, DEFERRED or FALLBACK.
    typesize, blocksize
        int64 ``(n,)``, layout of the decoded chunk, in bytes: typesize 1 means plain bytes, a greater one planes in
        each block.
    bits
        bool ``(n,)``, whether the planes are bit planes, not byte planes.
    direct
        int64 ``(n,)``, offset in staging memory of a chunk that needs no decoding; else -1.
    used
        Bytes of staging memory in use.
    """

    rows: IntArray
    state: IntArray
    typesize: IntArray
    blocksize: IntArray
    bits: npt.NDArray[np.bool_]
    direct: IntArray
    used: int


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Frames of a wave, one row per frame; all int64 ``(f,)``.

    Attributes
    ----------
    chunk
        Row of :class:`Staged`.
    algorithm
        Code in ``gzarr_kernels.frames``: RAW, LZ4, ZSTD, SNAPPY, DEFLATE or GDEFLATE.
    source, source_nbytes
        Offset and bytes of the frame in staging memory.
    target, target_nbytes
        Offset and bytes of its content in the decoded chunk.
    check, expected
        Kind (0: none) and value of the checksum of the frame's decoded bytes.
    """

    chunk: IntArray
    algorithm: IntArray
    source: IntArray
    source_nbytes: IntArray
    target: IntArray
    target_nbytes: IntArray
    check: IntArray
    expected: IntArray


NO_FRAMES: Final = Frames(*(np.zeros(0, np.int64) for _ in range(8)))


class Staging:
    """Stages the chunks of one read.

    Parameters
    ----------
    request
        The read.
    form
        Format of its chunks.
    verify
        Whether the host decodes each frame first, which takes memory for one decoded frame per thread. A chunk with a
        frame that does not decode becomes FALLBACK, and so does every chunk whose algorithm the native loop cannot
        decode.
    """

    def __init__(self, request: ReadRequest, form: FrameFormat, *, verify: bool = False) -> None:
        # First, since it tells users that compiling takes a while.
        kernels.load()
        self._request = request
        self._cancelled = False
        # Of the call of :meth:`stage` in progress: bytes and frames in use.
        self._shared: IntArray = np.zeros(2, np.int64)
        self._slots = JobSlots(np.zeros(s.JOB_SIZE, np.int64))
        self._job = job = self._slots.array
        job[r.MOST_ENCODED] = request.most_encoded
        job[r.OPEN_FLAGS : r.FOLDER_FLAGS + 1] = FILE_FLAGS
        job[s.CUT] = kernels.operation(form.compressor, "frames") if form.compressor is not None else 0
        job[s.CHECKSUMS] = form.checksums
        job[s.EXPECTED] = form.nbytes
        job[s.VERIFY] = verify
        if verify and form.algorithm is not None:
            job[s.VERIFIES] = kernels.operation(form.algorithm, "verifies")
        job[s.LEAD] = _lead(form)
        self._places = Places(self._slots, request, join=False)

    def stage(
        self, rows: IntArray, staging: npt.NDArray[np.uint8], capacity: int, most_frames: int
    ) -> tuple[Staged, Frames]:
        """Read chunks into staging memory and divide them into frames.

        Parameters
        ----------
        rows
            int64, rows of the plan.
        staging
            Memory for encoded chunks, aligned to 64 bytes.
        capacity
            Most bytes of it to use.
        most_frames
            Most frames to list. A single chunk with more frames is left to the CPU engine.

        Returns
        -------
        staged
            The chunks, in the order in which they were read. If there are any, at least one is not DEFERRED.
        frames
            Frames of the READY chunks, in any order. The frames of a chunk cover it without overlapping.

        Raises
        ------
        ChunkError
            If a store other than local files fails. All other faults are left to the CPU engine.
        """
        if self._places.in_memory or self._places.in_ranges:
            # Neighbours in a file are mostly read by one thread, in order.
            rows = self._request.sources.in_order(rows)
        rows = np.ascontiguousarray(rows)
        outcomes = np.zeros((len(rows), s.RESULTS), np.int64)
        outcomes[:, s.STATE] = FALLBACK
        columns = np.zeros((f.COLUMNS, max(most_frames, 1)), np.int64)
        shared = self._shared = np.zeros(2, np.int64)
        job = self._job.copy()
        job[r.SHARED] = address(shared)
        job[s.STAGING], job[s.CAPACITY] = address(staging), min(capacity, staging.size)
        job[s.OUTCOMES] = address(outcomes)
        job[s.FRAMES], job[s.MOST_FRAMES] = address(columns), most_frames
        if self._places.in_memory:
            rows = self._from_store(job, rows, outcomes[:, s.STATE], shared)
        else:
            turns = np.zeros(1, np.int64)
            job[r.CHUNK_ROWS], job[r.SPANS], job[s.NEXT] = address(rows), len(rows), address(turns)

            def read_files(_: int) -> None:
                with spent(self._request.monitor, "store"):
                    _run(job)

            pool.run(read_files, min(pool.thread_count(), len(rows)))
        taken = columns[:, : min(int(shared[1]), most_frames)]
        state = outcomes[:, s.STATE]
        # Frames may also belong to chunks that did not fit, or turned out to be for the CPU.
        mine = taken[f.CHUNK] >= 0
        mine &= state[np.maximum(taken[f.CHUNK], 0)] == READY
        ends = outcomes[:, s.END]
        return (
            Staged(
                rows=rows,
                state=state.copy(),
                typesize=outcomes[:, s.TYPESIZE].copy(),
                blocksize=outcomes[:, s.BLOCKSIZE].copy(),
                bits=outcomes[:, s.BITS] != 0,
                direct=np.where(state == READY, outcomes[:, s.DIRECT], -1),
                used=int(ends.max()) if len(ends) else 0,
            ),
            Frames(*(column[mine] for column in taken)),
        )

    def cancel(self) -> None:
        """Have the call in progress, in another thread, end soon, with any result; there will be no others."""
        self._cancelled = True
        # A full wave has no room for chunks that are not read yet.
        self._shared[:] = 1 << 62

    def _from_store(self, job: IntArray, rows: IntArray, state: IntArray, shared: IntArray) -> IntArray:
        """Fetch and stage in batches, which bounds the memory for fetched values; return rows in the order of staging.

        Chunks that were not fetched, since there was no room left, come last and are DEFERRED.
        """
        request = self._request
        workers = max(1, min(pool.thread_count(), len(rows)))
        capacity, most_frames = int(job[s.CAPACITY]), int(job[s.MOST_FRAMES])
        order, lock, staged = np.empty_like(rows), Lock(), 0

        def stage_values(batch: IntArray, values: Sequence[Any]) -> bool:
            nonlocal staged
            with lock:
                begin = staged
                staged += len(batch)
            batch = np.ascontiguousarray(batch)
            order[begin : begin + len(batch)] = batch
            alive = self._places.put(batch, values)
            part = job.copy()
            turns = np.zeros(1, np.int64)
            part[r.CHUNK_ROWS], part[r.SPANS] = address(batch), len(batch)
            part[s.NEXT], part[s.FIRST] = address(turns), begin
            with spent(request.monitor, "decoder"):
                _run(part)
            del alive
            return not self._cancelled and not (0 < capacity <= shared[0] or 0 < most_frames <= shared[1])

        budget = min(BUDGET_BYTES, max(capacity, 1))
        request.access.each(request, rows, workers, stage_values, budget_bytes=budget)
        order[staged:] = rows[~np.isin(rows, order[:staged])]
        state[staged:] = DEFERRED
        return order


def _lead(form: FrameFormat) -> int:
    """Return how many bytes to leave free before a chunk, so that its frame is aligned."""
    if form.compressor is None or form.algorithm is None or ALGORITHMS[form.algorithm].alignment == 1:
        return 0
    return -OPERATIONS[form.compressor].container.header_nbytes % _ALIGNMENT


def _run(job: IntArray) -> None:
    stage = kernels.entry("stage", "stage")
    worker = kernels.take_worker()
    try:
        stage(address(job), worker.context_address, worker.scratch_address)
    finally:
        kernels.give_worker_back(worker)
