"""From a gathered chunk to encoded bytes: a short program of operations, run for one chunk.

A program is ``WORDS`` int64 an operation: what it is, the most bytes that it makes, and its parameters. The bounds come
from the caller, who knows what goes in.
"""

from __future__ import annotations

from typing import Final

from numba import types

from . import context as C
from . import status as S
from .blosc_encode import blosc_encode
from .decode import BLOSC, CRC32C, DEFLATE, GZIP, LZ4, SHUFFLE, ZLIB, ZSTD
from .deinterleave import shuffle_block
from .jit import part, unit
from .memory import i64, u32
from .symbols import crc32c, deflate_compress, gzip_compress, zlib_compress, zstd_compress

#: Words an operation takes; parameters, in their order:
#: zstd level, checksum (0 or 1) · lz4 acceleration · gzip, zlib, deflate level · shuffle element size ·
#: blosc compressor, level, shuffle, typesize, block size · crc32c none.
#: The last word of each is how to search (``searches.py``).
WORDS: Final = 8
OPERATIONS: Final = {
    "zstd": ZSTD,
    "gzip": GZIP,
    "zlib": ZLIB,
    "deflate": DEFLATE,
    "lz4": LZ4,
    "blosc": BLOSC,
    "crc32c": CRC32C,
    "shuffle": SHUFFLE,
}
#: Bytes behind every buffer, for checksums.
SLACK_BYTES: Final = 64


@part
def _zstd(context: int, source: int, nbytes: int, target: int, capacity: int, level: int, checksum: int) -> int:
    zstd = C.zstd_encoder_context(context, level, checksum)
    if zstd == 0:
        return 0
    return zstd_compress(zstd, target, capacity, source, nbytes)


@part
def _deflate(context: int, what: int, source: int, nbytes: int, target: int, capacity: int, level: int) -> int:
    deflate = C.deflate_encoder_context(context, level)
    if deflate == 0:
        return 0
    if what == GZIP:
        return gzip_compress(deflate, source, nbytes, target, capacity)
    if what == ZLIB:
        return zlib_compress(deflate, source, nbytes, target, capacity)
    return deflate_compress(deflate, source, nbytes, target, capacity)


@part
def _lz4(context: int, source: int, nbytes: int, target: int, capacity: int, acceleration: int) -> int:
    """Write numcodecs' LZ4: 4 bytes little-endian size, one block."""
    u32(target)[0] = nbytes
    size = C.lz4_block(context, source, nbytes, target + 4, capacity - 4, acceleration)
    return size + 4 if size > 0 else 0


@unit(types.int64, 6)
def encode_chunk(context: int, program: int, operations: int, source: int, nbytes: int, owned: int) -> int:
    """Encode one chunk; the context's RESULT and RESULT_NBYTES say where it is and how large.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        The chunk, element after element in its stored order.
    owned
        Not 0 if ``source`` is the context's FIRST buffer with ``SLACK_BYTES`` behind it; else it is only read.

    Returns
    -------
    A status; the context's DETAIL says more.
    """
    c = i64(context)
    p = i64(program)
    c[C.DETAIL] = 0
    slot = C.FIRST
    for o in range(operations):
        word = WORDS * o
        what = p[word]
        if what == CRC32C and owned != 0:
            u32(source + nbytes)[0] = crc32c(source, nbytes)
            nbytes += 4
            continue
        if owned != 0:
            slot = C.SECOND if slot == C.FIRST else C.FIRST
        capacity = p[word + 1]
        target = C.ensure(context, slot, capacity + SLACK_BYTES)
        if target == 0:
            return S.NO_MEMORY
        owned = 1
        c[C.WAY] = p[word + WORDS - 1]
        a = p[word + 2]
        b = p[word + 3]
        size = 0
        if what == ZSTD:
            size = _zstd(context, source, nbytes, target, capacity, a, b)
        elif what == BLOSC:
            size = blosc_encode(context, source, nbytes, target, a, b, p[word + 4], p[word + 5], p[word + 6])
        elif what == LZ4:
            size = _lz4(context, source, nbytes, target, capacity, a)
        elif what == GZIP or what == ZLIB or what == DEFLATE:
            size = _deflate(context, what, source, nbytes, target, capacity, a)
        elif what == SHUFFLE:
            shuffle_block(source, nbytes, target, a)
            size = nbytes
        if size <= 0:
            # Every bound leaves room for what does not compress.
            c[C.DETAIL] = size
            return S.NO_MEMORY if size == 0 else S.CORRUPT
        source = target
        nbytes = size
    c[C.RESULT] = source
    c[C.RESULT_NBYTES] = nbytes
    return S.OK
