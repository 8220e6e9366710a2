"""Consolidated metadata: the documents of all nodes below a group in one, so that opening them costs one request.

Version 2: ``.zmetadata``, as zarr-python has written it since version 2.3. Version 3: the member
``consolidated_metadata`` of the group's own document, as zarr-python 3 writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..metadata.formats import FORMATS
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import dump
from ..nodes.change import drop_indexes, hold_documents, reader_of, writable
from ..nodes.reader import NodeReader
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from ..metadata.model import NodeMetadata, ZarrFormat
    from ..stores.resolve import StoreLike


def consolidate_metadata(
    store: StoreLike, *, path: str = "", zarr_format: ZarrFormat | None = None, device: str = "auto"
) -> Group:
    """Write the consolidated metadata of a group: the metadata of all nodes below, into the group's own.

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
        for name, below in Group(metadata, reader, where, device="cpu").walk():
            if isinstance(below, MetadataError):
                raise below
            nodes[name] = below.metadata
        # Those above say less than this one, or something else.
        drop_indexes(target, where)
        format = FORMATS[metadata.zarr_format]
        key = format.consolidated_key(where)
        assert key is not None
        target.set(key, dump(format.consolidated(metadata, nodes)))
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
    if FORMATS[entry.metadata.zarr_format].consolidated_key(path) is None:
        raise ArgumentError(f"'/{path}': Zarr format {entry.metadata.zarr_format!r} has no consolidated metadata")
    return entry.metadata
