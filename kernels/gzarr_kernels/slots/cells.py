"""Slots of the job of ``cells.py``: int64, strides in bytes."""

from __future__ import annotations

#: Axes of a job; the last is the one along which elements follow each other.
AXES = 5

#: Addresses of the first element of the source and of the target, and of scratch memory.
SOURCE = 0
TARGET = 1
SCRATCH = 2
#: Place of the type in ``cells.KINDS``.
KIND = 3
#: Cells along each axis.
CELLS = 4
#: Elements of the source along each axis.
LENGTHS = CELLS + AXES
#: Elements of a whole cell along each axis.
FACTORS = LENGTHS + AXES
#: Strides of the source and of the target along all axes but the last.
SOURCE_STRIDES = FACTORS + AXES
TARGET_STRIDES = SOURCE_STRIDES + AXES - 1
SIZE = TARGET_STRIDES + AXES - 1
