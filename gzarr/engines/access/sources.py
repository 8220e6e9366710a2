"""Where the chunks of a read are, in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan.keys import ChunkKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer

    from ...metadata.model import ChunkKeyEncoding
    from ...plan.planner import Plan
    from ...stores.base import Answer

    IntArray = npt.NDArray[np.int64]

#: ``Sources.nbytes`` of a chunk that is the whole value of its key.
WHOLE = -1
#: ``Sources.nbytes`` of a chunk that is absent according to a shard's index.
ABSENT = -2
#: ``Sources.nbytes`` of a chunk of a shard that is fetched as a whole: its range is known once the shard is there.
IN_SHARD = -3


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Which values byte ranges are, or are parts of, in a value that holds many (:mod:`gzarr.engines.access.packed`).

    Attributes
    ----------
    keys
        Store keys of these values, each once.
    index
        int64 ``(n,)``: chunk ``i`` is in the value ``keys[index[i]]``.
    unwrap
        As in :class:`gzarr.stores.base.Extents`, of the index of a value; None if byte ranges are chunks.
    """

    keys: Sequence[str]
    index: IntArray
    unwrap: Callable[[int, memoryview], Buffer] | None


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Requests for chunks: byte ranges, joined where neighbours in one value are fetched together.

    Attributes
    ----------
    rows
        int64 ``(n,)``, rows of the sources, ordered by key and offset.
    bounds
        int64 ``(spans + 1,)``: the chunks of span ``i`` are ``rows[bounds[i]:bounds[i + 1]]``.
    key_index
        int64 ``(spans,)``, key of each span, as in ``Sources.key_index``.
    offset, nbytes
        int64 ``(spans,)``, byte range of each span in the value of its key; ``nbytes`` may be ``WHOLE``, or
        ``IN_SHARD`` for a shard that is fetched as a whole.
    """

    rows: IntArray
    bounds: IntArray
    key_index: IntArray
    offset: IntArray
    nbytes: IntArray

    def __len__(self) -> int:
        return len(self.key_index)

    def of(self, span: int) -> IntArray:
        """Return the rows of a span."""
        return self.rows[self.bounds[span] : self.bounds[span + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Location of the encoded bytes of each chunk of a plan.

    Attributes
    ----------
    keys
        Store keys, relative to the store's root, each once.
    key_index
        int64 ``(n,)``: chunk ``i`` is in the value of ``keys[key_index[i]]``.
    offset, nbytes
        int64 ``(n,)``, byte range in the value. Where it is not a range, ``nbytes`` is :data:`WHOLE` (and ``offset``
        0), :data:`ABSENT` or :data:`IN_SHARD`.
    versions
        Version that the value of each key must have; None for any. Only for stores with ``get_many``.
    find_in_shard
        Function of some rows of one key that are ``IN_SHARD``, and of the shard: sets their ``offset`` and ``nbytes``.
        It raises :class:`gzarr.errors.ChunkDecodeError` if the shard's index is corrupt.
    most_shard_nbytes
        Most bytes of a shard that is fetched as a whole.
    packing
        Values that the byte ranges are; None if each key is the key of such a value.
    """

    keys: Sequence[str]
    key_index: IntArray
    offset: IntArray
    nbytes: IntArray
    versions: Sequence[Hashable | None] | None = None
    find_in_shard: Callable[[IntArray, Answer], None] | None = None
    most_shard_nbytes: int = 0
    packing: Packing | None = None

    @classmethod
    def whole_chunks(cls, encoding: ChunkKeyEncoding, prefix: str, plan: Plan) -> Sources:
        """Return the sources of an array without shards: each chunk is a whole value."""
        n = len(plan)
        keys: Any = ChunkKeys(encoding, prefix, plan.chunks)
        return cls(keys, np.arange(n), np.zeros(n, np.int64), np.full(n, WHOLE, np.int64))

    def key(self, row: int) -> str:
        """Return the key of the value that holds a chunk, for messages."""
        if self.packing is not None:
            return self.packing.keys[int(self.packing.index[row])]
        return self.keys[int(self.key_index[row])]

    def all_keys(self) -> Sequence[str]:
        """Return all keys, built together."""
        return self.keys.all() if isinstance(self.keys, ChunkKeys) else self.keys

    def in_order(self, rows: IntArray) -> IntArray:
        """Return rows ordered by key and offset: neighbours in a value follow each other."""
        return rows[np.lexsort((self.offset[rows], self.key_index[rows]))]

    def join(self, rows: IntArray, *, gap_bytes: int, most_bytes: int, waste: float = 0.0) -> Spans:
        """Join the byte ranges of some chunks.

        Parameters
        ----------
        rows
            int64, rows of the sources. Absent chunks are ranges of no bytes, and so are all chunks of a shard that is
            fetched as a whole.
        gap_bytes
            Largest gap between two ranges that are joined in any case: to read it costs less than another request.
        most_bytes
            Most bytes of a request; a larger chunk has a request to itself.
        waste
            Share of the bytes needed that may be read in vain, in larger gaps.
        """
        n = len(rows)
        rows = self.in_order(rows)
        key = self.key_index[rows]
        begin = self.offset[rows]
        whole = self.nbytes[rows] == WHOLE
        size = np.maximum(self.nbytes[rows], 0)
        end = begin + size
        gap = begin[1:] - end[:-1]
        # A span ends where the key changes, where the gap is wide, and before it grows too large. Every chunk has two
        # neighbours, so gaps within half of the share next to each make up at most the share of all.
        allowed = np.maximum(gap_bytes, (size[1:] + size[:-1]) * (waste / 2)).astype(np.int64)
        cut = np.ones(n, np.bool_)
        cut[1:] = (key[1:] != key[:-1]) | (gap > allowed) | (gap < 0) | whole[1:] | whole[:-1]
        base = begin[np.flatnonzero(cut)][np.cumsum(cut) - 1]
        bucket = (end - base - 1) // most_bytes
        cut[1:] |= bucket[1:] != bucket[:-1]
        starts = np.flatnonzero(cut)
        bounds = np.append(starts, n)
        first = self.nbytes[rows[starts]]
        nbytes = np.where((first == WHOLE) | (first == IN_SHARD), first, end[bounds[1:] - 1] - begin[starts])
        return Spans(rows, bounds, key[starts], begin[starts], nbytes)

    def parts(self, rows: IntArray, base: int, data: Buffer) -> list[memoryview | None]:
        """Return the bytes of some chunks, None for absent ones, from the bytes of their value from ``base`` on."""
        view = memoryview(data)
        begins, sizes = (self.offset[rows] - base).tolist(), self.nbytes[rows].tolist()
        return [
            None if size == ABSENT else view[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)
        ]
