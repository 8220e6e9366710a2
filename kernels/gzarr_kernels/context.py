"""Context of one worker, kept between chunks and between calls: codec contexts and scratch buffers, as int64 slots.

The array belongs to the caller. The memory that its addresses point to is allocated and freed here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .jit import call_2, entry, part
from .memory import i64
from .operations import STATES
from .symbols import c_free, c_madvise, c_malloc

#: Buffers: each an address and a capacity.
ENCODED: Final = 0
FIRST: Final = 2
SECOND: Final = 4
BLOCKS: Final = 6
NEEDED: Final = 8
_BUFFERS_END: Final = 10
#: The last decoded chunk: address, size, and the typesize (1: plain) and block size of its layout.
RESULT: Final = 10
RESULT_NBYTES: Final = 11
TYPESIZE: Final = 12
BLOCKSIZE: Final = 13
#: Detail of the last failure.
DETAIL: Final = 14
#: Totals since the caller cleared them: nanoseconds of reading, decoding and placing; encoded bytes; chunks.
READ_NS: Final = 15
DECODE_NS: Final = 16
PLACE_NS: Final = 17
ENCODED_BYTES: Final = 18
CHUNKS: Final = 19
#: Open file: its index and descriptor (-1: none).
FILE: Final = 20
DESCRIPTOR: Final = 21
#: Two int64 for results returned by address (also a timespec).
OUT0: Final = 22
OUT1: Final = 23
#: Search method of encoders, a number of ``searches.py``.
WAY: Final = 24
#: Nanoseconds after which a loop over chunks returns to its caller even if chunks are left; 0: no limit.
SLICE_NS: Final = 25
#: For the chunk being decoded: element size of byte planes that the caller takes, or 0; address of the geometry, and
#: the range of its pieces to be placed (everything if LAST_PIECE is 0); scratch for ``mark_piece``. See ``decode.py``.
PLANES: Final = 26
GEOMETRY: Final = 27
FIRST_PIECE: Final = 28
LAST_PIECE: Final = 29
SCRATCH: Final = 30
#: From here on, ``_OWN_SLOTS`` slots for each of ``operations.STATES``.
_OWN: Final = 31
_OWN_SLOTS: Final = 4
SIZE: Final = _OWN + _OWN_SLOTS * len(STATES)

#: Linux's ``madvise`` value for huge pages, which cause fewer page faults; other systems refuse it. It is used for
#: buffers of at least ``_HUGE_BYTES``.
_HUGE_PAGES: Final = 14
_HUGE_BYTES: Final = 4 << 20


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
        page = (c[slot] + 4095) // 4096 * 4096
        # Only an optimization, so failure is ignored.
        c_madvise(page, (c[slot] + capacity - page) // 4096 * 4096, _HUGE_PAGES)
    return c[slot]


def own(name: str) -> int:
    """Return the first of the four slots of one of ``operations.STATES``; they are initially 0."""
    return _OWN + _OWN_SLOTS * STATES.index(name)


# Addresses of the functions that free these slots, for the modules in use; ends in a zero.
_releases = np.zeros(len(STATES) + 1, np.int64)


def releases_with(address: int) -> None:
    """Make :func:`release` call the function ``(context, keep_bytes)`` at this address. Not thread-safe."""
    if address not in _releases:
        _releases[np.count_nonzero(_releases)] = address


@entry(3)
def _release(context: int, keep_bytes: int, releases: int) -> None:
    c = i64(context)
    held = 0
    for slot in range(ENCODED, _BUFFERS_END, 2):
        held += c[slot + 1]
    if held > keep_bytes:
        for slot in range(ENCODED, _BUFFERS_END, 2):
            if c[slot] != 0:
                c_free(c[slot])
            c[slot] = 0
            c[slot + 1] = 0
    others = i64(releases)
    i = 0
    while others[i] != 0:
        call_2(others[i], context, keep_bytes)
        i += 1


def release(context: int, keep_bytes: int, _releases_at: int = _releases.ctypes.data) -> None:
    """Free buffers and large encoders that hold more than ``keep_bytes``; if it is negative, free everything."""
    _release(context, keep_bytes, _releases_at)
