"""Parameters of a cast of numbers (``gzarr_kernels.casting``)."""

from __future__ import annotations

from typing import Final

#: Number of a conversion of ``conversion.py``; when writing, 0 for a cast of floating-point numbers to integers.
CONVERSION: Final = 0
#: Bytes of a number before and after.
ITEMSIZE: Final = 1
TARGET_ITEMSIZE: Final = 2

#: When reading: the bits of the integer that stands for another number, and the bits of that number.
KEY: Final = 3
NUMBER: Final = 4

#: When writing: what follows, added.
FLAGS: Final = 3
#: The integer for NaN.
MISSING: Final = 4

#: Integers have a sign.
SIGNED: Final = 1
#: What is out of range becomes the nearest integer that is not; otherwise it is an error.
CLAMPS: Final = 2
#: There is an integer for NaN; otherwise NaN is an error.
HAS_MISSING: Final = 4
