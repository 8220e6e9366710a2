"""Deflate (RFC 1951) in gzip members (RFC 1952), in zlib streams (RFC 1950), and bare.

libdeflate decodes and encodes. It accepts symbols that are invalid in the format, so zlib itself verifies frames.
"""

from __future__ import annotations

from typing import Final

from numba import int64, types

from . import status as S
from .context import ensure
from .frames import bare_frame, big_endian, put_frame
from .jit import by_address, part
from .memory import i64, u8, u16, u32
from .operations import ALGORITHMS
from .searches import DEFLATE_LEVELS, DEFLATE_WAYS
from .slots import context as C
from .slots.frames import ADLER32, CRC32, DEFLATE, REFUSED
from .symbols import c_memset, external

_i4, _i8, _void = types.int32, types.int64, types.void
deflate_create: Final = external("gzarr_deflate_create", _i8)
deflate_free: Final = external("gzarr_deflate_free", _void, _i8)
#: (context, source, nbytes, target, capacity, address of consumed, address of produced) → 0, or a code.
gzip_decompress: Final = external("gzarr_gzip_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
zlib_decompress: Final = external("gzarr_zlib_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
deflate_decompress: Final = external("gzarr_deflate_decompress", _i4, _i8, _i8, _i8, _i8, _i8, _i8, _i8)
#: (stream, window bits, address of the version, size of the stream structure) → 0, or a code.
inflate_init: Final = external("gzarr_inflate_init", _i4, _i8, _i4, _i8, _i4)
#: (stream, flush) → a code.
inflate: Final = external("gzarr_inflate", _i4, _i8, _i4)
inflate_end: Final = external("gzarr_inflate_end", _i4, _i8)
#: (level) → context, or 0.
deflate_encoder: Final = external("gzarr_deflate_encoder", _i8, _i4)
deflate_encoder_free: Final = external("gzarr_deflate_encoder_free", _void, _i8)
#: (context, source, nbytes, target, capacity) → size, or 0.
gzip_compress: Final = external("gzarr_gzip_compress", _i8, _i8, _i8, _i8, _i8, _i8)
zlib_compress: Final = external("gzarr_zlib_compress", _i8, _i8, _i8, _i8, _i8, _i8)
deflate_compress: Final = external("gzarr_deflate_compress", _i8, _i8, _i8, _i8, _i8, _i8)

# State of a worker: a decoder, an encoder, and the encoder's settings (level and way in one number).
_DECODER: Final = C.own("deflate")
_ENCODER: Final = _DECODER + 1
_SETTING: Final = _DECODER + 2
#: More than the number of ways.
_WAYS: Final = 16
_TOO_SMALL: Final = 3
#: Alignment of the deflate body of a chunk. Streams in Blosc containers are not aligned.
_ALIGNMENT: Final = ALGORITHMS["deflate"].alignment
_MOST_UINT: Final = 0xFFFFFFFF

# zlib's ``z_stream``, with pointers and longs of 8 bytes (``zlib.h``).
_NEXT_IN: Final = 0
_AVAIL_IN: Final = 8
_NEXT_OUT: Final = 24
_AVAIL_OUT: Final = 32
_STREAM_BYTES: Final = 112
#: The required version of zlib, stored after the stream; zlib checks only the first character.
_VERSION: Final = 112
_STREAM_AND_VERSION_BYTES: Final = 120
_RAW_WINDOW_BITS: Final = -15
_FINISH: Final = 4
_STREAM_END: Final = 1


@part
def deflate_context(context: int) -> int:
    """Return the worker's libdeflate decoder, created on first use (0 if out of memory)."""
    c = i64(context)
    if c[_DECODER] == 0:
        c[_DECODER] = deflate_create()
    return c[_DECODER]


@part
def deflate_encoder_context(context: int, level: int) -> int:
    """Return the worker's libdeflate encoder for a level of zlib, 0 to 9 (0 if out of memory).

    The context's ``WAY`` sets its search method.
    """
    c = i64(context)
    setting = level * _WAYS + c[C.WAY]
    if c[_ENCODER] != 0 and c[_SETTING] != setting:
        deflate_encoder_free(c[_ENCODER])
        c[_ENCODER] = 0
    if c[_ENCODER] == 0:
        if c[C.WAY] > 0:
            level = DEFLATE_WAYS[min(max(c[C.WAY] - 1, 0), len(DEFLATE_WAYS) - 1)]
        else:
            level = DEFLATE_LEVELS[min(max(level, 0), len(DEFLATE_LEVELS) - 1)]
        c[_ENCODER] = deflate_encoder(level)
        c[_SETTING] = setting
    return c[_ENCODER]


@by_address(2)
def deflate_release(context: int, keep_bytes: int) -> int:
    """Free the encoder and the decoder if ``keep_bytes`` is negative."""
    c = i64(context)
    if keep_bytes < 0 and c[_ENCODER] != 0:
        deflate_encoder_free(c[_ENCODER])
        c[_ENCODER] = 0
    if keep_bytes < 0 and c[_DECODER] != 0:
        deflate_free(c[_DECODER])
        c[_DECODER] = 0
    return 0


@part
def _end(context: int, code: int, produced: int, size: int) -> int:
    """Return the status for libdeflate's code and the number of bytes produced."""
    c = i64(context)
    if code != 0:
        c[C.DETAIL] = -1 if code == _TOO_SMALL else -code
        return S.WRONG_SIZE if code == _TOO_SMALL else S.CORRUPT
    c[C.DETAIL] = produced
    return S.OK if produced == size else S.WRONG_SIZE


@by_address(6)
def gzip_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode one or more members; zeros may follow the last one, as Python's gzip allows."""
    c = i64(context)
    deflate = deflate_context(context)
    if deflate == 0:
        return S.NO_MEMORY
    consumed = context + 8 * C.OUT0
    produced = context + 8 * C.OUT1
    at = 0
    out = 0
    while True:
        code = gzip_decompress(deflate, source + at, nbytes - at, target + out, size - out, consumed, produced)
        if code != 0:
            break
        at += c[C.OUT0]
        out += c[C.OUT1]
        while at < nbytes and u8(source)[at] == 0:
            at += 1
        if at >= nbytes:
            break
    return _end(context, code, out, size)


@by_address(6)
def zlib_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode one stream."""
    deflate = deflate_context(context)
    if deflate == 0:
        return S.NO_MEMORY
    code = zlib_decompress(deflate, source, nbytes, target, size, context + 8 * C.OUT0, context + 8 * C.OUT1)
    return _end(context, code, i64(context)[C.OUT1], size)


@by_address(6)
def deflate_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode one bare stream."""
    deflate = deflate_context(context)
    if deflate == 0:
        return S.NO_MEMORY
    code = deflate_decompress(deflate, source, nbytes, target, size, context + 8 * C.OUT0, context + 8 * C.OUT1)
    return _end(context, code, i64(context)[C.OUT1], size)


@by_address(6)
def gzip_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write one member; the parameter is zlib's level."""
    deflate = deflate_encoder_context(context, i64(parameters)[0])
    return gzip_compress(deflate, source, nbytes, target, capacity) if deflate != 0 else 0


@by_address(6)
def zlib_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write one stream; the parameter is zlib's level."""
    deflate = deflate_encoder_context(context, i64(parameters)[0])
    return zlib_compress(deflate, source, nbytes, target, capacity) if deflate != 0 else 0


@by_address(6)
def deflate_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write one bare stream; the parameter is zlib's level."""
    deflate = deflate_encoder_context(context, i64(parameters)[0])
    return deflate_compress(deflate, source, nbytes, target, capacity) if deflate != 0 else 0


@by_address(5)
def deflate_verifies(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Return whether the source is one bare stream that decodes to ``size`` bytes."""
    if max(nbytes, size) > _MOST_UINT:
        return 0
    stream = ensure(context, C.NEEDED, _STREAM_AND_VERSION_BYTES)
    if stream == 0:
        return 0
    c_memset(stream, 0, _STREAM_AND_VERSION_BYTES)
    u8(stream + _VERSION)[0] = ord("1")
    if inflate_init(stream, _RAW_WINDOW_BITS, stream + _VERSION, _STREAM_BYTES) != 0:
        return 0
    i64(stream + _NEXT_IN)[0] = source
    u32(stream + _AVAIL_IN)[0] = nbytes
    i64(stream + _NEXT_OUT)[0] = target
    u32(stream + _AVAIL_OUT)[0] = size
    code = inflate(stream, _FINISH)
    left = u32(stream + _AVAIL_IN)[0] + u32(stream + _AVAIL_OUT)[0]
    inflate_end(stream)
    return 1 if code == _STREAM_END and left == 0 else 0


@part
def gzip_body(address: int, nbytes: int) -> int:
    """Return the position of the deflate body in a gzip member, or REFUSED."""
    b = u8(address)
    if nbytes < 20 or b[0] != 0x1F or b[1] != 0x8B or b[2] != 8:
        return REFUSED
    flags = int64(b[3])
    if flags & 0xE0:
        return REFUSED
    at = 10
    if flags & 4:
        at += 2 + int64(u16(address + at)[0])
    for field in range(2):
        # A name, then a comment, each zero-terminated.
        if flags & (8 << field):
            while at < nbytes and b[at] != 0:
                at += 1
            at += 1
    if flags & 2:
        at += 2
    return at if at + 8 < nbytes else REFUSED


@part
def zlib_body(address: int, nbytes: int) -> int:
    """Return the position of the deflate body in a zlib stream, or REFUSED."""
    b = u8(address)
    if nbytes < 8:
        return REFUSED
    first = int64(b[0])
    second = int64(b[1])
    if first & 15 != 8 or first >> 4 > 7 or second & 0x20 or (256 * first + second) % 31:
        return REFUSED
    return 2


@by_address(9)
def gzip_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of one member; return 1, or REFUSED."""
    source = address + at
    begin = gzip_body(source, nbytes)
    if begin < 0 or (at + begin) % _ALIGNMENT:
        return REFUSED
    end = source + nbytes
    # With several members, the size in the last one is not that of the chunk.
    if int64(u32(end - 4)[0]) != size & 0xFFFFFFFF:
        return REFUSED
    expected = int64(u32(end - 8)[0])
    put_frame(columns, capacity, frame, chunk, DEFLATE, at + begin, nbytes - begin - 8, 0, size, CRC32, expected)
    return 1


@by_address(9)
def zlib_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of one stream; return 1, or REFUSED."""
    source = address + at
    begin = zlib_body(source, nbytes)
    if begin < 0 or (at + begin) % _ALIGNMENT:
        return REFUSED
    expected = big_endian(source + nbytes - 4)
    put_frame(columns, capacity, frame, chunk, DEFLATE, at + begin, nbytes - begin - 4, 0, size, ADLER32, expected)
    return 1


@by_address(9)
def deflate_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of one bare stream; return 1, or REFUSED."""
    return bare_frame(DEFLATE, at, nbytes, size, chunk, columns, capacity, frame)
