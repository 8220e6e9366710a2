"""Slots of the job of ``regions.py``: int64. Rows are the elements along the last axis, one after the other."""

from __future__ import annotations

#: Address of the labels, C-contiguous, the size of their elements (1, 2, 4 or 8 bytes), and the bits of the background.
SOURCE = 0
WIDTH = 1
BACKGROUND = 2
#: Axes before the last one, the address of their lengths, number of rows, and elements of a row.
LEADING = 3
LENGTHS = 4
ROWS = 5
LENGTH = 6
#: Address of scratch memory for one coordinate along each of those axes.
COORDS = 7
#: Address of the table of hashes (int64: 0, or a number from 1), and its length, a power of two of at least twice
#: CAPACITY.
TABLE = 8
TABLE_SIZE = 9
#: Most labels that there is memory for; then addresses, with an item for each label in the order of first elements:
#: the label (uint64), elements, the first of them (int64), sums of coordinates (int64, LEADING + 1), and the box
#: (int64, LEADING + 1, 2).
CAPACITY = 10
LABELS = 11
AREAS = 12
FIRSTS = 13
SUMS = 14
BOXES = 15
#: Found: number of labels, -1 if there are more than CAPACITY.
COUNT = 16
#: Number of images, C-contiguous; addresses of a row for each: address, kind (``KINDS``); and of float64
#: (images, CAPACITY, ``STATISTICS``).
IMAGES = 17
IMAGE_ROWS = 18
MEASURES = 19
#: For ``rename``: addresses of the labels in ascending order (uint64), of their new numbers (uint64), and their number;
#: of the target, C-contiguous, and the size of its elements, 4 or 8.
OLD = 20
NEW = 21
OLD_COUNT = 22
TARGET = 23
TARGET_WIDTH = 24
SIZE = 25

#: What is measured of an image: the sum of the elements, and what is to be added to it, which its rounding has left
#: out; the sum of the squares of their differences to their mean; extremes. If the sum is beyond float64, it and the
#: squares are undefined.
SUM = 0
REST = 1
SQUARES = 2
LEAST = 3
MOST = 4
STATISTICS = 5

#: Types of images, by NumPy's names.
KINDS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
