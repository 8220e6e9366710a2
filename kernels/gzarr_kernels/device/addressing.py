"""Addressing of bytes: shuffled blocks, bit planes, byte order. Pure functions of integers, for every target.

A block of ``nbytes`` bytes in *byte planes* holds ``n = nbytes // typesize`` elements as ``typesize`` planes of ``n``
bytes, with byte ``j`` of element ``i`` at ``j * n + i``; the bytes after the last whole element follow unchanged.
Source: c-blosc, ``shuffle-generic.h`` (format). For bit planes see ``gzarr_kernels.bitshuffle``.

In Numba, an operation on a uint64 and an int64 gives a float, so types are not mixed: offsets are int64, words are
uint64. Indices are cast to uint64 so that Numba does not check whether they are negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .language import int64, transpose_bits_8x8, uint64
from .target import body

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Column = npt.NDArray[np.int64]
    Statuses = npt.NDArray[np.int32]
    # Of uint8, uint16, uint32 or uint64.
    Words = npt.NDArray[Any]

__all__ = [
    "element_index",
    "get",
    "get_byte",
    "is_bit_shuffled",
    "plane_index",
    "quotient",
    "search",
    "shuffled_index",
    "store",
    "swap_in_word",
    "swapped",
    "transpose_bits_8x8",
]


@body
def quotient(a: int, b: int) -> int:
    """Divide a non-negative by a positive integer.

    The division is unsigned, so that a GPU, which has no 64-bit division, divides in 32 bits if both fit.
    """
    return int64(uint64(a) // uint64(b))


@body
def get(column: Column, index: int) -> int:
    """Return an int64 of a column; ``index`` is not negative."""
    return column[uint64(index)]


@body
def get_byte(arena: Bytes, offset: int) -> Any:
    """Return a byte as uint64; ``offset`` is not negative."""
    return uint64(arena[uint64(offset)])


@body
def store(arena: Bytes, columns: Column, offset: int, value: Any, nbytes: int) -> None:
    """Write the low ``nbytes`` bytes, at most 8, of a uint64; 8 aligned bytes are one store.

    ``columns`` is ``arena`` as int64.
    """
    if nbytes == 8 and offset & 7 == 0:
        columns[uint64(offset >> 3)] = int64(value)
    else:
        for b in range(nbytes):
            arena[uint64(offset + b)] = value >> uint64(8 * b) & uint64(255)


@body
def search(column: Column, offsets: int, low: int, count: int, item: int) -> int:
    """Return the row of ``item``.

    Parameters
    ----------
    column, offsets
        Column, and index in it of the ``count + 1`` offsets of the rows: row ``i`` has items ``offsets[i]`` to
        ``offsets[i + 1]``.
    low
        A row at or before the result.
    item
        Item, less than the last offset.
    """
    high = count
    while high - low > 1:
        middle = (low + high) >> 1
        if get(column, offsets + middle) <= item:
            low = middle
        else:
            high = middle
    return low


@body
def plane_index(i: int, n: int, typesize: int) -> int:
    """Return the position in byte planes of byte ``i`` of a plain block of ``n`` elements."""
    element = quotient(i, typesize)
    if element >= n:
        return i
    return (i - element * typesize) * n + element


@body
def element_index(i: int, n: int, typesize: int) -> int:
    """Return the position in a plain block of byte ``i`` of the byte planes: the inverse of ``plane_index``."""
    if i >= n * typesize:
        return i
    plane = quotient(i, n)
    return (i - plane * n) * typesize + plane


@body
def shuffled_index(i: int, typesize: int, blocksize: int, nbytes: int) -> int:
    """Return the position in a chunk of blocks in byte planes of byte ``i`` of the plain chunk.

    Parameters
    ----------
    i
        Position in the plain chunk, less than ``nbytes``.
    typesize
        Element size in bytes, at least 1.
    blocksize
        Block size in bytes, at least 1. The last block may be shorter.
    nbytes
        Size of the chunk in bytes.
    """
    begin = quotient(i, blocksize) * blocksize
    return begin + plane_index(i - begin, quotient(min(blocksize, nbytes - begin), typesize), typesize)


@body
def is_bit_shuffled(n: int) -> bool:
    """Return whether a block of ``n`` elements of a bit-shuffled chunk is in bit planes rather than plain."""
    return n > 0 and n & 7 == 0


@body
def swapped(i: int, swap: int) -> int:
    """Return the position of byte ``i`` of an element with units of ``swap`` bytes reversed (0 or 1: unchanged)."""
    if swap < 2:
        return i
    unit = quotient(i, swap) * swap
    return unit + swap - 1 - (i - unit)


@body
def swap_in_word(value: Any, low: int) -> Any:
    """Return the uint64 whose byte ``b`` is byte ``b ^ low`` of ``value``; ``low`` is less than 8.

    1, 3 and 7 reverse units of 2, 4 and 8 bytes.
    """
    if low & 1:
        value = (value & uint64(0x00FF00FF00FF00FF)) << uint64(8) | value >> uint64(8) & uint64(0x00FF00FF00FF00FF)
    if low & 2:
        value = (value & uint64(0x0000FFFF0000FFFF)) << uint64(16) | value >> uint64(16) & uint64(0x0000FFFF0000FFFF)
    if low & 4:
        value = value << uint64(32) | value >> uint64(32)
    return value
