"""Anonymous memory that begins at a huge page."""

from __future__ import annotations

import contextlib
import mmap
from typing import Final

import numpy as np

#: A huge page of most machines.
HUGE_PAGE_BYTES: Final = 2 << 20


def new(nbytes: int, nbytes_huge: int) -> mmap.mmap:
    """Return new memory, to be used from :func:`first_page` on.

    Parameters
    ----------
    nbytes
        Usable bytes.
    nbytes_huge
        Bytes from the first page on that should be in huge pages, where the system has them; it may be more than
        ``nbytes``.

    Raises
    ------
    MemoryError
        If it cannot be allocated.
    """
    try:
        # The excess only takes address space: it is never touched.
        memory = mmap.mmap(-1, max(nbytes, nbytes_huge) + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        begin = first_page(memory) - _address(memory)
        # Refused by kernels without huge pages; then small ones have to do.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE, begin, nbytes_huge)
    return memory


def room(memory: mmap.mmap) -> int:
    """Return how many bytes of a mapping are usable."""
    return len(memory) - HUGE_PAGE_BYTES


def first_page(memory: mmap.mmap) -> int:
    """Return the address of the first huge page of a mapping."""
    return -(-_address(memory) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def _address(memory: mmap.mmap) -> int:
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address
