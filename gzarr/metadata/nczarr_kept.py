"""What a copy in version 3 keeps of NCZarr, fitted to nodes that have changed since, for a copy back.

Everything is in attributes of groups there (:mod:`gzarr.metadata.conventions`), and does not follow changes of shapes
and names. netCDF-C refuses a data set that does not fit: see :mod:`gzarr.metadata.nczarr`. So arrays whose dimensions
are not there any more are not listed, and netCDF-C passes over them.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..stores.keys import join_path
from .model import ArrayMetadata, GroupMetadata
from .nczarr import ARRAY, ARRAYS, DIMENSIONS, GROUP, LENGTHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .model import NodeMetadata

#: Attribute of the copy of a group in version 3 that keeps NCZarr's attributes of the arrays in the group, by name.
KEPT_ARRAYS: Final = "_nczarr_arrays"
#: Likewise, for what are members of documents up to netCDF-C 4.9.2: in ``.zarray`` of the arrays in the group, by name,
#: and in its own ``.zgroup``, by the empty name.
KEPT_MEMBERS: Final = "_nczarr_members"


def fitted(nodes: Mapping[str, NodeMetadata]) -> Mapping[str, NodeMetadata]:
    """Return the nodes of a hierarchy in version 3, by path, whose groups keep what fits the nodes."""
    kept = _Kept(nodes)
    if not kept.groups:
        return nodes
    kept.fit()
    changed = {path: replace(nodes[path], attributes=attributes) for path, attributes in kept.attributes.items()}
    return {path: changed.get(path, node) for path, node in nodes.items()}


class _Kept:
    """What is kept in a hierarchy.

    Attributes
    ----------
    attributes
        Those of its groups that are part of a data set, to be changed.
    groups
        NCZarr's description of each of them, in the attributes.
    """

    def __init__(self, nodes: Mapping[str, NodeMetadata]) -> None:
        self._nodes = nodes
        self.attributes: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        for path, node in nodes.items():
            if isinstance(node, GroupMetadata) and any(name.startswith("_nc") for name in node.attributes):
                attributes = copy.deepcopy(node.attributes)
                found = _described((attributes, _member(attributes, KEPT_MEMBERS, "")), GROUP)
                if found is not None:
                    self.attributes[path], self.groups[path] = attributes, found

    def fit(self) -> None:
        """Change the attributes."""
        used: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
        for group in self.groups:
            for name in self._kept_names(group):
                found = self._dimensions(group, name)
                if found is None:
                    self._forget(group, name)
                    continue
                for dimension, length in found:
                    used.setdefault(dimension, []).append((group, name, length))
        for place, users in used.items():
            self._fit_length(*place, users)
        for group, described in self.groups.items():
            names = self._kept_names(group)
            for key in ARRAYS:
                if isinstance(described.get(key), list):
                    described[key] = [name for name in described[key] if name in names]
            if isinstance(described.get("groups"), list):
                below = [path.rpartition("/")[2] for path in self.groups if path and path.rpartition("/")[0] == group]
                old = [name for name in described["groups"] if name in below]
                described["groups"] = [*old, *(name for name in below if name not in old)]

    def _kept_names(self, group: str) -> list[str]:
        """Return the names of the arrays in a group of which something is kept."""
        found = [_member(self.attributes[group], attribute) for attribute in (KEPT_ARRAYS, KEPT_MEMBERS)]
        return [name for name in dict.fromkeys(name for kept in found for name in kept) if name]

    def _forget(self, group: str, name: str) -> None:
        for attribute in (KEPT_ARRAYS, KEPT_MEMBERS):
            _member(self.attributes[group], attribute).pop(name, None)

    def _dimensions(self, group: str, name: str) -> list[tuple[tuple[str, str], int]] | None:
        """Return an array's dimensions (group and name) with its lengths; None if it is no array of the data set.

        Their paths are set right, for a group above the array may have another name now.
        """
        array = self._nodes.get(join_path(group, name))
        holders = [_member(self.attributes[group], attribute, name) for attribute in (KEPT_ARRAYS, KEPT_MEMBERS)]
        described = _described(holders, ARRAY)
        key = next((key for key in DIMENSIONS if isinstance((described or {}).get(key), list)), None)
        if not isinstance(array, ArrayMetadata) or described is None or key is None:
            return None
        root = self._root(group)
        places = []
        for said in map(str, described[key]):
            above = self._group_of(said, root, group)
            if above is None:
                return None
            places.append((above, _last(said)))
        # Scalars are stored as arrays of one element.
        shape = () if not places and array.shape == (1,) else array.shape
        if len(places) != len(shape):
            return None
        described[key] = [f"/{join_path(path[len(root) :].strip('/'), name)}" for path, name in places]
        return list(zip(places, shape, strict=True))

    def _root(self, group: str) -> str:
        """Return the path of the data set that a group is in: its outermost group."""
        return next(path for path in reversed(list(_upward(group))) if path in self.groups)

    def _group_of(self, dimension: str, root: str, group: str) -> str | None:
        """Return the path of the group that has a dimension: the one that is named, or the next above an array."""
        above = [path for path in _upward(group) if path in self.groups and _last(dimension) in self._lengths(path)]
        said = join_path(root, dimension.strip("/").rpartition("/")[0])
        return said if said in above else next(iter(above), None)

    def _lengths(self, group: str) -> dict[str, Any]:
        found = (self.groups[group].get(key) for key in LENGTHS)
        return next((lengths for lengths in found if isinstance(lengths, dict)), {})

    def _fit_length(self, group: str, dimension: str, users: list[tuple[str, str, int]]) -> None:
        """Set the length of a dimension to that of its arrays; if they differ, those with the length before stay in."""
        lengths = self._lengths(group)
        said = lengths[dimension]
        before = said.get("size") if isinstance(said, dict) else said
        found = [length for _, _, length in users]
        new = before if before in found else found[0]
        lengths[dimension] = {**said, "size": new} if isinstance(said, dict) else new
        for where, name, length in users:
            if length != new:
                self._forget(where, name)


def _described(holders: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any] | None:
    """Return the first object of some names."""
    found = (holder.get(name) for holder in holders for name in names)
    return next((one for one in found if isinstance(one, dict)), None)


def _member(attributes: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an object in objects; an empty one if there is none."""
    found: Any = attributes
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _upward(group: str) -> Iterator[str]:
    """Yield the path of a group and those of the groups above it."""
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""
