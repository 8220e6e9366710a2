"""What one worker keeps between chunks and between calls: codec contexts and scratch buffers, as int64 slots.

The array belongs to the caller; what its addresses point to is allocated and freed here.
"""

from __future__ import annotations

from typing import Final

from .jit import entry, part
from .lz4_encode import lz4_encode, workspace_nbytes
from .memory import i64
from .searches import DEFLATE_LEVELS, DEFLATE_WAYS, set_zstd
from .symbols import (
    c_free,
    c_madvise,
    c_malloc,
    deflate_create,
    deflate_encoder,
    deflate_encoder_free,
    deflate_free,
    lz4_compress,
    zstd_create,
    zstd_encoder,
    zstd_encoder_free,
    zstd_encoder_nbytes,
    zstd_free,
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
#: Encoders, and what they are set to: level, checksum flag and way in one number.
ZSTD_ENCODER: Final = 26
ZSTD_SETTING: Final = 27
DEFLATE_ENCODER: Final = 28
DEFLATE_SETTING: Final = 29
#: How encoders are to search, a number of ``searches.py``.
WAY: Final = 30
#: After so many nanoseconds a loop over chunks comes back to its caller, whatever is left; 0: when nothing is.
SLICE_NS: Final = 31
SIZE: Final = 32

#: More ways than there are.
_WAYS: Final = 16

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

    It searches as ``WAY`` says.
    """
    c = i64(context)
    setting = (2 * level + checksum) * _WAYS + c[WAY]
    if c[ZSTD_ENCODER] != 0 and c[ZSTD_SETTING] == setting:
        return c[ZSTD_ENCODER]
    # One that failed for want of room takes no other settings.
    if c[ZSTD_ENCODER] != 0:
        zstd_encoder_free(c[ZSTD_ENCODER])
    c[ZSTD_ENCODER] = zstd_encoder()
    if c[ZSTD_ENCODER] == 0:
        return 0
    if not set_zstd(c[ZSTD_ENCODER], level, checksum, c[WAY]):
        zstd_encoder_free(c[ZSTD_ENCODER])
        c[ZSTD_ENCODER] = 0
        return 0
    c[ZSTD_SETTING] = setting
    return c[ZSTD_ENCODER]


@part
def deflate_encoder_context(context: int, level: int) -> int:
    """Return the worker's libdeflate encoder for one of zlib's levels, 0 to 9 (0 where memory is out).

    It searches as ``WAY`` says.
    """
    c = i64(context)
    setting = level * _WAYS + c[WAY]
    if c[DEFLATE_ENCODER] != 0 and c[DEFLATE_SETTING] != setting:
        deflate_encoder_free(c[DEFLATE_ENCODER])
        c[DEFLATE_ENCODER] = 0
    if c[DEFLATE_ENCODER] == 0:
        c[DEFLATE_ENCODER] = deflate_encoder(DEFLATE_WAYS[c[WAY] - 1] if c[WAY] > 0 else DEFLATE_LEVELS[level])
        c[DEFLATE_SETTING] = setting
    return c[DEFLATE_ENCODER]


@part
def lz4_block(context: int, source: int, nbytes: int, target: int, capacity: int, acceleration: int) -> int:
    """Write one LZ4 block as ``WAY`` says; return its size, 0 where it does not fit, below 0 where memory is out.

    Behind the target, 16 bytes may be written too.
    """
    c = i64(context)
    if c[WAY] == 0:
        return max(lz4_compress(source, target, nbytes, capacity, acceleration), 0)
    workspace = ensure(context, NEEDED, workspace_nbytes(nbytes))
    return lz4_encode(workspace, source, nbytes, target, capacity) if workspace != 0 else -1


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
