"""Arguments that are one value for all axes, or one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError

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


def has_items(value: Any) -> bool:
    """Return whether a value has items; the letters of a text do not count, and arrays without dimensions have none."""
    return hasattr(value, "__iter__") and not isinstance(value, str) and getattr(value, "ndim", 1) != 0


def scalar(value: Any) -> Any:
    """Return the number in an array without dimensions, which is what tensors have for items; others as they are."""
    return value.item() if hasattr(value, "__iter__") and not has_items(value) and hasattr(value, "item") else value


def each(value: Any, ndim: int, name: str, is_valid: Callable[[Any], bool], what: str) -> list[Any]:
    """Return one item for each axis: all the same, or those given.

    Raises
    ------
    ArgumentError
        If there are fewer or more, or one is not valid.
    """
    found = items(value) if has_items(value) else [scalar(value)] * ndim
    if len(found) != ndim or not all(map(is_valid, found)):
        raise ArgumentError(f"{name} must be {what}: one, or one for each of {ndim} axes, not {value!r}")
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
        raise ArgumentError(f"{name} must be different axes of {ndim}, not {value!r}")
    return [int(d) % ndim for d in found]


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return hasattr(value, "__complex__") or isinstance(value, (bool, int, float, complex))
