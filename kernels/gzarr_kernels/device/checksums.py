"""Checksums of decoded frames: CRC-32, CRC-32C and Adler-32, compared with those of the container.

A block takes a frame, and each of its threads a slice. The remainder of a message is linear: the remainder of a slice,
multiplied by ``x`` to the power of the number of bits after it, is the slice's part of the whole, and the parts add up
without carry. The initial register value is one more part. Adler's two sums are combined in the same way. Sources:
RFC 1952, section 8 (CRC-32); RFC 3720, appendix B.4 (CRC-32C); RFC 1950, section 8.2 (Adler-32).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .addressing import get, get_byte, quotient
from .language import cuda, int64, uint32, uint64
from .target import THREADS, blocks, body, kernel

if TYPE_CHECKING:
    from .addressing import Bytes, Column, Statuses

__all__ = ["ADLER32", "CRC32", "CRC32C", "THREADS", "blocks", "checksums"]

#: Kinds of checksums.
CRC32: Final = 1
ADLER32: Final = 2
CRC32C: Final = 3

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of frames.
FRAMES: Final = 0
#: Columns (F,): byte offset of each frame, its size in bytes, its expected checksum, and the kind of checksum.
SOURCE: Final = 1
NBYTES: Final = 2
EXPECTED: Final = 3
KIND: Final = 4
#: Index in ``statuses`` of the first frame's status: 0 if it has the expected checksum, else 1.
STATUS_BASE: Final = 5
#: Number of words of the header.
SIZE: Final = 6

#: Adler's modulus, the largest prime below 2**16.
_MODULUS: Final = 65521
#: Bytes after which Adler's sums are reduced, long before 64 bits overflow.
_REDUCE: Final = 1 << 20
#: The polynomials, with the lowest power in the highest bit, like all values here.
_POLYNOMIAL: Final = 0xEDB88320
_POLYNOMIAL_C: Final = 0x82F63B78
_BITS: Final = 64


def _powers(polynomial: int) -> list[int]:
    """Return ``x`` to the power of ``8 * 2**k`` modulo a polynomial, for each ``k``."""
    power = 1 << (31 - 8)
    powers = []
    for _ in range(_BITS):
        powers.append(power)
        square = 0
        shifted = power
        for bit in range(31, -1, -1):
            if power >> bit & 1:
                square ^= shifted
            shifted = shifted >> 1 ^ (polynomial if shifted & 1 else 0)
        power = square
    return powers


#: Powers for both polynomials, one after the other.
_POWERS = np.array(_powers(_POLYNOMIAL) + _powers(_POLYNOMIAL_C), np.uint32)


@body
def _table_entry(i: int) -> Any:
    """Return entry ``i`` of the two tables of 256 remainders."""
    polynomial = uint64(_POLYNOMIAL if i < 256 else _POLYNOMIAL_C)
    value = uint64(i & 255)
    for _ in range(8):
        value = value >> uint64(1) ^ (polynomial if value & uint64(1) else uint64(0))
    return value


@body
def _times(a: Any, b: Any, polynomial: Any) -> Any:
    """Multiply two remainders."""
    product = uint64(0)
    for bit in range(31, -1, -1):
        if a >> uint64(bit) & uint64(1):
            product ^= b
        b = b >> uint64(1) ^ (polynomial if b & uint64(1) else uint64(0))
    return product


@body
def _behind(value: Any, nbytes: int, second: bool) -> Any:
    """Return the remainder of a message that ends in ``nbytes`` zeros, from the remainder of the rest."""
    polynomial = uint64(_POLYNOMIAL_C if second else _POLYNOMIAL)
    power = _BITS if second else 0
    while nbytes > 0:
        if nbytes & 1:
            value = _times(value, uint64(_POWERS[power]), polynomial)
        nbytes >>= 1
        power += 1
    return value


@body
def _fill_tables(crc_tables: Any, thread: int, threads: int) -> None:
    """Write a thread's part of the two tables."""
    i = thread
    while i < 512:
        crc_tables[i] = _table_entry(i)
        i += threads


@body
def _crc_part(
    arena: Bytes, columns: Column, crc_tables: Any, source: int, nbytes: int, second: bool, thread: int, threads: int
) -> Any:
    """Return a thread's part of the remainder of a frame."""
    slice_nbytes = (quotient(nbytes, threads) + 8) & -8
    begin = min(thread * slice_nbytes, nbytes)
    end = min(begin + slice_nbytes, nbytes)
    table = 256 if second else 0
    value = uint64(0)
    i = begin
    if source & 7 == 0:
        while i + 8 <= end:
            word = uint64(columns[uint64((source + i) >> 3)])
            for _ in range(8):
                index = int64((value ^ word) & uint64(255)) + table
                value = value >> uint64(8) ^ uint64(crc_tables[uint64(index)])
                word >>= uint64(8)
            i += 8
    while i < end:
        index = int64((value ^ get_byte(arena, source + i)) & uint64(255)) + table
        value = value >> uint64(8) ^ uint64(crc_tables[uint64(index)])
        i += 1
    part = _behind(value, nbytes - end, second) if value else value
    if thread == 0:
        part ^= _behind(uint64(0xFFFFFFFF), nbytes, second)
    return int64(part)


@body
def _adler_part(arena: Bytes, source: int, nbytes: int, thread: int, threads: int) -> tuple[int, int]:
    """Return a thread's part of the two sums of a frame, each below the modulus."""
    slice_nbytes = quotient(nbytes, threads) + 1
    begin = min(thread * slice_nbytes, nbytes)
    end = min(begin + slice_nbytes, nbytes)
    low = 1 if thread == 0 else 0
    # The low sum begins with 1, which is added to the high sum for every byte of the frame.
    high = nbytes % _MODULUS if thread == 0 else 0
    total = 0
    weighted = 0
    i = begin
    while i < end:
        stop = min(i + _REDUCE, end)
        while i < stop:
            total += int64(arena[uint64(source + i)])
            weighted += total
            i += 1
        total %= _MODULUS
        weighted %= _MODULUS
    high = (high + weighted + total * ((nbytes - end) % _MODULUS)) % _MODULUS
    return low + total, high


@body
def _verdict(expected: int, kind: int, low: int, high: int) -> int:
    """Return 0 if the combined parts of all threads are ``expected``, else 1."""
    found = -1
    if kind == CRC32 or kind == CRC32C:
        found = low ^ 0xFFFFFFFF
    elif kind == ADLER32:
        found = (high % _MODULUS) << 16 | low % _MODULUS
    return 0 if found == expected else 1


@kernel
def checksums(arena: Bytes, columns: Column, statuses: Statuses, job: int) -> None:
    """Compare the checksums of frames, one block per frame.

    Launched with ``blocks(frames)`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    statuses
        int32, output: statuses of frames.
    job
        Index of the header in ``columns``.
    """
    crc_tables = cuda.shared.array(512, uint32)
    sums = cuda.shared.array(2, int64)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    _fill_tables(crc_tables, thread, threads)
    frames = get(columns, job + FRAMES)
    frame = cuda.blockIdx.x
    while frame < frames:
        if thread == 0:
            sums[0] = 0
            sums[1] = 0
        cuda.syncthreads()
        source = get(columns, get(columns, job + SOURCE) + frame)
        nbytes = get(columns, get(columns, job + NBYTES) + frame)
        kind = get(columns, get(columns, job + KIND) + frame)
        if kind == ADLER32:
            low, high = _adler_part(arena, source, nbytes, thread, threads)
            cuda.atomic.add(sums, 0, low)
            cuda.atomic.add(sums, 1, high)
        else:
            part = _crc_part(arena, columns, crc_tables, source, nbytes, kind == CRC32C, thread, threads)
            cuda.atomic.xor(sums, 0, part)
        cuda.syncthreads()
        if thread == 0:
            expected = get(columns, get(columns, job + EXPECTED) + frame)
            status = get(columns, job + STATUS_BASE) + frame
            statuses[status] = _verdict(expected, kind, sums[0], sums[1])
        cuda.syncthreads()
        frame += cuda.gridDim.x
