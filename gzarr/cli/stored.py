"""What ``gzarr info`` says about an array's chunks in the store, from one listing."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Final

from ..display import printable, readable_size
from ..errors import StoreError
from ..metadata.formats import is_document_name
from ..progress import watch
from ..stores.base import RemoteValues, SizedStore, is_listable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..arrays.array import Array
    from ..metadata.model import ArrayMetadata

#: How long a remote store is listed. It lists some 10,000 keys a second, and an array may have millions of chunks.
LISTING_S: Final = 10.0


def storage_rows(array: Array, *, full: bool) -> list[tuple[str, str]]:
    """Return table rows about the size of the chunks in the store.

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
    if not (isinstance(array.store, SizedStore) and is_listable(array.store)):
        return [("Stored", "unknown: the store does not report sizes")]
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
        return [("Stored", f"unknown: {printable(error, 300)}")]
    what = "Shards" if array.shards is not None else "Chunks"
    if listing.was_cut:
        found = f"at least {present:,} of {total:,} (listed for {LISTING_S:.0f} s; --full lists all)"
        return [("Stored", f"at least {readable_size(stored)}"), (f"{what} stored", found)]
    share = f" ({present / total:.1%})" if total else ""
    rows = [("Stored", readable_size(stored)), (f"{what} stored", f"{present:,} of {total:,}{share}")]
    if stored:
        # Both sizes count only the chunks that are present.
        chunk_nbytes = math.prod(array.metadata.chunk_shape) * array.dtype.itemsize
        rows.insert(1, ("Compression ratio", f"{min(array.nbytes, present * chunk_nbytes) / stored:.2f}"))
    if others:
        rows.append(("Other keys", f"{others:,} that are not chunks of this array"))
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
    pattern = re.compile(
        re.escape(encoding.prefix) + re.escape(encoding.separator).join(["(0|[1-9][0-9]{0,18})"] * len(grid_shape))
    )

    def is_chunk(key: str) -> bool:
        match = pattern.fullmatch(key)
        return match is not None and all(int(c) < n for c, n in zip(match.groups(), grid_shape, strict=True))

    return is_chunk
