"""Rows of compressed sparse matrices on a device: some of their columns, and rows made dense.

A row has entries, each with a value and an int32 index, its column. To choose columns, a thread takes a row, so that
entries stay in order; to make rows dense, a block takes one.

The kernels trust their columns, and indices that ``check_rows`` has found to be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get
from .language import cuda, int32, int64, uint64
from .target import THREADS, blocks, body, kernel

if TYPE_CHECKING:
    from .addressing import Column, Statuses, Words

__all__ = ["THREADS", "blocks", "check_rows", "count_chosen", "densify", "take_chosen"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of rows, and of columns that an index may be of.
ROWS: Final = 0
COLUMNS: Final = 1
#: Column (ROWS + 1,): entries before each row.
OFFSETS: Final = 2
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
#: Number of words of the header.
SIZE: Final = 11


@body
def _index(indices: Statuses, entry: int) -> int:
    return int64(indices[uint64(entry)])


@body
def _check_rows(indices: Statuses, columns: Column, job: int, block: int, grid: int, thread: int, threads: int) -> None:
    offsets = get(columns, job + OFFSETS)
    flags = get(columns, job + FLAGS)
    most = get(columns, job + COLUMNS)
    row = block
    while row < get(columns, job + ROWS):
        begin = get(columns, offsets + row)
        entry = begin + thread
        while entry < get(columns, offsets + row + 1):
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
    offsets = get(columns, job + OFFSETS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    row = first
    while row < get(columns, job + ROWS):
        found = 0
        for entry in range(get(columns, offsets + row), get(columns, offsets + row + 1)):
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
    offsets = get(columns, job + OFFSETS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    places = get(columns, job + CHOSEN)
    per = get(columns, job + PER)
    row = first
    while row < get(columns, job + ROWS):
        into = get(columns, get(columns, job + NEW) + row)
        for entry in range(get(columns, offsets + row), get(columns, offsets + row + 1)):
            at = chosen + _index(indices, entry)
            for place in range(get(columns, at), get(columns, at + 1)):
                new_indices[uint64(into)] = int32(get(columns, places + place))
                for w in range(per):
                    new_values[uint64(into * per + w)] = values[uint64(entry * per + w)]
                into += 1
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
    offsets = get(columns, job + OFFSETS)
    chosen = get(columns, job + CHOSEN_OFFSETS)
    places = get(columns, job + CHOSEN)
    per = get(columns, job + PER)
    stride = get(columns, job + COLUMN_STRIDE)
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
        entry = get(columns, offsets + row) + thread
        while entry < get(columns, offsets + row + 1):
            index = _index(indices, entry)
            if chosen < 0:
                for w in range(per):
                    dense[uint64(start + index * stride + w)] = values[uint64(entry * per + w)]
            else:
                for place in range(get(columns, chosen + index), get(columns, chosen + index + 1)):
                    at = start + get(columns, places + place) * stride
                    for w in range(per):
                        dense[uint64(at + w)] = values[uint64(entry * per + w)]
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
    """Write the entries in chosen columns, as columns of the result, in the order of the entries.

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
