"""Rows of cubic splines, from their coefficients, and the filter that makes these. See ``affine.py``."""

from __future__ import annotations

from . import splines
from .affine_places import BLOCK, coordinate, place_in_box, reached, whole
from .jit import in_line, part
from .memory import f64, i64
from .slots import affine as S
from .slots.affine import GROUP_OF_LINES, GROUP_OF_ROWS

cubic_weight = in_line(splines.cubic_weight)


@part
def cubic_one(pose: int, axes: int, mode: int, i0: int, i1: int, i2: int) -> float:
    """Return one element, of coefficients, which are float64."""
    p = i64(pose)
    s = f64(p[S.SOURCE])
    fill = f64(p[S.FILL])[0]
    total = 0.0
    c0 = reached(coordinate(pose, 0, i0, i1, i2))
    c1 = reached(coordinate(pose, 1, i0, i1, i2))
    c2 = reached(coordinate(pose, 2, i0, i1, i2))
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


@part
def _filter_lines(elements: int, n: int, step: int, lines: int) -> None:
    """Filter neighbouring lines of ``n`` elements, ``step`` elements apart."""
    x = f64(elements)
    for k in range(lines):
        x[k] *= 6.0
    for i in range(1, n):
        before = f64(elements + 8 * (i - 1) * step)
        own = f64(elements + 8 * i * step)
        for k in range(lines):
            own[k] = own[k] * 6.0 + splines.POLE * before[k]
    x = f64(elements + 8 * (n - 1) * step)
    for k in range(lines):
        x[k] *= splines.LAST
    for i in range(n - 2, -1, -1):
        after = f64(elements + 8 * (i + 1) * step)
        own = f64(elements + 8 * i * step)
        for k in range(lines):
            own[k] = splines.POLE * (after[k] - own[k])


@part
def _filter_rows(elements: int, n: int, rows: int) -> None:
    """Filter rows of ``n`` elements, which follow each other."""
    x = f64(elements + 0)
    for r in range(rows):
        x[r * n] *= 6.0
    for i in range(1, n):
        for r in range(rows):
            at = r * n + i
            x[at] = x[at] * 6.0 + splines.POLE * x[at - 1]
    for r in range(rows):
        x[r * n + n - 1] *= splines.LAST
    for i in range(n - 2, -1, -1):
        for r in range(rows):
            at = r * n + i
            x[at] = splines.POLE * (x[at + 1] - x[at])


@part
def filter_group(job: int, group: int) -> None:
    """Filter some neighbouring lines, one element of each after the other, so that no sum waits for the one before."""
    j = i64(job)
    n = j[S.LENGTH_OF_LINE]
    inner = j[S.INNER]
    if inner == 1:
        first = group * GROUP_OF_ROWS
        _filter_rows(j[S.ELEMENTS] + 8 * first * n, n, min(GROUP_OF_ROWS, j[S.LINES] - first))
    else:
        per_outer = -(-inner // GROUP_OF_LINES)
        first = group % per_outer * GROUP_OF_LINES
        at = group // per_outer * n * inner + first
        _filter_lines(j[S.ELEMENTS] + 8 * at, n, inner, min(GROUP_OF_LINES, inner - first))
