"""Arguments that are positive integers: limits in bytes, for example."""

from __future__ import annotations

from typing import Any

from .documents.json import quote
from .errors import ArgumentError
from .integers import is_integer


def positive(name: str, value: Any) -> int:
    """Return a positive integer of Python or NumPy as one of Python.

    Raises
    ------
    ArgumentError
        If it is something else. Truth values are, too.
    """
    if isinstance(value, bool) or not is_integer(value) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {quote(value)}")
    return int(value)
