"""Parts of containers other than frames: sizes, and checksums, which are computed here.

:mod:`copies` copies the frames themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .addressing import get
from .checksums import ADLER32, CRC32C, _adler_part, _crc_part, _fill_tables
from .language import cuda, int64, uint32, uint64
from .target import THREADS, body, kernel
from .target import blocks as _blocks

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "number_blocks", "put_checksums", "put_numbers"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Count of numbers or checksums.
COUNT: Final = 0
#: Column (N,): byte offset of the 4 bytes of each.
TARGET: Final = 1
#: Column (N,), for numbers: an int32 or uint32.
VALUE: Final = 2
#: Columns (N,), for checksums: byte offset and size in bytes of the data, and the kind of checksum.
SOURCE: Final = 2
NBYTES: Final = 3
KIND: Final = 4
#: Number of words of the header.
SIZE: Final = 5

_BYTES: Final = 4
#: As in ``checksums``.
_MODULUS: Final = 65521


def number_blocks(count: int) -> int:
    """Return the number of blocks of ``THREADS`` to launch for ``count`` numbers."""
    return _blocks(-(-count // THREADS))


@body
def _put(arena: Bytes, target: int, value: Any, big: bool) -> None:
    """Write a uint64's low four bytes, little-endian, or big-endian if ``big``."""
    for b in range(_BYTES):
        shift = 8 * (_BYTES - 1 - b) if big else 8 * b
        arena[uint64(target + b)] = value >> uint64(shift) & uint64(255)


@body
def _put_numbers(arena: Bytes, columns: Column, job: int, first: int, step: int) -> None:
    """Write every ``step``-th number."""
    i = first
    while i < get(columns, job + COUNT):
        value = uint64(get(columns, get(columns, job + VALUE) + i))
        _put(arena, get(columns, get(columns, job + TARGET) + i), value, False)
        i += step


@body
def _put_sum(arena: Bytes, target: int, kind: int, low: int, high: int) -> None:
    """Write a checksum, combined from the parts of all threads, in the byte order of its container."""
    if kind == ADLER32:
        _put(arena, target, uint64((high % _MODULUS) << 16 | low % _MODULUS), True)
    else:
        _put(arena, target, uint64(low ^ 0xFFFFFFFF), False)


@kernel
def put_numbers(arena: Bytes, columns: Column, job: int) -> None:
    """Write numbers of four bytes, little-endian.

    Launched with ``number_blocks(count)`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _put_numbers(arena, columns, job, cuda.grid(1), cuda.gridsize(1))


@kernel
def put_checksums(arena: Bytes, columns: Column, job: int) -> None:
    """Compute checksums, one per block, and write them: CRC-32 and CRC-32C little-endian, Adler-32 big-endian.

    Launched with ``checksums.blocks(count)`` blocks of ``THREADS``. The data and the checksums must not overlap.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    crc_tables = cuda.shared.array(512, uint32)
    sums = cuda.shared.array(2, int64)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    _fill_tables(crc_tables, thread, threads)
    count = get(columns, job + COUNT)
    i = cuda.blockIdx.x
    while i < count:
        if thread == 0:
            sums[0] = 0
            sums[1] = 0
        cuda.syncthreads()
        source = get(columns, get(columns, job + SOURCE) + i)
        nbytes = get(columns, get(columns, job + NBYTES) + i)
        kind = get(columns, get(columns, job + KIND) + i)
        if kind == ADLER32:
            low, high = _adler_part(arena, source, nbytes, thread, threads)
            cuda.atomic.add(sums, 0, low)
            cuda.atomic.add(sums, 1, high)
        else:
            part = _crc_part(arena, columns, crc_tables, source, nbytes, kind == CRC32C, thread, threads)
            cuda.atomic.xor(sums, 0, part)
        cuda.syncthreads()
        if thread == 0:
            target = get(columns, get(columns, job + TARGET) + i)
            _put_sum(arena, target, kind, sums[0], sums[1])
        cuda.syncthreads()
        i += cuda.gridDim.x
