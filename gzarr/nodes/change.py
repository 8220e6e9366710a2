"""Changes of a hierarchy: documents of nodes that are there, and erasing nodes.

What holds for all of them, and for making and moving nodes (:mod:`gzarr.nodes.create`):

- Everything is checked before anything is written.
- A node appears with its last document and disappears with its first: readers see it whole, or not at all.
- Consolidated metadata of the groups above a node would be wrong once the node has changed, so it is removed before.
  (zarr-python leaves it, and then shows what was.) :func:`gzarr.consolidate_metadata` writes it again.
- Documents are changed as they are in the store at that moment, not as they were when a node was opened, and writers of
  one process take turns.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import MetadataError, NodeNotFoundError, NodeTypeError, ReadOnlyError, StoreError
from ..metadata.formats import FORMATS, consolidated_keys, keys_and_prefixes, node_at, node_keys, without_consolidated
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import array_documents, dump, group_documents
from ..stores.base import WritableStore
from ..stores.keys import join_path
from ..stores.locks import hold, hold_node
from .documents import upward
from .reader import NodeReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..metadata.layout import Layout
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import ReadableStore, Store

# What a store says whose disk, or whose user's share of it, is full.
_FULL: Final = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def writable(store: ReadableStore, what: str) -> Store:
    """Return a store that can be changed.

    Raises
    ------
    ReadOnlyError
        If it cannot; nothing was touched.
    """
    if not isinstance(store, WritableStore) or store.read_only:
        raise ReadOnlyError(f"{what}: {store!r} is read-only; nothing was changed")
    return cast("Store", store)


def reader_of(store: ReadableStore) -> NodeReader:
    """Return a reader of documents that are not going to be decoded by: whatever codecs they name."""
    return NodeReader(store, allow_pickle=True, use_consolidated=False, allow_fallback=True)


def hold_documents(store: ReadableStore, path: str) -> AbstractContextManager[None]:
    """Keep others of this process from changing the documents of a node and of the groups above it.

    With the groups: a node that is made or moved bears on them, and they on it.
    """
    return hold(store, keys_above(path))


# -- documents of nodes that are there ---------------------------------------------------------------------------------


def write_array(store: Store, path: str, metadata: ArrayMetadata) -> None:
    """Write the documents of an array: of one that is there, or whose chunks have just been written.

    Parameters
    ----------
    store
        To write to.
    path
        Of the array, normalised.
    metadata
        Of the array.

    Raises
    ------
    ArgumentError
        If the format has no words for something; nothing was written.
    NodeTypeError
        If there is a group now, which others have made; nothing was written.
    StoreError
        If the store fails.
    """
    documents = array_documents(metadata, path)
    with hold_documents(store, path):
        _, present = node_at(path, reader_of(store).fetch(node_keys(path))) or (None, None)
        # Documents of a draft lie elsewhere: under the path there may be the entry point of its hierarchy.
        if present == "group" and not FORMATS[metadata.zarr_format].has_entry_point:
            raise NodeTypeError(f"'/{path}' in {store!r} has become a group; the array was not written")
        drop_indexes(store, path)
        set_documents(store, documents)


def change_array(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    change: Callable[[ArrayMetadata], ArrayMetadata],
    done: Callable[[ArrayMetadata], None] | None = None,
) -> ArrayMetadata:
    """Change the metadata of an array, starting from what the store has; return the new ones.

    Parameters
    ----------
    store, path, zarr_format
        Where the array is, and in which format.
    change
        Gives the new metadata for the present ones. An error of it leaves everything as it was.
    done
        Called with the new metadata once they are written, before anybody else changes them: what several threads do
        to one object happens to it in the same order as to the store.

    Raises
    ------
    NodeNotFoundError
        If the array is not there any more.
    StoreError, MetadataError
        If the store fails or the documents are malformed.
    """

    def of_array(metadata: NodeMetadata) -> NodeMetadata:
        if not isinstance(metadata, ArrayMetadata):
            raise NodeTypeError(f"'/{path}' in {store!r} has become a group")
        return change(metadata)

    changed = change_node(store, path, zarr_format, of_array, done)
    assert isinstance(changed, ArrayMetadata)
    return changed


def change_node(
    store: Store,
    path: str,
    zarr_format: ZarrFormat | None,
    change: Callable[[NodeMetadata], NodeMetadata],
    done: Callable[[Any], None] | None = None,
) -> NodeMetadata:
    """Change the metadata of an array or group; as :func:`change_array`."""
    with hold_documents(store, path):
        # A group's own index is part of its document in version 3, and stays right.
        reader = replace(reader_of(store), use_consolidated=None)
        entry = reader.node(path, zarr_format)
        if entry is None:
            raise NodeNotFoundError(f"'/{path}' is not in {store!r} any more; nothing was changed")
        before = entry.metadata
        if isinstance(before, MetadataError):
            raise before
        after = change(before)
        documents = _documents(reader, path, after)
        implicit = isinstance(before, GroupMetadata) and before.implicit
        old = {} if implicit else _documents(reader, path, before)
        changed = {key: value for key, value in documents.items() if old.get(key) != value}
        if changed:
            drop_indexes(store, path, own=FORMATS[after.zarr_format].consolidates_own)
            set_documents(store, changed)
        if done is not None:
            done(after)
        return after


def _documents(reader: NodeReader, path: str, metadata: NodeMetadata) -> dict[str, bytes]:
    if isinstance(metadata, ArrayMetadata):
        return array_documents(metadata, path)
    layout = reader.layout(path) if FORMATS[metadata.zarr_format].has_entry_point else None
    return group_documents(metadata, path, layout)


def set_documents(store: Store, documents: dict[str, bytes]) -> None:
    """Write documents, by key, in their order."""
    for key, value in documents.items():
        store.set(key, value)


def keys_above(path: str) -> list[str]:
    """Return the keys that stand for the documents of a node and of the groups above it, for locks."""
    return [join_path(above, "zarr.json") for above in upward(path)]


def drop_indexes(store: Store, path: str, *, own: bool = False) -> None:
    """Remove the consolidated metadata of the groups above a path (of its own group, too), because they will be wrong.

    One store request where there is none.
    """
    groups = upward(path)[0 if own else 1 :]
    if not groups:
        return
    found = reader_of(store).fetch([key for group in groups for key in consolidated_keys(group)])
    for group in groups:
        for key, document in without_consolidated(group, found).items():
            if document is None:
                store.erase(key)
            else:
                store.set(key, dump(document))


# -- erasing ----------------------------------------------------------------------------------------------------------


def delete_node(store: Store, path: str) -> None:
    """Erase a node with all that is below it.

    Raises
    ------
    StoreError
        If the store fails. Where only consolidated metadata are left that still name the node, it says so.
    """
    layout = reader_of(store).layout(path)
    with hold_node(store, path), hold_documents(store, path):
        try:
            drop_indexes(store, path)
        except StoreError as error:
            if error.errno not in _FULL:
                raise
        else:
            erase_node(store, path, layout)
            return
        # To change a document takes room, which is there once the node is not.
        erase_node(store, path, layout)
        try:
            drop_indexes(store, path)
        except StoreError as error:
            raise StoreError(
                f"'/{path}' was erased from {store!r}, but consolidated metadata above it could not be removed, and "
                f"still name it ({error}); run gzarr.consolidate_metadata when there is room",
                key=error.key,
            ) from error


def erase_node(store: Store, path: str, layout: Layout | None) -> None:
    """Erase documents first, so that nobody reads an array whose chunks are half gone; then all that is below."""
    keys, prefixes = keys_and_prefixes(path, layout)
    store.erase_values(keys)
    for prefix in prefixes:
        store.erase_prefix(prefix)
