"""How compressors may search for repetitions: as their level says, or otherwise. Each way has a number.

0 is the own way of the level; 1 and more count from the front of the tables here. Whatever the way, the result has
the same format, and any decoder reads it.
"""

from __future__ import annotations

from typing import Final

from .jit import part
from .symbols import zstd_set

_LEVEL: Final = 100
_CHECKSUM: Final = 201
_WINDOW_LOG: Final = 101
_HASH_LOG: Final = 102
_CHAIN_LOG: Final = 103
_SEARCH_LOG: Final = 104
_MIN_MATCH: Final = 105
_TARGET_LENGTH: Final = 106
_STRATEGY: Final = 107
# Of zstd's experimental parameters: what to do with literals, with rows of tables, and where to split blocks.
_LITERALS: Final = 1002
_ROWS: Final = 1011
_SPLITTER: Final = 1017

_FAST: Final = 1
_DFAST: Final = 2
_LAZY: Final = 4
_ON: Final = 1
_OFF: Final = 2
_NO_SPLITS: Final = 1
_MOST_WINDOW_LOG: Final = 22

#: Ways for zstd: strategy, log2 of the bytes it looks back, of the entries of its table, of its second table and of the
#: candidates that are compared, least bytes of a match, bytes skipped where none is found, whether tables have rows
#: (0: as zstd likes), and whether blocks may be split where their statistics change. 0 leaves a setting to the level.
ZSTD_WAYS: Final = (
    (0, 0, 0, 0, 0, 0, 0, 0, 0),
    (_FAST, 0, 16, 0, 0, 5, 2, 0, 1),
    (_FAST, 18, 16, 0, 0, 6, 0, 0, 1),
    (_FAST, 18, 16, 0, 0, 5, 0, 0, 1),
    (_FAST, 18, 17, 0, 0, 5, 0, 0, 1),
    (_FAST, 0, 16, 0, 0, 5, 2, 0, 0),
    (_FAST, 0, 16, 0, 0, 6, 0, 0, 1),
    (_FAST, 0, 16, 0, 0, 5, 0, 0, 1),
    (_FAST, 0, 17, 0, 0, 5, 0, 0, 1),
    (_FAST, 0, 16, 0, 0, 4, 0, 0, 1),
    (_DFAST, 0, 16, 15, 0, 5, 0, 0, 1),
    (_LAZY, 0, 17, 0, 5, 6, 0, _OFF, 0),
    (_LAZY, 0, 17, 0, 5, 6, 0, _ON, 0),
    (_LAZY, 0, 0, 0, 5, 6, 0, _ON, 0),
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


@part
def set_zstd(encoder: int, level: int, checksum: int, way: int) -> bool:
    """Set a new encoder; return whether it took the settings."""
    strategy, window, table, chain, candidates, match, skip, rows, split = ZSTD_WAYS[max(way - 1, 0)]
    fast = strategy == _FAST or strategy == _DFAST
    # Fast strategies would take the target length of levels above 4 for bytes to skip.
    failed = zstd_set(encoder, _LEVEL, min(level, 3) if fast else level) < 0
    failed |= zstd_set(encoder, _CHECKSUM, checksum) < 0
    if way == 0:
        return not failed
    if split == 0:
        # Versions that have no splitter do not know how to leave it out.
        zstd_set(encoder, _SPLITTER, _NO_SPLITS)
    if rows > 0:
        zstd_set(encoder, _ROWS, rows)
    failed |= strategy > 0 and zstd_set(encoder, _STRATEGY, strategy) < 0
    failed |= table > 0 and zstd_set(encoder, _HASH_LOG, table) < 0
    failed |= chain > 0 and zstd_set(encoder, _CHAIN_LOG, chain) < 0
    failed |= candidates > 0 and zstd_set(encoder, _SEARCH_LOG, candidates) < 0
    failed |= match > 0 and zstd_set(encoder, _MIN_MATCH, match) < 0
    # Who skips is taken not to want literals compressed, unless he says so.
    failed |= skip > 0 and zstd_set(encoder, _TARGET_LENGTH, skip) < 0
    failed |= skip > 0 and zstd_set(encoder, _LITERALS, _ON) < 0
    if window == 0 and fast and level > 4:
        # Levels from 5 to 9 look as far back as this.
        window = _MOST_WINDOW_LOG
    failed |= window > 0 and zstd_set(encoder, _WINDOW_LOG, window) < 0
    return not failed
