"""Rows of compressed sparse matrices on a device: some of their columns, and rows made dense.

A row has entries, each with a value and an int32 index, its column. To choose columns and to scale, a thread takes a
row, so that entries stay in order and are added up in it; to make rows dense, a block takes one.

The kernels trust their columns, and indices that ``check_rows`` has found to be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get
from .filters import bits_of_float32, bits_of_float64, float32_of, float64_of
from .language import cuda, float32, float64, int32, int64, uint32, uint64
from .target import THREADS, blocks, body, kernel, width_of

if TYPE_CHECKING:
    from .addressing import Column, Statuses, Words

__all__ = ["THREADS", "blocks", "check_rows", "count_chosen", "densify", "scale_rows", "take_chosen"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of rows, and of columns that an index may be of.
ROWS: Final = 0
COLUMNS: Final = 1
#: Column (ROWS,): the first entry of each row.
BEGINS: Final = 2
#: Column (2,), output: the first is set to 1 if an index is no column, the second if those of a row do not ascend.
FLAGS: Final = 3
#: Column (COLUMNS + 1,) of ranges in column CHOSEN, of the columns of the result that each column becomes; -1 for all
#: columns as they are.
CHOSEN_OFFSETS: Final = 4
CHOSEN: Final = 5
#: Column (ROWS,): ``count_chosen`` writes the entries of each row in chosen columns; ``take_chosen`` reads how many are
#: before each row.
NEW: Final = 6
#: Words of a value; column (ROWS,) of the word of each row's first element in dense results; the distance of its
#: elements in words, of any sign; and their number.
PER: Final = 7
TARGETS: Final = 8
COLUMN_STRIDE: Final = 9
WIDTH: Final = 10
#: Column (ROWS,): the end of the entries of each row.
ENDS: Final = 11
#: Bits of 1 and 2: whether ``scale_rows`` multiplies each row so that its sum is the float64 whose bits are TOTAL (rows
#: with the sum 0 stay), and whether it takes the logarithm of 1 + x of each value then.
SCALING: Final = 12
TOTAL: Final = 13
#: What a word of a negative zero is, as int64; 0 for values that are no floats. Dense results have 0 instead, as where
#: values are added up.
MINUS_ZERO: Final = 14
#: Number of words of the header.
SIZE: Final = 15

# As in ``gzarr_kernels.log1p``.
_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_ROOT: Final = 0x3FE6A09E667F3BCD
_MOVE: Final = (1023 << 52) - _ROOT
_MANTISSA: Final = (1 << 52) - 1


@body
def _index(indices: Statuses, entry: int) -> int:
    return int64(indices[uint64(entry)])


@body
def _check_rows(indices: Statuses, columns: Column, job: int, block: int, grid: int, thread: int, threads: int) -> None:
    begins, ends = get(columns, job + BEGINS), get(columns, job + ENDS)
    flags = get(columns, job + FLAGS)
    most = get(columns, job + COLUMNS)
    row = block
    while row < get(columns, job + ROWS):
        begin = get(columns, begins + row)
        entry = begin + thread
        while entry < get(columns, ends + row):
            index = _index(indices, entry)
            # Concurrent threads write the same value.
            if index < 0 or index >= most:
                columns[uint64(flags)] = int64(1)
            if entry > begin and index <= _index(indices, entry - 1):
                columns[uint64(flags + 1)] = int64(1)
            entry += threads
        row += grid


@body
def _count_chosen(indices: Statuses, columns: Column, job: int, first: int, step: int) -> None:
    begins, ends = get(columns, job + BEGINS), get(columns, job + ENDS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    row = first
    while row < get(columns, job + ROWS):
        found = 0
        for entry in range(get(columns, begins + row), get(columns, ends + row)):
            at = chosen + _index(indices, entry)
            found += get(columns, at + 1) - get(columns, at)
        columns[uint64(get(columns, job + NEW) + row)] = int64(found)
        row += step


@body
def _take_chosen(
    values: Any,
    indices: Statuses,
    new_values: Any,
    new_indices: Statuses,
    columns: Column,
    job: int,
    first: int,
    step: int,
) -> None:
    begins, ends = get(columns, job + BEGINS), get(columns, job + ENDS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    places = get(columns, job + CHOSEN)
    per = get(columns, job + PER)
    row = first
    while row < get(columns, job + ROWS):
        into = get(columns, get(columns, job + NEW) + row)
        for entry in range(get(columns, begins + row), get(columns, ends + row)):
            index = _index(indices, entry)
            if chosen < 0:
                new_indices[uint64(into)] = int32(index)
                for w in range(per):
                    new_values[uint64(into * per + w)] = values[uint64(entry * per + w)]
                into += 1
                continue
            for place in range(get(columns, chosen + index), get(columns, chosen + index + 1)):
                new_indices[uint64(into)] = int32(get(columns, places + place))
                for w in range(per):
                    new_values[uint64(into * per + w)] = values[uint64(entry * per + w)]
                into += 1
        row += step


@body
def _log1p(x: float) -> float:
    """Return the logarithm of 1 + x."""
    if not x > -1.0 or x == x + x:
        # 0 and infinity stay; the others have none.
        return x if x > -1.0 else float64_of(uint64(0xFFF0000000000000 if x == -1.0 else 0x7FF8000000000000))
    u = x + 1.0
    moved = bits_of_float64(u) + uint64(_MOVE)
    k = float64(int64(moved >> uint64(52)) - 1023)
    f = float64_of((moved & uint64(_MANTISSA)) + uint64(_ROOT)) - 1.0
    c = (x - (u - 1.0)) / u
    s = f / (2.0 + f)
    z = s * s
    high = 2.222219843214978396e-01 + z * (
        1.818357216161805012e-01 + z * (1.531383769920937332e-01 + z * 1.479819860511658591e-01)
    )
    r = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * (2.857142874366239149e-01 + z * high)))
    half = 0.5 * f * f
    return k * _LN2_HIGH - ((half - (s * (half + r) + (k * _LN2_LOW + c))) - f)


@body
def _number(values: Any, entry: int) -> float:
    """Return a value, of float32 or float64, whose bits are words."""
    if width_of(values) == 4:
        return float64(float32_of(uint32(values[uint64(entry)])))
    return float64_of(uint64(values[uint64(entry)]))


@body
def _sum(values: Any, begin: int, end: int) -> float:
    """Return the sum of a row, added up in the order of the host's kernel, so that both give the same."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    entry = begin
    while entry + 4 <= end:
        a += _number(values, entry)
        b += _number(values, entry + 1)
        c += _number(values, entry + 2)
        d += _number(values, entry + 3)
        entry += 4
    while entry < end:
        a += _number(values, entry)
        entry += 1
    return (a + b) + (c + d)


@body
def _scale_rows(values: Any, columns: Column, job: int, first: int, step: int) -> None:
    begins, ends = get(columns, job + BEGINS), get(columns, job + ENDS)
    scaling = get(columns, job + SCALING)
    row = first
    while row < get(columns, job + ROWS):
        begin, end = get(columns, begins + row), get(columns, ends + row)
        divisor, factor = 1.0, 1.0
        if scaling & 1:
            found = _sum(values, begin, end)
            if found != 0.0:
                total = float64_of(uint64(get(columns, job + TOTAL)))
                factor = total / found
                exponent = bits_of_float64(factor) >> uint64(52) & uint64(0x7FF)
                # Of sums that are very small or very large, it is infinite, or has lost digits.
                if exponent == uint64(0) or exponent == uint64(0x7FF):
                    divisor, factor = found, total
        for entry in range(begin, end):
            value = _number(values, entry)
            if divisor != 1.0:
                value /= divisor
            value *= factor
            if scaling & 2:
                value = _log1p(value)
            if width_of(values) == 4:
                values[uint64(entry)] = bits_of_float32(float32(value))
            else:
                values[uint64(entry)] = bits_of_float64(value)
        row += step


@body
def _densify(
    values: Any,
    indices: Statuses,
    dense: Any,
    columns: Column,
    job: int,
    block: int,
    grid: int,
    thread: int,
    threads: int,
) -> None:
    begins, ends = get(columns, job + BEGINS), get(columns, job + ENDS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    places = get(columns, job + CHOSEN)
    per = get(columns, job + PER)
    stride = get(columns, job + COLUMN_STRIDE)
    minus_zero = uint64(get(columns, job + MINUS_ZERO))
    row = block
    while row < get(columns, job + ROWS):
        start = get(columns, get(columns, job + TARGETS) + row)
        # A range with a step would be counted by a division, which a GPU has not in 64 bits.
        column = thread
        while column < get(columns, job + WIDTH):
            for w in range(per):
                dense[uint64(start + column * stride + w)] = 0
            column += threads
        # Before an element that one thread has cleared is written by another one.
        cuda.syncthreads()
        entry = get(columns, begins + row) + thread
        while entry < get(columns, ends + row):
            index = _index(indices, entry)
            if chosen < 0:
                for w in range(per):
                    word = values[uint64(entry * per + w)]
                    # Where nothing is written, there is 0.
                    if uint64(word) != minus_zero:
                        dense[uint64(start + index * stride + w)] = word
            else:
                for place in range(get(columns, chosen + index), get(columns, chosen + index + 1)):
                    at = start + get(columns, places + place) * stride
                    for w in range(per):
                        word = values[uint64(entry * per + w)]
                        if uint64(word) != minus_zero:
                            dense[uint64(at + w)] = word
            entry += threads
        row += grid


@kernel
def check_rows(indices: Statuses, columns: Column, job: int) -> None:
    """Find out whether indices are columns, and whether those of each row ascend.

    Launched with ``blocks(rows)`` blocks of ``THREADS``.

    Parameters
    ----------
    indices
        int32, of the entries of all rows.
    columns
        int64 memory of the columns.
    job
        Index of the header in ``columns``.
    """
    _check_rows(indices, columns, job, cuda.blockIdx.x, cuda.gridDim.x, cuda.threadIdx.x, cuda.blockDim.x)


@kernel
def count_chosen(indices: Statuses, columns: Column, job: int) -> None:
    """Count the entries of each row in chosen columns.

    Launched with ``blocks(-(-rows // THREADS))`` blocks of ``THREADS``; parameters as for ``check_rows``.
    """
    _count_chosen(indices, columns, job, cuda.grid(1), cuda.gridsize(1))


@kernel
def take_chosen(
    values: Words, indices: Statuses, new_values: Words, new_indices: Statuses, columns: Column, job: int
) -> None:
    """Write the entries of rows in chosen columns, or in all, as columns of the result, in the order of the entries.

    Launched as ``count_chosen``. An entry whose column was chosen several times is written for each of them.

    Parameters
    ----------
    values, indices
        Entries of all rows: words of the values, int32.
    new_values, new_indices
        Memory for the chosen ones.
    columns, job
        As for ``check_rows``.
    """
    _take_chosen(values, indices, new_values, new_indices, columns, job, cuda.grid(1), cuda.gridsize(1))


@kernel
def scale_rows(values: Words, columns: Column, job: int) -> None:
    """Scale the values of rows in place; words of 4 bytes are float32, of 8 bytes float64.

    Launched as ``count_chosen``.

    Parameters
    ----------
    values
        Words of the values of all rows.
    columns, job
        As for ``check_rows``.
    """
    _scale_rows(values, columns, job, cuda.grid(1), cuda.gridsize(1))


@kernel
def densify(values: Words, indices: Statuses, dense: Words, columns: Column, job: int) -> None:
    """Write rows to dense results; the indices of each row must differ.

    Launched with ``blocks(rows)`` blocks of ``THREADS``.

    Parameters
    ----------
    values, indices
        As for ``take_chosen``.
    dense
        Memory of the results.
    columns, job
        As for ``check_rows``.
    """
    _densify(
        values,
        indices,
        dense,
        columns,
        job,
        cuda.blockIdx.x,
        cuda.gridDim.x,
        cuda.threadIdx.x,
        cuda.blockDim.x,
    )
