"""Copies of rows of elements with any strides, with or without a byte swap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .interleave import move32, move64, prefetch, stream64
from .jit import part, unit
from .memory import copy, u8, u16, u32, u64

_ROWS_AHEAD = 12


def _make_bswap(width: int, element: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def bswap(typing_context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(width)
            function = builder.module.declare_intrinsic("llvm.bswap", [kind])
            return builder.call(function, [args[0]])

        return element(element), codegen

    return bswap


bswap16 = _make_bswap(16, types.uint16)
bswap32 = _make_bswap(32, types.uint32)
bswap64 = _make_bswap(64, types.uint64)


def _make_row(view: Any, width: int, swap: Any) -> Any:
    """``row(source, source_stride, target, target_stride, n)``: strides in bytes, elements of ``width`` bytes."""

    @part
    def row(source: int, source_stride: int, target: int, target_stride: int, n: int) -> None:
        if source_stride == width and target_stride == width:
            s = view(source)
            d = view(target)
            for i in range(n):
                d[i] = swap(s[i])
        elif target_stride == width:
            d = view(target)
            for i in range(n):
                d[i] = swap(view(source + i * source_stride)[0])
        else:
            for i in range(n):
                view(target + i * target_stride)[0] = swap(view(source + i * source_stride)[0])

    return row


@njit(inline="always")
def _same(x: Any) -> Any:
    return x


_row1 = _make_row(u8, 1, _same)
_row2 = _make_row(u16, 2, _same)
_row4 = _make_row(u32, 4, _same)
_row8 = _make_row(u64, 8, _same)
_row2s = _make_row(u16, 2, bswap16)
_row4s = _make_row(u32, 4, bswap32)
_row8s = _make_row(u64, 8, bswap64)


@part
def _copy_dense(source: int, by_source: int, target: int, by_target: int, rows: int, nbytes: int, stream: int) -> None:
    """Copy rows of ``nbytes``: vectors in line, since rows are short, and a call costs more than their bytes."""
    if stream != 0 and target % 64 == 0 and by_target % 64 == 0 and nbytes >= 64:
        # Whole cache lines past the caches. What follows must not touch them again: that would read them back.
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            i = 0
            while i + 64 <= nbytes:
                stream64(s + i, t + i)
                i += 64
            if i + 32 <= nbytes:
                move32(s + i, t + i)
                i += 32
            while i + 8 <= nbytes:
                u64(t + i)[0] = u64(s + i)[0]
                i += 8
            while i < nbytes:
                u8(t + i)[0] = u8(s + i)[0]
                i += 1
    elif nbytes > 1024:
        for r in range(rows):
            copy(target + r * by_target, source + r * by_source, nbytes)
    elif nbytes >= 64:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            i = 0
            while i + 64 <= nbytes:
                # Processors foresee what follows a row, not the row that follows somewhere else.
                prefetch(s + i + _ROWS_AHEAD * by_source)
                move64(s + i, t + i)
                i += 64
            if i < nbytes:
                # The last vectors overlap those before them.
                move64(s + nbytes - 64, t + nbytes - 64)
    elif nbytes >= 32:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            move32(s, t)
            move32(s + nbytes - 32, t + nbytes - 32)
    elif nbytes == 16:
        for r in range(rows):
            copy(target + r * by_target, source + r * by_source, 16)
    elif nbytes >= 8:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            i = 0
            while i + 8 <= nbytes:
                u64(t + i)[0] = u64(s + i)[0]
                i += 8
            u64(t + nbytes - 8)[0] = u64(s + nbytes - 8)[0]
    elif nbytes >= 4:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            u32(t)[0] = u32(s)[0]
            u32(t + nbytes - 4)[0] = u32(s + nbytes - 4)[0]
    else:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            for i in range(nbytes):
                u8(t + i)[0] = u8(s + i)[0]


@unit(types.void, 11)
def copy_rows(
    source: int,
    by_source: int,
    source_stride: int,
    target: int,
    by_target: int,
    target_stride: int,
    rows: int,
    n: int,
    itemsize: int,
    swap: int,
    stream: int,
) -> None:
    """Copy ``rows`` rows of ``n`` elements of ``itemsize`` bytes.

    ``by_source``, ``by_target``: bytes from row to row; ``source_stride``, ``target_stride``: from element to element.
    ``stream``, not 0: dense rows may be written past the caches.
    """
    if source_stride == itemsize and target_stride == itemsize:
        if swap < 2:
            _copy_dense(source, by_source, target, by_target, rows, n * itemsize, stream)
            return
        # Elements of several units, such as complex numbers, are then as many elements of one.
        n *= itemsize // swap
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            if swap == 2:
                _row2s(s, 2, t, 2, n)
            elif swap == 4:
                _row4s(s, 4, t, 4, n)
            else:
                _row8s(s, 8, t, 8, n)
        return
    for r in range(rows):
        s = source + r * by_source
        t = target + r * by_target
        if swap < 2:
            if itemsize == 1:
                _row1(s, source_stride, t, target_stride, n)
            elif itemsize == 2:
                _row2(s, source_stride, t, target_stride, n)
            elif itemsize == 4:
                _row4(s, source_stride, t, target_stride, n)
            elif itemsize == 8:
                _row8(s, source_stride, t, target_stride, n)
            else:
                for i in range(n):
                    copy(t + i * target_stride, s + i * source_stride, itemsize)
        else:
            for unit_offset in range(0, itemsize, swap):
                a = s + unit_offset
                b = t + unit_offset
                if swap == 2:
                    _row2s(a, source_stride, b, target_stride, n)
                elif swap == 4:
                    _row4s(a, source_stride, b, target_stride, n)
                else:
                    _row8s(a, source_stride, b, target_stride, n)
