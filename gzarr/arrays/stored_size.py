"""What of an array is stored, for displays: found out at once, or not at all."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Final

from ..display.page import StoredSize
from ..errors import GzarrError
from ..reasons import pass_on
from ..stores.at_hand import is_at_hand, sizes_of

if TYPE_CHECKING:
    from ..metadata.model import ArrayMetadata
    from ..stores.base import ReadableStore

#: Most chunks that are looked at, and how long. A file takes microseconds, on a network file system milliseconds.
MOST_CHUNKS: Final = 1000
MOST_SECONDS: Final = 0.1
_TOGETHER: Final = 20


def stored_size(store: ReadableStore, metadata: ArrayMetadata, path: str) -> StoredSize | None:
    """Return what of an array is stored, by some of its chunks (shards) if there are many.

    Parameters
    ----------
    store, metadata, path
        Store, metadata and path of the array.

    Returns
    -------
    None if the store is none that answers at once (:mod:`gzarr.stores.at_hand`), or fails.
    """
    if not is_at_hand(store):
        return None
    grid, encoding = metadata.chunk_grid, metadata.chunk_key_encoding
    shape = grid.count_within(metadata.shape)
    total = math.prod(shape)
    chosen = _random(total)
    folder = metadata.key_prefix(path)
    end = time.monotonic() + MOST_SECONDS
    nbytes = elements = present = seen = 0
    try:
        while seen < len(chosen) and (not seen or time.monotonic() < end):
            some = [_unravel(number, shape) for number in chosen[seen : seen + _TOGETHER]]
            for coords, size in zip(some, sizes_of(store, [folder + encoding.encode(c) for c in some]), strict=True):
                if size is not None:
                    present += 1
                    nbytes += size
                    elements += math.prod(stop - start for start, stop in grid.extent(coords))
            seen += len(some)
    except (GzarrError, OSError, TypeError, ValueError) as error:
        pass_on(error)
        return None
    return StoredSize(nbytes, elements * metadata.dtype.itemsize, present, seen, total)


def _random(total: int) -> list[int]:
    """Return numbers of chunks in random order, always the same; all of them if there are few."""
    chance = random.Random(0)
    if total > MOST_CHUNKS:
        return [chance.randrange(total) for _ in range(MOST_CHUNKS)]
    return chance.sample(range(total), total)


def _unravel(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    coords = []
    for length in reversed(shape):
        number, i = divmod(number, length)
        coords.append(i)
    return tuple(reversed(coords))
