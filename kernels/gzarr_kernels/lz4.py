"""LZ4 blocks after 4 bytes of little-endian size, the format of numcodecs.

Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
"""

from __future__ import annotations

from typing import Final

from numba import int64, types

from . import status as S
from .context import ensure
from .frames import put_frame
from .jit import by_address, part
from .lz4_encode import lz4_encode as encode_long_matches
from .lz4_encode import workspace_nbytes
from .memory import i64, u32
from .slots import context as C
from .slots.frames import LZ4, REFUSED, UNCHECKED
from .symbols import external

_i4, _i8 = types.int32, types.int64
#: (source, target, nbytes, capacity) → size, or a negative number.
lz4_decompress: Final = external("gzarr_lz4_decompress", _i4, _i8, _i8, _i4, _i4)
#: (source, target, nbytes, capacity, acceleration) → size, or 0.
lz4_compress: Final = external("gzarr_lz4_compress", _i4, _i8, _i8, _i4, _i4, _i4)

#: Largest size that LZ4 takes.
_MOST_INT: Final = 0x7FFFFFFF


@part
def lz4_block(context: int, source: int, nbytes: int, target: int, capacity: int, acceleration: int) -> int:
    """Write one LZ4 block by the method in ``WAY``; return its size, 0 if it does not fit, below 0 if out of memory.

    Up to 16 bytes after the target may be overwritten.
    """
    c = i64(context)
    if c[C.WAY] == 0:
        return max(lz4_compress(source, target, nbytes, capacity, acceleration), 0)
    workspace = ensure(context, C.NEEDED, workspace_nbytes(nbytes))
    return encode_long_matches(workspace, source, nbytes, target, capacity) if workspace != 0 else -1


@by_address(6)
def lz4_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode the size and one block."""
    c = i64(context)
    if nbytes < 4:
        c[C.DETAIL] = nbytes
        return S.CORRUPT
    says = int(u32(source)[0])
    if says != size:
        c[C.DETAIL] = says
        return S.WRONG_SIZE
    if size > _MOST_INT or nbytes - 4 > _MOST_INT:
        c[C.DETAIL] = size
        return S.CORRUPT
    got = lz4_decompress(source + 4, target, nbytes - 4, size)
    c[C.DETAIL] = got
    return S.OK if got == size else S.CORRUPT


@by_address(6)
def lz4_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write the size and one block; the parameter is the acceleration."""
    u32(target)[0] = nbytes
    size = lz4_block(context, source, nbytes, target + 4, capacity - 4, i64(parameters)[0])
    return size + 4 if size > 0 else 0


@by_address(5)
def lz4_verifies(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Return whether a block decodes to ``size`` bytes."""
    return 1 if max(nbytes, size) <= _MOST_INT and lz4_decompress(source, target, nbytes, size) == size else 0


@by_address(9)
def lz4_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of numcodecs' LZ4 (4 bytes of size, one block); return 1, or REFUSED."""
    if nbytes < 5 or int64(u32(address + at)[0]) != size:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, LZ4, at + 4, nbytes - 4, 0, size, UNCHECKED, 0)
    return 1
