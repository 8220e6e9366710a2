"""Linear interpolation of rows, for each type of elements. See ``affine.py``."""

from __future__ import annotations

from typing import Any

from numba import float64

from .affine_places import BLOCK, coordinate, place_in_box, whole
from .jit import part
from .memory import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots import affine as S


def _make_linear(view: Any) -> tuple[Any, Any]:
    """Functions for one type of source: a block that needs no checks, and one element."""

    @part
    def block(pose: int, axes: int, n: int, buffers: int) -> None:
        p = i64(pose)
        v = f64(buffers + 0)
        at = i64(buffers + 8 * BLOCK)
        w0 = f64(buffers + 16 * BLOCK)
        w1 = f64(buffers + 24 * BLOCK)
        w2 = f64(buffers + 32 * BLOCK)
        s = view(p[S.SOURCE])
        s0 = p[S.STRIDES]
        s1 = p[S.STRIDES + 1]
        s2 = p[S.STRIDES + 2]
        if axes == 3:
            for k in range(n):
                a = at[k]
                c = a + s0
                t2 = w2[k]
                v00 = float64(s[a])
                v00 += t2 * (float64(s[a + s2]) - v00)
                v01 = float64(s[a + s1])
                v01 += t2 * (float64(s[a + s1 + s2]) - v01)
                v10 = float64(s[c])
                v10 += t2 * (float64(s[c + s2]) - v10)
                v11 = float64(s[c + s1])
                v11 += t2 * (float64(s[c + s1 + s2]) - v11)
                v00 += w1[k] * (v01 - v00)
                v10 += w1[k] * (v11 - v10)
                v[k] = v00 + w0[k] * (v10 - v00)
        else:
            for k in range(n):
                a = at[k]
                t2 = w2[k]
                v00 = float64(s[a])
                v00 += t2 * (float64(s[a + s2]) - v00)
                v01 = float64(s[a + s1])
                v01 += t2 * (float64(s[a + s1 + s2]) - v01)
                v[k] = v00 + w1[k] * (v01 - v00)

    @part
    def one(pose: int, axes: int, mode: int, i0: int, i1: int, i2: int) -> float:
        p = i64(pose)
        s = view(p[S.SOURCE])
        fill = f64(p[S.FILL])[0]
        total = 0.0
        c0 = coordinate(pose, 0, i0, i1, i2)
        c1 = coordinate(pose, 1, i0, i1, i2)
        c2 = coordinate(pose, 2, i0, i1, i2)
        j0 = whole(c0)
        j1 = whole(c1)
        j2 = whole(c2)
        for k0 in range(2 if axes == 3 else 1):
            t0 = 1.0 if axes == 2 else (c0 - j0 if k0 else 1 - (c0 - j0))
            a0 = place_in_box(pose, 0, j0 + k0, mode)
            for k1 in range(2):
                t1 = c1 - j1 if k1 else 1 - (c1 - j1)
                a1 = place_in_box(pose, 1, j1 + k1, mode)
                for k2 in range(2):
                    t = t0 * t1 * (c2 - j2 if k2 else 1 - (c2 - j2))
                    a2 = place_in_box(pose, 2, j2 + k2, mode)
                    # What has no weight may be beyond what was read.
                    if t != 0:
                        if a0 < 0 or a1 < 0 or a2 < 0:
                            total += t * fill
                        else:
                            a = a0 * p[S.STRIDES] + a1 * p[S.STRIDES + 1] + a2 * p[S.STRIDES + 2]
                            total += t * float64(s[a])
        return total

    return block, one


_linear = [_make_linear(view) for view in (u8, u16, u32, u64, i8, i16, i32, i64, f32, f64)]
(_b_u1, _o_u1), (_b_u2, _o_u2), (_b_u4, _o_u4), (_b_u8, _o_u8) = _linear[:4]
(_b_i1, _o_i1), (_b_i2, _o_i2), (_b_i4, _o_i4), (_b_i8, _o_i8) = _linear[4:8]
(_b_f4, _o_f4), (_b_f8, _o_f8) = _linear[8:]


@part
def linear_block(kind: int, pose: int, axes: int, n: int, buffers: int) -> None:
    """Make a block from its places and their distances to the next ones, of elements of a kind."""
    if kind == 0:
        _b_u1(pose, axes, n, buffers)
    elif kind == 1:
        _b_u2(pose, axes, n, buffers)
    elif kind == 2:
        _b_u4(pose, axes, n, buffers)
    elif kind == 3:
        _b_u8(pose, axes, n, buffers)
    elif kind == 4:
        _b_i1(pose, axes, n, buffers)
    elif kind == 5:
        _b_i2(pose, axes, n, buffers)
    elif kind == 6:
        _b_i4(pose, axes, n, buffers)
    elif kind == 7:
        _b_i8(pose, axes, n, buffers)
    elif kind == 8:
        _b_f4(pose, axes, n, buffers)
    else:
        _b_f8(pose, axes, n, buffers)


@part
def linear_one(kind: int, pose: int, axes: int, mode: int, i0: int, i1: int, i2: int) -> float:
    """Return one element, whose neighbours may be beyond the ends."""
    if kind == 0:
        return _o_u1(pose, axes, mode, i0, i1, i2)
    if kind == 1:
        return _o_u2(pose, axes, mode, i0, i1, i2)
    if kind == 2:
        return _o_u4(pose, axes, mode, i0, i1, i2)
    if kind == 3:
        return _o_u8(pose, axes, mode, i0, i1, i2)
    if kind == 4:
        return _o_i1(pose, axes, mode, i0, i1, i2)
    if kind == 5:
        return _o_i2(pose, axes, mode, i0, i1, i2)
    if kind == 6:
        return _o_i4(pose, axes, mode, i0, i1, i2)
    if kind == 7:
        return _o_i8(pose, axes, mode, i0, i1, i2)
    if kind == 8:
        return _o_f4(pose, axes, mode, i0, i1, i2)
    return _o_f8(pose, axes, mode, i0, i1, i2)
