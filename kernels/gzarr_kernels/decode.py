"""From encoded bytes to a decoded chunk: a short program of operations, run for one chunk.

A program is int64 pairs (operation, decoded size in bytes); sizes come from the caller, never from the bytes.
"""

from __future__ import annotations

from typing import Final

from numba import types

from . import context as C
from . import status as S
from .blosc import blosc_check, blosc_decode
from .jit import part, unit
from .memory import i64, u8, u32
from .place import mark_piece
from .shuffle import unshuffle_block
from .snappy import snappy_decompress
from .symbols import (
    c_memset,
    crc32c,
    deflate_decompress,
    gzip_decompress,
    lz4_decompress,
    zlib_decompress,
    zstd_decompress,
)

ZSTD: Final = 1
GZIP: Final = 2
ZLIB: Final = 3
LZ4: Final = 4
BLOSC: Final = 5
CRC32C: Final = 6
SHUFFLE: Final = 7
SNAPPY: Final = 8
DEFLATE: Final = 9
#: Not decoded here: only staged for a device.
GDEFLATE: Final = 10
#: Words an operation takes: what it is, decoded bytes, its parameter.
WORDS: Final = 3

_ZSTD_TOO_SMALL: Final = -70
_DEFLATE_TOO_SMALL: Final = 3


@part
def _zstd(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Decode one or more zstd frames."""
    zstd = C.zstd_context(context)
    if zstd == 0:
        return S.NO_MEMORY
    got = zstd_decompress(zstd, target, size, source, nbytes)
    if got == size:
        return S.OK
    i64(context)[C.DETAIL] = -1 if got == _ZSTD_TOO_SMALL else got
    return S.WRONG_SIZE if got >= 0 or got == _ZSTD_TOO_SMALL else S.CORRUPT


@part
def _deflate(context: int, what: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Decode one zlib or bare stream, or one or more gzip members.

    Zeros may follow the last member, as Python's gzip allows.
    """
    c = i64(context)
    deflate = C.deflate_context(context)
    if deflate == 0:
        return S.NO_MEMORY
    consumed = context + 8 * C.OUT0
    produced = context + 8 * C.OUT1
    at = 0
    out = 0
    gzip = what == GZIP
    while True:
        if gzip:
            code = gzip_decompress(deflate, source + at, nbytes - at, target + out, size - out, consumed, produced)
        elif what == ZLIB:
            code = zlib_decompress(deflate, source, nbytes, target, size, consumed, produced)
        else:
            code = deflate_decompress(deflate, source, nbytes, target, size, consumed, produced)
        if code != 0:
            c[C.DETAIL] = -1 if code == _DEFLATE_TOO_SMALL else -code
            return S.WRONG_SIZE if code == _DEFLATE_TOO_SMALL else S.CORRUPT
        at += c[C.OUT0]
        out += c[C.OUT1]
        while gzip and at < nbytes and u8(source)[at] == 0:
            at += 1
        if not gzip or at >= nbytes:
            break
    c[C.DETAIL] = out
    return S.OK if out == size else S.WRONG_SIZE


@part
def _lz4(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Decode numcodecs' LZ4: 4 bytes little-endian size, one block."""
    c = i64(context)
    if nbytes < 4:
        c[C.DETAIL] = nbytes
        return S.CORRUPT
    says = int(u32(source)[0])
    if says != size:
        c[C.DETAIL] = says
        return S.WRONG_SIZE
    if size > 0x7FFFFFFF or nbytes - 4 > 0x7FFFFFFF:
        c[C.DETAIL] = size
        return S.CORRUPT
    got = lz4_decompress(source + 4, target, nbytes - 4, size)
    c[C.DETAIL] = got
    return S.OK if got == size else S.CORRUPT


@part
def _snappy(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Decode one snappy stream, which begins with its decoded size."""
    got = snappy_decompress(source, nbytes, target, size)
    i64(context)[C.DETAIL] = got
    if got < 0:
        return S.CORRUPT
    return S.OK if got == size else S.WRONG_SIZE


@unit(types.int64, 12)
def decode_chunk(
    context: int,
    program: int,
    operations: int,
    source: int,
    nbytes: int,
    expected: int,
    direct: int,
    planes: int,
    geometry: int,
    first_piece: int,
    last_piece: int,
    scratch: int,
) -> int:
    """Decode one chunk; the context's RESULT, TYPESIZE and BLOCKSIZE say where and how it lies.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        Encoded bytes.
    expected
        Decoded bytes.
    direct
        Address of ``expected`` bytes of output where the decoded chunk may be written at once, or 0.
    planes
        Item size, if the caller can take shuffled blocks; else 0.
    geometry, first_piece, last_piece
        What will be placed: a Blosc container is decoded only where that needs it. ``last_piece`` 0: everything.
    scratch
        For ``mark_piece``.

    Returns
    -------
    A status; the context's DETAIL says more.
    """
    c = i64(context)
    p = i64(program)
    c[C.TYPESIZE] = 1
    c[C.BLOCKSIZE] = expected
    c[C.DETAIL] = 0
    for o in range(operations):
        what = p[WORDS * o]
        size = p[WORDS * o + 1]
        last = o == operations - 1
        if what == CRC32C:
            if nbytes < 4:
                c[C.DETAIL] = nbytes
                return S.WRONG_SIZE
            nbytes -= 4
            if crc32c(source, nbytes) != u32(source + nbytes)[0]:
                return S.BAD_CHECKSUM
            continue
        slot = C.SECOND if source == c[C.FIRST] else C.FIRST
        if last and direct != 0:
            target = direct
        else:
            target = C.ensure(context, slot, size + 64)
            if target == 0:
                return S.NO_MEMORY
        code = S.OK
        if what == ZSTD:
            code = _zstd(context, source, nbytes, target, size)
        elif what == BLOSC:
            code = blosc_check(context, source, nbytes, size)
            if code == S.OK:
                needed = 0
                blocksize = int(u32(source + 8)[0])
                if last and last_piece > 0 and blocksize < size and size > 0 and u8(source)[2] & 2 == 0:
                    blocks = (size + blocksize - 1) // blocksize
                    needed = C.ensure(context, C.NEEDED, blocks)
                    if needed == 0:
                        return S.NO_MEMORY
                    c_memset(needed, 0, blocks)
                    for piece in range(first_piece, last_piece):
                        mark_piece(geometry, piece, blocksize, needed, scratch)
                code = blosc_decode(context, source, nbytes, target, needed, planes if last and direct == 0 else 0)
        elif what == GZIP or what == ZLIB or what == DEFLATE:
            code = _deflate(context, what, source, nbytes, target, size)
        elif what == SNAPPY:
            code = _snappy(context, source, nbytes, target, size)
        elif what == LZ4:
            code = _lz4(context, source, nbytes, target, size)
        elif what == SHUFFLE:
            typesize = p[WORDS * o + 2]
            if nbytes != size:
                c[C.DETAIL] = nbytes
                return S.WRONG_SIZE
            if last and direct == 0 and planes == typesize and size % typesize == 0:
                c[C.TYPESIZE] = typesize
                c[C.BLOCKSIZE] = size
                target = source
            else:
                unshuffle_block(source, size, target, typesize)
        else:
            code = S.CORRUPT
        if code != S.OK:
            return code
        source = target
        nbytes = size
    if nbytes != expected:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    c[C.RESULT] = source
    c[C.RESULT_NBYTES] = nbytes
    return S.OK
