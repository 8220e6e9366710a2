"""Consolidated metadata: the documents of all nodes below a group in one, so that opening them costs one request.

Version 2: ``.zmetadata``, as zarr-python has written it since version 2.3. Version 3: the member
``consolidated_metadata`` of the group's own document, as zarr-python 3 writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..metadata import to_v2, to_v3
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..metadata.to_documents import dump
from ..nodes.change import drop_indexes, hold_documents, reader_of, writable
from ..nodes.reader import NodeReader
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.resolve import StoreLike

_V3_MEMBER = "consolidated_metadata"


def consolidate(
    store: StoreLike, *, path: str = "", zarr_format: ZarrFormat | None = None, device: str = "auto"
) -> Group:
    """Write the consolidated metadata of a group.

    Groups without documents become explicit in it. Whatever gzarr changes below the group later removes it again, since
    it would be wrong then. No other process may change something below it meanwhile; other threads wait.

    Parameters
    ----------
    store, path, device
        As for :func:`gzarr.open_group`.
    zarr_format
        2 or 3, where both have a group there.

    Returns
    -------
    The group, to read and write. (It shows nodes as they are in the store; groups opened with mode ``"r"`` show them by
    their consolidated metadata.)

    Raises
    ------
    NodeNotFoundError, NodeTypeError
        If there is no such group.
    ArgumentError
        If the group is of a format that has no consolidated metadata.
    MetadataError
        If the documents of a node below cannot be used; nothing was written.
    ReadOnlyError, StoreError
        If the store is read-only, or fails.
    """
    opened, base = as_store(store, "r+")
    where = join_path(base, normalize_path(path))
    target = writable(opened, f"'/{where}'")
    reader = reader_of(target)
    # Held, with those above: nothing below is changed or made between the time it is read and the time it is written.
    with hold_documents(target, where):
        metadata = _group(reader, where, zarr_format)
        nodes: dict[str, NodeMetadata] = {}
        for name, below in Group(metadata, reader, where).walk():
            if isinstance(below.metadata, MetadataError):
                raise below.metadata
            nodes[name] = below.metadata
        # Those above say less than this one, or something else.
        drop_indexes(target, where)
        if metadata.zarr_format == 2:
            documents = _documents("", metadata)
            for name, found in nodes.items():
                documents.update(_documents(name, found))
            index = {"metadata": documents, "zarr_consolidated_format": 1}
            target.set(join_path(where, ".zmetadata"), dump(index))
        else:
            below_documents = {name: _document(found) for name, found in nodes.items()}
            inline = {"kind": "inline", "must_understand": False, "metadata": below_documents}
            target.set(join_path(where, "zarr.json"), dump({**_document(metadata), _V3_MEMBER: inline}))
        metadata = _group(reader, where, metadata.zarr_format)
    return Group(metadata, NodeReader(target), where, device=device, mode="r+")


def _group(reader: NodeReader, path: str, zarr_format: ZarrFormat | None) -> GroupMetadata:
    """Return the metadata of a group that can have consolidated metadata."""
    entry = reader.node(path, zarr_format)
    if entry is None:
        raise NodeNotFoundError(f"no group at '/{path}' in {reader.store!r}")
    if isinstance(entry.metadata, MetadataError):
        raise entry.metadata
    if not isinstance(entry.metadata, GroupMetadata):
        raise NodeTypeError(f"'/{path}' in {reader.store!r} is an array; only groups have consolidated metadata")
    if entry.metadata.zarr_format not in (2, 3):
        raise ArgumentError(f"'/{path}': Zarr format {entry.metadata.zarr_format!r} has no consolidated metadata")
    return entry.metadata


def _documents(path: str, metadata: NodeMetadata) -> dict[str, dict[str, Any]]:
    """Return the documents of a node of version 2 by key."""
    make = to_v2.array_documents if isinstance(metadata, ArrayMetadata) else to_v2.group_documents
    return {join_path(path, name): document for name, document in make(metadata).items()}  # type: ignore[arg-type]


def _document(metadata: NodeMetadata) -> dict[str, Any]:
    """Return the document of a node of version 3, without consolidated metadata of its own."""
    make = to_v3.array_documents if isinstance(metadata, ArrayMetadata) else to_v3.group_documents
    document = make(metadata)["zarr.json"]  # type: ignore[arg-type]
    return {name: value for name, value in document.items() if name != _V3_MEMBER}
