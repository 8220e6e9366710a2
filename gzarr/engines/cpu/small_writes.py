"""The fast path for writing a few whole chunks to local files: a job is prepared once, and each write fills in numbers.

The counterpart of :mod:`gzarr.engines.cpu.small_reads`. A write of a few chunks would spend most of its time in Python.
If anything is unusual, or a file cannot be written, nothing is reported here: the caller writes again on the normal
path, which reports the error.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from gzarr_kernels.slots import geometry as g
from gzarr_kernels.slots import write as w

from ...plan.keys import file_prefix
from ...reasons import pass_on
from ...stores import locks
from .. import kernels, pool
from ..job_slots import PlacedMemory, PlacedPieces, WriteSlots, elements_of
from ..kernels import address
from .native_write import FEW_BYTES, available
from .write_job import encoding_words, planes_of_slab, stored_fill

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt

    from ...codecs.codec import ArrayRepresentation
    from ...metadata.model import ChunkKeyEncoding
    from ...plan.encode_program import EncodingProgram
    from ...plan.planner import Term
    from ...stores.base import FileWriter
    from ..access.access import Access

    IntArray = npt.NDArray[np.int64]

#: Most bytes of the chunks of a small write.
SMALL_BYTES: Final = 16 << 20
#: Most idle jobs kept, for each number of chunks.
_KEEP: Final = 8

#: The arena of a job, its states of values as a view of it, and the job.
_Prepared: TypeAlias = "tuple[IntArray, IntArray, WriteSlots]"


def small_writes_of(
    program: EncodingProgram,
    chunk: ArrayRepresentation,
    fill_value: Any,
    access: Access,
    prefix: str,
    encoding: ChunkKeyEncoding,
    *,
    write_empty_chunks: bool,
) -> SmallWrites | None:
    """Return the fast path of one array, or None if it has none.

    It has none without dimensions, and if its store is not a writable one of local files, or flushes them to the disk.

    Parameters
    ----------
    program, chunk
        The array's encoding program, and the chunks that it encodes, each a file of its own.
    fill_value
        The value of elements that are not stored; None if there is none.
    access, prefix, encoding
        Location of the chunks: access to the store, the node's path with a trailing slash, the chunk key encoding.
    write_empty_chunks
        Whether chunks that hold only the fill value are stored.
    """
    if "files" not in available() or not chunk.shape or access.store.read_only:
        return None
    writer = access.file_writer()
    if writer is None or writer.durable:
        return None
    return SmallWrites(
        program, chunk, fill_value, access, writer, prefix, encoding, write_empty_chunks=write_empty_chunks
    )


class SmallWrites:
    """Small writes of one array whose chunks are files.

    Parameters
    ----------
    program, chunk, fill_value, access, prefix, encoding, write_empty_chunks
        As for :func:`small_writes_of`; the chunks have at least one dimension.
    writer
        The store's writer of files, which does not flush them.
    """

    def __init__(
        self,
        program: EncodingProgram,
        chunk: ArrayRepresentation,
        fill_value: Any,
        access: Access,
        writer: FileWriter,
        prefix: str,
        encoding: ChunkKeyEncoding,
        *,
        write_empty_chunks: bool,
    ) -> None:
        self._program, self._chunk, self._fill_value = program, chunk, fill_value
        self._access, self._writer, self._prefix, self._encoding = access, writer, prefix, encoding
        self._store = access.store
        self._skip_fill = not write_empty_chunks
        self._root = os.fsdecode(writer.root)
        # Idle jobs by number of chunks. Popping one is atomic, so threads never share a job.
        self._jobs: dict[int, deque[_Prepared]] = {}
        # Each process has its own names of temporary files, so a forked one prepares its own jobs.
        self._temporary = writer.temporary_prefix()

    def write(self, rows: list[tuple[Term, ...]], view: npt.NDArray[Any]) -> bool:
        """Write whole chunks; return whether that succeeded.

        Parameters
        ----------
        rows
            The chunks, from :func:`gzarr.plan.planner.box_chunks`.
        view
            Their elements, with as many dimensions as the array, and its dtype.
        """
        if self._store.read_only or self._access.file_writer() != self._writer:
            return False
        if any(term[1] or term[2] != n for row in rows for term, n in zip(row, self._chunk.shape, strict=True)):
            return False
        temporary = self._writer.temporary_prefix()
        if temporary != self._temporary:
            self._jobs, self._temporary = {}, temporary
        n = len(rows)
        jobs = self._jobs.setdefault(n, deque())
        try:
            prepared = jobs.pop()
        except IndexError:
            prepared = self._prepare(n, temporary)
        arena, state, slots = prepared
        numbers = [0, 0, address(view), *view.strides]
        for i in (3, 0):
            numbers += [term[i] for row in rows for term in row]
        try:
            arena[: len(numbers)] = numbers
        except OverflowError:
            return False
        state[:] = _NEW_STATE
        slots.array[w.TOKEN] = secrets.randbits(62)
        keys = [self._prefix + self._encoding.encode(tuple([term[0] for term in row])) for row in rows]
        folders = list({f"{self._root}/{key}".rpartition("/")[0]: None for key in keys})
        with locks.hold(self._store, keys):
            old = self._writer.uncleaned_folders(folders)
            self._run(slots, arena[:2], state, 1 if n * self._chunk.nbytes <= FEW_BYTES else n)
            codes = state[:, w.CODE].tolist()
            if not all(code in (0, w.ERASE) for code in codes):
                return False
            for key, code in zip(keys, codes, strict=True):
                if code == w.ERASE:
                    try:
                        self._store.erase(key)
                    # The normal path reports it.
                    except Exception as error:
                        pass_on(error)
                        return False
        if old:
            written = [key for key, code in zip(keys, codes, strict=True) if not code]
            self._writer.clean_folders(old, f"{self._root}/{written[0]}" if written else None)
        if len(jobs) < _KEEP:
            jobs.append(prepared)
        return True

    def _run(self, slots: WriteSlots, shared: IntArray, state: IntArray, most: int) -> None:
        """Run a job in up to ``most`` threads; no temporary file is left behind, whatever happens."""
        try:
            workers = min(pool.thread_count(), most)
            kernels.run(kernels.entry("write", "work"), slots.address, shared, len(state), workers)
        finally:
            if (state[:, w.DESCRIPTOR] >= 0).any():
                drop = kernels.entry("write", "drop")
                worker = kernels.take_worker()
                drop(slots.address, len(state), worker.scratch_address)
                kernels.give_worker_back(worker)

    def _prepare(self, n: int, temporary: str) -> _Prepared:
        """Return the arena of a job of ``n`` chunks, the states in it, and the job.

        The arena holds the job and its columns. Those that differ between writes come first, in the order of
        :meth:`write`, so that one assignment fills them.
        """
        chunk, program = self._chunk, self._program
        k = len(chunk.shape)
        sizes = (2, 1, k, n * k, n * k, n * w.STATE_SIZE, k, n * k, n * k, n, n, n + 1, 2 * k, g.SIZE, w.JOB_SIZE)
        arena = np.zeros(sum(sizes), np.int64)
        parts = np.split(arena, np.cumsum(sizes[:-1]))
        shared, base, strides, target, chunks, states, step, start, count, every, zeros, offsets = parts[:12]
        tables, geometry, job = parts[12:]
        step[:], every[:], offsets[:] = 1, range(n), range(n + 1)
        count.reshape(n, k)[:] = chunk.shape
        state = states.reshape(n, w.STATE_SIZE)
        slots = WriteSlots(job)
        slots.set_rows(n, shared, every)
        slots.set_program(encoding_words(program), len(program.steps), chunk.nbytes)
        pieces = PlacedPieces(start, count, target, zeros, step)
        slots.geometry(pieces, elements_of(chunk, program), PlacedMemory(base, strides, tables), geometry)
        slots.set_pieces(offsets, geometry)
        fill = stored_fill(chunk.dtype, self._fill_value, program.swap)
        slots.set_write(*fill, skip_fill=self._skip_fill, direct=not program.swap)
        slots.set_values(state, every, zeros, zeros)
        path = np.frombuffer(file_prefix(self._writer.root, self._prefix, self._encoding, k), np.uint8)
        slots.set_files(path, chunks, k, ord(self._encoding.separator))
        slab = planes_of_slab(program, chunk.nbytes)
        slots.set_temporary_files(np.frombuffer(os.fsencode(temporary), np.uint8), 0, durable=False, slab=slab)
        return arena, state, slots


def _new_state() -> IntArray:
    state = np.zeros(w.STATE_SIZE, np.int64)
    state[[w.COUNT, w.DESCRIPTOR, w.CODE]] = 1, -1, w.PENDING
    return state


_NEW_STATE: Final = _new_state()
