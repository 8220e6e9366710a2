"""Python values of several types in one list, of which NumPy makes one type that does not hold them all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..dtypes.nulls import as_masked
from ..dtypes.properties import kind_of
from ..errors import ArgumentError
from ..integers import is_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

#: What NumPy reads as a moment with a time zone, which stands after the hour, at least.
_WITH_ZONE: Final = re.compile(r"\s*[+-]?\d+-\d\d-\d\d[T ]\d\d[\d:.]*[Z+-]")


def may_be_rounded(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy may have rounded integers that a dtype holds, for the sake of other numbers."""
    return kind_of(dtype) in "iu" and array.dtype.kind in "fc" and bool((np.abs(array) >= 2**53).any())


def whole_numbers(
    items: npt.NDArray[Any], array: npt.NDArray[Any], dtype: np.dtype[Any], node: str
) -> npt.NDArray[Any]:
    """Return numbers for an integer dtype: integers without rounding them; ``array`` if it has some that are none.

    Parameters
    ----------
    items
        The numbers, as objects.
    array
        The same in the floating-point dtype that NumPy infers.
    dtype, node
        As for :func:`gzarr.arrays.elements.as_elements`.
    """
    numbers: list[int] = []
    for item in items.flat:
        number = item.real if isinstance(item, complex | np.complexfloating) and not item.imag else item
        is_float = isinstance(number, float | np.floating)
        if not (number.is_integer() if is_float else is_integer(number) or isinstance(number, np.bool_)):
            # Refused for this one.
            return array
        numbers.append(int(number))
    low, high = min(numbers), max(numbers)
    signed = kind_of(dtype) == "i"
    if low < (-(2**63) if signed else 0) or high >= 2 ** (63 if signed else 64):
        wrong = low if low < (-(2**63) if signed else 0) else high
        raise ArgumentError(f"{node}: {quote(wrong)} is out of the range of {dtype}")
    return np.array(numbers, np.int64 if signed else np.uint64).reshape(items.shape)


def times_of(
    value: Any, dtype: np.dtype[Any], convert: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
) -> npt.NDArray[Any] | None:
    """Return dates, times or durations, in the unit that they have if it is one, else as the dtype; None for others.

    NumPy infers the finest unit of all and, as with a given one, wraps values that are out of its range.

    Parameters
    ----------
    value
        The value.
    dtype
        Dtype of the array.
    convert
        Function that converts an array to it, or raises ArgumentError.

    Raises
    ------
    ArgumentError
        If a moment is among values for durations, a duration among those for moments, a floating-point or complex
        number of NumPy among either, or one is out of range.
    """
    if _are_alike(value, np.datetime64 if dtype.kind == "M" else np.timedelta64):
        return np.asarray(value)
    value = _as_times(value)
    for part in _parts_of_lists(value):
        if isinstance(part, np.generic | np.ndarray) and _is_other(part, dtype):
            # Which refuses it, unless it is empty.
            convert(np.asarray(part))
    try:
        # Plain integers have no unit.
        array = np.asarray(value, dtype.kind)
    except (ValueError, TypeError):
        return None
    parts = [np.asarray(part, dtype.kind) for part in _parts_of_lists(value)]
    if _have_one_unit(parts):
        return array
    converted = [convert(part).ravel() for part in parts]
    return np.concatenate(converted).reshape(array.shape)


def _is_other(part: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy would take one of its own scalars or arrays in a list for another value.

    It takes a duration for a moment after 1970, and a moment for a duration. Of its floating-point and complex numbers
    (of Python's, it takes none), it takes the whole ones; large unsigned integers wrap.
    """
    found = part.dtype.kind
    if found == "u":
        return part.dtype.itemsize == 8 and bool((part >= 2**63).any())
    if found == "V":
        found = kind_of(part.dtype)
    return found in "fc" or (found in "Mm" and found != dtype.kind)


def _have_one_unit(parts: list[npt.NDArray[Any]]) -> bool:
    """Return whether dates, times or durations have one unit. Numbers without any have another one: the array's."""
    units = [np.datetime_data(part.dtype) for part in parts]
    without = [part for part, (unit, _) in zip(parts, units, strict=True) if unit == "generic"]
    number = len(set(units))
    # NaT is the same in all.
    if number == 2 and without and np.isnat(np.concatenate(without, axis=None)).all():
        return True
    return number < 2


def _are_alike(value: Any, kind: type) -> bool:
    """Return whether a list has only NumPy's moments, or its durations, of one unit: NumPy changes nothing in them."""
    if not isinstance(value, list | tuple) or set(map(type, value)) != {kind}:
        return False
    return len({item.dtype for item in value}) == 1


def _as_times(value: Any) -> Any:
    """Return lists with NumPy's scalars in place of pandas', and NumPy's arrays in place of all others.

    Of pandas' scalars, NumPy would take whole microseconds; of other arrays, the kind of time is not known; and of
    moments with a time zone, also as text, UTC.
    """
    if isinstance(value, list | tuple):
        return [_as_times(item) for item in value]
    if isinstance(value, str | bytes):
        # NumPy takes bytes for text of ASCII.
        text = str(value) if isinstance(value, str) else value.decode("latin-1")
        if _WITH_ZONE.match(text):
            moment = "datetime.datetime.fromisoformat(item)"
            raise ValueError(f"{quote(text)} has a time zone, and {_without_zone(moment)}")
        return value
    if getattr(value, "tzinfo", None) is not None:
        raise ValueError(_without_zone("item"))
    scalar = getattr(value, "asm8", None)
    if scalar is not None:
        # pandas has one NaT, for moments and for durations; so is None to NumPy.
        return None if np.isnat(scalar) else scalar
    if isinstance(value, np.generic) or not hasattr(value, "__array__"):
        return value
    # Which refuses columns with a time zone.
    array = as_masked(value)
    return _as_times(array.tolist()) if array.dtype.kind in "OSU" else array


def _without_zone(moment: str) -> str:
    """Return why a moment with a time zone is refused, and what to pass in place of it."""
    return f"an array has no time zones: take UTC, with {moment}.astimezone(datetime.timezone.utc).replace(tzinfo=None)"


def _parts_of_lists(value: Any) -> Iterator[Any]:
    """Yield what is in nested lists, in order."""
    if not isinstance(value, list | tuple):
        yield value
        return
    for item in value:
        yield from _parts_of_lists(item)
