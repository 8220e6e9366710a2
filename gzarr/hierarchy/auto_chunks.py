"""Default chunks and shards of new arrays.

A chunk is the unit of reading and decoding. Small chunks cost a request or a file each, and need more compressed frames
than necessary. Large chunks make small reads expensive and leave a GPU idle: it decodes one frame slowly, but thousands
of them in parallel fast. So chunks have a few hundred KiB, and shards put many of them into one stored value.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..arrays.element_size import objects_nbytes
from ..documents.json import quote
from ..errors import ArgumentError
from ..integers import as_integer
from ..items import UNLISTED

#: Limit of a decoded chunk in bytes. Halving a larger chunk leaves more than half of the limit.
MAX_CHUNK_NBYTES: Final = 1 << 20
#: Size in bytes of chunks that span a dimension of length 0, which is meant to grow.
_FILLED_NBYTES: Final = 1 << 19
#: Decoded bytes at which a shard stops growing. Shards grow by doubling, so the largest have less than twice as many.
SHARD_NBYTES: Final = 64 << 20
#: Longest chunk, of any length of an array. Python does not even print integers of thousands of digits.
_MAX_LENGTH: Final = 2**63 - 1
#: Kinds of arrays whose elements may become variable-length ones.
_OBJECTS: Final = "OSUT"
#: Most elements by which the mean size of objects is judged.
_SAMPLE: Final = 1000
#: Bytes of elements that are enough to judge by, however few they are.
_ENOUGH_NBYTES: Final = 16 << 20
#: Bytes of the length of a string, in a chunk.
_LENGTH_NBYTES: Final = 4


def auto_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the default chunk shape, in elements, for an array of any shape.

    An array of up to 1 MiB is one chunk. Otherwise the longest side of the chunk (the first of several) is halved,
    rounded up, until the chunk has at most 1 MiB. Along dimensions of length 0, which are meant to grow, chunks are as
    long as 512 KiB allow.

    Parameters
    ----------
    shape
        Shape of the array, in elements.
    itemsize
        Bytes per element; for variable-length items, :func:`mean_nbytes` of the data, at least 16. Elements of 0 bytes
        are refused elsewhere.
    """
    itemsize = max(itemsize, 1)
    chunks = [max(n, 1) for n in shape]
    while math.prod(chunks) * itemsize > MAX_CHUNK_NBYTES and max(chunks) > 1:
        longest = chunks.index(max(chunks))
        chunks[longest] = -(-chunks[longest] // 2)
    for d, n in enumerate(shape):
        if n == 0:
            chunks[d] = max(1, _FILLED_NBYTES // (math.prod(chunks) * itemsize))
    return tuple(chunks)


def auto_chunks_in(shard: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the shape of inner chunks for a shard shape, as :func:`auto_chunks`, with lengths that divide it."""
    wanted = auto_chunks(shard, itemsize)
    return tuple(next(n for n in range(most, 0, -1) if side % n == 0) for side, most in zip(shard, wanted, strict=True))


def auto_shards(shape: Sequence[int], chunks: Sequence[int], itemsize: int) -> tuple[int, ...] | None:
    """Return the default shard shape, in elements, or None for an array that needs no shards.

    None for arrays of up to 128 MiB, and for chunks of 64 MiB or more. Otherwise the shard starts as one chunk. The
    side that covers the smallest share of the array's chunks is doubled until the shard has 64 to 128 MiB.

    Parameters
    ----------
    shape, chunks
        Shapes of the array and of its chunks, in elements.
    itemsize
        As for :func:`auto_chunks`.
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


def mean_nbytes(data: Any) -> int:
    """Return about the mean bytes of objects in a chunk, such as strings, by some of them; 0 if not known.

    Parameters
    ----------
    data
        What the array is created from. Only arrays of NumPy are looked into.
    """
    if not isinstance(data, np.ndarray) or data.dtype.kind not in _OBJECTS or not data.size:
        return 0
    chance = random.Random(0)
    few = data.size <= _SAMPLE
    some = range(data.size) if few else [chance.randrange(data.size) for _ in range(_SAMPLE)]
    # Also of masked arrays, whose own iterator takes no index.
    elements = np.asarray(data).flat
    total = 0
    seen = 0
    for i in some:
        seen += 1
        total += _encoded_nbytes(elements[i])
        if total >= _ENOUGH_NBYTES:
            break
    # Larger ones have chunks of their own in any case.
    return min(total // seen, SHARD_NBYTES)


def _encoded_nbytes(item: Any) -> int:
    """Return the bytes of an object in a chunk: those of a string with its length; others as in memory, about."""
    if isinstance(item, str):
        return _LENGTH_NBYTES + (len(item) if item.isascii() else len(item.encode(errors="surrogatepass")))
    if isinstance(item, bytes):
        return _LENGTH_NBYTES + len(item)
    return objects_nbytes([item])


def full_shape(given: Any, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Return the caller's shape of chunks or shards, in elements: one integer, or one per dimension (-1, None: all).

    Raises
    ------
    ArgumentError
        If it is not a shape, or has another number of dimensions than the array.
    """
    if isinstance(given, np.ndarray):
        given = given.tolist()
    number = as_integer(given)
    if number is not None:
        given = (number,) * len(shape)
    # An array of several elements of another library has "__index__", too, but is none.
    elif isinstance(given, UNLISTED) or hasattr(given, "__index__") or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{what} must be 'auto', an integer, or a tuple of integers, not {quote(given)}")
    lengths = tuple(given)
    if len(lengths) != len(shape):
        raise ArgumentError(f"{what} {quote(lengths)} have {len(lengths)} dimensions, but the array has {len(shape)}")
    result = []
    for length, size in zip(lengths, shape, strict=True):
        number = -1 if length is None else as_integer(length)
        if number is None or (number < 1 and number != -1):
            raise ArgumentError(
                f"{what} {quote(lengths)}: lengths must be positive integers, or -1 for the whole dimension"
            )
        if number > _MAX_LENGTH:
            raise ArgumentError(f"{what} {quote(lengths)}: lengths are at most 2**63 - 1")
        result.append(max(size, 1) if number == -1 else number)
    return tuple(result)


def is_rectilinear(chunks: Any) -> bool:
    """Return whether ``chunks`` lists the lengths of the chunks along a dimension."""
    return _is_list(chunks) and any(map(_is_list, chunks))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, UNLISTED)
