"""What one worker keeps between chunks and between calls: codec contexts and scratch buffers, as int64 slots.

The array belongs to the caller; what its addresses point to is allocated and freed here.
"""

from __future__ import annotations

from typing import Final

from .jit import entry, part
from .memory import i64
from .symbols import (
    c_free,
    c_madvise,
    c_malloc,
    deflate_create,
    deflate_encoder,
    deflate_encoder_free,
    deflate_free,
    zstd_create,
    zstd_encoder,
    zstd_encoder_free,
    zstd_encoder_nbytes,
    zstd_free,
    zstd_set,
)

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
#: Encoders, and what they are set to (zstd: level, checksum flag and tuning in one number; deflate: zlib's level).
ZSTD_ENCODER: Final = 26
ZSTD_SETTING: Final = 27
DEFLATE_ENCODER: Final = 28
DEFLATE_SETTING: Final = 29
#: How zstd is to search: 0 as its level says, or a number from 1 on of ``ZSTD_TUNINGS``.
ZSTD_TUNING: Final = 30
SIZE: Final = 32

_ZSTD_LEVEL: Final = 100
_ZSTD_CHECKSUM: Final = 201
_ZSTD_WINDOW_LOG: Final = 101
_ZSTD_HASH_LOG: Final = 102
_ZSTD_CHAIN_LOG: Final = 103
_ZSTD_MIN_MATCH: Final = 105
_ZSTD_STRATEGY: Final = 107
_ZSTD_MOST_WINDOW_LOG: Final = 22
#: Searches by zstd's strategies 1 ("fast") and 2 ("dfast"), the fastest first: strategy, log2 of the entries of its
#: tables, least bytes of a match. Where bytes are mostly noise, as in measured numbers, they find nearly all that the
#: thorough ones find.
ZSTD_TUNINGS: Final = ((1, 16, 0, 5), (1, 16, 0, 4), (1, 17, 0, 5), (2, 16, 15, 5))
#: For each of zlib's levels the fastest of libdeflate's that compresses as well, or nearly so.
_DEFLATE_LEVELS: Final = (0, 3, 5, 5, 5, 5, 7, 8, 9, 9)


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


@part
def zstd_encoder_context(context: int, level: int, checksum: int) -> int:
    """Return the worker's zstd encoder, set to a level and to writing checksums or not (0 where memory is out).

    It searches as ``ZSTD_TUNING`` says.
    """
    c = i64(context)
    tuning = c[ZSTD_TUNING]
    setting = (2 * level + checksum) * 8 + tuning
    if c[ZSTD_ENCODER] != 0 and c[ZSTD_SETTING] == setting:
        return c[ZSTD_ENCODER]
    # One that failed for want of room takes no other settings.
    if c[ZSTD_ENCODER] != 0:
        zstd_encoder_free(c[ZSTD_ENCODER])
    c[ZSTD_ENCODER] = zstd_encoder()
    if c[ZSTD_ENCODER] == 0:
        return 0
    # These strategies take the target length of levels above 4 for a wish to skip bytes and to leave literals alone.
    failed = zstd_set(c[ZSTD_ENCODER], _ZSTD_LEVEL, min(level, 3) if tuning > 0 else level) < 0
    failed |= zstd_set(c[ZSTD_ENCODER], _ZSTD_CHECKSUM, checksum) < 0
    if tuning > 0:
        strategy, table, short_table, match = ZSTD_TUNINGS[tuning - 1]
        failed |= zstd_set(c[ZSTD_ENCODER], _ZSTD_STRATEGY, strategy) < 0
        failed |= zstd_set(c[ZSTD_ENCODER], _ZSTD_HASH_LOG, table) < 0
        failed |= short_table > 0 and zstd_set(c[ZSTD_ENCODER], _ZSTD_CHAIN_LOG, short_table) < 0
        failed |= zstd_set(c[ZSTD_ENCODER], _ZSTD_MIN_MATCH, match) < 0
        # Levels from 5 to 9 look as far back as this.
        failed |= level > 4 and zstd_set(c[ZSTD_ENCODER], _ZSTD_WINDOW_LOG, _ZSTD_MOST_WINDOW_LOG) < 0
    if failed:
        zstd_encoder_free(c[ZSTD_ENCODER])
        c[ZSTD_ENCODER] = 0
        return 0
    c[ZSTD_SETTING] = setting
    return c[ZSTD_ENCODER]


@part
def deflate_encoder_context(context: int, level: int) -> int:
    """Return the worker's libdeflate encoder for one of zlib's levels, 0 to 9 (0 where memory is out)."""
    c = i64(context)
    if c[DEFLATE_ENCODER] != 0 and c[DEFLATE_SETTING] != level:
        deflate_encoder_free(c[DEFLATE_ENCODER])
        c[DEFLATE_ENCODER] = 0
    if c[DEFLATE_ENCODER] == 0:
        c[DEFLATE_ENCODER] = deflate_encoder(_DEFLATE_LEVELS[level])
        c[DEFLATE_SETTING] = level
    return c[DEFLATE_ENCODER]


@entry(2)
def release(context: int, keep_bytes: int) -> None:
    """Free the buffers, and the zstd encoder, if they hold more than ``keep_bytes``; below zero, free the rest too."""
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
    # At high levels, and for large chunks, its tables take tens of megabytes.
    if c[ZSTD_ENCODER] != 0 and zstd_encoder_nbytes(c[ZSTD_ENCODER]) > keep_bytes:
        zstd_encoder_free(c[ZSTD_ENCODER])
        c[ZSTD_ENCODER] = 0
    if keep_bytes < 0:
        if c[DEFLATE_ENCODER] != 0:
            deflate_encoder_free(c[DEFLATE_ENCODER])
            c[DEFLATE_ENCODER] = 0
        if c[ZSTD] != 0:
            zstd_free(c[ZSTD])
            c[ZSTD] = 0
        if c[DEFLATE] != 0:
            deflate_free(c[DEFLATE])
            c[DEFLATE] = 0
