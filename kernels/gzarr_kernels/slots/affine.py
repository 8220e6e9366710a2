"""Slots of the jobs of ``affine.py`` and ``device/resample.py``: int64.

A job of ``resample`` makes ``n`` results of one shape, each from a box of elements of an array. There are three axes;
with two, the first has length 1. Numbers that are no integers are float64 with the same bits.

On a device, addresses are relative to two memories, of boxes and of results; POSES and FILL are indices of columns.
"""

from __future__ import annotations

from typing import Final

#: Address of int64 (2,), shared by the workers: turns taken, and whether to stop.
SHARED: Final = 0
#: Number of turns, rows of a turn, and number of rows of all results.
TURNS: Final = 1
PER_TURN: Final = 2
ROWS: Final = 3
#: 0: nearest, 1: linear, 3: cubic, of coefficients of a spline.
ORDER: Final = 4
#: Types of the elements and of the result: places in :data:`KINDS`. With order 0, elements are copied; on a device,
#: only if the second is -1.
SOURCE_KIND: Final = 5
TARGET_KIND: Final = 6
#: Size of an element in bytes, for order 0.
ITEMSIZE: Final = 7
#: What lies beyond the ends of the array: place in :data:`MODES`.
MODE: Final = 8
#: Number of axes: 2 or 3.
AXES: Final = 9
#: Shape of a result, and its strides in bytes.
SHAPE: Final = 10
TARGET_STRIDES: Final = 13
#: Address of int64 (n, POSE_SIZE).
POSES: Final = 16
SIZE: Final = 17

#: Of each result: addresses of the box's first element, of the result's first element, and of the element that stands
#: for those beyond the ends: of the source's type for order 0, else float64.
SOURCE: Final = 0
TARGET: Final = 1
FILL: Final = 2
#: Strides of the box's elements, in elements.
STRIDES: Final = 3
#: First element of the box in the array, its shape, and the shape of the array.
LOW: Final = 6
LENGTH: Final = 9
ARRAY: Final = 12
#: float64 (3, 3) and (3,): the element of the array at ``i`` of the result is ``matrix @ i + offset``.
MATRIX: Final = 15
OFFSET: Final = 24
POSE_SIZE: Final = 27

#: Of a job of ``spline``, which has ``SHARED``, ``TURNS`` and ``PER_TURN``, and whose rows are groups of lines: address
#: of float64 elements ``(outer, n, inner)``, which are filtered in place along the second axis; ``n``, ``inner``, and
#: the number of lines.
ELEMENTS: Final = 4
LENGTH_OF_LINE: Final = 5
INNER: Final = 6
LINES: Final = 7
#: Lines of a group: side by side, or rows after each other (``inner`` is 1).
GROUP_OF_LINES: Final = 64
GROUP_OF_ROWS: Final = 8

#: Types of numbers, by NumPy's names.
KINDS: Final = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
MODES: Final = ("constant", "edge", "reflect", "symmetric", "wrap")

#: What is added to a number, away from zero, before it is cut to an integer: the float64 below 0.5. Of 0.5 itself, the
#: sum with the number just below a half would be rounded up, and with an odd integer above 2 ** 52 to another one.
HALF: Final = 0.5 - 2.0**-54
