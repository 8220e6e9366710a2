"""Slots of the jobs of ``sparse.py``: int64.

A job has ``n`` rows of entries, those of row ``i`` from ``OFFSETS[i]`` to ``OFFSETS[i + 1]``. An entry is a value, and
an int32 index from 0 to the number of columns − 1, which the caller has checked. Rows and columns are those of the
compressed form: in CSC, a row is a column of the matrix.
"""

from __future__ import annotations

from typing import Final

#: Address of int64 (2,), shared by the workers: turns taken, and whether to stop.
SHARED: Final = 0
#: Number of turns, rows of a turn, and number of rows.
TURNS: Final = 1
PER_TURN: Final = 2
ROWS: Final = 3
#: Addresses: int64 (n + 1,); int32 (e,); values (e,).
OFFSETS: Final = 4
INDICES: Final = 5
VALUES: Final = 6
#: Type of the values: place in :data:`KINDS`; and their size in bytes.
KIND: Final = 7
ITEMSIZE: Final = 8
#: Chosen columns: column ``c`` becomes those in ``CHOSEN`` from ``CHOSEN_OFFSETS[c]`` to ``CHOSEN_OFFSETS[c + 1]``.
#: Addresses of int64 (columns + 1,) and of int32; 0 for all columns as they are.
CHOSEN_OFFSETS: Final = 9
CHOSEN: Final = 10
#: Of entries whose columns were chosen. Addresses: int64 (n + 1,), of which ``count`` writes the number of entries of
#: row ``i`` to ``i + 1``, and which ``take`` reads as offsets; int32; values.
NEW_OFFSETS: Final = 11
NEW_INDICES: Final = 12
NEW_VALUES: Final = 13
#: Address of int64 (n,), the address of each row's first element in dense results; the distance of its elements in
#: bytes; and their number.
TARGETS: Final = 14
COLUMN_STRIDE: Final = 15
COLUMNS: Final = 16
SIZE: Final = 17

#: Types of values that are added up, by NumPy's names. Sums of integers wrap, so those of either sign are the same.
KINDS: Final = ("b1", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
