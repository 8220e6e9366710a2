"""Checks of arguments of loaders and samplers; the errors say what is allowed."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..arrays.elements import in_numpy
from ..documents.json import quote
from ..dtypes.masks import way_to_unmask
from ..errors import ArgumentError, SelectionError
from ..reasons import pass_on

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy as np

#: Largest integer: what is computed of a few of them fits int64.
MOST: Final = 2**48


class Shaped(Protocol):
    """An array, or what is known of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""


def integer(name: str, value: Any, least: int = 0, most: float = MOST) -> int:
    """Return an integer from ``least`` to ``most``."""
    number = integers((value,), least, most)
    if not number:
        limit = " and at most 2**48" if most < math.inf and integers((value,), most=math.inf) > (most,) else ""
        raise ArgumentError(f"{name} must be an integer of at least {least}{limit}, not {quote(value)}")
    return number[0]


def integers(value: Any, least: float = -MOST, most: float = MOST) -> tuple[int, ...]:
    """Return integers from ``least`` to ``most``; an empty tuple if it is something else.

    Bytes, sets and dicts are something else, and so are booleans.
    """
    if isinstance(value, (bytes, bytearray, memoryview, set, frozenset, Mapping)):
        return ()
    try:
        items = tuple(value)
        numbers = tuple(map(operator.index, items))
    except TypeError:
        return ()
    if any(isinstance(item, bool) for item in items):
        return ()
    return numbers if all(least <= number <= most for number in numbers) else ()


def several(value: Any) -> list[Any] | None:
    """Return the items of a collection, or None if it is a string or not iterable."""
    try:
        return None if isinstance(value, (str, bytes)) else list(value)
    except TypeError:
        return None


def is_one_of(value: object, choices: Collection[object]) -> bool:
    """Return whether a value is one of some strings and truth values. Arrays are not, whatever they equal."""
    return isinstance(value, (str, bool)) and value in choices


def by_name(name: str, value: Any, example: str) -> Mapping[str, Any]:
    """Return a dict, or an empty one for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(f"{name} must be a dict by name, such as {example}, not {quote(value)}")
    return value


def common_length(arrays: Mapping[str, Shaped], axis: int) -> int:
    """Return the length of all arrays along an axis."""
    lengths = {}
    axis = integer("axis", axis)
    for name, array in arrays.items():
        if axis >= len(array.shape):
            raise ArgumentError(f"{name or 'the array'} has shape {array.shape}, so it has no axis {axis}")
        lengths[name] = array.shape[axis]
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"arrays of one sample need one length along axis {axis}; these have {lengths}")
    return next(iter(lengths.values()))


@contextlib.contextmanager
def fitting(what: str, hint: str) -> Iterator[None]:
    """Say of what is read or made here that it does not fit into memory, if so, and what to do.

    Raises
    ------
    ArgumentError
        If it does not.
    """
    try:
        yield
    # The selection is right: it is all of an array.
    except (MemoryError, SelectionError) as error:
        raise ArgumentError(f"{what} takes more memory than there is; {hint}") from error


def own_array(name: str, value: Any) -> Any:
    """Return an argument as :func:`as_array`, in memory of its own; None, and what is no array, as it was given."""
    try:
        return None if value is None else as_array(name, value).copy()
    except ArgumentError:
        return value


def own_numbers(value: Any) -> Any:
    """Return numbers, or a mapping of them, in memory of their own; what cannot be copied, as it was given."""
    if isinstance(value, Mapping):
        return {name: own_numbers(each) for name, each in value.items()}
    try:
        return deepcopy(value)
    # A view of a dict, for instance, raises TypeError; objects of other libraries may raise anything.
    except Exception as error:
        pass_on(error)
        return value


def as_array(name: str, value: Any, *, unmasked: bool = False) -> np.ndarray[Any, np.dtype[Any]]:
    """Return what was given as an array of NumPy, which has no place for masks and nulls.

    Parameters
    ----------
    name, value
        The argument.
    unmasked
        Whether what is below a mask, and what a library makes of nulls, is taken for elements.

    Raises
    ------
    ArgumentError
        If it is no array, or if an element is masked or null.
    """
    with fitting(f"{name}=", "give arrays of a part, such as array.view[:10**9]"):
        way = None if unmasked else way_to_unmask(value)
        if way is not None:
            raise ArgumentError(f"{name}= has elements that are masked or null: choose what they become with {way}")
        try:
            return in_numpy(value)
        except (TypeError, ValueError, OverflowError) as error:
            why = "its items have different shapes" if "inhomogeneous" in str(error) else error
            raise ArgumentError(f"{name}= cannot be made an array: {why}") from error
