"""How compressors may search for repetitions: as their level says, or otherwise. Each way has a number.

0 is the own way of the level; 1 and more count from the front of the tables here. Whatever the way, the result has
the same format, and any decoder reads it.
"""

from __future__ import annotations

from typing import Final

FAST: Final = 1
DFAST: Final = 2
LAZY: Final = 4
_ON: Final = 1
_OFF: Final = 2

#: Ways for zstd: strategy, log2 of the bytes it looks back, of the entries of its table, of its second table and of the
#: candidates that are compared, least bytes of a match, bytes skipped where none is found, whether tables have rows
#: (0: as zstd likes), and whether blocks may be split where their statistics change. 0 leaves a setting to the level.
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
#: The level's own way without the splitting of blocks, as versions of zstd before 1.5.7 had it.
ZSTD_UNSPLIT: Final = 1
#: The fastest first, as far as that can be said: it depends on the data too. Fast ways find nearly all that there is in
#: measured numbers, whose bytes are mostly noise; lazy ones what there is in labels. For frames of up to a megabyte,
#: and for larger ones: zstd 1.5.7 searches faster where it looks back less than 512 KiB.
ZSTD_FAST: Final = ((2, 3, 4, 5, 8, 10, 11), (6, 7, 8, 9, 10, 11))
ZSTD_LAZY: Final = ((12, 13), (14,))
SMALL_FRAME_BYTES: Final = 1 << 20

#: For each of zlib's levels the fastest of libdeflate's that compresses as well, or nearly so.
DEFLATE_LEVELS: Final = (0, 3, 5, 5, 5, 5, 7, 8, 9, 9)
#: Ways for libdeflate: its levels, the fastest first.
DEFLATE_WAYS: Final = (1, 3)
#: The way for LZ4: ``lz4_encode.py``.
LZ4_LONG: Final = 1
