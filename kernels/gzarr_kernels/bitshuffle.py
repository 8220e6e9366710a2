"""Bit unshuffle: conversion of bit planes to the byte planes that ``shuffle.unshuffle`` reads.

A bit-shuffled block of ``n`` elements (``n`` a multiple of 8) of ``typesize`` bytes holds ``8 * typesize`` bit planes
of ``n / 8`` bytes: bit ``k`` of byte ``m`` of plane ``8 j + b`` is bit ``b`` of byte ``j`` of element ``8 m + k``.
Source: c-blosc, ``bitshuffle-generic.c`` (format).
"""

from __future__ import annotations

from numba import types, uint64

from .interleave import interleave_bits
from .jit import part, unit
from .memory import u8, u64


@part
def transpose_bits_8x8(x: int) -> int:
    """Transpose 8 × 8 bits: bit ``i`` of byte ``k`` becomes bit ``k`` of byte ``i`` (Hacker's Delight, 7-3)."""
    t = (x ^ (x >> uint64(7))) & uint64(0x00AA00AA00AA00AA)
    x = x ^ t ^ (t << uint64(7))
    t = (x ^ (x >> uint64(14))) & uint64(0x0000CCCC0000CCCC)
    x = x ^ t ^ (t << uint64(14))
    t = (x ^ (x >> uint64(28))) & uint64(0x00000000F0F0F0F0)
    return x ^ t ^ (t << uint64(28))


@unit(types.void, 4)
def to_byte_planes(block: int, n: int, target: int, typesize: int) -> None:
    """Convert the bit planes of ``n`` elements (a multiple of 8) to byte planes, both of ``n * typesize`` bytes."""
    width = n // 8
    for j in range(typesize):
        source = block + j * n
        out = target + j * n
        m = 0
        while m + 32 <= width:
            interleave_bits(source + m, width, out + 8 * m)
            m += 32
        words = u64(out)
        while m < width:
            x = uint64(0)
            for b in range(8):
                x |= uint64(u8(source + b * width)[m]) << uint64(8 * b)
            words[m] = transpose_bits_8x8(x)
            m += 1
