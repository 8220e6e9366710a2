"""Coefficients of the cubic spline through elements: the filter before cubic interpolation.

Its value at an element is the sum of the three coefficients there with the weights 1/6, 4/6 and 1/6. They are found by
two recursive filters along each axis (Unser, Aldroubi and Eden, "B-spline signal processing, part II", 1993), which
look at all elements; the weight of one falls to a quarter with each step from it. So the coefficients of a box need
those of its surroundings, :data:`MARGIN` elements far, after which the weight is below the precision of float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]

#: Elements around a box that its coefficients depend on.
MARGIN: Final = 28
_POLE: Final = math.sqrt(3) - 2


def coefficients(elements: npt.NDArray[Any], axes: int) -> FloatArray:
    """Return coefficients, float64 of the same shape, right but for :data:`MARGIN` of them at each end.

    Parameters
    ----------
    elements
        Numbers, of any shape.
    axes
        How many of the last axes the spline has.
    """
    result = elements.astype(np.float64)
    for d in range(result.ndim - axes, result.ndim):
        along = np.moveaxis(result, d, 0)
        n = len(along)
        if n < 2:
            continue
        along *= 6
        for i in range(1, n):
            along[i] += _POLE * along[i - 1]
        along[-1] *= _POLE / (_POLE - 1)
        for i in range(n - 2, -1, -1):
            along[i] = _POLE * (along[i + 1] - along[i])
    return result
