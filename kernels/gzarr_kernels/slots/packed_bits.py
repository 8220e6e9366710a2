"""Parameters of the operation ``packbits``, as an int64 array that compiled code takes by address."""

from __future__ import annotations

from typing import Final

#: Bytes of an element (of a complex number, of one of its two parts): 1, 2, 4 or 8.
WIDTH: Final = 0
#: Number of stored bits of an element, and position of the lowest.
KEPT: Final = 1
FIRST_BIT: Final = 2
#: Bits to set above the stored bits of an element, before they are shifted to ``FIRST_BIT``, if the highest is set.
SIGN: Final = 3
#: Whether the first bit of a byte is its highest; then ``KEPT`` is 1.
FROM_HIGHEST: Final = 4
#: Place of the byte with the number of padding bits.
PADDING_AT: Final = 5
SIZE: Final = 6

#: Places.
NOWHERE: Final = 0
FIRST: Final = 1
LAST: Final = 2
