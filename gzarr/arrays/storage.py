"""What is said about an array's chunks in the store, from one listing."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..display import has_fixed_size, printable, readable_size
from ..errors import StoreError
from ..metadata.formats import is_document_name
from ..progress import watch
from ..stores.base import RemoteValues, SizedStore, lists_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from ..metadata.model import ArrayMetadata
    from ..stores.base import ReadableStore

    class Array(Protocol):
        """What is asked of an array; :class:`gzarr.Array` is above this module."""

        @property
        def store(self) -> ReadableStore:
            """Its store."""

        @property
        def path(self) -> str:
            """Its path."""

        @property
        def metadata(self) -> ArrayMetadata:
            """Its metadata."""

        @property
        def dtype(self) -> np.dtype[Any]:
            """Data type."""

        @property
        def nbytes(self) -> int:
            """Bytes of all elements."""

        @property
        def shards(self) -> tuple[int, ...] | None:
            """Shape of a shard."""


#: How long a remote store is listed. It lists some 10,000 keys a second, and an array may have millions of chunks.
LISTING_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stored:
    """The chunks of an array in its store.

    Attributes
    ----------
    unknown
        Why they are unknown; None if they are known.
    nbytes
        Bytes of the chunks that were found.
    chunks, total
        Number of the chunks (shards, in a sharded array) that were found, and of all in the grid.
    others
        Number of keys that are neither chunks nor documents.
    complete
        Whether the listing came to its end.
    ratio
        Decoded bytes of these chunks to their stored bytes; None if there are none, or if elements have no fixed size.
    """

    unknown: str | None = None
    nbytes: int = 0
    chunks: int = 0
    total: int = 0
    others: int = 0
    complete: bool = True
    ratio: float | None = None

    @classmethod
    def of(cls, array: Array, *, full: bool) -> Stored:
        """List the chunks of an array.

        Parameters
        ----------
        array
            The array.
        full
            Whether to list all chunks, even if the store is remote and that takes longer than :data:`LISTING_S`.

        Raises
        ------
        StoreError
            If the store fails to list its keys. (Many remote stores refuse that, so there it is not an error.)
        """
        if not (isinstance(array.store, SizedStore) and lists_all(array.store)):
            return cls("the store does not report sizes")
        prefix = array.metadata.key_prefix(array.path)
        is_chunk = _chunk_test(array.metadata)
        total = math.prod(array.metadata.grid_shape)
        stored = present = others = 0
        limited = isinstance(array.store, RemoteValues) and not full
        listing = _Listing(array.store.list_sizes(prefix), LISTING_S if limited else math.inf)
        try:
            for key, nbytes in watch(listing, "listing chunks", total):
                below = key[len(prefix) :]
                if is_chunk(below):
                    stored += nbytes
                    present += 1
                elif not is_document_name(below):
                    others += 1
        except StoreError as error:
            if not isinstance(array.store, RemoteValues):
                raise
            return cls(printable(error, 300))
        ratio = None
        if stored and has_fixed_size(array.dtype):
            # Both sizes count only the chunks that are present.
            chunk_nbytes = math.prod(array.metadata.chunk_shape) * array.dtype.itemsize
            ratio = min(array.nbytes, present * chunk_nbytes) / stored
        return cls(None, stored, present, total, others, not listing.was_cut, ratio)

    def to_json(self) -> dict[str, Any] | None:
        """Return it as a JSON object; None if it is unknown."""
        if self.unknown is not None:
            return None
        return {
            "nbytes": self.nbytes,
            "chunks": self.chunks,
            "chunks_of_grid": self.total,
            "other_keys": self.others,
            "complete": self.complete,
            "compression_ratio": self.ratio,
        }


def storage_rows(array: Array, *, full: bool) -> list[tuple[str, str]]:
    """Return table rows about the size of the chunks in the store; parameters as for :meth:`Stored.of`."""
    found = Stored.of(array, full=full)
    if found.unknown is not None:
        return [("Stored", f"unknown: {found.unknown}")]
    what = "Shards" if array.shards is not None else "Chunks"
    if not found.complete:
        chunks = f"at least {found.chunks:,} of {found.total:,} (listed for {LISTING_S:.0f} s; --full lists all)"
        return [("Stored", f"at least {readable_size(found.nbytes)}"), (f"{what} stored", chunks)]
    share = f" ({found.chunks / found.total:.1%})" if found.total else ""
    rows = [("Stored", readable_size(found.nbytes))]
    if found.ratio is not None:
        rows.append(("Compression ratio", f"{found.ratio:.2f}"))
    rows.append((f"{what} stored", f"{found.chunks:,} of {found.total:,}{share}"))
    if found.others:
        rows.append(("Other keys", f"{found.others:,} that are not chunks of this array"))
    return rows


class _Listing:
    """The keys of a listing, until the time is over."""

    def __init__(self, keys: Iterator[tuple[str, int]], seconds: float) -> None:
        self._keys = keys
        self._end = time.monotonic() + seconds
        self.was_cut = False

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for entry in self._keys:
            yield entry
            if time.monotonic() > self._end:
                self.was_cut = True
                return


def _chunk_test(metadata: ArrayMetadata) -> Callable[[str], bool]:
    """Return a predicate for keys, relative to the array, of chunks in its grid."""
    encoding, grid_shape = metadata.chunk_key_encoding, metadata.grid_shape
    if not grid_shape:
        only = encoding.encode(())
        return lambda key: key == only
    counts = encoding.in_key(grid_shape)
    pattern = re.compile(
        re.escape(encoding.prefix) + re.escape(encoding.separator).join(["(0|[1-9][0-9]{0,18})"] * len(grid_shape))
    )

    def is_chunk(key: str) -> bool:
        match = pattern.fullmatch(key)
        return match is not None and all(int(c) < n for c, n in zip(match.groups(), counts, strict=True))

    return is_chunk
