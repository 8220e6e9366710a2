"""Consolidated metadata: the documents of all nodes below a group in one, so that opening them costs one request.

Version 2: ``.zmetadata``, as zarr-python has written it since version 2.3. Version 3: the member
``consolidated_metadata`` of the group's own document, as zarr-python 3 writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .changes import drop_indexes, reader_of, writable
from .documents import NodeReader
from .engines.locks import hold
from .errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from .group import Group
from .metadata import to_v2, to_v3
from .metadata.model import ArrayMetadata, GroupMetadata
from .metadata.to_documents import dump
from .stores.keys import join_path, normalize_path
from .stores.resolve import as_store

if TYPE_CHECKING:
    from .metadata.model import NodeMetadata, ZarrFormat
    from .stores.resolve import StoreLike

_V3_MEMBER = "consolidated_metadata"


def consolidate(
    store: StoreLike, *, path: str = "", zarr_format: ZarrFormat | None = None, device: str = "auto"
) -> Group:
    """Write the consolidated metadata of a group, and return the group opened with them.

    Groups without documents become explicit in it. Whatever gzarr changes below the group later removes it again, since
    it would be wrong then.

    Parameters
    ----------
    store, path, device
        As for :func:`gzarr.open_group`.
    zarr_format
        2 or 3, where both have a group there.

    Returns
    -------
    The group, to read and write.

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
    entry = reader.node(where, zarr_format)
    if entry is None:
        raise NodeNotFoundError(f"no group at '/{where}' in {target!r}")
    metadata = entry.metadata
    if not isinstance(metadata, GroupMetadata):
        raise NodeTypeError(f"'/{where}' in {target!r} is an array; only groups have consolidated metadata")
    if metadata.zarr_format not in (2, 3):
        raise ArgumentError(f"'/{where}': Zarr format {metadata.zarr_format!r} has no consolidated metadata")
    nodes: dict[str, NodeMetadata] = {}
    for name, below in Group(metadata, reader, where).walk():
        if isinstance(below.metadata, MetadataError):
            raise below.metadata
        nodes[name] = below.metadata
    with hold(target, [join_path(where, "zarr.json")]):
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
    opened_reader = NodeReader(target)
    found_entry = opened_reader.node(where, metadata.zarr_format)
    assert found_entry is not None
    assert isinstance(found_entry.metadata, GroupMetadata)
    return Group(found_entry.metadata, opened_reader, where, device=device, children=found_entry.children, mode="r+")


def _documents(path: str, metadata: NodeMetadata) -> dict[str, dict[str, Any]]:
    """Return the documents of a node of version 2 by key."""
    make = to_v2.array_documents if isinstance(metadata, ArrayMetadata) else to_v2.group_documents
    return {join_path(path, name): document for name, document in make(metadata).items()}  # type: ignore[arg-type]


def _document(metadata: NodeMetadata) -> dict[str, Any]:
    """Return the document of a node of version 3, without consolidated metadata of its own."""
    make = to_v3.array_documents if isinstance(metadata, ArrayMetadata) else to_v3.group_documents
    document = make(metadata)["zarr.json"]  # type: ignore[arg-type]
    return {name: value for name, value in document.items() if name != _V3_MEMBER}
