"""A write as the compiled loop takes it: columns, and everything behind their addresses."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...codecs.sharding import EMPTY
from ...plan.keys import ChunkKeys, file_prefix
from .. import kernels, pool
from ..kernels import address
from .write_threads import inner_index

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...plan.encode_program import EncodingProgram
    from ...stores.base import FileWriter
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: Uncompressed chunks above this are gathered and written in parts of about so many bytes, which stay in the cache.
_LEAST_SLABS_BYTES = 1 << 20
_SLAB_BYTES = 256 << 10
#: Of how many files at once chunks are encoded: for each worker, and at most; they are open.
_FILES_A_WORKER = 2
_MOST_FILES = 64
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True, eq=False)
class FileJob:
    """A job whose values are files.

    Attributes
    ----------
    job
        int64, the slots of ``gzarr_kernels.write``.
    state
        int64 ``(values, STATE_SIZE)``, what has become of each.
    shared
        int64 ``(2,)``: rows taken, and whether one has failed.
    """

    job: IntArray
    state: IntArray
    shared: IntArray


class Job:
    """What files and other stores have in common; everything that compiled code has an address of is kept alive here.

    Parameters
    ----------
    request, program, rows
        As of :func:`gzarr.engines.native_write.write`.

    Attributes
    ----------
    job
        int64, the slots of ``gzarr_kernels.write``.
    rows
        int64 ``(n,)``, planned chunks, those of a stored value together and in the order of its index.
    value
        int64 ``(n,)``, which of the stored values each is in.
    slot
        int64 ``(n,)``, which entry of the index of its shard each has.
    keys
        Of the stored values.
    first
        int64 ``(values + 1,)``, the first row of each stored value.
    """

    def __init__(self, request: WriteRequest, program: EncodingProgram, rows: IntArray) -> None:
        from gzarr_kernels import read as r
        from gzarr_kernels import write as w

        slot = inner_index(request, rows) if request.levels else np.zeros(len(rows), np.int64)
        order = np.lexsort((slot, request.value_of[rows]))
        self._keep: list[Any] = []
        self.rows = np.ascontiguousarray(rows[order], np.int64)
        self.slot = slot[order]
        which = request.value_of[self.rows]
        starts = np.flatnonzero(np.diff(which, prepend=np.int64(-1)))
        self.first = np.append(starts, len(rows))
        self.value = np.repeat(np.arange(len(starts)), np.diff(self.first))
        keys = request.keys
        self.keys = ChunkKeys(keys.encoding, keys.prefix, np.ascontiguousarray(keys.chunks[which[starts]]))
        plan, chunk = request.plan, request.chunk
        element = np.zeros(1, chunk.dtype)
        if request.fill_value is not None:
            element[0] = request.fill_value
        fill = element.view(np.uint8)
        # Bytes of an index of the slowest dimension.
        self._plane_nbytes = max(program.strides, default=1)
        self.job = job = np.zeros(w.JOB_SIZE, np.int64)
        job[r.PROGRAM] = self._address(_words(program))
        job[r.OPERATIONS] = len(program.steps)
        job[r.CHUNK_NBYTES] = chunk.nbytes
        job[r.PIECE_OFFSETS] = self._address(plan.piece_offsets)
        job[r.GEOMETRY] = self._geometry(request, program)
        job[r.FILL] = self._address(fill)
        job[w.SKIP_FILL] = not request.write_empty_chunks
        width = max(program.swap, 1)
        job[w.STORED_FILL] = self._address(fill.reshape(-1, width)[:, ::-1].reshape(-1))
        job[w.DIRECT] = not program.swap

    def _address(self, array: npt.NDArray[Any]) -> int:
        """Return the address of an array that compiled code reads or writes whole; keep it alive."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._keep.append(array)
        return address(array)

    def _geometry(self, request: WriteRequest, program: EncodingProgram) -> int:
        from gzarr_kernels import geometry as g

        plan, inputs = request.plan, request.inputs
        k = max(plan.chunks.shape[1], 1)
        # The single element of an array without dimensions is one along one.
        scalar = plan.chunks.shape[1] == 0
        pieces = (len(plan.start), 1) if scalar else plan.start.shape
        zeros, ones = np.zeros(pieces, np.int64), np.ones(pieces, np.int64)
        geometry = np.zeros(g.SIZE, np.int64)
        geometry[g.K] = k
        geometry[g.ITEMSIZE] = request.chunk.dtype.itemsize
        geometry[g.SWAP] = program.swap
        geometry[g.START] = self._address(zeros if scalar else plan.start)
        geometry[g.COUNT] = self._address(ones if scalar else plan.count)
        geometry[g.TARGET] = self._address(zeros if scalar else plan.target)
        geometry[g.OUTPUT] = self._address(plan.output)
        geometry[g.STEP] = self._address(np.ones(k, np.int64) if scalar else plan.step)
        geometry[g.SOURCE_STRIDES] = self._address(np.array(program.strides or (0,), np.int64))
        geometry[g.BASES] = self._address(np.array([address(array) for array in inputs], np.int64))
        strides = [stride for array in inputs for stride in (array.strides or (0,))]
        geometry[g.TARGET_STRIDES] = self._address(np.array(strides, np.int64))
        geometry[g.TABLE_SOURCE] = geometry[g.TABLE_TARGET] = self._address(np.zeros(k, np.int64))
        geometry[g.ORDER] = self._address(np.array(program.order or (0,), np.int64))
        geometry[g.CHUNK_SHAPE] = self._address(np.array(request.chunk.shape or (1,), np.int64))
        self._keep.append(inputs)
        return self._address(geometry)

    def for_files(self, request: WriteRequest, writer: FileWriter) -> FileJob:
        """Complete the job for the loop to write files of a store. It lives as long as this."""
        from gzarr_kernels import read as r
        from gzarr_kernels import write as w

        job, keys = self.job, self.keys
        values, k = keys.chunks.shape
        counts = np.diff(self.first)
        shared = np.zeros(2, np.int64)
        state = np.zeros((values, w.STATE_SIZE), np.int64)
        state[:, w.COUNT] = counts
        state[:, w.DESCRIPTOR] = -1
        state[:, w.CODE] = w.PENDING
        prefix = file_prefix(writer.root, keys.prefix, keys.encoding, k)
        temporary = os.fsencode(writer.temporary_prefix())
        job[r.MODE] = r.MODE_FILES
        job[r.SHARED] = self._address(shared)
        job[r.SPANS] = len(self.rows)
        turn = np.arange(len(self.rows)) - np.repeat(self.first[:-1], counts)
        # Chunks of a file are written in their turns. Those of some files are taken alternately, so that a worker
        # seldom waits for the one who has the chunk before.
        together = min(_FILES_A_WORKER * pool.thread_count(), _MOST_FILES)
        taken = np.lexsort((self.value, turn, self.value // together))
        job[r.CHUNK_ROWS] = self._address(self.rows[taken])
        job[r.PATHS] = self._address(np.frombuffer(prefix, np.uint8))
        job[r.PREFIX_NBYTES] = len(prefix)
        job[r.GRID] = self._address(keys.chunks)
        job[r.COORDINATES] = k
        job[r.SEPARATOR] = ord(keys.encoding.separator)
        job[w.VALUE] = self._address(self.value[taken])
        job[w.TURN] = self._address(turn[taken])
        job[w.SLOT] = self._address(self.slot[taken])
        job[w.STATE] = self._address(state)
        job[w.TEMPORARY] = self._address(np.frombuffer(temporary, np.uint8))
        job[w.TEMPORARY_NBYTES] = len(temporary)
        job[w.TOKEN] = secrets.randbits(62)
        job[w.CREATE_FLAGS] = _CREATE_FLAGS
        job[w.DURABLE] = writer.durable
        if not job[r.OPERATIONS] and not request.levels and request.chunk.nbytes > _LEAST_SLABS_BYTES:
            job[w.SLAB] = max(1, _SLAB_BYTES // self._plane_nbytes)
        if request.levels:
            (level,) = request.levels
            stored = level.stored_shape
            entries = int(np.prod(level.codec.chunks_per_shard(stored), dtype=np.int64))
            indexes = np.full((values, entries, 2), EMPTY, np.uint64)
            job[w.INDEXES] = self._address(indexes)
            job[w.ENTRIES] = entries
            job[w.CHECKSUM] = len(level.codec.index_codecs) > 1
            job[w.AT_START] = level.codec.index_location == "start"
            if job[w.AT_START]:
                state[:, w.OFFSET] = level.codec.index_nbytes(stored)
        return FileJob(job, state, shared)


def _words(program: EncodingProgram) -> IntArray:
    """Return the operations as ``gzarr_kernels.encode`` reads them."""
    from gzarr_kernels import encode
    from gzarr_kernels.operations import OPERATIONS

    words = np.zeros((max(len(program.steps), 1), encode.WORDS), np.int64)
    for row, step in zip(words, program.steps, strict=False):
        nbytes = encode.IN_PLACE if OPERATIONS[step.name].in_place else step.most_nbytes
        row[:2] = kernels.operation(step.name, "encode"), nbytes
        row[2 : 2 + len(step.parameters)] = step.parameters
        row[-1] = step.way
    return words


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Chunks that were encoded in memory.

    Attributes
    ----------
    arena
        uint8; the ``i``-th begins at ``i * most_nbytes`` of the program.
    nbytes
        int64 ``(n,)``: encoded bytes of each, -1 for chunks of nothing but the fill value.
    failure
        int64, status, detail and planned chunk of the one that failed; None if there is none.
    """

    arena: npt.NDArray[np.uint8]
    nbytes: IntArray
    failure: IntArray | None


def encode_in_memory(job: Job, program: EncodingProgram, rows: IntArray, workers: int) -> Encoded:
    """Encode some rows of a job, which stays as it is, in some threads."""
    from gzarr_kernels import read as r
    from gzarr_kernels import write as w

    n = len(rows)
    arena = np.empty(n * program.most_nbytes, np.uint8)
    where = address(arena) + program.most_nbytes * np.arange(n)
    nbytes, shared = np.zeros(n, np.int64), np.zeros(2, np.int64)
    chunks, value = np.ascontiguousarray(job.rows[rows]), np.zeros(n, np.int64)
    state = np.zeros(w.STATE_SIZE, np.int64)
    part = job.job.copy()
    part[r.MODE] = r.MODE_MEMORY
    part[r.SHARED] = address(shared)
    part[r.SPANS] = n
    part[r.CHUNK_ROWS] = address(chunks)
    part[r.WHERE] = address(where)
    part[r.NBYTES] = address(nbytes)
    part[w.VALUE] = address(value)
    part[w.STATE] = address(state)
    kernels.run(w.work, address(part), shared, n, workers)
    return Encoded(arena, nbytes, state[[w.CODE, w.DETAIL, w.CHUNK]] if shared[1] else None)
