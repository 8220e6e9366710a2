"""Arguments of functions of blocks: one value for all axes or one for each, and numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError
from ..integers import as_integer
from ..items import has_items
from ..real_numbers import real

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that shapes are broadcast to, as NumPy does.

    Raises
    ------
    ArgumentError
        If there is none.
    """
    ndim = max(map(len, shapes))
    common = [1] * ndim
    for shape in shapes:
        for d, n in enumerate(shape, ndim - len(shape)):
            if n != 1 and common[d] not in (1, n):
                raise ArgumentError(f"arrays of shapes {', '.join(map(str, shapes))} cannot be broadcast to one shape")
            common[d] = n if n != 1 else common[d]
    return tuple(common)


def items(value: Any) -> list[Any]:
    """Return the items of a value; of one that has none, itself. Arrays without dimensions become plain numbers."""
    return list(map(scalar, value)) if has_items(value) else [scalar(value)]


def scalar(value: Any) -> Any:
    """Return the number in an array without dimensions, which is what tensors have for items; others as they are."""
    is_one = getattr(value, "ndim", 1) == 0 and hasattr(value, "__iter__") and hasattr(value, "item")
    return value.item() if is_one else value


def each(value: Any, ndim: int, name: str, is_valid: Callable[[Any], bool], what: str) -> list[Any]:
    """Return one item for each axis: all the same, or those given.

    Raises
    ------
    ArgumentError
        If there are fewer or more, or one is not valid.
    """
    found = items(value) if has_items(value) else [scalar(value)] * ndim
    if len(found) != ndim or not all(map(is_valid, found)):
        raise ArgumentError(f"{name} must be {what}: one, or one for each of {ndim} axes, not {quote(value)}")
    return found


def different_axes(value: Any, ndim: int, name: str) -> list[int]:
    """Return axes, counted from 0.

    Raises
    ------
    ArgumentError
        If there are no such axes, or one is given twice.
    """
    found = items(value)
    if not all(is_whole(d) and -ndim <= d < ndim for d in found) or len({d % ndim for d in found}) != len(found):
        raise ArgumentError(f"{name} must be different axes of {ndim}, not {quote(value)}")
    return [int(d) % ndim for d in found]


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number."""
    return as_integer(value) is not None


def background_of(value: Any, dtype: np.dtype[Any], *, has_it: bool = True) -> int | float:
    """Return the value of elements that are no objects: an integer, of floats a number.

    Parameters
    ----------
    value
        The argument ``background``.
    dtype
        Data type of the elements: integers, booleans, or floats.
    has_it
        Whether it must be a value that integers of the type can have.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    given = scalar(value)
    if isinstance(given, bool | np.bool_):
        given = int(given)
    number, whole = real(given), as_integer(given)
    if dtype.kind not in "biu":
        # Nothing equals NaN.
        if number is None or math.isnan(number):
            raise ArgumentError(f"background must be a number of 64 bits other than NaN, not {quote(value)}")
        return number
    if whole is None and number is not None and number.is_integer():
        whole = int(number)
    if whole is None:
        raise ArgumentError(f"background must be an integer, not {quote(value)}")
    if has_it and not holds(dtype, whole):
        raise ArgumentError(f"elements of {dtype} cannot be background={quote(value)}")
    return whole


def holds(dtype: np.dtype[Any], value: int) -> bool:
    """Return whether an integer type, or bool, has a value."""
    if dtype == np.bool_:
        return value in (0, 1)
    info = np.iinfo(dtype)
    return info.min <= value <= info.max
