"""Arguments of zarr-python's methods ``get_…_selection`` and ``set_…_selection``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..documents.json import quote
from ..errors import SelectionError
from ..plan.selection import is_truth_value, parse_points

if TYPE_CHECKING:
    from ..plan.selection import Selection

#: Name of a field, or names of several.
Fields: TypeAlias = str | Sequence[str] | None


def parse_coordinates(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse integer arrays, one for each dimension, as :func:`parse_points` does; refuse masks."""
    for item in selection if isinstance(selection, tuple) else (selection,):
        if _has_truth_values(item):
            raise SelectionError("a coordinate selection takes integer arrays; read a mask with get_mask_selection")
    return parse_points(selection, shape)


def parse_mask(selection: Any, shape: tuple[int, ...]) -> Selection:
    """Parse a mask of the array's shape, or a tuple of one mask, as :func:`parse_points` does; refuse integers."""
    mask = selection[0] if isinstance(selection, tuple) and len(selection) == 1 else selection
    if isinstance(mask, list):
        try:
            mask = np.asarray(mask)
        except ValueError as error:
            raise SelectionError(f"a mask selection takes one boolean array: {error}") from error
    if not is_truth_value(mask) or np.shape(mask) != shape:
        raise SelectionError(f"a mask selection takes one boolean array of the array's shape, {shape}")
    return parse_points(mask, shape)


def _has_truth_values(item: Any) -> bool:
    try:
        return is_truth_value(np.asarray(item) if isinstance(item, list) else item)
    except ValueError:
        return False


def check_fields(fields: Fields, dtype: np.dtype[Any]) -> str | tuple[str, ...] | None:
    """Check and return ``fields``: one name, several, or None for whole elements.

    Parameters
    ----------
    fields
        Name of a field, for elements of its type; sequence of names, for records of these fields in this order; None
        or an empty sequence, for whole elements.
    dtype
        Dtype of the array.

    Raises
    ------
    SelectionError
        If there is no such field.
    """
    if fields is None:
        return None
    names = (fields,) if isinstance(fields, str) else tuple(fields) if isinstance(fields, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise SelectionError(f"fields must be the name of a field or a list of different ones, not {quote(fields)}")
    for name in names:
        if dtype.names is None or name not in dtype.names:
            have = f"its fields are {', '.join(dtype.names)}" if dtype.names else "it has no fields"
            raise SelectionError(f"no field {name!r} in elements of {dtype}; {have}")
    if isinstance(fields, str):
        return fields
    return names or None


def one_field(fields: Fields, dtype: np.dtype[Any]) -> str | None:
    """Return the field to be written, or None for whole elements; raise SelectionError for several fields."""
    found = check_fields(fields, dtype)
    if isinstance(found, tuple):
        if len(found) > 1:
            raise SelectionError("one field at a time can be written; write whole elements to change several")
        return found[0]
    return found
