"""Transposing copies: two dimensions, one contiguous in the source and the other in the target, tile by tile.

Each tile passes through two buffers that stay in the innermost cache::

    source rows ──swap──▶ staged lines ──transpose 16-byte lanes──▶ rows of the target ──▶ target, whole lines
    (stride any)          (pitch 64)                               (pitch ``run``)         (stride any)

Each cache line of the source is read once, and each line of the target written once, as a whole. So strides that are
powers of two do no harm, although they map all lines of a tile to the same few cache sets. Byte swaps are vector
shuffles on the way in, so one transposition per element size serves all swaps. The vectors are LLVM's: AVX2, NEON or
whatever the machine has.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .elements import copy_rows
from .interleave import interleaved, prefetch, reversed_units, store
from .jit import part, unit
from .slots.scratch import TILE_BUFFER_BYTES

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)
#: Bytes of a cache line.
_LINE: Final = 64
_LANE: Final = 16
#: Bytes of a source row in one tile: one line if the source is in a near cache; more if it is in memory, where
#: neighbouring lines are fetched together.
_NEAR_BYTES: Final = 64
_FAR_BYTES: Final = 256
#: Source rows in a tile; for small elements, as many as fill a line. More rows evict each other (measured: half the
#: speed with 64 rows 4 KiB apart).
_ROWS: Final = 32
_NEAR_AHEAD: Final = 128
_FAR_ROWS_AHEAD: Final = 8
#: Rows of at most this many bytes are staged whole if they are in memory; the hardware prefetches longer rows.
_FAR_ROW_BYTES: Final = 512
#: Elements along each side of a block for item sizes without vectors.
_BLOCK: Final = 64


def _make_stage(swap: int) -> Any:
    """``stage(source, by_source, target, plane, rows, nbytes, ahead)``: copy rows, in lines, to a pitch of 64 bytes.

    The next line of each row goes ``plane`` bytes after this one. Memory ``ahead`` bytes after each line is prefetched.
    """

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def line(typing_context: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = ir.VectorType(_I8, 32).as_pointer()
            for offset in (0, 32):
                at = builder.add(args[0], ir.Constant(_I64, offset))
                vector = builder.load(builder.inttoptr(at, pointer), align=1)
                store(builder, reversed_units(builder, vector, swap), args[1], offset, False)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @part
    def stage(source: int, by_source: int, target: int, plane: int, rows: int, nbytes: int, ahead: int) -> None:
        for r in range(rows):
            s = source + r * by_source
            t = target + r * _LINE
            for i in range(0, nbytes, _LINE):
                prefetch(s + i + ahead)
                line(s + i, t)
                t += plane

    return stage


_stage = _make_stage(0)
_stage2 = _make_stage(2)
_stage4 = _make_stage(4)
_stage8 = _make_stage(8)


def _make_turn(width: int) -> Any:
    """``turn(staged, turned, mi, mj)``: transpose staged rows of elements of ``width`` bytes.

    The contents of the buffer beyond the last row and column are transposed too.
    """
    lanes = _LANE // width
    line = _LINE // width
    rows = max(_ROWS, line)
    run = rows * width
    plane = rows * _LINE

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def transpose(typing_context: Any, source: Any, target: Any) -> Any:
        """``transpose(source, target)``: 16 bytes of each of ``line`` staged rows become ``lanes`` rows of 64 bytes."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = ir.VectorType(_I8, _LANE).as_pointer()
            both = ir.Constant(ir.VectorType(ir.IntType(32), 2 * _LANE), list(range(2 * _LANE)))

            def load(row: int) -> Any:
                at = builder.add(args[0], ir.Constant(_I64, _LINE * row))
                return builder.load(builder.inttoptr(at, pointer), align=_LANE)

            for half in range(2):
                first = half * 2 * lanes
                vectors = [builder.shuffle_vector(load(first + k), load(first + lanes + k), both) for k in range(lanes)]
                for row, vector in enumerate(interleaved(builder, vectors, 2 * _LANE, width)):
                    store(builder, vector, args[1], row * run + half * 2 * _LANE, False)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    @part
    def turn(staged: int, turned: int, mi: int, mj: int) -> None:
        for c in range(0, mi, lanes):
            a = staged + c // line * plane + c % line * width
            for r in range(0, mj, line):
                transpose(a + r * _LINE, turned + c * run + r * width)

    return turn


_turn1 = _make_turn(1)
_turn2 = _make_turn(2)
_turn4 = _make_turn(4)
_turn8 = _make_turn(8)
_turn16 = _make_turn(16)


@part
def _tiles(
    source: int,
    si: int,
    sj: int,
    target: int,
    ti: int,
    tj: int,
    ni: int,
    nj: int,
    width: int,
    swap: int,
    scratch: int,
    stream: int,
    far: int,
) -> None:
    """Copy tile by tile; parameters as in :func:`copy_tile`, with ``width`` (1, 2, 4, 8 or 16) the item size."""
    line = _LINE // width
    rows = max(_ROWS, line)
    run = rows * width
    plane = rows * _LINE
    staged = (scratch + _LINE - 1) // _LINE * _LINE
    turned = staged + TILE_BUFFER_BYTES
    # Short rows in memory are staged whole, and the next rows are prefetched. Otherwise the next lines of the same
    # rows are prefetched.
    whole = far != 0 and ni * width <= _FAR_ROW_BYTES
    wide = (_FAR_BYTES if whole else _NEAR_BYTES) // width
    ahead = _FAR_ROWS_AHEAD * sj if whole else _NEAR_AHEAD
    # The first tiles may be narrower, so that all others begin on a cache line of the target.
    head = 0
    if tj == width and target % width == 0 and ti % _LINE == 0 and nj >= 4 * line:
        head = -target % _LINE // width
    over = (ni + wide - 1) // wide
    along = (nj + (rows - head if head > 0 else 0) + rows - 1) // rows
    for b in range(over * along):
        p = b // along if whole else b % over
        q = b % along if whole else b // over
        i = p * wide
        mi = min(wide, ni - i)
        j = q * rows
        mj = rows
        if head > 0:
            j = head + (q - 1) * rows if q > 0 else 0
            mj = rows if q > 0 else head
        mj = min(mj, nj - j)
        s = source + i * si + j * sj
        if si == width and mi % line == 0:
            if swap < 2:
                _stage(s, sj, staged, plane, mj, mi * width, ahead)
            elif swap == 2:
                _stage2(s, sj, staged, plane, mj, mi * width, ahead)
            elif swap == 4:
                _stage4(s, sj, staged, plane, mj, mi * width, ahead)
            else:
                _stage8(s, sj, staged, plane, mj, mi * width, ahead)
        else:
            for k in range((mi + line - 1) // line):
                c = k * line
                m = min(line, mi - c)
                copy_rows(s + c * si, sj, si, staged + k * plane, _LINE, width, mj, m, width, swap, 0)
        if width == 1:
            _turn1(staged, turned, mi, mj)
        elif width == 2:
            _turn2(staged, turned, mi, mj)
        elif width == 4:
            _turn4(staged, turned, mi, mj)
        elif width == 8:
            _turn8(staged, turned, mi, mj)
        else:
            _turn16(staged, turned, mi, mj)
        copy_rows(turned, run, width, target + i * ti + j * tj, ti, tj, mi, mj, width, 0, stream)


@unit(types.void, 13)
def copy_tile(
    source: int,
    si: int,
    sj: int,
    target: int,
    ti: int,
    tj: int,
    ni: int,
    nj: int,
    itemsize: int,
    swap: int,
    scratch: int,
    stream: int,
    far: int,
) -> None:
    """Copy ``ni`` × ``nj`` elements, fast where ``si`` and ``tj`` are ``itemsize``.

    Parameters
    ----------
    source, si, sj
        Address of the first element, and bytes to the next one along each dimension.
    target, ti, tj
        The same for the copy.
    ni, nj, itemsize
        Number of elements along each dimension, and bytes per element.
    swap
        Width of the units to byte-swap: 0, 2, 4 or 8.
    scratch
        Address of ``TILE_BYTES`` bytes.
    stream
        Nonzero if writes of whole lines may bypass the caches.
    far
        Nonzero if the source is in memory or a distant cache.
    """
    if si == 0 and sj == 0:
        # One element, repeated: fill the rows of the target.
        copy_rows(source, 0, 0, target, ti, tj, ni, nj, itemsize, swap, 0)
    elif ni * itemsize < _LANE:
        copy_rows(source, si, sj, target, ti, tj, ni, nj, itemsize, swap, 0)
    elif nj * itemsize < _LANE:
        copy_rows(source, sj, si, target, tj, ti, nj, ni, itemsize, swap, 0)
    elif itemsize == 1 or itemsize == 2 or itemsize == 4 or itemsize == 8 or itemsize == 16:
        _tiles(source, si, sj, target, ti, tj, ni, nj, itemsize, swap, scratch, stream, far)
    else:
        for j in range(0, nj, _BLOCK):
            mj = min(_BLOCK, nj - j)
            for i in range(0, ni, _BLOCK):
                mi = min(_BLOCK, ni - i)
                s = source + i * si + j * sj
                copy_rows(s, si, sj, target + i * ti + j * tj, ti, tj, mi, mj, itemsize, swap, 0)
