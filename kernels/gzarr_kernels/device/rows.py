"""From decoded chunks to results where neighbours in both are neighbours: 16 bytes a thread.

What :mod:`assemble` does element by element, for pieces that are rows: runs of bytes which lie as they are, or in byte
planes, in the chunk, and one after the other in the results. A row is cut at multiples of 16 bytes of the results into
*units*; a thread writes one at a time, whole where it is all of the row, and the first and the last in parts. The units
of a piece are cut into tiles; a block takes a tile at a time. From unit to unit a thread finds the row by adding, up to
two dimensions above it; it divides where these end, and where tables of indices say which rows come.

What the kernels are told is trusted: whoever makes the columns has checked them against the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from numba import cuda, int32, int64, uint32, uint64

from .addressing import get, get_byte, search, swap_in_word
from .target import THREADS, blocks, body, kernel, raw
from .words import divide, load2, load4, load8, load16, store2, store4, store8, store16

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "blocks", "place_planes", "place_rows", "tile_of"]

#: Units of a tile, at least and at most. A thread is told once a tile what there is to know of a piece, so large ones
#: cost less; of small ones, there are enough for all multiprocessors.
LEAST_TILE: Final = 1024
MOST_TILE: Final = 8192
#: Tiles of a launch that are enough.
ENOUGH_TILES: Final = 2048
#: Units of a piece, and bytes of a chunk, are below this, so that what a step adds to them is still of 31 bits.
LIMIT: Final = 1 << 30
#: Bytes of the elements of byte planes that there is a way for.
TYPESIZES: Final = (2, 4, 8, 16)

# The header: int64 at index ``job`` of the columns.
#: Width of the units to swap less one: 0, 1, 3 or 7. They lie at multiples of their width in the results.
FLIP: Final = 0
#: Bytes by which the results' memory begins behind a multiple of 16.
SKEW: Final = 1
#: Bytes of an element of the results, and of a decoded chunk.
ITEMSIZE: Final = 2
NBYTES: Final = 3
#: Number of pieces, and of the tiles of all.
PIECES: Final = 4
TILES: Final = 5
#: Units of a tile; :func:`tile_of` says how many.
TILE: Final = 6
#: Where the column (P + 1,) of the tiles before each piece begins.
TILE_OFFSETS: Final = 7
#: Number of dimensions above the row, at least 2; where the columns (P, FIELDS + DIM_FIELDS * DIMS) of pieces begin.
DIMS: Final = 8
RECORDS: Final = 9
#: Words of the header.
SIZE: Final = 10

# What there is to know of a piece.
#: Byte offset of the decoded chunk. Of an absent one, of the element that it holds everywhere, repeated for 15 bytes
#: more.
SOURCE: Final = 0
#: In the chunk, byte of the first element; in the results, byte at which it goes.
FROM: Final = 1
TO: Final = 2
#: 0 for plain bytes; above it, byte planes of ``1 << SHIFT`` bytes a block; -1 for an absent chunk.
SHIFT: Final = 3
#: Bytes of a block. The last one is what is left, and in planes of its own length.
BLOCKSIZE: Final = 4
#: Bytes of a row; units of a row, at most; units of all rows.
ROW: Final = 5
ROW_UNITS: Final = 6
UNITS: Final = 7
#: Up to which index rows of the second dimension above the row are reached by adding: 0 where that or the first one has
#: tables, else its count.
ADDED: Final = 8
FIELDS: Final = 9

# And behind that of each dimension above the row, the one next to it first.
#: How many; bytes between neighbours in the chunk, in the output (of any sign).
COUNT: Final = 0
BY_SOURCE: Final = 1
BY_TARGET: Final = 2
#: Where in ``tables`` the indices begin; -1 for none.
TABLE_SOURCE: Final = 3
TABLE_TARGET: Final = 4
DIM_FIELDS: Final = 5


def tile_of(units: int) -> int:
    """Return how many units to make a tile where there are so many in all."""
    return max(LEAST_TILE, min(units // ENOUGH_TILES // THREADS * THREADS, MOST_TILE))


@body
def _row_start(columns: Column, tables: Column, dims: int, record: int, row: int) -> tuple[int, int]:
    """Return where a row of a piece begins, in bytes: in the chunk and in the results."""
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
    """Return bytes ``first`` to ``end`` of the 16 at ``source``, as two words; what else they hold means nothing.

    Only words that hold one of these bytes are read. ``whole`` says that they are all.
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
    # In two steps: no word can be shifted by 64 bits.
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
    """Return the bytes of two uint32 in turn."""
    even, odd = _exchange(even, odd, 16, uint32(0xFFFF))
    return _word(_middle(even), _middle(odd))


@body
def _load_8(arena: Bytes, at: int) -> Any:
    """Return 8 bytes from anywhere."""
    lead = at & 7
    value = load8(arena, at - lead)
    if lead:
        value = value >> uint64(8 * lead) | load8(arena, at - lead + 8) << uint64(64 - 8 * lead)
    return value


@body
def _load_4(arena: Bytes, at: int) -> Any:
    """Return 4 bytes from anywhere, as uint32."""
    lead = at & 3
    value = load4(arena, at - lead)
    if lead:
        value = (value | load4(arena, at - lead + 4) << uint64(32)) >> uint64(8 * lead)
    return uint32(value)


@body
def _load_2(arena: Bytes, at: int) -> Any:
    """Return 2 bytes from anywhere, as uint32."""
    if at & 1:
        return uint32(get_byte(arena, at) | get_byte(arena, at + 1) << uint64(8))
    return uint32(load2(arena, at))


@body
def _planes_unit(
    arena: Bytes, chunk: int, i: int, first: int, end: int, shift: int, blocksize: int, nbytes: int
) -> tuple[Any, Any]:
    """Return bytes ``i + first`` to ``i + end`` of the plain chunk, as ``_plain_unit`` does."""
    low = uint64(0)
    high = uint64(0)
    begin = int32(divide(int32(i + first), blocksize) * blocksize)
    plane = int32(min(blocksize, int32(nbytes - begin)) >> shift)
    inside = int32(i - begin)
    element = int32(inside >> shift)
    if inside < 0 or int32(element << shift) != inside or int32(inside + 16) > int32(plane << shift):
        # In two blocks, or of bytes behind the last whole element of one.
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
        # Of each four planes, two elements' halves.
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

    What is kept from unit to unit is of 32 bits where it can be: registers are what bounds the number of threads that
    run at a time.
    """
    near_dim = record + FIELDS
    far_dim = near_dim + DIM_FIELDS
    units = int32(get(columns, record + ROW_UNITS))
    here = int32(tile * get(columns, job + TILE))
    end = int32(min(here + get(columns, job + TILE), get(columns, record + UNITS)))
    here = int32(here + thread)

    # From one unit of the thread to its next: so many units and rows, the latter along the dimension next above the
    # row and, what is more, along the one above that.
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
        uint8, the memory of a wave, at a multiple of 16 bytes.
    columns
        The same memory as int64.
    tables
        int64, index tables.
    out
        uint8, the results' memory.
    job
        Where in ``columns`` the header is.
    """
    _place(
        raw(arena),
        raw(columns),
        raw(tables),
        raw(out),
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
        raw(arena),
        raw(columns),
        raw(tables),
        raw(out),
        job,
        cuda.blockIdx.x,
        cuda.gridDim.x,
        cuda.threadIdx.x,
        cuda.blockDim.x,
        True,
    )
