"""The names of the columns of a matrix: the index of ``var``, as AnnData stores it beside the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.array import Array
from ..errors import ArgumentError, NodeNotFoundError, NodeTypeError
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from .offsets import element_on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


def column_names(group: Group, count: int) -> npt.NDArray[Any]:
    """Return the names of the columns of a matrix ``X`` or ``layers/…``, strings ``(count,)``.

    Raises
    ------
    NodeNotFoundError
        If there is no ``var`` beside the matrix.
    ArgumentError
        If it has no index of that many strings.
    """
    var = _var_of(group)
    name = var.metadata.attributes.get("_index")
    if not isinstance(name, str):
        raise ArgumentError(f"{var.name!r} has no attribute '_index', which names the array of its names")
    node = var[name]
    found = elements_of(node)
    if found.shape != (count,):
        raise ArgumentError(f"{node.name!r} must have the names of {count} columns; it has shape {found.shape}")
    return found


def elements_of(node: Array | Group) -> npt.NDArray[Any]:
    """Return the elements of an array of AnnData, objects: of categories, and of values of which some are missing, too.

    Parameters
    ----------
    node
        An array, or a group that is encoded as a categorical or as a nullable array. What is missing in it is None.

    Raises
    ------
    ArgumentError
        If a member of a group is no array, or if its members do not fit each other.
    NodeNotFoundError
        If a group lacks a member.
    """
    if isinstance(node, Array):
        return np.asarray(element_on_host(node, ...), object)
    if node.metadata.attributes.get("encoding-type") == "categorical":
        known, codes = elements_of(node["categories"]), _member(node, "codes")
        if known.ndim != 1 or codes.dtype.kind not in "iu":
            raise ArgumentError(f"the codes of {node.name!r} are no numbers of its categories")
        # The last one stands for codes without a category: -1 is a missing value.
        return np.append(known, [None])[np.where((codes >= 0) & (codes < len(known)), codes, len(known))]
    result = np.array(_member(node, "values"), object)
    if "mask" in node:
        missing = _member(node, "mask")
        if missing.shape != result.shape:
            raise ArgumentError(f"values and mask of {node.name!r} have the shapes {result.shape} and {missing.shape}")
        result[missing.astype(bool)] = None
    return result


def _member(group: Group, name: str) -> npt.NDArray[Any]:
    node = group[name]
    if not isinstance(node, Array):
        raise ArgumentError(f"{node.name!r} is a group, but in an array of AnnData it must be an array")
    return np.asarray(element_on_host(node, ...))


def _var_of(group: Group) -> Group:
    path = group.path
    while path:
        path = path.rpartition("/")[0]
        try:
            above = open_group(group.store, path=path, mode="r", device=group._device)
            found = above["var"]
        except (NodeNotFoundError, NodeTypeError):
            continue
        if isinstance(found, Group):
            return found
    raise NodeNotFoundError(
        f"there is no group 'var' beside the matrix {group.name!r} in {group.store!r}, which would name its columns: "
        "choose them by their numbers"
    )


def numbers_of(names: Sequence[str], known: npt.NDArray[Any], matrix: str, *, missing: bool) -> IntArray:
    """Return the number of the column of each name, int64 ``(n,)``; −1 for those that there are not, if ``missing``.

    Raises
    ------
    ArgumentError
        If the names are no strings, if there is none of a name, or if there are several.
    """
    if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
        raise ArgumentError(f"matrix {matrix!r}: names of columns must be a list of strings, not {names!r:.100}")
    wanted = [str(name) for name in names]
    places: dict[str, int] = {}
    twice: set[str] = set()
    for i, given in enumerate(known.tolist()):
        # A missing name is no name.
        if given is not None and places.setdefault(name := str(given), i) != i:
            twice.add(name)
    if several := [name for name in wanted if name in twice]:
        raise ArgumentError(f"matrix {matrix!r} has several columns {several[0]!r}: choose one by its number")
    absent = [name for name in wanted if name not in places]
    if absent and not missing:
        others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise ArgumentError(
            f"matrix {matrix!r} has no column {absent[0]!r}{others}; with missing='zero' their elements are zeros"
        )
    return np.array([places.get(name, -1) for name in wanted], np.int64)
