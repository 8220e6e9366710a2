"""Decoded shard indexes, kept for later reads."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from .forks import ForkSafeLock

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    import numpy.typing as npt

    Index = npt.NDArray[np.uint64]

#: Most bytes of decoded shard indexes that an array keeps.
CACHE_BYTES = 16 << 20

_cache_lock = ForkSafeLock()


class ShardIndexCache:
    """Decoded shard indexes of one array; the least recently used ones are dropped first.

    An index is used only while the version of its value (``VersionedStore.version``) stays the same, so a rewritten
    shard is never read with its old index. Indexes from stores without versions are not kept.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._entries: OrderedDict[Hashable, tuple[Hashable, Index]] = OrderedDict()
        self._nbytes = 0
        self._limit = limit_bytes

    def get(self, key: Hashable, version: Hashable) -> Index | None:
        """Return the index kept under ``key`` if it has that version."""
        with _cache_lock.lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        # Versions may be objects of a third-party store, so they are compared without the lock.
        return None if entry is None or entry[0] != version else entry[1]

    def last(self, key: Hashable) -> tuple[Hashable, Index] | None:
        """Return the version and the index kept under ``key``, which may be out of date."""
        with _cache_lock.lock:
            return self._entries.get(key)

    def drop(self, key: Hashable) -> None:
        """Forget the index kept under ``key``."""
        with _cache_lock.lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._nbytes -= old[1].nbytes

    def put(self, key: Hashable, version: Hashable, index: Index) -> None:
        """Keep an index; drop old ones until the rest fits the limit."""
        if index.nbytes > self._limit // 4:
            return
        with _cache_lock.lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._nbytes -= old[1].nbytes
            self._entries[key] = (version, index)
            self._nbytes += index.nbytes
            while self._nbytes > self._limit:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._nbytes -= dropped.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardIndexCache, (self._limit,)
