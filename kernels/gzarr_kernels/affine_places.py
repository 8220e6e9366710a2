"""Where the elements of a resampled row are: inside of the box, or beyond the ends of the array. See ``affine.py``."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import float64, int32, int64

from . import folding
from .jit import in_line, part
from .memory import f64, i64
from .slots import affine as S

#: Elements of a block of a row: what is computed of them stays in the cache nearest to the processor.
BLOCK: Final = 128
#: Buffers of a block, float64 or int64 each: values, places, weights along three axes, and what is known of neighbours
#: (from :data:`NEIGHBOURS` on).
BUFFERS: Final = 13
NEIGHBOURS: Final = 40 * BLOCK
_LARGEST: Final = float(2**62)

folded = part(folding.folded)


@part
def place_in_box(pose: int, d: int, i: int, mode: int) -> int:
    """Return the offset in elements of a place along an axis in the box; -1 for the constant."""
    p = i64(pose)
    at = folded(i, p[S.ARRAY + d], mode)
    if at < 0:
        return -1
    return min(max(at - p[S.LOW + d], 0), p[S.LENGTH + d] - 1)


@in_line
def coordinate(pose: int, d: int, i0: int, i1: int, i2: int) -> float:
    """Return the coordinate in the array of an element of the result."""
    m = f64(pose + 8 * (S.MATRIX + 3 * d))
    return ((f64(pose)[S.OFFSET + d] + m[0] * i0) + m[1] * i1) + m[2] * i2


@in_line
def reached(c: float) -> float:
    """Return a coordinate; far away ones are cut to what int64 holds, and what is no number, too."""
    c = c if c > -_LARGEST else -_LARGEST
    return c if c < _LARGEST else _LARGEST


@part
def whole(c: float) -> int:
    """Return the largest integer of at most a float, as int64; far away ones are cut."""
    return int64(math.floor(reached(c)))


@part
def is_inside(pose: int, axes: int, half: float, before: int, after: int, i0: int, i1: int, i2: int) -> bool:
    """Return whether all that an element needs is inside of the box, which is inside of the array.

    These are the elements from ``before`` before to ``after`` after the one at its coordinates and ``half``.
    """
    p = i64(pose)
    for d in range(3 - axes, 3):
        r = (coordinate(pose, d, i0, i1, i2) + half) - p[S.LOW + d]
        if not (r >= before and r < p[S.LENGTH + d] - after):
            return False
    return True


@part
def run_inside(
    pose: int, axes: int, half: float, before: int, after: int, i0: int, i1: int, length: int, out: int
) -> None:
    """Store the first index and the end of a run of a row that needs no checks; the whole run is inside."""
    p = i64(pose)
    # Places move in one direction along each axis: so do rows whose ends are inside.
    if is_inside(pose, axes, half, before, after, i0, i1, 0) and is_inside(
        pose, axes, half, before, after, i0, i1, length - 1
    ):
        i64(out)[0] = 0
        i64(out)[1] = length
        return
    first = float64(0)
    last = float64(length - 1)
    for d in range(3 - axes, 3):
        low = float64(before)
        high = float64(p[S.LENGTH + d] - after)
        r = (coordinate(pose, d, i0, i1, 0) + half) - p[S.LOW + d]
        step = f64(pose)[S.MATRIX + 3 * d + 2]
        if step > 0:
            first = max(first, (low - r) / step)
            last = min(last, (high - r) / step)
        elif step < 0:
            first = max(first, (high - r) / step)
            last = min(last, (low - r) / step)
        elif not (r >= low and r < high):
            last = float64(-1)
    begin = int64(0)
    end = int64(0)
    # Also if something is no number.
    if first <= last:
        begin = int64(math.ceil(first))
        end = min(int64(math.floor(last)) + 1, length)
        # Rounding may have been to the outside, by one at most.
        while begin < end and not is_inside(pose, axes, half, before, after, i0, i1, begin):
            begin += 1
        while begin < end and not is_inside(pose, axes, half, before, after, i0, i1, end - 1):
            end -= 1
    i64(out)[0] = begin
    i64(out)[1] = max(begin, end)


@part
def store_places(pose: int, axes: int, half: float, i0: int, i1: int, first: int, n: int, buffers: int) -> None:
    """Store the places in the box of ``n`` elements of a row, in elements, and their distances to the next ones.

    All is float64 to the end, of which processors convert several at once; offsets of elements are exact in it.
    """
    p = i64(pose)
    at = i64(buffers + 8 * BLOCK)
    w0 = f64(buffers + 16 * BLOCK)
    w1 = f64(buffers + 24 * BLOCK)
    w2 = f64(buffers + 32 * BLOCK)
    m = f64(pose + 8 * S.MATRIX)
    o = f64(pose + 8 * S.OFFSET)
    b0 = (o[0] + m[0] * i0) + m[1] * i1
    b1 = (o[1] + m[3] * i0) + m[4] * i1
    b2 = (o[2] + m[6] * i0) + m[7] * i1
    m0 = m[2]
    m1 = m[5]
    m2 = m[8]
    low0 = float64(p[S.LOW])
    low1 = float64(p[S.LOW + 1])
    low2 = float64(p[S.LOW + 2])
    s0 = float64(p[S.STRIDES])
    s1 = float64(p[S.STRIDES + 1])
    s2 = float64(p[S.STRIDES + 2])
    if axes == 3:
        for k in range(int32(n)):
            x = float64(int32(first) + k)
            # Less the first element, an integer, without any rounding.
            r0 = ((b0 + m0 * x) + half) - low0
            r1 = ((b1 + m1 * x) + half) - low1
            r2 = ((b2 + m2 * x) + half) - low2
            j0 = np.floor(r0)
            j1 = np.floor(r1)
            j2 = np.floor(r2)
            w0[k] = r0 - j0
            w1[k] = r1 - j1
            w2[k] = r2 - j2
            at[k] = int64(j0 * s0 + j1 * s1 + j2 * s2)
    else:
        for k in range(int32(n)):
            x = float64(int32(first) + k)
            r1 = ((b1 + m1 * x) + half) - low1
            r2 = ((b2 + m2 * x) + half) - low2
            j1 = np.floor(r1)
            j2 = np.floor(r2)
            w1[k] = r1 - j1
            w2[k] = r2 - j2
            at[k] = int64(j1 * s1 + j2 * s2)
