"""Programs that encode (``gzarr_kernels.encode``): int64 words per operation."""

from __future__ import annotations

from typing import Final

WORDS: Final = 8
IN_PLACE: Final = 0
#: Result of an operation that finds an element that the stored type has no counterpart of.
NO_COUNTERPART: Final = -(2**40)
#: Bytes after every buffer, for checksums.
SLACK_BYTES: Final = 64
