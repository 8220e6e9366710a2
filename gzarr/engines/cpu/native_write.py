"""The native path of writing: a write becomes a job, and a few threads run the compiled loop over it.

No Python runs per chunk of a local store: ``gzarr_kernels.write.work`` gathers, encodes and writes chunks without the
GIL. Each file is written under a temporary name and renamed once it is complete. Other stores are given encoded bytes
in batches.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from gzarr_kernels import status as s
from gzarr_kernels.slots import write as w
from gzarr_kernels.slots.encode import NO_COUNTERPART

from ...errors import ChunkWriteError, ReadOnlyError, with_errno
from ...plan.keys import ChunkKeys, distinct_rows
from ...stores.directories import CANNOT_FLUSH, NEEDS_FLUSH
from .. import failures, kernels, pool
from ..access.shard import NewShard, system_error, with_number
from . import effort, old_content
from .write_job import Job, encode_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ...plan.decode_program import Decoding
    from ...plan.encode_program import EncodingProgram
    from ...stores.base import FileWriter
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: A write of at most this many bytes runs in the caller's thread alone: starting a helper would cost more.
FEW_BYTES = 64 << 10
#: Most chunks and encoded bytes of a batch, which one thread encodes for a store other than local files.
BATCH_CHUNKS = 64
BATCH_BYTES = 4 << 20


def available() -> frozenset[str]:
    """Return the parts of native writing that work here, without loading any (``gzarr_kernels.libraries``)."""
    return kernels.encoders()


def can_change(request: WriteRequest, program: EncodingProgram, decoding: Decoding) -> bool:
    """Return whether stored values can be changed in part here: local files with native codecs can."""
    return old_content.can_be_changed(request, program, decoding) and _file_writer(request) is not None


def write(
    request: WriteRequest, program: EncodingProgram, rows: IntArray, changed: IntArray, decoding: Decoding
) -> IntArray:
    """Write planned chunks.

    Parameters
    ----------
    request
        The write, with at most one level of shards and no field.
    program
        Encoding program of ``request.codecs`` for ``request.chunk``.
    rows
        int64 ``(n,)``, all planned chunks of some stored values, which they must cover completely
        (:func:`gzarr.engines.cpu.write_threads.complete_values`), and whose old content does not matter.
    changed
        int64 ``(m,)``, all planned chunks of other stored values, whose other elements are kept. None, if
        :func:`can_change` is false.
    decoding
        Analysis of the codecs, for ``changed``.

    Returns
    -------
    int64, the chunks of ``changed`` that were not written, as their old content cannot be read or decoded here.

    Raises
    ------
    ReadOnlyError
        If the store is read-only.
    ChunkWriteError
        If the store fails or memory runs out. Every stored value is then complete; some still hold their old content.
    """
    left = [rows[:0]]
    if not len(rows) and not len(changed):
        return left[0]
    if request.store.read_only:
        raise ReadOnlyError(f"{request.store!r} was opened read-only; nothing was changed")
    # Kernels are loaded before the effort of a search is measured.
    kernels.entry("write", "work")
    program = effort.choose_search(request, program, rows, available())
    writer = _file_writer(request)
    done = 0
    if len(rows):
        job = Job(request, program, rows)
        done = len(job.keys)
        if writer is None:
            _write_batches(request, program, job)
        else:
            _write_files(request, job, writer)
    if len(changed) and writer is not None:
        for part in old_content.batches(request, changed):
            with old_content.opened(request, decoding, part, os.fsdecode(writer.root)) as (old, lost):
                left.append(lost)
                job = Job(request, program, old.rows, old)
                values = _write_files(request, job, writer, already=done)
                left.append(part[np.isin(request.value_of[part], values)])
            done += len(job.keys) - len(values)
    return np.concatenate(left)


def _file_writer(request: WriteRequest) -> FileWriter | None:
    """Return the store's file writer, if the compiled loop can write the files itself, or None."""
    if "files" not in available():
        return None
    shard = request.shard
    if shard is not None and not (shard.plain and (not shard.checksum or "crc32c" in available())):
        return None
    return request.access.file_writer()


def _workers(job: Job, request: WriteRequest, tasks: int) -> int:
    if len(job.rows) * request.chunk.nbytes <= FEW_BYTES:
        return 1
    return min(pool.thread_count(), tasks)


# -- local files


def _write_files(request: WriteRequest, job: Job, writer: FileWriter, *, already: int = 0) -> IntArray:
    """Write the job's values; return the request's values that were left, int64.

    ``already`` is the number of values that were written before, for error messages.
    """
    if not len(job.keys):
        return job.values
    work, drop = kernels.entry("write", "work"), kernels.entry("write", "drop")
    state, shared = job.for_files(request, writer)
    root = os.fsdecode(writer.root)
    folders = _folders(job.keys, root)
    # Killed writers can only have left files in directories that already existed.
    old = writer.uncleaned_folders(folders)
    if writer.durable:
        _each_folder(request, job, folders, writer.make_folder)
    try:
        n = len(job.rows)
        kernels.run(work, job.slots.address, shared, n, _workers(job, request, n))
    finally:
        worker = kernels.take_worker()
        drop(job.slots.address, len(state), worker.scratch_address)
        kernels.give_worker_back(worker)
    codes = state[:, w.CODE]
    done = np.flatnonzero(codes == 0)
    if writer.durable and len(done):
        _each_folder(request, job, folders, writer.flush_folder)
    writer.clean_folders(old, f"{root}/{job.keys[int(done[0])]}" if len(done) else None)
    bad = np.flatnonzero(codes > 0)
    if len(bad):
        code, detail, chunk = state[bad[0]][[w.CODE, w.DETAIL, w.CHUNK]].tolist()
        error = _status_failure(request, chunk, code, detail, durable=writer.durable)
        raise failures.with_count(error, already + len(done), already + len(codes))
    erased = np.flatnonzero(codes == w.ERASE).tolist()
    for number, value in enumerate(erased):
        try:
            request.store_value(int(job.rows[job.first[value]]), [])
        except ChunkWriteError as error:
            stored = already + len(done) + number
            raise failures.with_count(error, stored, already + len(codes)) from error.__cause__
    left: IntArray = job.values[codes == w.LEFT]
    return left


def _each_folder(request: WriteRequest, job: Job, folders: list[str], change: Callable[[str], None]) -> None:
    for folder in folders:
        try:
            change(folder)
        except OSError as cause:
            reason = f"cannot create the directory {folder!r} or flush it to disk: {cause.strerror or cause}"
            raise with_errno(request.failure(ChunkWriteError, int(job.rows[0]), reason), cause) from cause


def _folders(keys: ChunkKeys, root: str) -> list[str]:
    """Return the directories of some stored values."""
    chunks = keys.chunks[:1]
    if keys.encoding.separator == "/" and keys.chunks.shape[1]:
        chunks, _ = distinct_rows(keys.chunks[:, :-1])
        chunks = np.append(chunks, np.zeros((len(chunks), 1), np.int64), axis=1)
    return [f"{root}/{key}".rpartition("/")[0] for key in ChunkKeys(keys.encoding, keys.prefix, chunks).all()]


# -- other stores


def _write_batches(request: WriteRequest, program: EncodingProgram, job: Job) -> None:
    """Encode and store in batches, one per thread at a time: memory is bounded, and storing overlaps encoding."""
    values = len(job.keys)
    most = max(1, min(BATCH_CHUNKS, BATCH_BYTES // program.most_nbytes))
    # A shard is stored as a whole, and a remote value by a request of its own; others are encoded several at a time.
    alone = request.shard is not None or request.access.remote
    step = 1 if alone else max(1, min(most, -(-values // pool.thread_count())))
    batches = -(-values // step)
    done = count()

    def write_batch(i: int) -> None:
        begin, end = i * step, min((i + 1) * step, values)
        rows = np.arange(job.first[begin], job.first[end])
        encoded: list[bytes | None] = []
        for at in range(0, len(rows), most):
            encoded += _encode(request, program, job, rows[at : at + most])
        if request.shard is None:
            values_parts = [[] if part is None else [part] for part in encoded]
        else:
            made = NewShard(request.shard)
            slots = job.slot[rows].tolist()
            stored = [(slot, len(part), part) for slot, part in zip(slots, encoded, strict=True) if part is not None]
            if stored:
                made.add(*zip(*stored, strict=True))
            values_parts = [made.parts()]
        for value, parts in zip(range(begin, end), values_parts, strict=True):
            request.store_value(int(job.rows[job.first[value]]), parts)
            next(done)

    try:
        held = step * program.most_nbytes * max(-(-len(job.rows) // values), 1)
        request.access.each_value(write_batch, batches, held, _workers(job, request, batches))
    except ChunkWriteError as error:
        raise failures.with_count(error, next(done), values) from error.__cause__


def _encode(request: WriteRequest, program: EncodingProgram, job: Job, rows: IntArray) -> list[bytes | None]:
    """Return the encoded bytes of some rows of the job, None for chunks that hold only the fill value."""
    found = encode_in_memory(job, program, rows, 1)
    if found.failure is not None:
        code, detail, chunk = found.failure.tolist()
        raise _status_failure(request, chunk, code, detail)
    begins = (program.most_nbytes * np.arange(len(rows))).tolist()
    return [
        None if size < 0 else found.arena[begin : begin + size].tobytes()
        for begin, size in zip(begins, found.nbytes.tolist(), strict=True)
    ]


def _status_failure(
    request: WriteRequest, row: int, code: int, detail: int, *, durable: bool = False
) -> ChunkWriteError:
    """Return the error for a status and detail of the compiled loop."""
    labels = " + ".join(codec.label for codec in request.codecs)
    if code == s.IO_ERROR:
        reason = f"the file cannot be written: {request.store!r}: {system_error(detail)}"
        if durable and detail in CANNOT_FLUSH:
            reason += f": {NEEDS_FLUSH}"
    elif code == s.NO_MEMORY:
        reason = f"out of memory while encoding {request.chunk.nbytes} bytes with {labels}"
    elif detail == NO_COUNTERPART:
        reason = (
            f"{labels} cannot encode it: an element is not a number, infinite or out of the range of the stored type, "
            'and neither "scalar_map" nor "out_of_range" says what to store'
        )
    else:
        reason = f"{labels} cannot encode it (encoder's code {detail})"
    return with_number(request.failure(ChunkWriteError, row, reason), code, detail)
