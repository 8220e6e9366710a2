"""Writing in host threads, for any codec and any store; partly changed chunks are read, modified and written back.

A stored value is replaced in one step or not at all. Untouched chunks of a shard keep their bytes and are not decoded.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from ...codecs.buffers import flat
from ...codecs.chain import decode_chain, encode_chain
from ...codecs.codec import ArrayRepresentation
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ChunkWriteError, ValueReplacedError, ValueSizeError
from ...plan.decode_program import analyse, most_taken
from ...reasons import pass_on, reason_of
from ...stores import locks
from ...stores.base import ByteRange, Request
from .. import failures, kernels, pool
from ..access.shard import NewShard, Shard, ranges_in
from ..access.sources import ABSENT
from .threads import fill_chunk, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

T = TypeVar("T")
#: In place of a stored value that is too large to be read as a whole.
_LARGE: Final = object()
#: How often the old content of a shard is read, if others replace it meanwhile.
_MOST_ATTEMPTS: Final = 100
#: Types of objects that are the same if they are equal.
_EXACT: Final = frozenset({str, bytes, int, bool, type(None)})


def write(request: WriteRequest, rows: IntArray | None = None, *, already: int = 0) -> None:
    """Write planned chunks.

    Parameters
    ----------
    request
        The write.
    rows
        int64 ``(n,)``, planned chunks to write; None for all.
    already
        Number of stored values of the request that were written before this call, for error messages.

    Raises
    ------
    ChunkWriteError
        If the store fails or a codec cannot encode a chunk.
    ChunkReadError, ChunkDecodeError
        If a stored value that is to be partly changed cannot be read. After any of these errors, every stored value is
        complete; some still hold their old content.
    """
    if rows is None:
        rows = np.arange(len(request.plan))
    order = np.argsort(request.value_of[rows], kind="stable")
    rows = rows[order]
    first = np.flatnonzero(np.diff(request.value_of[rows], prepend=np.int64(-1)))
    groups = np.split(rows, first[1:])
    fill = fill_chunk(request.fill_value, request.chunk)
    complete = complete_values(request)
    done = count()

    def write_value(i: int) -> None:
        _write_value(request, groups[i], fill, complete=bool(complete[request.value_of[groups[i][0]]]))
        next(done)

    try:
        held = request.chunk.nbytes * max(-(-len(rows) // max(len(groups), 1)), 1)
        request.access.each_value(write_value, len(groups), held, pool.thread_count())
    except ChunkError as error:
        # Only now have the other threads finished the values that they were writing.
        raise failures.with_count(error, already + next(done), already + len(groups)) from error.__cause__


def _write_value(request: WriteRequest, rows: IntArray, fill: npt.NDArray[Any], *, complete: bool) -> None:
    """Write the planned chunks of one stored value, which they overwrite completely or in part."""
    key = request.keys[int(request.value_of[rows[0]])]
    with locks.lock_of(request.store, key):
        if request.shard is None:
            parts = _chunk(request, int(rows[0]), key, fill)
        else:
            parts = _shard(request, request.shard, rows, key, fill, complete=complete)
        request.store_value(int(rows[0]), parts)


def _read(request: WriteRequest, row: int, read: Callable[[], T]) -> T:
    """Return what ``read`` returns of the old stored value that has a planned chunk."""
    try:
        return read()
    except ValueSizeError as cause:
        reason = f"the write changes only part of it, and it is truncated, or too large: {reason_of(cause)}"
        raise request.failure(ChunkDecodeError, row, reason) from cause
    # Third-party stores may raise anything.
    except Exception as cause:
        reason = f"the write changes only part of it, and the store failed to read it: {reason_of(cause)}"
        raise request.failure(ChunkReadError, row, reason) from cause


def _chunk(request: WriteRequest, row: int, key: str, fill: npt.NDArray[Any]) -> list[Any]:
    """Return the new content of a stored value that is one chunk, in parts; none to erase it."""
    stored = None
    if not replaced_rows(request, np.array([row]))[0]:
        try:
            stored = _old_value(request, row, key)
        except ChunkDecodeError:
            # As where it cannot be decoded.
            if not request.whole[row]:
                raise
    if stored is not None and request.whole[row] and request.is_current():
        # Nobody has appended anything to it, and filters need not preserve the fill value that it has beyond the array.
        stored = None
    encoded = _changed(request, row, fill, stored)
    return [] if encoded is None else [encoded.data]


def _old_value(request: WriteRequest, row: int, key: str) -> Any:
    """Return a stored value that is a planned chunk; None if it is absent."""
    try:
        return _read(request, row, lambda: request.access.whole(key, request.most_encoded))
    except ChunkDecodeError:
        # What is planned and decoded as one chunk may be a shard: nested, or one of several shapes.
        levels = analyse(request.codecs, request.chunk, kernels.available()).levels
        if not levels:
            raise
    codec, stored_shape = levels[0].codec, levels[0].stored_shape
    shard = Shard.of(levels[0], stored_shape)
    most = most_taken(codec.codecs, codec.inner(ArrayRepresentation(stored_shape, request.chunk.dtype)))
    none = np.empty(0, np.int64)
    chunks = _OldShard(request, shard, row, key, most).chunks(none, none)
    without_gaps = NewShard(shard)
    without_gaps.add(list(chunks), [part.size for part in chunks.values()], chunks.values())
    return b"".join(without_gaps.parts()) if chunks else None


def _changed(
    request: WriteRequest, row: int, fill: npt.NDArray[Any], stored: Any | None
) -> npt.NDArray[np.uint8] | None:
    """Return a planned chunk, changed and encoded, or None if it should not be stored.

    ``stored`` is its old encoded content; None if it is absent or does not matter.
    """
    chunk = _before(request, row, fill, stored)
    target = chunk if request.field is None else chunk[request.field]
    for which, inside, outside in pieces(request.plan, row):
        source = request.inputs[which]
        if request.plan.points is not None:
            target[inside] = source.flat[outside]
        else:
            target[(*inside, ...)] = source[(*outside, ...)]
    if not request.write_empty_chunks and is_fill(chunk, fill):
        return None
    try:
        return flat(encode_chain(request.codecs, chunk, request.chunk))
    except ChunkError:
        raise
    # Codec libraries may raise anything.
    except Exception as cause:
        reason = f"its elements cannot be encoded: {reason_of(cause)}"
        raise request.failure(ChunkWriteError, row, reason) from cause


def _before(request: WriteRequest, row: int, fill: npt.NDArray[Any], stored: Any | None) -> npt.NDArray[Any]:
    """Return the old elements of a chunk."""
    if stored is None:
        return np.array(fill)
    try:
        return np.array(decode_chain(request.codecs, stored, request.chunk))
    except Exception as cause:
        pass_on(cause)
        if request.whole[row]:
            # Every element within the array is overwritten, so nothing is lost, and the chunk becomes readable again.
            return np.array(fill)
        reason = f"the write changes only part of it, and its stored bytes cannot be decoded: {reason_of(cause)}"
        raise request.failure(ChunkDecodeError, row, reason) from cause


def is_fill(chunk: npt.NDArray[Any], fill: npt.NDArray[Any]) -> bool:
    """Return whether every element is the fill value, bit for bit (the sign of zero and a NaN's payload count).

    Objects are compared by :func:`is_same_object`.
    """
    if not chunk.size:
        return True
    one = fill[(0,) * fill.ndim]
    if chunk.dtype.hasobject:
        kind = type(one)
        if kind in _EXACT:
            return all(type(item) is kind and item == one for item in chunk.flat)
        return all(is_same_object(item, one) for item in chunk.flat)
    elements = chunk.reshape(-1).view(np.uint8).reshape(chunk.size, -1)
    pattern = np.array([one], chunk.dtype).view(np.uint8)
    # In most chunks that are not empty, the first elements already differ.
    return bool((elements[:64] == pattern).all()) and bool((elements == pattern).all())


def is_same_object(item: Any, other: Any) -> bool:
    """Return whether two objects are certain to be the same in every respect; others may only be equal, as 1 and True.

    That is known of plain values, and of lists, tuples and dictionaries of them.
    """
    kind = type(item)
    if kind is not type(other):
        return False
    if kind in _EXACT:
        return bool(item == other)
    if kind is float:
        return bool(item == other) and math.copysign(1, item) == math.copysign(1, other)
    if kind is dict:
        # In the same order, too.
        item, other = ([part for pair in one.items() for part in pair] for one in (item, other))
    elif kind not in (list, tuple):
        return False
    return len(item) == len(other) and all(map(is_same_object, item, other))


# -- shards


def _shard(
    request: WriteRequest, shard: Shard, rows: IntArray, key: str, fill: npt.NDArray[Any], *, complete: bool
) -> list[Any]:
    """Return the new content of a shard, in parts; none to erase it."""
    parts: dict[int, Any] = {}
    whole, replaced = request.whole[rows], replaced_rows(request, rows)
    entries = shard.entries(request.plan.chunks[rows])
    if not complete or request.beyond[request.value_of[rows[0]]]:
        old = _OldShard(request, shard, int(rows[0]), key, request.most_encoded)
        is_needed = old.is_there
        if is_needed and (complete or (whole & ~replaced).any()) and request.is_current():
            # As for a chunk.
            replaced = whole
            is_needed = not complete
        if is_needed:
            parts = old.chunks(entries[replaced], None if complete else entries[whole])
    for row, entry, new in zip(rows.tolist(), entries.tolist(), replaced.tolist(), strict=True):
        parts[entry] = _changed(request, row, fill, None if new else parts.get(entry))
    made = NewShard(shard)
    stored = [(entry, parts[entry]) for entry in sorted(parts) if parts[entry] is not None]
    made.add([entry for entry, _ in stored], [part.size for _, part in stored], [part.data for _, part in stored])
    return made.parts()


class _OldShard:
    """The old content of a shard that a write changes in part.

    Parameters
    ----------
    request, shard
        The write, and the layout of its shards.
    row
        A planned chunk in the shard.
    key
        Key of the shard.
    most_encoded
        Most bytes of an inner chunk.

    Attributes
    ----------
    is_there
        Whether there is such a value.
    """

    def __init__(self, request: WriteRequest, shard: Shard, row: int, key: str, most_encoded: int) -> None:
        self._request, self._shard, self._row, self._key = request, shard, row, key
        self._most_encoded = most_encoded
        most = shard.index_nbytes + shard.chunks * most_encoded

        def read() -> Any:
            try:
                return request.access.whole(key, most)
            except ValueSizeError:
                # There may be gaps between its inner chunks, which are read one by one.
                return _LARGE

        self._load: Callable[[], Any] = lambda: _read(request, row, read)
        self._data: Any = self._load()
        self.is_there: bool = self._data is not None

    def chunks(self, replaced: IntArray, overwritten: IntArray | None) -> dict[int, Any]:
        """Return the encoded inner chunks, by their entries.

        Parameters
        ----------
        replaced
            int64, entries that are left out.
        overwritten
            int64, entries whose elements within the array are overwritten: they are left out if they cannot be read.
            None if these are all that the shard has within the array, so that a corrupt index does not matter, either.

        Raises
        ------
        ChunkDecodeError
            If the index is corrupt, or gives a chunk more bytes than any encoder.
        ChunkReadError
            If the store fails, or others replace the shard each time that it is read.
        """
        for _ in range(_MOST_ATTEMPTS):
            if self._data is not _LARGE:
                return {} if self._data is None else self._chunks(replaced, overwritten)
            # The index and the chunks are read by calls of their own, so they may be of two versions.
            version = self._version()
            try:
                found, failure = self._chunks(replaced, overwritten), None
            except ChunkError as error:
                found, failure = {}, error
            if self._version() == version:
                if failure is not None:
                    raise failure
                return found
            self._data = self._load()
        reason = (
            f"the write changes only part of its shard, which others replaced during each of {_MOST_ATTEMPTS} reads"
        )
        raise self._request.failure(ChunkReadError, self._row, reason)

    def _version(self) -> Hashable | None:
        """Return the version of the shard; None if the store cannot tell."""
        access, key = self._request.access, self._key

        def ask() -> Hashable | None:
            if not access.remote:
                return access.version(key)
            (answer,) = access.store.get_many([Request(key, ByteRange(0, 1))])
            if answer.error is not None:
                raise answer.error
            version: Hashable | None = answer.version
            return version

        return _read(self._request, self._row, ask)

    def _chunks(self, replaced: IntArray, overwritten: IntArray | None) -> dict[int, Any]:
        """Return what :meth:`chunks` does, of the shard as it is."""
        request, shard, data = self._request, self._shard, self._data
        try:
            index = shard.read_index(self._part) if data is _LARGE else shard.index_in(data)
        except ValueError as cause:
            if overwritten is None:
                return {}
            reason = f"the write changes only part of its shard, whose index cannot be read: {reason_of(cause)}"
            raise request.failure(ChunkDecodeError, self._row, reason) from cause
        offset, nbytes = ranges_in(shard.empty_index() if index is None else index)
        nbytes[replaced] = ABSENT
        large = np.flatnonzero(nbytes > self._most_encoded)
        refused = large[:0] if overwritten is None else np.setdiff1d(large, overwritten)
        if len(refused):
            raise self._too_large(int(refused[0]), int(nbytes[refused[0]]))
        nbytes[large] = ABSENT
        kept = np.flatnonzero(nbytes >= 0)
        where = list(zip(offset[kept].tolist(), nbytes[kept].tolist(), strict=True))
        if data is _LARGE:
            ranges = [ByteRange(begin, size) for begin, size in where]
            bodies = _read(request, self._row, lambda: self._parts(ranges))
        else:
            bodies = [np.frombuffer(data, np.uint8, size, begin) for begin, size in where]
        return dict(zip(kept.tolist(), bodies, strict=True))

    def _part(self, where: ByteRange) -> Any:
        return _read(self._request, self._row, lambda: self._parts([where])[0])

    def _parts(self, where: list[ByteRange]) -> list[npt.NDArray[np.uint8]]:
        parts: list[Any] = self._request.store.get_partial_values([(self._key, one) for one in where])
        if any(part is None for part in parts):
            raise ValueReplacedError(f"{self._request.store!r}: {self._key!r} was erased meanwhile", key=self._key)
        return [flat(part) for part in parts]

    def _too_large(self, entry: int, nbytes: int) -> ChunkDecodeError:
        request = self._request
        reason = (
            f"the write changes only part of its shard, whose index gives it {nbytes} bytes; a chunk of this array has "
            f"at most {self._most_encoded}"
        )
        if request.shard is None:
            return request.failure(ChunkDecodeError, self._row, f"inner chunk {entry}: {reason}")
        shard = request.keys.chunks[int(request.value_of[self._row])].tolist()
        return ChunkDecodeError(reason, node=request.node, chunk=self._shard.chunk_of(shard, entry), key=self._key)


def replaced_rows(request: WriteRequest, rows: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of some planned chunks are overwritten with all they can hold beyond the array, bool ``(n,)``."""
    if request.shard is None:
        return request.whole[rows] & ~request.beyond[request.value_of[rows]]
    inner = np.array(request.shard.level.inner_shape, np.int64)
    ragged = (np.array(request.shape, np.int64) - request.plan.chunks[rows] * inner < inner).any(axis=1)
    return np.asarray(request.whole[rows] & ~ragged)


def kept_in_part(request: WriteRequest, values: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of some stored values hold, or may hold, elements beyond the array, which have to be kept.

    To be called with the values' locks held.
    """
    kept = request.beyond[values]
    some = np.flatnonzero(kept)
    if len(some):
        kept[some] = request.access.contains([request.keys[value] for value in values[some].tolist()])
    return np.zeros_like(kept) if kept.any() and request.is_current() else kept


def complete_values(request: WriteRequest) -> npt.NDArray[np.bool_]:
    """Return bool ``(s,)``: whether a stored value is overwritten completely, as far as it lies within the array."""
    whole = np.bincount(request.value_of[request.whole], minlength=len(request.keys))
    if request.shard is None:
        return np.asarray(whole == 1)
    level = request.shard.level
    shard, inner = np.array(level.shard_shape, np.int64), np.array(level.inner_shape, np.int64)
    within = np.minimum(shard, np.array(request.shape, np.int64) - request.keys.chunks * shard)
    return np.asarray(whole == np.prod(-(-within // inner), axis=1))
