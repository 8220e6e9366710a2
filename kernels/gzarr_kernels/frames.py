"""Containers, cut into frames that can be decoded by themselves: what a device's batched decoders take.

A frame is a compressed piece and the piece of the decoded chunk that it gives. Nothing is decoded here; every length is
checked against the bytes that there are. What a batched decoder is not known to take, or to verify, is refused:
whoever calls then decodes the whole chunk on the host, which finds out what is wrong with it, if anything is. What is
wrong *within* a block of a frame only a decoder finds, and not every one of a device does: see ``verify.py``.

Here is what the formats share; how each is cut stands in its own module.
"""

from __future__ import annotations

from typing import Final

from numba import int64

from .jit import by_address, part
from .memory import i64, u8
from .operations import ALGORITHMS

# Algorithms of frames: ``operations.py``, and of those that are stored as they are.
RAW: Final = 0
LZ4: Final = ALGORITHMS["lz4"].code
ZSTD: Final = ALGORITHMS["zstd"].code
SNAPPY: Final = ALGORITHMS["snappy"].code
DEFLATE: Final = ALGORITHMS["deflate"].code
GDEFLATE: Final = ALGORITHMS["gdeflate"].code

#: Kinds of checksum of a frame's decoded bytes.
UNCHECKED: Final = 0
CRC32: Final = 1
ADLER32: Final = 2

# The columns of the frames: int64, one a frame, each ``capacity`` long, one after the other.
CHUNK: Final = 0
ALGORITHM: Final = 1
SOURCE: Final = 2
SOURCE_NBYTES: Final = 3
TARGET: Final = 4
TARGET_NBYTES: Final = 5
CHECK: Final = 6
EXPECTED: Final = 7
COLUMNS: Final = 8

#: What is no container that a device takes.
REFUSED: Final = -1


@part
def put_frame(
    columns: int,
    capacity: int,
    frame: int,
    chunk: int,
    algorithm: int,
    source: int,
    source_nbytes: int,
    target: int,
    target_nbytes: int,
    check: int,
    expected: int,
) -> None:
    """Write a frame's row; ``columns`` is 0 where frames are only counted."""
    if columns == 0:
        return
    c = i64(columns)
    c[CHUNK * capacity + frame] = chunk
    c[ALGORITHM * capacity + frame] = algorithm
    c[SOURCE * capacity + frame] = source
    c[SOURCE_NBYTES * capacity + frame] = source_nbytes
    c[TARGET * capacity + frame] = target
    c[TARGET_NBYTES * capacity + frame] = target_nbytes
    c[CHECK * capacity + frame] = check
    c[EXPECTED * capacity + frame] = expected


@part
def big_endian(address: int) -> int:
    """Return a number of 4 bytes."""
    b = u8(address)
    return int64(b[0]) << 24 | int64(b[1]) << 16 | int64(b[2]) << 8 | int64(b[3])


@part
def bare_frame(
    algorithm: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Take a chunk that is one frame and nothing else; return 1, or REFUSED."""
    if nbytes < 1 or size < 1:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, algorithm, at, nbytes, 0, size, UNCHECKED, 0)
    return 1


@by_address(9)
def gdeflate_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Take one frame of nvCOMP; return 1, or REFUSED."""
    return bare_frame(GDEFLATE, at, nbytes, size, chunk, columns, capacity, frame)
