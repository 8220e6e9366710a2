"""Arrays resampled by cubic splines on a device, and the filter that makes their coefficients.

As in ``resample.py``, but apart from it: this needs twice the registers. Boxes are of coefficients, which are float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import splines
from ..slots import affine as S
from .addressing import get, quotient
from .filters import bits_of_float64, float64_of
from .language import cuda, float64, int64
from .resample import THREADS, blocks, coordinate, is_inside, located, place_in_box, reached, real, store_number, whole
from .target import body, kernel
from .words import load8, store8

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "blocks", "filter_lines", "resample_cubic"]

_weight = body(splines.cubic_weight)


@body
def _coefficient(source: Bytes, offset: int) -> float:
    return float64_of(load8(source, offset))


@body
def _cubic_inner(source: Bytes, columns: Column, job: int, pose: int, c0: float, c1: float, c2: float) -> float:
    """Return an element whose neighbours are all inside of the box."""
    axes = get(columns, job + S.AXES)
    s1 = 8 * get(columns, pose + S.STRIDES + 1)
    s2 = 8 * get(columns, pose + S.STRIDES + 2)
    r1 = c1 - float64(get(columns, pose + S.LOW + 1))
    r2 = c2 - float64(get(columns, pose + S.LOW + 2))
    j1, j2 = int64(r1), int64(r2)
    at = get(columns, pose + S.SOURCE) + (j1 - 1) * s1 + (j2 - 1) * s2
    t0 = 0.0
    s0 = 0
    if axes == 3:
        r0 = c0 - float64(get(columns, pose + S.LOW))
        s0 = 8 * get(columns, pose + S.STRIDES)
        at += (int64(r0) - 1) * s0
        t0 = r0 - float64(int64(r0))
    t1, t2 = r1 - float64(j1), r2 - float64(j2)
    x0, x1, x2, x3 = _weight(t2, 0), _weight(t2, 1), _weight(t2, 2), _weight(t2, 3)
    total = 0.0
    for k0 in range(4 if axes == 3 else 1):
        plane = 0.0
        for k1 in range(4):
            b = at + k0 * s0 + k1 * s1
            row = x0 * _coefficient(source, b) + x1 * _coefficient(source, b + s2)
            row = row + (x2 * _coefficient(source, b + 2 * s2) + x3 * _coefficient(source, b + 3 * s2))
            plane = plane + _weight(t1, k1) * row
        total = total + (plane * _weight(t0, k0) if axes == 3 else plane)
    return total


@body
def _cubic_outer(source: Bytes, columns: Column, job: int, pose: int, c0: float, c1: float, c2: float) -> float:
    """Return an element whose neighbours may be beyond the ends."""
    axes = get(columns, job + S.AXES)
    mode = get(columns, job + S.MODE)
    c0, c1, c2 = reached(c0), reached(c1), reached(c2)
    j0, j1, j2 = whole(c0), whole(c1), whole(c2)
    total = 0.0
    for k0 in range(4 if axes == 3 else 1):
        t0 = _weight(c0 - float64(j0), k0) if axes == 3 else 1.0
        a0 = place_in_box(columns, pose, 0, j0 + k0 - 1 if axes == 3 else 0, mode)
        for k1 in range(4):
            t1 = t0 * _weight(c1 - float64(j1), k1)
            a1 = place_in_box(columns, pose, 1, j1 + k1 - 1, mode)
            for k2 in range(4):
                t = t1 * _weight(c2 - float64(j2), k2)
                a2 = place_in_box(columns, pose, 2, j2 + k2 - 1, mode)
                # What has no weight may be beyond what was read.
                if t != 0.0:
                    if a0 < 0 or a1 < 0 or a2 < 0:
                        total += t * real(columns, get(columns, pose + S.FILL))
                    else:
                        at = a0 * get(columns, pose + S.STRIDES)
                        at += a1 * get(columns, pose + S.STRIDES + 1) + a2 * get(columns, pose + S.STRIDES + 2)
                        total += t * _coefficient(source, get(columns, pose + S.SOURCE) + 8 * at)
    return total


@body
def _cubic(source: Bytes, columns: Column, job: int, pose: int, i0: int, i1: int, i2: int) -> float:
    c0 = coordinate(columns, pose, 0, i0, i1, i2)
    c1 = coordinate(columns, pose, 1, i0, i1, i2)
    c2 = coordinate(columns, pose, 2, i0, i1, i2)
    if is_inside(columns, job, pose, c0, c1, c2, 1, 2):
        return _cubic_inner(source, columns, job, pose, c0, c1, c2)
    return _cubic_outer(source, columns, job, pose, c0, c1, c2)


@body
def _resample_cubic(source: Bytes, target: Bytes, columns: Column, job: int, first: int, step: int) -> None:
    """Make every ``step``-th element of all results."""
    kind = get(columns, job + S.TARGET_KIND)
    item = first
    while item < get(columns, job + S.ROWS) * get(columns, job + S.SHAPE + 2):
        pose, to, i0, i1, i2 = located(columns, job, item)
        store_number(target, to, _cubic(source, columns, job, pose, i0, i1, i2), kind)
        item += step


@kernel
def resample_cubic(source: Bytes, target: Bytes, columns: Column, job: int) -> None:
    """Make results of boxes of coefficients; launched as ``resample``, with the same parameters."""
    _resample_cubic(source, target, columns, job, cuda.grid(1), cuda.gridsize(1))


@body
def _filter(elements: Bytes, n: int, inner: int, lines: int, first: int, step: int) -> None:
    """Filter every ``step``-th line."""
    line = first
    while line < lines:
        outer = quotient(line, inner)
        at = 8 * (outer * n * inner + line - outer * inner)
        x = 6.0 * float64_of(load8(elements, at))
        store8(elements, at, bits_of_float64(x))
        for _ in range(1, n):
            at += 8 * inner
            x = 6.0 * float64_of(load8(elements, at)) + splines.POLE * x
            store8(elements, at, bits_of_float64(x))
        x = x * splines.LAST
        store8(elements, at, bits_of_float64(x))
        for _ in range(1, n):
            at -= 8 * inner
            x = splines.POLE * (x - float64_of(load8(elements, at)))
            store8(elements, at, bits_of_float64(x))
        line += step


@kernel
def filter_lines(elements: Bytes, n: int, inner: int, lines: int) -> None:
    """Filter lines of elements in place, each by one thread: they become coefficients of cubic splines.

    Launched with ``blocks(lines)`` blocks of ``THREADS``.

    Parameters
    ----------
    elements
        Memory of float64 ``(lines / inner, n, inner)``, which are filtered along the second axis; ``n`` is at least 1.
    n, inner
        As above.
    lines
        Number of lines.
    """
    _filter(elements, n, inner, lines, cuda.grid(1), cuda.gridsize(1))
