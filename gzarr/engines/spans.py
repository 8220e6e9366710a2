"""Byte ranges of chunks, joined to larger requests: neighbours in one value are fetched together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .request import IN_SHARD, WHOLE

if TYPE_CHECKING:
    import numpy.typing as npt

    from .request import Sources

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Requests for chunks.

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


def join(sources: Sources, rows: IntArray, *, gap_bytes: int, most_bytes: int, waste: float = 0.0) -> Spans:
    """Join the byte ranges of some chunks.

    Parameters
    ----------
    sources
        Location of the chunks.
    rows
        int64, rows of ``sources``. Absent chunks are ranges of no bytes, and so are all chunks of a shard that is
        fetched as a whole.
    gap_bytes
        Largest gap between two ranges that are joined in any case: to read it costs less than another request.
    most_bytes
        Most bytes of a request; a larger chunk has a request to itself.
    waste
        Share of the bytes needed that may be read in vain, in larger gaps.
    """
    n = len(rows)
    order = np.lexsort((sources.offset[rows], sources.key_index[rows]))
    rows = rows[order]
    key = sources.key_index[rows]
    begin = sources.offset[rows]
    whole = sources.nbytes[rows] == WHOLE
    size = np.maximum(sources.nbytes[rows], 0)
    end = begin + size
    gap = begin[1:] - end[:-1]
    # A span ends where the key changes, where the gap is wide, and before it grows too large. Every chunk has two
    # neighbours, so gaps within half of the share next to each make up at most the share of all.
    allowed = np.maximum(gap_bytes, (size[1:] + size[:-1]) * (waste / 2)).astype(np.int64)
    cut = np.ones(n, np.bool_)
    cut[1:] = (key[1:] != key[:-1]) | (gap > allowed) | (gap < 0) | whole[1:] | whole[:-1]
    starts = np.flatnonzero(cut)
    base = begin[starts][np.cumsum(cut) - 1]
    bucket = (end - base - 1) // most_bytes
    cut[1:] |= bucket[1:] != bucket[:-1]
    starts = np.flatnonzero(cut)
    bounds = np.append(starts, n)
    nbytes = end[bounds[1:] - 1] - begin[starts]
    first = sources.nbytes[rows[starts]]
    nbytes = np.where((first == WHOLE) | (first == IN_SHARD), first, nbytes)
    return Spans(rows, bounds, key[starts], begin[starts], nbytes)
