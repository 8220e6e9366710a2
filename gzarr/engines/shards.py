"""From chunks to byte ranges: sharding only changes where the chunks of a plan are.

A plan of a sharded array covers the grid of the innermost chunks. Here each chunk gets its shard's key and, from the
shard's index, its byte range; nested shards are resolved level by level, in columns.

A writer may replace a shard after its index is read and before its chunks are. So the versions of shards are compared
afterwards, and replaced shards are read again: a chunk is either the old or the new one.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels import status as status_codes

from ..codecs.bytes import BytesCodec
from ..codecs.crc32c import Crc32cCodec
from ..codecs.sharding import EMPTY
from ..errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueSizeError
from ..plan.keys import ChunkKeys, distinct_rows, file_prefix
from ..plan.planner import chunk_keys, some_chunks
from ..stores.base import ByteRange, LocalFiles, VersionedStore, versions_of
from . import failures, kernels, pool
from .cpu import shard_indexes
from .forks import ForkSafeLock
from .request import ABSENT, WHOLE, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from ..metadata.model import ChunkKeyEncoding
    from ..plan.decode_program import ShardLevel
    from ..plan.planner import Plan
    from ..stores.base import ReadableStore

    IntArray = npt.NDArray[np.int64]
    Index = npt.NDArray[np.uint64]

#: Most bytes of decoded shard indexes that an array keeps.
CACHE_BYTES = 16 << 20
#: Up to this many shards are looked up one by one, first in the cache; compiled code reads the indexes of more.
FEW_SHARDS = 4
#: Bytes of indexes that compiled code reads at a time.
BATCH_BYTES = 8 << 20
#: How often one shard is read again because it was replaced during the read.
MOST_ATTEMPTS = 100


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


def whole_chunks(encoding: ChunkKeyEncoding, prefix: str, plan: Plan) -> Sources:
    """Return the sources of an array without shards: each chunk is a whole value."""
    n = len(plan)
    keys: Any = ChunkKeys(encoding, prefix, plan.chunks)
    return Sources(keys, np.arange(n), np.zeros(n, np.int64), np.full(n, WHOLE, np.int64))


def read_shards(
    levels: Sequence[ShardLevel],
    encoding: ChunkKeyEncoding,
    prefix: str,
    plan: Plan,
    store: ReadableStore,
    node: str,
    cache: ShardIndexCache,
    read: Callable[[Plan, Sources], None],
) -> None:
    """Read the chunks of a plan over innermost chunks, each from one version of its shard.

    Parameters
    ----------
    levels, encoding, prefix, plan, store, node, cache
        As for :func:`locate`.
    read
        Function that reads planned chunks from their sources. It is called again for shards that were replaced during
        the read, if the store can tell (``VersionedStore``).

    Raises
    ------
    ChunkError
        If an index is corrupt, the store or ``read`` fails, or a shard is replaced every time it is read.
    """

    def attempt(part: Plan) -> tuple[set[str], ChunkError | None]:
        """Read; return the keys of shards that were replaced during the read, and the failure that this may explain."""
        versions: dict[str, Hashable] = {}
        failure = None
        try:
            read(part, locate(levels, encoding, prefix, part, store, node, cache, versions))
        except ChunkError as error:
            failure = error
        replaced = _replaced(store, versions)
        if failure is not None and not replaced:
            raise failure
        return replaced, failure

    replaced, failure = attempt(plan)
    if not replaced:
        return
    # One shard at a time: writers cannot keep up with that, however many shards there are.
    shards, shard_of = distinct_rows(levels[0].locate(plan.chunks, levels[-1].inner_shape)[0])
    for i, key in enumerate(chunk_keys(encoding, prefix, shards)):
        if failure is None and key not in replaced:
            continue
        part = some_chunks(plan, np.flatnonzero(shard_of == i))
        for _ in range(MOST_ATTEMPTS):
            if not attempt(part)[0]:
                break
        else:
            reason = f"its shard was replaced during each of {MOST_ATTEMPTS} reads; try again later"
            raise ChunkReadError(reason, node=node, chunk=tuple(part.chunks[0].tolist()), key=key)


def _replaced(store: ReadableStore, versions: dict[str, Hashable]) -> set[str]:
    """Return the keys whose values no longer have these versions."""
    if not isinstance(store, VersionedStore):
        return set()
    try:
        now = versions_of(store, versions)
        return {key for (key, version), found in zip(versions.items(), now, strict=True) if found != version}
    # Third-party stores may raise anything; reading again reports the error.
    except Exception:
        return set(versions)


def locate(
    levels: Sequence[ShardLevel],
    encoding: ChunkKeyEncoding,
    prefix: str,
    plan: Plan,
    store: ReadableStore,
    node: str,
    cache: ShardIndexCache,
    versions: dict[str, Hashable],
) -> Sources:
    """Return the sources of the chunks of a plan over innermost chunks.

    Parameters
    ----------
    levels
        Levels of shards, outermost first; at least one.
    encoding, prefix
        Chunk key encoding of the outermost shards, and the node's path with a trailing slash.
    plan
        Plan over the grid of the innermost chunks.
    store, node
        Store of the shards; path of the array, for error messages.
    cache
        Index cache of this array.
    versions
        Dictionary to fill: key → version of each existing shard before its index was read, if the store has versions.

    Raises
    ------
    ChunkDecodeError
        If an index is corrupt.
    ChunkReadError
        If the store fails.
    """
    n = len(plan)
    chunks = plan.chunks
    innermost = levels[-1].inner_shape
    shards, shard_of = distinct_rows(levels[0].locate(chunks, innermost)[0])
    keys: Any = ChunkKeys(encoding, prefix, shards)
    key_index = shard_of
    offset = np.zeros(n, np.int64)
    nbytes = np.full(n, WHOLE, np.int64)
    for depth, level in enumerate(levels):
        _, inner, counts = level.locate(chunks, innermost)
        linear = np.zeros(n, np.int64)
        for d in level.order:
            linear = linear * counts[..., d] + inner[:, d]
        if depth == 0 and len(shards) > FEW_SHARDS and _plain_index(level, store):
            if isinstance(store, VersionedStore):
                names = keys.all()
                found = zip(names, versions_of(store, names), strict=True)
                versions.update((key, version) for key, version in found if version is not None)
            per_shard = np.broadcast_to(counts, chunks.shape).prod(axis=1)
            for count in np.unique(per_shard).tolist():
                rows = np.flatnonzero(per_shard == count)
                which, of = np.unique(shard_of[rows], return_inverse=True)
                some = ChunkKeys(encoding, prefix, shards[which])
                located = _locate_in_files(level, count, some, of, linear[rows], chunks[rows], store, node)
                offset[rows], nbytes[rows] = located
            continue
        # Group the rows by shard. Below the first level, each byte range is a shard of its own.
        if depth == 0:
            group_of = shard_of
        else:
            _, group_of = distinct_rows(np.stack([key_index, offset], axis=1))
            group_of[nbytes == ABSENT] = -1
        order = np.argsort(group_of, kind="stable")
        bounds = np.flatnonzero(np.diff(group_of[order], prepend=np.int64(-2)))
        groups = [
            order[a:b]
            for a, b in zip(bounds.tolist(), [*bounds.tolist()[1:], n], strict=True)
            if group_of[order[a]] >= 0
        ]

        def resolve(
            i: int, groups: list[IntArray] = groups, level: ShardLevel = level, linear: IntArray = linear
        ) -> None:
            rows = groups[i]
            first = int(rows[0])
            key = keys[int(key_index[first])]
            base = int(offset[first])
            size = int(nbytes[first])
            try:
                shape = level.stored_shape_of(shards[shard_of[first]].tolist())
                index = _index(store, cache, level, shape, key, base, size, versions)
            except ChunkDecodeError:
                raise
            # Third-party stores may raise anything; invalid bytes are a ValueError from here.
            except Exception as cause:
                chunk = tuple(chunks[first].tolist())
                kind = ChunkDecodeError if isinstance(cause, ValueError) else ChunkReadError
                reason = f"the index of its shard cannot be read: {cause}"
                raise kind(reason, node=node, chunk=chunk, key=key) from cause
            if index is None:
                nbytes[rows] = ABSENT
                offset[rows] = 0
                return
            entries = index[linear[rows]]
            absent = entries[:, 0] == EMPTY
            offset[rows] = np.where(absent, 0, entries[:, 0].astype(np.int64) + base)
            nbytes[rows] = np.where(absent, ABSENT, entries[:, 1].astype(np.int64))

        # In threads if there are many, since reading an index waits for the store.
        pool.each(resolve, len(groups), min(pool.thread_count(), len(groups) // 4))
    return Sources(keys, key_index, offset, nbytes)


def _plain_index(level: ShardLevel, store: ReadableStore) -> bool:
    """Return whether compiled code can read the indexes: local files, plain entries, at most a crc32c after them."""
    if "loop" not in kernels.available() or "crc32c" not in kernels.available():
        return False
    if not isinstance(store, LocalFiles) or store.file_root() is None:
        return False
    first, *rest = level.codec.index_codecs
    plain = isinstance(first, BytesCodec) and first.endian == "little" and first.stored_dtype is None
    return plain and (not rest or (len(rest) == 1 and isinstance(rest[0], Crc32cCodec)))


def _locate_in_files(
    level: ShardLevel,
    per_shard: int,
    keys: ChunkKeys,
    shard_of: IntArray,
    linear: IntArray,
    chunks: IntArray,
    store: ReadableStore,
    node: str,
) -> tuple[IntArray, IntArray]:
    """Return offsets and sizes of chunks, from the indexes of many shards in local files, in batches of shards.

    All shards have ``per_shard`` inner chunks; chunk ``i`` is entry ``linear[i]`` of shard ``shard_of[i]``.
    """
    assert isinstance(store, LocalFiles)
    root = store.file_root()
    assert root is not None
    path_prefix = file_prefix(root, keys.prefix, keys.encoding, chunks.shape[1])
    offset, nbytes = np.zeros(len(chunks), np.int64), np.zeros(len(chunks), np.int64)
    batch = max(BATCH_BYTES // (16 * per_shard), 1)
    order = np.argsort(shard_of, kind="stable")
    bounds = np.searchsorted(shard_of[order], np.arange(0, len(keys) + batch, batch))
    for begin, (a, b) in zip(range(0, len(keys), batch), pairwise(bounds.tolist()), strict=False):
        rows = order[a:b]
        entries, file_nbytes, status = shard_indexes.read_indexes(
            path_prefix,
            keys.encoding,
            keys.chunks[begin : begin + batch],
            per_shard,
            checksum=len(level.codec.index_codecs) > 1,
            at_start=level.codec.index_location == "start",
        )
        which = shard_of[rows] - begin
        found = entries[which, linear[rows]]
        size = file_nbytes[which].astype(np.uint64)
        code = status[which, 0]
        # Entries are undefined, and may look like those of absent chunks, where the index could not be read.
        absent = (code == 0) & (found[:, 0] == EMPTY) & (found[:, 1] == EMPTY)
        absent |= code == status_codes.ABSENT
        # Both terms are compared with the size first, so that their sum cannot wrap around.
        inside = (found[:, 0] <= size) & (found[:, 1] <= size)
        inside &= np.where(inside, found[:, 0] + found[:, 1], np.uint64(0)) <= size
        bad = ~absent & ((code != 0) | ~inside)
        if bad.any():
            i = int(np.argmax(bad))
            row = int(rows[i])
            chunk, key = tuple(chunks[row].tolist()), keys[int(shard_of[row])]
            if code[i]:
                kind, reason = failures.index_failure(*status[which[i]].tolist())
                raise kind(reason, node=node, chunk=chunk, key=key)
            begins, length = found[i].tolist()
            reason = f"its shard's index gives it {length} bytes from byte {begins} on; the shard has {int(size[i])}"
            raise ChunkDecodeError(reason, node=node, chunk=chunk, key=key)
        offset[rows] = np.where(absent, 0, found[:, 0].astype(np.int64))
        nbytes[rows] = np.where(absent, ABSENT, found[:, 1].astype(np.int64))
    return offset, nbytes


def _index(
    store: ReadableStore,
    cache: ShardIndexCache,
    level: ShardLevel,
    shape: tuple[int, ...],
    key: str,
    base: int,
    size: int,
    versions: dict[str, Hashable],
) -> Index | None:
    """Return the index of one shard as ``(inner chunks, 2)``, or None if the store has no such shard.

    ``shape`` is the shape of the shard as stored; ``base`` and ``size`` are its byte range in the value of ``key``, and
    ``size`` is ``WHOLE`` for the whole value.
    """
    name = (key, base, size)
    version = store.version(key) if isinstance(store, VersionedStore) else None
    if version is not None:
        # Keep the version from before the outer index was read; that of an inner shard is taken later.
        versions.setdefault(key, version)
    if version is not None and (hit := cache.get(name, version)) is not None:
        return hit
    nbytes = level.codec.index_nbytes(shape)
    at_start = level.codec.index_location == "start"
    if size == WHOLE:
        wanted = ByteRange(0, nbytes) if at_start else ByteRange(-nbytes)
    else:
        if size < nbytes:
            raise ValueError(f"the inner shard has {size} bytes, too few for an index of {nbytes}")
        wanted = ByteRange(base if at_start else base + size - nbytes, nbytes)
    try:
        data = store.get_partial_values([(key, wanted)])[0]
    except ValueSizeError as error:
        raise ValueError(f"the shard is shorter than its index of {nbytes} bytes: {error}") from error
    if data is None:
        if size != WHOLE:
            raise ValueError("the shard was erased during the read")
        return None
    index = level.codec.decode_index(data, shape, shard_nbytes=None if size == WHOLE else size).reshape(-1, 2)
    if version is not None:
        cache.put(name, version, index)
    return index
