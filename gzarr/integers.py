"""Types of integers that functions are given: those of Python and NumPy, and arrays of them."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from .items import UNLISTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: Several integers.
Integers: TypeAlias = "Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]"
#: One integer for each axis, or one for all of them.
EachAxis: TypeAlias = "SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]"


def is_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy, or a boolean of Python."""
    # Durations of NumPy are integers of NumPy, too.
    return isinstance(value, int | np.integer) and not isinstance(value, np.timedelta64)


def as_integer(value: Any) -> int | None:
    """Return an integer, also NumPy's, as one of Python; None for anything else, also for truth values."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def as_integers(value: Any) -> tuple[int, ...] | None:
    """Return integers in what lists them, such as a tuple or an array; None for anything else."""
    if isinstance(value, np.ndarray):
        # Its truth values are Python's then.
        value = value.tolist()
    if isinstance(value, UNLISTED):
        return None
    try:
        given = list(map(as_integer, value))
    # It has no items.
    except TypeError:
        return None
    numbers = tuple(number for number in given if number is not None)
    return numbers if len(numbers) == len(given) else None
