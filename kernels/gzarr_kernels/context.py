"""What one worker keeps between chunks and between reads: decoder contexts and scratch buffers, as int64 slots.

The array belongs to the caller; what its addresses point to is allocated and freed here.
"""

from __future__ import annotations

from typing import Final

from .jit import entry, part
from .memory import i64
from .symbols import c_free, c_malloc, deflate_create, deflate_free, zstd_create, zstd_free

ZSTD: Final = 0
DEFLATE: Final = 1
#: Buffers: an address and a capacity each.
ENCODED: Final = 2
FIRST: Final = 4
SECOND: Final = 6
BLOCKS: Final = 8
NEEDED: Final = 10
_BUFFERS_END: Final = 12
#: What the last decoded chunk is: address, size, typesize (1: plain) and block size of its layout.
RESULT: Final = 12
RESULT_NBYTES: Final = 13
TYPESIZE: Final = 14
BLOCKSIZE: Final = 15
#: Detail of the last failure.
DETAIL: Final = 16
#: Totals since the caller cleared them: nanoseconds reading, decoding, placing; encoded bytes; chunks.
READ_NS: Final = 17
DECODE_NS: Final = 18
PLACE_NS: Final = 19
ENCODED_BYTES: Final = 20
CHUNKS: Final = 21
#: Open file: its index and descriptor (-1: none).
FILE: Final = 22
DESCRIPTOR: Final = 23
#: Two int64 for results by address (also a timespec).
OUT0: Final = 24
OUT1: Final = 25
SIZE: Final = 32


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
    return c[slot]


@part
def zstd_context(context: int) -> int:
    """Return the worker's zstd context, made at first use (0 where memory is out)."""
    c = i64(context)
    if c[ZSTD] == 0:
        c[ZSTD] = zstd_create()
    return c[ZSTD]


@part
def deflate_context(context: int) -> int:
    """Return the worker's libdeflate context, made at first use (0 where memory is out)."""
    c = i64(context)
    if c[DEFLATE] == 0:
        c[DEFLATE] = deflate_create()
    return c[DEFLATE]


@entry(2)
def release(context: int, keep_bytes: int) -> None:
    """Free the buffers if together they hold more than ``keep_bytes``; below zero, free the decoders too."""
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
    if keep_bytes < 0:
        if c[ZSTD] != 0:
            zstd_free(c[ZSTD])
            c[ZSTD] = 0
        if c[DEFLATE] != 0:
            deflate_free(c[DEFLATE])
            c[DEFLATE] = 0
