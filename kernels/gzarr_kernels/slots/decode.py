"""Programs that decode (``gzarr_kernels.decode``): int64 words per operation."""

from __future__ import annotations

from typing import Final

WORDS: Final = 3
IN_PLACE: Final = -1
