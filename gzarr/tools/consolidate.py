"""Consolidated metadata: the documents of all nodes below a group in one document, to open them with one request.

Version 2: ``.zmetadata``, as zarr-python has written it since version 2.3. Version 3: the member
``consolidated_metadata`` of the group's own document, as zarr-python 3 writes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ..flags import check_flags
from ..hierarchy.group import Group
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import check_text, dump, group_documents
from ..nodes.change import attempts, drop_indexes, hold_documents, reader_of, replace_documents, writable
from ..nodes.documents import Documents, note_consolidation
from ..nodes.reader import NodeReader
from ..stores.base import flushing
from ..stores.keys import join_path, normalize_path
from ..stores.locks import begin
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.base import Store
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
        If ``zarr_format`` is no version, or if the group's has no consolidated metadata; or if a name or text in it has
        an unpaired surrogate, for which other libraries could not open the group.
    MetadataError
        If a document of a node below is invalid; nothing was written.
    ReadOnlyError, StoreError
        If the store is read-only or fails.
    """
    check_zarr_format(zarr_format, optional=True)
    check_flags(lock=lock)
    target, where = _target(store, path, storage_options)
    with flushing(store, target):
        metadata = consolidate(target, where, zarr_format, lock=lock)
    return Group(metadata, NodeReader(target), where, device=device, mode="r+")


def check_consolidation(
    store: StoreLike, *, path: str = "", storage_options: Mapping[str, Any] | None = None
) -> tuple[str, int]:
    """Do what :func:`consolidate_metadata` does, but write nothing.

    Parameters
    ----------
    store, path, storage_options
        As for :func:`consolidate_metadata`.

    Returns
    -------
    Name of the group, and the number of nodes below it.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, ArgumentError, MetadataError, ReadOnlyError, StoreError
        As for :func:`consolidate_metadata`.
    """
    target, where = _target(store, path, storage_options)
    document = _consolidated(Documents(target), where, None, as_found=False)
    return f"/{where}", len(document.nodes)


def consolidate(
    store: Store, path: str, zarr_format: ZarrFormat | None, *, lock: bool = False, as_found: bool = False
) -> GroupMetadata:
    """Write the consolidated metadata of a group in a writable store; return the group's metadata.

    Parameters
    ----------
    store, path
        Store, and path of the group in it.
    zarr_format, lock
        As for :func:`consolidate_metadata`.
    as_found
        Take text as the nodes have it, for a copy of nodes that have unpaired surrogates in theirs.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, ArgumentError, MetadataError, StoreError
        As for :func:`consolidate_metadata`.
    """
    # Held with the groups above it, so that no thread changes or creates nodes below between reading and writing.
    # A handler of a signal, which locks let pass, does not change the group itself.
    with hold_documents(store, path, lock=lock), begin(store, path, "documents"):
        for _ in attempts(store, path):
            documents = Documents(store)
            new = _consolidated(documents, path, zarr_format, as_found=as_found)
            # The consolidated metadata of groups above may be outdated. (No node changes, so those above the store's
            # root are as they were.)
            drop_indexes(store, path, enclosing=False)
            if replace_documents(store, new.documents, documents.tokens):
                break
        note_consolidation()
        return _group(reader_of(store), path, new.zarr_format)


class _Consolidated(NamedTuple):
    """Documents to write, by key, the one with consolidated metadata last; and the nodes below the group by path."""

    documents: dict[str, bytes]
    zarr_format: ZarrFormat
    nodes: dict[str, NodeMetadata]


def _target(store: StoreLike, path: str, storage_options: Mapping[str, Any] | None) -> tuple[Store, str]:
    opened, base = as_store(store, "r+", storage_options)
    where = join_path(base, normalize_path(path))
    return writable(opened, f"'/{where}'"), where


def _consolidated(documents: Documents, path: str, zarr_format: ZarrFormat | None, *, as_found: bool) -> _Consolidated:
    """Return the document to write; that of the group is added to ``documents``."""
    reader = reader_of(documents.store)
    metadata = _group(replace(reader, documents=documents), path, zarr_format)
    format = FORMATS[metadata.zarr_format]
    key = format.consolidated_key(path)
    assert key is not None
    nodes: dict[str, NodeMetadata] = {}
    for name, below in Group(metadata, reader, path, device="cpu").walk():
        if isinstance(below, MetadataError):
            raise below
        found = below.metadata.zarr_format
        if not format.shares_hierarchy(FORMATS[found]) and not (isinstance(below, Group) and below.metadata.implicit):
            # A folder may have nodes of several formats.
            at = join_path(path, name)
            raise ArgumentError(
                f"'/{path}' is a folder without metadata of its own, and would be a group of Zarr format "
                f"{metadata.zarr_format!r}, but there is a node of Zarr format {found!r} at '/{at}'; "
                "consolidate the groups below it one by one (path=)"
            )
        nodes[name] = below.metadata
    document = format.consolidated(metadata, nodes)
    if not as_found:
        check_text(document, f"consolidated metadata of '/{path}'")
    # An implicit group needs a document of its own, by which readers find what is consolidated.
    own = group_documents(metadata, path) if metadata.implicit else {}
    return _Consolidated({**own, key: dump(document)}, metadata.zarr_format, nodes)


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
