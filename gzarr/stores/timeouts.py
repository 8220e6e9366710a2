"""Time-outs, as users give them."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError


def seconds(value: Any, name: str) -> float:
    """Return a time-out in seconds.

    Raises
    ------
    ArgumentError
        If ``value``, of the argument ``name``, is not a positive number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise ArgumentError(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)
