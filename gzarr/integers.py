"""Types of integers that functions are given: those of Python and NumPy, and arrays of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

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
