"""The names of the columns of a matrix: the index of ``var``, as AnnData stores it beside the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

#: Groups of AnnData's matrices whose columns are cells, or none of either axis.
_OF_OTHERS: Final = ("obsm", "obsp", "varm")


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
    if any(isinstance(one, bytes) for one in found):
        try:
            found[:] = [one.decode() if isinstance(one, bytes) else one for one in found]
        except UnicodeDecodeError as error:
            raise ArgumentError(f"{node.name!r} has names of columns that are no UTF-8: {error}") from None
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
        found = np.asarray(element_on_host(node, ...))
        categories = categories_beside(node)
        return found.astype(object) if categories is None else _chosen(elements_of(categories), found, node.name)
    if node.metadata.attributes.get("encoding-type") == "categorical":
        return _chosen(elements_of(node["categories"]), _member(node, "codes"), node.name)
    result = np.array(_member(node, "values"), object)
    if "mask" in node:
        missing = _member(node, "mask")
        if missing.shape != result.shape:
            raise ArgumentError(f"values and mask of {node.name!r} have the shapes {result.shape} and {missing.shape}")
        result[missing.astype(bool)] = None
    return result


def path_of_categories(array: Array) -> str | None:
    """Return where a categorical column of AnnData 0.7 says that its categories are, or None for any other array.

    Such a column is an array of codes, whose attribute ``categories`` is the path of another array from the group that
    the column is in: ``"__categories/cell_type"``.
    """
    path = array.metadata.attributes.get("categories")
    is_one = isinstance(path, str) and path.startswith("__categories/") and array.dtype.kind in "iu"
    return path if is_one else None


def categories_beside(codes: Array) -> Array | None:
    """Return the array that :func:`path_of_categories` names, or None if there is none in the store."""
    path = path_of_categories(codes)
    if path is None or not codes.path:
        return None
    try:
        found = open_group(codes.store, path=codes.path.rpartition("/")[0], mode="r", device="cpu")[path]
    except (ArgumentError, NodeNotFoundError, NodeTypeError):
        return None
    return found if isinstance(found, Array) and found.ndim == 1 else None


def _chosen(categories: npt.NDArray[Any], codes: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Return the category of each code, objects; None for those without one."""
    if categories.ndim != 1 or codes.dtype.kind not in "iu":
        raise ArgumentError(f"the codes of {name!r} are no numbers of its categories")
    # The last one stands for codes without a category: -1 is a missing value.
    known = np.append(categories, [None])
    result: npt.NDArray[Any] = known[np.where((codes >= 0) & (codes < len(categories)), codes, len(categories))]
    return result


def _member(group: Group, name: str) -> npt.NDArray[Any]:
    node = group[name]
    if not isinstance(node, Array):
        raise ArgumentError(f"{node.name!r} is a group, but in an array of AnnData it must be an array")
    return np.asarray(element_on_host(node, ...))


def _var_of(group: Group) -> Group:
    path = group.path
    while path:
        path, _, name = path.rpartition("/")
        if name in _OF_OTHERS:
            raise ArgumentError(
                f"the columns of the matrix {group.name!r} have no names in 'var', as it is in {name!r}: choose them "
                "by their numbers"
            )
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


def _name_of(given: Any, matrix: str) -> str:
    """Return a name as a string; h5py has them as bytes of UTF-8."""
    try:
        found = given.decode() if isinstance(given, bytes) else given
    except UnicodeDecodeError:
        found = None
    if not isinstance(found, str):
        raise ArgumentError(f"matrix {matrix!r}: names of columns must be strings, and one is {given!r:.100}")
    return str(found)


def numbers_of(names: Sequence[str], known: npt.NDArray[Any], matrix: str, *, missing: bool) -> IntArray:
    """Return the number of the column of each name, int64 ``(n,)``; −1 for those that there are not, if ``missing``.

    Raises
    ------
    ArgumentError
        If the names are no strings, if there is none of a name, or if there are several.
    """
    # Other libraries have strings of their own.
    listed: Any = names.tolist() if hasattr(names, "tolist") else names
    if isinstance(listed, (str, bytes)) or not hasattr(listed, "__iter__"):
        raise ArgumentError(f"matrix {matrix!r}: names of columns must be a list of strings, not {names!r:.100}")
    wanted = [_name_of(name, matrix) for name in listed]
    places: dict[str, int] = {}
    twice: set[str] = set()
    for i, given in enumerate(known.tolist()):
        # A missing name is no name. Numbers are found by their digits.
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
