"""Blocks of dask arrays, and how they lie on the chunks of a Zarr array.

A block here is a box of elements that one task reads or writes; blocks are given as dask gives them, by their lengths
along each dimension. A stored value is a chunk, or a shard of a sharded array.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from ..arrays.element_size import element_nbytes
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gzarr

    Blocks = tuple[tuple[int, ...], ...]

_LARGEST_DIVISOR: Final = 14
#: Most blocks along all dimensions together. Dask keeps the length of each, and takes minutes for fewer in its graphs.
_MOST_LENGTHS: Final = 10_000_000


def auto_blocks(array: gzarr.Array | gzarr.ArrayView, limit_bytes: int) -> Blocks:
    """Return blocks of whole stored values with at most ``limit_bytes``, for reading.

    The shortest side of a block is doubled as long as the limit allows, so that blocks are about as long in all
    dimensions. A block is at least one chunk. Shards above the limit are cut into blocks of whole inner chunks. The
    length of strings is that of a few chunks, which are read for it.

    Raises
    ------
    ArgumentError
        If there are too many blocks for dask.
    """
    axes = array.metadata.chunk_grid.axes
    if array.shards is None and all(axis.count_within(axis.size) <= 1 for axis in axes):
        return stored_blocks(array)
    limit = max(limit_bytes // element_nbytes(array), 1)
    lengths = [axis.longest for axis in axes]
    if array.shards is not None and math.prod(map(min, lengths, array.shape)) > limit:
        return _parts_of_shards(array, limit)
    while True:
        block = [min(length, size) for length, size in zip(lengths, array.shape, strict=True)]
        longer = [
            d
            for d, n in enumerate(block)
            if n < array.shape[d] and math.prod(block) // n * min(2 * n, array.shape[d]) <= limit
        ]
        if not longer:
            break
        shortest = min(longer, key=lambda d: (block[d], -d))
        lengths[shortest] *= 2
    merged = [axis.merged(length) for axis, length in zip(axes, lengths, strict=True)]
    check_number(array, [axis.count for axis in merged])
    return tuple(axis.lengths_inside() or (0,) for axis in merged)


def _parts_of_shards(array: gzarr.Array | gzarr.ArrayView, limit: int) -> Blocks:
    """Return blocks of whole inner chunks, none of which has elements of several shards."""
    inner = array.chunks
    lengths = list(inner)
    per_shard = [shard // chunk for shard, chunk in zip(array.shards or (), inner, strict=True)]
    while True:
        counts = [length // chunk for length, chunk in zip(lengths, inner, strict=True)]
        following = [
            next((n for n in range(c + 1, p + 1) if p % n == 0), c) for c, p in zip(counts, per_shard, strict=True)
        ]
        longer = [
            d
            for d, (count, n) in enumerate(zip(counts, following, strict=True))
            if n > count and math.prod(lengths) // count * n <= limit
        ]
        if not longer:
            break
        shortest = min(longer, key=lambda d: (lengths[d], -d))
        lengths[shortest] = following[shortest] * inner[shortest]
    axes = array.metadata.chunk_grid.axes
    check_number(array, [-(-axis.size // length) for axis, length in zip(axes, lengths, strict=True)])
    return tuple(
        tuple(
            min(length, end - at)
            for begin, end in (axis.extent(i) for i in range(axis.count))
            for at in range(begin, end, length)
        )
        or (0,)
        for axis, length in zip(axes, lengths, strict=True)
    )


def stored_blocks(array: gzarr.Array | gzarr.ArrayView) -> Blocks:
    """Return blocks of one stored value each.

    Raises
    ------
    ArgumentError
        If there are too many blocks for dask.
    """
    check_number(array, array.metadata.grid_shape)
    return tuple(lengths or (0,) for lengths in array.chunk_lengths)


def check_number(array: gzarr.Array | gzarr.ArrayView, counts: Sequence[int]) -> None:
    """Check the number of blocks along each dimension.

    Raises
    ------
    ArgumentError
        If they are too many for dask.
    """
    if sum(counts) > _MOST_LENGTHS:
        most = max(range(len(counts)), key=lambda d: counts[d])
        raise ArgumentError(
            f"{array.name}: {counts[most]} blocks along dimension {most} are too many for dask; pass longer ones with "
            "chunks="
        )


def splits_chunks(array: gzarr.Array | gzarr.ArrayView, blocks: Blocks) -> bool:
    """Return whether blocks cut a chunk (an inner chunk, of a sharded array), so that several tasks decode it."""
    if array.shards is None:
        return first_shared(array, blocks) is not None
    return any(at % chunk for lengths, chunk in zip(blocks, array.chunks, strict=True) for at in _boundaries(lengths))


def _boundaries(lengths: Sequence[int]) -> list[int]:
    """Return where blocks meet along a dimension: without the beginning of the first and the end of the last."""
    return list(accumulate(n for n in lengths if n))[:-1]


def _chunk_begin(axis: Any, at: int) -> int:
    """Return the first element of the stored value that holds element ``at`` of an axis."""
    begin: int = axis.extent(axis.touching(at, at + 1)[0])[0]
    return begin


def first_shared(
    array: gzarr.Array | gzarr.ArrayView, blocks: Blocks, offset: Sequence[int] | None = None
) -> tuple[int, int] | None:
    """Return the first boundary of blocks within a stored value: its dimension and its position in the array.

    Parameters
    ----------
    array
        Array that the blocks will be written to.
    blocks
        Blocks.
    offset
        Position of the first block in the array; None for its beginning.
    """
    for d, (axis, lengths) in enumerate(zip(array.metadata.chunk_grid.axes, blocks, strict=True)):
        begin = 0 if offset is None else offset[d]
        for at in _boundaries(lengths):
            if _chunk_begin(axis, begin + at) != begin + at:
                return d, begin + at
    return None


def are_whole(array: gzarr.Array, blocks: Blocks, offset: Sequence[int]) -> bool:
    """Return whether blocks consist of whole stored values, cut only by the array's end."""
    for axis, lengths, begin in zip(array.metadata.chunk_grid.axes, blocks, offset, strict=True):
        end = begin + sum(lengths)
        if begin and begin < axis.size and _chunk_begin(axis, begin) != begin:
            return False
        if end < axis.size and _chunk_begin(axis, end) != end:
            return False
    return first_shared(array, blocks, offset) is None


def moved_blocks(array: gzarr.Array, blocks: Blocks, offset: Sequence[int]) -> Blocks:
    """Return blocks that meet where stored values do: each boundary is moved back to the beginning of its value."""
    moved = []
    for axis, lengths, begin in zip(array.metadata.chunk_grid.axes, blocks, offset, strict=True):
        found = sorted({max(_chunk_begin(axis, begin + at) - begin, 0) for at in _boundaries(lengths)} - {0})
        edges = [0, *found, sum(lengths)]
        moved.append(tuple(b - a for a, b in pairwise(edges)))
    return tuple(moved)


def chunks_in(blocks: Blocks, itemsize: int, limit_bytes: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return shapes for a new array that will take blocks: of chunks with at most ``limit_bytes``, and of a shard.

    All boundaries of blocks are multiples of the shard's lengths, which are multiples of the chunk's. The longest side
    is divided by its smallest divisor; a side that only large numbers divide stays, and so chunks may be larger.

    Returns
    -------
    None if the blocks of a dimension have no length in common that is a quarter of their mean length.
    """
    shard = []
    for lengths in blocks:
        size = max(sum(lengths), 1)
        common = math.gcd(*_boundaries(lengths)) or size
        if common * 4 * len(lengths) < size:
            return None
        shard.append(common)
    chunk = list(shard)
    while math.prod(chunk) * itemsize > limit_bytes:
        divisors = {d: next((p for p in range(2, _LARGEST_DIVISOR) if n % p == 0), 0) for d, n in enumerate(chunk)}
        divisible = [d for d, divisor in divisors.items() if divisor]
        if not divisible:
            break
        longest = max(divisible, key=lambda d: chunk[d])
        chunk[longest] //= divisors[longest]
    return tuple(chunk), tuple(shard)
