"""Arguments that are real numbers: those of Python and NumPy, and others that a float holds."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Number, Real
from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    # Durations of NumPy are integers of NumPy, too.
    return isinstance(value, Number | np.bool_) and not isinstance(value, np.timedelta64)


def real(value: Any) -> float | None:
    """Return a real number that a float holds, or infinity, as one of Python; None for anything else."""
    if isinstance(value, bool) or not is_number(value) or not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


def is_positive(value: Any) -> bool:
    """Return whether a value is a finite real number above 0."""
    number = real(value)
    return number is not None and 0 < number < math.inf
