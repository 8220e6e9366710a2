"""Which chunks and shards a new array gets where its maker leaves that open.

Chunks are what is read and decoded by itself. Small ones cost a request or a file each and more compressed frames than
are needed; large ones make a small read expensive, and keep a GPU idle: it decodes one frame slowly, and thousands side
by side fast. So chunks are a few hundred KiB, and shards put many of them into one stored value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ..documents.json import quote
from ..errors import ArgumentError

#: Most bytes of a decoded chunk; halving a longer side leaves more than half of it.
MAX_CHUNK_NBYTES: Final = 1 << 20
#: Bytes that chunks along a dimension of length 0, which is there to grow, are filled up to.
_FILLED_NBYTES: Final = 1 << 19
#: Decoded bytes from which a shard is not made larger; it was smaller by half, so this is also half of the most.
SHARD_NBYTES: Final = 64 << 20


def auto_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks for an array of any shape.

    The whole array if it has 1 MiB at most. Else the longest side of the chunk (the first of several) is halved,
    rounded up, until a chunk has 1 MiB at most. Along dimensions of length 0, which are there to grow, chunks are as
    long as 512 KiB allow.

    Parameters
    ----------
    shape
        Of the array, in elements.
    itemsize
        Bytes an element; items of any length count as 16.
    """
    chunks = [max(n, 1) for n in shape]
    while math.prod(chunks) * itemsize > MAX_CHUNK_NBYTES and max(chunks) > 1:
        longest = chunks.index(max(chunks))
        chunks[longest] = -(-chunks[longest] // 2)
    for d, n in enumerate(shape):
        if n == 0:
            chunks[d] = max(1, _FILLED_NBYTES // (math.prod(chunks) * itemsize))
    return tuple(chunks)


def auto_chunks_in(shard: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the shape of inner chunks for shards of a given shape: as :func:`auto_chunks`, in lengths that divide."""
    wanted = auto_chunks(shard, itemsize)
    return tuple(next(n for n in range(most, 0, -1) if side % n == 0) for side, most in zip(shard, wanted, strict=True))


def auto_shards(shape: Sequence[int], chunks: Sequence[int], itemsize: int) -> tuple[int, ...] | None:
    """Return the shape of shards for an array, or None for an array that needs none.

    None for arrays of 128 MiB at most, and for chunks of 64 MiB or more. Else the side that has the fewest of the
    array's chunks in it, relative to how many there are, is doubled until a shard has 64 MiB or more: 128 MiB at most.

    Parameters
    ----------
    shape, chunks
        Of the array and of its chunks, in elements.
    itemsize
        Bytes an element; items of any length count as 16.
    """
    if math.prod(shape) * itemsize <= 2 * SHARD_NBYTES or math.prod(chunks) * itemsize >= SHARD_NBYTES:
        return None
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    counts = [1] * len(grid)
    while math.prod(counts) * math.prod(chunks) * itemsize < SHARD_NBYTES:
        left = [n / count for n, count in zip(grid, counts, strict=True)]
        if max(left) <= 1:
            break
        counts[left.index(max(left))] *= 2
    return tuple(count * c for count, c in zip(counts, chunks, strict=True))


def full_shape(given: Any, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return the shape of chunks or shards that a caller gave: an integer, or one a dimension; -1 and None are all.

    Raises
    ------
    ArgumentError
        If it is none, or has another number of dimensions than the array.
    """
    if hasattr(given, "__index__") and not isinstance(given, bool):
        given = (given,) * len(shape)
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{what} must be 'auto', an integer, or a tuple of integers, not {quote(given)}")
    lengths = tuple(given)
    if len(lengths) != len(shape):
        raise ArgumentError(f"{what} {quote(lengths)} have {len(lengths)} dimensions, but the array has {len(shape)}")
    result = []
    for length, size in zip(lengths, shape, strict=True):
        if length is None or (isinstance(length, int) and length == -1):
            result.append(max(size, 1))
        elif isinstance(length, bool) or not hasattr(length, "__index__") or length.__index__() < 1:
            raise ArgumentError(f"{what} {quote(lengths)}: lengths are integers of at least 1, or -1 for all")
        else:
            result.append(length.__index__())
    return tuple(result)


def is_rectilinear(chunks: Any) -> bool:
    """Return whether a caller lists the lengths of the chunks along some dimension."""
    return isinstance(chunks, Sequence) and any(isinstance(item, Sequence) for item in chunks)
