"""Copies of elements: one row with any strides, or a tile of two dimensions, with or without a byte swap."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .jit import part, unit
from .memory import copy, u8, u16, u32, u64


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


def _make_tile(view: Any, width: int, swap: Any) -> Any:
    """``tile(source, si, sj, target, ti, tj, ni, nj)``: strides in bytes; ``i`` is dense in the source, ``j`` in the target.

    Eight ``j`` at a time: eight cache lines are read along, and each write fills its own.
    """

    @part
    def tile(source: int, si: int, sj: int, target: int, ti: int, tj: int, ni: int, nj: int) -> None:
        j = 0
        while j + 8 <= nj:
            s = source + j * sj
            t = target + j * tj
            for i in range(ni):
                a = s + i * si
                d = t + i * ti
                for q in range(8):
                    view(d + q * tj)[0] = swap(view(a + q * sj)[0])
            j += 8
        while j < nj:
            s = source + j * sj
            t = target + j * tj
            for i in range(ni):
                view(t + i * ti)[0] = swap(view(s + i * si)[0])
            j += 1

    return tile


@njit(inline="always")
def _same(x: Any) -> Any:
    return x


_row1, _tile1 = _make_row(u8, 1, _same), _make_tile(u8, 1, _same)
_row2, _tile2 = _make_row(u16, 2, _same), _make_tile(u16, 2, _same)
_row4, _tile4 = _make_row(u32, 4, _same), _make_tile(u32, 4, _same)
_row8, _tile8 = _make_row(u64, 8, _same), _make_tile(u64, 8, _same)
_row2s, _tile2s = _make_row(u16, 2, bswap16), _make_tile(u16, 2, bswap16)
_row4s, _tile4s = _make_row(u32, 4, bswap32), _make_tile(u32, 4, bswap32)
_row8s, _tile8s = _make_row(u64, 8, bswap64), _make_tile(u64, 8, bswap64)


@part
def _element(source: int, target: int, itemsize: int, swap: int) -> None:
    """Copy one element of any size, swapping each unit of ``swap`` bytes."""
    if swap < 2:
        copy(target, source, itemsize)
        return
    s = u8(source)
    d = u8(target)
    for unit in range(0, itemsize, swap):
        for b in range(swap):
            d[unit + b] = s[unit + swap - 1 - b]


@unit(types.void, 7)
def copy_row(
    source: int, source_stride: int, target: int, target_stride: int, n: int, itemsize: int, swap: int
) -> None:
    """Copy ``n`` elements of ``itemsize`` bytes between rows with strides in bytes."""
    if swap < 2:
        if source_stride == itemsize and target_stride == itemsize:
            copy(target, source, n * itemsize)
        elif itemsize == 1:
            _row1(source, source_stride, target, target_stride, n)
        elif itemsize == 2:
            _row2(source, source_stride, target, target_stride, n)
        elif itemsize == 4:
            _row4(source, source_stride, target, target_stride, n)
        elif itemsize == 8:
            _row8(source, source_stride, target, target_stride, n)
        else:
            for i in range(n):
                copy(target + i * target_stride, source + i * source_stride, itemsize)
    elif swap == itemsize:
        if swap == 2:
            _row2s(source, source_stride, target, target_stride, n)
        elif swap == 4:
            _row4s(source, source_stride, target, target_stride, n)
        else:
            _row8s(source, source_stride, target, target_stride, n)
    else:
        for i in range(n):
            _element(source + i * source_stride, target + i * target_stride, itemsize, swap)


@unit(types.void, 10)
def copy_tile(
    source: int, si: int, sj: int, target: int, ti: int, tj: int, ni: int, nj: int, itemsize: int, swap: int
) -> None:
    """Copy ``ni`` × ``nj`` elements; strides in bytes. Fast where ``si`` and ``tj`` are the dense ones."""
    if swap < 2 and itemsize == 1:
        _tile1(source, si, sj, target, ti, tj, ni, nj)
    elif swap < 2 and itemsize == 2:
        _tile2(source, si, sj, target, ti, tj, ni, nj)
    elif swap < 2 and itemsize == 4:
        _tile4(source, si, sj, target, ti, tj, ni, nj)
    elif swap < 2 and itemsize == 8:
        _tile8(source, si, sj, target, ti, tj, ni, nj)
    elif swap == 2 and itemsize == 2:
        _tile2s(source, si, sj, target, ti, tj, ni, nj)
    elif swap == 4 and itemsize == 4:
        _tile4s(source, si, sj, target, ti, tj, ni, nj)
    elif swap == 8 and itemsize == 8:
        _tile8s(source, si, sj, target, ti, tj, ni, nj)
    else:
        for i in range(ni):
            copy_row(source + i * si, sj, target + i * ti, tj, nj, itemsize, swap)
