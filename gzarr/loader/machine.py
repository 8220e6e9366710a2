"""What there is of this machine: its memory, which lists of groups, reads and parts must fit."""

from __future__ import annotations

import os
from typing import Final

#: The memory of a machine that does not tell it.
_MEMORY_BYTES: Final = 1 << 37


def memory_bytes() -> int:
    """Return the memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Windows has no such function.
    except (AttributeError, ValueError, OSError):
        return _MEMORY_BYTES
