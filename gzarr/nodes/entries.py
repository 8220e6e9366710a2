"""Known nodes: single nodes, or a tree of nodes from consolidated metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import MetadataError
from ..metadata.formats import FORMATS
from ..metadata.model import GroupMetadata
from ..stores.keys import join_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import TypeAlias

    from ..metadata.model import NodeMetadata

    # Names below a group, or below what is said to be an array.
    _Branch: TypeAlias = "dict[str, _Branch]"

# Consolidated metadata may omit this many groups per node. More is an attempt to exhaust memory with long paths.
_BRANCHES_PER_NODE: Final = 16


class Entry:
    """A known node.

    Parameters
    ----------
    metadata
        Metadata of the node, or the error in its documents.
    children
        Nodes directly below, by name, from consolidated metadata; None if they must be read from the store.
    """

    __slots__ = ("_children", "_metadata")

    def __init__(self, metadata: NodeMetadata | MetadataError, children: Mapping[str, Entry] | None = None) -> None:
        self._metadata = metadata
        self._children = children

    @property
    def metadata(self) -> NodeMetadata | MetadataError:
        """Metadata of the node, or the error in its documents."""
        return self._metadata

    @property
    def children(self) -> Mapping[str, Entry] | None:
        """Nodes directly below, by name, from consolidated metadata; None if they must be read from the store."""
        return self._children


class _ConsolidatedEntry(Entry):
    """A node that consolidated metadata names; its documents are parsed when they are asked for."""

    __slots__ = ("_below", "_nodes")

    def __init__(self, nodes: _Nodes, below: _Children) -> None:
        self._nodes = nodes
        self._below = below

    @property
    def metadata(self) -> NodeMetadata | MetadataError:
        return self._nodes.of(self._below.path)

    @property
    def children(self) -> Mapping[str, Entry] | None:
        # What is said to be below an array does not count.
        return self._below if isinstance(self.metadata, GroupMetadata) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes of consolidated metadata by path; groups that only occur inside paths are implicit."""

    known: Mapping[str, NodeMetadata | MetadataError]
    implicit: GroupMetadata

    def of(self, path: str) -> NodeMetadata | MetadataError:
        return self.known[path] if path in self.known else self.implicit  # noqa: SIM401


class _Children(Mapping[str, Entry]):
    """The nodes directly below a path by name, sorted."""

    __slots__ = ("_branch", "_names", "_nodes", "path")

    def __init__(self, nodes: _Nodes, path: str, branch: _Branch) -> None:
        self._nodes = nodes
        self._branch = branch
        self._names: list[str] | None = None
        self.path = path

    def __getitem__(self, name: str) -> Entry:
        return _ConsolidatedEntry(self._nodes, _Children(self._nodes, join_path(self.path, name), self._branch[name]))

    def __contains__(self, name: object) -> bool:
        return name in self._branch

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(self._branch)
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._branch)


def entry_of(path: str, metadata: NodeMetadata) -> Entry:
    """Return the node at ``path``, with the nodes below it from its consolidated metadata.

    Raises
    ------
    MetadataError
        If consolidated metadata names too many groups. The error names the key.
    """
    if not isinstance(metadata, GroupMetadata) or metadata.consolidated is None:
        return Entry(metadata)
    key = FORMATS[metadata.zarr_format].consolidated_key(path) or path
    nodes = _Nodes(metadata.consolidated, GroupMetadata(zarr_format=metadata.zarr_format, implicit=True))
    return Entry(metadata, _Children(nodes, "", _grow(metadata.consolidated, key)))


def _grow(paths: Collection[str], key: str) -> _Branch:
    """Turn the paths of consolidated metadata, which parsers have checked, into a tree."""
    root: _Branch = {}
    branches, most = 0, 1000 + _BRANCHES_PER_NODE * len(paths)
    for path in paths:
        if not path:  # the group itself
            continue
        branch = root
        for name in path.split("/"):
            if name not in branch:
                branches += 1
                branch[name] = {}
            branch = branch[name]
        if branches > most:
            raise MetadataError(
                f"consolidated metadata names far more groups than it describes ({path[:80]!r}…)", key=key
            )
    return root
