"""Maxima of cells. A cell with a NaN is NaN."""

from __future__ import annotations

from typing import Any

from .cells import row_count, row_target, source_rows
from .jit import entry, part
from .memory import f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from .slots.cells import AXES, CELLS, FACTORS, KIND, LENGTHS, SCRATCH

_LAST = AXES - 1


def _make(view: Any) -> Any:
    """``maxima(job)`` for elements of one type."""

    @part
    def larger(a: Any, b: Any) -> Any:
        return b if b > a or b != b else a

    @part
    def maxima(job: int) -> None:
        j = i64(job)
        n = j[LENGTHS + _LAST]
        factor = j[FACTORS + _LAST]
        whole = n // factor
        best = view(j[SCRATCH])
        addresses = j[SCRATCH] + 8 * n
        for row in range(row_count(job)):
            count = source_rows(job, row, addresses)
            first = view(i64(addresses)[0])
            for x in range(n):
                best[x] = first[x]
            for k in range(1, count):
                source = view(i64(addresses)[k])
                for x in range(n):
                    best[x] = larger(best[x], source[x])
            result = view(row_target(job, row))
            if factor == 2:
                for x in range(whole):
                    result[x] = larger(best[2 * x], best[2 * x + 1])
            else:
                for x in range(whole):
                    found = best[x * factor]
                    for k in range(1, factor):
                        found = larger(found, best[x * factor + k])
                    result[x] = found
            if j[CELLS + _LAST] > whole:
                found = best[whole * factor]
                for k in range(whole * factor + 1, n):
                    found = larger(found, best[k])
                result[whole] = found

    return maxima


_u1, _u2, _u4, _u8 = _make(u8), _make(u16), _make(u32), _make(u64)
_i1, _i2, _i4, _i8 = _make(i8), _make(i16), _make(i32), _make(i64)
_f4, _f8 = _make(f32), _make(f64)


@entry(1)
def maximum(job: int) -> None:
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
