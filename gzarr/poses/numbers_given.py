"""Numbers that callers give: of matrices, places, distances and poses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.elements import in_numpy
from ..documents.json import quote
from ..dtypes.masks import way_to_unmask
from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy.typing as npt


def as_floats(values: Any) -> npt.NDArray[np.float64]:
    """Return real numbers as float64, of the shape that they are given in.

    NumPy itself makes numbers of dates, durations, texts and masked elements, too, and drops the imaginary part of
    others.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If they are something else.
    """
    way = way_to_unmask(values)
    if way is not None:
        raise TypeError(f"some are masked or null; choose what they become with {way}")
    found = in_numpy(values)
    if found.dtype.kind in "mMcSU":
        raise TypeError(f"elements of {found.dtype} are none")
    return np.array(found, np.float64)


def real_numbers(values: Any) -> npt.NDArray[np.float64] | None:
    """Return finite real numbers as float64, of the shape that they are given in; None for anything else."""
    try:
        found = as_floats(values)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if np.isfinite(found).all() else None


def spacing_of(spacing: Any, k: int | None = None) -> tuple[float, ...]:
    """Return distances of elements along ``k`` axes, None for any number of them.

    Raises
    ------
    ArgumentError
        If they are not that many numbers above 0.
    """
    found = real_numbers(spacing)
    if found is None or found.ndim != 1 or len(found) != (len(found) if k is None else k) or not (found > 0).all():
        count = "" if k is None else f"{k} "
        raise ArgumentError(
            f"spacing must be {count}numbers above 0, one for each axis of a patch, not {quote(spacing)}"
        )
    return tuple(found.tolist())
