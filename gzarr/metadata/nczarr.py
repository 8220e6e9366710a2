"""What NCZarr's members say of nodes and attributes, and how they change with them.

netCDF-C refuses a data set in which a listed array is absent, or an array has another length than its dimensions, or
dimensions that are not in a group above it. It also refuses one that lists an array without NCZarr's members, such as
one that gzarr creates: so that is not listed. An attribute of another type than NCZarr says may end the process.

Source: https://docs.unidata.ucar.edu/nug/current/nczarr_head.html
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from .formats import FORMATS
from .model import ArrayMetadata, GroupMetadata
from .to_documents import group_with_attributes, with_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .model import NodeMetadata

    _Node = TypeVar("_Node", bound=NodeMetadata)

#: Format of the groups that netCDF-C writes.
ZARR_FORMAT: Final = 2
#: Members that describe a group and an array. Those before netCDF-C 4.8.1 are in upper case.
GROUP: Final = ("_nczarr_group", "_NCZARR_GROUP")
ARRAY: Final = ("_nczarr_array", "_NCZARR_ARRAY")
_ROOT: Final = ("_nczarr_superblock", "_NCZARR_SUPERBLOCK")
_ATTRIBUTES: Final = ("_nczarr_attr", "_NCZARR_ATTR")
#: Newer and older names in them: of the lengths of a group's dimensions, of the list of its arrays, and of the
#: dimensions of an array, which are paths (``/group/x``).
LENGTHS: Final = ("dimensions", "dims")
ARRAYS: Final = ("arrays", "vars")
DIMENSIONS: Final = ("dimension_references", "dimrefs")
_LISTS: Final = (*ARRAYS, "groups")
# Type of an attribute that is text.
_TEXT: Final = ">S1"
# Types that netCDF-C finds for integers, the first one that holds them.
_INTEGERS: Final = ("<i4", "<u4", "<i8", "<u8")
# Attribute whose type is that of its array.
_FILL_VALUE: Final = "_FillValue"
# Numbers that JSON has not, as netCDF-C writes them.
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def keys_of_group(path: str) -> list[str]:
    """Return the keys of documents in which a group may have members of NCZarr."""
    return FORMATS[ZARR_FORMAT].keys_of(path, "group")[:2]


def may_be_nczarr(path: str, found: Mapping[str, bytes]) -> bool:
    """Return whether the documents of a group, by key, may have members of NCZarr."""
    return any(name.encode() in found.get(key, b"") for key in keys_of_group(path) for name in GROUP)


def is_root(group: GroupMetadata) -> bool:
    """Return whether a group is the root of a data set, from which paths of dimensions start."""
    return any(name in holder for name in _ROOT for holder in (group.attributes, group.document.get(".zgroup", {})))


def list_with(group: GroupMetadata, name: str) -> str | None:
    """Return the name of the list that has a member of the group; None if there is none."""
    members, _ = _members(group, GROUP)
    return next((key for key, names in _lists(members).items() if name in names), None)


def with_length(group: GroupMetadata, name: str, length: int) -> GroupMetadata:
    """Return the group with another length of a dimension; the same object if it has no such dimension."""
    members, changed = _members(group, GROUP)
    for key in LENGTHS:
        lengths = members.get(key)
        if isinstance(lengths, dict) and name in lengths:
            said = lengths[name]
            # An unlimited dimension is an object.
            new = {**said, "size": length} if isinstance(said, dict) else length
            return changed({**members, key: {**lengths, name: new}})
    return group


def with_member(group: GroupMetadata, name: str, listed: str | None) -> GroupMetadata:
    """Return the group with a name in its list of the kind of ``listed`` and in no other; in none for None."""
    members, changed = _members(group, GROUP)
    lists = {key: [one for one in names if one != name] for key, names in _lists(members).items()}
    for key in ARRAYS if listed in ARRAYS else (listed,):
        if key in lists:
            lists[key].append(name)
            break
    return changed({**members, **lists})


def is_member(node: NodeMetadata) -> bool:
    """Return whether a node has members of NCZarr, without which netCDF-C refuses one that is listed."""
    found, _ = _members(node, ARRAY if isinstance(node, ArrayMetadata) else GROUP)
    return bool(found)


def moved_dimensions(dimensions: Sequence[str], path: str, source: str, dest: str) -> tuple[list[str], str | None]:
    """Return what becomes of the dimensions of an array when a node moves, and the first that it would lose.

    Parameters
    ----------
    dimensions
        Paths of the dimensions in the data set.
    path
        Path of the array in the data set after the move.
    source, dest
        Path of the node that moves, the array or a group above it, before and after.
    """
    moved = []
    for dimension in dimensions:
        group, _, name = dimension.strip("/").rpartition("/")
        if f"{group}/".startswith(f"{source}/"):
            moved.append(f"/{dest}{group[len(source) :]}/{name}")
        elif not group or path.startswith(f"{group}/"):
            moved.append(dimension)
        else:
            return [], dimension
    return moved, None


def with_dimensions(array: ArrayMetadata, dimensions: list[str]) -> ArrayMetadata:
    """Return the array with other paths of its dimensions."""
    members, changed = _members(array, ARRAY)
    return changed({**members, **{key: dimensions for key in DIMENSIONS if key in members}})


def with_types(node: _Node, before: Mapping[str, Any]) -> _Node:
    """Return a node with types that fit the attributes that have changed, from those ``before``: :func:`fit_types`."""
    # As text, for True equals 1, and NaN nothing.
    changes = {name: value for name, value in node.attributes.items() if repr(value) != repr(before.get(name))}
    members, changed = _members(node, _ATTRIBUTES)
    dtype = node.dtype if isinstance(node, ArrayMetadata) else None
    return changed(_fitted_types(members, changes, dtype, are_new=True))


def fit_types(holder: dict[str, Any], attributes: Mapping[str, Any], dtype: np.dtype[Any] | None = None) -> None:
    """Set the types that NCZarr says of attributes right, in members of a node or in the attributes themselves.

    A value that fits keeps its type. Others are only in the list where netCDF-C would not find a type that holds them:
    it takes that of the first item in a list, and for ``_FillValue`` that of the array. By numbers out of its range,
    or an empty list, it refuses the data set; text among numbers ends the process. What no type holds is text, in which
    it shows JSON.

    Parameters
    ----------
    holder
        What has the list of types.
    attributes
        Attributes of the node.
    dtype
        Data type of an array; None for a group.
    """
    for name in _ATTRIBUTES:
        if isinstance(holder.get(name), dict):
            holder[name] = _fitted_types(holder[name], attributes, dtype, are_new=False)


def _fitted_types(
    members: dict[str, Any], attributes: Mapping[str, Any], dtype: np.dtype[Any] | None, *, are_new: bool
) -> dict[str, Any]:
    types = members.get("types")
    if not isinstance(types, dict):
        return members
    # netCDF-C itself writes text that is JSON, such as "12", as what it says.
    kept = () if are_new else (_TEXT,)
    left = {
        name: said
        for name, said in types.items()
        if name not in attributes or said in kept or _fits(attributes[name], said)
    }
    needed = {name: _needed_type(value, dtype if name == _FILL_VALUE else None) for name, value in attributes.items()}
    return {**members, "types": {**{name: said for name, said in needed.items() if said is not None}, **left}}


def _needed_type(value: Any, hint: np.dtype[Any] | None) -> str | None:
    """Return the type to list for an attribute; None if netCDF-C finds one that holds it, ``hint`` if that is given."""
    values = value if isinstance(value, list) else [value]
    if not values:
        return _TEXT
    if any(one is None or isinstance(one, list | dict) for one in values):
        # It shows JSON.
        return None
    if hint is not None:
        found = hint.str
    elif not isinstance(value, list) or all(isinstance(one, str) for one in values):
        return None
    else:
        # It takes the largest signed integer for an unsigned one.
        found = "<u8" if values[0] == 2**63 - 1 else _type_of(values[:1])
    return None if _fits(value, found) else _type_of(values)


def _type_of(values: list[Any]) -> str:
    """Return a type that holds numbers and text. Of integers beside fractions, those beyond 2**53 are rounded."""
    numbers = [one for one in values if _is_number(one)]
    # It reads no integers of more than 64 bits.
    large = any(isinstance(one, int) and not -(2**63) <= one < 2**64 for one in numbers)
    if not numbers or large or any(isinstance(one, str) and one not in _NOT_FINITE for one in values):
        return _TEXT
    if all(isinstance(one, bool) for one in values):
        return "|u1"
    return next((said for said in _INTEGERS if _fits(values, said)), "<f8")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _fits(value: Any, said: Any) -> bool:
    """Return whether netCDF-C can read an attribute as one of a type: numbers, text, or JSON."""
    if said == "|J0":
        return isinstance(value, dict | list)
    try:
        dtype = np.dtype(said)
    except (TypeError, ValueError, SyntaxError):
        return False
    values = value if isinstance(value, list) else [value]
    if dtype.kind in "iuf":
        return all(_holds(dtype, one) for one in values)
    # Only longer ones can be in lists.
    return isinstance(value, str) or (dtype.itemsize > 1 and all(isinstance(one, str) for one in values))


def _holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Return whether a type of numbers has a value: integers exactly, and fractions as near as floats are."""
    if dtype.kind != "f":
        # Of floats that are integers, netCDF-C refuses some.
        return isinstance(value, int) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if not _is_number(value):
        return value in _NOT_FINITE
    if isinstance(value, float) and dtype.itemsize > 4:
        return True
    try:
        with np.errstate(over="ignore"):
            held = float(dtype.type(value))
    except OverflowError:
        return False
    return held == value if isinstance(value, int) else math.isfinite(held) or not math.isfinite(value)


def _lists(members: dict[str, Any]) -> dict[str, list[Any]]:
    return {key: members[key] for key in _LISTS if isinstance(members.get(key), list)}


def _members(node: _Node, names: Sequence[str]) -> tuple[dict[str, Any], Callable[[dict[str, Any]], _Node]]:
    """Return the first member of NCZarr of some names, empty if there is none, and a function that sets it."""
    document_name = ".zarray" if isinstance(node, ArrayMetadata) else ".zgroup"
    document: dict[str, Any] = node.document.get(document_name, {})
    places = ((holder, key) for holder in (node.attributes, document) for key in names)
    holder, key = next(((holder, key) for holder, key in places if isinstance(holder.get(key), dict)), ({}, ""))
    found: dict[str, Any] = holder.get(key, {})

    def changed(members: dict[str, Any]) -> _Node:
        if not key or members == found:
            return node
        new: NodeMetadata
        if holder is document:
            new = replace(node, document={**node.document, document_name: {**document, key: members}})
        elif isinstance(node, ArrayMetadata):
            new = with_attributes(node, {**node.attributes, key: members})
        else:
            new = group_with_attributes(node, {**node.attributes, key: members})
        return cast("_Node", new)

    return found, changed
