"""The loop that fills a wave for a device: read ▶ verify ▶ divide into frames, chunk after chunk, without the GIL.

Verification covers the checksums of encoded bytes. If there are none, it can also decode each frame.

Encoded chunks go to staging memory, in which each reserves its place by an atomic addition; their frames reserve rows
of shared columns in the same way. Chunks that the device does not take, for whatever reason, are left to the host's
decoders, which report any error: here a chunk only succeeds or fails.

The job has the slots of ``slots/stage.py``. ``CHUNK_ROWS`` are the rows to take, ``SPANS`` is their
number; ``SHARED`` has two int64, bytes and frames taken, for all jobs of a wave. In memory, ``WHERE`` and ``NBYTES``
are as in ``slots/read.py``; for byte ranges they and ``SPAN_FILE`` have one entry per row of the plan.
"""

from __future__ import annotations

from typing import Final

from .crc32c import crc32c
from .jit import call_9, entry, part
from .memory import atomic_add, atomic_load, copy, i64, u32
from .read import open_chunk, open_span, read_range
from .slots import context as C
from .slots.frames import CHUNK, REFUSED
from .slots.read import (
    CHUNK_ROWS,
    MODE,
    MODE_FILES,
    MODE_MEMORY,
    MOST_ENCODED,
    NBYTES,
    SHARED,
    SPAN_FILE,
    SPANS,
    WHERE,
)
from .slots.stage import (
    ABSENT,
    BITS,
    BLOCKSIZE,
    CAPACITY,
    CHECKSUMS,
    CUT,
    DEFERRED,
    DIRECT,
    END,
    EXPECTED,
    FALLBACK,
    FIRST,
    FRAMES,
    LEAD,
    MOST_FRAMES,
    NEXT,
    OUTCOMES,
    READY,
    RESULTS,
    STAGING,
    STATE,
    TYPESIZE,
    VERIFIES,
    VERIFY,
)
from .status import ABSENT as STATUS_ABSENT
from .status import OK
from .symbols import c_close, c_lseek, c_memset
from .verify import frames_decode

#: Alignment of chunks, in bytes.
_ALIGNMENT: Final = 64
#: Unused bytes after each chunk, for decoders that read whole words.
_BEHIND: Final = 64


@part
def _cut(job: int, context: int, i: int, at: int, nbytes: int, columns: int, frame: int) -> int:
    """Divide a chunk in staging memory into frames, or count them; return their number, or REFUSED.

    Parameters
    ----------
    job, context
        As in :func:`stage`. The context's TYPESIZE, BLOCKSIZE and OUT1 are set to the layout of the decoded chunk, and
        RESULT to the position of a chunk that needs no decoding.
    i
        Row of the chunk's outcome, for the frames' columns.
    at, nbytes
        Position and size of the chunk in staging memory, without checksums.
    columns, frame
        Address of the frames' columns (0 to count only), and row of the chunk's first frame.
    """
    j = i64(job)
    c = i64(context)
    size = j[EXPECTED]
    c[C.TYPESIZE] = 1
    c[C.BLOCKSIZE] = size
    c[C.OUT1] = 0
    c[C.RESULT] = -1
    if j[CUT] == 0:
        c[C.RESULT] = at
        return 0 if nbytes == size else REFUSED
    return call_9(j[CUT], context, j[STAGING], at, nbytes, size, i, columns, j[MOST_FRAMES], frame)


@part
def _scan(job: int, context: int, i: int, at: int, nbytes: int) -> int:
    """Verify a chunk in staging and write its frames; return its state."""
    j = i64(job)
    c = i64(context)
    outcome = i64(j[OUTCOMES] + 8 * RESULTS * i)
    for _ in range(j[CHECKSUMS]):
        nbytes -= 4
        if nbytes < 0:
            return FALLBACK
        source = j[STAGING] + at
        if crc32c(source, nbytes) != u32(source + nbytes)[0]:
            return FALLBACK
    count = _cut(job, context, i, at, nbytes, 0, 0)
    if count < 0 or count > j[MOST_FRAMES]:
        return FALLBACK
    frame = 0
    if count > 0:
        frame = atomic_add(j[SHARED] + 8, count)
        if frame + count > j[MOST_FRAMES]:
            for f in range(frame, min(frame + count, j[MOST_FRAMES])):
                i64(j[FRAMES])[CHUNK * j[MOST_FRAMES] + f] = -1
            return DEFERRED
        _cut(job, context, i, at, nbytes, j[FRAMES], frame)
    outcome[TYPESIZE] = c[C.TYPESIZE]
    outcome[BLOCKSIZE] = c[C.BLOCKSIZE]
    outcome[BITS] = c[C.OUT1]
    outcome[DIRECT] = c[C.RESULT]
    if j[VERIFY] == 0 or j[CHECKSUMS] > 0:
        return READY
    verified = frames_decode(context, j[STAGING], j[FRAMES], j[MOST_FRAMES], frame, count, j[VERIFIES])
    return READY if verified else FALLBACK


@part
def _reserve(job: int, i: int, nbytes: int) -> int:
    """Return the position in staging for a chunk of ``nbytes``, or -1 if there is no room.

    The first chunk of a wave that fits an empty wave always gets room, so every wave makes progress.
    """
    j = i64(job)
    need = (j[LEAD] + nbytes + _BEHIND + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    begin = atomic_add(j[SHARED], need)
    if begin + need > j[CAPACITY]:
        return -1
    i64(j[OUTCOMES] + 8 * RESULTS * i)[END] = begin + need
    # Bytes of an earlier wave around the chunk must not be sent to a device.
    at = begin + j[LEAD]
    c_memset(j[STAGING] + begin, 0, j[LEAD])
    c_memset(j[STAGING] + at + nbytes, 0, need - j[LEAD] - nbytes)
    return at


@part
def _full(job: int) -> bool:
    """Return whether the wave is full, so that further chunks need not even be read."""
    j = i64(job)
    nbytes = atomic_load(j[SHARED])
    frames = atomic_load(j[SHARED] + 8)
    return (nbytes > 0 and nbytes >= j[CAPACITY]) or (frames > 0 and frames >= j[MOST_FRAMES])


@part
def _fits(job: int, nbytes: int) -> bool:
    """Return whether a chunk fits an empty wave."""
    j = i64(job)
    return nbytes <= j[MOST_ENCODED] and j[LEAD] + nbytes + _BEHIND + _ALIGNMENT <= j[CAPACITY]


@part
def _file(job: int, context: int, i: int, row: int, worker: int) -> int:
    """Stage a chunk that is a whole file; return its state."""
    j = i64(job)
    c = i64(context)
    descriptor = open_chunk(job, context, row, worker)
    if descriptor < 0:
        return ABSENT if c[C.OUT0] == STATUS_ABSENT else FALLBACK
    size = c_lseek(descriptor, 0, 2)
    state = FALLBACK
    at = -1
    if size >= 0 and _fits(job, size):
        at = _reserve(job, i, size)
        state = DEFERRED
        if at >= 0:
            state = READY if read_range(context, descriptor, j[STAGING] + at, size, 0) == OK else FALLBACK
    c_close(descriptor)
    return _scan(job, context, i, at, size) if state == READY else state


@part
def _range(job: int, context: int, i: int, row: int) -> int:
    """Stage a chunk that is a byte range of a file, or is in memory; return its state."""
    j = i64(job)
    c = i64(context)
    size = i64(j[NBYTES])[row]
    where = i64(j[WHERE])[row]
    if size < 0:
        return ABSENT
    if not _fits(job, size):
        return FALLBACK
    at = _reserve(job, i, size)
    if at < 0:
        return DEFERRED
    target = j[STAGING] + at
    if j[MODE] == MODE_MEMORY:
        copy(target, where, size)
    elif (
        open_span(job, context, i64(j[SPAN_FILE])[row]) != OK
        or read_range(context, c[C.DESCRIPTOR], target, size, where) != OK
    ):
        return FALLBACK
    return _scan(job, context, i, at, size)


@entry(3)
def stage(job: int, context: int, worker: int) -> None:
    """Take rows of ``job`` until none are left.

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
    c[C.DESCRIPTOR] = -1
    while True:
        turn = atomic_add(j[NEXT], 1)
        if turn >= j[SPANS]:
            break
        row = i64(j[CHUNK_ROWS])[turn]
        i = j[FIRST] + turn
        if _full(job):
            state = DEFERRED
        elif j[MODE] == MODE_FILES:
            state = _file(job, context, i, row, worker)
        else:
            state = _range(job, context, i, row)
        i64(j[OUTCOMES] + 8 * RESULTS * i)[STATE] = state
    if c[C.DESCRIPTOR] >= 0:
        c_close(c[C.DESCRIPTOR])
        c[C.DESCRIPTOR] = -1
