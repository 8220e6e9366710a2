"""Unpacking of elements from packed bits, for all chunks of a wave at once.

All chunks of a launch have the same number of elements. The same contiguous range of bits of each element is stored,
without gaps between elements. The work is divided into *items* of 8 bytes of a chunk's result, by their position; the
last item of a chunk may be shorter. Results begin at multiples of 8 bytes, so that an item is one write; sources begin
anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .addressing import get, get_byte, quotient, store
from .filters import blocks
from .language import cuda, uint64
from .target import THREADS, body, kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .addressing import Bytes, Column

__all__ = ["THREADS", "blocks", "job", "unpack_bits"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of chunks.
CHUNKS: Final = 0
#: Number of items and of bytes of a chunk's result.
ITEMS: Final = 1
NBYTES: Final = 2
#: Columns (C,): byte offset of each chunk, and of its result.
SOURCE: Final = 3
TARGET: Final = 4
#: Size of an element in bytes: 1, 2, 4 or 8.
WIDTH: Final = 5
#: Number of stored bits of an element, and position of the lowest.
KEPT: Final = 6
FIRST_BIT: Final = 7
#: Bits to set above the stored bits of an element, before they are shifted to ``FIRST_BIT``, if the highest is set.
SIGN: Final = 8
#: 7 if the first bit of a byte is its highest, else 0.
FLIP: Final = 9
#: Byte of a chunk in which the bits begin.
BODY: Final = 10
#: Byte of a chunk with the number of padding bits at its end, -1 for none; and their actual number.
PADDING_AT: Final = 11
PADDING: Final = 12
#: Column (C,), output: set to 1 for a chunk that states another number.
MARKS: Final = 13
#: Number of words of the header.
SIZE: Final = 14

_ALL: Final = 0xFFFFFFFFFFFFFFFF


def job(
    put: Callable[[Any], int],
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    nbytes: int,
    *,
    width: int,
    kept: int,
    first_bit: int = 0,
    sign_stop: int = 0,
    from_highest: bool = False,
    body_at: int = 0,
    padding_at: int = -1,
    marks: int = 0,
) -> int:
    """Write the columns of ``unpack_bits``.

    Parameters
    ----------
    put
        Function that stores a column for the kernel, and returns its index.
    source, target
        int64 ``(C,)``, columns of the header; ``target`` are multiples of 8.
    nbytes
        Size of the result of a chunk in bytes, a whole number of elements.
    width
        Size of an element in bytes.
    kept, first_bit
        Number of stored bits of an element, and position of the lowest.
    sign_stop
        Bit before which the repetition of the highest stored bit ends; 0 for no repetition. All other bits are zero.
    from_highest
        Whether the first bit of a byte is its highest; then ``kept`` must be 1.
    body_at
        Byte of a chunk in which the bits begin.
    padding_at
        Byte of a chunk with the number of padding bits at its end; -1 for none.
    marks
        Index of a column with one row per chunk, needed for ``padding_at``.

    Returns
    -------
    Index of the header.
    """
    header = np.zeros(SIZE, np.int64)
    header[CHUNKS], header[ITEMS], header[NBYTES] = len(source), -(-nbytes // 8), nbytes
    header[SOURCE], header[TARGET] = put(source), put(target)
    header[WIDTH], header[KEPT], header[FIRST_BIT] = width, kept, first_bit
    repeated = max(0, sign_stop - first_bit - kept)
    header[SIGN : SIGN + 1].view(np.uint64)[0] = ((1 << repeated) - 1) << kept
    header[FLIP] = 7 if from_highest else 0
    header[BODY], header[PADDING_AT], header[PADDING] = body_at, padding_at, -(nbytes // width * kept) % 8
    header[MARKS] = marks
    return put(header)


@body
def _bits(columns: Column, start: int, count: int) -> Any:
    """Return ``count`` bits of memory, at most 64, as the low bits of a uint64; higher bits are undefined.

    ``start`` is the number of bits before them. Only words that contain some of them are read.
    """
    shift = start & 63
    word = uint64(columns[uint64(start >> 6)]) >> uint64(shift)
    if shift + count > 64:
        word |= uint64(columns[uint64((start >> 6) + 1)]) << uint64(64 - shift)
    return word


@body
def _unpack_bits(arena: Bytes, columns: Column, job: int, first: int, step: int) -> None:
    """Write every ``step``-th item of elements; with the first item of a chunk, also its mark."""
    per_chunk = get(columns, job + ITEMS)
    items = per_chunk * get(columns, job + CHUNKS)
    nbytes = get(columns, job + NBYTES)
    width = get(columns, job + WIDTH)
    kept = get(columns, job + KEPT)
    first_bit = get(columns, job + FIRST_BIT)
    sign = uint64(get(columns, job + SIGN))
    flip = get(columns, job + FLIP)
    body_at = get(columns, job + BODY)
    padding_at = get(columns, job + PADDING_AT)
    padding = uint64(get(columns, job + PADDING))
    per = quotient(8, width)
    mask = uint64(_ALL) >> uint64(64 - kept)
    at = first
    while at < items:
        chunk = quotient(at, per_chunk)
        item = at - chunk * per_chunk
        source = get(columns, get(columns, job + SOURCE) + chunk)
        if item == 0 and padding_at >= 0 and get_byte(arena, source + padding_at) != padding:
            columns[uint64(get(columns, job + MARKS) + chunk)] = 1
        size = min(8, nbytes - 8 * item)
        count = quotient(size, width)
        packed = _bits(columns, 8 * (source + body_at) + item * per * kept, count * kept)
        word = uint64(0)
        for i in range(count):
            value = packed >> uint64((i * kept) ^ flip) & mask
            if value >> uint64(kept - 1):
                value |= sign
            word |= value << uint64(8 * width * i + first_bit)
        target = get(columns, get(columns, job + TARGET) + chunk) + 8 * item
        store(arena, columns, target, word, size)
        at += step


@kernel
def unpack_bits(arena: Bytes, columns: Column, job: int) -> None:
    """Unpack elements from packed bits; mark chunks that state a wrong number of padding bits.

    Launched with ``blocks(chunks, nbytes)`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave, aligned to 8 bytes.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _unpack_bits(arena, columns, job, cuda.grid(1), cuda.gridsize(1))
