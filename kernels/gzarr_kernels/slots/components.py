"""Slots of the job of ``components.py``: int64. Rows are the elements along the last axis, one after the other."""

from __future__ import annotations

#: Address of the block, C-contiguous, and the size of its elements: 1, 2, 4 or 8 bytes.
SOURCE = 0
WIDTH = 1
#: The bits of the elements that belong to no component, and whether only equal elements are of one component.
BACKGROUND = 2
BY_VALUE = 3
#: Axes before the last one, and the address of their lengths; number of rows, and elements of a row.
LEADING = 4
LENGTHS = 5
ROWS = 6
LENGTH = 7
#: Address and number of the neighbours of a row that come before it; each is a row of ``NEIGHBOUR_SIZE`` + LEADING.
NEIGHBOURS = 8
NEIGHBOUR_COUNT = 9
#: Address of scratch memory for one coordinate along each of those axes.
COORDS = 10
#: Most runs that there is memory for, and the addresses of their ends (int32), and of their components (int32).
CAPACITY = 11
BEGINS = 12
ENDS = 13
PARENTS = 14
#: Address of the number of the first run of each row (int32, ROWS + 1).
STARTS = 15
#: Found: runs, -1 if there are more than CAPACITY; and components.
RUNS = 16
COUNT = 17
#: For ``describe``: addresses of the first element of each component (int64), and of the bits of that (uint64).
FIRSTS = 18
VALUES = 19
#: For ``paint``: address of the begin and the end of a box along each axis (int64, LEADING + 1, 2), of the target,
#: C-contiguous, the size of its elements (2, 4 or 8), and of the number of each component (uint64), or 0.
BOX = 20
TARGET = 21
TARGET_WIDTH = 22
NUMBERS = 23
SIZE = 24

#: A neighbour: elements along the last axis that runs may lie apart (0 or 1), and how many rows before it is; then its
#: place along each axis before the last one, from the row's.
TOLERANCE = 0
ROWS_BEFORE = 1
NEIGHBOUR_SIZE = 2
