"""Stores whose values are parts of one value of another store (zip archives).

A read from them becomes one of byte ranges of that value, as the chunks of a shard are: so neighbours are fetched
together, a local file is read by compiled code, or past host memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels import status as codes

from ...codecs.crc32c import crc32c
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueReplacedError
from ...reasons import pass_on
from ...stores.base import ByteRange, versions_of
from .access import Access
from .requests import Requests
from .sources import ABSENT, WHOLE, Packing, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy.typing as npt

    from ...plan.keys import ChunkKeys
    from ...stores.base import ReadableStore
    from .access import ReadRequest
    from .shard import Index, Shard

    IntArray = npt.NDArray[np.int64]


class PackedCalls(Access):
    """Access to values that are parts of one value.

    Parameters
    ----------
    store
        The store of the values (``PackedValues``).
    access_to
        :func:`gzarr.engines.access.choose.access_to`, for the store that holds them.
    """

    packed: bool = True

    def __init__(self, store: Any, access_to: Callable[[ReadableStore], Access]) -> None:
        super().__init__(store)
        self._access_to = access_to
        self._held: Access | None = None

    @property
    def holder(self) -> Access:
        """As :attr:`Access.holder`."""
        return self._access_to_holder(self.store.holder())

    def _access_to_holder(self, store: ReadableStore) -> Access:
        held = self._held
        if held is None or held.store is not store:
            held = self._held = self._access_to(store)
        return held

    def replaced(self, versions: dict[str, Hashable], failure: ChunkError | None) -> set[str]:
        """As :meth:`Access.replaced`; :meth:`read` finds it out, too."""
        found = super().replaced(versions, failure)
        if failure is not None and isinstance(failure.__cause__, ValueReplacedError):
            found.add(failure.key or "")
        return found

    def reads_indexes(self, shard: Shard, keys: ChunkKeys) -> bool:
        """As :meth:`Access.reads_indexes`."""
        try:
            return shard.plain and not self.remote and self.store.extents(keys.all(), parts=True) is not None
        # Third-party stores may raise anything; reading one after the other reports the error.
        except Exception as error:
            pass_on(error)
            return False

    def read_indexes(self, shard: Shard, keys: ChunkKeys) -> tuple[Index, IntArray, IntArray]:
        """As :meth:`Access.read_indexes`, by one call of the store that holds the values."""
        extents = self.store.extents(keys.all(), parts=True)
        if extents is None:
            raise ValueReplacedError(f"{self.store!r} was replaced meanwhile")
        n, nbytes = len(keys), shard.index_nbytes
        entries, status = np.zeros((n, shard.chunks, 2), np.uint64), np.zeros((n, 2), np.int64)
        size = np.maximum(extents.nbytes, 0)
        status[size < nbytes, 0], status[:, 1] = codes.SHORT_READ, size
        status[extents.nbytes < 0, 0] = codes.ABSENT
        rows = np.flatnonzero(status[:, 0] == codes.OK)
        begin = extents.offset[rows] + (0 if shard.at_start else size[rows] - nbytes)
        parts = extents.store.get_partial_values([(extents.key, ByteRange(at, nbytes)) for at in begin.tolist()])
        for row, part in zip(rows.tolist(), parts, strict=True):
            if part is None or len(part) != nbytes:
                raise ValueReplacedError(f"{self.store!r} was replaced meanwhile")
            if shard.checksum and crc32c(np.frombuffer(part, np.uint8)[:-4]) != int.from_bytes(part[-4:], "little"):
                status[row, 0] = codes.BAD_CHECKSUM
            entries[row] = np.frombuffer(part, "<u8", 2 * shard.chunks).reshape(-1, 2)
        return entries, size, status

    def read(self, request: ReadRequest, run: Callable[[ReadRequest], None]) -> None:
        """As :meth:`Access.read`.

        Chunks of shards are not looked for again: their indexes may be others.
        """
        parts = bool((request.sources.nbytes >= 0).any())
        found, version = self._unpacked(request, parts) if len(request.plan) else (request, None)
        try:
            run(found)
        except ChunkError as error:
            if isinstance(error.__cause__, ValueReplacedError):
                self.store.forget(version)
                raise
            if found is request or parts or self.store.is_current(version):
                raise
        else:
            if found is request or parts or self.store.is_current(version):
                return
        cause = ValueReplacedError(f"{self.store!r} was replaced meanwhile")
        raise request.store_failure(0, cause) from cause

    def _unpacked(self, request: ReadRequest, parts: bool) -> tuple[ReadRequest, Hashable | None]:
        """Return the same read from the store that holds the values, and the version of the value there.

        The request itself if engines must read values as they are.
        """
        sources = request.sources
        try:
            extents = self.store.extents(sources.all_keys(), parts=parts)
            if extents is None:
                return request, None
            if sources.versions is not None:
                self._check_versions(request, sources)
        except ChunkError:
            raise
        # Third-party stores may raise anything.
        except Exception as error:
            raise request.store_failure(0, error) from error
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
        held = self._access_to_holder(extents.store)
        packed = Sources(
            keys=[extents.key],
            key_index=np.zeros(len(index), np.int64),
            offset=np.where(absent, 0, extents.offset[index] + begin),
            nbytes=np.where(absent, ABSENT, nbytes if extents.unwrap is None else stored),
            versions=[extents.version] if held.remote else None,
            packing=Packing(sources.keys, index, extents.unwrap),
        )
        return replace(request, access=held, sources=packed), extents.version

    def _check_versions(self, request: ReadRequest, sources: Sources) -> None:
        """Refuse values that are not those whose index was read."""
        assert sources.versions is not None
        for i, (needed, found) in enumerate(zip(sources.versions, versions_of(self.store, sources.keys), strict=True)):
            if needed is not None and found != needed:
                row = int(np.argmax(sources.key_index == i))
                cause = ValueReplacedError(f"{sources.keys[i]!r} was replaced meanwhile")
                raise request.store_failure(row, cause) from cause


class PackedRequests(PackedCalls, Requests):
    """Access to values that are parts of one value of a remote store."""
