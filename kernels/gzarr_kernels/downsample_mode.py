"""The most frequent value of each cell of integers; of several, the smallest."""

from __future__ import annotations

from typing import Any

from numba import int64

from .cells import row_count, row_target, source_rows
from .jit import entry, part
from .memory import i8, i16, i32, i64, u8, u16, u32, u64
from .slots.cells import AXES, CELLS, FACTORS, KIND, LENGTHS, SCRATCH

_LAST = AXES - 1


def _make(view: Any) -> Any:
    """``modes(job)`` for elements of one type."""

    @part
    def most_frequent(addresses: int, count: int, begin: int, end: int, values: int, counts: int) -> Any:
        """Return the most frequent of the elements from ``begin`` to ``end`` of rows; their values go to scratch."""
        value = view(values)
        times = i64(counts)
        distinct = int64(0)
        last = int64(0)
        for k in range(count):
            source = view(i64(addresses)[k])
            for x in range(begin, end):
                v = source[x]
                # Neighbours are often equal.
                if distinct > 0 and value[last] == v:
                    times[last] += 1
                    continue
                last = int64(0)
                while last < distinct and value[last] != v:
                    last += 1
                if last == distinct:
                    value[last] = v
                    times[last] = 1
                    distinct += 1
                else:
                    times[last] += 1
        found = value[0]
        most = times[0]
        for i in range(1, distinct):
            if times[i] > most or (times[i] == most and value[i] < found):
                found = value[i]
                most = times[i]
        return found

    @part
    def find_differences(addresses: int, count: int, n: int, differences: int) -> None:
        """Store for each place along rows what differs from the first row: 0 where all are equal."""
        differs = view(differences)
        first = view(i64(addresses)[0])
        for x in range(n):
            differs[x] = 0
        for k in range(1, count):
            source = view(i64(addresses)[k])
            for x in range(n):
                differs[x] |= source[x] ^ first[x]

    @part
    def modes(job: int) -> None:
        j = i64(job)
        n = j[LENGTHS + _LAST]
        factor = j[FACTORS + _LAST]
        differences = j[SCRATCH]
        differs = view(differences)
        addresses = differences + 8 * n
        for row in range(row_count(job)):
            count = source_rows(job, row, addresses)
            counts = addresses + 8 * count
            values = counts + 8 * count * factor
            first = view(i64(addresses)[0])
            result = view(row_target(job, row))
            # Most cells of labels lie inside of one.
            find_differences(addresses, count, n, differences)
            for x in range(j[CELLS + _LAST]):
                begin = x * factor
                end = min(begin + factor, n)
                other = differs[begin]
                for k in range(begin + 1, end):
                    other |= differs[k] | (first[k] ^ first[begin])
                if other == 0:
                    result[x] = first[begin]
                else:
                    result[x] = most_frequent(addresses, count, begin, end, values, counts)

    return modes


_u1, _u2, _u4, _u8 = _make(u8), _make(u16), _make(u32), _make(u64)
_i1, _i2, _i4, _i8 = _make(i8), _make(i16), _make(i32), _make(i64)


@entry(1)
def mode(job: int) -> None:
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
