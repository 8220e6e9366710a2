"""Filters that round floating-point numbers, so that they compress better; reading has nothing to undo.

Functions of operations are called as ``encode.py`` says. Parameters are int64.
"""

from __future__ import annotations

import math
from typing import Any, Final

from numba import float32, uint64

from .jit import by_address, in_line, part
from .memory import f32, f64, i64, u16, u32, u64

#: From here on, all numbers of a type are whole.
_WHOLE_4: Final = 2.0**23
_WHOLE_8: Final = 2.0**52


def _make_round_bits(pointer: Any, magnitude: int) -> Any:
    """``round_bits(source, target, n, drop, most)``: drop the lowest ``drop`` bits, rounding to nearest, ties to even.

    Numbers whose bits without the sign are above ``most`` are kept as they are.
    """

    @part
    def round_bits(source: int, target: int, n: int, drop: int, most: int) -> None:
        shift, one = uint64(drop), uint64(1)
        half = (one << (shift - one)) - one
        kept = ~((one << shift) - one)
        limit = uint64(most)
        for i in range(n):
            bits = uint64(pointer(source)[i])
            rounded = (bits + half + ((bits >> shift) & one)) & kept
            pointer(target)[i] = rounded if (bits & uint64(magnitude)) <= limit else bits

    return round_bits


_round_bits_2 = _make_round_bits(u16, 0x7FFF)
_round_bits_4 = _make_round_bits(u32, 0x7FFFFFFF)
_round_bits_8 = _make_round_bits(u64, 0x7FFFFFFFFFFFFFFF)


@by_address(6)
def bitround_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Round off bits: bytes of a number, number of bits, at least 1, and the largest bits that are rounded."""
    p = i64(parameters)
    if p[0] == 2:
        _round_bits_2(source, target, nbytes // 2, p[1], p[2])
    elif p[0] == 4:
        _round_bits_4(source, target, nbytes // 4, p[1], p[2])
    else:
        _round_bits_8(source, target, nbytes // 8, p[1], p[2])
    return nbytes


@in_line
def whole_4(value: float) -> float:
    """Return the float32 rounded to a whole number, of two to the even one."""
    size, limit = math.fabs(value), float32(_WHOLE_4)
    # What has no digits after the point loses none by this; the sign of -0.0 is kept.
    return math.copysign((size + limit) - limit if size < limit else size, value)


@in_line
def whole_8(value: float) -> float:
    """Return the float64 rounded to a whole number, of two to the even one."""
    size = math.fabs(value)
    return math.copysign((size + _WHOLE_8) - _WHOLE_8 if size < _WHOLE_8 else size, value)


@by_address(6)
def quantize_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Round to multiples of a number, ties to even: bytes of a number, and the bits of the multiples' reciprocal."""
    if i64(parameters)[0] == 4:
        scale = float32(f64(parameters + 8)[0])
        for i in range(nbytes // 4):
            f32(target)[i] = whole_4(f32(source)[i] * scale) / scale
    else:
        scale_8 = f64(parameters + 8)[0]
        for i in range(nbytes // 8):
            f64(target)[i] = whole_8(f64(source)[i] * scale_8) / scale_8
    return nbytes
