"""Where the chunks of an array are: sharding only changes where the chunks of a plan are.

A plan of a sharded array covers the grid of the innermost chunks. Here each chunk gets its shard's key and, from the
shard's index, its byte range; nested shards are resolved level by level, in columns.

A writer may replace a value after it was looked up and before its chunks are read. So the versions of shards are
compared afterwards, and replaced values are read again: a chunk is either the old or the new one.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from gzarr_kernels import status as codes

from ...codecs.sharding import EMPTY, outside
from ...distinct import distinct
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ValueSizeError, with_errno
from ...plan.keys import ChunkKeys, distinct_rows
from ...plan.planner import some_chunks
from ...reasons import pass_on, reason_of
from ...stores import io_threads
from .. import monitor, pool
from .shard import Shard, entries_of, index_failure, ranges_in, with_number
from .sources import ABSENT, IN_SHARD, WHOLE, Sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding
    from ...plan.decode_program import Decoding
    from ...plan.planner import Plan
    from ...stores.base import Answer
    from .access import Access

    IntArray = npt.NDArray[np.int64]
    E = TypeVar("E", bound=ChunkError)

#: Up to this many shards are looked up one by one, first in the cache; the indexes of more are read together.
FEW_SHARDS: Final = 4
#: Bytes of indexes that are read together.
BATCH_BYTES: Final = 8 << 20
#: How often all shards are read again, from a remote store, before they are read one by one.
FEW_ATTEMPTS: Final = 3
#: How often one shard, or an archive, is read again because it was replaced during the read.
MOST_ATTEMPTS = 100
#: Largest shard, decoded, that is fetched with one request. Of a larger one, ranges are fetched side by side.
MOST_BYTES: Final = 8 << 20
#: Share of the chunks of a shard that must be wanted.
LEAST_SHARE: Final = 0.9


class Locator:
    """Finds the chunks of one array.

    Parameters
    ----------
    access
        Access to its values.
    decoding
        Its analysed codec chain.
    encoding, prefix
        Chunk key encoding of chunks or outermost shards, and the node's path with a trailing slash.
    node
        Path of the array, for error messages.
    shape
        Shape of the array, in elements.
    """

    def __init__(
        self,
        access: Access,
        decoding: Decoding,
        encoding: ChunkKeyEncoding,
        prefix: str,
        node: str,
        shape: tuple[int, ...],
    ) -> None:
        self._access, self._encoding, self._prefix, self._node = access, encoding, prefix, node
        self._levels, self._chunk, self._most_encoded = decoding.levels, decoding.chunk, decoding.most_encoded
        # Number of chunks along each dimension.
        self._grid_shape = np.array([-(-n // c) for n, c in zip(shape, self._chunk.shape, strict=True)], np.int64)
        self._shards: dict[tuple[int, tuple[int, ...]], Shard] = {}

    def read(self, plan: Plan, read: Callable[[Plan, Sources], None], *, at_once: bool = False) -> None:
        """Read the chunks of a plan, each shard's from one version of it.

        Parameters
        ----------
        plan
            The plan, over innermost chunks.
        read
            Function that reads planned chunks from their sources. It is called again for values that were replaced
            during the read, if that can be told.
        at_once
            Whether shards in a remote store may be fetched as a whole.

        Raises
        ------
        ChunkError
            If an index is corrupt, the store or ``read`` fails, or a value is replaced every time it is read.
        """
        attempt = partial(self._attempt, read=read, at_once=at_once)
        if not self._levels:
            what = repr(self._access.store)
            self._repeat(attempt, plan, what, plan.chunks[:1])
            return
        for _ in range(FEW_ATTEMPTS if self._access.remote else 1):
            replaced, failed = attempt(plan)
            if not replaced:
                return
        # One shard at a time: writers cannot keep up with that, however many shards there are.
        shards, shard_of = self._shards_of(plan)
        for i, key in enumerate(shards.all()):
            if failed or key in replaced:
                self._repeat(attempt, some_chunks(plan, np.flatnonzero(shard_of == i)), "its shard", shards.chunks[i:])

    def _repeat(
        self, attempt: Callable[[Plan], tuple[set[str], bool]], plan: Plan, what: str, values: IntArray
    ) -> None:
        """Read until nothing was replaced meanwhile, or fail for the first of some values."""
        for _ in range(MOST_ATTEMPTS):
            if not attempt(plan)[0]:
                return
        reason = f"{what} was replaced during each of {MOST_ATTEMPTS} reads; try again later"
        key = ChunkKeys(self._encoding, self._prefix, values)[0]
        raise ChunkReadError(reason, node=self._node, chunk=tuple(plan.chunks[0].tolist()), key=key)

    def _attempt(self, plan: Plan, *, read: Callable[[Plan, Sources], None], at_once: bool) -> tuple[set[str], bool]:
        """Read; return the keys of values that were replaced during the read, and whether it failed, maybe for that."""
        for way in (True, False) if at_once else (False,):
            versions: dict[str, Hashable] = {}
            try:
                # All threads of the read wait for the indexes.
                with monitor.spent(monitor.current(), "store", pool.thread_count()):
                    sources = self.locate(plan, versions, at_once=way)
                read(plan, sources)
            except ChunkError as error:
                if way and isinstance(error.__cause__, ValueSizeError):
                    # A shard may have more bytes than its chunks need.
                    continue
                replaced = self._access.replaced(versions, error)
                if not replaced:
                    raise
                return replaced, True
            break
        return self._access.replaced(versions, None), False

    def _shards_of(self, plan: Plan) -> tuple[ChunkKeys, IntArray]:
        """Return the keys of the outermost shards, and the shard of each chunk."""
        shards, shard_of = distinct_rows(self._levels[0].locate(plan.chunks, self._levels[-1].inner_shape)[0])
        return ChunkKeys(self._encoding, self._prefix, shards), shard_of

    def _shard(self, depth: int, coords: IntArray) -> Shard:
        """Return the layout of the shards at a level, in the outermost shard at some grid coordinates."""
        level = self._levels[depth]
        shape = level.stored_shape if level.uneven is None else level.stored_shape_of(coords.tolist())
        shard = self._shards.get((depth, shape))
        if shard is None:
            # Several threads may do this at once.
            shard = self._shards[depth, shape] = Shard.of(level, shape)
        return shard

    def locate(self, plan: Plan, versions: dict[str, Hashable], *, at_once: bool = False) -> Sources:
        """Return the sources of the chunks of a plan.

        Parameters
        ----------
        plan, at_once
            As for :meth:`read`.
        versions
            Dictionary to fill: key → version of each existing shard before its index was read, if the store has
            versions.

        Raises
        ------
        ChunkDecodeError
            If an index is corrupt.
        ChunkReadError
            If the store fails.
        """
        access, levels = self._access, self._levels
        if not levels:
            return Sources.whole_chunks(self._encoding, self._prefix, plan)
        n, chunks = len(plan), plan.chunks
        keys, shard_of = self._shards_of(plan)
        key_index = shard_of
        offset, nbytes = np.zeros(n, np.int64), np.full(n, WHOLE, np.int64)

        def index_error(row: int, cause: Exception) -> ChunkError:
            reason = f"the index of its shard cannot be read: {reason_of(cause)}"
            if isinstance(cause, ValueError):
                return self._failure(ChunkDecodeError, plan, row, keys, key_index, reason)
            return with_errno(self._failure(ChunkReadError, plan, row, keys, key_index, reason), cause)

        for depth, level in enumerate(levels):
            _, inner, counts = level.locate(chunks, levels[-1].inner_shape)
            entry = entries_of(level.order, counts, inner)
            if at_once and self._may_fetch_shards:
                nbytes[self._wanted(keys.chunks, counts, shard_of)[shard_of]] = IN_SHARD
            if depth == 0 and len(keys) > FEW_SHARDS and self._can_locate_together(keys, versions):
                # Shards of as many chunks differ in nothing else that matters.
                per_shard = np.broadcast_to(counts, chunks.shape).prod(axis=1)
                for count in distinct(per_shard).tolist():
                    rows = np.flatnonzero(per_shard == count)
                    which, of = np.unique(shard_of[rows], return_inverse=True)
                    some = ChunkKeys(self._encoding, self._prefix, keys.chunks[which])
                    shard = self._shard(0, some.chunks[0])
                    offset[rows], nbytes[rows] = self._locate_together(shard, some, of, entry[rows], plan, rows)
                continue
            # Group the rows by shard. Below the first level, each byte range is a shard of its own.
            if depth == 0:
                group_of = np.where(nbytes == IN_SHARD, -1, shard_of)
            else:
                _, group_of = distinct_rows(np.stack([key_index, offset], axis=1))
                group_of[nbytes == ABSENT] = -1
            order = np.argsort(group_of, kind="stable")
            order = order[np.count_nonzero(group_of < 0) :]
            groups = np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1) if len(order) else []

            def resolve(i: int, groups: list[IntArray] = groups, depth: int = depth, entry: IntArray = entry) -> None:
                rows = groups[i]
                first = int(rows[0])
                name = keys[int(key_index[first])], int(offset[first]), int(nbytes[first])
                try:
                    shard = self._shard(depth, keys.chunks[shard_of[first]])
                    index = access.index(shard, name, entry[rows], versions)
                except ChunkDecodeError:
                    raise
                # Third-party stores may raise anything; invalid bytes are a ValueError from here.
                except Exception as cause:
                    raise index_error(first, cause) from cause
                if index is None:
                    offset[rows], nbytes[rows] = 0, ABSENT
                else:
                    offset[rows], nbytes[rows] = ranges_in(index[entry[rows]], name[1])

            # In threads if there are many, since reading an index waits for the store.
            if access.remote:
                io_threads.call_all([partial(resolve, i) for i in range(len(groups))])
            else:
                pool.each(resolve, len(groups), min(pool.thread_count(), len(groups) // 4))

        def find_in_shard(rows: IntArray, answer: Answer) -> None:
            row = int(rows[0])
            assert answer.value is not None
            try:
                index = self._shard(0, keys.chunks[shard_of[row]]).index_in(answer.value)
            except ValueError as cause:
                raise index_error(row, cause) from cause
            if answer.version is not None:
                access.indexes.put((keys[int(key_index[row])], 0, WHOLE), answer.version, index)
            offset[rows], nbytes[rows] = ranges_in(index[entry[rows]])

        if not access.remote:
            return Sources(keys, key_index, offset, nbytes)  # type: ignore[arg-type]
        needed = [versions.get(key) for key in keys.all()]
        # Gaps between the chunks of a shard that is fetched as a whole may make up half of it.
        most = 2 * (MOST_BYTES // max(self._chunk.nbytes, 1)) * self._most_encoded
        most += self._shard(0, keys.chunks[0]).index_nbytes if len(keys) else 0
        return Sources(keys, key_index, offset, nbytes, needed, find_in_shard, most)  # type: ignore[arg-type]

    @property
    def _may_fetch_shards(self) -> bool:
        """Whether shards can be fetched as a whole at all."""
        access, levels = self._access, self._levels
        return access.remote and not access.packed and len(levels) == 1 and levels[0].uneven is None

    def _wanted(self, shards: IntArray, counts: IntArray, shard_of: IntArray) -> npt.NDArray[np.bool_]:
        """Return which shards to fetch as a whole, bool ``(m,)``: the shards of which most is wanted.

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
        inside = np.clip(self._grid_shape - shards * counts, 0, counts).prod(axis=1)
        read = np.bincount(shard_of, minlength=len(shards))
        found: npt.NDArray[np.bool_] = (read >= LEAST_SHARE * inside) & (inside * self._chunk.nbytes <= MOST_BYTES)
        return found

    def _failure(self, kind: type[E], plan: Plan, row: int, keys: ChunkKeys, key_of: IntArray, reason: str) -> E:
        chunk = tuple(plan.chunks[row].tolist())
        return kind(reason, node=self._node, chunk=chunk, key=keys[int(key_of[row])])

    def _can_locate_together(self, keys: ChunkKeys, versions: dict[str, Hashable]) -> bool:
        """Return whether the indexes of many shards can be read in batches; add the shards' versions then."""
        access = self._access
        if not access.reads_indexes(self._shard(0, keys.chunks[0]), keys):
            return False
        try:
            versions.update(access.versions(keys.all()))
        # Third-party stores may raise anything; reading one after the other reports the error, with its chunk.
        except Exception as error:
            pass_on(error)
            return False
        return True

    def _locate_together(
        self, shard: Shard, keys: ChunkKeys, shard_of: IntArray, entry: IntArray, plan: Plan, every: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Return offsets and sizes of chunks, from the indexes of many shards, which are read in batches.

        Chunk ``every[i]`` of the plan is entry ``entry[i]`` of shard ``shard_of[i]``.
        """
        offset, nbytes = np.zeros(len(every), np.int64), np.zeros(len(every), np.int64)
        batch = max(BATCH_BYTES // (16 * max(shard.chunks, 1)), 1)
        order = np.argsort(shard_of, kind="stable")
        bounds = np.searchsorted(shard_of[order], np.arange(0, len(keys) + batch, batch))
        key_of = np.zeros(len(plan), np.int64)
        key_of[every] = shard_of
        for begin, (a, b) in zip(range(0, len(keys), batch), pairwise(bounds.tolist()), strict=False):
            rows = order[a:b]
            some = ChunkKeys(self._encoding, self._prefix, keys.chunks[begin : begin + batch])
            try:
                entries, file_nbytes, status = self._access.read_indexes(shard, some)
            # Third-party stores may raise anything.
            except Exception as cause:
                reason = f"the index of its shard cannot be read: {reason_of(cause)}"
                row = int(every[rows[0]])
                raise with_errno(self._failure(ChunkReadError, plan, row, keys, key_of, reason), cause) from cause
            which = shard_of[rows] - begin
            found = entries[which, entry[rows]]
            size = file_nbytes[which].astype(np.uint64)
            code = status[which, 0]
            # Entries are undefined, and may look like entries of absent chunks, where the index could not be read.
            found[code != 0] = EMPTY
            bad = ((code != 0) & (code != codes.ABSENT)) | outside(found, size)
            if bad.any():
                i = int(np.argmax(bad))
                kind: type[ChunkError] = ChunkDecodeError
                begins, length = found[i].tolist()
                reason = f"its shard's index gives it {length} bytes from byte {begins} on; the shard has {size[i]}"
                failed, detail = status[which[i]].tolist()
                if failed:
                    kind, reason = index_failure(self._access.store, failed, detail)
                raise with_number(self._failure(kind, plan, int(every[rows[i]]), keys, key_of, reason), failed, detail)
            offset[rows], nbytes[rows] = ranges_in(found)
        return offset, nbytes
