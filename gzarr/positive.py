"""Arguments that are positive integers: limits in bytes, for example."""

from __future__ import annotations

from typing import Any

from .documents.json import quote
from .errors import ArgumentError
from .integers import as_integer


def positive(name: str, value: Any) -> int:
    """Return a positive integer of Python or NumPy as one of Python.

    Raises
    ------
    ArgumentError
        If it is something else, also for truth values.
    """
    number = as_integer(value)
    if number is None or number < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {quote(value)}")
    return number
