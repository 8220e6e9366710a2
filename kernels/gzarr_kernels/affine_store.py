"""Blocks of float64 as numbers of other types. See ``affine.py``."""

from __future__ import annotations

from typing import Any

from numba import int32, int64

from .jit import in_line, part
from .memory import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots import affine as S


def _make_store(view: Any, itemsize: int, number: Any, low: float, high: float) -> Any:
    """Return a function that stores a block: rounded, ties away from zero, and cut to the range of an integer type."""

    @in_line
    def integer(x: float) -> Any:
        x = x + S.HALF if x > 0 else x - S.HALF
        # Not a number becomes the lowest one.
        x = x if x > low else low
        return number(min(x, high))

    return _make_rows(view, itemsize, integer)


def _make_rows(view: Any, itemsize: int, converted: Any) -> Any:
    """Return a function that stores a block of converted values; those without gaps several at once."""

    @part
    def store(target: int, stride: int, n: int, buffers: int) -> None:
        v = f64(buffers + 0)
        if stride == itemsize:
            row = view(target + 0)
            for k in range(n):
                row[k] = converted(v[k])
        else:
            for k in range(n):
                view(target + k * stride)[0] = converted(v[k])

    return store


@in_line
def _float(x: float) -> float:
    return x


_s_u1, _s_u2 = _make_store(u8, 1, int32, 0.0, 255.0), _make_store(u16, 2, int32, 0.0, 65535.0)
_s_u4 = _make_store(u32, 4, int64, 0.0, 2.0**32 - 1)
_s_i1, _s_i2 = _make_store(i8, 1, int32, -128.0, 127.0), _make_store(i16, 2, int32, -32768.0, 32767.0)
_s_i4 = _make_store(i32, 4, int64, -(2.0**31), 2.0**31 - 1)
_s_f4, _s_f8 = _make_rows(f32, 4, _float), _make_rows(f64, 8, _float)


@part
def _s_u8(target: int, stride: int, n: int, buffers: int) -> None:
    v = f64(buffers + 0)
    half = 2.0**63
    for k in range(n):
        x = v[k] + S.HALF
        if not x > 0:
            u64(target + k * stride)[0] = 0
        elif x < half:
            i64(target + k * stride)[0] = int64(x)
        elif x < 2 * half:
            i64(target + k * stride)[0] = int64(x - half) ^ int64(-0x8000000000000000)
        else:
            i64(target + k * stride)[0] = -1


@part
def _s_i8(target: int, stride: int, n: int, buffers: int) -> None:
    v = f64(buffers + 0)
    half = 2.0**63
    for k in range(n):
        x = v[k]
        x = x + S.HALF if x > 0 else x - S.HALF
        if x >= half:
            i64(target + k * stride)[0] = int64(0x7FFFFFFFFFFFFFFF)
        else:
            i64(target + k * stride)[0] = int64(x if x > -half else -half)


@part
def store_numbers(kind: int, target: int, stride: int, n: int, buffers: int) -> None:
    """Store a block of values as numbers of a kind, ``stride`` bytes apart."""
    if kind == 0:
        _s_u1(target, stride, n, buffers)
    elif kind == 1:
        _s_u2(target, stride, n, buffers)
    elif kind == 2:
        _s_u4(target, stride, n, buffers)
    elif kind == 3:
        _s_u8(target, stride, n, buffers)
    elif kind == 4:
        _s_i1(target, stride, n, buffers)
    elif kind == 5:
        _s_i2(target, stride, n, buffers)
    elif kind == 6:
        _s_i4(target, stride, n, buffers)
    elif kind == 7:
        _s_i8(target, stride, n, buffers)
    elif kind == 8:
        _s_f4(target, stride, n, buffers)
    else:
        _s_f8(target, stride, n, buffers)
