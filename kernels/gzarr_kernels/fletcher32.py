"""Fletcher-32 checksums as HDF5 has them, stored little-endian after the bytes that they cover.

Sums are of 16-bit words, the first byte of each the higher one; an odd last byte is a word with a zero.
"""

from __future__ import annotations

from typing import Final

from . import status as S
from .jit import by_address, part
from .memory import i64, u8, u32
from .slots import context as C

#: Words after which sums are reduced: HDF5's, on which it depends whether a sum is 0 or 65,535.
_WORDS: Final = 360


@part
def fletcher32(source: int, nbytes: int) -> int:
    """Return the checksum of bytes."""
    data = u8(source)
    words = nbytes // 2
    first = second = at = 0
    while words > 0:
        some = min(words, _WORDS)
        words -= some
        for _ in range(some):
            first += (data[at] << 8) | data[at + 1]
            second += first
            at += 2
        first = (first & 0xFFFF) + (first >> 16)
        second = (second & 0xFFFF) + (second >> 16)
    if nbytes % 2:
        first += data[at] << 8
        second += first
        first = (first & 0xFFFF) + (first >> 16)
        second = (second & 0xFFFF) + (second >> 16)
    first = (first & 0xFFFF) + (first >> 16)
    second = (second & 0xFFFF) + (second >> 16)
    return (second << 16) | first


@by_address(6)
def fletcher32_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Verify the checksum in the last four bytes and drop it."""
    c = i64(context)
    if nbytes < 4:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    nbytes -= 4
    if fletcher32(source, nbytes) != u32(source + nbytes)[0]:
        return S.BAD_CHECKSUM
    c[C.RESULT_NBYTES] = nbytes
    return S.OK


@by_address(6)
def fletcher32_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Append the checksum to the bytes."""
    u32(source + nbytes)[0] = fletcher32(source, nbytes)
    return nbytes + 4
