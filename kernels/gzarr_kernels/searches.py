"""Methods by which compressors search for repetitions (*ways*), each with a number.

0 is the default method of the level; numbers from 1 are positions in the tables here. The format of the result is
always the same, and any decoder reads it.
"""

from __future__ import annotations

from typing import Final

FAST: Final = 1
DFAST: Final = 2
LAZY: Final = 4
_ON: Final = 1
_OFF: Final = 2

#: Ways for zstd: strategy; log2 of the window in bytes, of the entries of its table, of its second table and of the
#: candidates compared; least bytes of a match; bytes skipped if there is none; whether tables have rows (0: zstd's
#: choice); and whether blocks may be split where their statistics change. 0 leaves a setting to the level.
ZSTD_WAYS: Final = (
    (0, 0, 0, 0, 0, 0, 0, 0, 0),
    (FAST, 0, 16, 0, 0, 5, 2, 0, 1),
    (FAST, 18, 16, 0, 0, 6, 0, 0, 1),
    (FAST, 18, 16, 0, 0, 5, 0, 0, 1),
    (FAST, 18, 17, 0, 0, 5, 0, 0, 1),
    (FAST, 0, 16, 0, 0, 5, 2, 0, 0),
    (FAST, 0, 16, 0, 0, 6, 0, 0, 1),
    (FAST, 0, 16, 0, 0, 5, 0, 0, 1),
    (FAST, 0, 17, 0, 0, 5, 0, 0, 1),
    (FAST, 0, 16, 0, 0, 4, 0, 0, 1),
    (DFAST, 0, 16, 15, 0, 5, 0, 0, 1),
    (LAZY, 0, 17, 0, 5, 6, 0, _OFF, 0),
    (LAZY, 0, 17, 0, 5, 6, 0, _ON, 0),
    (LAZY, 0, 0, 0, 5, 6, 0, _ON, 0),
)
#: The level's default method without splitting blocks, as in versions of zstd before 1.5.7.
ZSTD_UNSPLIT: Final = 1
#: Ways from fastest to slowest, roughly: it also depends on the data. Fast ways find nearly all repetitions in measured
#: numbers, whose bytes are mostly noise; lazy ways find those in labels. First for frames of up to
#: ``SMALL_FRAME_BYTES``, then for larger ones: zstd 1.5.7 searches faster with a window of less than 512 KiB.
ZSTD_FAST: Final = ((2, 3, 4, 5, 8, 10, 11), (6, 7, 8, 9, 10, 11))
ZSTD_LAZY: Final = ((12, 13), (14,))
SMALL_FRAME_BYTES: Final = 1 << 20

#: For each level of zlib, the fastest level of libdeflate that compresses as well, or nearly so.
DEFLATE_LEVELS: Final = (0, 3, 5, 5, 5, 5, 7, 8, 9, 9)
#: Ways for libdeflate: its levels, fastest first.
DEFLATE_WAYS: Final = (1, 3)
#: The way for LZ4: ``lz4_encode.py``.
LZ4_LONG: Final = 1
