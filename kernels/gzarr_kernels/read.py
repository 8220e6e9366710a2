"""The loop of one worker: read ▶ decode ▶ place, chunk after chunk, without Python and without the GIL.

Workers of one read share a job and take *spans* from its counter. One request reads one span: a whole file,
neighbouring byte ranges of one file with several chunks, or one buffer in memory.
"""

from __future__ import annotations

from typing import Final

from . import status as S
from .context import ensure, now, slice_end
from .decode import decode_chunk
from .interleave import fence
from .jit import entry, part
from .memory import atomic_add, atomic_load, copy, i64, u8
from .place import dense_rows, dense_target, extent_of_piece, place_piece, place_points
from .slots import context as C
from .slots import geometry as G
from .slots.read import (
    CHUNK_NBYTES,
    CHUNK_ROWS,
    COORDINATES,
    FILL,
    FOLDER_FLAGS,
    GAP_BYTES,
    GEOMETRY,
    GRID,
    HUGE_PAGE_BYTES,
    LINK_FLAGS,
    MODE,
    MODE_FILES,
    MODE_MEMORY,
    MODE_RANGES,
    MOST_ENCODED,
    NBYTES,
    NEW,
    NEW_NBYTES,
    OPEN_FLAGS,
    OPERATIONS,
    PATH_OFFSETS,
    PATHS,
    PIECE_OFFSETS,
    PREFIX_NBYTES,
    PROGRAM,
    SEPARATOR,
    SHARED,
    SLAB_BYTES,
    SPAN_FILE,
    SPAN_NBYTES,
    SPAN_OFFSET,
    SPAN_ROWS,
    SPANS,
    STATUS,
    WHERE,
    ZERO_STRIDES,
)
from .slots.scratch import PATHS_BYTES
from .symbols import c_close, c_errno, c_lseek, c_madvise, c_open, c_pread

_SLASH: Final = 47
_EINTR: Final = 4
_ENOENT: Final = 2
_ENOTDIR: Final = 20
_EISDIR: Final = 21
#: Linux's ``madvise`` value that populates pages as if written to, keeping their content. Other systems refuse it.
_POPULATE_WRITE: Final = 23


@part
def write_path(job: int, chunk: int, path: int) -> int:
    """Write the path of a chunk file and its NUL; return 0 if it does not fit."""
    j = i64(job)
    prefix = j[PREFIX_NBYTES]
    k = j[COORDINATES]
    if prefix + 21 * k + 1 > PATHS_BYTES:
        return 0
    copy(path, j[PATHS], prefix)
    out = u8(path)
    at = prefix
    grid = i64(j[GRID] + 8 * k * chunk)
    for d in range(k):
        if d > 0:
            out[at] = j[SEPARATOR]
            at += 1
        value = grid[d]
        digits = 1
        rest = value // 10
        while rest > 0:
            digits += 1
            rest //= 10
        for q in range(digits):
            out[at + digits - 1 - q] = 48 + value % 10
            value //= 10
        at += digits
    out[at] = 0
    return at


@part
def open_file(job: int, context: int, path: int) -> int:
    """Open a file; return its descriptor, or -1 with the status in OUT0."""
    j = i64(job)
    c = i64(context)
    flags = j[OPEN_FLAGS]
    link_flags = j[LINK_FLAGS]
    while True:
        descriptor = c_open(path, flags)
        if descriptor >= 0:
            return descriptor
        code = i64(c_errno())[0] & 0xFFFFFFFF
        if code == _EINTR:
            continue
        c[C.DETAIL] = code
        c[C.OUT0] = S.ABSENT if code == _ENOENT or code == _ENOTDIR else S.IO_ERROR
        if code == _ENOENT and link_flags != 0:
            link = c_open(path, link_flags)
            if link >= 0:
                c_close(link)
                # Has it just been created?
                descriptor = c_open(path, flags)
                if descriptor >= 0:
                    return descriptor
                c[C.OUT0] = S.DANGLING_LINK
        return -1


@part
def open_chunk(job: int, context: int, chunk: int, path: int) -> int:
    """Write the path of a value and open it; return its descriptor, or -1 with the status in OUT0."""
    j = i64(job)
    c = i64(context)
    nbytes = write_path(job, chunk, path)
    if nbytes == 0:
        c[C.DETAIL] = 36  # ENAMETOOLONG
        c[C.OUT0] = S.IO_ERROR
        return -1
    descriptor = open_file(job, context, path)
    if descriptor < 0 and c[C.OUT0] == S.ABSENT and j[SEPARATOR] == _SLASH and j[LINK_FLAGS] != 0:
        position = j[GRID] + 8 * j[COORDINATES] * chunk
        if c[C.LOOKED_AT] != 0 and _share_folder(position, c[C.LOOKED_AT], j[COORDINATES]):
            return descriptor
        if _below_dangling_link(job, path, nbytes):
            c[C.OUT0] = S.DANGLING_LINK
        else:
            c[C.LOOKED_AT] = position
    return descriptor


@part
def _share_folder(first: int, second: int, k: int) -> bool:
    """Return whether the files of two grid positions are in the same folder."""
    for d in range(k - 1):
        if i64(first)[d] != i64(second)[d]:
            return False
    return True


@part
def _below_dangling_link(job: int, path: int, nbytes: int) -> bool:
    """Return whether an absent file's directory is missing since one of them is a link to nothing."""
    j = i64(job)
    text = u8(path)
    prefix = j[PREFIX_NBYTES]
    end = nbytes
    while True:
        end -= 1
        while end >= prefix - 1 and text[end] != _SLASH:
            end -= 1
        if end < prefix - 1:
            # The array's own directory is there.
            return False
        text[end] = 0
        found = c_open(path, j[FOLDER_FLAGS])
        link = -1 if found >= 0 else c_open(path, j[LINK_FLAGS])
        if link >= 0:
            c_close(link)
            # Has it just been created?
            found = c_open(path, j[FOLDER_FLAGS])
        text[end] = _SLASH
        if found >= 0:
            c_close(found)
            return False
        if link >= 0:
            return True


@part
def read_range(context: int, descriptor: int, target: int, nbytes: int, offset: int) -> int:
    """Read exactly ``nbytes``; return a status."""
    c = i64(context)
    done = 0
    while done < nbytes:
        got = c_pread(descriptor, target + done, nbytes - done, offset + done)
        if got < 0:
            code = i64(c_errno())[0] & 0xFFFFFFFF
            if code == _EINTR:
                continue
            c[C.DETAIL] = code
            return S.ABSENT if code == _EISDIR else S.IO_ERROR
        if got == 0:
            c[C.DETAIL] = done
            return S.SHORT_READ
        done += got
    return S.OK


@part
def _place(job: int, context: int, chunk: int, address: int, fill: int, scratch: int) -> None:
    """Place the pieces of a decoded chunk, or of the fill element."""
    j = i64(job)
    c = i64(context)
    geometry = j[GEOMETRY]
    g = i64(geometry)
    offsets = i64(j[PIECE_OFFSETS])
    swap = 0 if fill else g[G.SWAP]
    # The fill element has the data type of the output.
    conversion = 0 if fill else g[G.CONVERSION]
    strides = j[ZERO_STRIDES] if fill else g[G.SOURCE_STRIDES]
    base = address if fill else address + g[G.FIELD_OFFSET]
    typesize = 1 if fill else c[C.TYPESIZE]
    for piece in range(offsets[chunk], offsets[chunk + 1]):
        if g[G.POINT_SOURCE] != 0:
            k = g[G.K]
            first = i64(g[G.START] + 8 * k * piece)[0]
            count = i64(g[G.COUNT] + 8 * k * piece)[0]
            place_points(geometry, first, count, base, 0 if fill else 1, swap, conversion, scratch)
        else:
            nbytes = j[CHUNK_NBYTES]
            place_piece(
                geometry, piece, base, nbytes, strides, typesize, c[C.BLOCKSIZE], swap, conversion, scratch
            )  # fmt: skip


@part
def _box_nbytes(geometry: int, count: int, first: int) -> int:
    """Return the bytes that a box spans along its dimensions from the ``first`` in memory order on."""
    g = i64(geometry)
    nbytes = g[G.SOURCE_ITEMSIZE]
    for q in range(first, g[G.K]):
        d = i64(g[G.ORDER])[q]
        nbytes += (i64(count)[d] - 1) * i64(g[G.STEP])[d] * i64(g[G.SOURCE_STRIDES])[d]
    return nbytes


@part
def _is_box(geometry: int) -> bool:
    """Return whether pieces are boxes, with one step along each dimension."""
    g = i64(geometry)
    for d in range(g[G.K]):
        if i64(g[G.TABLE_SOURCE])[d] != 0:
            return False
    return True


@part
def _read_slabs(job: int, context: int, chunk: int, descriptor: int, worker: int) -> int:
    """Read and place an uncompressed chunk that is one box, a slab of ``SLAB_BYTES`` at a time; return a status.

    A slab is placed as a piece of a separate geometry, which overwrites the worker's path.
    """
    j = i64(job)
    c = i64(context)
    g = i64(j[GEOMETRY])
    k = g[G.K]
    piece = i64(j[PIECE_OFFSETS])[chunk]
    scratch = worker + PATHS_BYTES
    column = 8 * k
    start = worker + 8 * G.SIZE
    count = start + column
    target = count + column
    at = target + column
    output = at + column
    copy(worker, j[GEOMETRY], 8 * G.SIZE)
    copy(start, g[G.START] + column * piece, column)
    copy(count, g[G.COUNT] + column * piece, column)
    copy(target, g[G.TARGET] + column * piece, column)
    i64(output)[0] = i64(g[G.OUTPUT])[piece]
    slab = i64(worker)
    slab[G.START] = start
    slab[G.COUNT] = count
    slab[G.TARGET] = target
    slab[G.OUTPUT] = output
    # A slab has one index of each dimension before ``cut``, several indices of ``cut``, and all of those after it.
    cut = k - 1
    while cut > 0 and _box_nbytes(worker, count, cut) <= SLAB_BYTES:
        cut -= 1
    order = i64(g[G.ORDER])
    stride = i64(g[G.SOURCE_STRIDES])
    step = i64(g[G.STEP])
    along = order[cut]
    apart = step[along] * stride[along]
    inner = _box_nbytes(worker, count, cut + 1)
    # Large gaps between wanted bytes are not read.
    most = max((SLAB_BYTES - inner) // apart + 1, 1) if apart - inner < GAP_BYTES else 1
    whole = i64(count)[along]
    for q in range(cut + 1):
        d = order[q]
        i64(at)[d] = 0
        i64(count)[d] = 1
    i64(count)[along] = min(most, whole)
    buffer = ensure(context, C.ENCODED, _box_nbytes(worker, count, cut))
    if buffer == 0:
        return S.NO_MEMORY
    first_start = i64(g[G.START] + column * piece)
    first_target = i64(g[G.TARGET] + column * piece)
    sizes = i64(g[G.COUNT] + column * piece)
    while True:
        i64(count)[along] = min(most, whole - i64(at)[along])
        low = g[G.FIELD_OFFSET]
        for d in range(k):
            low += i64(start)[d] * stride[d]
        nbytes = _box_nbytes(worker, count, cut)
        begun = now(context)
        code = read_range(context, descriptor, buffer, nbytes, low)
        if code != S.OK:
            return code
        done = now(context)
        place_piece(
            worker,
            0,
            buffer - low + g[G.FIELD_OFFSET],
            j[CHUNK_NBYTES],
            g[G.SOURCE_STRIDES],
            1,
            0,
            g[G.SWAP],
            g[G.CONVERSION],
            scratch,
        )
        c[C.READ_NS] += done - begun
        c[C.PLACE_NS] += now(context) - done
        c[C.ENCODED_BYTES] += nbytes
        q = cut
        while q >= 0:
            d = order[q]
            i64(at)[d] += most if q == cut else 1
            if i64(at)[d] < sizes[d]:
                break
            i64(at)[d] = 0
            i64(start)[d] = first_start[d]
            i64(target)[d] = first_target[d]
            q -= 1
        if q < 0:
            return S.OK
        d = order[q]
        i64(start)[d] = first_start[d] + i64(at)[d] * step[d]
        i64(target)[d] = first_target[d] + i64(at)[d]


@part
def _finish(
    job: int, context: int, chunk: int, source: int, nbytes: int, direct: int, planes: int, scratch: int
) -> int:
    """Decode and place one chunk whose encoded bytes are in memory; return a status."""
    j = i64(job)
    c = i64(context)
    g = i64(j[GEOMETRY])
    offsets = i64(j[PIECE_OFFSETS])
    first = offsets[chunk]
    # For a point selection or a whole chunk, everything is decoded.
    last = 0 if direct != 0 or g[G.POINT_SOURCE] != 0 else offsets[chunk + 1]
    begun = now(context)
    code = decode_chunk(
        context,
        j[PROGRAM],
        j[OPERATIONS],
        source,
        nbytes,
        j[CHUNK_NBYTES],
        direct,
        planes,
        j[GEOMETRY],
        first,
        last,
        scratch,
    )
    decoded = now(context)
    c[C.DECODE_NS] += decoded - begun
    c[C.ENCODED_BYTES] += nbytes
    c[C.CHUNKS] += 1
    if code != S.OK:
        return code
    if c[C.RESULT] != direct or direct == 0:
        _place(job, context, chunk, c[C.RESULT], 0, scratch)
    c[C.PLACE_NS] += now(context) - decoded
    return S.OK


@part
def _file_chunk(job: int, context: int, chunk: int, worker: int) -> int:
    """Read, decode and place a chunk that is a whole file; return a status."""
    j = i64(job)
    c = i64(context)
    g = i64(j[GEOMETRY])
    scratch = worker + PATHS_BYTES
    offsets = i64(j[PIECE_OFFSETS])
    first = offsets[chunk]
    last = offsets[chunk + 1]
    begun = now(context)
    descriptor = open_chunk(job, context, chunk, worker)
    if descriptor < 0:
        return c[C.OUT0]
    size = c_lseek(descriptor, 0, 2)
    c[C.DETAIL] = size
    if size < 0 or size > j[MOST_ENCODED]:
        # Seeking to the end of a directory gives an error or a meaningless number; reading it gives the error.
        code = read_range(context, descriptor, context + 8 * C.OUT0, 1, 0)
        c_close(descriptor)
        if code != S.OK:
            return code
        c[C.DETAIL] = size
        return S.TOO_LARGE
    points = g[G.POINT_SOURCE] != 0
    direct = 0
    planes = 0
    if not points:
        if last == first + 1 and g[G.SWAP] == 0:
            direct = dense_target(j[GEOMETRY], first)
        if direct == 0 and dense_rows(j[GEOMETRY], first, last):
            planes = g[G.ITEMSIZE]
    if j[OPERATIONS] == 0:
        # Uncompressed: read only the wanted bytes, directly to their destination if the layout is the same.
        if size != j[CHUNK_NBYTES]:
            code = read_range(context, descriptor, context + 8 * C.OUT0, min(size, 1), 0)
            c_close(descriptor)
            c[C.DETAIL] = size if code == S.OK else c[C.DETAIL]
            return S.WRONG_SIZE if code == S.OK else code
        low = 0
        high = size
        if direct == 0 and not points:
            c[C.OUT0] = size
            c[C.OUT1] = 0
            for piece in range(first, last):
                extent_of_piece(j[GEOMETRY], piece, context + 8 * C.OUT0, context + 8 * C.OUT1)
            low = c[C.OUT0]
            high = c[C.OUT1]
            if high - low > max(SLAB_BYTES, g[G.SOURCE_ITEMSIZE]) and last == first + 1 and _is_box(j[GEOMETRY]):
                c[C.READ_NS] += now(context) - begun
                c[C.CHUNKS] += 1
                code = _read_slabs(job, context, chunk, descriptor, worker)
                c_close(descriptor)
                return code
        target = direct
        if direct == 0:
            target = ensure(context, C.ENCODED, high - low)
        if target == 0:
            c_close(descriptor)
            return S.NO_MEMORY
        code = read_range(context, descriptor, target, high - low, low)
        c_close(descriptor)
        if code != S.OK:
            return code
        done = now(context)
        c[C.READ_NS] += done - begun
        c[C.ENCODED_BYTES] += high - low
        c[C.CHUNKS] += 1
        if direct == 0:
            c[C.TYPESIZE] = 1
            _place(job, context, chunk, target - low, 0, scratch)
        c[C.PLACE_NS] += now(context) - done
        return S.OK
    buffer = ensure(context, C.ENCODED, size + 64)
    if buffer == 0:
        c_close(descriptor)
        return S.NO_MEMORY
    code = read_range(context, descriptor, buffer, size, 0)
    c_close(descriptor)
    if code != S.OK:
        return code
    c[C.READ_NS] += now(context) - begun
    return _finish(job, context, chunk, buffer, size, direct, planes, scratch)


@part
def _memory_chunk(job: int, context: int, chunk: int, source: int, nbytes: int, scratch: int) -> int:
    """Decode and place a chunk whose encoded bytes are in memory; return a status."""
    j = i64(job)
    g = i64(j[GEOMETRY])
    offsets = i64(j[PIECE_OFFSETS])
    first = offsets[chunk]
    last = offsets[chunk + 1]
    if nbytes > j[MOST_ENCODED]:
        i64(context)[C.DETAIL] = nbytes
        return S.TOO_LARGE
    direct = 0
    planes = 0
    if g[G.POINT_SOURCE] == 0:
        # Without operations nothing is decoded, and placing does the copy.
        if last == first + 1 and g[G.SWAP] == 0 and j[OPERATIONS] > 0:
            direct = dense_target(j[GEOMETRY], first)
        if direct == 0 and dense_rows(j[GEOMETRY], first, last):
            planes = g[G.ITEMSIZE]
    return _finish(job, context, chunk, source, nbytes, direct, planes, scratch)


@part
def open_span(job: int, context: int, file: int) -> int:
    """Open ``file`` as the worker's descriptor unless it is open already; return a status."""
    j = i64(job)
    c = i64(context)
    if c[C.DESCRIPTOR] >= 0 and c[C.FILE] == file:
        return S.OK
    if c[C.DESCRIPTOR] >= 0:
        c_close(c[C.DESCRIPTOR])
        c[C.DESCRIPTOR] = -1
    descriptor = open_file(job, context, j[PATHS] + i64(j[PATH_OFFSETS])[file])
    if descriptor < 0:
        return c[C.OUT0]
    c[C.DESCRIPTOR] = descriptor
    c[C.FILE] = file
    return S.OK


@part
def _note(job: int, context: int, chunk: int, code: int) -> int:
    """Write a chunk's status; return whether the worker should stop."""
    j = i64(job)
    if code == S.OK:
        return 0
    i64(j[STATUS])[2 * chunk] = code
    i64(j[STATUS])[2 * chunk + 1] = i64(context)[C.DETAIL]
    if code == S.ABSENT and j[FILL] != 0:
        return 0
    i64(j[SHARED])[1] = 1
    return 1


@entry(3)
def work(job: int, context: int, worker: int) -> None:
    """Take spans of ``job`` until none are left, any worker has failed, or the context's time limit has passed.

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
    scratch = worker + PATHS_BYTES
    mode = j[MODE]
    c[C.DESCRIPTOR] = -1
    stop = 0
    end = slice_end(context)
    # If two workers touch a new page at the same moment, the system zeroes a page for each, one of them in vain.
    # Neighbouring chunks share most of their pages.
    done = 0
    while done < j[NEW_NBYTES] and atomic_load(j[SHARED] + 8) == 0:
        if end > 0 and now(context) > end:
            return
        done = atomic_add(j[SHARED] + 16, HUGE_PAGE_BYTES)
        if done < j[NEW_NBYTES]:
            # If it fails, pages are populated when they are written to.
            c_madvise(j[NEW] + done, min(j[NEW_NBYTES] - done, HUGE_PAGE_BYTES), _POPULATE_WRITE)
    while stop == 0 and atomic_load(j[SHARED] + 8) == 0:
        if end > 0 and now(context) > end:
            break
        span = atomic_add(j[SHARED], 1)
        if span >= j[SPANS]:
            break
        if mode == MODE_FILES:
            code = _file_chunk(job, context, span, worker)
            if code == S.ABSENT and j[FILL] != 0:
                _place(job, context, span, j[FILL], 1, scratch)
            stop = _note(job, context, span, code)
            continue
        first_row = span
        last_row = span + 1
        buffer = 0
        code = S.OK
        offset = 0
        nbytes = 0
        if mode == MODE_RANGES:
            first_row = i64(j[SPAN_ROWS])[span]
            last_row = i64(j[SPAN_ROWS])[span + 1]
            nbytes = i64(j[SPAN_NBYTES])[span]
            offset = i64(j[SPAN_OFFSET])[span]
            if nbytes > 0:
                begun = now(context)
                code = open_span(job, context, i64(j[SPAN_FILE])[span])
                if code == S.OK:
                    buffer = ensure(context, C.ENCODED, nbytes + 64)
                    if buffer == 0:
                        code = S.NO_MEMORY
                    else:
                        code = read_range(context, c[C.DESCRIPTOR], buffer, nbytes, offset)
                if code == S.ABSENT:
                    # The index was read a moment ago: a shard that is gone now is a failed read, not an absent chunk.
                    c[C.DETAIL] = _ENOENT
                    code = S.IO_ERROR
                if code == S.SHORT_READ:
                    # Chunks before the file's end are complete; only those beyond it fail.
                    nbytes = c[C.DETAIL]
                c[C.READ_NS] += now(context) - begun
        for row in range(first_row, last_row):
            chunk = row
            if j[CHUNK_ROWS] != 0:
                chunk = i64(j[CHUNK_ROWS])[row]
            size = i64(j[NBYTES])[chunk]
            where = i64(j[WHERE])[chunk]
            outcome = code
            if size < 0:
                outcome = S.ABSENT
                if j[FILL] != 0:
                    _place(job, context, chunk, j[FILL], 1, scratch)
            elif mode == MODE_MEMORY:
                outcome = _memory_chunk(job, context, chunk, where, size, scratch)
            elif code == S.OK or (code == S.SHORT_READ and where + size - offset <= nbytes):
                outcome = _memory_chunk(job, context, chunk, buffer + where - offset, size, scratch)
            stop = _note(job, context, chunk, outcome)
            if stop != 0:
                break
    fence()
    if c[C.DESCRIPTOR] >= 0:
        c_close(c[C.DESCRIPTOR])
        c[C.DESCRIPTOR] = -1
