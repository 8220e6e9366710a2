"""The array that is in the store now, where another one may have been opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, MetadataError, NodeNotFoundError
from ..metadata.formats import FORMATS
from ..metadata.model import ArrayMetadata
from ..nodes.change import reader_of
from ..nodes.documents import upward
from ..nodes.reader import NodeReader

if TYPE_CHECKING:
    from ..nodes.entries import Entry
    from .reading import ReadableArray


def present_metadata(array: ReadableArray) -> ArrayMetadata:
    """Return the metadata that the store has now of an array that was opened; one request.

    Raises
    ------
    NodeNotFoundError
        If there is no array any more.
    ArgumentError
        If another array, or a group, has taken its place.
    StoreError, MetadataError
        If the store fails or the documents are malformed.
    """
    entry = reader_of(array.store).node(array.path, array.zarr_format, groups=False) or _consolidated(array)
    if entry is None:
        raise NodeNotFoundError(f"{array.name} in {array.store!r} has been erased since it was opened")
    if isinstance(entry.metadata, MetadataError):
        raise entry.metadata
    if not isinstance(entry.metadata, ArrayMetadata):
        raise ArgumentError(f"{array.name} in {array.store!r} has been replaced by a group since it was opened")
    return same_array(array, entry.metadata)


def same_array(array: ReadableArray, found: ArrayMetadata) -> ArrayMetadata:
    """Return metadata that was found for an array, as its own.

    Raises
    ------
    ArgumentError
        If it is that of another array, whose elements are stored in another way.
    """
    if _layout(array.metadata, array.path) == _layout(found, array.path):
        # Not part of any document, so it is carried over.
        same = found.codecs == array.metadata.codecs
        return replace(found, level_is_free=array.metadata.level_is_free and same)
    raise ArgumentError(
        f"{array.name} in {array.store!r} has been replaced by another array since it was opened; open it again"
    )


def grid_is_of_plugin(metadata: ArrayMetadata) -> bool:
    """Return whether a chunk grid is that of another package."""
    return FORMATS[metadata.zarr_format].grid_is_of_plugin(metadata)


def _layout(metadata: ArrayMetadata, path: str) -> tuple[Any, ...]:
    """Return the metadata that determines the stored bytes of an element and their place."""
    regular = not grid_is_of_plugin(metadata)
    even = [axis.longest if regular and axis.is_regular else None for axis in metadata.chunk_grid.axes]
    return (
        (metadata.dtype, metadata.key_prefix(path), metadata.chunk_key_encoding, even),
        [codec.label for codec in metadata.codecs],
    )


def _consolidated(array: ReadableArray) -> Entry | None:
    """Return what consolidated metadata says of an array without documents of its own."""
    reader = NodeReader(array.store, allow_pickle=True, allow_fallback=True)
    for above in upward(array.path)[1:]:
        group = reader.node(above, array.zarr_format)
        if group is not None and group.children is not None:
            entry: Entry | None = group
            for name in array.path[len(above) :].strip("/").split("/"):
                entry = (entry.children or {}).get(name) if entry is not None else None
            return entry
    return None
