"""Environment variables that are numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .documents.json import quote
from .errors import ArgumentError

if TYPE_CHECKING:
    from typing import Final

#: What a variable must be, by the least number that it may be.
_KINDS: Final = {0: "a whole number", 1: "a positive integer"}


def number_in(name: str, text: str, *, least: int, unit: str = "") -> int:
    """Return the number that an environment variable is set to.

    Parameters
    ----------
    name, text
        Name and text of the variable.
    least
        Least number that it may be, 0 or 1.
    unit
        End of what the message says that it must be.

    Raises
    ------
    ArgumentError
        If it is none.
    """
    try:
        number = int(text) if text.isdecimal() else -1
    except ValueError:
        # Python converts only so many digits (``sys.set_int_max_str_digits``).
        number = -1
    if number < least:
        raise ArgumentError(f"{name} must be {_KINDS[least]}{unit}, not {quote(text)}")
    return number
