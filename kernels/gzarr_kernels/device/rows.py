"""Assembly of results from decoded chunks whose rows are contiguous in both: 16 bytes per thread.

This does for rows what :mod:`assemble` does element by element. A row is a run of bytes that is plain or in byte planes
in the chunk, and contiguous in the results. Rows are divided into *units* at multiples of 16 bytes of the results; a
thread writes one unit at a time, the first and last of a row possibly in parts. The units of a piece are divided into
tiles; a block takes one tile at a time. From unit to unit, a thread finds the row by addition along up to two
dimensions above it; it divides where these end, and where index tables select the rows.

The kernels trust their columns: their creator must have checked them against the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get, get_byte, search, swap_in_word
from .language import cuda, int32, int64, uint32, uint64
from .target import THREADS, blocks, body, kernel
from .words import divide, load2, load4, load8, load16, store2, store4, store8, store16

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "blocks", "place_planes", "place_rows", "tile_of"]

#: Least and most units of a tile. A thread reads the description of a piece once per tile, so large tiles cost less;
#: small tiles are numerous enough for all multiprocessors.
LEAST_TILE: Final = 1024
MOST_TILE: Final = 8192
#: A sufficient number of tiles for a launch.
ENOUGH_TILES: Final = 2048
#: Units of a piece and bytes of a chunk are below this, so that they still fit 31 bits after adding a step.
LIMIT: Final = 1 << 30
#: Supported element sizes of byte planes, in bytes.
TYPESIZES: Final = (2, 4, 8, 16)

# The header: int64 at index ``job`` of the columns.
#: Width of the units to swap minus one: 0, 1, 3 or 7. They are at multiples of their width in the results.
FLIP: Final = 0
#: Address of the results' memory modulo 16.
SKEW: Final = 1
#: Size in bytes of an element of the results, and of a decoded chunk.
ITEMSIZE: Final = 2
NBYTES: Final = 3
#: Number of pieces, and of all their tiles.
PIECES: Final = 4
TILES: Final = 5
#: Units of a tile (:func:`tile_of`).
TILE: Final = 6
#: Index of the column (P + 1,) of the tiles before each piece.
TILE_OFFSETS: Final = 7
#: Number of dimensions above the row, at least 2; index of the columns (P, FIELDS + DIM_FIELDS * DIMS) of pieces.
DIMS: Final = 8
RECORDS: Final = 9
#: Number of words of the header.
SIZE: Final = 10

# The record of a piece.
#: Byte offset of the decoded chunk; for an absent chunk, of the fill element, repeated for 15 more bytes.
SOURCE: Final = 0
#: Byte of the first element in the chunk; its byte in the results.
FROM: Final = 1
TO: Final = 2
#: 0 for plain bytes; above 0, byte planes of elements of ``1 << SHIFT`` bytes; -1 for an absent chunk.
SHIFT: Final = 3
#: Block size in bytes. The last block may be shorter, with planes of its own length.
BLOCKSIZE: Final = 4
#: Bytes of a row; most units of a row; units of all rows.
ROW: Final = 5
ROW_UNITS: Final = 6
UNITS: Final = 7
#: Index in the second dimension above the row up to which rows are reached by addition: 0 if it or the first has
#: tables, else its count.
ADDED: Final = 8
FIELDS: Final = 9

# Then, for each dimension above the row, the nearest first:
#: Count; strides in bytes in the chunk, and in the output (of any sign).
COUNT: Final = 0
BY_SOURCE: Final = 1
BY_TARGET: Final = 2
#: Index in ``tables`` of the first index; -1 for none.
TABLE_SOURCE: Final = 3
TABLE_TARGET: Final = 4
DIM_FIELDS: Final = 5


def tile_of(units: int) -> int:
    """Return the number of units per tile for this total number of units."""
    return max(LEAST_TILE, min(units // ENOUGH_TILES // THREADS * THREADS, MOST_TILE))


@body
def _row_start(columns: Column, tables: Column, dims: int, record: int, row: int) -> tuple[int, int]:
    """Return the start of a row of a piece in the chunk and in the results, in bytes."""
    source = get(columns, record + FROM)
    target = get(columns, record + TO)
    dim = record + FIELDS
    end = dim + DIM_FIELDS * dims
    left = row
    while dim < end:
        n = get(columns, dim + COUNT)
        rest = divide(left, n)
        j = left - rest * n
        left = rest
        to = j
        table = get(columns, dim + TABLE_SOURCE)
        if table >= 0:
            to = get(tables, get(columns, dim + TABLE_TARGET) + j)
            j = get(tables, table + j)
        source += j * get(columns, dim + BY_SOURCE)
        target += to * get(columns, dim + BY_TARGET)
        dim += DIM_FIELDS
    return source, target


@body
def _plain_unit(arena: Bytes, source: int, first: int, end: int, whole: bool) -> tuple[Any, Any]:
    """Return bytes ``first`` to ``end`` of the 16 at ``source``, as two words whose other bytes are undefined.

    Only words that contain one of these bytes are read. ``whole`` means all 16 bytes.
    """
    lead = source & 7
    at = source - lead
    if whole and source & 15 == 0:
        return load16(arena, at)
    shift = uint64(8 * lead)
    rest = uint64(63) - shift
    low = uint64(0)
    middle = uint64(0)
    high = uint64(0)
    if first < 8 - lead:
        low = load8(arena, at)
    if first < 16 - lead and end > 8 - lead:
        middle = load8(arena, at + 8)
    if end > 16 - lead:
        high = load8(arena, at + 16)
    # In two steps, because a word can't be shifted by 64 bits.
    return low >> shift | middle << uint64(1) << rest, middle >> shift | high << uint64(1) << rest


@body
def _exchange(a: Any, b: Any, shift: int, mask: Any) -> tuple[Any, Any]:
    """Exchange the bits ``mask << shift`` of one uint32 with the bits ``mask`` of another."""
    both = uint32((a >> uint32(shift) ^ b) & mask)
    return uint32(a ^ both << uint32(shift)), uint32(b ^ both)


@body
def _middle(a: Any) -> Any:
    """Exchange the two middle bytes of a uint32."""
    both = uint32((a ^ a >> uint32(8)) & uint32(0xFF00))
    return uint32(a ^ both ^ both << uint32(8))


@body
def _word(low: Any, high: Any) -> Any:
    """Return two uint32 as one uint64."""
    return uint64(low) | uint64(high) << uint64(32)


@body
def _pairs(even: Any, odd: Any) -> Any:
    """Return the interleaved bytes of two uint32."""
    even, odd = _exchange(even, odd, 16, uint32(0xFFFF))
    return _word(_middle(even), _middle(odd))


@body
def _load_8(arena: Bytes, at: int) -> Any:
    """Return 8 bytes from any offset."""
    lead = at & 7
    value = load8(arena, at - lead)
    if lead:
        value = value >> uint64(8 * lead) | load8(arena, at - lead + 8) << uint64(64 - 8 * lead)
    return value


@body
def _load_4(arena: Bytes, at: int) -> Any:
    """Return 4 bytes from any offset, as uint32."""
    lead = at & 3
    value = load4(arena, at - lead)
    if lead:
        value = (value | load4(arena, at - lead + 4) << uint64(32)) >> uint64(8 * lead)
    return uint32(value)


@body
def _load_2(arena: Bytes, at: int) -> Any:
    """Return 2 bytes from any offset, as uint32."""
    if at & 1:
        return uint32(get_byte(arena, at) | get_byte(arena, at + 1) << uint64(8))
    return uint32(load2(arena, at))


@body
def _planes_unit(
    arena: Bytes, chunk: int, i: int, first: int, end: int, shift: int, blocksize: int, nbytes: int
) -> tuple[Any, Any]:
    """Return bytes ``i + first`` to ``i + end`` of the plain chunk, like ``_plain_unit``."""
    low = uint64(0)
    high = uint64(0)
    begin = int32(divide(int32(i + first), blocksize) * blocksize)
    plane = int32(min(blocksize, int32(nbytes - begin)) >> shift)
    inside = int32(i - begin)
    element = int32(inside >> shift)
    if inside < 0 or int32(element << shift) != inside or int32(inside + 16) > int32(plane << shift):
        # The unit is in two blocks, or has bytes after the last whole element of one.
        inside = int32(inside + first)
        for b in range(first, end):
            if inside >= blocksize:
                inside = int32(inside - blocksize)
                begin = int32(begin + blocksize)
                plane = int32(min(blocksize, int32(nbytes - begin)) >> shift)
            at = int32(inside)
            element = int32(inside >> shift)
            if element < plane:
                at = int32((inside - (element << shift)) * plane + element)
            value = get_byte(arena, chunk + begin + at) << uint64(8 * (b & 7))
            if b < 8:
                low |= value
            else:
                high |= value
            inside = int32(inside + 1)
        return low, high
    source = chunk + begin + element
    if shift == 1:
        even = _load_8(arena, source)
        odd = _load_8(arena, source + plane)
        low = _pairs(uint32(even), uint32(odd))
        high = _pairs(uint32(even >> uint64(32)), uint32(odd >> uint64(32)))
    elif shift == 2:
        # Four rows of four bytes, transposed.
        a = _load_4(arena, source)
        b = _load_4(arena, source + plane)
        c = _load_4(arena, source + 2 * plane)
        d = _load_4(arena, source + 3 * plane)
        a, b = _exchange(a, b, 8, uint32(0xFF00FF))
        c, d = _exchange(c, d, 8, uint32(0xFF00FF))
        a, c = _exchange(a, c, 16, uint32(0xFFFF))
        b, d = _exchange(b, d, 16, uint32(0xFFFF))
        low = _word(a, b)
        high = _word(c, d)
    elif shift == 3:
        # Four planes at a time give one half of two elements.
        for half in range(2):
            a = _middle(_load_2(arena, source) | _load_2(arena, source + plane) << uint32(16))
            source += 2 * plane
            b = _middle(_load_2(arena, source) | _load_2(arena, source + plane) << uint32(16))
            source += 2 * plane
            a, b = _exchange(a, b, 16, uint32(0xFFFF))
            low |= uint64(a) << uint64(32 * half)
            high |= uint64(b) << uint64(32 * half)
    else:
        for p in range(8):
            low |= get_byte(arena, source) << uint64(8 * p)
            high |= get_byte(arena, source + 8 * plane) << uint64(8 * p)
            source += plane
    return low, high


@body
def _store_part(out: Bytes, at: int, low: Any, high: Any, first: int, end: int) -> None:
    """Write bytes ``first`` to ``end`` of a unit at ``at``, in the widest words that fit."""
    i = first
    while i < end:
        value = (low if i < 8 else high) >> uint64(8 * (i & 7))
        if i & 7 == 0 and i + 8 <= end:
            store8(out, at + i, value)
            i += 8
        elif i & 3 == 0 and i + 4 <= end:
            store4(out, at + i, value)
            i += 4
        elif i & 1 == 0 and i + 2 <= end:
            store2(out, at + i, value)
            i += 2
        else:
            out[uint64(at + i)] = value & uint64(255)
            i += 1


@body
def _place_tile(
    arena: Bytes,
    columns: Column,
    tables: Column,
    out: Bytes,
    job: int,
    record: int,
    tile: int,
    thread: int,
    threads: int,
    planes: bool,
) -> None:
    """Write a thread's part of tile ``tile`` of a piece.

    Values kept from unit to unit have 32 bits if possible: registers limit the number of concurrent threads.
    """
    near_dim = record + FIELDS
    far_dim = near_dim + DIM_FIELDS
    units = int32(get(columns, record + ROW_UNITS))
    here = int32(tile * get(columns, job + TILE))
    end = int32(min(here + get(columns, job + TILE), get(columns, record + UNITS)))
    here = int32(here + thread)

    # Steps from one unit of the thread to its next: units, and rows along the nearest dimension above the row and along
    # the one above that.
    near_count = int32(get(columns, near_dim + COUNT))
    added = int32(get(columns, record + ADDED))
    by_rows = int32(divide(threads, units))
    by_unit = int32(threads - by_rows * units)
    by_far = int32(divide(by_rows, near_count))
    by_near = int32(by_rows - by_far * near_count)
    step_source = int32(by_near * get(columns, near_dim + BY_SOURCE) + by_far * get(columns, far_dim + BY_SOURCE))
    step_target = by_near * get(columns, near_dim + BY_TARGET) + by_far * get(columns, far_dim + BY_TARGET)

    unit = int32(here - divide(here, units) * units)
    near = int32(0)
    far = added
    moved = True
    source = int32(0)
    target = 0
    while here < end:
        if moved and far >= added:
            row = divide(here, units)
            from_chunk, target = _row_start(columns, tables, get(columns, job + DIMS), record, row)
            source = int32(from_chunk)
            rest = divide(row, near_count)
            near = int32(row - rest * near_count)
            far = int32(rest - divide(rest, get(columns, far_dim + COUNT)) * get(columns, far_dim + COUNT))
        at = int32(16 * unit - ((target + get(columns, job + SKEW)) & 15))
        first = max(int32(0), int32(-at))
        last = min(int32(16), int32(get(columns, record + ROW) - at))
        if first < last:
            whole = int32(last - first) == 16
            chunk = get(columns, record + SOURCE)
            shift = get(columns, record + SHIFT)
            if planes:
                low, high = _planes_unit(
                    arena,
                    chunk,
                    int32(source + at),
                    first,
                    last,
                    int32(shift & 31),
                    int32(get(columns, record + BLOCKSIZE)),
                    int32(get(columns, job + NBYTES)),
                )
            else:
                begin = int64(source + at)
                if shift < 0:
                    itemsize = get(columns, job + ITEMSIZE)
                    begin = at + 16 * itemsize
                    begin -= divide(begin, itemsize) * itemsize
                low, high = _plain_unit(arena, chunk + begin, first, last, whole)
            flip = get(columns, job + FLIP)
            if flip > 0 and (planes or shift >= 0):
                low = swap_in_word(low, flip)
                high = swap_in_word(high, flip)
            if whole:
                store16(out, target + at, low, high)
            else:
                _store_part(out, target + at, low, high, first, last)

        here = int32(here + threads)
        unit = int32(unit + by_unit)
        near = int32(near + by_near)
        far = int32(far + by_far)
        source = int32(source + step_source)
        target += step_target
        moved = by_rows > 0
        if unit >= units:
            unit = int32(unit - units)
            near = int32(near + 1)
            source = int32(source + get(columns, near_dim + BY_SOURCE))
            target += get(columns, near_dim + BY_TARGET)
            moved = True
        if near >= near_count:
            near = int32(near - near_count)
            far = int32(far + 1)
            source = int32(source + get(columns, far_dim + BY_SOURCE) - near_count * get(columns, near_dim + BY_SOURCE))
            target += get(columns, far_dim + BY_TARGET) - near_count * get(columns, near_dim + BY_TARGET)


@body
def _place(
    arena: Bytes,
    columns: Column,
    tables: Column,
    out: Bytes,
    job: int,
    block: int,
    grid: int,
    thread: int,
    threads: int,
    planes: bool,
) -> None:
    """Write a thread's part of every ``grid``-th tile."""
    piece = 0
    tile = block
    while tile < get(columns, job + TILES):
        offsets = get(columns, job + TILE_OFFSETS)
        piece = search(columns, offsets, piece, get(columns, job + PIECES), tile)
        nth = tile - get(columns, offsets + piece)
        record = get(columns, job + RECORDS) + piece * (FIELDS + DIM_FIELDS * get(columns, job + DIMS))
        _place_tile(arena, columns, tables, out, job, record, nth, thread, threads, planes)
        tile += grid


@kernel(blocks=4)
def place_rows(arena: Bytes, columns: Column, tables: Column, out: Bytes, job: int) -> None:
    """Write the results of plain and of absent chunks.

    Launched with ``blocks(tiles)`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave, aligned to 16 bytes.
    columns
        The same memory as int64.
    tables
        int64, index tables.
    out
        uint8, memory of the results.
    job
        Index of the header in ``columns``.
    """
    _place(
        arena,
        columns,
        tables,
        out,
        job,
        cuda.blockIdx.x,
        cuda.gridDim.x,
        cuda.threadIdx.x,
        cuda.blockDim.x,
        False,
    )


@kernel(blocks=4)
def place_planes(arena: Bytes, columns: Column, tables: Column, out: Bytes, job: int) -> None:
    """Write the results of chunks in byte planes, of elements of 2, 4, 8 or 16 bytes.

    Parameters and launch: see :func:`place_rows`.
    """
    _place(
        arena,
        columns,
        tables,
        out,
        job,
        cuda.blockIdx.x,
        cuda.gridDim.x,
        cuda.threadIdx.x,
        cuda.blockDim.x,
        True,
    )
