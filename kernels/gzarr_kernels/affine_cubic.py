"""Cubic splines of their coefficients, rows of which are resampled. See ``affine.py``."""

from __future__ import annotations

from .affine_places import BLOCK, coordinate, place_in_box, whole
from .jit import in_line, part
from .memory import f64, i64
from .slots import affine as S


@in_line
def cubic_weight(t: float, k: int) -> float:
    """Return the weight of one of four neighbours of a place, ``t`` after the second one."""
    y = 1 - t
    if k == 1:
        return (t * t * (t - 2) * 3 + 4) / 6
    if k == 2:
        return (y * y * (y - 2) * 3 + 4) / 6
    if k == 0:
        return y * y * y / 6
    return t * t * t / 6


@part
def cubic_one(pose: int, axes: int, mode: int, i0: int, i1: int, i2: int) -> float:
    """Return one element, of coefficients, which are float64."""
    p = i64(pose)
    s = f64(p[S.SOURCE])
    fill = f64(p[S.FILL])[0]
    total = 0.0
    c0 = coordinate(pose, 0, i0, i1, i2)
    c1 = coordinate(pose, 1, i0, i1, i2)
    c2 = coordinate(pose, 2, i0, i1, i2)
    j0 = whole(c0)
    j1 = whole(c1)
    j2 = whole(c2)
    for k0 in range(4 if axes == 3 else 1):
        t0 = cubic_weight(c0 - j0, k0) if axes == 3 else 1.0
        a0 = place_in_box(pose, 0, j0 + k0 - 1 if axes == 3 else 0, mode)
        for k1 in range(4):
            t1 = t0 * cubic_weight(c1 - j1, k1)
            a1 = place_in_box(pose, 1, j1 + k1 - 1, mode)
            for k2 in range(4):
                t = t1 * cubic_weight(c2 - j2, k2)
                a2 = place_in_box(pose, 2, j2 + k2 - 1, mode)
                if t != 0:
                    if a0 < 0 or a1 < 0 or a2 < 0:
                        total += t * fill
                    else:
                        total += t * s[a0 * p[S.STRIDES] + a1 * p[S.STRIDES + 1] + a2 * p[S.STRIDES + 2]]
    return total


@part
def cubic_block(pose: int, axes: int, n: int, buffers: int) -> None:
    """Make a block from its places and their distances to the next ones."""
    p = i64(pose)
    v = f64(buffers + 0)
    at = i64(buffers + 8 * BLOCK)
    w0 = f64(buffers + 16 * BLOCK)
    w1 = f64(buffers + 24 * BLOCK)
    w2 = f64(buffers + 32 * BLOCK)
    s = f64(p[S.SOURCE])
    s0 = p[S.STRIDES] if axes == 3 else 0
    s1 = p[S.STRIDES + 1]
    s2 = p[S.STRIDES + 2]
    for k in range(n):
        a = at[k] - s0 - s1 - s2
        x0 = cubic_weight(w2[k], 0)
        x1 = cubic_weight(w2[k], 1)
        x2 = cubic_weight(w2[k], 2)
        x3 = cubic_weight(w2[k], 3)
        total = 0.0
        for k0 in range(4 if axes == 3 else 1):
            plane = 0.0
            for k1 in range(4):
                b = a + k0 * s0 + k1 * s1
                row = (x0 * s[b] + x1 * s[b + s2]) + (x2 * s[b + 2 * s2] + x3 * s[b + 3 * s2])
                plane += cubic_weight(w1[k], k1) * row
            total += plane * cubic_weight(w0[k], k0) if axes == 3 else plane
        v[k] = total
