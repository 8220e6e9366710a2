"""From chunks to byte ranges: sharding only changes where the chunks of a plan are.

A plan of a sharded array covers the grid of the innermost chunks. Here each chunk gets its shard's key and, from the
shard's index, its byte range; nested shards are resolved level by level, in columns.

A writer may replace a shard after its index is read and before its chunks are. So the versions of shards are compared
afterwards, and replaced shards are read again: a chunk is either the old or the new one.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels import status as status_codes

from ..codecs.bytes import BytesCodec
from ..codecs.crc32c import Crc32cCodec
from ..codecs.sharding import EMPTY
from ..distinct import distinct
from ..errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueReplacedError, ValueSizeError
from ..plan.keys import ChunkKeys, distinct_rows, file_prefix
from ..plan.planner import chunk_keys, some_chunks
from ..stores import io_threads
from ..stores.base import LocalFiles, PackedValues, RemoteValues, VersionedStore, versions_of
from . import failures, kernels, monitor, packed, pool
from .cpu import shard_indexes
from .remote_shards import WholeShards, index_in, range_of_index, remote_index
from .request import ABSENT, IN_SHARD, WHOLE, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from ..metadata.model import ChunkKeyEncoding
    from ..plan.decode_program import ShardLevel
    from ..plan.planner import Plan
    from ..stores.base import Answer, ReadableStore
    from .shard_cache import ShardIndexCache

    IntArray = npt.NDArray[np.int64]
    Index = npt.NDArray[np.uint64]

#: Up to this many shards are looked up one by one, first in the cache; the indexes of more are read together.
FEW_SHARDS = 4
#: Bytes of indexes that compiled code reads at a time.
BATCH_BYTES = 8 << 20
#: How often all shards are read again, from a remote store, before they are read one by one.
FEW_ATTEMPTS = 3
#: How often one shard is read again because it was replaced during the read.
MOST_ATTEMPTS = 100


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
    whole: WholeShards | None = None,
) -> None:
    """Read the chunks of a plan over innermost chunks, each from one version of its shard.

    Parameters
    ----------
    levels, encoding, prefix, plan, store, node, cache
        As for :func:`locate`.
    read
        Function that reads planned chunks from their sources. It is called again for shards that were replaced during
        the read, if the store can tell (``VersionedStore``).
    whole
        Tells which shards in a remote store to fetch as a whole; None for none.

    Raises
    ------
    ChunkError
        If an index is corrupt, the store or ``read`` fails, or a shard is replaced every time it is read.
    """

    def attempt(part: Plan, whole: WholeShards | None) -> tuple[set[str], ChunkError | None]:
        """Read; return the keys of shards that were replaced during the read, and the failure that this may explain."""
        # No call of itself: only garbage collection frees what a function that refers to itself holds, here outputs.
        for way in (whole, None):
            versions: dict[str, Hashable] = {}
            failure = None
            try:
                # All threads of the read wait for the indexes.
                with monitor.spent(monitor.current(), "store", pool.thread_count()):
                    sources = locate(levels, encoding, prefix, part, store, node, cache, versions, way)
                read(part, sources)
            except ChunkError as error:
                failure = error
            # A shard may have more bytes than its chunks need.
            if way is None or failure is None or not isinstance(failure.__cause__, ValueSizeError):
                break
        if isinstance(store, RemoteValues):
            # Every request names the version that it needs.
            replaced = {failure.key} if failure and isinstance(failure.__cause__, ValueReplacedError) else set()
            for key in replaced:
                cache.drop((key, 0, WHOLE))
        else:
            replaced = _replaced(store, versions)
        if failure is not None and not replaced:
            raise failure
        return replaced, failure

    for _ in range(FEW_ATTEMPTS if isinstance(store, RemoteValues) else 1):
        replaced, failure = attempt(plan, whole)
        if not replaced:
            return
    # One shard at a time: writers cannot keep up with that, however many shards there are.
    shards, shard_of = distinct_rows(levels[0].locate(plan.chunks, levels[-1].inner_shape)[0])
    for i, key in enumerate(chunk_keys(encoding, prefix, shards)):
        if failure is None and key not in replaced:
            continue
        part = some_chunks(plan, np.flatnonzero(shard_of == i))
        for _ in range(MOST_ATTEMPTS):
            if not attempt(part, whole)[0]:
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
    whole: WholeShards | None = None,
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
    whole
        Tells which shards in a remote store to fetch as a whole; None for none.

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
    positions: list[IntArray] = []

    def index_error(row: int, cause: Exception) -> ChunkError:
        kind = ChunkDecodeError if isinstance(cause, ValueError) else ChunkReadError
        reason = f"the index of its shard cannot be read: {cause}"
        return kind(reason, node=node, chunk=tuple(chunks[row].tolist()), key=keys[int(key_index[row])])

    def enter(rows: IntArray, entries: Index, base: int) -> None:
        absent = entries[:, 0] == EMPTY
        offset[rows] = np.where(absent, 0, entries[:, 0].astype(np.int64) + base)
        nbytes[rows] = np.where(absent, ABSENT, entries[:, 1].astype(np.int64))

    def find_in_shard(rows: IntArray, answer: Answer) -> None:
        row = int(rows[0])
        shape = levels[0].stored_shape_of(shards[shard_of[row]].tolist())
        try:
            index = index_in(levels[0], shape, answer)
        except ValueError as cause:
            raise index_error(row, cause) from cause
        if answer.version is not None:
            cache.put((keys[int(key_index[row])], 0, WHOLE), answer.version, index)
        enter(rows, index[positions[0][rows]], 0)

    for depth, level in enumerate(levels):
        _, inner, counts = level.locate(chunks, innermost)
        linear = np.zeros(n, np.int64)
        for d in level.order:
            linear = linear * counts[..., d] + inner[:, d]
        positions.append(linear)
        if whole is not None and whole.possible(levels, store):
            at_once = whole.wanted(shards, counts, shard_of)[shard_of]
            nbytes[at_once] = IN_SHARD
        if depth == 0 and len(shards) > FEW_SHARDS and _plain_index(level, store, keys):
            if isinstance(store, VersionedStore):
                names = keys.all()
                found = zip(names, versions_of(store, names), strict=True)
                versions.update((key, version) for key, version in found if version is not None)
            per_shard = np.broadcast_to(counts, chunks.shape).prod(axis=1)
            for count in distinct(per_shard).tolist():
                rows = np.flatnonzero(per_shard == count)
                which, of = np.unique(shard_of[rows], return_inverse=True)
                some = ChunkKeys(encoding, prefix, shards[which])
                located = _locate_in_files(level, count, some, of, linear[rows], chunks[rows], store, node)
                offset[rows], nbytes[rows] = located
            continue
        # Group the rows by shard. Below the first level, each byte range is a shard of its own.
        if depth == 0:
            group_of = np.where(nbytes == IN_SHARD, -1, shard_of)
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
                if isinstance(store, RemoteValues):
                    index = remote_index(store, cache, level, shape, key, base, size, versions, linear[rows])
                else:
                    index = _index(store, cache, level, shape, key, base, size, versions)
            except ChunkDecodeError:
                raise
            # Third-party stores may raise anything; invalid bytes are a ValueError from here.
            except Exception as cause:
                raise index_error(first, cause) from cause
            if index is None:
                nbytes[rows] = ABSENT
                offset[rows] = 0
                return
            enter(rows, index[linear[rows]], base)

        # In threads if there are many, since reading an index waits for the store.
        if isinstance(store, RemoteValues):
            io_threads.call_all([partial(resolve, i) for i in range(len(groups))])
        else:
            pool.each(resolve, len(groups), min(pool.thread_count(), len(groups) // 4))
    needed = [versions.get(key) for key in keys] if isinstance(store, RemoteValues) else None
    most = 0 if whole is None else whole.most_nbytes(levels[0])
    return Sources(keys, key_index, offset, nbytes, needed, find_in_shard, most)


def _plain_index(level: ShardLevel, store: ReadableStore, keys: ChunkKeys) -> bool:
    """Return whether indexes can be read together: plain entries, at most a crc32c after them, in local files.

    Compiled code reads those of files, and one call those that are parts of one file.
    """
    first, *rest = level.codec.index_codecs
    plain = isinstance(first, BytesCodec) and first.endian == "little" and first.stored_dtype is None
    if not plain or not (not rest or (len(rest) == 1 and isinstance(rest[0], Crc32cCodec))):
        return False
    if isinstance(store, PackedValues):
        return packed.can_read_indexes(store, keys.all())
    if "loop" not in kernels.available() or "crc32c" not in kernels.available():
        return False
    return isinstance(store, LocalFiles) and store.file_root() is not None


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
    read = _index_reader(level, per_shard, keys, store)
    offset, nbytes = np.zeros(len(chunks), np.int64), np.zeros(len(chunks), np.int64)
    batch = max(BATCH_BYTES // (16 * per_shard), 1)
    order = np.argsort(shard_of, kind="stable")
    bounds = np.searchsorted(shard_of[order], np.arange(0, len(keys) + batch, batch))
    for begin, (a, b) in zip(range(0, len(keys), batch), pairwise(bounds.tolist()), strict=False):
        rows = order[a:b]
        try:
            entries, file_nbytes, status = read(slice(begin, begin + batch))
        # Third-party stores may raise anything.
        except Exception as cause:
            row = int(rows[0])
            reason = f"the index of its shard cannot be read: {cause}"
            chunk, key = tuple(chunks[row].tolist()), keys[int(shard_of[row])]
            raise ChunkReadError(reason, node=node, chunk=chunk, key=key) from cause
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


def _index_reader(
    level: ShardLevel, per_shard: int, keys: ChunkKeys, store: ReadableStore
) -> Callable[[slice], tuple[Index, IntArray, IntArray]]:
    """Return the function that reads the indexes of some of the shards, as ``shard_indexes.read_indexes`` does."""
    how = {"checksum": len(level.codec.index_codecs) > 1, "at_start": level.codec.index_location == "start"}
    if isinstance(store, PackedValues):
        holding = store
        return lambda some: packed.read_indexes(holding, keys[some], per_shard, **how)
    root = store.file_root() if isinstance(store, LocalFiles) else None
    assert root is not None
    prefix = file_prefix(root, keys.prefix, keys.encoding, keys.chunks.shape[1])
    return lambda some: shard_indexes.read_indexes(prefix, keys.encoding, keys.chunks[some], per_shard, **how)


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
    wanted = range_of_index(level, shape, base, size)
    try:
        data = store.get_partial_values([(key, wanted)])[0]
    except ValueSizeError as error:
        raise ValueError(f"the shard is too short for its index: {error}") from error
    if data is None:
        if size != WHOLE:
            raise ValueError("the shard was erased during the read")
        return None
    index = level.codec.decode_index(data, shape, shard_nbytes=None if size == WHOLE else size).reshape(-1, 2)
    if version is not None:
        cache.put(name, version, index)
    return index
