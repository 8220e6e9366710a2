"""What NCZarr's members of a group say of the nodes in it, and how they change with them.

netCDF-C refuses a data set in which a listed array is absent, or an array has another length than its dimensions. It
also refuses one that lists an array without NCZarr's members, such as one that gzarr creates: so that is not listed.

Source: https://docs.unidata.ucar.edu/nug/current/nczarr_head.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .conventions import group_with_members
from .formats import FORMATS
from .to_documents import group_with_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .model import GroupMetadata

#: Format of the groups that netCDF-C writes.
ZARR_FORMAT: Final = 2
# Members before netCDF-C 4.8.1 are in upper case.
_GROUP: Final = ("_nczarr_group", "_NCZARR_GROUP")
_ROOT: Final = ("_nczarr_superblock", "_NCZARR_SUPERBLOCK")
# Newer and older names in them.
_LENGTHS: Final = ("dimensions", "dims")
_ARRAYS: Final = ("arrays", "vars")
_LISTS: Final = (*_ARRAYS, "groups")


def keys_of_group(path: str) -> list[str]:
    """Return the keys of documents in which a group may have members of NCZarr."""
    return FORMATS[ZARR_FORMAT].keys_of(path, "group")[:2]


def may_be_nczarr(path: str, found: Mapping[str, bytes]) -> bool:
    """Return whether the documents of a group, by key, may have members of NCZarr."""
    return any(name.encode() in found.get(key, b"") for key in keys_of_group(path) for name in _GROUP)


def is_root(group: GroupMetadata) -> bool:
    """Return whether a group is the root of a data set, from which paths of dimensions start."""
    return any(name in holder for name in _ROOT for holder in (group.attributes, group.document.get(".zgroup", {})))


def list_with(group: GroupMetadata, name: str) -> str | None:
    """Return the name of the list that has a member of the group; None if there is none."""
    members, _ = _members(group)
    return next((key for key, names in _lists(members).items() if name in names), None)


def with_length(group: GroupMetadata, name: str, length: int) -> GroupMetadata:
    """Return the group with another length of a dimension; the same object if it has no such dimension."""
    members, changed = _members(group)
    for key in _LENGTHS:
        lengths = members.get(key)
        if isinstance(lengths, dict) and name in lengths:
            said = lengths[name]
            # An unlimited dimension is an object.
            new = {**said, "size": length} if isinstance(said, dict) else length
            return changed({**members, key: {**lengths, name: new}})
    return group


def with_member(group: GroupMetadata, name: str, listed: str | None) -> GroupMetadata:
    """Return the group with a name in its list of the kind of ``listed`` and in no other; in none for None."""
    members, changed = _members(group)
    lists = {key: [one for one in names if one != name] for key, names in _lists(members).items()}
    for key in _ARRAYS if listed in _ARRAYS else (listed,):
        if key in lists:
            lists[key].append(name)
            break
    return changed({**members, **lists})


def _lists(members: dict[str, Any]) -> dict[str, list[Any]]:
    return {key: members[key] for key in _LISTS if isinstance(members.get(key), list)}


def _members(group: GroupMetadata) -> tuple[dict[str, Any], Callable[[dict[str, Any]], GroupMetadata]]:
    """Return the members of NCZarr, none if the group has none, and a function that returns the group with others."""
    attributes, document = group.attributes, group.document.get(".zgroup", {})

    def changed(members: dict[str, Any]) -> GroupMetadata:
        if key is None or members == found:
            return group
        if holder is document:
            return group_with_members(group, {key: members})
        return group_with_attributes(group, {**attributes, key: members})

    places = ((holder, key) for holder in (attributes, document) for key in _GROUP)
    holder, key = next(((holder, key) for holder, key in places if isinstance(holder.get(key), dict)), ({}, None))
    found = {} if key is None else holder[key]
    return found, changed
