"""Zstandard: decoding and encoding of frames, and a check of a frame block by block.

Source: RFC 8878.
"""

from __future__ import annotations

from typing import Final

from numba import int64, types

from . import status as S
from .frames import put_frame
from .jit import by_address, part
from .memory import i64, u8, u16, u32
from .searches import DFAST, FAST, ZSTD_WAYS
from .slots import context as C
from .slots.frames import REFUSED, UNCHECKED, ZSTD
from .symbols import external

_i4, _i8 = types.int32, types.int64
zstd_create: Final = external("gzarr_zstd_create", _i8)
zstd_free: Final = external("gzarr_zstd_free", _i8, _i8)
#: (context, target, capacity, source, nbytes) → size, or a negative code.
zstd_decompress: Final = external("gzarr_zstd_decompress", _i8, _i8, _i8, _i8, _i8, _i8)
zstd_encoder: Final = external("gzarr_zstd_encoder", _i8)
zstd_encoder_free: Final = external("gzarr_zstd_encoder_free", _i8, _i8)
zstd_encoder_nbytes: Final = external("gzarr_zstd_encoder_nbytes", _i8, _i8)
#: (context, parameter, value) → 0, or a negative code.
zstd_set: Final = external("gzarr_zstd_set", _i8, _i8, _i4, _i4)
#: (context, target, capacity, source, nbytes) → size, or a negative code.
zstd_compress: Final = external("gzarr_zstd_compress", _i8, _i8, _i8, _i8, _i8, _i8)

# State of a worker: a decoder, an encoder, and the encoder's settings (level, checksum flag and way in one number).
_DECODER: Final = C.own("zstd")
_ENCODER: Final = _DECODER + 1
_SETTING: Final = _DECODER + 2
#: More than the number of ways.
_WAYS: Final = 16
_TOO_SMALL: Final = -70

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_MOST_BLOCK: Final = 128 << 10
_MOST_WINDOW: Final = 1 << 31
#: Types of a zstd block.
_RLE_BLOCK: Final = 1
_COMPRESSED_BLOCK: Final = 2
_RESERVED_BLOCK: Final = 3
#: A compressed block has at least one byte of literals header and one of sequences header.
_LEAST_COMPRESSED_BLOCK: Final = 2
# Parameters of an encoder.
_LEVEL: Final = 100
_CHECKSUM: Final = 201
_WINDOW_LOG: Final = 101
_HASH_LOG: Final = 102
_CHAIN_LOG: Final = 103
_SEARCH_LOG: Final = 104
_MIN_MATCH: Final = 105
_TARGET_LENGTH: Final = 106
_STRATEGY: Final = 107
# Experimental parameters of zstd: compression of literals, rows of tables, and splitting of blocks.
_LITERALS: Final = 1002
_ROWS: Final = 1011
_SPLITTER: Final = 1017

_ON: Final = 1
_NO_SPLITS: Final = 1
_MOST_WINDOW_LOG: Final = 22


@part
def zstd_context(context: int) -> int:
    """Return the worker's zstd decoder, created on first use (0 if out of memory)."""
    c = i64(context)
    if c[_DECODER] == 0:
        c[_DECODER] = zstd_create()
    return c[_DECODER]


@part
def _set(encoder: int, level: int, checksum: int, way: int) -> bool:
    """Apply settings to a new encoder; return whether it accepted them."""
    strategy, window, table, chain, candidates, match, skip, rows, split = ZSTD_WAYS[
        min(max(way - 1, 0), len(ZSTD_WAYS) - 1)
    ]
    fast = strategy == FAST or strategy == DFAST
    # Fast strategies would interpret the target length of levels above 4 as bytes to skip.
    failed = zstd_set(encoder, _LEVEL, min(level, 3) if fast else level) < 0
    failed |= zstd_set(encoder, _CHECKSUM, checksum) < 0
    if way == 0:
        return not failed
    if split == 0:
        # Versions without a splitter do not have this parameter, so failure is ignored.
        zstd_set(encoder, _SPLITTER, _NO_SPLITS)
    if rows > 0:
        zstd_set(encoder, _ROWS, rows)
    failed |= strategy > 0 and zstd_set(encoder, _STRATEGY, strategy) < 0
    failed |= table > 0 and zstd_set(encoder, _HASH_LOG, table) < 0
    failed |= chain > 0 and zstd_set(encoder, _CHAIN_LOG, chain) < 0
    failed |= candidates > 0 and zstd_set(encoder, _SEARCH_LOG, candidates) < 0
    failed |= match > 0 and zstd_set(encoder, _MIN_MATCH, match) < 0
    # If bytes are skipped, zstd does not compress literals unless told to.
    failed |= skip > 0 and zstd_set(encoder, _TARGET_LENGTH, skip) < 0
    failed |= skip > 0 and zstd_set(encoder, _LITERALS, _ON) < 0
    if window == 0 and fast and level > 4:
        # The window of levels 5 to 9.
        window = _MOST_WINDOW_LOG
    failed |= window > 0 and zstd_set(encoder, _WINDOW_LOG, window) < 0
    return not failed


@part
def zstd_encoder_context(context: int, level: int, checksum: int) -> int:
    """Return the worker's zstd encoder for a level, with or without checksums (0 if out of memory).

    The context's ``WAY`` sets its search method.
    """
    c = i64(context)
    setting = (2 * level + checksum) * _WAYS + c[C.WAY]
    if c[_ENCODER] != 0 and c[_SETTING] == setting:
        return c[_ENCODER]
    # An encoder that failed for lack of room accepts no other settings, so a new one is created.
    if c[_ENCODER] != 0:
        zstd_encoder_free(c[_ENCODER])
    c[_ENCODER] = zstd_encoder()
    if c[_ENCODER] == 0:
        return 0
    if not _set(c[_ENCODER], level, checksum, c[C.WAY]):
        zstd_encoder_free(c[_ENCODER])
        c[_ENCODER] = 0
        return 0
    c[_SETTING] = setting
    return c[_ENCODER]


@by_address(2)
def zstd_release(context: int, keep_bytes: int) -> int:
    """Free the encoder if it holds more than ``keep_bytes``; if that is negative, free the decoder too."""
    c = i64(context)
    # At high levels, and for large chunks, its tables take tens of megabytes.
    if c[_ENCODER] != 0 and zstd_encoder_nbytes(c[_ENCODER]) > keep_bytes:
        zstd_encoder_free(c[_ENCODER])
        c[_ENCODER] = 0
    if keep_bytes < 0 and c[_DECODER] != 0:
        zstd_free(c[_DECODER])
        c[_DECODER] = 0
    return 0


@by_address(6)
def zstd_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode one or more frames."""
    zstd = zstd_context(context)
    if zstd == 0:
        return S.NO_MEMORY
    got = zstd_decompress(zstd, target, size, source, nbytes)
    if got == size:
        return S.OK
    i64(context)[C.DETAIL] = -1 if got == _TOO_SMALL else got
    return S.WRONG_SIZE if got >= 0 or got == _TOO_SMALL else S.CORRUPT


@by_address(6)
def zstd_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write one frame; the parameters are its level and whether it has a checksum."""
    p = i64(parameters)
    zstd = zstd_encoder_context(context, p[0], p[1])
    if zstd == 0:
        return 0
    return zstd_compress(zstd, target, capacity, source, nbytes)


@by_address(5)
def zstd_verifies(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Return whether a frame decodes to ``size`` bytes."""
    zstd = zstd_context(context)
    return 1 if zstd != 0 and zstd_decompress(zstd, target, size, source, nbytes) == size else 0


@part
def zstd_frame(context: int, source: int, nbytes: int) -> int:
    """Check the blocks of one zstd frame; return its encoded size, or REFUSED.

    The context's OUT0 is set to the size of its content, or to -1 for a skippable frame.
    """
    c = i64(context)
    b = u8(source)
    if nbytes < 8:
        return REFUSED
    magic = int64(u32(source)[0])
    if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
        end = 8 + int64(u32(source + 4)[0])
        c[C.OUT0] = -1
        return end if end <= nbytes else REFUSED
    if magic != _MAGIC:
        return REFUSED
    descriptor = int64(b[4])
    # Reserved bit, content checksum (no decoder is documented to verify it), dictionary.
    if descriptor & 0x0F:
        return REFUSED
    single = descriptor & 0x20
    size_flag = descriptor >> 6
    at = 5 if single else 6
    if size_flag == 0:
        if single == 0 or at + 1 > nbytes:
            return REFUSED
        content = int64(b[at])
        at += 1
    elif size_flag == 1:
        if at + 2 > nbytes:
            return REFUSED
        content = int64(u16(source + at)[0]) + 256
        at += 2
    elif size_flag == 2:
        if at + 4 > nbytes:
            return REFUSED
        content = int64(u32(source + at)[0])
        at += 4
    else:
        if at + 8 > nbytes:
            return REFUSED
        content = i64(source + at)[0]
        at += 8
    if content < 0:
        return REFUSED
    window = content
    if single == 0:
        base = int64(1) << (10 + (int64(b[5]) >> 3))
        window = base + base // 8 * (int64(b[5]) & 7)
        if window > _MOST_WINDOW:
            return REFUSED
    most = min(window, _MOST_BLOCK)
    # Lower and upper limits of the blocks' decoded bytes.
    least = int64(0)
    largest = int64(0)
    while True:
        if at + 3 > nbytes:
            return REFUSED
        header = int64(b[at]) | int64(b[at + 1]) << 8 | int64(b[at + 2]) << 16
        at += 3
        kind = (header >> 1) & 3
        size = header >> 3
        if kind == _RESERVED_BLOCK or size > most:
            return REFUSED
        if kind == _COMPRESSED_BLOCK:
            if size < _LEAST_COMPRESSED_BLOCK:
                return REFUSED
            largest += most
        else:
            least += size
            largest += size
        at += 1 if kind == _RLE_BLOCK else size
        if at > nbytes:
            return REFUSED
        if header & 1:
            c[C.OUT0] = content
            return at if least <= content <= largest else REFUSED


@by_address(9)
def zstd_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Divide a chunk of consecutive zstd frames; return their number, or REFUSED."""
    c = i64(context)
    done = 0
    target = 0
    count = 0
    while done < nbytes:
        length = zstd_frame(context, address + at + done, nbytes - done)
        if length < 0:
            return REFUSED
        content = c[C.OUT0]
        if content > size - target:
            return REFUSED
        if content > 0:
            put_frame(columns, capacity, frame + count, chunk, ZSTD, at + done, length, target, content, UNCHECKED, 0)
            count += 1
            target += content
        done += length
    return count if target == size else REFUSED
