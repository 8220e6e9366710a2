"""How engines reach the values of a store, chosen once for each array; and a read as an engine takes it.

Here is the way for any store, by plain calls. Others are in :mod:`gzarr.engines.access.files`,
:mod:`gzarr.engines.access.requests` and :mod:`gzarr.engines.access.packed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import numpy as np

from ...errors import (
    ChunkDecodeError,
    ChunkError,
    ChunkReadError,
    StoreError,
    ValueReplacedError,
    ValueSizeError,
    with_errno,
)
from ...reasons import pass_on, reason_of
from ...stores.base import ByteRange, PresenceStore, SizedStore, VersionedStore, WritableFiles, versions_of
from .. import pool
from ..monitor import spent
from .answers import flat_bytes
from .shard import ShardIndexCache
from .sources import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from ...codecs.codec import ArrayRepresentation, Codec
    from ...plan.keys import ChunkKeys
    from ...plan.planner import Plan
    from ...stores.base import FileWriter
    from ..monitor import Monitor
    from .shard import Index, Shard
    from .sources import Sources

    E = TypeVar("E", bound=ChunkError)
    IntArray = npt.NDArray[np.int64]

Missing: TypeAlias = Literal["fill", "error"]
#: Whether the host checks frames by decoding them before a device's decoder sees them.
Verify: TypeAlias = Literal["none", "cpu"]
#: Ways of values to the compiled loop.
LoopWay: TypeAlias = Literal["compiled loop, files", "compiled loop, requests", "compiled loop, batches"]

#: Most chunks, and bytes of chunks, that one thread fetches at a time by plain calls.
BATCH_CHUNKS: Final = 64
BATCH_BYTES: Final = 8 << 20


class Access:
    """Access to the values of one array by plain calls, each of which a thread waits for.

    Parameters
    ----------
    store
        The store.

    Attributes
    ----------
    way
        How values come to the compiled loop: it reads files itself, or is given encoded bytes.
    root
        Absolute ``root`` where ``key`` is the file ``root/key``; None if the values are not files.
    remote
        Whether values are fetched by requests, of which many should be in progress at once.
    version
        Function that returns the version of the value of a key, None if the store cannot tell.
    packed, holder
        Whether values are parts of one value of another store; access to what chunks are read from.
    indexes
        Known indexes of the array's shards.
    """

    way: LoopWay = "compiled loop, batches"
    root: bytes | None = None
    remote: bool = False
    packed: bool = False

    def __init__(self, store: Any) -> None:
        self.store = store
        self.indexes: ShardIndexCache = ShardIndexCache()
        self._versioned = isinstance(store, VersionedStore)
        self.version: Callable[[str], Hashable | None] = store.version if self._versioned else _no_version
        self._sized = isinstance(store, SizedStore)

    @property
    def holder(self) -> Access:
        """As above."""
        return self

    # -- indexes of shards

    def versions(self, keys: Sequence[str]) -> dict[str, Hashable]:
        """Return the versions of those values that have one."""
        found = versions_of(self.store, keys) if self._versioned else []
        return {key: version for key, version in zip(keys, found, strict=False) if version is not None}

    def replaced(self, versions: dict[str, Hashable], failure: ChunkError | None) -> set[str]:
        """Return the keys of values that were replaced during a read.

        Parameters
        ----------
        versions
            Versions of the values before it.
        failure
            Its failure, which this may explain, or None.
        """
        if not versions:
            return set()
        try:
            now = self.versions(list(versions))
            return {key for key, version in versions.items() if now.get(key) != version}
        # Third-party stores may raise anything; reading again reports the error.
        except Exception as error:
            pass_on(error)
            return set(versions)

    def index(
        self, shard: Shard, name: tuple[str, int, int], entries: IntArray, versions: dict[str, Hashable]
    ) -> Index | None:
        """Return the index of one shard, or None if it is absent.

        Parameters
        ----------
        shard
            Its layout.
        name
            Key of the value that holds the shard, and its byte range there, as for :meth:`Shard.read_index`.
        entries
            int64, entries that are wanted.
        versions
            Dictionary of versions before indexes were read, to which that of this value is added.

        Raises
        ------
        ValueError, Exception
            As :meth:`Shard.read_index`.
        """
        key, base, size = name
        version = self.version(key)
        if version is not None:
            # Keep the version from before the outer index was read; that of an inner shard is taken later.
            versions.setdefault(key, version)
            if (hit := self.indexes.get(name, version)) is not None:
                return hit
        index = shard.read_index(lambda part: self._ranges([(key, part)])[0], base, size)
        if version is not None and index is not None:
            self.indexes.put(name, version, index)
        return index

    def reads_indexes(self, shard: Shard, keys: ChunkKeys) -> bool:
        """Return whether :meth:`read_indexes` can read the indexes of some shards."""
        return False

    def read_indexes(self, shard: Shard, keys: ChunkKeys) -> tuple[Index, IntArray, IntArray]:
        """Read the indexes of many shards together.

        Parameters
        ----------
        shard
            Their layout, with plain indexes.
        keys
            Their keys.

        Returns
        -------
        entries
            uint64 ``(s, chunks, 2)``, offset and size of each inner chunk. Undefined for shards whose status is not 0.
        file_nbytes
            int64 ``(s,)``, sizes of the shards in bytes.
        status
            int64 ``(s, 2)``, status (``gzarr_kernels.status``) and detail of each shard.
        """
        raise NotImplementedError

    # -- reads

    def read(self, request: ReadRequest, run: Callable[[ReadRequest], None]) -> None:
        """Run an engine over a read, from where its bytes are.

        Raises
        ------
        ChunkError
            If ``run`` raises it, or a chunk cannot be found; the cause is a ValueReplacedError if values were replaced.
        """
        run(request)

    def each(
        self,
        request: ReadRequest,
        rows: IntArray,
        workers: int,
        use: Callable[[IntArray, list[Any]], bool],
        *,
        budget_bytes: int | None = None,
        least_batches: int = 1,
    ) -> None:
        """Fetch some chunks of a read, and use them as they come.

        Parameters
        ----------
        request
            The read.
        rows
            int64, rows of its plan.
        workers
            Number of threads that use chunks.
        use
            Function of some rows and their encoded bytes (None for absent chunks), called in several threads. It
            returns whether to go on; if not, chunks that have not been asked for are left out.
        budget_bytes
            For remote stores: most bytes asked for and not yet used, None for the default; a chunk may be larger.
        least_batches
            For other stores: into how many batches the share of each thread is divided, at least.

        Raises
        ------
        ChunkError
            If a chunk cannot be fetched.
        """
        sources, chunk = request.sources, request.chunk
        # Batches bound the memory, and fetching overlaps decoding. Neighbours in a value are one request.
        rows = sources.in_order(rows)
        most = BATCH_BYTES // max(chunk.nbytes, int(sources.nbytes[rows].max(initial=1)), 1)
        if chunk.dtype.hasobject and (sources.nbytes[rows] == WHOLE).any():
            # Encoded objects may have any size.
            most = 1
        most = max(1, min(most, BATCH_CHUNKS, -(-len(rows) // (workers * least_batches))))

        def use_batch(i: int) -> object:
            batch = rows[i * most : (i + 1) * most]
            return None if use(batch, self.fetch(request, batch)) else pool.STOP

        pool.each(use_batch, -(-len(rows) // most), workers)

    def fetch(self, request: ReadRequest, rows: IntArray) -> list[Any]:
        """Return the encoded bytes of some chunks, None for absent ones.

        Raises
        ------
        ChunkError
            For the chunk that cannot be fetched.
        """
        try:
            with spent(request.monitor, "store"):
                return self.values(request.sources, rows, request.most_encoded, request.monitor)
        # Third-party stores may raise anything.
        except Exception as error:
            pass_on(error)
            if len(rows) > 1:
                # One at a time, to find the chunk that fails.
                return [value for i in range(len(rows)) for value in self.fetch(request, rows[i : i + 1])]
            raise request.store_failure(int(rows[0]), error) from error

    def values(self, sources: Sources, rows: IntArray, most_encoded: int, monitor: Monitor | None = None) -> list[Any]:
        """Return the encoded bytes of some chunks: all byte ranges by one call, in which neighbours are merged.

        Parameters
        ----------
        sources, rows
            Location of the chunks, and which of them.
        most_encoded
            Most bytes of a whole value. Larger ones are refused, before they are read if the store knows their size.
        monitor
            Monitor of the read, or None.

        Raises
        ------
        StoreError
            If the store fails, or returns fewer or more bytes than requested.
        """
        found: dict[int, Any] = {}
        for row in rows[sources.nbytes[rows] == WHOLE].tolist():
            if monitor is not None:
                monitor.check()
            found[row] = self.whole(sources.keys[int(sources.key_index[row])], most_encoded)
        ranges: list[tuple[IntArray, str, ByteRange]] = []
        some = rows[sources.nbytes[rows] >= 0]
        if len(some):
            spans = sources.join(some, gap_bytes=0, most_bytes=1 << 62)
            columns = zip(spans.key_index.tolist(), spans.offset.tolist(), spans.nbytes.tolist(), strict=True)
            for i, (key_index, offset, nbytes) in enumerate(columns):
                ranges.append((spans.of(i), sources.keys[key_index], ByteRange(offset, nbytes)))
        parts = self._ranges([(key, where) for _, key, where in ranges]) if ranges else []
        for (some, key, where), part in zip(ranges, parts, strict=True):
            if part is None:
                if sources.packing is not None:
                    raise ValueReplacedError(f"{self.store!r}: {key!r} was erased meanwhile", key=key)
                continue
            if len(part) != where.length:
                raise StoreError(
                    f"{self.store!r} returned {len(part)} bytes of {key!r} from byte {where.offset} on, "
                    f"expected {where.length}",
                    key=key,
                )
            found.update(zip(some.tolist(), sources.parts(some, where.offset, part), strict=True))
        return list(map(found.get, rows.tolist()))

    def _ranges(self, asked: list[tuple[str, ByteRange]]) -> list[Any]:
        """Return some parts of values as flat bytes, None for absent values."""
        parts = list(self.store.get_partial_values(asked))
        if len(parts) != len(asked):
            raise StoreError(
                f"{self.store!r}: get_partial_values returned {len(parts)} values for {len(asked)} byte ranges"
            )
        return [
            None if part is None else flat_bytes(self.store, key, part)
            for (key, _), part in zip(asked, parts, strict=True)
        ]

    def whole(self, key: str, most_nbytes: int) -> Any:
        """Return a value, None if it is absent.

        Raises
        ------
        ValueSizeError
            If it has more than ``most_nbytes`` bytes. It is not read then, if the store knows its size.
        StoreError, Exception
            If the store fails.
        """
        value = self.store.get_small_values([key], most_nbytes)[0] if self._sized else self.store.get(key)
        if value is None:
            return None
        value = flat_bytes(self.store, key, value)
        if len(value) > most_nbytes:
            raise ValueSizeError(
                f"{self.store!r}: {key!r} has {len(value)} bytes; a chunk of this array has at most {most_nbytes}",
                key=key,
            )
        return value

    # -- writes

    def file_writer(self) -> FileWriter | None:
        """Return the store's writer of files; None if values are to be stored by calls."""
        return self.store.file_writer() if isinstance(self.store, WritableFiles) else None

    def contains(self, keys: Sequence[str]) -> list[bool]:
        """Return whether each key has a value, or may have one."""
        return self.store.contains(keys) if isinstance(self.store, PresenceStore) else [True] * len(keys)

    def each_value(self, work: Callable[[int], object], items: int, value_nbytes: int, workers: int) -> None:
        """Run ``work`` like :func:`gzarr.engines.pool.each`, for items that end with a value being stored.

        Parameters
        ----------
        work, items, workers
            As there. A remote store is waited for, so that more items are worked on at once, in I/O threads.
        value_nbytes
            Most bytes that an item holds in memory, so that their sum is bounded.
        """
        pool.each(work, items, workers)


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """One read.

    Attributes
    ----------
    node
        Path of the array, for error messages (``"/"`` for the root).
    access
        Access to the values of the keys.
    codecs
        Codec chain of a planned chunk (of an inner chunk, in a sharded array), in encoding order.
    chunk
        Shape and dtype of a decoded planned chunk, dimensions in the array's order.
    plan, sources
        The planned chunks and their locations, columns of equal length ``n``.
    outputs
        One view per output, with the plan's ``k`` dimensions; for point selections, the result array as it is. Those
        of many windows are a :class:`gzarr.engines.stack.Stack`.
    field
        Name of the field of a structured dtype to place, or None for whole elements; ``outputs`` have its dtype.
    fill_value
        Value of the elements of an absent chunk, a scalar of ``chunk.dtype``.
    missing
        Whether an absent chunk is filled or is an error.
    most_encoded
        Largest encoded size of a planned chunk by any encoder, in bytes; larger values are not even read.
    budget_bytes
        Most encoded bytes in memory at once when reading from a remote store, or asked for; None for the default.
    monitor
        Monitor of the read, or None.
    """

    node: str
    access: Access
    codecs: tuple[Codec, ...]
    chunk: ArrayRepresentation
    plan: Plan
    sources: Sources
    outputs: Sequence[npt.NDArray[Any]]
    field: str | None
    fill_value: Any
    missing: Missing
    most_encoded: int
    budget_bytes: int | None = None
    monitor: Monitor | None = None

    def failure(self, kind: type[E], row: int, reason: str) -> E:
        """Return an error of class ``kind`` for row ``row`` of the plan."""
        chunk = tuple(self.plan.chunks[row].tolist())
        return kind(reason, node=self.node, chunk=chunk, key=self.sources.key(row))

    def store_failure(self, row: int, cause: Exception) -> ChunkError:
        """Return the error for a chunk that the store failed to return."""
        if isinstance(cause, ValueSizeError):
            return self.failure(ChunkDecodeError, row, f"truncated, or too large: {reason_of(cause)}")
        return with_errno(self.failure(ChunkReadError, row, f"the store failed: {reason_of(cause)}"), cause)

    def refuse_large(self, rows: IntArray | None = None) -> None:
        """Refuse byte ranges from a shard's index that are larger than any encoder's output, before allocating memory.

        Parameters
        ----------
        rows
            int64, rows of the plan; None for all.

        Raises
        ------
        ChunkDecodeError
            For the first such chunk.
        """
        packing = self.sources.packing
        if packing is not None and packing.unwrap is not None:
            # These are whole values, with more bytes around them.
            return
        sizes = self.sources.nbytes if rows is None else self.sources.nbytes[rows]
        large = sizes > self.most_encoded
        if large.any():
            i = int(np.argmax(large))
            most = self.most_encoded
            reason = f"the shard's index gives it {int(sizes[i])} bytes; a chunk of this array has at most {most}"
            raise self.failure(ChunkDecodeError, i if rows is None else int(rows[i]), reason)


def _no_version(_: str) -> None:
    """Return None: the store has no versions."""
