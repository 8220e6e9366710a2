"""Where bytes lie: shuffled blocks, bit planes, byte order. Pure functions of integers, for every target.

A block of ``nbytes`` bytes in *byte planes* holds ``n = nbytes // typesize`` elements as ``typesize`` planes of ``n``
bytes, byte ``j`` of element ``i`` at ``j * n + i``; the bytes behind the last whole element follow as they are. Source:
c-blosc, ``shuffle-generic.h`` (format). Bit planes: see ``gzarr_kernels.bitshuffle``.

Numba gives a float for a uint64 and an int64, so a value stays of one kind: offsets are int64, words are uint64.
An index cast to uint64 is one that Numba does not test for being negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import int64, uint64

from ..bitshuffle import transpose_bits_8x8
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
    """Divide what is not negative by what is positive.

    Unsigned, so that a GPU, which has no 64-bit division, divides in 32 bits whenever both fit.
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
    """Write the low ``nbytes`` bytes of a uint64, at most 8; in one go where they are 8 and aligned.

    ``columns`` is ``arena`` as int64.
    """
    if nbytes == 8 and offset & 7 == 0:
        columns[uint64(offset >> 3)] = int64(value)
    else:
        for b in range(nbytes):
            arena[uint64(offset + b)] = value >> uint64(8 * b) & uint64(255)


@body
def search(column: Column, offsets: int, low: int, count: int, item: int) -> int:
    """Return the row that ``item`` is in.

    Parameters
    ----------
    column, offsets
        Where the ``count + 1`` offsets of the rows begin in ``column``: row ``i`` has items ``offsets[i]`` to
        ``offsets[i + 1]``.
    low
        A row that is not behind it.
    item
        Below the last offset.
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
    """Return where in a block of byte planes byte ``i`` of the plain block lies; ``n`` is its number of elements."""
    element = quotient(i, typesize)
    if element >= n:
        return i
    return (i - element * typesize) * n + element


@body
def element_index(i: int, n: int, typesize: int) -> int:
    """Return where in a plain block byte ``i`` of the byte planes lies: the inverse of ``plane_index``."""
    if i >= n * typesize:
        return i
    plane = quotient(i, n)
    return (i - plane * n) * typesize + plane


@body
def shuffled_index(i: int, typesize: int, blocksize: int, nbytes: int) -> int:
    """Return where in a chunk of blocks in byte planes byte ``i`` of the plain chunk lies.

    Parameters
    ----------
    i
        Below ``nbytes``.
    typesize
        At least 1.
    blocksize
        At least 1. The last block is what is left.
    nbytes
        Of the chunk.
    """
    begin = quotient(i, blocksize) * blocksize
    return begin + plane_index(i - begin, quotient(min(blocksize, nbytes - begin), typesize), typesize)


@body
def is_bit_shuffled(n: int) -> bool:
    """Return whether a block of ``n`` elements of a bit-shuffled chunk is in bit planes; any other is plain."""
    return n > 0 and n & 7 == 0


@body
def swapped(i: int, swap: int) -> int:
    """Return where byte ``i`` of an element is when units of ``swap`` bytes are reversed; 0 or 1: where it is."""
    if swap < 2:
        return i
    unit = quotient(i, swap) * swap
    return unit + swap - 1 - (i - unit)


@body
def swap_in_word(value: Any, low: int) -> Any:
    """Return the uint64 whose byte ``b`` is byte ``b ^ low`` of ``value``; ``low`` below 8.

    With 1, 3 or 7, units of 2, 4 or 8 bytes are reversed.
    """
    if low & 1:
        value = (value & uint64(0x00FF00FF00FF00FF)) << uint64(8) | value >> uint64(8) & uint64(0x00FF00FF00FF00FF)
    if low & 2:
        value = (value & uint64(0x0000FFFF0000FFFF)) << uint64(16) | value >> uint64(16) & uint64(0x0000FFFF0000FFFF)
    if low & 4:
        value = value << uint64(32) | value >> uint64(32)
    return value
