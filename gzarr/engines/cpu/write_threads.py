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
from ...codecs.sharding import EMPTY
from ...errors import ChunkDecodeError, ChunkError, ChunkReadError, ChunkWriteError
from ...stores import locks
from ...stores.base import PresenceStore
from .. import failures, pool
from .threads import fill_chunk, pieces

if TYPE_CHECKING:
    from ...plan.decode_program import ShardLevel
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]
    Parts = dict[int, npt.NDArray[np.uint8] | None]


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
    done = count()

    def write_value(i: int) -> None:
        _write_value(request, groups[i], fill)
        next(done)

    try:
        held = request.chunk.nbytes * max(-(-len(rows) // max(len(groups), 1)), 1)
        pool.each_value(request.store, write_value, len(groups), held, pool.thread_count())
    except ChunkError as error:
        # Only now have the other threads finished the values that they were writing.
        raise failures.with_count(error, already + next(done), already + len(groups)) from error.__cause__


def _write_value(request: WriteRequest, rows: IntArray, fill: npt.NDArray[Any]) -> None:
    """Write the planned chunks of one stored value."""
    key = request.keys[int(request.value_of[rows[0]])]
    with locks.hold(request.store, [key]):
        parts = _shard(request, rows, key, fill) if request.levels else _chunk(request, int(rows[0]), key, fill)
        try:
            if parts is None:
                request.store.erase(key)
            else:
                request.store.set(key, parts)
        # Third-party stores may raise anything.
        except Exception as cause:
            raise _failure(request, ChunkWriteError, int(rows[0]), key, f"the store failed: {cause}") from cause


def _failure(request: WriteRequest, kind: type[ChunkError], row: int, key: str, reason: str) -> ChunkError:
    return kind(reason, node=request.node, chunk=tuple(request.plan.chunks[row].tolist()), key=key)


def _get(request: WriteRequest, row: int, key: str) -> bytes | None:
    try:
        return request.store.get(key)
    except Exception as cause:
        reason = f"the write changes only part of it, and the store failed to read it: {cause}"
        raise _failure(request, ChunkReadError, row, key, reason) from cause


def _chunk(request: WriteRequest, row: int, key: str, fill: npt.NDArray[Any]) -> bytes | None:
    """Return the new content of a stored value that is one chunk, or None to erase it."""
    stored = None if replaced_rows(request, np.array([row]))[0] else _get(request, row, key)
    encoded = _changed(request, row, key, fill, stored)
    return None if encoded is None else encoded.tobytes()


def _changed(
    request: WriteRequest, row: int, key: str, fill: npt.NDArray[Any], stored: Any | None
) -> npt.NDArray[np.uint8] | None:
    """Return a planned chunk, changed and encoded, or None if it should not be stored.

    ``stored`` is its old encoded content; None if it is absent or does not matter.
    """
    chunk = _before(request, row, key, fill, stored)
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
        reason = f"its elements cannot be encoded: {cause}"
        raise _failure(request, ChunkWriteError, row, key, reason) from cause


def _before(request: WriteRequest, row: int, key: str, fill: npt.NDArray[Any], stored: Any | None) -> npt.NDArray[Any]:
    """Return the old elements of a chunk."""
    if stored is None:
        return np.array(fill)
    try:
        return np.array(decode_chain(request.codecs, stored, request.chunk))
    except Exception as cause:
        if request.whole[row]:
            # Every element within the array is overwritten, so nothing is lost, and the chunk becomes readable again.
            return np.array(fill)
        reason = f"the write changes only part of it, and its stored bytes cannot be decoded: {cause}"
        raise _failure(request, ChunkDecodeError, row, key, reason) from cause


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


def _shard(request: WriteRequest, rows: IntArray, key: str, fill: npt.NDArray[Any]) -> bytes | None:
    """Return the new content of a shard, or None to erase it."""
    (level,) = request.levels
    linear = inner_index(request, rows)
    first = int(rows[0])
    index_nbytes = level.codec.index_nbytes(level.stored_shape)
    shards = level.codec.chunks_per_shard(level.stored_shape)
    total = int(np.prod(shards, dtype=np.int64))
    stored: npt.NDArray[np.uint8] | None = None
    index = np.full((total, 2), EMPTY, np.uint64)
    complete, beyond = _is_complete(request, rows), bool(request.beyond[request.value_of[first]])
    if beyond or not complete:
        data = _get(request, first, key)
        if data is not None:
            stored = np.frombuffer(data, np.uint8)
            try:
                index = _index(request, first, key, level, stored, index_nbytes)
            except ChunkDecodeError:
                if not complete:
                    raise
    parts: Parts = {
        i: _stored_part(stored, index[i]) for i in np.flatnonzero(index[:, 0] != EMPTY).tolist() if stored is not None
    }
    for row, i, new in zip(rows.tolist(), linear.tolist(), replaced_rows(request, rows).tolist(), strict=True):
        before = None if new else parts.get(i)
        parts[i] = _changed(request, row, key, fill, before)
    return _assemble(level, {i: part for i, part in parts.items() if part is not None}, total, index_nbytes)


def replaced_rows(request: WriteRequest, rows: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of some planned chunks are overwritten with all they can hold beyond the array, bool ``(n,)``."""
    if not request.levels:
        return request.whole[rows] & ~request.beyond[request.value_of[rows]]
    inner = np.array(request.levels[0].inner_shape, np.int64)
    ragged = (np.array(request.shape, np.int64) - request.plan.chunks[rows] * inner < inner).any(axis=1)
    return np.asarray(request.whole[rows] & ~ragged)


def kept_in_part(request: WriteRequest, values: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of some stored values hold, or may hold, elements beyond the array, which have to be kept.

    To be called with the values' locks held.
    """
    kept = request.beyond[values]
    some = np.flatnonzero(kept)
    if len(some) and isinstance(request.store, PresenceStore):
        kept[some] = request.store.contains([request.keys[value] for value in values[some].tolist()])
    return np.zeros_like(kept) if kept.any() and request.is_current() else kept


def complete_values(request: WriteRequest) -> npt.NDArray[np.bool_]:
    """Return bool ``(s,)``: whether a stored value is overwritten completely, as far as it lies within the array."""
    whole = np.bincount(request.value_of[request.whole], minlength=len(request.keys))
    if not request.levels:
        return np.asarray(whole == 1)
    (level,) = request.levels
    shard, inner = np.array(level.shard_shape, np.int64), np.array(level.inner_shape, np.int64)
    within = np.minimum(shard, np.array(request.shape, np.int64) - request.keys.chunks * shard)
    return np.asarray(whole == np.prod(-(-within // inner), axis=1))


def _is_complete(request: WriteRequest, rows: IntArray) -> bool:
    """Return whether some planned chunks overwrite all that a stored value has within the array."""
    if not request.whole[rows].all():
        return False
    return not request.levels or len(rows) == _inside(request, int(rows[0]), request.levels[0])


def inner_index(request: WriteRequest, rows: IntArray) -> IntArray:
    """Return the entries of some planned chunks in the indexes of their shards, int64 ``(n,)``."""
    (level,) = request.levels
    per_shard = [a // b for a, b in zip(level.shard_shape, level.inner_shape, strict=True)]
    inner = request.plan.chunks[rows] % np.array(per_shard, np.int64)
    linear = np.zeros(len(rows), np.int64)
    for d in level.order:
        linear = linear * per_shard[d] + inner[:, d]
    return linear


def _inside(request: WriteRequest, row: int, level: ShardLevel) -> int:
    """Return how many inner chunks of a shard have elements within the array."""
    number = 1
    for coord, shard, inner, size in zip(
        request.plan.chunks[row].tolist(), level.shard_shape, level.inner_shape, request.shape, strict=True
    ):
        begin = coord * inner // shard * shard
        number *= -(-min(shard, size - begin) // inner)
    return number


def _index(
    request: WriteRequest, row: int, key: str, level: ShardLevel, stored: npt.NDArray[np.uint8], index_nbytes: int
) -> npt.NDArray[np.uint64]:
    try:
        if stored.size < index_nbytes:
            raise ValueError(f"the shard has {stored.size} bytes, too few for an index of {index_nbytes}")
        at_start = level.codec.index_location == "start"
        part = stored[:index_nbytes] if at_start else stored[stored.size - index_nbytes :]
        return level.codec.decode_index(part, level.stored_shape, shard_nbytes=stored.size).reshape(-1, 2)
    except ValueError as cause:
        reason = f"the write changes only part of its shard, whose index cannot be read: {cause}"
        raise _failure(request, ChunkDecodeError, row, key, reason) from cause


def _stored_part(stored: npt.NDArray[np.uint8], entry: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    offset, nbytes = entry.tolist()
    return stored[offset : offset + nbytes]


def _assemble(
    level: ShardLevel, parts: dict[int, npt.NDArray[np.uint8]], total: int, index_nbytes: int
) -> bytes | None:
    """Return a shard with its inner chunks in the order of the index, or None if there are none."""
    if not parts:
        return None
    index = np.full((total, 2), EMPTY, np.uint64)
    at_start = level.codec.index_location == "start"
    position = index_nbytes if at_start else 0
    ordered = sorted(parts)
    for i in ordered:
        index[i] = position, parts[i].size
        position += parts[i].size
    encoded = level.codec.encode_index(index, level.stored_shape)
    body = [parts[i] for i in ordered]
    return b"".join(part.data for part in ([encoded, *body] if at_start else [*body, encoded]))
