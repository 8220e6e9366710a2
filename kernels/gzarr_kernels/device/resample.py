"""Arrays resampled by affine maps on a device: nearest and linear. Jobs have ``slots/affine.py``.

Each thread makes one element at a time, by what ``affine.py`` does on the host, in the same order: by steps along each
axis, whether an element needs checks or not. Products are not fused with sums (``compiler.py``), so both give the same
bits.

The kernel trusts its columns: their creator must have checked them against the memory. Places are kept inside of the
box in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .. import folding
from ..slots import affine as S
from .addressing import get, quotient
from .filters import bits_of_float32, bits_of_float64, extended, float32_of, float64_of
from .language import cuda, float32, float64, int64, uint32, uint64
from .target import THREADS, body, kernel
from .target import blocks as _blocks
from .words import load2, load4, load8, store2, store4, store8

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = [
    "THREADS", "blocks", "coordinate", "is_inside", "located", "place_in_box", "reached", "real", "resample",
    "store_number", "whole",
]  # fmt: skip

_LARGEST: Final = float(2**62)
_INFINITY: Final = float("inf")
_F4: Final = S.KINDS.index("f4")

_folded = body(folding.folded)


def blocks(elements: int) -> int:
    """Return the number of blocks of ``THREADS`` to launch for results with this total number of elements."""
    return _blocks(-(-elements // THREADS))


@body
def real(columns: Column, index: int) -> float:
    """Return a float64 of the columns."""
    return float64_of(uint64(get(columns, index)))


@body
def coordinate(columns: Column, pose: int, d: int, i0: int, i1: int, i2: int) -> float:
    """Return the coordinate in the array of an element of a result."""
    m = pose + S.MATRIX + 3 * d
    first = real(columns, pose + S.OFFSET + d) + real(columns, m) * float64(i0)
    return (first + real(columns, m + 1) * float64(i1)) + real(columns, m + 2) * float64(i2)


@body
def reached(c: float) -> float:
    """Return a coordinate; far away ones are cut to what int64 holds, and what is no number, too."""
    c = c if c > -_LARGEST else -_LARGEST
    return c if c < _LARGEST else _LARGEST


@body
def whole(c: float) -> int:
    """Return the largest integer of at most a float; far away ones are cut."""
    c = reached(c)
    j = int64(c)
    return j - 1 if float64(j) > c else j


@body
def place_in_box(columns: Column, pose: int, d: int, i: int, mode: int) -> int:
    """Return the offset in elements of a place along an axis in the box; -1 for the constant."""
    at = _folded(i, get(columns, pose + S.ARRAY + d), mode)
    if at < 0:
        return -1
    return min(max(at - get(columns, pose + S.LOW + d), 0), get(columns, pose + S.LENGTH + d) - 1)


@body
def _load(memory: Bytes, offset: int, width: int) -> Any:
    if width == 1:
        return uint64(memory[uint64(offset)])
    if width == 2:
        return load2(memory, offset)
    if width == 4:
        return load4(memory, offset)
    return load8(memory, offset)


@body
def _store(memory: Bytes, offset: int, value: Any, width: int) -> None:
    if width == 1:
        memory[uint64(offset)] = value & uint64(255)
    elif width == 2:
        store2(memory, offset, value)
    elif width == 4:
        store4(memory, offset, value)
    else:
        store8(memory, offset, value)


@body
def _width(kind: int) -> int:
    """Return the size in bytes of a number: four unsigned and four signed ones, and two floats."""
    return 4 << (kind - _F4) if kind >= _F4 else 1 << (kind & 3)


@body
def _number(memory: Bytes, offset: int, kind: int) -> float:
    width = _width(kind)
    bits = _load(memory, offset, width)
    if kind > _F4:
        return float64_of(bits)
    if kind == _F4:
        return float64(float32_of(uint32(bits)))
    if kind >= 4:
        return float64(int64(extended(bits, width)))
    return float64(bits)


@body
def store_number(memory: Bytes, offset: int, x: float, kind: int) -> None:
    """Store a number: of integers, rounded, ties away from zero, and cut to their range."""
    width = _width(kind)
    bits = uint64(0)
    if kind > _F4:
        bits = bits_of_float64(x)
    elif kind == _F4:
        bits = uint64(bits_of_float32(float32(x)))
    else:
        x = x + S.HALF if x > 0.0 else x - S.HALF
        # 2 ** (bits - 1)
        half = float64_of(uint64(1023 + 8 * width - 1) << uint64(52))
        largest = ~uint64(0) >> uint64(64 - 8 * width)
        if kind >= 4:
            # What is no number becomes the lowest one.
            x = x if x > -half else -half
            bits = largest >> uint64(1) if x >= half else uint64(int64(x))
        else:
            x = x if x > 0.0 else 0.0
            bits = largest if x >= 2.0 * half else uint64(x)
    _store(memory, offset, bits, width)


@body
def _nearest(columns: Column, job: int, pose: int, i0: int, i1: int, i2: int) -> int:
    """Return the offset in the box of the nearest element, in elements; -1 for the constant."""
    at = 0
    for d in range(3 - get(columns, job + S.AXES), 3):
        place = whole(coordinate(columns, pose, d, i0, i1, i2) + 0.5)
        a = place_in_box(columns, pose, d, place, get(columns, job + S.MODE))
        if a < 0:
            return -1
        at += a * get(columns, pose + S.STRIDES + d)
    return at


@body
def _copy(source: Bytes, target: Bytes, columns: Column, job: int, pose: int, at: int, to: int) -> None:
    """Copy an element of the box, or the constant, in words of 8 bytes if it is so large."""
    itemsize = get(columns, job + S.ITEMSIZE)
    width = min(itemsize, 8)
    for w in range(max(itemsize >> 3, 1)):
        if at < 0:
            value = uint64(get(columns, get(columns, pose + S.FILL) + w))
        else:
            value = _load(source, get(columns, pose + S.SOURCE) + at * itemsize + 8 * w, width)
        _store(target, to + 8 * w, value, width)


@body
def _is_inside(columns: Column, pose: int, d: int, c: float, before: int, after: int) -> bool:
    """Return whether all neighbours of a place along an axis are inside of the box."""
    r = c - float64(get(columns, pose + S.LOW + d))
    return r >= float64(before) and r < float64(get(columns, pose + S.LENGTH + d) - after)


@body
def is_inside(columns: Column, job: int, pose: int, c0: float, c1: float, c2: float, before: int, after: int) -> bool:
    """Return whether all neighbours of a place are inside of the box: ``before`` and ``after`` it along each axis."""
    if not (_is_inside(columns, pose, 1, c1, before, after) and _is_inside(columns, pose, 2, c2, before, after)):
        return False
    return get(columns, job + S.AXES) == 2 or _is_inside(columns, pose, 0, c0, before, after)


@body
def _between(a: float, b: float, t: float) -> float:
    """Return what is between two numbers, ``t`` of at least 0 and below 1 after the first.

    This is the first where both are equal. A number without weight is ignored, whatever it is.
    """
    x = a + t * (b - a)
    if x > -_INFINITY and x < _INFINITY:
        return x
    # The difference of two numbers may be none, or too large to be one.
    return a if t == 0.0 else (1.0 - t) * a + t * b


@body
def _pair(source: Bytes, offset: int, step: int, kind: int, t: float) -> float:
    """Return what is between an element and the next one along the last axis."""
    return _between(_number(source, offset, kind), _number(source, offset + step, kind), t)


@body
def _inner(source: Bytes, columns: Column, job: int, pose: int, c0: float, c1: float, c2: float) -> float:
    """Return an element whose neighbours are all inside of the box."""
    axes = get(columns, job + S.AXES)
    kind = get(columns, job + S.SOURCE_KIND)
    width = _width(kind)
    s1 = get(columns, pose + S.STRIDES + 1) * width
    s2 = get(columns, pose + S.STRIDES + 2) * width
    r1 = c1 - float64(get(columns, pose + S.LOW + 1))
    r2 = c2 - float64(get(columns, pose + S.LOW + 2))
    j1, j2 = int64(r1), int64(r2)
    at = get(columns, pose + S.SOURCE) + j1 * s1 + j2 * s2
    t0 = 0.0
    s0 = 0
    if axes == 3:
        r0 = c0 - float64(get(columns, pose + S.LOW))
        s0 = get(columns, pose + S.STRIDES) * width
        at += int64(r0) * s0
        t0 = r0 - float64(int64(r0))
    total = 0.0
    for k in range(axes - 1):
        plane = _pair(source, at + k * s0, s2, kind, r2 - float64(j2))
        plane = _between(plane, _pair(source, at + k * s0 + s1, s2, kind, r2 - float64(j2)), r1 - float64(j1))
        total = _between(total, plane, t0) if k else plane
    return total


@body
def _split(c: float) -> tuple[int, float]:
    """Return the element before a place, and how far after it the place is: at least 0, below 1."""
    c = reached(c)
    j = whole(c)
    t = c - float64(j)
    # By rounding, of what is hardly below 0.
    if t == 1.0:
        return j + 1, 0.0
    return j, t


@body
def _outer(source: Bytes, columns: Column, job: int, pose: int, c0: float, c1: float, c2: float) -> float:
    """Return an element whose neighbours may be beyond the ends."""
    axes = get(columns, job + S.AXES)
    mode = get(columns, job + S.MODE)
    kind = get(columns, job + S.SOURCE_KIND)
    (j0, t0), (j1, t1), (j2, t2) = _split(c0), _split(c1), _split(c2)
    total, plane, row = 0.0, 0.0, 0.0
    for corner in range(8 if axes == 3 else 4):
        k0, k1, k2 = corner >> 2, corner >> 1 & 1, corner & 1
        a0 = place_in_box(columns, pose, 0, j0 + k0, mode)
        a1 = place_in_box(columns, pose, 1, j1 + k1, mode)
        a2 = place_in_box(columns, pose, 2, j2 + k2, mode)
        # One without weight may be beyond what was read: another one is in its place.
        if a0 < 0 or a1 < 0 or a2 < 0:
            x = real(columns, get(columns, pose + S.FILL))
        else:
            at = a0 * get(columns, pose + S.STRIDES)
            at += a1 * get(columns, pose + S.STRIDES + 1) + a2 * get(columns, pose + S.STRIDES + 2)
            x = _number(source, get(columns, pose + S.SOURCE) + at * _width(kind), kind)
        # With the second of each two, they become one.
        row = _between(row, x, t2) if k2 else x
        if k2:
            plane = _between(plane, row, t1) if k1 else row
            if k1:
                total = _between(total, plane, t0) if k0 else plane
    return total


@body
def _linear(source: Bytes, columns: Column, job: int, pose: int, i0: int, i1: int, i2: int) -> float:
    c0 = coordinate(columns, pose, 0, i0, i1, i2)
    c1 = coordinate(columns, pose, 1, i0, i1, i2)
    c2 = coordinate(columns, pose, 2, i0, i1, i2)
    if is_inside(columns, job, pose, c0, c1, c2, 0, 1):
        return _inner(source, columns, job, pose, c0, c1, c2)
    return _outer(source, columns, job, pose, c0, c1, c2)


@body
def located(columns: Column, job: int, item: int) -> tuple[int, int, int, int, int]:
    """Return for an element of all results its pose, its offset among the results, and its index."""
    n0 = get(columns, job + S.SHAPE)
    n1 = get(columns, job + S.SHAPE + 1)
    n2 = get(columns, job + S.SHAPE + 2)
    row = quotient(item, n2)
    i2 = item - row * n2
    plane = quotient(row, n1)
    i1 = row - plane * n1
    result = quotient(plane, n0)
    i0 = plane - result * n0
    pose = get(columns, job + S.POSES) + result * S.POSE_SIZE
    to = get(columns, pose + S.TARGET) + i0 * get(columns, job + S.TARGET_STRIDES)
    to += i1 * get(columns, job + S.TARGET_STRIDES + 1) + i2 * get(columns, job + S.TARGET_STRIDES + 2)
    return pose, to, i0, i1, i2


@body
def _resample(source: Bytes, target: Bytes, columns: Column, job: int, first: int, step: int) -> None:
    """Make every ``step``-th element of all results."""
    kind = get(columns, job + S.TARGET_KIND)
    item = first
    while item < get(columns, job + S.ROWS) * get(columns, job + S.SHAPE + 2):
        pose, to, i0, i1, i2 = located(columns, job, item)
        if get(columns, job + S.ORDER) == 1:
            store_number(target, to, _linear(source, columns, job, pose, i0, i1, i2), kind)
        else:
            at = _nearest(columns, job, pose, i0, i1, i2)
            if kind < 0:
                _copy(source, target, columns, job, pose, at, to)
            elif at < 0:
                store_number(target, to, real(columns, get(columns, pose + S.FILL)), kind)
            else:
                own = get(columns, job + S.SOURCE_KIND)
                value = _number(source, get(columns, pose + S.SOURCE) + at * _width(own), own)
                store_number(target, to, value, kind)
        item += step


@kernel
def resample(source: Bytes, target: Bytes, columns: Column, job: int) -> None:
    """Make results of boxes.

    Launched with ``blocks(elements)`` blocks of ``THREADS``.

    Parameters
    ----------
    source, target
        Memory of the boxes and of the results, from which their offsets count.
    columns
        int64 memory of the columns.
    job
        Index of the job in ``columns``.
    """
    _resample(source, target, columns, job, cuda.grid(1), cuda.gridsize(1))
