"""Division of containers into frames that can be decoded independently, for a device's batched decoders.

A frame is a piece of compressed bytes and its piece of the decoded chunk. Nothing is decoded here; every length is
checked against the available bytes. Anything that a batched decoder is not known to accept, or to verify, is refused:
the caller then decodes the whole chunk on the host, which reports any error. Errors *within* a block of a frame are
found only by a decoder, and not by every decoder of a device: see ``verify.py``.

This module has the parts common to all formats. The module of each format divides its containers.
"""

from __future__ import annotations

from numba import int64

from .jit import by_address, part
from .memory import i64, u8
from .slots.frames import (
    ALGORITHM,
    CHECK,
    CHUNK,
    EXPECTED,
    GDEFLATE,
    REFUSED,
    SOURCE,
    SOURCE_NBYTES,
    TARGET,
    TARGET_NBYTES,
    UNCHECKED,
)


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
    """Write a frame's row, unless ``columns`` is 0 because frames are only counted."""
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
    """Return a big-endian number of 4 bytes."""
    b = u8(address)
    return int64(b[0]) << 24 | int64(b[1]) << 16 | int64(b[2]) << 8 | int64(b[3])


@part
def bare_frame(
    algorithm: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of a chunk that is only one frame; return 1, or REFUSED."""
    if nbytes < 1 or size < 1:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, algorithm, at, nbytes, 0, size, UNCHECKED, 0)
    return 1


@by_address(9)
def gdeflate_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write one frame of nvCOMP; return 1, or REFUSED."""
    return bare_frame(GDEFLATE, at, nbytes, size, chunk, columns, capacity, frame)
