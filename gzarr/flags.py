"""Arguments that are true or false. A text, such as ``"false"`` of a configuration file, would be taken for true."""

from __future__ import annotations

from typing import Any

import numpy as np

from .documents.json import quote
from .errors import ArgumentError
from .integers import is_integer


def flag(name: str, value: Any, *, where: str = "") -> bool:
    """Return an argument that is true or false, also given as a truth value of NumPy, or as 0 or 1.

    ``where`` begins the message, if any.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    if value is True or value is False:
        return value
    given = plain_flag(value)
    if isinstance(given, bool):
        return given
    raise ArgumentError(f"{where}{name} must be True or False, not {quote(value)}")


def optional_flag(name: str, value: Any) -> bool | None:
    """Return the same of an argument that may also be None.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    given = plain_flag(value)
    if given is None or isinstance(given, bool):
        return given
    raise ArgumentError(f"{name} must be True, False or None, not {quote(value)}")


def check_flags(**given: Any) -> None:
    """Refuse arguments, by their names, that are neither true nor false, as :func:`flag` does.

    Raises
    ------
    ArgumentError
        If one is something else.
    """
    for name, value in given.items():
        if value is not True and value is not False:
            flag(name, value)


def plain_flag(value: Any) -> Any:
    """Return a truth value of NumPy, 0 or 1 as one of Python; anything else as it is."""
    is_flag = (isinstance(value, np.bool_) or is_integer(value)) and value in (0, 1)
    return bool(value) if is_flag else value
