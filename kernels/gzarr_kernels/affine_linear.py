"""Linear interpolation of rows, for each type of elements. See ``affine.py``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import float64, int64

from .affine_places import BLOCK, NEIGHBOURS, coordinate, place_in_box, reached
from .jit import in_line, part
from .memory import copy, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots import affine as S

#: Each element's neighbours along the last axis, side by side, at one of the four places of the other axes.
_PAIR_BYTES: Final = 16 * BLOCK
#: Offset of what is beyond the ends, where a constant stands; sums of offsets that are no more than half of it are
#: beyond them, too.
_NOWHERE: Final = -(2**60)
_INFINITY: Final = float("inf")


@in_line
def _between(a: float, b: float, t: float) -> float:
    """Return what is between two numbers, ``t`` of at least 0 and below 1 after the first.

    This is the first where both are equal.
    """
    return a + t * (b - a)


@in_line
def _between_any(a: float, b: float, t: float) -> float:
    """Return the same if it is finite. If not, a number without weight is ignored, whatever it is."""
    x = _between(a, b, t)
    # The difference of two numbers may be none, or beyond float64.
    weighted = (1.0 - t) * a + t * b
    weighted = a if t == 0.0 else weighted
    return x if abs(x) < _INFINITY else weighted


@part
def _are_finite(n: int, buffers: int) -> bool:
    """Return whether the values of a block are finite."""
    v = f64(buffers + 0)
    others = 0
    for k in range(n):
        others += 0 if abs(v[k]) < _INFINITY else 1
    return others == 0


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
            c = reached(coordinate(pose, d, i0, i1, first + k))
            before = np.floor(c)
            # What is hardly below 0 is 0: its distance from -1 is 1 by rounding.
            before += 1.0 if c - before == 1.0 else 0.0
            weights[k] = max(c - before, 0.0)
            j = int64(before)
            a = place_in_box(pose, d, j, mode)
            b = place_in_box(pose, d, j + 1, mode)
            offsets[k] = _NOWHERE if a < 0 else a * stride
            offsets[BLOCK + k] = _NOWHERE if b < 0 else b * stride


def _make_block(view: Any, between: Any) -> Any:
    @part
    def block(axes: int, n: int, buffers: int) -> None:
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
                t1 = w1[k]
                t2 = w2[k]
                v00 = between(float64(p00[2 * k]), float64(p00[2 * k + 1]), t2)
                v01 = between(float64(p01[2 * k]), float64(p01[2 * k + 1]), t2)
                v10 = between(float64(p10[2 * k]), float64(p10[2 * k + 1]), t2)
                v11 = between(float64(p11[2 * k]), float64(p11[2 * k + 1]), t2)
                v[k] = between(between(v00, v01, t1), between(v10, v11, t1), w0[k])
        else:
            for k in range(n):
                t2 = w2[k]
                v00 = between(float64(p00[2 * k]), float64(p00[2 * k + 1]), t2)
                v01 = between(float64(p01[2 * k]), float64(p01[2 * k + 1]), t2)
                v[k] = between(v00, v01, w1[k])

    return block


def _make_edge(view: Any, between: Any) -> Any:
    @in_line
    def corner(source: int, at: int, fill: float) -> float:
        return float64(view(source + 0)[at]) if at > _NOWHERE // 2 else fill

    @in_line
    def plane(source: int, at: int, k: int, buffers: int, fill: float) -> float:
        offsets = i64(buffers + NEIGHBOURS)
        t2 = f64(buffers + 32 * BLOCK)[k]
        a, b = at + offsets[2 * BLOCK + k], at + offsets[3 * BLOCK + k]
        c, d = offsets[4 * BLOCK + k], offsets[5 * BLOCK + k]
        first = between(corner(source, a + c, fill), corner(source, a + d, fill), t2)
        second = between(corner(source, b + c, fill), corner(source, b + d, fill), t2)
        return between(first, second, f64(buffers + 24 * BLOCK)[k])

    @part
    def edge(source: int, axes: int, k: int, buffers: int, fill: float) -> float:
        if axes == 2:
            return plane(source, 0, k, buffers, fill)
        offsets = i64(buffers + NEIGHBOURS)
        first = plane(source, offsets[k], k, buffers, fill)
        second = plane(source, offsets[BLOCK + k], k, buffers, fill)
        return between(first, second, f64(buffers + 16 * BLOCK)[k])

    return edge


def _make_linear(view: Any, has_others: bool) -> tuple[Any, Any]:
    """Return functions for one type of source: for a block that needs no checks, and for one at the edges.

    Both give the same bits, so that a place's value does not depend on the box. Where not all that they find is finite,
    they begin again, and look for numbers without weight; ``has_others`` says whether the type has some that are not.
    """
    plain, careful = _make_block(view, _between), _make_block(view, _between_any)
    plain_edge, careful_edge = _make_edge(view, _between), _make_edge(view, _between_any)

    @part
    def block(pose: int, axes: int, n: int, buffers: int) -> None:
        plain(axes, n, buffers)
        if has_others and not _are_finite(n, buffers):
            careful(axes, n, buffers)

    @part
    def edges(pose: int, axes: int, n: int, buffers: int) -> None:
        p = i64(pose)
        # Neighbours without weight may be beyond what was read: others are in their places.
        fill = f64(p[S.FILL])[0]
        v = f64(buffers + 0)
        for k in range(n):
            x = plain_edge(p[S.SOURCE], axes, k, buffers, fill)
            if not abs(x) < _INFINITY:
                x = careful_edge(p[S.SOURCE], axes, k, buffers, fill)
            v[k] = x

    return block, edges


_linear = [_make_linear(view, False) for view in (u8, u16, u32, u64, i8, i16, i32, i64)]
_linear += [_make_linear(view, True) for view in (f32, f64)]
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
