"""Known nodes: single nodes, or a tree of nodes from consolidated metadata."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError, MetadataError
from ..metadata.formats import FORMATS
from ..metadata.model import GroupMetadata
from ..stores.keys import normalize_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.model import NodeMetadata, ZarrFormat

# Consolidated metadata may omit this many groups per node. More is an attempt to exhaust memory with long paths.
_BRANCHES_PER_NODE: Final = 16


@dataclass(slots=True, eq=False)
class Entry:
    """A known node.

    Attributes
    ----------
    metadata
        Metadata of the node, or the error in its documents.
    children
        Nodes directly below, by name, from consolidated metadata; None if they must be read from the store.
    """

    metadata: NodeMetadata | MetadataError
    children: dict[str, Entry] | None = None


def entry_of(path: str, metadata: NodeMetadata) -> Entry:
    """Return the node at ``path``, with the nodes below it from its consolidated metadata.

    Raises
    ------
    MetadataError
        If consolidated metadata contains invalid paths. The error names the key.
    """
    if not isinstance(metadata, GroupMetadata) or metadata.consolidated is None:
        return Entry(metadata)
    key = FORMATS[metadata.zarr_format].consolidated_key(path) or path
    return Entry(metadata, _grow(metadata.consolidated, metadata.zarr_format, key))


@dataclass(slots=True, eq=False)
class _Branch:
    metadata: NodeMetadata | MetadataError | None = None
    below: defaultdict[str, _Branch] = field(default_factory=lambda: defaultdict(_Branch))


def _grow(nodes: Mapping[str, NodeMetadata | MetadataError], zarr_format: ZarrFormat, key: str) -> dict[str, Entry]:
    """Turn consolidated metadata, by path, into a tree. Groups that only occur inside paths are implicit."""
    root, branches, most = _Branch(), 0, 1000 + _BRANCHES_PER_NODE * len(nodes)
    for path in nodes:
        if not path:  # the group itself
            continue
        try:
            names = normalize_path(path).split("/")
        except ArgumentError as exc:
            raise MetadataError(f"consolidated metadata: {exc}", key=key) from exc
        branch = root
        for name in names:
            branches += name not in branch.below
            branch = branch.below[name]
        if branches > most:
            raise MetadataError(
                f"consolidated metadata names far more groups than it describes ({path[:80]!r}…)", key=key
            )
        branch.metadata = nodes[path]
    entries: dict[str, Entry] = {}
    stack = [(root, entries)]
    while stack:
        branch, into = stack.pop()
        for name in sorted(branch.below):
            below = branch.below[name]
            metadata = below.metadata or GroupMetadata(zarr_format=zarr_format, implicit=True)
            entry = into[name] = Entry(metadata)
            if isinstance(metadata, GroupMetadata):
                entry.children = {}
                stack.append((below, entry.children))
    return entries
