"""CRC-32C checksums, stored little-endian after the bytes that they cover."""

from __future__ import annotations

from numba import types

from . import status as S
from .jit import by_address
from .memory import i64, u32
from .slots import context as C
from .symbols import external

crc32c = external("gzarr_crc32c", types.uint32, types.int64, types.int64)


@by_address(6)
def crc32c_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Verify the checksum in the last four bytes and drop it."""
    c = i64(context)
    if nbytes < 4:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    nbytes -= 4
    if crc32c(source, nbytes) != u32(source + nbytes)[0]:
        return S.BAD_CHECKSUM
    c[C.RESULT_NBYTES] = nbytes
    return S.OK


@by_address(6)
def crc32c_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Append the checksum to the bytes."""
    u32(source + nbytes)[0] = crc32c(source, nbytes)
    return nbytes + 4
