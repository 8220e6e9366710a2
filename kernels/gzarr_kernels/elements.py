"""Copies of rows of elements with any strides, with or without a byte swap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .interleave import make_move, move32, move64, prefetch, stream64
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
    """``row(source, source_stride, target, target_stride, n)``: strides in bytes, elements of ``width`` bytes.

    For rows that are not dense on both sides.
    """

    @part
    def row(source: int, source_stride: int, target: int, target_stride: int, n: int) -> None:
        if target_stride == width:
            d = view(target)
            for i in range(n):
                d[i] = swap(view(source + i * source_stride)[0])
        else:
            for i in range(n):
                view(target + i * target_stride)[0] = swap(view(source + i * source_stride)[0])

    return row


def _make_dense_swap(view: Any, width: int, swap: Any) -> Any:
    """``rows(source, by_source, target, by_target, rows, nbytes, stream)``: dense rows of units of ``width`` bytes."""
    line = make_move(2, False, width)
    line_past_caches = make_move(2, True, width)

    @part
    def dense_swap(
        source: int, by_source: int, target: int, by_target: int, rows: int, nbytes: int, stream: int
    ) -> None:
        lines = nbytes // 64 * 64
        past = stream != 0 and target % 64 == 0 and by_target % 64 == 0
        ahead = _ROWS_AHEAD * by_source if nbytes <= 1024 else 512
        for r in range(rows):
            s = source + r * by_source
            t = target + r * by_target
            i = 0
            if past:
                while i < lines:
                    prefetch(s + i + ahead)
                    line_past_caches(s + i, t + i)
                    i += 64
            else:
                while i < lines:
                    prefetch(s + i + ahead)
                    line(s + i, t + i)
                    i += 64
            while i < nbytes:
                view(t + i)[0] = swap(view(s + i)[0])
                i += width

    return dense_swap


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
_dense2s = _make_dense_swap(u16, 2, bswap16)
_dense4s = _make_dense_swap(u32, 4, bswap32)
_dense8s = _make_dense_swap(u64, 8, bswap64)


@part
def _copy_dense(source: int, by_source: int, target: int, by_target: int, rows: int, nbytes: int, stream: int) -> None:
    """Copy rows of ``nbytes`` with inline vectors: the rows are short, and a call would cost more than the copy."""
    if stream != 0 and target % 64 == 0 and by_target % 64 == 0 and nbytes >= 64:
        # Whole cache lines bypass the caches. Later writes must not touch these lines again: that would read them back.
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
                # The hardware prefetches the bytes that follow a row, but not the next row, which is elsewhere.
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
            prefetch(s + _ROWS_AHEAD * by_source)
            # Half of a cache line is written, so the line has to be read first.
            prefetch(t + _ROWS_AHEAD * by_target)
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

    ``by_source`` and ``by_target`` are the bytes between rows, ``source_stride`` and ``target_stride`` those between
    elements. With a nonzero ``stream``, writes of dense rows may bypass the caches.
    """
    if source_stride == itemsize and target_stride == itemsize:
        if swap < 2:
            _copy_dense(source, by_source, target, by_target, rows, n * itemsize, stream)
            return
        # An element of several units, such as a complex number, is as many elements of one unit.
        if swap == 2:
            _dense2s(source, by_source, target, by_target, rows, n * itemsize, stream)
        elif swap == 4:
            _dense4s(source, by_source, target, by_target, rows, n * itemsize, stream)
        else:
            _dense8s(source, by_source, target, by_target, rows, n * itemsize, stream)
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
            for u in range(itemsize // swap):
                a = s + u * swap
                b = t + u * swap
                if swap == 2:
                    _row2s(a, source_stride, b, target_stride, n)
                elif swap == 4:
                    _row4s(a, source_stride, b, target_stride, n)
                else:
                    _row8s(a, source_stride, b, target_stride, n)
