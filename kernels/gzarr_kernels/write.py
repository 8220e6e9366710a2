"""The loop of one worker: gather ▶ encode ▶ file, chunk after chunk, without Python and without the GIL.

The workers of a write share a job and take rows (chunks) from its counter. A chunk is part of a *value*: a file of its
own, or a file of several chunks and an index (a shard). Files are written under a temporary name and renamed when
complete (``value_files.py``). The chunks of a file are stored in the order of the rows, whichever worker encodes them.
"""

from __future__ import annotations

from . import status as S
from .context import ensure, now, slice_end
from .decode import decode_chunk
from .encode import encode_chunk
from .gather import all_fill, change_chunk, gather_chunk, gather_slab
from .interleave import fence
from .jit import entry, part
from .memory import atomic_add, atomic_load, copy, i64
from .place import dense_target
from .read import open_chunk, read_range
from .slots import context as C
from .slots import geometry as G
from .slots import read as R
from .slots.encode import SLACK_BYTES
from .slots.scratch import PATHS_BYTES
from .slots.write import (
    CHUNK,
    CODE,
    COUNT,
    DESCRIPTOR,
    DETAIL,
    DIRECT,
    DONE,
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
    TURN,
    VALUE,
)
from .symbols import (
    c_close,
    c_lseek,
    c_yield,
)
from .value_files import close_value, drop_value, open_value, write_bytes


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
            code = open_value(job, context, value, worker)
            if code != S.OK:
                return code
            if low > 0:
                # The slabs before were skipped as fill; they have to be written after all.
                low = 0
                continue
        code = write_bytes(context, state[DESCRIPTOR], slab, nbytes, low * plane)
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
        descriptor = open_chunk(job, context, value, worker)
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
            code = close_value(job, context, value, worker)
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
            code = open_value(job, context, value, worker)
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
        code = write_bytes(context, state[DESCRIPTOR], c[C.RESULT], nbytes, offset)
        if code != S.OK:
            return code
    fence()
    if atomic_add(address + 8 * DONE, 1) + 1 < state[COUNT]:
        return PENDING
    fence()
    code = close_value(job, context, value, worker)
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
        drop_value(job, value, worker)
