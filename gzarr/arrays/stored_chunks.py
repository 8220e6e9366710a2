"""Stored chunks of an array, found by listing its store: useful where most chunks are absent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from ..errors import StoreError
from ..stores.base import ByteRange, PresenceStore, is_listable, lists_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..metadata.model import ArrayMetadata
    from ..stores.base import ListableStore, ReadableStore

    Chunk = tuple[str, tuple[int, ...]]

#: Chunks that a store is asked for at a time.
_ASKED: Final = 256


def stored_chunks(
    store: ReadableStore, metadata: ArrayMetadata, path: str, *, outside: bool = False
) -> Iterator[Chunk]:
    """Yield the stored chunks (shards, in a sharded array) of an array, in the order of the listing.

    A store that may not list all its keys (``lists_all``), and lists no chunk, is asked for each one of the grid.

    Parameters
    ----------
    store, metadata, path
        Store, metadata and path of the array.
    outside
        Whether to include chunks outside the array's grid, left behind when the array shrank. If so, only what is
        listed is found.

    Yields
    ------
    Key in the store, and grid coordinates.

    Raises
    ------
    StoreError
        If the store cannot list its keys, or fails.
    """
    if not is_listable(store):
        raise StoreError(f"{store!r} cannot list its keys, so stored chunks cannot be told from absent ones")
    if outside or lists_all(store):
        yield from _listed(store, metadata, path, outside=outside)
        return
    lists_chunks = False
    try:
        for chunk in _listed(store, metadata, path, outside=False):
            lists_chunks = True
            yield chunk
    except StoreError:
        # Not all can list keys.
        if lists_chunks:
            raise
    if lists_chunks:
        return
    folder, encoding = metadata.key_prefix(path), metadata.chunk_key_encoding
    others = ((folder + encoding.encode(coords), coords) for coords in grid_points(metadata.grid_shape))
    while some := list(itertools.islice(others, _ASKED)):
        found = are_stored(store, [key for key, _ in some])
        yield from (chunk for chunk, is_there in zip(some, found, strict=True) if is_there)


def _listed(store: ListableStore, metadata: ArrayMetadata, path: str, *, outside: bool) -> Iterator[Chunk]:
    """Yield the chunks in the listing of a store."""
    grid = metadata.grid_shape
    encoding = metadata.chunk_key_encoding
    folder = metadata.key_prefix(path)
    if not grid:
        key = folder + encoding.encode(())
        yield from ((found, ()) for found in store.list_prefix(folder) if found == key)
        return
    # With "/" as separator, all chunks are in one directory.
    prefix = folder + encoding.prefix
    for key in store.list_prefix(prefix if prefix.endswith("/") else folder):
        if not key.startswith(prefix):
            continue
        parts = key[len(prefix) :].split(encoding.separator)
        # "01" is an unrelated file, not a chunk; no grid has coordinates of 20 digits.
        if len(parts) != len(grid) or not all(
            part.isascii() and part.isdecimal() and len(part) < 20 and str(int(part)) == part for part in parts
        ):
            continue
        coords = encoding.in_key(tuple(map(int, parts)))
        if outside or all(i < size for i, size in zip(coords, grid, strict=True)):
            yield key, coords


def grid_points(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the coordinates of a grid of any size in C order."""
    return points(list(map(range, shape)))


def points(ranges: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """Yield the coordinates in a box of any size in C order (``itertools.product`` would list each range)."""
    if not all(ranges):
        return
    if not ranges:
        yield ()
        return
    for i in ranges[0]:
        for rest in points(ranges[1:]):
            yield (i, *rest)


def are_stored(store: ReadableStore, keys: Sequence[str]) -> Sequence[bool]:
    """Return whether each key has a value, in order; values are not read.

    Raises
    ------
    StoreError
        If the store fails.
    """
    if not keys:
        return []
    if isinstance(store, PresenceStore):
        return store.contains(keys)
    return [value is not None for value in store.get_partial_values([(key, ByteRange(0, 0)) for key in keys])]
