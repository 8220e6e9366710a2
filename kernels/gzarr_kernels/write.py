"""The loop of one worker: gather ▶ encode ▶ file, chunk after chunk, without Python and without the GIL.

The workers of a write share a job and take rows (chunks) from its counter. A chunk is part of a *value*: a file of its
own, or a file of several chunks and an index (a shard). Files are written under a temporary name and renamed when
complete. The chunks of a file are stored in the order of the rows, whichever worker encodes them.
"""

from __future__ import annotations

from typing import Final

from . import status as S
from .context import ensure
from .crc32c import crc32c
from .decode import decode_chunk
from .encode import encode_chunk
from .gather import all_fill, change_chunk, gather_chunk, gather_slab
from .interleave import fence
from .jit import entry, part
from .memory import atomic_add, atomic_load, copy, i64, u8, u32
from .place import dense_target
from .read import now, open_file, read_range, slice_end, write_path
from .slots import context as C
from .slots import geometry as G
from .slots import read as R
from .slots.encode import SLACK_BYTES
from .slots.scratch import PATHS_BYTES
from .slots.write import (
    AT_START,
    CHECKSUM,
    CHUNK,
    CODE,
    COUNT,
    CREATE_FLAGS,
    DESCRIPTOR,
    DETAIL,
    DIRECT,
    DONE,
    DURABLE,
    ENTRIES,
    ERASE,
    INDEXES,
    LEFT,
    NEXT,
    OFFSET,
    OLD,
    OLD_FILE,
    OLD_KEPT,
    OLD_NBYTES,
    OLD_NONE,
    OLD_OFFSET,
    OLD_OPERATIONS,
    OLD_PROGRAM,
    PENDING,
    SKIP_FILL,
    SLAB,
    SLOT,
    STATE,
    STATE_SIZE,
    STORED_FILL,
    TEMPORARY,
    TEMPORARY_NBYTES,
    TOKEN,
    TURN,
    VALUE,
)
from .symbols import (
    c_access,
    c_close,
    c_create,
    c_errno,
    c_fsync,
    c_lseek,
    c_mkdir,
    c_pwrite,
    c_rename,
    c_unlink,
    c_yield,
)

_TEMPORARY_DIGITS: Final = 16
_ENOENT: Final = 2
_EINTR: Final = 4
_EEXIST: Final = 17
_ENOSPC: Final = 28
_ENAMETOOLONG: Final = 36
#: Another process may remove an empty directory between its creation and the creation of the file in it.
_ATTEMPTS: Final = 20
#: The first half of a worker's scratch holds two paths: a value's and its temporary file's.
_PATH_BYTES: Final = PATHS_BYTES // 2


@part
def _errno() -> int:
    return i64(c_errno())[0] & 0xFFFFFFFF


@part
def _temporary(job: int, value: int, path: int, target: int) -> int:
    """Write the temporary path of a value's file, in the directory of ``path``; return 0 if it is too long."""
    j = i64(job)
    p = u8(path)
    t = u8(target)
    at = 0
    end = 0
    while p[end] != 0:
        end += 1
        if p[end - 1] == 47:
            at = end
    size = j[TEMPORARY_NBYTES]
    if at + size + _TEMPORARY_DIGITS + 1 > _PATH_BYTES or end >= _PATH_BYTES:
        return 0
    copy(target, path, at)
    copy(target + at, j[TEMPORARY], size)
    at += size
    number = j[TOKEN] + value
    for q in range(_TEMPORARY_DIGITS):
        digit = (number >> (60 - 4 * q)) & 15
        t[at + q] = digit + 48 if digit < 10 else digit + 87
    t[at + _TEMPORARY_DIGITS] = 0
    return at + _TEMPORARY_DIGITS


@part
def _paths(job: int, value: int, worker: int) -> int:
    """Write a value's path and, after it, its temporary file's; return 0 if they are too long."""
    j = i64(job)
    if j[R.PREFIX_NBYTES] + 21 * j[R.COORDINATES] + 1 > _PATH_BYTES:
        return 0
    if write_path(job, value, worker) == 0:
        return 0
    return _temporary(job, value, worker, worker + _PATH_BYTES)


@part
def _make_directories(path: int) -> int:
    """Create the parent directories of ``path``; return 0, or the errno of the last one."""
    p = u8(path)
    code = 0
    at = 1
    while p[at] != 0:
        if p[at] == 47:
            p[at] = 0
            code = 0
            if c_mkdir(path, 0o777) != 0:
                code = _errno()
                if code == _EEXIST:
                    code = 0
            p[at] = 47
        at += 1
    return code


@part
def _create(job: int, context: int, path: int) -> int:
    """Create a file; return its descriptor, or -1 with errno in DETAIL."""
    j = i64(job)
    c = i64(context)
    attempts = _ATTEMPTS
    while True:
        descriptor = c_create(path, j[CREATE_FLAGS], 0o666)
        if descriptor >= 0:
            return descriptor
        code = _errno()
        if code == _EINTR:
            continue
        attempts -= 1
        if code == _ENOENT and attempts > 0:
            code = _make_directories(path)
            if code == 0 or code == _ENOENT:
                continue
        c[C.DETAIL] = code
        return -1


@part
def _write(context: int, descriptor: int, source: int, nbytes: int, offset: int) -> int:
    """Write all bytes; return a status."""
    c = i64(context)
    done = 0
    while done < nbytes:
        put = c_pwrite(descriptor, source + done, nbytes - done, offset + done)
        if put < 0:
            code = _errno()
            if code == _EINTR:
                continue
            c[C.DETAIL] = code
            return S.IO_ERROR
        if put == 0:
            c[C.DETAIL] = _ENOSPC
            return S.IO_ERROR
        done += put
    return S.OK


@part
def _open_value(job: int, context: int, value: int, worker: int) -> int:
    """Create a value's temporary file; return a status."""
    c = i64(context)
    state = i64(i64(job)[STATE] + 8 * STATE_SIZE * value)
    if _paths(job, value, worker) == 0:
        c[C.DETAIL] = _ENAMETOOLONG
        return S.IO_ERROR
    descriptor = _create(job, context, worker + _PATH_BYTES)
    if descriptor < 0:
        return S.IO_ERROR
    state[DESCRIPTOR] = descriptor
    return S.OK


@part
def _close_value(job: int, context: int, value: int, worker: int) -> int:
    """Complete a value whose chunks are all written: index, flush, rename; return a status or ERASE."""
    j = i64(job)
    c = i64(context)
    state = i64(j[STATE] + 8 * STATE_SIZE * value)
    descriptor = state[DESCRIPTOR]
    if _paths(job, value, worker) == 0:
        c[C.DETAIL] = _ENAMETOOLONG
        return S.IO_ERROR
    if descriptor < 0:
        # All fill, so there should be no file. Erasing it will report whatever is wrong with the path.
        if c_access(worker, 0) != 0 and _errno() == _ENOENT:
            return S.OK
        return ERASE
    code = S.OK
    if j[ENTRIES] > 0:
        nbytes = 16 * j[ENTRIES]
        index = j[INDEXES] + nbytes * value
        at = 0 if j[AT_START] != 0 else state[OFFSET]
        code = _write(context, descriptor, index, nbytes, at)
        if code == S.OK and j[CHECKSUM] != 0:
            u32(context + 8 * C.OUT0)[0] = crc32c(index, nbytes)
            code = _write(context, descriptor, context + 8 * C.OUT0, 4, at + nbytes)
    if code == S.OK and j[DURABLE] != 0 and c_fsync(descriptor) != 0:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    state[DESCRIPTOR] = -1
    # Some file systems only report a full disk here.
    if c_close(descriptor) != 0 and code == S.OK:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    temporary = worker + _PATH_BYTES
    if code == S.OK and c_rename(temporary, worker) != 0:
        c[C.DETAIL] = _errno()
        code = S.IO_ERROR
    if code != S.OK:
        c_unlink(temporary)
    return code


@part
def _drop_value(job: int, value: int, worker: int) -> None:
    """Close and remove the temporary file of an unfinished value."""
    state = i64(i64(job)[STATE] + 8 * STATE_SIZE * value)
    if state[DESCRIPTOR] >= 0:
        c_close(state[DESCRIPTOR])
        state[DESCRIPTOR] = -1
        if _paths(job, value, worker) != 0:
            c_unlink(worker + _PATH_BYTES)


@part
def _direct(job: int, chunk: int) -> int:
    """Return the address of a chunk that lies in the input exactly as it is stored, or 0."""
    j = i64(job)
    first = i64(j[R.PIECE_OFFSETS])[chunk]
    if j[DIRECT] != 0 and i64(j[R.PIECE_OFFSETS])[chunk + 1] == first + 1:
        return dense_target(j[R.GEOMETRY], first)
    return 0


@part
def _slabs(job: int, context: int, chunk: int, value: int, worker: int) -> int:
    """Gather and write an uncompressed chunk in slabs that fit the cache; return a status.

    The file is created at the first slab that is not all fill.
    """
    j = i64(job)
    g = i64(j[R.GEOMETRY])
    state = i64(j[STATE] + 8 * STATE_SIZE * value)
    first = i64(j[R.PIECE_OFFSETS])[chunk]
    last = i64(j[R.PIECE_OFFSETS])[chunk + 1]
    extent = i64(g[G.CHUNK_SHAPE])[i64(g[G.ORDER])[0]]
    plane = j[R.CHUNK_NBYTES] // extent
    slab = ensure(context, C.FIRST, j[SLAB] * plane + SLACK_BYTES)
    if slab == 0:
        return S.NO_MEMORY
    low = 0
    while low < extent:
        high = min(low + j[SLAB], extent)
        nbytes = (high - low) * plane
        gather_slab(j[R.GEOMETRY], first, last, low, high, slab, nbytes, j[R.FILL], worker + PATHS_BYTES)
        if state[DESCRIPTOR] < 0:
            if j[SKIP_FILL] != 0 and all_fill(slab, nbytes, j[STORED_FILL], g[G.ITEMSIZE]):
                low = high
                continue
            code = _open_value(job, context, value, worker)
            if code != S.OK:
                return code
            if low > 0:
                # The slabs before were skipped as fill; they have to be written after all.
                low = 0
                continue
        code = _write(context, state[DESCRIPTOR], slab, nbytes, low * plane)
        if code != S.OK:
            return code
        low = high
    return S.OK


@part
def _encode_gathered(job: int, context: int, source: int, owned: int) -> int:
    """Encode a chunk into RESULT and RESULT_NBYTES (-1: all fill); return a status. See ``encode_chunk``."""
    j = i64(job)
    nbytes = j[R.CHUNK_NBYTES]
    if j[SKIP_FILL] != 0 and all_fill(source, nbytes, j[STORED_FILL], i64(j[R.GEOMETRY])[G.ITEMSIZE]):
        i64(context)[C.RESULT_NBYTES] = -1
        return S.OK
    return encode_chunk(context, j[R.PROGRAM], j[R.OPERATIONS], source, nbytes, owned)


@part
def _encode(job: int, context: int, chunk: int, scratch: int) -> int:
    """Gather and encode a chunk into RESULT and RESULT_NBYTES (-1: all fill); return a status."""
    j = i64(job)
    nbytes = j[R.CHUNK_NBYTES]
    first = i64(j[R.PIECE_OFFSETS])[chunk]
    last = i64(j[R.PIECE_OFFSETS])[chunk + 1]
    source = _direct(job, chunk)
    owned = 0
    if source == 0:
        source = ensure(context, C.FIRST, nbytes + SLACK_BYTES)
        if source == 0:
            return S.NO_MEMORY
        owned = 1
        gather_chunk(j[R.GEOMETRY], first, last, source, nbytes, j[R.FILL], scratch)
    return _encode_gathered(job, context, source, owned)


@part
def _old_bytes(job: int, context: int, row: int, value: int, worker: int) -> int:
    """Read a row's old stored bytes into RESULT and RESULT_NBYTES (-1: there are none); return a status or LEFT."""
    j = i64(job)
    c = i64(context)
    c[C.RESULT_NBYTES] = -1
    kept = i64(j[OLD])[row] == OLD_KEPT
    own = j[OLD_FILE] == 0
    if own:
        if write_path(job, value, worker) == 0:
            return LEFT
        descriptor = open_file(context, worker, j[R.OPEN_FLAGS])
        if descriptor < 0:
            return S.OK if c[C.OUT0] == S.ABSENT else LEFT
        offset = 0
        nbytes = c_lseek(descriptor, 0, 2)
    else:
        descriptor = i64(j[OLD_FILE])[value]
        offset = i64(j[OLD_OFFSET])[row]
        nbytes = i64(j[OLD_NBYTES])[row]
        if descriptor < 0 or nbytes < 0:
            return S.OK
    code = LEFT
    if nbytes >= 0 and (kept or nbytes <= j[R.MOST_ENCODED]):
        buffer = ensure(context, C.ENCODED, nbytes + SLACK_BYTES)
        if buffer != 0 and read_range(context, descriptor, buffer, nbytes, offset) == S.OK:
            c[C.RESULT] = buffer
            c[C.RESULT_NBYTES] = nbytes
            code = S.OK
    if own:
        c_close(descriptor)
    return code


@part
def _change(job: int, context: int, row: int, chunk: int, value: int, worker: int) -> int:
    """As :func:`_encode` for a row whose old content matters; return a status or LEFT."""
    j = i64(job)
    c = i64(context)
    nbytes = j[R.CHUNK_NBYTES]
    scratch = worker + PATHS_BYTES
    code = _old_bytes(job, context, row, value, worker)
    if code != S.OK or i64(j[OLD])[row] == OLD_KEPT:
        return code
    if c[C.RESULT_NBYTES] < 0:
        return _encode(job, context, chunk, scratch)
    code = decode_chunk(
        context,
        j[OLD_PROGRAM],
        j[OLD_OPERATIONS],
        c[C.RESULT],
        c[C.RESULT_NBYTES],
        nbytes,
        0,
        0,
        j[R.GEOMETRY],
        0,
        0,
        scratch,
    )
    if code != S.OK:
        return LEFT
    # A result that is neither FIRST nor SECOND lies in ENCODED: only what is read from there is given out as it is.
    source = c[C.RESULT]
    owned = 1 if source == c[C.FIRST] else 0
    first = i64(j[R.PIECE_OFFSETS])[chunk]
    last = i64(j[R.PIECE_OFFSETS])[chunk + 1]
    change_chunk(j[R.GEOMETRY], first, last, source, scratch)
    return _encode_gathered(job, context, source, owned)


@part
def _file_row(job: int, context: int, row: int, chunk: int, worker: int) -> int:
    """Encode a chunk and write it into its value's file, which the last chunk completes; return a status."""
    j = i64(job)
    c = i64(context)
    value = i64(j[VALUE])[row]
    state = i64(j[STATE] + 8 * STATE_SIZE * value)
    address = j[STATE] + 8 * STATE_SIZE * value
    old = OLD_NONE if j[OLD] == 0 else i64(j[OLD])[row]
    if old == OLD_NONE and j[SLAB] > 0 and _direct(job, chunk) == 0:
        code = _slabs(job, context, chunk, value, worker)
        if code == S.OK:
            code = _close_value(job, context, value, worker)
            state[CODE] = code
        return S.OK if code == ERASE else code
    if old == OLD_NONE:
        code = _encode(job, context, chunk, worker + PATHS_BYTES)
    else:
        code = _change(job, context, row, chunk, value, worker)
    if code == LEFT:
        # The value's other rows see it when their turn does not come.
        state[CODE] = LEFT
        fence()
        return PENDING
    if code != S.OK:
        return code
    nbytes = c[C.RESULT_NBYTES]
    # Rows are taken in order, so the worker whose turn it is never waits.
    while atomic_load(address + 8 * NEXT) != i64(j[TURN])[row]:
        if atomic_load(j[R.SHARED] + 8) != 0 or atomic_load(address + 8 * CODE) == LEFT:
            return PENDING
        c_yield()
    fence()
    offset = state[OFFSET]
    if nbytes >= 0:
        if state[DESCRIPTOR] < 0:
            code = _open_value(job, context, value, worker)
            if code != S.OK:
                return code
        state[OFFSET] = offset + nbytes
        if j[ENTRIES] > 0:
            entry_of = i64(j[INDEXES] + 16 * (value * j[ENTRIES] + i64(j[SLOT])[row]))
            entry_of[0] = offset
            entry_of[1] = nbytes
    fence()
    atomic_add(address + 8 * NEXT, 1)
    if nbytes >= 0:
        code = _write(context, state[DESCRIPTOR], c[C.RESULT], nbytes, offset)
        if code != S.OK:
            return code
    fence()
    if atomic_add(address + 8 * DONE, 1) + 1 < state[COUNT]:
        return PENDING
    fence()
    code = _close_value(job, context, value, worker)
    state[CODE] = code
    return S.OK if code == ERASE else code


@entry(3)
def work(job: int, context: int, worker: int) -> None:
    """Take rows of ``job`` until none are left, a worker has failed, or the context's time slice is over.

    Parameters
    ----------
    job
        Address of the job's int64 array.
    context
        Address of this worker's context (``slots/context.py``).
    worker
        Address of ``slots.scratch.WORKER_BYTES`` bytes of scratch.
    """
    j = i64(job)
    c = i64(context)
    end = slice_end(context)
    while atomic_load(j[R.SHARED] + 8) == 0:
        if end > 0 and now(context) > end:
            break
        row = atomic_add(j[R.SHARED], 1)
        if row >= j[R.SPANS]:
            break
        chunk = i64(j[R.CHUNK_ROWS])[row]
        c[C.DETAIL] = 0
        if j[R.MODE] == R.MODE_FILES:
            code = _file_row(job, context, row, chunk, worker)
        else:
            code = _encode(job, context, chunk, worker + PATHS_BYTES)
            if code == S.OK:
                i64(j[R.NBYTES])[row] = c[C.RESULT_NBYTES]
                if c[C.RESULT_NBYTES] > 0:
                    copy(i64(j[R.WHERE])[row], c[C.RESULT], c[C.RESULT_NBYTES])
        if code != S.OK and code != PENDING:
            state = i64(j[STATE] + 8 * STATE_SIZE * i64(j[VALUE])[row])
            state[CODE] = code
            state[DETAIL] = c[C.DETAIL]
            state[CHUNK] = chunk
            fence()
            atomic_add(j[R.SHARED] + 8, 1)
            break


@entry(3)
def drop(job: int, values: int, worker: int) -> None:
    """Remove the temporary files of unfinished values, after all workers have returned.

    Parameters
    ----------
    job
        Address of the job's int64 array.
    values
        Number of values of the job.
    worker
        Address of ``slots.scratch.WORKER_BYTES`` bytes of scratch.
    """
    for value in range(values):
        _drop_value(job, value, worker)
