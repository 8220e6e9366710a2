"""Keys of chunks, built once and on request, and the paths of their files."""

from __future__ import annotations

import math
import os
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .planner import chunk_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from ..metadata.model import ChunkKeyEncoding

    IntArray = npt.NDArray[np.int64]


#: Keys that are built together, of which not all may be asked for.
_TOGETHER = 1024


class ChunkKeys:
    """Sequence of the keys of unsharded chunks, built on request.

    The native loop builds paths itself, from ``prefix`` and ``chunks``.

    Attributes
    ----------
    encoding
        Chunk key encoding of the array.
    prefix
        Prefix of each key.
    chunks
        int64 ``(n, k)``, grid coordinates.
    """

    __slots__ = ("_keys", "chunks", "encoding", "prefix")

    def __init__(self, encoding: ChunkKeyEncoding, prefix: str, chunks: IntArray) -> None:
        self.encoding: ChunkKeyEncoding = encoding
        self.prefix: str = prefix
        self.chunks: IntArray = chunks
        self._keys: list[str] | None = None

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return self.all()[i]
        if self._keys is not None:
            return self._keys[i]
        return self.prefix + self.encoding.encode(tuple(self.chunks[i].tolist()))

    def some(self, rows: IntArray) -> Iterator[str]:
        """Return the keys of some rows; many are built together."""
        if self._keys is not None:
            return map(self._keys.__getitem__, rows.tolist())
        parts = (rows[begin : begin + _TOGETHER] for begin in range(0, len(rows), _TOGETHER))
        return chain.from_iterable(chunk_keys(self.encoding, self.prefix, self.chunks[part]) for part in parts)

    def all(self) -> list[str]:
        """Return all keys, each built once."""
        if self._keys is None:
            self._keys = chunk_keys(self.encoding, self.prefix, self.chunks)
        return self._keys


def file_prefix(root: bytes, prefix: str, encoding: ChunkKeyEncoding, ndim: int) -> bytes:
    """Return the path of a chunk's file up to its first coordinate."""
    return root + b"/" + os.fsencode(prefix + (encoding.prefix if ndim else encoding.encode(())))


def distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows and, for each row, its index among them."""
    if not rows.shape[1]:
        return rows[:1], np.zeros(len(rows), np.int64)
    low = rows.min(axis=0)
    spans = (rows.max(axis=0) - low + 1).tolist()
    if math.prod(spans) < 2**62:
        linear = np.zeros(len(rows), np.int64)
        for d, span in enumerate(spans):
            linear = linear * span + (rows[:, d] - low[d])
        _, first, which = np.unique(linear, return_index=True, return_inverse=True)
    else:
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return rows[first], which.reshape(-1).astype(np.int64)
