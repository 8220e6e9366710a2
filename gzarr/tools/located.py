"""Finding the nodes that tools work on, with what is below them.

Tools look at the documents of the nodes themselves, because consolidated metadata may be out of date. A store that
cannot list its keys (a web server) has nothing else: there, what is below a node is known from the consolidated
metadata of the node, or of a group above it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import MetadataError
from ..hierarchy.group import make_node
from ..hierarchy.open import open
from ..metadata.model import ArrayMetadata
from ..nodes.documents import upward
from ..nodes.entries import Entry
from ..nodes.reader import NodeReader
from ..stores.base import is_listable
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hierarchy.group import Node
    from ..metadata.model import ZarrFormat
    from ..stores.resolve import StoreLike


class Located(NamedTuple):
    """A node of a store.

    Attributes
    ----------
    reader
        Reader of the store.
    path
        Path in the store.
    entry
        What is known of the node.
    """

    reader: NodeReader
    path: str
    entry: Entry

    def node(self, device: str = "cpu") -> Node:
        """Return the node, open for reading.

        Raises
        ------
        MetadataError
            If it cannot be read.
        """
        entry = self.entry
        return make_node(entry.metadata, self.reader, self.path, device=device, missing="fill", children=entry.children)


def locate(
    store: StoreLike,
    *,
    path: str = "",
    allow_pickle: bool = False,
    use_consolidated: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Located:
    """Find a node.

    Parameters
    ----------
    store, path, allow_pickle, storage_options
        As for :func:`gzarr.open`.
    use_consolidated
        Whether consolidated metadata is also used where the store can list its keys.

    Raises
    ------
    NodeNotFoundError, ArgumentError, MetadataError, StoreError
        As for :func:`gzarr.open`.
    """
    opened, base = as_store(store, "r", storage_options)
    where = join_path(base, normalize_path(path))
    reader = NodeReader(opened, bool(allow_pickle), None if use_consolidated else False)
    entry = find(reader, where)
    if entry is None:
        # Its error has hints at what is there.
        entry = Entry(open(opened, path=where, allow_pickle=allow_pickle, device="cpu").metadata)
    return Located(reader_for(reader), where, entry)


def reader_for(reader: NodeReader) -> NodeReader:
    """Return a reader that uses consolidated metadata where there is nothing else, whatever it was told."""
    return reader if is_listable(reader.store) else replace(reader, use_consolidated=None)


def find(reader: NodeReader, path: str, zarr_format: ZarrFormat | None = None) -> Entry | None:
    """Return the node at ``path``, with what is below it if its store cannot list; None if there is none.

    Costs the requests of :meth:`.NodeReader.node`, and as many for each group above where that has to be asked.

    Raises
    ------
    MetadataError
        If a document of the node is malformed.
    StoreError
        If the store fails.
    """
    reader = reader_for(reader)
    entry = reader.node(path, zarr_format)
    if is_listable(reader.store) or (entry is not None and _is_whole(entry)):
        return entry
    found = _in_consolidated(reader, path, zarr_format)
    if entry is None or found is None:
        return found if entry is None else entry
    return Entry(entry.metadata, found.children)


def _is_whole(entry: Entry) -> bool:
    return entry.children is not None or isinstance(entry.metadata, ArrayMetadata)


def _in_consolidated(reader: NodeReader, path: str, zarr_format: ZarrFormat | None) -> Entry | None:
    """Return what the consolidated metadata of the nearest group above that has any says of a node."""
    for above in upward(path)[1:]:
        group = None
        # What is wrong above does not matter to what is below.
        with contextlib.suppress(MetadataError):
            group = reader.node(above, zarr_format)
        if group is None or group.children is None:
            continue
        entry: Entry | None = group
        for name in path[len(above) :].strip("/").split("/"):
            children = None if entry is None else entry.children
            entry = None if children is None else children.get(name)
        return entry
    return None
