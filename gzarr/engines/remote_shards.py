"""Shards in remote stores: their indexes, and shards that are fetched as a whole because all of them is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ..codecs.sharding import EMPTY
from ..errors import ValueSizeError
from ..stores.base import ByteRange, PackedValues, RemoteValues, Request
from .request import WHOLE

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy.typing as npt

    from ..plan.decode_program import ShardLevel
    from ..stores.base import Answer, ReadableStore
    from .shard_cache import ShardIndexCache

    IntArray = npt.NDArray[np.int64]
    Index = npt.NDArray[np.uint64]

#: Largest shard, decoded, that is fetched with one request. Of a larger one, ranges are fetched side by side.
MOST_BYTES: Final = 8 << 20
#: Share of the chunks of a shard that must be wanted.
LEAST_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class WholeShards:
    """Tells which shards to fetch as a whole.

    Attributes
    ----------
    chunk_nbytes
        Decoded bytes of an inner chunk.
    most_encoded
        Largest encoded size of an inner chunk by any encoder, in bytes.
    grid_shape
        Number of inner chunks of the array along each dimension.
    """

    chunk_nbytes: int
    most_encoded: int
    grid_shape: tuple[int, ...]

    def possible(self, levels: Sequence[ShardLevel], store: ReadableStore) -> bool:
        """Return whether shards of a store can be fetched as a whole at all."""
        remote = isinstance(store, RemoteValues) and not isinstance(store, PackedValues)
        return remote and len(levels) == 1 and levels[0].uneven is None

    def wanted(self, shards: IntArray, counts: IntArray, shard_of: IntArray) -> npt.NDArray[np.bool_]:
        """Return which shards to fetch as a whole.

        Parameters
        ----------
        shards
            int64 ``(m, k)``, grid coordinates.
        counts
            int64 ``(k,)``: number of inner chunks of a shard along each dimension.
        shard_of
            int64 ``(n,)``, the shard of each chunk that is read.
        """
        # Shards at the array's ends hold no chunks beyond them.
        inside = np.clip(np.array(self.grid_shape, np.int64) - shards * counts, 0, counts).prod(axis=1)
        read = np.bincount(shard_of, minlength=len(shards))
        found: npt.NDArray[np.bool_] = (read >= LEAST_SHARE * inside) & (inside * self.chunk_nbytes <= MOST_BYTES)
        return found

    def most_nbytes(self, level: ShardLevel) -> int:
        """Return the most bytes of such a shard; gaps between its chunks may make up half of it."""
        chunks = MOST_BYTES // max(self.chunk_nbytes, 1)
        return 2 * chunks * self.most_encoded + level.codec.index_nbytes(level.stored_shape)


def index_in(level: ShardLevel, shape: tuple[int, ...], answer: Answer) -> Index:
    """Return the index of a shard that was fetched as a whole, as ``(inner chunks, 2)``.

    Raises
    ------
    ValueError
        If the index is corrupt, or the shard too short for it.
    """
    assert answer.value is not None
    shard = memoryview(answer.value)
    nbytes = level.codec.index_nbytes(shape)
    if shard.nbytes < nbytes:
        raise ValueError(f"the shard has {shard.nbytes} bytes, too few for an index of {nbytes}")
    data = shard[:nbytes] if level.codec.index_location == "start" else shard[shard.nbytes - nbytes :]
    return level.codec.decode_index(data, shape, shard_nbytes=shard.nbytes).reshape(-1, 2)


def remote_index(
    store: RemoteValues,
    cache: ShardIndexCache,
    level: ShardLevel,
    shape: tuple[int, ...],
    key: str,
    base: int,
    size: int,
    versions: dict[str, Hashable],
    entries: IntArray,
) -> Index | None:
    """Return the index of one shard as ``(inner chunks, 2)``, or None if the store has no such shard.

    It takes one request, or none if the index is known.

    A kept index is used unchecked, because the requests for the chunks will name its version. So it is not used if none
    of ``entries``, the chunks to be read, is in it: there would be no such request.
    """
    name = (key, base, size)
    version = versions.get(key)
    kept = cache.last(name)
    if kept is not None and version in (None, kept[0]) and (kept[1][entries, 0] != EMPTY).any():
        versions[key] = kept[0]
        return kept[1]
    (answer,) = store.get_many([Request(key, range_of_index(level, shape, base, size), version)])
    if isinstance(answer.error, ValueSizeError):
        raise ValueError(f"the shard is too short for its index: {answer.error}") from answer.error
    if answer.error is not None:
        raise answer.error
    if answer.value is None:
        if size != WHOLE:
            raise ValueError("the shard was erased during the read")
        return None
    data = bytes(answer.value)
    index = level.codec.decode_index(data, shape, shard_nbytes=None if size == WHOLE else size).reshape(-1, 2)
    if answer.version is not None:
        versions[key] = answer.version
        cache.put(name, answer.version, index)
    return index


def range_of_index(level: ShardLevel, shape: tuple[int, ...], base: int, size: int) -> ByteRange:
    """Return the byte range of the index of a shard in the value that holds the shard."""
    nbytes = level.codec.index_nbytes(shape)
    at_start = level.codec.index_location == "start"
    if size == WHOLE:
        return ByteRange(0, nbytes) if at_start else ByteRange(-nbytes)
    if size < nbytes:
        raise ValueError(f"the inner shard has {size} bytes, too few for an index of {nbytes}")
    return ByteRange(base if at_start else base + size - nbytes, nbytes)
