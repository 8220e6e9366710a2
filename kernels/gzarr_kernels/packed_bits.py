"""Elements of a fixed number of bits without gaps, as the codec ``packbits`` and numcodecs' filter store them.

The parameters for decoding are in ``slots/packed_bits.py``, at the address that is the parameter of the operation.
"""

from __future__ import annotations

from typing import Final

from numba import int64, uint64

from . import status as S
from .jit import by_address, part
from .memory import copy, i64, u8, u16, u32, u64
from .slots import context as C
from .slots import packed_bits as P

#: To bring the lowest bits of eight bytes together in the highest byte: the first one's becomes the lowest bit; the
#: highest.
_GATHER: Final = 0x0102040810204080
_GATHER_FROM_HIGHEST: Final = 0x8040201008040201
#: The lowest bit of each byte; the lowest bit of the lowest byte, the next of the next, and so on; the same, from
#: the highest bit on; all bits but the highest of each byte.
_EACH_BYTE: Final = 0x0101010101010101
_DIAGONAL: Final = 0x8040201008040201
_DIAGONAL_FROM_HIGHEST: Final = 0x0102040810204080
_LOW_BITS: Final = 0x7F7F7F7F7F7F7F7F


@part
def _flags(source: int, target: int, n: int, from_highest: int) -> None:
    """Write the first ``n`` bits as bytes, 0 or 1."""
    whole = n // 8
    bits = uint64(_DIAGONAL_FROM_HIGHEST) if from_highest != 0 else uint64(_DIAGONAL)
    for i in range(whole):
        # A byte that is not 0 gets its highest bit. Signed products may not overflow.
        some = uint64(u8(source)[i]) * uint64(_EACH_BYTE) & bits
        u64(target)[i] = (some + uint64(_LOW_BITS)) >> uint64(7) & uint64(_EACH_BYTE)
    for i in range(8 * whole, n):
        shift = 7 - i % 8 if from_highest != 0 else i % 8
        u8(target)[i] = (u8(source)[i // 8] >> shift) & 1


@part
def _bits(source: int, end: int, start: int, kept: int) -> int:
    """Return ``kept`` bits, fewer than 64, of the bytes from ``source`` to ``end``, after the first ``start``."""
    at, shift = source + (start >> 3), start & 7
    if at + 9 <= end:
        word = i64(at)[0]
        if shift != 0:
            # Shifting repeats the highest bit.
            word = (word >> shift) & ((1 << (64 - shift)) - 1)
            if shift + kept > 64:
                word |= int64(u8(at)[8]) << (64 - shift)
    else:
        word = int64(u8(at)[0]) >> shift
        have = 8 - shift
        i = 1
        while have < kept:
            word |= int64(u8(at)[i]) << have
            have += 8
            i += 1
    return word & ((1 << kept) - 1)


@part
def _store(target: int, i: int, width: int, value: int) -> None:
    if width == 1:
        u8(target)[i] = value
    elif width == 2:
        u16(target)[i] = value
    elif width == 4:
        u32(target)[i] = value
    else:
        i64(target)[i] = value


@part
def _unpack(source: int, target: int, n: int, parameter: int) -> None:
    p = i64(parameter)
    width, kept, first_bit, sign = p[P.WIDTH], p[P.KEPT], p[P.FIRST_BIT], p[P.SIGN]
    packed = (n * kept + 7) // 8
    # Elements whose bits are in eight bytes that can be read together.
    simple = min(n, max(0, 8 * (packed - 8) // kept)) if kept <= 57 else 0
    mask = (1 << kept) - 1
    for i in range(simple):
        at = i * kept
        value = (i64(source + (at >> 3))[0] >> (at & 7)) & mask
        value |= -((value >> (kept - 1)) & 1) & sign
        _store(target, i, width, value << first_bit)
    for i in range(simple, n):
        value = _bits(source, source + packed, i * kept, kept)
        value |= -((value >> (kept - 1)) & 1) & sign
        _store(target, i, width, value << first_bit)


@by_address(6)
def packbits_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Unpack elements, after the stated number of padding bits is found to be right."""
    c, p = i64(context), i64(parameter)
    width, kept, padding_at = p[P.WIDTH], p[P.KEPT], p[P.PADDING_AT]
    n = size // width
    packed = (n * kept + 7) // 8
    if kept == 8 * width and nbytes == size:
        # zarrs omits the byte with the number, as there is no padding.
        c[C.RESULT] = source
        return S.OK
    if nbytes != packed + (padding_at != P.NOWHERE):
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    if padding_at != P.NOWHERE:
        stated = u8(source)[0 if padding_at == P.FIRST else packed]
        padding = 8 * packed - n * kept
        if stated != padding:
            c[C.DETAIL] = 8 * stated + padding
            return S.BAD_PADDING
        if padding_at == P.FIRST:
            source += 1
    if kept == 8 * width:
        c[C.RESULT] = source
    elif kept == 1 and width == 1 and p[P.FIRST_BIT] == 0 and p[P.SIGN] == 0:
        _flags(source, target, n, p[P.FROM_HIGHEST])
    else:
        _unpack(source, target, n, parameter)
    return S.OK


@part
def _pack_flags(source: int, target: int, n: int, from_highest: int) -> None:
    """Write the lowest bit of each byte; from the highest bit on, whether the byte is not 0."""
    whole = n // 8
    if from_highest != 0:
        for i in range(whole):
            some = u64(source)[i]
            # The highest bit of a byte: of the byte itself, or of its other bits if one of them is set.
            some = (some | ((some & uint64(_LOW_BITS)) + uint64(_LOW_BITS))) >> uint64(7) & uint64(_EACH_BYTE)
            u8(target)[i] = some * uint64(_GATHER_FROM_HIGHEST) >> uint64(56)
    else:
        for i in range(whole):
            u8(target)[i] = (u64(source)[i] & uint64(_EACH_BYTE)) * uint64(_GATHER) >> uint64(56)
    if n % 8 != 0:
        last = 0
        for i in range(8 * whole, n):
            if from_highest != 0:
                last |= (1 if u8(source)[i] != 0 else 0) << (7 - i % 8)
            else:
                last |= (int64(u8(source)[i]) & 1) << (i % 8)
        u8(target)[whole] = last


@part
def _load(source: int, i: int, width: int) -> int:
    if width == 1:
        return int64(u8(source)[i])
    if width == 2:
        return int64(u16(source)[i])
    if width == 4:
        return int64(u32(source)[i])
    return i64(source)[i]


@part
def _pack(source: int, target: int, n: int, width: int, kept: int, first_bit: int) -> None:
    """Write ``kept`` bits of each element from ``first_bit`` on."""
    low = min(kept, 32)
    high = kept - low
    low_mask, high_mask = uint64((1 << low) - 1), uint64((1 << high) - 1)
    held = uint64(0)
    have = 0
    for i in range(n):
        value = uint64(_load(source, i, width)) >> uint64(first_bit)
        held |= (value & low_mask) << uint64(have)
        have += low
        if have >= 32:
            u32(target)[0] = held
            target += 4
            held >>= uint64(32)
            have -= 32
        if high != 0:
            held |= (value >> uint64(32) & high_mask) << uint64(have)
            have += high
            if have >= 32:
                u32(target)[0] = held
                target += 4
                held >>= uint64(32)
                have -= 32
    while have > 0:
        u8(target)[0] = held
        target += 1
        held >>= uint64(8)
        have -= 8


@by_address(6)
def packbits_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Pack elements: their width in bytes, number and position of kept bits, and the last two of ``slots``."""
    p = i64(parameters)
    width, kept, first_bit, from_highest, padding_at = p[0], p[1], p[2], p[3], p[4]
    n = nbytes // width
    packed = (n * kept + 7) // 8
    body = target + 1 if padding_at == P.FIRST else target
    if kept == 8 * width:
        copy(body, source, nbytes)
    elif kept == 1 and width == 1 and first_bit == 0:
        _pack_flags(source, body, n, from_highest)
    else:
        _pack(source, body, n, width, kept, first_bit)
    if padding_at == P.NOWHERE:
        return packed
    u8(target)[0 if padding_at == P.FIRST else packed] = 8 * packed - n * kept
    return packed + 1
