"""Gathering of a chunk in its stored order from inputs: the pieces of ``slots/geometry.py`` in the reverse direction.

Here, a geometry's ``TARGET`` columns, ``BASES`` and ``TARGET_STRIDES`` give the origin of elements; strides of the
inputs may be 0 or negative. Pieces are boxes, without index tables or points; where they overlap, the last one wins.
"""

from __future__ import annotations

from numba import types

from .elements import copy_rows
from .jit import part, unit
from .memory import i64
from .slots import geometry as G
from .slots.scratch import COLUMN_BYTES, TILE_SCRATCH
from .symbols import c_memcmp
from .transpose import copy_tile


@part
def _within(first: int, step: int, low: int) -> int:
    """Return the least ``j`` of 0, 1, … with ``first + j * step >= low``."""
    return max(0, (low - first + step - 1) // step)


@unit(types.void, 6)
def gather_piece(geometry: int, piece: int, low: int, high: int, slab: int, scratch: int) -> None:
    """Copy the part of one piece that is within a slab of the chunk from its input.

    Parameters
    ----------
    geometry
        Address of a ``slots/geometry.py`` array.
    piece
        Row of its piece columns.
    low, high
        Start and end of the slab along the slowest dimension of the chunk, in elements.
    slab
        Address of the slab.
    scratch
        Address of ``slots.scratch.SCRATCH_BYTES`` bytes.
    """
    g = i64(geometry)
    k = g[G.K]
    itemsize = g[G.ITEMSIZE]
    swap = g[G.SWAP]
    start = i64(g[G.START] + 8 * k * piece)
    count = i64(g[G.COUNT] + 8 * k * piece)
    first_input = i64(g[G.TARGET] + 8 * k * piece)
    which = i64(g[G.OUTPUT])[piece]
    step = i64(g[G.STEP])
    chunk_stride = i64(g[G.SOURCE_STRIDES])
    input_stride = i64(g[G.TARGET_STRIDES] + 8 * k * which)
    order = i64(g[G.ORDER])
    size = i64(scratch)
    by_input = i64(scratch + COLUMN_BYTES)
    by_chunk = i64(scratch + 2 * COLUMN_BYTES)
    at = i64(scratch + 3 * COLUMN_BYTES)

    # The loops, slowest first: dimensions of one element become offsets, contiguous neighbours are joined.
    source = i64(g[G.BASES])[which]
    target = slab - low * chunk_stride[order[0]]
    loops = 0
    for q in range(k):
        d = order[q]
        begin = 0
        c = count[d]
        if q == 0:
            begin = _within(start[d], step[d], low)
            c = min(c, _within(start[d], step[d], high)) - begin
            if c <= 0:
                return
        source += (first_input[d] + begin) * input_stride[d]
        target += (start[d] + begin * step[d]) * chunk_stride[d]
        if c == 1:
            continue
        s = input_stride[d]
        t = chunk_stride[d] * step[d]
        if loops > 0 and by_input[loops - 1] == s * c and by_chunk[loops - 1] == t * c:
            size[loops - 1] *= c
            by_input[loops - 1] = s
            by_chunk[loops - 1] = t
        else:
            size[loops] = c
            by_input[loops] = s
            by_chunk[loops] = t
            loops += 1

    # The innermost two loops are one call; the others run here.
    if loops == 0:
        size[0] = 1
        by_input[0] = itemsize
        by_chunk[0] = itemsize
        loops = 1
    inner = loops - 1
    partner = -1
    tiled = False
    if by_input[inner] != itemsize:
        for q in range(inner):
            if by_input[q] == itemsize:
                partner = q
                tiled = True
    if partner < 0 and inner > 0:
        partner = inner - 1
    n = size[inner]
    rows = size[partner] if partner >= 0 else 1
    row_input = by_input[partner] if partner >= 0 else 0
    row_chunk = by_chunk[partner] if partner >= 0 else 0
    for q in range(loops):
        at[q] = 0
    while True:
        s = source
        t = target
        for q in range(inner):
            if q == partner:
                continue
            s += at[q] * by_input[q]
            t += at[q] * by_chunk[q]
        if tiled:
            copy_tile(
                s,
                row_input,
                by_input[inner],
                t,
                row_chunk,
                by_chunk[inner],
                rows,
                n,
                itemsize,
                swap,
                scratch + TILE_SCRATCH,
                0,
                1,
            )
        else:
            copy_rows(s, row_input, by_input[inner], t, row_chunk, by_chunk[inner], rows, n, itemsize, swap, 0)
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
def gather_slab(
    geometry: int, first: int, last: int, low: int, high: int, slab: int, nbytes: int, fill: int, scratch: int
) -> None:
    """Fill part of a chunk from its pieces ``first`` … ``last - 1``, and with the fill element outside of them.

    Parameters
    ----------
    geometry
        Address of a ``slots/geometry.py`` array.
    first, last
        Range of rows of its piece columns.
    low, high
        Start and end of the part along the slowest dimension, in elements.
    slab, nbytes
        Address and size of the part.
    fill
        Address of one element in native byte order.
    scratch
        Address of ``slots.scratch.SCRATCH_BYTES`` bytes.
    """
    g = i64(geometry)
    k = g[G.K]
    itemsize = g[G.ITEMSIZE]
    # Number of bytes that one piece covers; 0 if there are several.
    covered = 0
    if last == first + 1:
        covered = itemsize
        slowest = i64(g[G.ORDER])[0]
        for d in range(k):
            c = i64(g[G.COUNT] + 8 * k * first)[d]
            if d == slowest:
                begin = i64(g[G.START] + 8 * k * first)[d]
                step = i64(g[G.STEP])[d]
                c = min(c, _within(begin, step, high)) - _within(begin, step, low)
            covered *= max(c, 0)
    if covered != nbytes:
        copy_rows(fill, 0, 0, slab, 0, itemsize, 1, nbytes // itemsize, itemsize, g[G.SWAP], 0)
    for piece in range(first, last):
        gather_piece(geometry, piece, low, high, slab, scratch)


@part
def gather_chunk(geometry: int, first: int, last: int, chunk: int, nbytes: int, fill: int, scratch: int) -> None:
    """Fill a whole chunk; for the parameters see :func:`gather_slab`."""
    g = i64(geometry)
    extent = i64(g[G.CHUNK_SHAPE])[i64(g[G.ORDER])[0]]
    gather_slab(geometry, first, last, 0, extent, chunk, nbytes, fill, scratch)


@part
def change_chunk(geometry: int, first: int, last: int, chunk: int, scratch: int) -> None:
    """Overwrite a whole chunk's elements by its pieces; for the parameters see :func:`gather_slab`."""
    g = i64(geometry)
    extent = i64(g[G.CHUNK_SHAPE])[i64(g[G.ORDER])[0]]
    for piece in range(first, last):
        gather_piece(geometry, piece, 0, extent, chunk, scratch)


@part
def all_fill(chunk: int, nbytes: int, fill: int, itemsize: int) -> bool:
    """Return whether all elements of a chunk are bitwise equal to ``fill``, an element in stored byte order."""
    if c_memcmp(chunk, fill, itemsize) != 0:
        return False
    # A chunk that equals itself shifted by one element consists of equal elements.
    return c_memcmp(chunk, chunk + itemsize, nbytes - itemsize) == 0
