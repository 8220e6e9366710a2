"""Shards: where their index is, what it says, and how they are put together. No other module knows an index."""

from __future__ import annotations

import errno
import math
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from gzarr_kernels import status as codes

from ...codecs.bytes import BytesCodec
from ...codecs.crc32c import Crc32cCodec
from ...codecs.sharding import EMPTY
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueSizeError
from ...guarded import ForkSafeLock
from ...reasons import pass_on
from ...stores.base import ByteRange
from ...stores.file_tree import FreshVersion
from .sources import ABSENT, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    from ...plan.decode_program import ShardLevel
    from ...plan.keys import ChunkKeys

    IntArray = npt.NDArray[np.int64]
    Index = npt.NDArray[np.uint64]
    E = TypeVar("E", bound=ChunkError)

#: Most bytes of decoded shard indexes that an array keeps.
CACHE_BYTES = 16 << 20

_cache_lock = ForkSafeLock()


def entries_of(order: Sequence[int], counts: IntArray, inner: IntArray) -> IntArray:
    """Return the entries of some inner chunks in the indexes of their shards, int64 ``(n,)``.

    Parameters
    ----------
    order
        As in :class:`gzarr.plan.decode_program.ShardLevel`.
    counts, inner
        As :meth:`gzarr.plan.decode_program.ShardLevel.locate` returns them.
    """
    entries = np.zeros(len(inner), np.int64)
    for d in order:
        entries = entries * counts[..., d] + inner[:, d]
    return entries


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The layout of shards of one shape.

    An index is uint64 ``(chunks, 2)``, offset and size in bytes of each inner chunk in the shard, both ``EMPTY`` where
    there is none.

    Attributes
    ----------
    level, shape
        The level of sharding, and the shape of the shards as its codec sees them, in elements.
    chunks
        Number of inner chunks.
    index_nbytes, at_start
        Bytes of the encoded index, and whether it comes before the inner chunks.
    plain, checksum
        Whether entries are stored as they are in memory, with at most a crc32c after them; whether codecs follow.
    """

    level: ShardLevel
    shape: tuple[int, ...]
    chunks: int
    index_nbytes: int
    at_start: bool
    plain: bool
    checksum: bool

    @classmethod
    def of(cls, level: ShardLevel, shape: tuple[int, ...]) -> Shard:
        """Return the layout of shards of a level, of some shape."""
        codec = level.codec
        first, *rest = codec.index_codecs
        plain = isinstance(first, BytesCodec) and first.endian == "little" and first.stored_dtype is None
        plain &= not rest or (len(rest) == 1 and isinstance(rest[0], Crc32cCodec))
        chunks, nbytes = math.prod(codec.chunks_per_shard(shape)), codec.index_nbytes(shape)
        return cls(level, shape, chunks, nbytes, codec.index_location == "start", plain, bool(rest))

    def entries(self, chunks: IntArray) -> IntArray:
        """Return the entries of some inner chunks, by their coordinates, int64 ``(n, k)``; shards have one shape."""
        _, inner, counts = self.level.locate(chunks, self.level.inner_shape)
        return entries_of(self.level.order, counts, inner)

    def chunk_of(self, shard: Sequence[int], entry: int) -> tuple[int, ...]:
        """Return the coordinates of an inner chunk, by those of its shard and its entry; shards have one shape."""
        order = self.level.order
        counts = [a // b for a, b in zip(self.level.shard_shape, self.level.inner_shape, strict=True)]
        chunk = [i * n for i, n in zip(shard, counts, strict=True)]
        for d in reversed(order):
            entry, i = divmod(entry, counts[d])
            chunk[d] += i
        return tuple(chunk)

    def empty_index(self, *shards: int) -> Index:
        """Return the index of a shard without inner chunks, or of several shards, ``(shards, chunks, 2)``."""
        return np.full((*shards, self.chunks, 2), EMPTY, np.uint64)

    def read_index(self, get: Callable[[ByteRange], Buffer | None], base: int = 0, size: int = WHOLE) -> Index | None:
        """Read the index of one shard.

        Parameters
        ----------
        get
            Function that returns a part of the value that holds the shard, or None if there is no value.
        base, size
            Byte range of the shard in that value; ``WHOLE`` if it is the value, in bytes that are not known.

        Returns
        -------
        The index; None if the shard is absent.

        Raises
        ------
        ValueError
            If the index is corrupt, or the shard too short for it. What ``get`` raises, too.
        """
        nbytes = self.index_nbytes
        if size == WHOLE:
            wanted = ByteRange(0, nbytes) if self.at_start else ByteRange(-nbytes)
        elif size < nbytes:
            raise ValueError(f"the shard has {size} bytes, too few for an index of {nbytes}")
        else:
            wanted = ByteRange(base if self.at_start else base + size - nbytes, nbytes)
        try:
            data = get(wanted)
        except ValueSizeError as error:
            raise ValueError(f"the shard is too short for its index: {error}") from error
        if data is not None:
            shard_nbytes = None if size == WHOLE else size
            return self.level.codec.decode_index(data, self.shape, shard_nbytes=shard_nbytes).reshape(-1, 2)
        if size != WHOLE:
            raise ValueError("the shard was erased during the read")
        return None

    def index_in(self, shard: Buffer) -> Index:
        """Return the index of a shard that is in memory; raise ValueError as :meth:`read_index`."""
        view = memoryview(shard)

        def part(where: ByteRange) -> Buffer:
            return view[where.offset : where.offset + self.index_nbytes]

        index = self.read_index(part, 0, view.nbytes)
        assert index is not None
        return index


def ranges_in(entries: Index, base: int = 0) -> tuple[IntArray, IntArray]:
    """Return offsets and sizes as in :class:`gzarr.engines.access.sources.Sources`, from entries that were checked."""
    absent = entries[:, 0] == EMPTY
    offset = np.where(absent, 0, entries[:, 0].astype(np.int64) + base)
    return offset, np.where(absent, ABSENT, entries[:, 1].astype(np.int64))


class NewShard:
    """A shard that is put together: its inner chunks are added in the order of the index.

    Parameters
    ----------
    shard
        Its layout.
    """

    __slots__ = ("_index", "_layout", "_nbytes", "_parts")

    def __init__(self, shard: Shard) -> None:
        self._layout = shard
        self._index = shard.empty_index()
        self._nbytes = shard.index_nbytes if shard.at_start else 0
        self._parts: list[Any] = []

    def add(
        self, entries: Sequence[int] | IntArray, nbytes: Sequence[int] | IntArray, bodies: Iterable[Buffer]
    ) -> None:
        """Add inner chunks: their entries, ``(n,)``, their sizes in bytes, and all their bytes, in parts."""
        if len(entries):
            ends = self._nbytes + np.cumsum(nbytes)
            self._index[np.asarray(entries)] = np.stack([ends - nbytes, nbytes], axis=1)
            self._nbytes = int(ends[-1])
            self._parts.extend(bodies)

    def parts(self) -> list[Any]:
        """Return the bytes of the shard, in parts; none if it has no inner chunks."""
        if not self._parts:
            return []
        index = self._layout.level.codec.encode_index(self._index, self._layout.shape).data
        return [index, *self._parts] if self._layout.at_start else [*self._parts, index]


@dataclass(slots=True, eq=False)
class _Kept:
    """What a cache has.

    Attributes
    ----------
    entries
        Version and index by key; the least recently used first.
    of_file
        Keys of the indexes that are kept under the version of a file, by version.
    nbytes
        Bytes of all indexes.
    """

    entries: OrderedDict[Hashable, tuple[Hashable, Index]] = field(default_factory=OrderedDict)
    of_file: dict[Hashable, set[Hashable]] = field(default_factory=dict)
    nbytes: int = 0

    def add(self, key: Hashable, version: Hashable, index: Index, limit: int) -> None:
        """Add an index, and drop old ones until the rest fits a limit in bytes."""
        self.drop(key)
        self.entries[key] = (version, index)
        self.nbytes += index.nbytes
        if _is_of_file(version):
            self.of_file.setdefault(version, set()).add(key)
        while self.nbytes > limit:
            self.drop(next(iter(self.entries)))

    def drop(self, key: Hashable) -> None:
        """Drop the index of a key, if there is one."""
        old = self.entries.pop(key, None)
        if old is None:
            return
        version, index = old
        self.nbytes -= index.nbytes
        if _is_of_file(version):
            keys = self.of_file[version]
            keys.discard(key)
            if not keys:
                del self.of_file[version]

    def drop_versions(self, versions: set[Hashable] | None) -> None:
        """Drop the indexes that are kept under some versions of files; under any if ``versions`` is None."""
        for version in list(self.of_file) if versions is None else self.of_file.keys() & versions:
            for key in list(self.of_file[version]):
                self.drop(key)


class ShardIndexCache:
    """Decoded shard indexes of one array; the least recently used ones are dropped first.

    An index is used only while the version of its value (``VersionedStore.version``) stays the same, so a rewritten
    shard is never read with its old index. Indexes from stores without versions are not kept. The version of a file is
    as precise as the times of the file system; :func:`forget_written` sees to what this process writes itself.

    What is kept is taken out of the cache while it is changed. So the handler of a signal that comes in the middle
    finds nothing, and an interrupt leaves nothing that is half changed: a cache may forget. What the handler leaves
    there stays, and the rest is forgotten, as the handler may have dropped some of it.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        # One item, or none while it is changed.
        self._kept: dict[None, _Kept] = {None: _Kept()}
        self._limit = limit_bytes

    def get(self, key: Hashable, version: Hashable) -> Index | None:
        """Return the index kept under ``key`` if it has that version."""
        with _cache_lock.lock:
            try:
                entries = self._kept[None].entries
                entries.move_to_end(key)
            except KeyError:
                return None
            entry = entries.get(key)
        # Versions may be objects of a third-party store, so they are compared without the lock.
        return None if entry is None or entry[0] != version else entry[1]

    def last(self, key: Hashable) -> tuple[Hashable, Index] | None:
        """Return the version and the index kept under ``key``, which may be out of date."""
        with _cache_lock.lock:
            kept = self._kept.get(None)
            return None if kept is None else kept.entries.get(key)

    def drop(self, key: Hashable) -> None:
        """Forget the index kept under ``key``."""
        with _cache_lock.lock:
            kept = self._taken()
            kept.drop(key)
            self._kept.setdefault(None, kept)

    def put(self, key: Hashable, version: Hashable, index: Index) -> None:
        """Keep an index; drop old ones until the rest fits the limit."""
        if index.nbytes > self._limit // 4 or isinstance(version, FreshVersion):
            return
        # A view of an answer would keep all of its memory.
        index = index if index.base is None else index.copy()
        with _cache_lock.lock:
            kept = self._taken()
            is_known = bool(kept.of_file)
            kept.add(key, version, index, self._limit)
            if kept.of_file and not is_known:
                _caches[id(self)] = self
            self._kept.setdefault(None, kept)

    def may_have_files(self) -> bool:
        """Return whether there may be an index of a file; to be called with the lock held."""
        kept = self._kept.get(None)
        return kept is None or bool(kept.of_file)

    def drop_versions(self, versions: set[Hashable] | None) -> None:
        """Forget the indexes kept under some versions of files, or any; to be called with the lock held."""
        kept = self._taken()
        kept.drop_versions(versions)
        self._kept.setdefault(None, kept)

    def _taken(self) -> _Kept:
        return self._kept.pop(None, None) or _Kept()

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardIndexCache, (self._limit,)


# Caches that have kept the index of a file, by identity. To be used with the lock held, or in one step.
_caches: WeakValueDictionary[int, ShardIndexCache] = WeakValueDictionary()


def _is_of_file(version: Hashable) -> bool:
    # Third-party stores have versions of any class, which must not be hashed or compared with the lock held.
    return type(version) is tuple and all(type(part) is int for part in version)


def forget_written(versions_of: Callable[[Sequence[str]], Mapping[str, Hashable]], keys: ChunkKeys) -> None:
    """Drop the indexes that this process keeps under the versions that shards have now that it has written them.

    They are of other files: file systems use the number of an erased file again, and their times may be coarse.

    Parameters
    ----------
    versions_of
        :meth:`gzarr.engines.access.access.Access.versions`, of the store.
    keys
        Keys of the shards.
    """
    with _cache_lock.lock:
        found = [reference() for reference in _caches.valuerefs()]
        caches = [cache for cache in found if cache is not None and cache.may_have_files()]
    if not caches:
        return
    try:
        written = {version for version in versions_of(keys.all()).values() if _is_of_file(version)}
    # Third-party stores may raise anything; the shards are written.
    except Exception as error:
        pass_on(error)
        written = None
    with _cache_lock.lock:
        for cache in caches:
            cache.drop_versions(written)


def index_failure(store: object, code: int, detail: int) -> tuple[type[ChunkError], str]:
    """Return class and reason of the error for the status of a shard's index in a store other than success."""
    if code == codes.IO_ERROR:
        return ChunkReadError, f"the index of its shard cannot be read: {store!r}: {system_error(detail)}"
    if code == codes.DANGLING_LINK:
        return ChunkReadError, dangling(store)
    if code == codes.SHORT_READ:
        return ChunkDecodeError, f"its shard has {detail} bytes, fewer than its index should have: truncated"
    if code == codes.BAD_CHECKSUM:
        return ChunkDecodeError, "the index of its shard does not match its crc32c checksum: corrupt or truncated"
    return ChunkReadError, f"the index of its shard cannot be read (status {code})"


def dangling(store: object) -> str:
    """Return the reason of the error for a store's file that is a link to an absent one."""
    return (
        f"the file is a symbolic link to one that does not exist: {store!r}; fetch its content (git annex get, datalad "
        "get), or remove the link if the chunk is to be absent"
    )


def system_error(code: int) -> str:
    """Return what the system says of an error."""
    return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"


def with_number(error: E, code: int, detail: int) -> E:
    """Return an error for a status, with the system's number if the status has one."""
    if code == codes.IO_ERROR and isinstance(error, OSError):
        error.errno = detail
    return error
