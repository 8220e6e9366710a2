"""A write as a job of the compiled loop, with the arrays that the job points to."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.operations import OPERATIONS
from gzarr_kernels.slots import encode
from gzarr_kernels.slots import write as w

from ...plan.keys import ChunkKeys
from .. import kernels, pool
from ..access.files import set_chunk_files
from ..job_slots import PlacedMemory, WriteSlots, elements_of, placed_pieces
from ..kernels import address

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...plan.encode_program import EncodingProgram
    from ...stores.base import FileWriter
    from ..write_request import WriteRequest
    from .old_content import OldContent

    IntArray = npt.NDArray[np.int64]

#: Larger uncompressed chunks are gathered and written in slabs of about ``_SLAB_BYTES``, which stay in the cache.
_LEAST_SLABS_BYTES = 1 << 20
_SLAB_BYTES = 256 << 10
#: Number of files that are open, with chunks being encoded, at the same time: per worker, and at most.
_FILES_PER_WORKER = 2
_MOST_FILES = 64


class Job:
    """The job of a write, without a target: :meth:`for_files` or :func:`encode_in_memory` adds one.

    Parameters
    ----------
    request, program, rows
        As for :func:`gzarr.engines.cpu.native_write.write`.
    old
        Old content of the rows, which then include those whose bytes are kept; None if no old content matters.

    Attributes
    ----------
    slots
        The job; keeps alive the arrays to which it has addresses.
    rows
        int64 ``(n,)``, planned chunks, grouped by stored value, in the order of the shard's index.
    value
        int64 ``(n,)``, stored value of each row.
    slot
        int64 ``(n,)``, entry of each row in its shard's index.
    values
        int64 ``(values,)``, number of each stored value in the request.
    keys
        Keys of the stored values.
    first
        int64 ``(values + 1,)``, first row of each stored value.
    """

    def __init__(
        self, request: WriteRequest, program: EncodingProgram, rows: IntArray, old: OldContent | None = None
    ) -> None:
        if old is not None:
            slot = old.slot
        elif request.shard is not None:
            slot = request.shard.entries(request.plan.chunks[rows])
        else:
            slot = np.zeros(len(rows), np.int64)
        order = np.lexsort((slot, request.value_of[rows]))
        self.rows: IntArray = np.ascontiguousarray(rows[order], np.int64)
        self.slot: IntArray = slot[order]
        which = request.value_of[self.rows]
        starts = np.flatnonzero(np.diff(which, prepend=np.int64(-1)))
        self.first: IntArray = np.append(starts, len(rows))
        self.value: IntArray = np.repeat(np.arange(len(starts)), np.diff(self.first))
        self.values: IntArray = which[starts]
        keys = request.keys
        self.keys: ChunkKeys = ChunkKeys(keys.encoding, keys.prefix, np.ascontiguousarray(keys.chunks[self.values]))
        self._old = None if old is None else old.of(order, self.values)
        plan, chunk = request.plan, request.chunk
        self._program = program
        # The job has their addresses.
        self._inputs = request.inputs
        self.slots: WriteSlots = WriteSlots()
        slots = self.slots
        slots.set_program(encoding_words(program), len(program.steps), chunk.nbytes)
        slots.set_pieces(plan.piece_offsets, self._geometry(request, program))
        slots.set_write(
            *stored_fill(chunk.dtype, request.fill_value, program.swap),
            skip_fill=not request.write_empty_chunks,
            direct=not program.swap,
        )

    def _geometry(self, request: WriteRequest, program: EncodingProgram) -> IntArray:
        plan, inputs = request.plan, request.inputs
        pieces = placed_pieces(plan)
        strides = [stride for array in inputs for stride in (array.strides or (0,))]
        return self.slots.geometry(
            pieces,
            elements_of(request.chunk, program),
            PlacedMemory(
                np.array([address(array) for array in inputs], np.int64),
                np.array(strides, np.int64),
                np.zeros((2, len(pieces.step)), np.int64),
            ),
        )

    def for_files(self, request: WriteRequest, writer: FileWriter) -> tuple[IntArray, IntArray]:
        """Complete the job so that the loop itself writes the files of a local store.

        Returns
        -------
        state
            int64 ``(values, STATE_SIZE)``, state of each stored value.
        shared
            int64 ``(2,)``: rows taken, and whether one has failed.
        """
        slots, keys = self.slots, self.keys
        values = len(keys)
        counts = np.diff(self.first)
        shared = np.zeros(2, np.int64)
        state = np.zeros((values, w.STATE_SIZE), np.int64)
        state[:, w.COUNT] = counts
        state[:, w.DESCRIPTOR] = -1
        state[:, w.CODE] = w.PENDING
        turn = np.arange(len(self.rows)) - np.repeat(self.first[:-1], counts)
        # Chunks of a file are written in their turns. The chunks of several files are taken alternately, so that a
        # worker seldom waits for the worker that has the previous chunk.
        together = min(_FILES_PER_WORKER * pool.thread_count(), _MOST_FILES)
        taken = np.lexsort((self.value, turn, self.value // together))
        slots.set_rows(len(self.rows), shared, self.rows[taken])
        slots.set_values(state, self.value[taken], turn[taken], self.slot[taken])
        if self._old is not None:
            self._old.of(taken).set(slots)
        set_chunk_files(slots, writer.root, keys)
        shard = request.shard
        slab = 0 if shard is not None else planes_of_slab(self._program, request.chunk.nbytes)
        temporary = np.frombuffer(os.fsencode(writer.temporary_prefix()), np.uint8)
        slots.set_temporary_files(temporary, secrets.randbits(62), durable=writer.durable, slab=slab)
        if shard is not None:
            slots.set_shards(shard.empty_index(values), checksum=shard.checksum, at_start=shard.at_start)
            if shard.at_start:
                state[:, w.OFFSET] = shard.index_nbytes
        return state, shared


def stored_fill(
    dtype: np.dtype[Any], fill_value: Any, swap: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the bytes of the fill value (zero if that is None) in native and in stored byte order."""
    element = np.zeros(1, dtype)
    if fill_value is not None:
        element[0] = fill_value
    fill = element.view(np.uint8)
    return fill, fill.reshape(-1, max(swap, 1))[:, ::-1].reshape(-1)


def planes_of_slab(program: EncodingProgram, chunk_nbytes: int) -> int:
    """Return how many indices of the slowest dimension of a chunk in a file are written at a time; 0 for all."""
    if program.steps or chunk_nbytes <= _LEAST_SLABS_BYTES:
        return 0
    return max(1, _SLAB_BYTES // max(program.strides, default=1))


def encoding_words(program: EncodingProgram) -> IntArray:
    """Return the operations as ``gzarr_kernels.encode`` reads them."""
    words = np.zeros((max(len(program.steps), 1), encode.WORDS), np.int64)
    for row, step in zip(words, program.steps, strict=False):
        nbytes = encode.IN_PLACE if OPERATIONS[step.name].in_place else step.most_nbytes
        row[:2] = kernels.operation(step.name, "encode"), nbytes
        row[2 : 2 + len(step.parameters)] = step.parameters
        row[-1] = step.way
    return words


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Chunks encoded in memory.

    Attributes
    ----------
    arena
        uint8; chunk ``i`` begins at byte ``i * program.most_nbytes``.
    nbytes
        int64 ``(n,)``, encoded size of each chunk in bytes; -1 for a chunk that holds only the fill value.
    failure
        int64 ``(3,)``, status, detail and planned chunk of the failure; None if there is none.
    """

    arena: npt.NDArray[np.uint8]
    nbytes: IntArray
    failure: IntArray | None


def encode_in_memory(job: Job, program: EncodingProgram, rows: IntArray, workers: int) -> Encoded:
    """Encode some rows of a job in up to ``workers`` threads; the job is not changed."""
    n = len(rows)
    arena = np.empty(n * program.most_nbytes, np.uint8)
    nbytes, shared = np.zeros(n, np.int64), np.zeros(2, np.int64)
    state = np.zeros(w.STATE_SIZE, np.int64)
    slots = job.slots.copy()
    slots.set_rows(n, shared, job.rows[rows])
    slots.set_memory(address(arena) + program.most_nbytes * np.arange(n), nbytes)
    # One value for all rows: only its failure is of interest.
    slots.set_values(state, np.zeros(n, np.int64))
    kernels.run(kernels.entry("write", "work"), slots.address, shared, n, workers)
    return Encoded(arena, nbytes, state[[w.CODE, w.DETAIL, w.CHUNK]] if shared[1] else None)
