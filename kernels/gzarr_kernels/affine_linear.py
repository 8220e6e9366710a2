"""Linear interpolation of rows, for each type of elements. See ``affine.py``."""

from __future__ import annotations

from typing import Any, Final

from numba import float64, int64

from .affine_places import BLOCK, NEIGHBOURS, coordinate, place_in_box, whole
from .jit import part
from .memory import copy, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots import affine as S

#: Each element's neighbours along the last axis, side by side, at one of the four places of the other axes.
_PAIR_BYTES: Final = 16 * BLOCK
#: Offset of what is beyond the ends, where a constant stands.
_NOWHERE: Final = -(2**62)


def _make_pairs(itemsize: int) -> Any:
    """Return a function that collects the neighbours of a block, of elements of one size.

    This is apart from what is computed of them, for which processors take several elements at once.
    """

    @part
    def collect(pose: int, axes: int, n: int, buffers: int) -> None:
        p = i64(pose)
        at = i64(buffers + 8 * BLOCK)
        source = p[S.SOURCE]
        s0 = p[S.STRIDES] * itemsize
        s1 = p[S.STRIDES + 1] * itemsize
        s2 = p[S.STRIDES + 2] * itemsize
        if s2 == itemsize and axes == 3:
            for k in range(n):
                a = source + at[k] * itemsize
                pair = buffers + NEIGHBOURS + 2 * itemsize * k
                copy(pair, a, 2 * itemsize)
                copy(pair + _PAIR_BYTES, a + s1, 2 * itemsize)
                copy(pair + 2 * _PAIR_BYTES, a + s0, 2 * itemsize)
                copy(pair + 3 * _PAIR_BYTES, a + s0 + s1, 2 * itemsize)
            return
        for k in range(n):
            for corner in range(4 if axes == 3 else 2):
                a = source + at[k] * itemsize + (s1 if corner & 1 else 0) + (s0 if corner & 2 else 0)
                pair = buffers + NEIGHBOURS + 2 * itemsize * k + corner * _PAIR_BYTES
                copy(pair, a, itemsize)
                copy(pair + itemsize, a + s2, itemsize)

    return collect


_pairs_1, _pairs_2, _pairs_4, _pairs_8 = (_make_pairs(itemsize) for itemsize in (1, 2, 4, 8))


@part
def store_edges(pose: int, axes: int, mode: int, i0: int, i1: int, first: int, n: int, buffers: int) -> None:
    """Store where the neighbours of ``n`` elements of a row are in the box along each axis, and the second's weight."""
    p = i64(pose)
    for d in range(3 - axes, 3):
        weights = f64(buffers + (16 + 8 * d) * BLOCK)
        offsets = i64(buffers + NEIGHBOURS + 16 * d * BLOCK)
        stride = p[S.STRIDES + d]
        for k in range(n):
            c = coordinate(pose, d, i0, i1, first + k)
            j = whole(c)
            weights[k] = c - j
            a = place_in_box(pose, d, j, mode)
            b = place_in_box(pose, d, j + 1, mode)
            offsets[k] = _NOWHERE if a < 0 else a * stride
            offsets[BLOCK + k] = _NOWHERE if b < 0 else b * stride


def _make_linear(view: Any) -> tuple[Any, Any]:
    """Return functions for one type of source: for a block that needs no checks, and for one at the edges."""

    @part
    def block(pose: int, axes: int, n: int, buffers: int) -> None:
        v = f64(buffers + 0)
        w0 = f64(buffers + 16 * BLOCK)
        w1 = f64(buffers + 24 * BLOCK)
        w2 = f64(buffers + 32 * BLOCK)
        p00 = view(buffers + NEIGHBOURS)
        p01 = view(buffers + NEIGHBOURS + _PAIR_BYTES)
        p10 = view(buffers + NEIGHBOURS + 2 * _PAIR_BYTES)
        p11 = view(buffers + NEIGHBOURS + 3 * _PAIR_BYTES)
        if axes == 3:
            for k in range(n):
                t2 = w2[k]
                v00 = float64(p00[2 * k])
                v00 += t2 * (float64(p00[2 * k + 1]) - v00)
                v01 = float64(p01[2 * k])
                v01 += t2 * (float64(p01[2 * k + 1]) - v01)
                v10 = float64(p10[2 * k])
                v10 += t2 * (float64(p10[2 * k + 1]) - v10)
                v11 = float64(p11[2 * k])
                v11 += t2 * (float64(p11[2 * k + 1]) - v11)
                v00 += w1[k] * (v01 - v00)
                v10 += w1[k] * (v11 - v10)
                v[k] = v00 + w0[k] * (v10 - v00)
        else:
            for k in range(n):
                t2 = w2[k]
                v00 = float64(p00[2 * k])
                v00 += t2 * (float64(p00[2 * k + 1]) - v00)
                v01 = float64(p01[2 * k])
                v01 += t2 * (float64(p01[2 * k + 1]) - v01)
                v[k] = v00 + w1[k] * (v01 - v00)

    @part
    def edges(pose: int, axes: int, n: int, buffers: int) -> None:
        p = i64(pose)
        s = view(p[S.SOURCE])
        fill = f64(p[S.FILL])[0]
        v = f64(buffers + 0)
        w0 = f64(buffers + 16 * BLOCK)
        w1 = f64(buffers + 24 * BLOCK)
        w2 = f64(buffers + 32 * BLOCK)
        offsets = i64(buffers + NEIGHBOURS)
        for k in range(n):
            total = 0.0
            for k0 in range(2 if axes == 3 else 1):
                t0 = 1.0 if axes == 2 else (w0[k] if k0 else 1 - w0[k])
                a0 = int64(0) if axes == 2 else offsets[k0 * BLOCK + k]
                for k1 in range(2):
                    t1 = w1[k] if k1 else 1 - w1[k]
                    a1 = offsets[(2 + k1) * BLOCK + k]
                    for k2 in range(2):
                        t = t0 * t1 * (w2[k] if k2 else 1 - w2[k])
                        a2 = offsets[(4 + k2) * BLOCK + k]
                        # What has no weight may be beyond what was read.
                        if t != 0:
                            if a0 == _NOWHERE or a1 == _NOWHERE or a2 == _NOWHERE:
                                total += t * fill
                            else:
                                total += t * float64(s[a0 + a1 + a2])
            v[k] = total

    return block, edges


_linear = [_make_linear(view) for view in (u8, u16, u32, u64, i8, i16, i32, i64, f32, f64)]
(_b_u1, _e_u1), (_b_u2, _e_u2), (_b_u4, _e_u4), (_b_u8, _e_u8) = _linear[:4]
(_b_i1, _e_i1), (_b_i2, _e_i2), (_b_i4, _e_i4), (_b_i8, _e_i8) = _linear[4:8]
(_b_f4, _e_f4), (_b_f8, _e_f8) = _linear[8:]


@part
def linear_block(kind: int, pose: int, axes: int, n: int, buffers: int) -> None:
    """Make a block from its places and their distances to the next ones, of elements of a kind."""
    if kind == 0:
        _pairs_1(pose, axes, n, buffers)
        _b_u1(pose, axes, n, buffers)
    elif kind == 1:
        _pairs_2(pose, axes, n, buffers)
        _b_u2(pose, axes, n, buffers)
    elif kind == 2:
        _pairs_4(pose, axes, n, buffers)
        _b_u4(pose, axes, n, buffers)
    elif kind == 3:
        _pairs_8(pose, axes, n, buffers)
        _b_u8(pose, axes, n, buffers)
    elif kind == 4:
        _pairs_1(pose, axes, n, buffers)
        _b_i1(pose, axes, n, buffers)
    elif kind == 5:
        _pairs_2(pose, axes, n, buffers)
        _b_i2(pose, axes, n, buffers)
    elif kind == 6:
        _pairs_4(pose, axes, n, buffers)
        _b_i4(pose, axes, n, buffers)
    elif kind == 7:
        _pairs_8(pose, axes, n, buffers)
        _b_i8(pose, axes, n, buffers)
    elif kind == 8:
        _pairs_4(pose, axes, n, buffers)
        _b_f4(pose, axes, n, buffers)
    else:
        _pairs_8(pose, axes, n, buffers)
        _b_f8(pose, axes, n, buffers)


@part
def linear_edges(kind: int, pose: int, axes: int, n: int, buffers: int) -> None:
    """Make a block whose neighbours may be beyond the ends."""
    if kind == 0:
        _e_u1(pose, axes, n, buffers)
    elif kind == 1:
        _e_u2(pose, axes, n, buffers)
    elif kind == 2:
        _e_u4(pose, axes, n, buffers)
    elif kind == 3:
        _e_u8(pose, axes, n, buffers)
    elif kind == 4:
        _e_i1(pose, axes, n, buffers)
    elif kind == 5:
        _e_i2(pose, axes, n, buffers)
    elif kind == 6:
        _e_i4(pose, axes, n, buffers)
    elif kind == 7:
        _e_i8(pose, axes, n, buffers)
    elif kind == 8:
        _e_f4(pose, axes, n, buffers)
    else:
        _e_f8(pose, axes, n, buffers)
