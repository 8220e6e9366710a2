"""Methods by which compressors search for repetitions (*ways*), each with a number.

0 is the default method of the level; numbers from 1 are positions in the tables here. The format of the result is
always the same, and any decoder reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The ways of an operation that a write may try instead of its level's own.

    Attributes
    ----------
    small_frames, large_frames
        Groups of similar ways for frames of up to ``SMALL_FRAME_BYTES`` and for larger ones, the fastest way first.
    least_level
        Way → least level at which it is tried; ways that are missing here are tried at any level.
    reference
        The way whose encoded sizes the others are compared with.
    """

    small_frames: tuple[tuple[int, ...], ...]
    large_frames: tuple[tuple[int, ...], ...]
    least_level: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    reference: int = 0

    def groups(self, nbytes: int, level: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups of ways to try for frames of ``nbytes`` bytes at a level."""
        groups = self.small_frames if nbytes <= SMALL_FRAME_BYTES else self.large_frames
        return tuple(tuple(way for way in group if level >= self.least_level.get(way, level)) for group in groups)


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
#: Size of the largest frame that counts as small: zstd 1.5.7 searches faster with a window of less than 512 KiB.
SMALL_FRAME_BYTES: Final = 1 << 20
#: Ways for zstd, for small frames and for larger ones, from fastest to slowest (roughly: it also depends on the data).
#: Fast ways find nearly all repetitions in measured numbers, whose bytes are mostly noise; lazy ways those in labels.
ZSTD_FAST: Final = ((2, 3, 4, 5, 8, 10, 11), (6, 7, 8, 9, 10, 11))
ZSTD_LAZY: Final = ((12, 13), (14,))
#: Levels from this one on search at least as thoroughly as the lazy ways.
ZSTD_LAZY_LEVEL: Final = 8

#: For each level of zlib, the fastest level of libdeflate that compresses as well, or nearly so.
DEFLATE_LEVELS: Final = (0, 3, 5, 5, 5, 5, 7, 8, 9, 9)
#: Ways for libdeflate: its levels, fastest first.
DEFLATE_WAYS: Final = (1, 3)
#: The way for LZ4: ``lz4_encode.py``.
LZ4_LONG: Final = 1

ZSTD_CANDIDATES: Final = Candidates(
    small_frames=(ZSTD_FAST[0], ZSTD_LAZY[0]),
    large_frames=(ZSTD_FAST[1], ZSTD_LAZY[1]),
    least_level=MappingProxyType(dict.fromkeys((*ZSTD_LAZY[0], *ZSTD_LAZY[1]), ZSTD_LAZY_LEVEL)),
    reference=ZSTD_UNSPLIT,
)
#: A way is tried from the first level on that stands for a higher level of libdeflate than the way itself.
DEFLATE_CANDIDATES: Final = Candidates(
    small_frames=((1, 2),), large_frames=((1, 2),), least_level=MappingProxyType({1: 1, 2: 2})
)
LZ4_CANDIDATES: Final = Candidates(small_frames=((LZ4_LONG,),), large_frames=((LZ4_LONG,),))
