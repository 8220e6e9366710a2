"""Slots of the jobs of ``sparse.py``: int64.

A job has ``n`` rows of entries, those of row ``i`` from ``BEGINS[i]`` to ``ENDS[i]``. An entry is a value, and an index
from 0 to the number of columns − 1, which the caller has checked. Rows and columns are those of the compressed form: in
CSC, a row is a column of the matrix.
"""

from __future__ import annotations

from typing import Final

#: Address of int64 (3,), shared by the workers: turns taken, whether to stop, and whether one is out of memory.
SHARED: Final = 0
#: Number of turns, rows of a turn, and number of rows.
TURNS: Final = 1
PER_TURN: Final = 2
ROWS: Final = 3
#: Addresses: int64 (n,) twice; unsigned indices (e,), of so many bytes; values (e,), of so many bytes.
BEGINS: Final = 4
ENDS: Final = 5
INDICES: Final = 6
INDEX_BYTES: Final = 7
VALUES: Final = 8
ITEMSIZE: Final = 9
#: Type of the results: place in :data:`KINDS`; and their size in bytes.
KIND: Final = 10
RESULT_ITEMSIZE: Final = 11
#: How values become results: number of a conversion (``slots/conversion.py``), 0 for none. If they are scaled: the
#: conversion to f8, and that of f8.
CONVERSION: Final = 12
TO_F8: Final = 13
FROM_F8: Final = 14
#: Whether they are scaled: bits of 1 and 2. 1: each row is multiplied so that its sum, over all its entries, is the
#: float64 whose bits are ``TOTAL``; rows with the sum 0 stay. 2: then, ``log1p`` of each element is taken.
SCALING: Final = 15
TOTAL: Final = 16
#: Chosen columns: column ``c`` becomes those in ``CHOSEN`` from ``CHOSEN_OFFSETS[c]`` to ``CHOSEN_OFFSETS[c + 1]``.
#: Addresses of int64 (columns + 1,) and of int32; 0 for all columns as they are.
CHOSEN_OFFSETS: Final = 17
CHOSEN: Final = 18
#: Of entries that are taken. Addresses: int64 (n + 1,), of which ``count`` writes the number of entries of row ``i`` to
#: ``i + 1``, and which ``take`` reads as offsets; int32; values.
NEW_OFFSETS: Final = 19
NEW_INDICES: Final = 20
NEW_VALUES: Final = 21
#: Address of int64 (n,), the address of each row's first element in dense results; the distance of its elements in
#: bytes; and their number.
TARGETS: Final = 22
COLUMN_STRIDE: Final = 23
COLUMNS: Final = 24
#: Whether dense rows are so many that they are written past the caches.
STREAM: Final = 25
#: Number of the columns that indices are of.
INDEXED: Final = 26
SIZE: Final = 27

#: Values of ``SCALING``.
NORMALIZE: Final = 1
LOG1P: Final = 2

#: Types of results that are added up, by NumPy's names. Sums of integers wrap, so those of either sign are the same.
KINDS: Final = ("b1", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16")
