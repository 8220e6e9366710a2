"""Rows of compressed sparse matrices: some of their columns, and rows made dense. Jobs have ``slots/sparse.py``.

Workers take a few rows at a time, and some entries of a row, which are converted and scaled in scratch memory. Entries
of a row may be in any order; those of one element are added up in a dense result, in their order. Added to 0, a zero
has no sign, so rows that are written in another way have none with one either.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .context import ensure, now, slice_end
from .convert import convert_native
from .elements import copy_rows
from .interleave import fence
from .jit import entry, part
from .log1p import log1p
from .memory import atomic_add, atomic_load, copy, f32, f64, i32, i64, u8, u16, u32, u64
from .slots import context as C
from .slots import sparse as S
from .slots.conversion import PAIRS
from .slots.scratch import WORKER_BYTES
from .symbols import c_memset

#: Entries that are converted at a time, and places in the scratch memory of a worker.
_SOME: Final = 1 << 9
_VALUES_AT: Final = 4 * _SOME
_REST_AT: Final = _VALUES_AT + 8 * _SOME
#: Bytes of a tile of a dense row, in the nearest cache.
_TILE_BYTES: Final = 16 << 10
_TILE_AT: Final = _REST_AT + 3 * 8 * _SOME
assert _TILE_AT + _TILE_BYTES + 64 <= WORKER_BYTES

_FROM_U1: Final = PAIRS.index(("u1", "u4")) + 1
_FROM_U2: Final = PAIRS.index(("u2", "u4")) + 1

_F4: Final = S.KINDS.index("f4")
_F8: Final = S.KINDS.index("f8")
#: Bits of numbers.
_NOTHING: Final = np.uint32(0)
_NOTHING_LONG: Final = np.uint64(0)
_MINUS_ZERO: Final = np.uint32(1 << 31)
_MINUS_ZERO_LONG: Final = np.uint64(1 << 63)

#: The least and the greatest normal float64.
_LEAST: Final = 2.2250738585072014e-308
_GREATEST: Final = 1.7976931348623157e308


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


@part
def _indices(job: int, first: int, n: int, scratch: int) -> int:
    """Return the address of the indices of some entries as int32."""
    j = i64(job)
    size = j[S.INDEX_BYTES]
    found = j[S.INDICES] + first * size
    if size == 4:
        return found
    convert_native(found, 0, size, scratch, 0, 4, 1, n, _FROM_U1 if size == 1 else _FROM_U2, size, 4)
    return scratch


@part
def _in_f8(job: int, first: int, n: int, scratch: int) -> int:
    """Return the address of the values of some entries as float64, in scratch memory."""
    j = i64(job)
    size = j[S.ITEMSIZE]
    found = j[S.VALUES] + first * size
    values = scratch + _VALUES_AT
    if j[S.TO_F8] == 0:
        copy(values, found, 8 * n)
    else:
        convert_native(found, 0, size, values, 0, 8, 1, n, j[S.TO_F8], size, 8)
    return values


@part
def _factors(job: int, begin: int, end: int, scratch: int) -> tuple[float, float]:
    """Return the number that a row is divided by, and the one that it is multiplied by then."""
    j = i64(job)
    if j[S.SCALING] & S.NORMALIZE == 0:
        return 1.0, 1.0
    # Four sums, none of which waits for another one.
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for first in range(begin, end, _SOME):
        n = min(_SOME, end - first)
        values = f64(_in_f8(job, first, n, scratch))
        i = 0
        while i + 4 <= n:
            a += values[i]
            b += values[i + 1]
            c += values[i + 2]
            d += values[i + 3]
            i += 4
        while i < n:
            a += values[i]
            i += 1
    found = (a + b) + (c + d)
    if found == 0.0:
        return 1.0, 1.0
    total = f64(job + 8 * S.TOTAL)[0]
    factor = total / found
    # Of sums that are very small or very large, it is infinite, or has lost digits.
    return (1.0, factor) if _LEAST <= abs(factor) <= _GREATEST else (found, total)


@part
def _ascend(job: int, begin: int, end: int, scratch: int) -> bool:
    """Return whether the indices of a row ascend, so that each of its elements has one entry."""
    before = -1
    for first in range(begin, end, _SOME):
        n = min(_SOME, end - first)
        indices = i32(_indices(job, first, n, scratch))
        wrong = 0
        for i in range(1, n):
            wrong += indices[i] <= indices[i - 1]
        if wrong > 0 or indices[0] <= before:
            return False
        before = indices[n - 1]
    return True


@part
def _scaled(job: int, first: int, n: int, factors: tuple[float, float], scratch: int) -> int:
    """Return the address of the scaled values of some entries, float64, in scratch memory."""
    values = _in_f8(job, first, n, scratch)
    divisor, factor = factors
    if divisor != 1.0:
        for i in range(n):
            f64(values)[i] /= divisor
    for i in range(n):
        f64(values)[i] *= factor
    return values


@part
def _add_up(job: int, begin: int, end: int, factors: tuple[float, float], sums: int, scratch: int) -> None:
    """Add the scaled values of a row to the sums of its columns: float64, 0 before."""
    for first in range(begin, end, _SOME):
        n = min(_SOME, end - first)
        indices = i32(_indices(job, first, n, scratch))
        values = f64(_scaled(job, first, n, factors, scratch))
        for i in range(n):
            f64(sums)[indices[i]] += values[i]


@part
def _take_sums(job: int, first: int, n: int, sums: int, scratch: int) -> int:
    """Return the address of the sums of some entries' columns, float64, in scratch memory.

    The first entry of each column takes the sum, and leaves 0 for the others, and for the next row.
    """
    indices = i32(_indices(job, first, n, scratch))
    values = f64(scratch + _VALUES_AT)
    for i in range(n):
        values[i] = f64(sums)[indices[i]]
        f64(sums)[indices[i]] = 0.0
    return scratch + _VALUES_AT


@part
def _results(job: int, first: int, n: int, factors: tuple[float, float], sums: int, scratch: int) -> int:
    """Return the address of the results of some entries; ``sums`` is 0 where a column has one entry."""
    j = i64(job)
    size = j[S.ITEMSIZE]
    new_size = j[S.RESULT_ITEMSIZE]
    if j[S.SCALING] == 0:
        found = j[S.VALUES] + first * size
        if j[S.CONVERSION] == 0:
            return found
        convert_native(
            found, 0, size, scratch + _VALUES_AT, 0, new_size, 1, n, j[S.CONVERSION], size, new_size
        )  # fmt: skip
        return scratch + _VALUES_AT
    if sums == 0:
        values = _scaled(job, first, n, factors, scratch)
    else:
        values = _take_sums(job, first, n, sums, scratch)
    if j[S.SCALING] & S.LOG1P != 0:
        log1p(values, n, scratch + _REST_AT)
    if j[S.FROM_F8] == 0:
        return values
    convert_native(values, 0, 8, scratch + _REST_AT, 0, new_size, 1, n, j[S.FROM_F8], 8, new_size)
    return scratch + _REST_AT


@entry(3)
def count(job: int, context: int, scratch: int) -> None:
    """Write how many entries each row has in the chosen columns; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    chosen = i64(j[S.CHOSEN_OFFSETS])
    new_offsets = i64(j[S.NEW_OFFSETS])
    first = _turn(job, end, context)
    while first >= 0:
        for row in range(first, min(first + j[S.PER_TURN], j[S.ROWS])):
            found = 0
            last = i64(j[S.ENDS])[row]
            for at in range(i64(j[S.BEGINS])[row], last, _SOME):
                n = min(_SOME, last - at)
                indices = i32(_indices(job, at, n, scratch))
                for i in range(n):
                    found += chosen[indices[i] + 1] - chosen[indices[i]]
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
def take(job: int, context: int, scratch: int) -> None:
    """Write the entries of the chosen columns, in the order of the entries; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    chosen_offsets = i64(j[S.CHOSEN_OFFSETS])
    chosen = i32(j[S.CHOSEN])
    new_indices = i32(j[S.NEW_INDICES])
    itemsize = j[S.RESULT_ITEMSIZE]
    first = _turn(job, end, context)
    while first >= 0:
        for row in range(first, min(first + j[S.PER_TURN], j[S.ROWS])):
            at = i64(j[S.NEW_OFFSETS])[row]
            begin = i64(j[S.BEGINS])[row]
            last = i64(j[S.ENDS])[row]
            factors = _factors(job, begin, last, scratch)
            for e in range(begin, last, _SOME):
                n = min(_SOME, last - e)
                found = _indices(job, e, n, scratch)
                values = _results(job, e, n, factors, 0, scratch)
                if j[S.CHOSEN_OFFSETS] == 0:
                    copy(j[S.NEW_INDICES] + 4 * at, found, 4 * n)
                    copy(j[S.NEW_VALUES] + itemsize * at, values, itemsize * n)
                    at += n
                    continue
                for i in range(n):
                    c = i32(found)[i]
                    for place in range(chosen_offsets[c], chosen_offsets[c + 1]):
                        new_indices[at] = chosen[place]
                        _copy_value(j[S.NEW_VALUES] + at * itemsize, values + i * itemsize, itemsize)
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
    """``scatter(job, target, indices, values, n)`` for elements of so many numbers of one type."""

    @part
    def add(target: int, source: int) -> None:
        for i in range(numbers):
            if is_bool:
                view(target)[i] = view(target)[i] | view(source)[i]
            else:
                view(target)[i] += view(source)[i]

    @part
    def scatter(job: int, target: int, indices: int, values: int, n: int) -> None:
        j = i64(job)
        chosen_offsets = i64(j[S.CHOSEN_OFFSETS])
        chosen = i32(j[S.CHOSEN])
        itemsize = j[S.RESULT_ITEMSIZE]
        stride = j[S.COLUMN_STRIDE]
        if j[S.CHOSEN_OFFSETS] == 0:
            for i in range(n):
                add(target + i32(indices)[i] * stride, values + i * itemsize)
            return
        for i in range(n):
            c = i32(indices)[i]
            for place in range(chosen_offsets[c], chosen_offsets[c + 1]):
                add(target + chosen[place] * stride, values + i * itemsize)

    return scatter


_b1 = _make(u8, is_bool=True)
_u1, _u2, _u4, _u8 = _make(u8), _make(u16), _make(u32), _make(u64)
_f4, _f8, _c8, _c16 = _make(f32), _make(f64), _make(f32, 2), _make(f64, 2)


@part
def _scatter(job: int, target: int, indices: int, values: int, n: int) -> None:
    kind = i64(job)[S.KIND]
    if kind == 5:
        _f4(job, target, indices, values, n)
    elif kind == 6:
        _f8(job, target, indices, values, n)
    elif kind == 0:
        _b1(job, target, indices, values, n)
    elif kind == 1:
        _u1(job, target, indices, values, n)
    elif kind == 2:
        _u2(job, target, indices, values, n)
    elif kind == 3:
        _u4(job, target, indices, values, n)
    elif kind == 4:
        _u8(job, target, indices, values, n)
    elif kind == 7:
        _c8(job, target, indices, values, n)
    elif kind == 8:
        _c16(job, target, indices, values, n)


@part
def _write_past(target: int, source: int, nbytes: int) -> None:
    copy_rows(source, 0, 4, target, 0, 4, 1, nbytes // 4, 4, 0, 1)


@part
def _stream_row(job: int, target: int, begin: int, end: int, factors: tuple[float, float], scratch: int) -> None:
    """Write a dense row whose indices ascend past the caches, tile by tile: numbers of 4 or 8 bytes, not complex."""
    j = i64(job)
    itemsize = j[S.RESULT_ITEMSIZE]
    # −0.0 becomes 0.0, as where entries are added to zeros. Of integers, it is 0 that becomes 0.
    minus_zero = _MINUS_ZERO if j[S.KIND] == _F4 else _NOTHING
    minus_zero_long = _MINUS_ZERO_LONG if j[S.KIND] == _F8 else _NOTHING_LONG
    left = j[S.COLUMNS] * itemsize
    tile = (scratch + _TILE_AT + 63) // 64 * 64
    # The byte of the row that the tile begins at.
    at = 0
    c_memset(tile, 0, _TILE_BYTES)
    for e in range(begin, end, _SOME):
        n = min(_SOME, end - e)
        indices = i32(_indices(job, e, n, scratch))
        values = _results(job, e, n, factors, 0, scratch)
        for i in range(n):
            place = indices[i] * itemsize - at
            while place >= _TILE_BYTES:
                _write_past(target + at, tile, _TILE_BYTES)
                c_memset(tile, 0, _TILE_BYTES)
                at += _TILE_BYTES
                place -= _TILE_BYTES
            if itemsize == 4:
                value = u32(values)[i]
                u32(tile + place)[0] = _NOTHING if value == minus_zero else value
            else:
                long = u64(values)[i]
                u64(tile + place)[0] = _NOTHING_LONG if long == minus_zero_long else long
    _write_past(target + at, tile, min(_TILE_BYTES, left - at))
    at += _TILE_BYTES
    if at < left:
        c_memset(tile, 0, _TILE_BYTES)
    while at < left:
        _write_past(target + at, tile, min(_TILE_BYTES, left - at))
        at += _TILE_BYTES


@entry(3)
def densify(job: int, context: int, scratch: int) -> None:
    """Write rows of a dense result; parameters as for ``read.work``."""
    j = i64(job)
    end = slice_end(context)
    # What is rounded, or whose logarithm is taken, must be added up before.
    add_first = j[S.SCALING] & S.LOG1P != 0 or j[S.FROM_F8] != 0
    sums = 0
    first = _turn(job, end, context)
    while first >= 0:
        for row in range(first, min(first + j[S.PER_TURN], j[S.ROWS])):
            target = i64(j[S.TARGETS])[row]
            begin = i64(j[S.BEGINS])[row]
            last = i64(j[S.ENDS])[row]
            factors = _factors(job, begin, last, scratch)
            ascend = (add_first or j[S.STREAM] != 0) and _ascend(job, begin, last, scratch)
            if ascend and j[S.STREAM] != 0:
                _stream_row(job, target, begin, last, factors, scratch)
                continue
            with_sums = add_first and not ascend
            if with_sums:
                if sums == 0:
                    sums = ensure(context, C.FIRST, 8 * j[S.INDEXED])
                    if sums == 0:
                        i64(j[S.SHARED])[2] = 1
                        atomic_add(j[S.SHARED] + 8, 1)
                        return
                    c_memset(sums, 0, 8 * j[S.INDEXED])
                _add_up(job, begin, last, factors, sums, scratch)
            _clear(target, j[S.COLUMN_STRIDE], j[S.RESULT_ITEMSIZE], j[S.COLUMNS])
            for e in range(begin, last, _SOME):
                n = min(_SOME, last - e)
                indices = _indices(job, e, n, scratch)
                values = _results(job, e, n, factors, sums if with_sums else 0, scratch)
                _scatter(job, target, indices, values, n)
        first = _turn(job, end, context)
    if j[S.STREAM] != 0:
        fence()
