"""Frames of chunks in staging memory, as int64 columns that compiled code takes by address."""

from __future__ import annotations

from typing import Final

from ..operations import ALGORITHMS

# Algorithms of frames (``operations.py``); RAW frames are not compressed.
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

# Columns of the frames: int64, one entry per frame. Each column has ``capacity`` entries; they follow each other.
CHUNK: Final = 0
ALGORITHM: Final = 1
SOURCE: Final = 2
SOURCE_NBYTES: Final = 3
TARGET: Final = 4
TARGET_NBYTES: Final = 5
CHECK: Final = 6
EXPECTED: Final = 7
COLUMNS: Final = 8

#: Result for a container that a device does not take.
REFUSED: Final = -1
