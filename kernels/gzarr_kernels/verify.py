"""Frames, decoded on the host before a device's decoder sees them: those are undefined on what does not decode.

Each frame is given to the decoder here as it would be given to the one there: the same bytes, to the same size. What it
decodes to is thrown away, and checksums of that are left to the device. Deflate is decoded by zlib itself, since
libdeflate takes symbols that the format does not have. GDeflate has no decoder here, so nothing vouches for it.
"""

from __future__ import annotations

from typing import Final

from numba import types

from . import context as C
from .frames import ALGORITHM, DEFLATE, LZ4, RAW, SNAPPY, SOURCE, SOURCE_NBYTES, TARGET_NBYTES, ZSTD
from .jit import part, unit
from .memory import i64, u8, u32
from .snappy import snappy_decompress
from .symbols import c_memset, inflate, inflate_end, inflate_init, lz4_decompress, zstd_decompress

#: Of sizes that LZ4 takes, and zlib.
_MOST_INT: Final = 0x7FFFFFFF
_MOST_UINT: Final = 0xFFFFFFFF

# zlib's ``z_stream``, with pointers and longs of 8 bytes (``zlib.h``).
_NEXT_IN: Final = 0
_AVAIL_IN: Final = 8
_NEXT_OUT: Final = 24
_AVAIL_OUT: Final = 32
_STREAM_BYTES: Final = 112
#: Behind it, the version that it is for, of which zlib looks at the first character.
_VERSION: Final = 112
_STREAM_AND_VERSION_BYTES: Final = 120
_RAW_WINDOW_BITS: Final = -15
_FINISH: Final = 4
_STREAM_END: Final = 1


@part
def _inflates(context: int, source: int, nbytes: int, target: int, size: int) -> bool:
    """Return whether a deflate stream is all of the source, and decodes to ``size`` bytes."""
    if max(nbytes, size) > _MOST_UINT:
        return False
    stream = C.ensure(context, C.NEEDED, _STREAM_AND_VERSION_BYTES)
    if stream == 0:
        return False
    c_memset(stream, 0, _STREAM_AND_VERSION_BYTES)
    u8(stream + _VERSION)[0] = ord("1")
    if inflate_init(stream, _RAW_WINDOW_BITS, stream + _VERSION, _STREAM_BYTES) != 0:
        return False
    i64(stream + _NEXT_IN)[0] = source
    u32(stream + _AVAIL_IN)[0] = nbytes
    i64(stream + _NEXT_OUT)[0] = target
    u32(stream + _AVAIL_OUT)[0] = size
    code = inflate(stream, _FINISH)
    left = u32(stream + _AVAIL_IN)[0] + u32(stream + _AVAIL_OUT)[0]
    inflate_end(stream)
    return code == _STREAM_END and left == 0


@part
def _decodes(context: int, algorithm: int, source: int, nbytes: int, target: int, size: int) -> bool:
    """Return whether a frame decodes to ``size`` bytes; False too where nothing here could tell."""
    if algorithm == ZSTD:
        zstd = C.zstd_context(context)
        return zstd != 0 and zstd_decompress(zstd, target, size, source, nbytes) == size
    if algorithm == LZ4:
        return max(nbytes, size) <= _MOST_INT and lz4_decompress(source, target, nbytes, size) == size
    if algorithm == SNAPPY:
        return snappy_decompress(source, nbytes, target, size) == size
    if algorithm == DEFLATE:
        return _inflates(context, source, nbytes, target, size)
    return False


@unit(types.int64, 6)
def frames_decode(context: int, staging: int, columns: int, capacity: int, first: int, count: int) -> int:
    """Decode some frames, one after the other, to the worker's scratch.

    Parameters
    ----------
    context
        Address of the worker's context; its buffers FIRST and NEEDED are used.
    staging
        Address that the frames' sources count from.
    columns, capacity
        Of the frames (``frames.py``).
    first, count
        Which of them.

    Returns
    -------
    1 if all decode to what they should; else 0, which is also the answer where memory is out.
    """
    column = i64(columns)
    for f in range(first, first + count):
        algorithm = column[ALGORITHM * capacity + f]
        if algorithm == RAW:
            continue
        size = column[TARGET_NBYTES * capacity + f]
        target = C.ensure(context, C.FIRST, size + 64)
        if target == 0:
            return 0
        source = staging + column[SOURCE * capacity + f]
        if not _decodes(context, algorithm, source, column[SOURCE_NBYTES * capacity + f], target, size):
            return 0
    return 1
