"""Copies of frames: of uncompressed frames, and of frames that a decoder needs at another address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .addressing import get, quotient
from .language import cuda, int64, uint64
from .target import THREADS, blocks, body, kernel

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "blocks", "copy_frames", "parts"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of frames.
FRAMES: Final = 0
#: Columns (F,): byte offset of each frame, of its copy, and its size in bytes. The two must not overlap.
SOURCE: Final = 1
TARGET: Final = 2
NBYTES: Final = 3
#: Parts of :data:`PART_BYTES` of the longest frame.
PARTS: Final = 4
#: Number of words of the header.
SIZE: Final = 5

#: Bytes of a part of a frame, which one block copies: a long frame keeps many blocks busy.
PART_BYTES: Final = 64 << 10


def parts(longest: int) -> int:
    """Return the number of parts of a frame of so many bytes, at least one."""
    return max(1, -(-longest // PART_BYTES))


@body
def _copy(arena: Bytes, columns: Column, source: int, target: int, nbytes: int, thread: int, threads: int) -> None:
    """Copy a thread's part of a frame: bytes up to an aligned target, then whole words, then bytes."""
    head = min(-target & 7, nbytes)
    words = (nbytes - head) >> 3
    i = thread
    while i < head:
        arena[uint64(target + i)] = arena[uint64(source + i)]
        i += threads
    # For an unaligned source, a word is combined from two, both of which contain bytes of the frame.
    shift = uint64(8 * ((source + head) & 7))
    first = (source + head) >> 3
    into = (target + head) >> 3
    i = thread
    while i < words:
        value = uint64(columns[uint64(first + i)])
        if shift:
            value = value >> shift | uint64(columns[uint64(first + i + 1)]) << (uint64(64) - shift)
        columns[uint64(into + i)] = int64(value)
        i += threads
    i = head + 8 * words + thread
    while i < nbytes:
        arena[uint64(target + i)] = arena[uint64(source + i)]
        i += threads


@body
def _copy_frames(arena: Bytes, columns: Column, job: int, block: int, grid: int, thread: int, threads: int) -> None:
    """Copy a thread's share of every ``grid``-th part: first the first part of each frame, then the second, ..."""
    frames = get(columns, job + FRAMES)
    units = frames * get(columns, job + PARTS)
    unit = block
    while unit < units:
        part = quotient(unit, frames)
        frame = unit - part * frames
        begin = part * PART_BYTES
        nbytes = get(columns, get(columns, job + NBYTES) + frame) - begin
        if nbytes > 0:
            source = get(columns, get(columns, job + SOURCE) + frame) + begin
            target = get(columns, get(columns, job + TARGET) + frame) + begin
            _copy(arena, columns, source, target, min(nbytes, PART_BYTES), thread, threads)
        unit += grid


@kernel
def copy_frames(arena: Bytes, columns: Column, job: int) -> None:
    """Copy frames within the arena, one block per part of a frame.

    Launched with ``blocks(frames * parts(longest))`` blocks of ``THREADS``.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _copy_frames(arena, columns, job, cuda.blockIdx.x, cuda.gridDim.x, cuda.threadIdx.x, cuda.blockDim.x)
