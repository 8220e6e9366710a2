"""Cubic splines: their weights, and the recursive filter that gives their coefficients.

A spline's value at an element is the sum of the three coefficients there, with the weights 1/6, 4/6 and 1/6. The
coefficients are found by two recursive filters along each axis (Unser, Aldroubi and Eden, "B-spline signal processing,
part II", 1993). Compiled for the host and for devices, each by its own decorator.
"""

from __future__ import annotations

import math
from typing import Final

#: Pole of the filters: the weight of an element falls by it with each step.
POLE: Final = math.sqrt(3) - 2
#: What the last element of a line is multiplied by between the two filters.
LAST: Final = POLE / (POLE - 1)


def cubic_weight(t: float, k: int) -> float:
    """Return the weight of one of four neighbours of a place, ``t`` after the second one."""
    y = 1.0 - t
    if k == 1:
        return (t * t * (t - 2.0) * 3.0 + 4.0) / 6.0
    if k == 2:
        return (y * y * (y - 2.0) * 3.0 + 4.0) / 6.0
    if k == 0:
        return y * y * y / 6.0
    return t * t * t / 6.0
