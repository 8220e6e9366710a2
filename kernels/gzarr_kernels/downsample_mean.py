"""Means of cells. Integers are rounded to the nearest, halves to even; sums neither overflow nor lose digits.

Rows of the source are added up element by element, and then the elements of each cell: both loops vectorise. All sums
are signed, because Numba makes a float of a signed and an unsigned integer of 64 bits.
"""

from __future__ import annotations

from typing import Any

from numba import int64

from .cells import row_count, row_target, source_rows
from .jit import entry, part
from .memory import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots.cells import AXES, CELLS, FACTORS, KIND, LENGTHS, SCRATCH

_LAST = AXES - 1
_LOW = (1 << 32) - 1


@part
def rounded(total: int, n: int) -> int:
    """Return a sum of integers divided by a positive number, rounded to the nearest, halves to even."""
    quotient = total // n
    twice = 2 * (total - quotient * n)
    if twice > n or (twice == n and quotient & 1):
        quotient += 1
    return quotient


def _make_integers(view: Any, wide: Any, width: int) -> tuple[Any, Any]:
    """Return functions for integers of up to 32 bits: sums of ``width`` bytes."""

    @part
    def add_rows(addresses: int, count: int, n: int, sums: int) -> None:
        total = wide(sums)
        first = view(i64(addresses)[0])
        for x in range(n):
            total[x] = first[x]
        for k in range(1, count):
            source = view(i64(addresses)[k])
            for x in range(n):
                total[x] += source[x]

    @part
    def finish(sums: int, first: int, length: int, cells: int, target: int, count: int) -> None:
        total = wide(sums + first * width)
        result = view(target)
        n = count * length
        shift = 0
        while 1 << shift < n:
            shift += 1
        if length == 2 and 1 << shift == n:
            below_half = (1 << (shift - 1)) - 1
            for x in range(cells):
                s = int64(total[2 * x]) + int64(total[2 * x + 1])
                result[x] = (s + below_half + ((s >> shift) & 1)) >> shift
        elif length == 1 and 1 << shift == n and n > 1:
            below_half = (1 << (shift - 1)) - 1
            for x in range(cells):
                s = int64(total[x])
                result[x] = (s + below_half + ((s >> shift) & 1)) >> shift
        else:
            for x in range(cells):
                s = int64(0)
                for k in range(length):
                    s += int64(total[x * length + k])
                result[x] = rounded(s, n)

    return add_rows, finish


def _make_long_integers(view: Any) -> tuple[Any, Any]:
    """Return functions for integers of 64 bits: sums of the upper and of the lower halves, side by side."""

    @part
    def add_rows(addresses: int, count: int, n: int, sums: int) -> None:
        total = i64(sums)
        for x in range(2 * n):
            total[x] = 0
        for k in range(count):
            source = view(i64(addresses)[k])
            for x in range(n):
                total[2 * x] += int64(source[x] >> 32)
                total[2 * x + 1] += int64(source[x] & _LOW)

    @part
    def finish(sums: int, first: int, length: int, cells: int, target: int, count: int) -> None:
        total = i64(sums + first * 16)
        result = i64(target)
        n = count * length
        for x in range(cells):
            high = int64(0)
            low = int64(0)
            for k in range(length):
                high += total[2 * (x * length + k)]
                low += total[2 * (x * length + k) + 1]
            quotient = high // n
            low += (high - quotient * n) << 32
            # The upper part is a whole multiple of 2 to the power of 32, so it does not decide what is even.
            result[x] = (quotient << 32) + rounded(low, n)

    return add_rows, finish


def _make_floats(view: Any) -> tuple[Any, Any]:
    """Return functions for floats: sums of 64 bits."""

    @part
    def add_rows(addresses: int, count: int, n: int, sums: int) -> None:
        total = f64(sums)
        first = view(i64(addresses)[0])
        for x in range(n):
            total[x] = first[x]
        for k in range(1, count):
            source = view(i64(addresses)[k])
            for x in range(n):
                total[x] += source[x]

    @part
    def finish(sums: int, first: int, length: int, cells: int, target: int, count: int) -> None:
        total = f64(sums + first * 8)
        result = view(target)
        n = count * length
        if length == 2:
            for x in range(cells):
                result[x] = (total[2 * x] + total[2 * x + 1]) / n
        else:
            for x in range(cells):
                s = total[x * length]
                for k in range(1, length):
                    s += total[x * length + k]
                result[x] = s / n

    return add_rows, finish


def _make(functions: tuple[Any, Any], width: int) -> Any:
    """``means(job)`` for elements of ``width`` bytes."""
    add_rows, finish = functions

    @part
    def means(job: int) -> None:
        j = i64(job)
        n = j[LENGTHS + _LAST]
        factor = j[FACTORS + _LAST]
        whole = n // factor
        # First the sums, of at most 16 bytes an element; then the addresses.
        sums = j[SCRATCH]
        addresses = sums + 16 * n
        for row in range(row_count(job)):
            count = source_rows(job, row, addresses)
            target = row_target(job, row)
            add_rows(addresses, count, n, sums)
            finish(sums, 0, factor, whole, target, count)
            if j[CELLS + _LAST] > whole:
                finish(sums, whole * factor, n - whole * factor, 1, target + whole * width, count)

    return means


_u1 = _make(_make_integers(u8, i32, 4), 1)
_u2 = _make(_make_integers(u16, i32, 4), 2)
_u4 = _make(_make_integers(u32, i64, 8), 4)
_u8 = _make(_make_long_integers(u64), 8)
_i1 = _make(_make_integers(i8, i32, 4), 1)
_i2 = _make(_make_integers(i16, i32, 4), 2)
_i4 = _make(_make_integers(i32, i64, 8), 4)
_i8 = _make(_make_long_integers(i64), 8)
_f4 = _make(_make_floats(f32), 4)
_f8 = _make(_make_floats(f64), 8)


@entry(1)
def mean(job: int) -> None:
    """Do a job of ``slots/cells.py``."""
    kind = i64(job)[KIND]
    if kind == 0:
        _u1(job)
    elif kind == 1:
        _u2(job)
    elif kind == 2:
        _u4(job)
    elif kind == 3:
        _u8(job)
    elif kind == 4:
        _i1(job)
    elif kind == 5:
        _i2(job)
    elif kind == 6:
        _i4(job)
    elif kind == 7:
        _i8(job)
    elif kind == 8:
        _f4(job)
    elif kind == 9:
        _f8(job)
