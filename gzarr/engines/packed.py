"""Reads from stores whose values are parts of one value of another store (zip archives).

Such a read becomes one of byte ranges of that value, as the chunks of a shard are: so neighbours are fetched together,
a local file is read by compiled code, or past host memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels import status as codes

from ..codecs.crc32c import crc32c
from ..errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueReplacedError
from ..plan.keys import ChunkKeys
from ..stores.base import ByteRange, PackedValues, RemoteValues, versions_of
from . import failures
from .request import ABSENT, WHOLE, Packing, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from ..stores.base import ReadableStore
    from .request import ReadRequest

#: How often a read is repeated because the value that holds the others was replaced meanwhile.
MOST_ATTEMPTS: Final = 100


def holder(store: ReadableStore) -> ReadableStore:
    """Return the store that chunks are read from."""
    return store.holder() if isinstance(store, PackedValues) else store


def read(request: ReadRequest, run: Callable[[ReadRequest], None]) -> None:
    """Run an engine over a read, from where its bytes are.

    If these were replaced during the read, whole values are read again; the chunks of shards are not, since only the
    caller can read the indexes of the shards again (:func:`gzarr.engines.shards.read_shards`).

    Raises
    ------
    ChunkError
        If ``run`` raises it, or a chunk cannot be found.
    """
    store = request.store
    if not isinstance(store, PackedValues) or not len(request.plan):
        run(request)
        return
    parts = bool((request.sources.nbytes >= 0).any())
    for _ in range(MOST_ATTEMPTS):
        found, version = _unpacked(request, store, parts)
        failure = None
        try:
            run(found)
        except ChunkError as error:
            failure = error
        replaced = failure is not None and isinstance(failure.__cause__, ValueReplacedError)
        if replaced:
            store.forget(version)
        if found is request:
            replaced = False
        elif not replaced:
            replaced = not store.is_current(version)
        if failure is not None and (parts or not replaced):
            raise failure
        if parts or not replaced:
            return
    reason = f"{store!r} was replaced during each of {MOST_ATTEMPTS} reads; try again later"
    raise request.failure(ChunkReadError, 0, reason)


def can_read_indexes(store: ReadableStore, keys: Sequence[str]) -> bool:
    """Return whether :func:`read_indexes` can read the indexes of some shards."""
    if not isinstance(store, PackedValues) or isinstance(store, RemoteValues):
        return False
    try:
        return store.extents(keys, parts=True) is not None
    # Third-party stores may raise anything; reading one after the other reports the error.
    except Exception:
        return False


def read_indexes(
    store: PackedValues, keys: Sequence[str], chunks_per_shard: int, *, checksum: bool, at_start: bool
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read the indexes of some shards with one call of the store that holds them.

    Parameters
    ----------
    store
        Store of the shards, with :func:`can_read_indexes`.
    keys
        Keys of the shards.
    chunks_per_shard, checksum, at_start
        As for :func:`gzarr.engines.cpu.shard_indexes.read_indexes`; so is the result.

    Raises
    ------
    StoreError
        If the store fails.
    """
    extents = store.extents(keys, parts=True)
    if extents is None:
        raise ValueReplacedError(f"{store!r} was replaced meanwhile")
    n, entries_nbytes = len(keys), 16 * chunks_per_shard
    nbytes = entries_nbytes + 4 * checksum
    entries = np.zeros((n, chunks_per_shard, 2), np.uint64)
    status = np.zeros((n, 2), np.int64)
    size = np.maximum(extents.nbytes, 0)
    status[size < nbytes, 0], status[:, 1] = codes.SHORT_READ, size
    status[extents.nbytes < 0, 0] = codes.ABSENT
    rows = np.flatnonzero(status[:, 0] == codes.OK)
    begin = extents.offset[rows] + (0 if at_start else size[rows] - nbytes)
    parts = extents.store.get_partial_values([(extents.key, ByteRange(at, nbytes)) for at in begin.tolist()])
    for row, part in zip(rows.tolist(), parts, strict=True):
        if part is None or len(part) != nbytes:
            raise ValueReplacedError(f"{store!r} was replaced meanwhile")
        if checksum and crc32c(np.frombuffer(part, np.uint8)[:-4]) != int.from_bytes(part[-4:], "little"):
            status[row, 0] = codes.BAD_CHECKSUM
        entries[row] = np.frombuffer(part, "<u8", 2 * chunks_per_shard).reshape(-1, 2)
    return entries, size, status


def _unpacked(request: ReadRequest, store: PackedValues, parts: bool) -> tuple[ReadRequest, Hashable | None]:
    """Return the same read from the store that holds the values, and the version of the value there.

    The request itself if engines must read values as they are.
    """
    sources = request.sources
    keys = sources.keys.all() if isinstance(sources.keys, ChunkKeys) else sources.keys
    try:
        extents = store.extents(keys, parts=parts)
        if extents is None:
            return request, None
        if sources.versions is not None:
            _check_versions(request, sources, store)
    except ChunkError:
        raise
    # Third-party stores may raise anything.
    except Exception as error:
        raise failures.store_failure(request, 0, error) from error
    index = sources.key_index
    size, stored = extents.size[index], extents.nbytes[index]
    whole = sources.nbytes == WHOLE
    absent = (sources.nbytes == ABSENT) | (whole & (stored < 0))
    begin, nbytes = sources.offset, np.where(whole, size, sources.nbytes)
    # Otherwise a wrong index of a shard would make a chunk of something else in the archive.
    outside = ~absent & ((stored < 0) | (begin < 0) | (begin > size) | (nbytes > size - begin))
    if outside.any():
        row = int(np.argmax(outside))
        there = f"its shard has {int(size[row])}" if stored[row] >= 0 else "its shard was erased"
        reason = f"its shard's index gives it {int(nbytes[row])} bytes from byte {int(begin[row])} on; {there}"
        raise request.failure(ChunkDecodeError if stored[row] >= 0 else ChunkReadError, row, reason)
    large = whole & ~absent & (size > request.most_encoded)
    if large.any():
        row = int(np.argmax(large))
        reason = f"it has {int(size[row])} bytes; a chunk of this array has at most {request.most_encoded}"
        raise request.failure(ChunkDecodeError, row, reason)
    if extents.unwrap is not None:
        nbytes = stored
    packed = Sources(
        keys=[extents.key],
        key_index=np.zeros(len(index), np.int64),
        offset=np.where(absent, 0, extents.offset[index] + begin),
        nbytes=np.where(absent, ABSENT, nbytes),
        versions=[extents.version] if isinstance(extents.store, RemoteValues) else None,
        packing=Packing(sources.keys, index, extents.unwrap),
    )
    return replace(request, store=extents.store, sources=packed), extents.version


def _check_versions(request: ReadRequest, sources: Sources, store: Any) -> None:
    """Refuse values that are not those whose index was read."""
    assert sources.versions is not None
    for i, (needed, found) in enumerate(zip(sources.versions, versions_of(store, sources.keys), strict=True)):
        if needed is not None and found != needed:
            row = int(np.argmax(sources.key_index == i))
            cause = ValueReplacedError(f"{sources.keys[i]!r} was replaced meanwhile")
            raise failures.store_failure(request, row, cause) from cause
