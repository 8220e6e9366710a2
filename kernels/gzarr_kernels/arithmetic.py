"""Filters of whole chunks that are arithmetic: lines (a scale and an offset), conversions, and differences.

The parameters for decoding are in ``slots/arithmetic.py``, at the address that is the parameter of the operation.
"""

from __future__ import annotations

from typing import Any, Final

from numba import float32, float64, int32

from . import status as S
from .context import ensure
from .convert import convert_native
from .jit import by_address, in_line, part
from .memory import f32, f64, i64, u8, u16, u32
from .rounding import whole_4, whole_8
from .slots import arithmetic as A
from .slots import context as C

#: Elements that are converted, computed and converted again before the next ones: they stay in the nearest cache.
_SOME: Final = 1024


@part
def _on_a_line(source: int, target: int, n: int, itemsize: int, parameters: int) -> None:
    """Write ``x / scale + offset``, in the arithmetic of float32 or float64; target and source may be one."""
    scale, offset = f64(parameters + 8 * A.SCALE)[0], f64(parameters + 8 * A.OFFSET)[0]
    if itemsize == 4:
        scale_4, offset_4 = float32(scale), float32(offset)
        for i in range(n):
            f32(target)[i] = f32(source)[i] / scale_4 + offset_4
    else:
        for i in range(n):
            f64(target)[i] = f64(source)[i] / scale + offset


@by_address(6)
def line_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Convert numbers, and compute ``x / scale + offset`` in between unless there is no arithmetic."""
    c, p = i64(context), i64(parameter)
    itemsize, middle, decoded = p[A.ENCODED], p[A.MIDDLE], p[A.DECODED]
    n = size // decoded
    if nbytes != n * itemsize:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    first, second = p[A.FIRST], p[A.SECOND]
    if middle == 0:
        convert_native(source, 0, itemsize, target, 0, decoded, 1, n, first, itemsize, decoded)
        return S.OK
    scratch = 0
    if second != 0:
        scratch = ensure(context, C.BLOCKS, 8 * _SOME)
        if scratch == 0:
            return S.NO_MEMORY
    begin = 0
    while begin < n:
        some = min(_SOME, n - begin)
        values = source + begin * itemsize
        made = target + begin * decoded
        between = scratch if second != 0 else made
        if first != 0:
            convert_native(values, 0, itemsize, between, 0, middle, 1, some, first, itemsize, middle)
            values = between
        _on_a_line(values, between, some, middle, parameter)
        if second != 0:
            convert_native(between, 0, middle, made, 0, decoded, 1, some, second, middle, decoded)
        begin += some
    return S.OK


@by_address(6)
def delta_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Add up differences: integers modulo their range, floating-point numbers one after the other."""
    c, p = i64(context), i64(parameter)
    itemsize, decoded = p[A.ENCODED], p[A.DECODED]
    n = size // decoded
    if nbytes != n * itemsize:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    if p[A.FIRST] != 0:
        convert_native(source, 0, itemsize, target, 0, decoded, 1, n, p[A.FIRST], itemsize, decoded)
        source = target
    if n == 0:
        return S.OK
    if p[A.MIDDLE] != 0:
        if decoded == 4:
            single = f32(source)[0]
            f32(target)[0] = single
            for i in range(1, n):
                single = single + f32(source)[i]
                f32(target)[i] = single
        else:
            double = f64(source)[0]
            f64(target)[0] = double
            for i in range(1, n):
                double = double + f64(source)[i]
                f64(target)[i] = double
        return S.OK
    total = 0
    if decoded == 1:
        for i in range(n):
            total += u8(source)[i]
            u8(target)[i] = total
    elif decoded == 2:
        for i in range(n):
            total += u16(source)[i]
            u16(target)[i] = total
    elif decoded == 4:
        for i in range(n):
            total += u32(source)[i]
            u32(target)[i] = total
    else:
        for i in range(n):
            total += i64(source)[i]
            i64(target)[i] = total
    return S.OK


@in_line
def _as_int32(value: float) -> int:
    """Return a whole number as NumPy casts it on x86-64: what does not fit, and NaN, becomes the least int32."""
    return int32(value) if -2147483648.0 <= value < 2147483648.0 else int32(-2147483648)


def _make_packing(load: Any, store: Any, number: Any, whole: Any) -> Any:
    """``pack(source, target, n, scale, offset)``: write ``(x - offset) * scale`` as whole numbers in integers."""

    @part
    def pack(source: int, target: int, n: int, scale: float, offset: float) -> None:
        factor, shift = number(scale), number(offset)
        for i in range(n):
            store(target)[i] = _as_int32(whole((load(source)[i] - shift) * factor))

    return pack


def _make_rounding(pointer: Any, number: Any, whole: Any) -> Any:
    """``around(source, target, n, scale, offset, rounded)``: write ``(x - offset) * scale``, perhaps rounded."""

    @part
    def around(source: int, target: int, n: int, scale: float, offset: float, rounded: int) -> None:
        factor, shift = number(scale), number(offset)
        if rounded != 0:
            for i in range(n):
                pointer(target)[i] = whole((pointer(source)[i] - shift) * factor)
        else:
            for i in range(n):
                pointer(target)[i] = (pointer(source)[i] - shift) * factor

    return around


_pack_41 = _make_packing(f32, u8, float32, whole_4)
_pack_42 = _make_packing(f32, u16, float32, whole_4)
_pack_44 = _make_packing(f32, u32, float32, whole_4)
_pack_81 = _make_packing(f64, u8, float64, whole_8)
_pack_82 = _make_packing(f64, u16, float64, whole_8)
_pack_84 = _make_packing(f64, u32, float64, whole_8)
_around_4 = _make_rounding(f32, float32, whole_4)
_around_8 = _make_rounding(f64, float64, whole_8)


@by_address(6)
def line_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Compute ``(x - offset) * scale``.

    Parameters are the bytes of a number, the bits of scale and offset, whether results are rounded to whole numbers,
    and the bytes of the integers that they become, 0 for none.
    """
    p = i64(parameters)
    itemsize, rounded, encoded = p[0], p[3], p[4]
    scale, offset = f64(parameters + 8)[0], f64(parameters + 16)[0]
    n = nbytes // itemsize
    if itemsize == 4:
        if encoded == 1:
            _pack_41(source, target, n, scale, offset)
        elif encoded == 2:
            _pack_42(source, target, n, scale, offset)
        elif encoded == 4:
            _pack_44(source, target, n, scale, offset)
        else:
            _around_4(source, target, n, scale, offset, rounded)
    elif encoded == 1:
        _pack_81(source, target, n, scale, offset)
    elif encoded == 2:
        _pack_82(source, target, n, scale, offset)
    elif encoded == 4:
        _pack_84(source, target, n, scale, offset)
    else:
        _around_8(source, target, n, scale, offset, rounded)
    return n * (itemsize if encoded == 0 else encoded)


def _make_differences(pointer: Any) -> Any:
    """``differences(source, target, n)``: the first number, and how much each further one is above that before it."""

    @part
    def differences(source: int, target: int, n: int) -> None:
        pointer(target)[0] = pointer(source)[0]
        for i in range(1, n):
            pointer(target)[i] = pointer(source)[i] - pointer(source)[i - 1]

    return differences


_differences_1 = _make_differences(u8)
_differences_2 = _make_differences(u16)
_differences_4 = _make_differences(u32)
_differences_8 = _make_differences(i64)
_differences_f4 = _make_differences(f32)
_differences_f8 = _make_differences(f64)


@by_address(6)
def delta_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write differences: bytes of a number, and whether numbers are floating-point ones."""
    itemsize, floating = i64(parameters)[0], i64(parameters)[1]
    n = nbytes // itemsize
    if floating != 0:
        if itemsize == 4:
            _differences_f4(source, target, n)
        else:
            _differences_f8(source, target, n)
    elif itemsize == 1:
        _differences_1(source, target, n)
    elif itemsize == 2:
        _differences_2(source, target, n)
    elif itemsize == 4:
        _differences_4(source, target, n)
    else:
        _differences_8(source, target, n)
    return nbytes
