"""Writing in host threads, for any codec and any store; partly changed chunks are read, modified and written back.

A stored value is replaced in one step or not at all. Untouched chunks of a shard keep their bytes and are not decoded.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...codecs.buffers import flat
from ...codecs.chain import decode_chain, encode_chain
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ChunkWriteError
from ...stores import locks
from .. import failures, pool
from ..access.shard import NewShard, ranges_in
from ..reasons import reason_of
from .threads import fill_chunk, pieces

if TYPE_CHECKING:
    from ..access.shard import Shard
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]


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
    with locks.hold(request.store, [key]):
        if request.shard is None:
            parts = _chunk(request, int(rows[0]), key, fill)
        else:
            parts = _shard(request, request.shard, rows, key, fill, complete=complete)
        request.store_value(int(rows[0]), parts)


def _get(request: WriteRequest, row: int, key: str) -> bytes | None:
    try:
        return request.store.get(key)
    except Exception as cause:
        reason = f"the write changes only part of it, and the store failed to read it: {reason_of(cause)}"
        raise request.failure(ChunkReadError, row, reason) from cause


def _chunk(request: WriteRequest, row: int, key: str, fill: npt.NDArray[Any]) -> list[Any]:
    """Return the new content of a stored value that is one chunk, in parts; none to erase it."""
    stored = None if replaced_rows(request, np.array([row]))[0] else _get(request, row, key)
    if stored is not None and request.whole[row] and request.is_current():
        # Nobody has appended anything to it, and filters need not preserve the fill value that it has beyond the array.
        stored = None
    encoded = _changed(request, row, fill, stored)
    return [] if encoded is None else [encoded.data]


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
        if request.whole[row]:
            # Every element within the array is overwritten, so nothing is lost, and the chunk becomes readable again.
            return np.array(fill)
        reason = f"the write changes only part of it, and its stored bytes cannot be decoded: {reason_of(cause)}"
        raise request.failure(ChunkDecodeError, row, reason) from cause


def is_fill(chunk: npt.NDArray[Any], fill: npt.NDArray[Any]) -> bool:
    """Return whether every element is the fill value, bit for bit (the sign of zero and a NaN's payload count)."""
    if not chunk.size:
        return True
    one = fill[(0,) * fill.ndim]
    if chunk.dtype.hasobject:
        return all(type(item) is type(one) and item == one for item in chunk.flat)
    elements = chunk.reshape(-1).view(np.uint8).reshape(chunk.size, -1)
    pattern = np.array([one], chunk.dtype).view(np.uint8)
    # In most chunks that are not empty, the first elements already differ.
    return bool((elements[:64] == pattern).all()) and bool((elements == pattern).all())


# -- shards


def _shard(
    request: WriteRequest, shard: Shard, rows: IntArray, key: str, fill: npt.NDArray[Any], *, complete: bool
) -> list[Any]:
    """Return the new content of a shard, in parts; none to erase it."""
    first = int(rows[0])
    parts: dict[int, Any] = {}
    whole, replaced = request.whole[rows], replaced_rows(request, rows)
    data = None
    if not complete or request.beyond[request.value_of[first]]:
        data = _get(request, first, key)
        if data is not None and (complete or (whole & ~replaced).any()) and request.is_current():
            # As for a chunk.
            replaced = whole
            data = None if complete else data
    if data is not None or not complete:
        try:
            offset, nbytes = ranges_in(shard.empty_index() if data is None else shard.index_in(data))
            kept = np.flatnonzero(nbytes >= 0)
            for entry, begin, size in zip(kept.tolist(), offset[kept].tolist(), nbytes[kept].tolist(), strict=True):
                parts[entry] = np.frombuffer(data or b"", np.uint8, size, begin)
        except ValueError as cause:
            if not complete:
                reason = f"the write changes only part of its shard, whose index cannot be read: {reason_of(cause)}"
                raise request.failure(ChunkDecodeError, first, reason) from cause
    entries = shard.entries(request.plan.chunks[rows]).tolist()
    for row, entry, new in zip(rows.tolist(), entries, replaced.tolist(), strict=True):
        parts[entry] = _changed(request, row, fill, None if new else parts.get(entry))
    made = NewShard(shard)
    stored = [(entry, parts[entry]) for entry in sorted(parts) if parts[entry] is not None]
    made.add([entry for entry, _ in stored], [part.size for _, part in stored], [part.data for _, part in stored])
    return made.parts()


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
