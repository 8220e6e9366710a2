"""Encoder for Blosc 1 containers, with the block sizes, splits and streams of c-blosc, and with reused contexts.

The format is described in ``blosc.py``. Source: c-blosc, ``blosc/blosc.c`` (``compute_blocksize``, ``split_block``,
``blosc_c``, ``write_compression_header``).
"""

from __future__ import annotations

from typing import Final

from numba import types

from .context import ensure
from .deflate import deflate_encoder_context, zlib_compress
from .deinterleave import shuffle_block, to_bit_planes
from .jit import part, unit
from .lz4 import lz4_block
from .memory import copy, i32, u8, u32
from .slots import context as C
from .symbols import external
from .zstd import zstd_compress, zstd_encoder_context

_i4, _i8 = types.int32, types.int64
lz4hc_state_nbytes: Final = external("gzarr_lz4hc_state_nbytes", _i4)
#: (state, source, target, nbytes, capacity, level) → size, or 0.
lz4hc_compress: Final = external("gzarr_lz4hc_compress", _i4, _i8, _i8, _i8, _i4, _i4, _i4)
#: (level, source, nbytes, target, capacity, split) → size, or 0.
blosclz_compress: Final = external("gzarr_blosclz_compress", _i4, _i4, _i8, _i4, _i8, _i4, _i4)

HEADER_BYTES: Final = 16
BLOSCLZ: Final = 0
LZ4: Final = 1
LZ4HC: Final = 2
ZLIB: Final = 4
ZSTD: Final = 5
NO_SHUFFLE: Final = 0
BYTE_SHUFFLE: Final = 1
BIT_SHUFFLE: Final = 2
#: Most bytes in one container.
MAX_BYTES: Final = 2**31 - 1 - HEADER_BYTES

_FORMAT: Final = 2
_MEMCPYED: Final = 0x02
_DONT_SPLIT: Final = 0x10
_MAX_SPLIT_TYPESIZE: Final = 16
_MIN_BUFFER: Final = 128
_L1: Final = 32 << 10


@part
def _splits(compressor: int, typesize: int, blocksize: int) -> bool:
    return compressor != ZSTD and typesize <= _MAX_SPLIT_TYPESIZE and blocksize // typesize >= _MIN_BUFFER


@part
def block_nbytes(compressor: int, level: int, typesize: int, nbytes: int, forced: int) -> int:
    """Return the block size that c-blosc chooses."""
    if nbytes < typesize:
        return 1
    size = nbytes
    if forced > 0:
        size = max(forced, _MIN_BUFFER)
    elif nbytes >= _L1:
        size = _L1
        # These compressors need larger blocks.
        high = compressor == LZ4HC or compressor == ZLIB or compressor == ZSTD
        if high:
            size *= 2
        if level == 0:
            size //= 4
        elif level == 1:
            size //= 2
        elif level == 3:
            size *= 2
        elif level == 4 or level == 5:
            size *= 4
        elif level >= 6:
            size *= 8
            if level == 9 and high:
                size *= 2
    if level > 0 and _splits(compressor, typesize, size):
        size = min(size, 1 << 18)
        size = min(max(size * typesize, 1 << 16), 1 << 20)
    size = min(size, nbytes)
    if size > typesize:
        size = size // typesize * typesize
    return size


@part
def _stream(
    context: int, compressor: int, level: int, source: int, nbytes: int, target: int, capacity: int, split: int
) -> int:
    """Compress one stream; return its size, 0 if it does not fit ``capacity``, below 0 if out of memory."""
    if compressor == LZ4:
        return lz4_block(context, source, nbytes, target, capacity, 10 - level)
    if compressor == ZSTD:
        zstd = zstd_encoder_context(context, 22 if level == 9 else 2 * level - 1, 0)
        if zstd == 0:
            return -1
        return max(zstd_compress(zstd, target, capacity, source, nbytes), 0)
    if compressor == LZ4HC:
        state = ensure(context, C.NEEDED, lz4hc_state_nbytes())
        if state == 0:
            return -1
        return max(lz4hc_compress(state, source, target, nbytes, capacity, level), 0)
    if compressor == ZLIB:
        deflate = deflate_encoder_context(context, level)
        if deflate == 0:
            return -1
        return zlib_compress(deflate, source, nbytes, target, capacity)
    return max(blosclz_compress(level, source, nbytes, target, capacity, split), 0)


@part
def _block(
    context: int,
    compressor: int,
    level: int,
    shuffle: int,
    typesize: int,
    streams: int,
    split: int,
    source: int,
    nbytes: int,
    target: int,
    room: int,
) -> int:
    """Shuffle and compress one block; return its size, 0 if it does not fit ``room``, below 0 if out of memory."""
    if shuffle != NO_SHUFFLE and nbytes >= typesize:
        scratch = ensure(context, C.BLOCKS, 2 * nbytes + 64)
        if scratch == 0:
            return -1
        elements = nbytes // typesize
        if shuffle == BYTE_SHUFFLE and typesize > 1:
            shuffle_block(source, nbytes, scratch, typesize)
            source = scratch
        # Blosc 1 does not shuffle a block whose number of elements is not a multiple of 8.
        elif shuffle == BIT_SHUFFLE and elements % 8 == 0:
            planes = source
            if typesize > 1:
                planes = scratch + nbytes
                shuffle_block(source, nbytes, planes, typesize)
            to_bit_planes(planes, elements, scratch, typesize)
            whole = elements * typesize
            if whole < nbytes:
                copy(scratch + whole, source + whole, nbytes - whole)
            source = scratch
    part_nbytes = nbytes // streams
    at = 0
    for s in range(streams):
        capacity = min(part_nbytes, room - at - 4)
        if capacity <= 0:
            return 0
        stream = source + s * part_nbytes
        size = _stream(context, compressor, level, stream, part_nbytes, target + at + 4, capacity, split)
        if size < 0:
            return -1
        if size == 0 or size >= part_nbytes:
            if capacity < part_nbytes:
                return 0
            copy(target + at + 4, stream, part_nbytes)
            size = part_nbytes
        i32(target + at)[0] = size
        at += 4 + size
    return at


@unit(types.int64, 9)
def blosc_write(
    context: int,
    source: int,
    nbytes: int,
    target: int,
    compressor: int,
    level: int,
    shuffle: int,
    typesize: int,
    forced: int,
) -> int:
    """Write one container; return its size, or 0 if out of memory.

    Parameters
    ----------
    context
        Address of a worker's context.
    source, nbytes
        Address and size of the data, at most ``MAX_BYTES``.
    target
        Address of a buffer of ``nbytes + HEADER_BYTES`` bytes.
    compressor, shuffle
        One of the compressors and of the shuffles above.
    level
        Compression level, 0 to 9.
    typesize
        Element size in bytes, 1 to 255.
    forced
        Block size in bytes, or 0 for c-blosc's choice.
    """
    blocksize = block_nbytes(compressor, level, typesize, nbytes, forced)
    split = _splits(compressor, typesize, blocksize)
    # LZ4HC writes LZ4's format, so formats have no number for it.
    flags = (compressor if compressor < LZ4HC else compressor - 1) << 5
    if shuffle == BYTE_SHUFFLE:
        flags |= 0x01
    elif shuffle == BIT_SHUFFLE:
        flags |= 0x04
    if not split:
        flags |= _DONT_SPLIT
    size = 0
    if level > 0 and nbytes >= _MIN_BUFFER:
        blocks = (nbytes + blocksize - 1) // blocksize
        size = HEADER_BYTES + 4 * blocks
        room = nbytes + HEADER_BYTES
        for b in range(blocks):
            here = min(blocksize, nbytes - b * blocksize)
            if size >= room:
                size = 0
                break
            i32(target + HEADER_BYTES)[b] = size
            streams = typesize if split and here == blocksize else 1
            written = _block(
                context,
                compressor,
                level,
                shuffle,
                typesize,
                streams,
                1 if split else 0,
                source + b * blocksize,
                here,
                target + size,
                room - size,
            )
            if written < 0:
                return 0
            if written == 0:
                size = 0
                break
            size += written
    if size == 0:
        # Incompressible: store a copy.
        flags |= _MEMCPYED
        copy(target + HEADER_BYTES, source, nbytes)
        size = nbytes + HEADER_BYTES
    header = u8(target)
    header[0] = _FORMAT
    header[1] = 1
    header[2] = flags
    header[3] = typesize
    u32(target + 4)[0] = nbytes
    u32(target + 8)[0] = blocksize
    u32(target + 12)[0] = size
    return size
