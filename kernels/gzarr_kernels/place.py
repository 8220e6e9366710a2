"""Placement of a decoded chunk in the output: pieces (``slots/geometry.py``) are copied in as few moves as possible.

A decoded chunk is plain (``typesize`` 1: elements in the chunk's memory order) or still shuffled, block by block
(``typesize`` > 1: then rows are dense on both sides, and the unshuffle writes directly into the output).
"""

from __future__ import annotations

from typing import Final

from numba import types

from .convert import convert_rows
from .elements import copy_rows
from .jit import part, unit
from .memory import i64, u8
from .shuffle import unshuffle_rows
from .slots import geometry as G
from .slots.scratch import COLUMN_BYTES, TILE_SCRATCH
from .transpose import copy_tile

#: Least number of elements of a chunk's row for which picking single elements is worthwhile.
_LEAST_ROW: Final = 16


@part
def place_element(geometry: int, source: int, target: int, swap: int, conversion: int, scratch: int) -> None:
    """Copy or convert one element; arguments as of :func:`place_piece`."""
    g = i64(geometry)
    itemsize = g[G.ITEMSIZE]
    if conversion == 0:
        copy_rows(source, 0, itemsize, target, 0, itemsize, 1, 1, itemsize, swap, 0)
    else:
        own = g[G.SOURCE_ITEMSIZE]
        convert_rows(
            source, 0, own, target, 0, itemsize, 1, 1, conversion, own, itemsize, swap, scratch + TILE_SCRATCH, 0
        )


@unit(types.void, 10)
def place_piece(
    geometry: int,
    piece: int,
    chunk: int,
    nbytes: int,
    strides: int,
    typesize: int,
    blocksize: int,
    swap: int,
    conversion: int,
    scratch: int,
) -> None:
    """Copy one piece.

    Parameters
    ----------
    geometry
        Address of a ``slots/geometry.py`` array.
    piece
        Row of its piece columns.
    chunk, nbytes
        Address and size of the decoded chunk (or of one fill element, with all ``strides`` 0).
    strides
        Address of int64 (k,): strides of the decoded chunk in bytes.
    typesize, blocksize
        Element size and block size of shuffled blocks, in bytes; 1 and any number for a plain chunk.
    swap
        Width of the units to byte-swap, in bytes, or 0.
    conversion
        Number of the conversion of the elements of a plain chunk, or 0.
    scratch
        Address of ``slots.scratch.SCRATCH_BYTES`` bytes.
    """
    g = i64(geometry)
    k = g[G.K]
    itemsize = g[G.ITEMSIZE]
    stream = g[G.STREAM]
    start = i64(g[G.START] + 8 * k * piece)
    count = i64(g[G.COUNT] + 8 * k * piece)
    first_target = i64(g[G.TARGET] + 8 * k * piece)
    output = i64(g[G.OUTPUT])[piece]
    step = i64(g[G.STEP])
    source_stride = i64(strides)
    target_stride = i64(g[G.TARGET_STRIDES] + 8 * k * output)
    table_source = i64(g[G.TABLE_SOURCE])
    table_target = i64(g[G.TABLE_TARGET])
    order = i64(g[G.ORDER])
    size = i64(scratch)
    by_source = i64(scratch + COLUMN_BYTES)
    by_target = i64(scratch + 2 * COLUMN_BYTES)
    at = i64(scratch + 3 * COLUMN_BYTES)
    rows_source = i64(scratch + 4 * COLUMN_BYTES)
    rows_target = i64(scratch + 5 * COLUMN_BYTES)

    # The loops, slowest first: dimensions of one element become offsets, contiguous neighbours are joined.
    source = 0
    target = i64(g[G.BASES])[output]
    loops = 0
    for q in range(k):
        d = order[q]
        c = count[d]
        if table_source[d] != 0:
            from_rows = table_source[d] + 8 * start[d]
            to_rows = table_target[d] + 8 * start[d]
            if c == 1:
                source += i64(from_rows)[0] * source_stride[d]
                target += i64(to_rows)[0] * target_stride[d]
            else:
                size[loops] = c
                by_source[loops] = source_stride[d]
                by_target[loops] = target_stride[d]
                rows_source[loops] = from_rows
                rows_target[loops] = to_rows
                loops += 1
            continue
        source += start[d] * source_stride[d]
        target += first_target[d] * target_stride[d]
        # Rows of shuffled blocks are always along the fastest dimension, even if they have one element.
        if c == 1 and (typesize == 1 or q < k - 1):
            continue
        s = source_stride[d] * step[d]
        t = target_stride[d]
        if (
            loops > 0
            and rows_source[loops - 1] == 0
            and by_source[loops - 1] == s * c
            and by_target[loops - 1] == t * c
        ):
            size[loops - 1] *= c
            by_source[loops - 1] = s
            by_target[loops - 1] = t
        else:
            size[loops] = c
            by_source[loops] = s
            by_target[loops] = t
            rows_source[loops] = 0
            rows_target[loops] = 0
            loops += 1

    # The innermost two loops are one call; the others run here.
    if loops == 0:
        size[0] = 1
        by_source[0] = itemsize
        by_target[0] = itemsize
        rows_source[0] = 0
        loops = 1
    inner = loops - 1
    partner = -1
    tiled = False
    if rows_source[inner] == 0:
        if typesize == 1 and by_target[inner] != itemsize and conversion == 0:
            for q in range(inner):
                if rows_source[q] == 0 and by_target[q] == itemsize:
                    partner = q
                    tiled = True
        if partner < 0 and inner > 0 and rows_source[inner - 1] == 0:
            partner = inner - 1
    n = size[inner]
    rows = size[partner] if partner >= 0 else 1
    row_source = by_source[partner] if partner >= 0 else 0
    row_target = by_target[partner] if partner >= 0 else 0
    for q in range(loops):
        at[q] = 0
    while True:
        s = source
        t = target
        for q in range(inner):
            if q == partner:
                continue
            if rows_source[q] != 0:
                s += i64(rows_source[q])[at[q]] * by_source[q]
                t += i64(rows_target[q])[at[q]] * by_target[q]
            else:
                s += at[q] * by_source[q]
                t += at[q] * by_target[q]
        if typesize > 1:
            unshuffle_rows(chunk, nbytes, blocksize, s, row_source, t, row_target, rows, n, typesize, swap, stream)
        elif conversion != 0 and rows_source[inner] == 0:
            convert_rows(
                chunk + s,
                row_source,
                by_source[inner],
                t,
                row_target,
                by_target[inner],
                rows,
                n,
                conversion,
                g[G.SOURCE_ITEMSIZE],
                itemsize,
                swap,
                scratch + TILE_SCRATCH,
                stream,
            )
        elif rows_source[inner] != 0:
            from_table = i64(rows_source[inner])
            to_table = i64(rows_target[inner])
            for j in range(n):
                a = chunk + s + from_table[j] * by_source[inner]
                b = t + to_table[j] * by_target[inner]
                place_element(geometry, a, b, swap, conversion, scratch)
        elif tiled:
            copy_tile(
                chunk + s,
                by_source[inner],
                row_source,
                t,
                by_target[inner],
                row_target,
                n,
                rows,
                itemsize,
                swap,
                scratch + TILE_SCRATCH,
                stream,
                0,
            )
        else:
            copy_rows(
                chunk + s,
                row_source,
                by_source[inner],
                t,
                row_target,
                by_target[inner],
                rows,
                n,
                itemsize,
                swap,
                stream,
            )
        q = inner - 1
        while q >= 0:
            if q != partner:
                at[q] += 1
                if at[q] < size[q]:
                    break
                at[q] = 0
            q -= 1
        if q < 0:
            return


@part
def place_points(
    geometry: int, first: int, count: int, chunk: int, source_scale: int, swap: int, conversion: int, scratch: int
) -> None:
    """Copy ``count`` points of a plain chunk (``source_scale`` 1) or of a fill element (0)."""
    g = i64(geometry)
    source = i64(g[G.POINT_SOURCE])
    target = i64(g[G.POINT_TARGET])
    for p in range(first, first + count):
        place_element(geometry, chunk + source[p] * source_scale, target[p], swap, conversion, scratch)


@part
def dense_target(geometry: int, piece: int) -> int:
    """Return the address of a piece in the output if it is the whole chunk in its own memory order, else 0."""
    g = i64(geometry)
    k = g[G.K]
    itemsize = g[G.ITEMSIZE]
    start = i64(g[G.START] + 8 * k * piece)
    count = i64(g[G.COUNT] + 8 * k * piece)
    first_target = i64(g[G.TARGET] + 8 * k * piece)
    output = i64(g[G.OUTPUT])[piece]
    shape = i64(g[G.CHUNK_SHAPE])
    step = i64(g[G.STEP])
    stride = i64(g[G.TARGET_STRIDES] + 8 * k * output)
    table = i64(g[G.TABLE_SOURCE])
    order = i64(g[G.ORDER])
    target = i64(g[G.BASES])[output]
    # A field is smaller than a stored element.
    if g[G.CONVERSION] != 0 or i64(g[G.SOURCE_STRIDES])[order[k - 1]] != itemsize:
        return 0
    expected = itemsize
    for q in range(k - 1, -1, -1):
        d = order[q]
        if table[d] != 0 or step[d] != 1 or start[d] != 0 or count[d] != shape[d]:
            return 0
        if count[d] > 1 and stride[d] != expected:
            return 0
        expected *= count[d]
        target += first_target[d] * stride[d]
    return target


@part
def dense_rows(geometry: int, first: int, last: int) -> bool:
    """Return whether pieces ``first`` … ``last - 1`` are best unshuffled row by row, directly into the output.

    They are not if there are several: unshuffling the chunk once and copying rows is then faster (measured). Nor are
    rows shorter than a vector, except for one element of each long row: picking its bytes is faster than unshuffling
    the whole row.
    """
    g = i64(geometry)
    if g[G.DENSE_ROWS] == 0 or last > first + 1:
        return False
    k = g[G.K]
    d = i64(g[G.ORDER])[k - 1]
    n = i64(g[G.COUNT] + 8 * k * first)[d]
    if n == 1 and i64(g[G.CHUNK_SHAPE])[d] >= _LEAST_ROW:
        return True
    return g[G.DENSE_ROWS] == G.ANY_ROWS and n * g[G.ITEMSIZE] >= 16


@part
def mark_piece(geometry: int, piece: int, blocksize: int, needed: int, scratch: int) -> None:
    """Set byte ``b`` of ``needed`` for each block ``b`` of ``blocksize`` bytes that the piece touches."""
    g = i64(geometry)
    k = g[G.K]
    itemsize = g[G.SOURCE_ITEMSIZE]
    start = i64(g[G.START] + 8 * k * piece)
    count = i64(g[G.COUNT] + 8 * k * piece)
    step = i64(g[G.STEP])
    stride = i64(g[G.SOURCE_STRIDES])
    table = i64(g[G.TABLE_SOURCE])
    order = i64(g[G.ORDER])
    at = i64(scratch)
    flags = u8(needed)
    for q in range(k):
        at[q] = 0
    inner = order[k - 1]
    while True:
        s = g[G.FIELD_OFFSET]
        for q in range(k - 1):
            d = order[q]
            if table[d] != 0:
                s += i64(table[d])[start[d] + at[q]] * stride[d]
            else:
                s += (start[d] + at[q] * step[d]) * stride[d]
        if table[inner] != 0:
            for j in range(count[inner]):
                a = s + i64(table[inner])[start[inner] + j] * stride[inner]
                for b in range(a // blocksize, (a + itemsize - 1) // blocksize + 1):
                    flags[b] = 1
        else:
            a = s + start[inner] * stride[inner]
            z = a + (count[inner] - 1) * step[inner] * stride[inner] + itemsize - 1
            for b in range(a // blocksize, z // blocksize + 1):
                flags[b] = 1
        q = k - 2
        while q >= 0:
            at[q] += 1
            if at[q] < count[order[q]]:
                break
            at[q] = 0
            q -= 1
        if q < 0:
            return


@part
def extent_of_piece(geometry: int, piece: int, low: int, high: int) -> None:
    """Extend the byte range (int64 at addresses ``low`` and ``high``) to include the piece's bytes in its chunk."""
    g = i64(geometry)
    k = g[G.K]
    start = i64(g[G.START] + 8 * k * piece)
    count = i64(g[G.COUNT] + 8 * k * piece)
    step = i64(g[G.STEP])
    stride = i64(g[G.SOURCE_STRIDES])
    table = i64(g[G.TABLE_SOURCE])
    a = g[G.FIELD_OFFSET]
    z = a + g[G.SOURCE_ITEMSIZE]
    for d in range(k):
        if table[d] != 0:
            rows = i64(table[d] + 8 * start[d])
            least = rows[0]
            most = rows[0]
            for j in range(1, count[d]):
                least = min(least, rows[j])
                most = max(most, rows[j])
        else:
            least = start[d]
            most = start[d] + (count[d] - 1) * step[d]
        a += least * stride[d]
        z += most * stride[d]
    if a < i64(low)[0]:
        i64(low)[0] = a
    if z > i64(high)[0]:
        i64(high)[0] = z
