"""Casts of numbers by value (``cast_value``).

Functions are called as ``decode.py`` and ``encode.py`` say. Parameters are int64, as in ``slots/casting.py``.
"""

from __future__ import annotations

import math
from typing import Any, Final

from numba import float64, int32, int64, uint8, uint16, uint32

from . import status as S
from .convert import convert_native
from .jit import by_address, in_line, part
from .memory import f32, f64, i32, i64, u8, u16, u32
from .rounding import whole_8
from .slots import casting as A
from .slots import context as C
from .slots.encode import NO_COUNTERPART

#: Elements that are converted before those that stand for another number are replaced.
_SOME: Final = 2048


def _make_replace(load: Any, store: Any, integer: Any) -> Any:
    """``replace(source, target, n, key, number)``: write a number for each integer that is the key."""

    @part
    def replace(source: int, target: int, n: int, key: int, number: int) -> None:
        wanted = integer(key)
        for i in range(n):
            store(target)[i] = number if load(source)[i] == wanted else store(target)[i]

    return replace


_replace_14 = _make_replace(u8, i32, uint8)
_replace_18 = _make_replace(u8, i64, uint8)
_replace_24 = _make_replace(u16, i32, uint16)
_replace_28 = _make_replace(u16, i64, uint16)
_replace_44 = _make_replace(u32, i32, uint32)
_replace_48 = _make_replace(u32, i64, uint32)


@by_address(6)
def cast_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Convert integers to floating-point numbers, of which one integer stands for another number."""
    c, p = i64(context), i64(parameter)
    itemsize, decoded, key, number = p[A.ITEMSIZE], p[A.TARGET_ITEMSIZE], p[A.KEY], p[A.NUMBER]
    n = size // decoded
    if nbytes != n * itemsize:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    begin = 0
    while begin < n:
        some = min(n - begin, _SOME)
        values, made = source + begin * itemsize, target + begin * decoded
        convert_native(values, 0, itemsize, made, 0, decoded, 1, some, p[A.CONVERSION], itemsize, decoded)
        if itemsize == 1:
            if decoded == 4:
                _replace_14(values, made, some, key, number)
            else:
                _replace_18(values, made, some, key, number)
        elif itemsize == 2:
            if decoded == 4:
                _replace_24(values, made, some, key, number)
            else:
                _replace_28(values, made, some, key, number)
        elif decoded == 4:
            _replace_44(values, made, some, key, number)
        else:
            _replace_48(values, made, some, key, number)
        begin += some
    return S.OK


@in_line
def _signed(value: float) -> int:
    return int32(value)


@in_line
def _unsigned(value: float) -> int:
    return uint32(int64(value))


def _make_to_integers(load: Any, store: Any, integer: Any) -> Any:
    """``to_integers(source, target, n, low, high, clamps, missing, has_missing)``: return how many numbers do not fit.

    Numbers are rounded to the nearest integer, of two to the even one. ``missing`` is for NaN.
    """

    @part
    def to_integers(
        source: int, target: int, n: int, low: float, high: float, clamps: int, missing: float, has_missing: int
    ) -> int:
        bad = 0
        for i in range(n):
            value = float64(load(source)[i])
            is_nan = value != value
            whole = missing if is_nan else whole_8(value)
            outside = whole < low or whole > high
            if math.fabs(value) == math.inf or (is_nan and has_missing == 0) or (outside and clamps == 0):
                bad += 1
            store(target)[i] = integer(min(max(whole, low), high))
        return bad

    return to_integers


_41 = _make_to_integers(f32, u8, _signed)
_42 = _make_to_integers(f32, u16, _signed)
_44 = _make_to_integers(f32, u32, _signed)
_4u = _make_to_integers(f32, u32, _unsigned)
_81 = _make_to_integers(f64, u8, _signed)
_82 = _make_to_integers(f64, u16, _signed)
_84 = _make_to_integers(f64, u32, _signed)
_8u = _make_to_integers(f64, u32, _unsigned)


@by_address(6)
def cast_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Convert numbers, or round them to integers; return ``NO_COUNTERPART`` if one does not fit."""
    p = i64(parameters)
    itemsize, size, flags = p[A.ITEMSIZE], p[A.TARGET_ITEMSIZE], p[A.FLAGS]
    n = nbytes // itemsize
    if p[A.CONVERSION] > 0:
        convert_native(source, 0, itemsize, target, 0, size, 1, n, p[A.CONVERSION], itemsize, size)
        return n * size
    signed = flags & A.SIGNED
    span = int64(1) << (8 * size)
    least = -(span >> 1) if signed != 0 else 0
    low, high = float64(least), float64(least + span - 1)
    clamps, has_missing, missing = flags & A.CLAMPS, flags & A.HAS_MISSING, float64(p[A.MISSING])
    if itemsize == 4:
        if size == 1:
            bad = _41(source, target, n, low, high, clamps, missing, has_missing)
        elif size == 2:
            bad = _42(source, target, n, low, high, clamps, missing, has_missing)
        elif signed != 0:
            bad = _44(source, target, n, low, high, clamps, missing, has_missing)
        else:
            bad = _4u(source, target, n, low, high, clamps, missing, has_missing)
    elif size == 1:
        bad = _81(source, target, n, low, high, clamps, missing, has_missing)
    elif size == 2:
        bad = _82(source, target, n, low, high, clamps, missing, has_missing)
    elif signed != 0:
        bad = _84(source, target, n, low, high, clamps, missing, has_missing)
    else:
        bad = _8u(source, target, n, low, high, clamps, missing, has_missing)
    return NO_COUNTERPART if bad != 0 else n * size
