"""One list of categories for a categorical column of several volumes.

Each file of AnnData numbers the categories that it has, so the codes of two files may mean different ones. Lists that
differ are joined, in the order in which categories are met first, as ``union_categoricals`` of pandas does, and codes
are mapped to the joined list while they are read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..stores.base import RemoteValues
from ..windows.columns import Codes
from ..windows.recoded import RecodedView
from . import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from ..arrays.exporting import ExportedArray

    # Categories, and whether their order has a meaning.
    Listed = tuple[npt.NDArray[Any], bool]


def with_one_list(volumes: Sequence[dict[str, ExportedArray]]) -> list[dict[str, ExportedArray]]:
    """Return volumes in which the codes of each name are numbers of one list of categories.

    Parameters
    ----------
    volumes
        Arrays by name. Codes are those of columns; arrays of numbers are what they are.

    Raises
    ------
    ArgumentError
        If lists differ and cannot be joined.
    NodeNotFoundError, NodeTypeError, MetadataError, StoreError, ChunkError
        If categories cannot be read.
    """
    result = [dict(volume) for volume in volumes]
    columns: dict[str, dict[int, Codes]] = {}
    for i, volume in enumerate(volumes):
        for name, array in volume.items():
            if isinstance(array, Codes):
                columns.setdefault(name, {})[i] = array
    columns = {name: each for name, each in columns.items() if len(each) > 1}
    known = _lists_of([codes for each in columns.values() for codes in each.values()])
    for name, each in columns.items():
        lists = {i: known[id(codes)] for i, codes in each.items()}
        first, *others = lists.values()
        # Files of one list may have codes of different types.
        of_one_type = len({codes.dtype for codes in each.values()}) == 1
        if of_one_type and all(_are_equal(first[0], other) for other, _ in others):
            continue
        if plain := [i for i, volume in enumerate(volumes) if name in volume and i not in each]:
            raise ArgumentError(
                f"{name!r} is a categorical column of different lists of categories, or types of codes, in some "
                f"volumes, and an array of numbers in volume {plain[0]}, which may be those of any list: {_WAY_OUT}"
            )
        joined, numbers = _joined(name, lists)
        for i, codes in each.items():
            result[i][name] = RecodedView(codes, numbers[i], joined)
    return result


def categories_of(volumes: Sequence[Mapping[str, ExportedArray]]) -> dict[str, npt.NDArray[Any]]:
    """Return the categories of each column that is categorical in all volumes, objects ``(n,)``, by its name.

    Raises
    ------
    ArgumentError, NodeNotFoundError, NodeTypeError, MetadataError, StoreError, ChunkError
        If they cannot be read.
    """
    found = {}
    for name, array in volumes[0].items():
        if not all(isinstance(volume.get(name, array), RecodedView | Codes) for volume in volumes):
            continue
        if isinstance(array, RecodedView):
            found[name] = array.categories().copy()
        elif isinstance(array, Codes):
            found[name] = array.categories()[0]
    return found


_WAY_OUT = (
    "write the columns with one list of categories (cat.set_categories in pandas), or give the codes as they are, as "
    "in adata['obs/cell_type/codes']"
)


def _lists_of(columns: Sequence[Codes]) -> dict[int, Listed]:
    """Read the categories of columns, those in remote stores side by side; by the ``id`` of the codes."""
    found: dict[int, Listed] = {}

    def read(codes: Codes) -> None:
        found[id(codes)] = codes.categories()

    # A file may be a volume several times.
    different = {id(codes): codes for codes in columns}
    side_by_side.run([partial(read, c) for c in different.values() if isinstance(c.store, RemoteValues)])
    for key, codes in different.items():
        if key not in found:
            read(codes)
    return found


def _joined(name: str, lists: Mapping[int, Listed]) -> tuple[npt.NDArray[Any], dict[int, npt.NDArray[np.int64]]]:
    """Return the list that lists of categories make up, and the number in it of each category of each volume."""
    (first, (model, _)), *_ = lists.items()
    kinds: dict[str, int] = {}
    for i, (categories, ordered) in lists.items():
        if len(categories):
            kinds.setdefault(_kind_of(categories[0]), i)
        if not _are_equal(model, categories) and (ordered or lists[first][1]):
            raise ArgumentError(
                f"{name!r} is an ordered categorical column of different lists of categories: "
                f"{_difference(first, model, i, categories)}. How they follow each other is not known: {_WAY_OUT}"
            )
    if len(kinds) > 1:
        told = " and ".join(f"{kind} in volume {i}" for kind, i in kinds.items())
        raise ArgumentError(f"the categories of {name!r} are {told}, which make up no list: {_WAY_OUT}")
    places: dict[Any, int] = {}
    numbers = {
        i: np.array([places.setdefault(one, len(places)) for one in categories.tolist()], np.int64)
        for i, (categories, _) in lists.items()
    }
    joined = np.empty(len(places), object)
    joined[:] = list(places)
    return joined, numbers


def _kind_of(category: Any) -> str:
    """Return what a category is, in the plural."""
    if isinstance(category, (bool, np.bool_)):
        return "booleans"
    return "numbers" if isinstance(category, (int, float, np.number)) else "strings"


def _are_equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return bool(one.tolist() == other.tolist())


def _difference(first: int, one: npt.NDArray[Any], second: int, other: npt.NDArray[Any]) -> str:
    """Say where two lists of categories that differ do so first."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    told = [
        f"{categories[at]!r:.60} in volume {i}" if at < len(categories) else f"no more in volume {i}"
        for i, categories in ((first, one), (second, other))
    ]
    return f"after {at} equal ones, {told[0]} and {told[1]}"
