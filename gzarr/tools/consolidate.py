"""Consolidated metadata: the documents of all nodes below a group in one document, to open them with one request.

Version 2: ``.zmetadata``, as zarr-python has written it since version 2.3. Version 3: the member
``consolidated_metadata`` of the group's own document, as zarr-python 3 writes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import dump
from ..nodes.change import attempts, drop_indexes, hold_documents, reader_of, replace_documents, writable
from ..nodes.documents import Documents, note_consolidation
from ..nodes.reader import NodeReader
from ..stores.base import flushing
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.resolve import StoreLike


def consolidate_metadata(
    store: StoreLike,
    *,
    path: str = "",
    zarr_format: ZarrFormat | None = None,
    device: str = "auto",
    lock: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Write the consolidated metadata of a group: the metadata of all nodes below it in a single document.

    Implicit groups become explicit in it. When gzarr later changes a node below the group, it removes the consolidated
    metadata, which would be outdated. No other process may change nodes below the group during the call; other threads
    wait.

    Parameters
    ----------
    store, path, device
        As for :func:`gzarr.open_group`.
    zarr_format
        2 or 3, to choose between groups of both versions at ``path``.
    lock
        Whether to exclude changes of attributes by other processes that also pass ``lock=True``, by file locks beside
        the data; in object stores, the group's own attributes are read again if they have changed meanwhile.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.

    Returns
    -------
    The group, open for reading and writing. (It reads nodes from their own documents; groups opened with mode ``"r"``
    use the consolidated metadata.)

    Raises
    ------
    NodeNotFoundError, NodeTypeError
        If there is no such group.
    ArgumentError
        If ``zarr_format`` is no version, or if the group's has no consolidated metadata.
    MetadataError
        If a document of a node below is invalid; nothing was written.
    ReadOnlyError, StoreError
        If the store is read-only or fails.
    """
    check_zarr_format(zarr_format, optional=True)
    opened, base = as_store(store, "r+", storage_options)
    where = join_path(base, normalize_path(path))
    target = writable(opened, f"'/{where}'")
    # Held with the groups above it, so that no thread changes or creates nodes below between reading and writing.
    with flushing(store, target), hold_documents(target, where, lock=lock):
        for _ in attempts(target, where):
            documents = Documents(target)
            metadata = _group(replace(reader_of(target), documents=documents), where, zarr_format)
            format = FORMATS[metadata.zarr_format]
            key = format.consolidated_key(where)
            assert key is not None
            if not format.consolidates_own:
                # Another document, which is replaced as a whole.
                documents.tokens.clear()
            nodes: dict[str, NodeMetadata] = {}
            for name, below in Group(metadata, reader_of(target), where, device="cpu").walk():
                if isinstance(below, MetadataError):
                    raise below
                nodes[name] = below.metadata
            # The consolidated metadata of groups above may be outdated.
            drop_indexes(target, where)
            if replace_documents(target, {key: dump(format.consolidated(metadata, nodes))}, documents.tokens):
                break
        note_consolidation()
        metadata = _group(reader_of(target), where, metadata.zarr_format)
    return Group(metadata, NodeReader(target), where, device=device, mode="r+")


def _group(reader: NodeReader, path: str, zarr_format: ZarrFormat | None) -> GroupMetadata:
    """Return the metadata of a group whose format has consolidated metadata."""
    entry = reader.node(path, zarr_format)
    if entry is None:
        raise NodeNotFoundError(f"no group at '/{path}' in {reader.store!r}")
    if isinstance(entry.metadata, MetadataError):
        raise entry.metadata
    if not isinstance(entry.metadata, GroupMetadata):
        raise NodeTypeError(f"'/{path}' in {reader.store!r} is an array; only groups have consolidated metadata")
    if FORMATS[entry.metadata.zarr_format].consolidated_key(path) is None:
        raise ArgumentError(f"'/{path}': Zarr format {entry.metadata.zarr_format!r} has no consolidated metadata")
    return entry.metadata
