"""Types of integers that functions are given: those of Python and NumPy, and arrays of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

#: Several integers.
Integers: TypeAlias = "Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]"
#: One integer for each axis, or one for all of them.
EachAxis: TypeAlias = "SupportsIndex | Sequence[SupportsIndex] | npt.NDArray[np.integer[Any]]"
