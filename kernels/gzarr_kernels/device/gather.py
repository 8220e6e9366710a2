"""Gathering of chunks in stored order from strided arrays: gather, swap and fill, in one pass.

The reverse of :mod:`assemble`. Each thread makes one word of a chunk at a time, and consecutive threads make
consecutive words: writes are to consecutive memory, and so are reads if the array has the order of the chunk. Elements
outside all pieces of a chunk get the fill value; where pieces overlap, the last one wins.

The kernel trusts its columns: their creator must have checked them against the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get, quotient, swap_in_word
from .language import cuda, int64, uint64
from .target import THREADS, body, kernel, width_of
from .target import blocks as _blocks

if TYPE_CHECKING:
    from .addressing import Column, Words

__all__ = ["THREADS", "blocks", "gather"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
# Dimensions are in the order of the stored chunk, the slowest first.
#: Number of chunks; number of words of a chunk, and of an element.
CHUNKS: Final = 0
WORDS: Final = 1
PER: Final = 2
#: Number of dimensions, at least 1.
K: Final = 3
#: Width of the units to swap minus one; they are a power of two and no larger than an element; 0 for none.
FLIP: Final = 4
#: Column (K,): shape of a chunk, in elements.
SHAPE: Final = 5
#: Column (C,): first word of each chunk.
TARGET: Final = 6
#: Column (C + 1,): pieces before each chunk.
PIECE_OFFSETS: Final = 7
#: Columns (P, K), in elements: first in the chunk, number.
START: Final = 8
COUNT: Final = 9
#: Column (P,): word of the array with the first element of each piece.
BASE: Final = 10
#: Column (K,): step in the chunk, in elements.
STEP: Final = 11
#: Column (K,): strides of the array in words, of any sign.
STRIDES: Final = 12
#: Column (PER,): words of the fill value, in native byte order.
FILL: Final = 13
#: Column (C,), output: set to 1 if a chunk has an element that is not bitwise equal to the fill value.
MARKS: Final = 14
#: Number of words of the header.
SIZE: Final = 15


def blocks(words: int) -> int:
    """Return the number of blocks of ``THREADS`` to launch for chunks with this total number of words."""
    return _blocks(-(-words // THREADS))


@body
def _of(columns: Column, job: int, column: int, row: int) -> int:
    """Return a row of a column that the header refers to."""
    return get(columns, get(columns, job + column) + row)


@body
def _place(columns: Column, job: int, piece: int, element: int) -> int:
    """Return the word of the array with an element of a chunk, or -1 if the element is not in the piece."""
    k = get(columns, job + K)
    at = _of(columns, job, BASE, piece)
    left = element
    for d in range(k - 1, -1, -1):
        coordinate = left
        if d > 0:
            n = _of(columns, job, SHAPE, d)
            left = quotient(coordinate, n)
            coordinate -= left * n
        j = coordinate - _of(columns, job, START, piece * k + d)
        if j < 0:
            return -1
        step = _of(columns, job, STEP, d)
        if step > 1:
            steps = quotient(j, step)
            if steps * step != j:
                return -1
            j = steps
        if j >= _of(columns, job, COUNT, piece * k + d):
            return -1
        at += j * _of(columns, job, STRIDES, d)
    return at


@body
def _gather(source: Any, words: Any, columns: Column, job: int, first: int, step: int) -> None:
    """Write every ``step``-th word of all chunks."""
    width = width_of(words)
    per_chunk = get(columns, job + WORDS)
    per = get(columns, job + PER)
    flip = get(columns, job + FLIP)
    # Reversing units of a power of two is an exclusive or of the byte's index: of whole words, and within a word.
    flip_words = quotient(flip & -width, width)
    flip_bytes = flip & (width - 1)
    total = get(columns, job + CHUNKS) * per_chunk
    item = first
    while item < total:
        chunk = quotient(item, per_chunk)
        word = item - chunk * per_chunk
        element = word
        part = 0
        if per > 1:
            element = quotient(word, per)
            part = word - element * per
        fill = uint64(_of(columns, job, FILL, part))
        value = fill
        piece = _of(columns, job, PIECE_OFFSETS, chunk + 1)
        before = _of(columns, job, PIECE_OFFSETS, chunk)
        while piece > before:
            piece -= 1
            at = _place(columns, job, piece, element)
            if at >= 0:
                value = uint64(source[uint64(at + part)])
                break
        if value != fill:
            # Concurrent threads write the same value.
            columns[uint64(get(columns, job + MARKS) + chunk)] = int64(1)
        to = _of(columns, job, TARGET, chunk) + element * per + (part ^ flip_words)
        words[uint64(to)] = swap_in_word(value, flip_bytes)
        item += step


@kernel
def gather(source: Words, words: Words, columns: Column, job: int) -> None:
    """Write chunks from one array.

    Launched with ``blocks(words)`` blocks of ``THREADS``.

    Parameters
    ----------
    source
        Memory of the array as uint8, uint16, uint32 or uint64, the unit in which elements are moved.
    words
        Memory of a wave, of the same type.
    columns
        Memory of the wave as int64.
    job
        Index of the header in ``columns``.
    """
    _gather(source, words, columns, job, cuda.grid(1), cuda.gridsize(1))
