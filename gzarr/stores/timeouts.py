"""Time-outs, as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError
from ..integers import is_integer


def seconds(value: Any, name: str) -> float:
    """Return a time-out in seconds.

    Raises
    ------
    ArgumentError
        If ``value``, of the argument ``name``, is not a positive number.
    """
    is_number = is_integer(value) or isinstance(value, float | np.floating)
    if isinstance(value, bool) or not is_number or not 0 < value < 1e6:
        raise ArgumentError(f"{name} must be a positive number of seconds, not {quote(value)}")
    return float(value)
