"""Arguments that are one of a few texts, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .documents.json import quote
from .errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


def choice(name: str, value: Any, allowed: Sequence[str | None]) -> Any:
    """Return the one of the texts allowed, or None, that a value is.

    Raises
    ------
    ArgumentError
        If it is something else: arrays, which compare with each of their elements, too.
    """
    if value is None or isinstance(value, str):
        for one in allowed:
            if value == one:
                return one
    *others, last = map(repr, allowed)
    raise ArgumentError(f"{name} must be {', '.join(others)} or {last}, not {quote(value)}")
