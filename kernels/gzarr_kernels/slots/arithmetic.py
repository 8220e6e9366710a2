"""Parameters of the operations ``line`` and ``delta``, as an int64 array that compiled code takes by address."""

from __future__ import annotations

from typing import Final

#: Bytes of an element, encoded and decoded.
ENCODED: Final = 0
DECODED: Final = 1
#: For ``line``, bytes of the floating-point numbers in which it is computed, 0 for none; for ``delta``, whether they
#: are such numbers.
MIDDLE: Final = 2
#: Conversions (``conversion.py``) before and after: of encoded elements, and of computed ones.
FIRST: Final = 3
SECOND: Final = 4
#: Bits of two float64.
SCALE: Final = 5
OFFSET: Final = 6
SIZE: Final = 7
