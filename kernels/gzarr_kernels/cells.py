"""Rows of cells: boxes of neighbouring elements that become one element each (``downsample_….py``).

A job (``slots/cells.py``) has five axes. Elements along its last axis lie beside each other, in the source and in the
target. Cells at the far edge of the source consist of the elements that are there.
"""

from __future__ import annotations

from typing import Any

from .jit import part
from .memory import i64
from .slots.cells import AXES, CELLS, FACTORS, LENGTHS, SOURCE, SOURCE_STRIDES, TARGET, TARGET_STRIDES

#: Types of elements that jobs may have, by NumPy's names.
KINDS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")


@part
def row_count(job: int) -> int:
    """Return the number of rows of cells."""
    j = i64(job)
    count = 1
    for d in range(AXES - 1):
        count *= j[CELLS + d]
    return count


@part
def row_target(job: int, row: int) -> int:
    """Return the address in the target of a row of cells."""
    j = i64(job)
    at = j[TARGET]
    for d in range(AXES - 2, -1, -1):
        cells = j[CELLS + d]
        if cells > 1:
            at += row % cells * j[TARGET_STRIDES + d]
            row //= cells
    return at


@part
def _begin(j: Any, d: int, cell: int) -> int:
    """Return the offset in bytes of a cell's first element along an axis."""
    return cell * j[FACTORS + d] * j[SOURCE_STRIDES + d]


@part
def _length(j: Any, d: int, cell: int) -> int:
    """Return the number of elements of a cell along an axis."""
    return min(j[FACTORS + d], j[LENGTHS + d] - cell * j[FACTORS + d])


@part
def source_rows(job: int, row: int, addresses: int) -> int:
    """Store the addresses of the source's rows that a row of cells consists of, as int64; return their number."""
    j = i64(job)
    found = i64(addresses)
    c3 = row % j[CELLS + 3]
    row //= j[CELLS + 3]
    c2 = row % j[CELLS + 2]
    row //= j[CELLS + 2]
    c1 = row % j[CELLS + 1]
    c0 = row // j[CELLS + 1]
    at = j[SOURCE] + _begin(j, 0, c0) + _begin(j, 1, c1) + _begin(j, 2, c2) + _begin(j, 3, c3)
    n1 = _length(j, 1, c1)
    n2 = _length(j, 2, c2)
    n3 = _length(j, 3, c3)
    count = 0
    for k0 in range(_length(j, 0, c0)):
        for k1 in range(n1):
            for k2 in range(n2):
                for k3 in range(n3):
                    found[count] = (
                        at
                        + k0 * j[SOURCE_STRIDES]
                        + k1 * j[SOURCE_STRIDES + 1]
                        + k2 * j[SOURCE_STRIDES + 2]
                        + k3 * j[SOURCE_STRIDES + 3]
                    )
                    count += 1
    return count
