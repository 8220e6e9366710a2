"""Context of one worker, kept between chunks and between calls: codec contexts and scratch buffers, as int64 slots.

The array belongs to the caller. The memory that its addresses point to is allocated and freed here.
"""

from __future__ import annotations

import time
from typing import Final

from .jit import call_2, entry, part
from .memory import i64
from .slots.context import BUFFERS_END, ENCODED, OUT0, OUT1, SLICE_NS
from .symbols import c_clock, c_free, c_madvise, c_malloc

#: Linux's ``madvise`` value for huge pages, which cause fewer page faults; other systems refuse it. It is used for
#: buffers of at least ``_HUGE_BYTES``.
_HUGE_PAGES: Final = 14
_HUGE_BYTES: Final = 4 << 20
#: Page sizes of all machines divide this one.
_PAGE_BYTES: Final = 64 << 10
#: That of the system that compiles: libraries are for the same one.
_CLOCK_MONOTONIC: Final[int] = getattr(time, "CLOCK_MONOTONIC", 1)


@part
def ensure(context: int, slot: int, nbytes: int) -> int:
    """Return the address of a buffer of at least ``nbytes``, or 0 if out of memory. Its old content may be lost."""
    c = i64(context)
    if c[slot] != 0 and c[slot + 1] >= nbytes:
        return c[slot]
    if c[slot] != 0:
        c_free(c[slot])
    capacity = (nbytes + 4095) // 4096 * 4096 + 64
    c[slot] = c_malloc(capacity)
    c[slot + 1] = capacity if c[slot] != 0 else 0
    if capacity >= _HUGE_BYTES and c[slot] != 0:
        page = (c[slot] + _PAGE_BYTES - 1) // _PAGE_BYTES * _PAGE_BYTES
        # Only an optimization, so failure is ignored.
        c_madvise(page, (c[slot] + capacity - page) // _PAGE_BYTES * _PAGE_BYTES, _HUGE_PAGES)
    return c[slot]


@part
def now(context: int) -> int:
    """Return the time of a monotonic clock in nanoseconds."""
    c_clock(_CLOCK_MONOTONIC, context + 8 * OUT0)
    return i64(context)[OUT0] * 1_000_000_000 + i64(context)[OUT1]


@part
def slice_end(context: int) -> int:
    """Return the time at which a loop that begins now returns to its caller, or 0 for no limit."""
    nanoseconds = i64(context)[SLICE_NS]
    return now(context) + nanoseconds if nanoseconds > 0 else 0


@entry(3)
def release(context: int, keep_bytes: int, releases: int) -> None:
    """Free buffers and large encoders that hold more than ``keep_bytes``; if it is negative, free everything.

    Parameters
    ----------
    context
        Address of the worker's context.
    keep_bytes
        Most bytes to keep of each kind.
    releases
        Address of the addresses of functions ``(context, keep_bytes)`` that free what operations keep, and a 0.
    """
    c = i64(context)
    held = 0
    for slot in range(ENCODED, BUFFERS_END, 2):
        held += c[slot + 1]
    if held > keep_bytes:
        for slot in range(ENCODED, BUFFERS_END, 2):
            if c[slot] != 0:
                c_free(c[slot])
            c[slot] = 0
            c[slot + 1] = 0
    others = i64(releases)
    i = 0
    while others[i] != 0:
        call_2(others[i], context, keep_bytes)
        i += 1
