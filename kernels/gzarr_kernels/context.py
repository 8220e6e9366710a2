"""What one worker keeps between chunks and between calls: codec contexts and scratch buffers, as int64 slots.

The array belongs to the caller; what its addresses point to is allocated and freed here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .jit import call_2, entry, part
from .memory import i64
from .operations import STATES
from .symbols import c_free, c_madvise, c_malloc

#: Buffers: an address and a capacity each.
ENCODED: Final = 0
FIRST: Final = 2
SECOND: Final = 4
BLOCKS: Final = 6
NEEDED: Final = 8
_BUFFERS_END: Final = 10
#: What the last decoded chunk is: address, size, typesize (1: plain) and block size of its layout.
RESULT: Final = 10
RESULT_NBYTES: Final = 11
TYPESIZE: Final = 12
BLOCKSIZE: Final = 13
#: Detail of the last failure.
DETAIL: Final = 14
#: Totals since the caller cleared them: nanoseconds reading, decoding, placing; encoded bytes; chunks.
READ_NS: Final = 15
DECODE_NS: Final = 16
PLACE_NS: Final = 17
ENCODED_BYTES: Final = 18
CHUNKS: Final = 19
#: Open file: its index and descriptor (-1: none).
FILE: Final = 20
DESCRIPTOR: Final = 21
#: Two int64 for results by address (also a timespec).
OUT0: Final = 22
OUT1: Final = 23
#: How encoders are to search, a number of ``searches.py``.
WAY: Final = 24
#: After so many nanoseconds a loop over chunks comes back to its caller, whatever is left; 0: when nothing is.
SLICE_NS: Final = 25
#: Of the chunk that is decoded: item size up to which byte planes are taken as they are, or 0; address of the geometry,
#: and which of its pieces will be placed (LAST_PIECE 0: everything); scratch for ``mark_piece``. See ``decode.py``.
PLANES: Final = 26
GEOMETRY: Final = 27
FIRST_PIECE: Final = 28
LAST_PIECE: Final = 29
SCRATCH: Final = 30
#: From here on ``_OWN_SLOTS`` for each of ``operations.STATES``.
_OWN: Final = 31
_OWN_SLOTS: Final = 4
SIZE: Final = _OWN + _OWN_SLOTS * len(STATES)

#: Linux's advice for memory in huge pages, of which fewer have to be made ready; others do not know it. It is for
#: buffers from this size on.
_HUGE_PAGES: Final = 14
_HUGE_BYTES: Final = 4 << 20


@part
def ensure(context: int, slot: int, nbytes: int) -> int:
    """Return the address of a buffer of at least ``nbytes``, or 0 where memory is out. Its old content is lost."""
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
        # Whether it helps or not: nothing depends on it.
        c_madvise(page, (c[slot] + capacity - page) // 4096 * 4096, _HUGE_PAGES)
    return c[slot]


def own(name: str) -> int:
    """Return the first of the four slots of one of ``operations.STATES``, which are 0 at first."""
    return _OWN + _OWN_SLOTS * STATES.index(name)


# Addresses of what frees these slots: of the modules in use, a zero behind the last one.
_releases = np.zeros(len(STATES) + 1, np.int64)


def releases_with(address: int) -> None:
    """Have :func:`release` call a function ``(context, keep_bytes)`` for its own slots; one thread at a time."""
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
    """Free the buffers, and large encoders, if they hold more than ``keep_bytes``; below zero, free the rest too."""
    _release(context, keep_bytes, _releases_at)
