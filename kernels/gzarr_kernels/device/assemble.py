"""Assembly of results from decoded chunks: unshuffle, swap, take a field, convert, transpose and place, in one pass.

The pieces of a wave are divided into tiles of ``TILE`` elements, in C order of the piece; a block takes one tile at a
time. Its threads take consecutive words of the results, so that a warp writes consecutive memory, and also reads it if
the order of the chunk allows. A thread finds its position by division once per tile, and by addition from word to word.

The kernel trusts its columns: their creator must have checked them against the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get, get_byte, quotient, search, shuffled_index, swap_in_word, swapped
from .filters import convert_element, element_width, load_element
from .language import cuda, uint64
from .target import THREADS, blocks, body, kernel, width_of

if TYPE_CHECKING:
    from .addressing import Bytes, Column, Words

__all__ = ["THREADS", "TILE", "assemble", "assemble_converted", "blocks"]

#: Elements of a tile.
TILE: Final = 1024

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of placement dimensions, at least 1.
K: Final = 0
#: Size of an element of the results in bytes; a multiple of the word size.
ITEMSIZE: Final = 1
#: Byte offset of the wanted field in an element of a chunk; 0 if elements are converted.
FIELD_OFFSET: Final = 2
#: Width of the units to swap, which divides ``ITEMSIZE``; 0 or 1 for none. Of elements that are converted, it is their
#: size in the chunk.
SWAP: Final = 3
#: Column (C,): byte offset of each decoded chunk.
CHUNK_SOURCE: Final = 4
#: Column (C,): 1 for plain bytes; above 1, the element size of blocks in byte planes; 0 for an absent chunk, for which
#: ``CHUNK_SOURCE`` is the offset of the fill element in the type of the results.
CHUNK_TYPESIZE: Final = 5
#: Column (C,): block size in bytes. The last block may be shorter, with planes of its own length.
CHUNK_BLOCKSIZE: Final = 6
#: Column (C,): size of each decoded chunk in bytes.
CHUNK_NBYTES: Final = 7
#: Number of pieces, and of all their tiles.
PIECES: Final = 8
TILES: Final = 9
#: Column (P + 1,): tiles before each piece.
TILE_OFFSETS: Final = 10
#: Column (P,): chunk of each piece.
PIECE_CHUNK: Final = 11
#: Columns (P, K), in elements: first in the chunk (or first row of the table), number, first in the output.
START: Final = 12
COUNT: Final = 13
TARGET: Final = 14
#: Column (P,): output of each piece.
OUTPUT: Final = 15
#: Column (K,): step in the chunk, in elements.
STEP: Final = 16
#: Column (K,): strides of a decoded chunk, in bytes.
STRIDES: Final = 17
#: Columns (G,), (G, K), in words: first element and strides (of any sign) of each output.
OUTPUT_BASE: Final = 18
OUTPUT_STRIDES: Final = 19
#: Columns (K,): index in ``tables`` of the first index along each dimension; -1 for none.
TABLE_SOURCE: Final = 20
TABLE_TARGET: Final = 21
#: Index in ``tables`` of the points' coordinates (p, K) and positions (p,); -1 for none. Row ``START[p, 0] + j`` is
#: element ``j`` of piece ``p``.
POINT_SOURCE: Final = 22
POINT_TARGET: Final = 23
#: Index of the header of the conversion, for ``assemble_converted``.
CONVERSION: Final = 24
#: Number of words of the header.
SIZE: Final = 25


@body
def _of(columns: Column, job: int, column: int, row: int) -> int:
    """Return a row of a column that the header refers to."""
    return get(columns, get(columns, job + column) + row)


@body
def _row_start(columns: Column, tables: Column, job: int, piece: int, row: int) -> tuple[int, int]:
    """Return the start of a row (the last dimension) of a piece: bytes in the chunk, words in the outputs."""
    k = get(columns, job + K)
    output = _of(columns, job, OUTPUT, piece)
    from_chunk = get(columns, job + FIELD_OFFSET)
    to_output = _of(columns, job, OUTPUT_BASE, output)
    left = row
    for d in range(k - 1, -1, -1):
        j = 0
        if d < k - 1:
            n = _of(columns, job, COUNT, piece * k + d)
            j = left
            if d > 0 and n > 1:
                left = quotient(left, n)
                j -= left * n
            elif d > 0:
                j = 0
        first = _of(columns, job, START, piece * k + d)
        table = _of(columns, job, TABLE_SOURCE, d)
        if table < 0:
            source = first + j * _of(columns, job, STEP, d)
            to = _of(columns, job, TARGET, piece * k + d) + j
        elif d < k - 1:
            source = get(tables, table + first + j)
            to = get(tables, _of(columns, job, TABLE_TARGET, d) + first + j)
        else:
            # The indices of a table of the last dimension are added for each element.
            source = 0
            to = 0
        from_chunk += source * _of(columns, job, STRIDES, d)
        to_output += to * _of(columns, job, OUTPUT_STRIDES, output * k + d)
    return from_chunk, to_output


@body
def _point(columns: Column, tables: Column, job: int, piece: int, j: int) -> tuple[int, int]:
    """Return the location of element ``j`` of a piece of points: byte in the chunk, position in the output."""
    k = get(columns, job + K)
    row = _of(columns, job, START, piece * k) + j
    coordinates = get(columns, job + POINT_SOURCE) + row * k
    from_chunk = get(columns, job + FIELD_OFFSET)
    for d in range(k):
        from_chunk += get(tables, coordinates + d) * _of(columns, job, STRIDES, d)
    return from_chunk, get(tables, get(columns, job + POINT_TARGET) + row)


@body
def _bytewise(arena: Bytes, columns: Column, job: int, which: int, at: int, first: int, width: int, swap: int) -> Any:
    """Read ``width`` bytes of the element at ``at``, from its byte ``first``, singly: for any layout and swap."""
    chunk = _of(columns, job, CHUNK_SOURCE, which)
    typesize = _of(columns, job, CHUNK_TYPESIZE, which)
    value = uint64(0)
    for b in range(width):
        i = at + swapped(first + b, swap)
        if typesize > 1:
            blocksize = _of(columns, job, CHUNK_BLOCKSIZE, which)
            i = shuffled_index(i, typesize, blocksize, _of(columns, job, CHUNK_NBYTES, which))
        value |= get_byte(arena, chunk + i) << uint64(8 * b)
    return value


@body
def _assemble_tile(
    arena: Bytes,
    words: Any,
    columns: Column,
    tables: Column,
    out: Any,
    job: int,
    piece: int,
    tile: int,
    thread: int,
    threads: int,
    converts: bool,
) -> None:
    """Write a thread's part of tile ``tile`` of a piece.

    Values that few elements need are read from the columns again rather than kept: registers limit the number of
    concurrent threads.
    """
    width = width_of(words)
    k = get(columns, job + K)
    points = get(columns, job + POINT_SOURCE) >= 0
    # Number of words of an element, of a row (the last dimension), and of the piece.
    per = quotient(get(columns, job + ITEMSIZE), width)
    last = 0 if points else k - 1
    row_words = _of(columns, job, COUNT, piece * k + last) * per
    end = row_words
    for d in range(last):
        end *= _of(columns, job, COUNT, piece * k + d)
    end = min((tile + 1) * TILE * per, end)
    here = tile * TILE * per + thread

    which = _of(columns, job, PIECE_CHUNK, piece)
    chunk = _of(columns, job, CHUNK_SOURCE, which)
    typesize = _of(columns, job, CHUNK_TYPESIZE, which)
    swap = 0 if typesize == 0 else get(columns, job + SWAP)
    # Bytes that are read for a word of the results: a whole element if it is converted, as all are but fill values.
    converting = converts and typesize > 0
    size = element_width(columns, get(columns, job + CONVERSION)) if converting else width
    # Reversing units of a power of two is an exclusive or of the byte's index: of whole words, and within a word.
    flip = swap - 1 if swap > 1 else 0
    flips = swap < 2 or swap & flip == 0

    output = _of(columns, job, OUTPUT, piece)
    table = not points and _of(columns, job, TABLE_SOURCE, last) >= 0
    by_source = _of(columns, job, STRIDES, last) * (1 if table else _of(columns, job, STEP, last))
    by_target = _of(columns, job, OUTPUT_STRIDES, output * k + last)
    # Along the dimension before the last, rows are reached by addition if it has no table.
    near_count = 0
    near_source = 0
    near_target = 0
    if last > 0 and _of(columns, job, TABLE_SOURCE, last - 1) < 0:
        near_count = _of(columns, job, COUNT, piece * k + last - 1)
        near_source = _of(columns, job, STEP, last - 1) * _of(columns, job, STRIDES, last - 1)
        near_target = _of(columns, job, OUTPUT_STRIDES, output * k + last - 1)

    by_row = quotient(threads, row_words)
    column = here - quotient(here, row_words) * row_words
    row_source = 0
    row_target = 0
    # The first row is not reached by addition.
    moved = 1
    near = near_count
    # The last block read.
    block_begin = 0
    block_end = 0
    plane = 0
    while here < end:
        if moved > 0:
            near += moved
            if near < near_count:
                row_source += moved * near_source
                row_target += moved * near_target
            elif not points:
                row = quotient(here, row_words)
                row_source, row_target = _row_start(columns, tables, job, piece, row)
                if near_count > 0:
                    near = row - quotient(row, near_count) * near_count
        element = column
        word = 0
        if per > 1:
            element = quotient(column, per)
            word = column - element * per
        if points:
            at, to = _point(columns, tables, job, piece, element)
            to = _of(columns, job, OUTPUT_BASE, output) + to * per
        elif table:
            j = _of(columns, job, START, piece * k + last) + element
            at = row_source + get(tables, _of(columns, job, TABLE_SOURCE, last) + j) * by_source
            to = row_target + get(tables, _of(columns, job, TABLE_TARGET, last) + j) * by_target
        else:
            at = row_source + element * by_source
            to = row_target + element * by_target
        if typesize == 0:
            at = 0

        first = 0 if converting else word * width
        value = uint64(0)
        bytewise = not flips
        if flips:
            first ^= flip & -size
            if typesize <= 1:
                source = chunk + at + first
                if converting:
                    value = load_element(arena, columns, source, size, 0)
                elif source & (width - 1) == 0:
                    value = uint64(words[uint64(quotient(source, width))])
                else:
                    bytewise = True
            else:
                i = at + first
                if i < block_begin or i >= block_end:
                    blocksize = _of(columns, job, CHUNK_BLOCKSIZE, which)
                    block_begin = quotient(i, blocksize) * blocksize
                    block_end = min(block_begin + blocksize, _of(columns, job, CHUNK_NBYTES, which))
                    plane = quotient(block_end - block_begin, typesize)
                inside = i - block_begin
                planar = quotient(inside, typesize)
                byte = inside - planar * typesize
                if byte + size <= typesize and planar < plane:
                    source = chunk + block_begin + byte * plane + planar
                    for b in range(size):
                        value |= get_byte(arena, source) << uint64(8 * b)
                        source += plane
                else:
                    bytewise = True
        if bytewise:
            # Called in one place only, because the inlined code is a large part of the kernel.
            value = _bytewise(arena, columns, job, which, at, first, size, 0 if flips else swap)
        if flips:
            value = swap_in_word(value, flip & (size - 1))
        if converting:
            value = convert_element(columns, get(columns, job + CONVERSION), value)
            value >>= uint64(8 * width * word)
        out[uint64(to + word)] = value

        here += threads
        column += threads - by_row * row_words
        moved = by_row
        if column >= row_words:
            column -= row_words
            moved += 1


@body
def _assemble(
    arena: Bytes,
    words: Any,
    columns: Column,
    tables: Column,
    out: Any,
    job: int,
    block: int,
    grid: int,
    thread: int,
    threads: int,
    converts: bool,
) -> None:
    """Write a thread's part of every ``grid``-th tile."""
    piece = 0
    tile = block
    while tile < get(columns, job + TILES):
        offsets = get(columns, job + TILE_OFFSETS)
        piece = search(columns, offsets, piece, get(columns, job + PIECES), tile)
        nth = tile - get(columns, offsets + piece)
        _assemble_tile(arena, words, columns, tables, out, job, piece, nth, thread, threads, converts)
        tile += grid


@kernel
def assemble(arena: Bytes, words: Words, columns: Column, tables: Column, out: Words, job: int) -> None:
    """Write the results of a wave.

    Launched with ``blocks(tiles)`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    words
        The same memory as uint8, uint16, uint32 or uint64, the unit in which elements are moved.
    columns
        The same memory as int64.
    tables
        int64, index tables and points.
    out
        Memory of the results, of the type of ``words``.
    job
        Index of the header in ``columns``.
    """
    _assemble(
        arena,
        words,
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


@kernel
def assemble_converted(arena: Bytes, words: Words, columns: Column, tables: Column, out: Words, job: int) -> None:
    """Write the results of a wave whose elements are converted to the type of the results.

    Elements are as for :func:`gzarr_kernels.device.filters.convert`. Parameters and launch: see :func:`assemble`.
    """
    _assemble(
        arena,
        words,
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
