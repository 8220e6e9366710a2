"""Rows of compressed sparse matrices: some of their columns, and rows made dense. Jobs have ``slots/sparse.py``.

Workers take a few rows at a time. Entries of a row may be in any order; those of one element are added up in a dense
result, in their order.
"""

from __future__ import annotations

from typing import Any

from .context import now, slice_end
from .jit import entry, part
from .memory import atomic_add, atomic_load, copy, f32, f64, i32, i64, u8, u16, u32, u64
from .slots import sparse as S
from .symbols import c_memset


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
def count(job: int, context: int, worker: int) -> None:
    """Write how many entries each row has in the chosen columns; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    offsets = i64(j[S.OFFSETS])
    indices = i32(j[S.INDICES])
    chosen = i64(j[S.CHOSEN_OFFSETS])
    new_offsets = i64(j[S.NEW_OFFSETS])
    first = _turn(job, end, context)
    while first >= 0:
        for row in range(first, min(first + j[S.PER_TURN], j[S.ROWS])):
            found = 0
            for e in range(offsets[row], offsets[row + 1]):
                found += chosen[indices[e] + 1] - chosen[indices[e]]
            new_offsets[row + 1] = found
        first = _turn(job, end, context)


@part
def _copy_value(target: int, source: int, itemsize: int) -> None:
    if itemsize == 4:
        u32(target)[0] = u32(source)[0]
    elif itemsize == 8:
        u64(target)[0] = u64(source)[0]
    elif itemsize == 2:
        u16(target)[0] = u16(source)[0]
    elif itemsize == 1:
        u8(target)[0] = u8(source)[0]
    else:
        copy(target, source, itemsize)


@entry(3)
def take(job: int, context: int, worker: int) -> None:
    """Write the entries of the chosen columns, in the order of the entries; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    offsets = i64(j[S.OFFSETS])
    indices = i32(j[S.INDICES])
    chosen_offsets = i64(j[S.CHOSEN_OFFSETS])
    chosen = i32(j[S.CHOSEN])
    new_offsets = i64(j[S.NEW_OFFSETS])
    new_indices = i32(j[S.NEW_INDICES])
    itemsize = j[S.ITEMSIZE]
    first = _turn(job, end, context)
    while first >= 0:
        for row in range(first, min(first + j[S.PER_TURN], j[S.ROWS])):
            at = new_offsets[row]
            for e in range(offsets[row], offsets[row + 1]):
                c = indices[e]
                for i in range(chosen_offsets[c], chosen_offsets[c + 1]):
                    new_indices[at] = chosen[i]
                    _copy_value(j[S.NEW_VALUES] + at * itemsize, j[S.VALUES] + e * itemsize, itemsize)
                    at += 1
        first = _turn(job, end, context)


@part
def _clear(target: int, stride: int, itemsize: int, n: int) -> None:
    """Set ``n`` elements to zero bytes."""
    if stride == itemsize:
        c_memset(target, 0, n * itemsize)
        return
    for i in range(n):
        element = u8(target + i * stride)
        for b in range(itemsize):
            element[b] = 0


def _make(view: Any, numbers: int = 1, is_bool: bool = False) -> Any:
    """``densify(job, first, last)`` for elements of so many numbers of one type."""

    @part
    def add(target: int, source: int) -> None:
        for i in range(numbers):
            if is_bool:
                view(target)[i] = view(target)[i] | view(source)[i]
            else:
                view(target)[i] += view(source)[i]

    @part
    def rows(job: int, first: int, last: int) -> None:
        j = i64(job)
        offsets = i64(j[S.OFFSETS])
        indices = i32(j[S.INDICES])
        chosen_offsets = i64(j[S.CHOSEN_OFFSETS])
        chosen = i32(j[S.CHOSEN])
        itemsize = j[S.ITEMSIZE]
        stride = j[S.COLUMN_STRIDE]
        values = j[S.VALUES]
        for row in range(first, last):
            target = i64(j[S.TARGETS])[row]
            _clear(target, stride, itemsize, j[S.COLUMNS])
            if j[S.CHOSEN_OFFSETS] == 0:
                for e in range(offsets[row], offsets[row + 1]):
                    add(target + indices[e] * stride, values + e * itemsize)
            else:
                for e in range(offsets[row], offsets[row + 1]):
                    c = indices[e]
                    for i in range(chosen_offsets[c], chosen_offsets[c + 1]):
                        add(target + chosen[i] * stride, values + e * itemsize)

    return rows


_b1 = _make(u8, is_bool=True)
_u1, _u2, _u4, _u8 = _make(u8), _make(u16), _make(u32), _make(u64)
_f4, _f8, _c8, _c16 = _make(f32), _make(f64), _make(f32, 2), _make(f64, 2)


@entry(3)
def densify(job: int, context: int, worker: int) -> None:
    """Write rows of a dense result; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    kind = j[S.KIND]
    first = _turn(job, end, context)
    while first >= 0:
        last = min(first + j[S.PER_TURN], j[S.ROWS])
        if kind == 0:
            _b1(job, first, last)
        elif kind == 1:
            _u1(job, first, last)
        elif kind == 2:
            _u2(job, first, last)
        elif kind == 3:
            _u4(job, first, last)
        elif kind == 4:
            _u8(job, first, last)
        elif kind == 5:
            _f4(job, first, last)
        elif kind == 6:
            _f8(job, first, last)
        elif kind == 7:
            _c8(job, first, last)
        elif kind == 8:
            _c16(job, first, last)
        first = _turn(job, end, context)
