"""Arrays resampled by affine maps: nearest, linear and cubic. Jobs have ``slots/affine.py``.

Workers take a few rows of the results at a time. In a row, only the last index changes, so the elements that it needs
of the box move along a line. Where all of them are inside of the box, a row needs no checks: places and weights are
computed for a block of a row, which is done for several elements at once, and then the elements are looked up. The rest
of a row is made element by element, and each place beyond the ends of the array is folded back.

Coordinates are float64, each computed from the index (not from the one before), in the order in which
``scipy.ndimage`` does: ``((offset + m0 * i0) + m1 * i1) + m2 * i2``. Each step is monotonic in each index, so what the
corners of a result need bounds what the rest of it needs. Places are kept inside of the box in any case.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from .affine_cubic import cubic_block, cubic_one, filter_group
from .affine_linear import linear_block, linear_edges, store_edges
from .affine_places import BLOCK, BUFFERS, coordinate, place_in_box, run_inside, store_places, whole
from .affine_store import store_numbers
from .context import ensure, now, slice_end
from .jit import entry, part
from .memory import atomic_add, atomic_load, copy, f64, i64, u8, u16, u32, u64
from .slots import affine as S
from .slots.context import FIRST


@part
def _copy_element(target: int, source: int, itemsize: int) -> None:
    if itemsize == 4:
        u32(target)[0] = u32(source)[0]
    elif itemsize == 2:
        u16(target)[0] = u16(source)[0]
    elif itemsize == 1:
        u8(target)[0] = u8(source)[0]
    elif itemsize == 8:
        u64(target)[0] = u64(source)[0]
    else:
        copy(target, source, itemsize)


def _make_copies(view: Any) -> Any:
    @part
    def copies(target: int, stride: int, source: int, itemsize: int, n: int, buffers: int) -> None:
        at = i64(buffers + 8 * BLOCK)
        for k in range(n):
            view(target + k * stride)[0] = view(source + 0)[at[k]]

    return copies


_c1, _c2, _c4, _c8 = _make_copies(u8), _make_copies(u16), _make_copies(u32), _make_copies(u64)


@part
def _nearest_block(target: int, stride: int, source: int, itemsize: int, n: int, buffers: int) -> None:
    """Copy elements from their places."""
    if itemsize == 1:
        _c1(target, stride, source, itemsize, n, buffers)
    elif itemsize == 2:
        _c2(target, stride, source, itemsize, n, buffers)
    elif itemsize == 4:
        _c4(target, stride, source, itemsize, n, buffers)
    elif itemsize == 8:
        _c8(target, stride, source, itemsize, n, buffers)
    else:
        at = i64(buffers + 8 * BLOCK)
        for k in range(n):
            copy(target + k * stride, source + at[k] * itemsize, itemsize)


@part
def _nearest_one(job: int, pose: int, i0: int, i1: int, i2: int, target: int) -> None:
    j = i64(job)
    p = i64(pose)
    itemsize = j[S.ITEMSIZE]
    at = p[S.SOURCE]
    for d in range(3 - j[S.AXES], 3):
        a = place_in_box(pose, d, whole(coordinate(pose, d, i0, i1, i2) + 0.5), j[S.MODE])
        if a < 0:
            at = p[S.FILL]
            break
        at += a * p[S.STRIDES + d] * itemsize
    _copy_element(target, at, itemsize)


@part
def _row(job: int, pose: int, i0: int, i1: int, target: int, buffers: int) -> None:
    """Make a row of a result."""
    j = i64(job)
    axes = j[S.AXES]
    order = j[S.ORDER]
    kind = j[S.SOURCE_KIND]
    stride = j[S.TARGET_STRIDES + 2]
    length = j[S.SHAPE + 2]
    half = 0.5 if order == 0 else 0.0
    before = 1 if order == 3 else 0
    after = order - before
    run_inside(pose, axes, half, before, after, i0, i1, length, buffers)
    begin = i64(buffers)[0]
    end = i64(buffers)[1]
    x = int64(0)
    while x < length:
        if begin <= x < end:
            n = min(BLOCK, end - x)
            store_places(pose, axes, half, i0, i1, x, n, buffers)
            if order == 0:
                _nearest_block(target + x * stride, stride, i64(pose)[S.SOURCE], j[S.ITEMSIZE], n, buffers)
            elif order == 1:
                linear_block(kind, pose, axes, n, buffers)
            else:
                cubic_block(pose, axes, n, buffers)
        else:
            n = min(BLOCK, (begin if x < begin < end else length) - x)
            if order == 0:
                for k in range(n):
                    _nearest_one(job, pose, i0, i1, x + k, target + (x + k) * stride)
            elif order == 1:
                store_edges(pose, axes, j[S.MODE], i0, i1, x, n, buffers)
                linear_edges(kind, pose, axes, n, buffers)
            else:
                v = f64(buffers + 0)
                for k in range(n):
                    v[k] = cubic_one(pose, axes, j[S.MODE], i0, i1, x + k)
        if order != 0:
            store_numbers(j[S.TARGET_KIND], target + x * stride, stride, n, buffers)
        x += n


@part
def _turn(job: int, end: int, context: int) -> int:
    """Return the first row of the next turn; -1 if there is none, or if the worker is to return."""
    j = i64(job)
    if atomic_load(j[S.SHARED] + 8) != 0 or (end > 0 and now(context) > end):
        return -1
    turn = atomic_add(j[S.SHARED], 1)
    if turn >= j[S.TURNS]:
        return -1
    return turn * j[S.PER_TURN]


@entry(3)
def resample(job: int, context: int, worker: int) -> None:
    """Make results; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    buffers = ensure(context, FIRST, 8 * BLOCK * BUFFERS)
    if buffers == 0:
        # There are no pages for a few kilobytes.
        i64(j[S.SHARED])[1] = 1
        return
    n0 = j[S.SHAPE]
    n1 = j[S.SHAPE + 1]
    row = _turn(job, end, context)
    while row >= 0:
        last = min(row + j[S.PER_TURN], j[S.ROWS])
        # Divisions take long: rows are counted on.
        i1 = row % n1
        i0 = row // n1 % n0
        pose = j[S.POSES] + 8 * S.POSE_SIZE * (row // (n0 * n1))
        while row < last:
            target = i64(pose)[S.TARGET] + i0 * j[S.TARGET_STRIDES] + i1 * j[S.TARGET_STRIDES + 1]
            _row(job, pose, i0, i1, target, buffers)
            row += 1
            i1 += 1
            if i1 == n1:
                i1 = 0
                i0 += 1
                if i0 == n0:
                    i0 = 0
                    pose += 8 * S.POSE_SIZE
        row = _turn(job, end, context)


@entry(3)
def spline(job: int, context: int, worker: int) -> None:
    """Filter lines of elements, which become coefficients of cubic splines; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    group = _turn(job, end, context)
    while group >= 0:
        last = min(group + j[S.PER_TURN], j[S.ROWS])
        while group < last:
            filter_group(job, group)
            group += 1
        group = _turn(job, end, context)
