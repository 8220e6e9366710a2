"""Checked access to the members of a JSON object, with errors that give their location in the document.

Every member is checked when it is read; :meth:`Configuration.finish` refuses those that were never read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import MetadataError
from .departures import note
from .json import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_REQUIRED: Final = object()
# Above, floats are no longer exactly the number that a document states.
_EXACT_FLOATS: Final = 2**53
_QUOTED_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
# Texts that GDAL takes for true and false, in upper or lower case.
_TRUTH: Final = {
    **dict.fromkeys(("yes", "true", "on", "1"), True),
    **dict.fromkeys(("no", "false", "off", "0"), False),
}
# NumPy's own parser accepts far more (records, objects, sizes that overflow); parameters of codecs need numbers only.
_NUMBER_DTYPE: Final = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16|[mM]8(\[[A-Za-zμ0-9]{1,16}\])?)")
_NUMBER_NAMES: Final = frozenset(
    (
        *("bool", "complex64", "complex128", "float16", "float32", "float64"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer (``true`` and ``false`` are not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole(value: Any, json_path: str | None) -> Any:
    """Return a float that is a whole number below 2⁵³ as that integer, and anything else as it is.

    Where an integer is asked for, ``4.0`` is one: JSON has one type of numbers. It is noted as a departure at
    ``json_path``, unless that is None.
    """
    if type(value) is not float or not value.is_integer() or abs(value) >= _EXACT_FLOATS:
        return value
    if json_path is not None:
        note(f"{value} in place of {int(value)}", json_path)
    return int(value)


def whole_items(values: Sequence[Any], json_path: str) -> list[Any]:
    """Return an array with :func:`whole` numbers as integers."""
    return [value if type(value) is int else whole(value, f"{json_path}[{i}]") for i, value in enumerate(values)]


class Configuration:
    """The members of one JSON object.

    A member that is asked for as an integer becomes one in the object itself, if it was another spelling of one: so
    documents that are written again have integers.

    Parameters
    ----------
    values
        The parsed object.
    json_path
        Location in its document.
    owner
        Name of the thing configured, for messages: ``"codec 'zstd'"``.
    quoted_integers
        Whether integers may be strings, as netCDF-C 4.9.0 to 4.9.3 wrote parameters of codecs.

    Raises
    ------
    MetadataError
        If ``values`` is not an object.
    """

    def __init__(self, values: Any, json_path: str, owner: str, *, quoted_integers: bool = False) -> None:
        if not isinstance(values, dict):
            raise MetadataError(f"{owner} needs an object here, got {quote(values)}", json_path=json_path)
        self.values: dict[str, Any] = values
        self.json_path = json_path
        self.owner = owner
        self._quoted_integers = quoted_integers
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def error(self, name: str, expected: str) -> MetadataError:
        """Return the error for a wrong value of member ``name``."""
        got = quote(self.values.get(name))
        return MetadataError(
            f"{self.owner} needs {expected} for {name!r}, got {got}", json_path=f"{self.json_path}.{name}"
        )

    def _get(self, name: str, default: Any, expected: str) -> Any:
        self._asked.add(name)
        if name in self.values:
            return self.values[name]
        if default is _REQUIRED:
            raise MetadataError(f"{self.owner} lacks {name!r}: expected {expected}", json_path=self.json_path)
        return default

    def any(self, name: str, default: Any = _REQUIRED) -> Any:
        """Return a member of any type."""
        return self._get(name, default, "a value")

    def integer(self, name: str, low: int, high: int, default: Any = _REQUIRED) -> int:
        """Return an integer from ``low`` to ``high`` inclusive."""
        expected = f"an integer from {low} to {high}"
        value = self._get(name, default, expected)
        if value is default and name not in self.values:
            return value  # type: ignore[no-any-return]
        number = value if type(value) is int else self._as_integer(name, value)
        if not is_integer(number) or not low <= number <= high:
            raise self.error(name, expected)
        if number is not value:
            self.values[name] = number
        return int(number)

    def _as_integer(self, name: str, value: Any) -> Any:
        """Return another spelling of an integer as that; anything else as it is."""
        at = f"{self.json_path}.{name}"
        if self._quoted_integers and isinstance(value, str) and _QUOTED_INTEGER.fullmatch(value):
            note(f"{quote(value)} in place of {int(value)}, as netCDF-C 4.9 writes it", at)
            return int(value)
        return whole(value, at)

    def number(self, name: str, default: Any = _REQUIRED) -> int | float:
        """Return an integer or a float."""
        value = self._get(name, default, "a number")
        if not (is_integer(value) or isinstance(value, float)):
            raise self.error(name, "a number")
        return value  # type: ignore[no-any-return]

    def boolean(self, name: str, default: Any = _REQUIRED) -> bool:
        """Return true or false."""
        value = self._get(name, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def lenient_boolean(self, name: str, default: bool) -> bool:
        """Return true or false; also accept the creation options that GDAL writes: ``"NO"``, ``"yes"``, ``"1"``."""
        value = self._get(name, default, "true or false")
        if isinstance(value, str) and (truth := _TRUTH.get(value.lower())) is not None:
            note(f"{quote(value)} in place of {str(truth).lower()}, as GDAL writes it", f"{self.json_path}.{name}")
            return truth
        return self.boolean(name, default)

    def string(self, name: str, choices: Sequence[str] = (), default: Any = _REQUIRED) -> str:
        """Return a string; one of ``choices`` if there are any."""
        expected = f"one of {', '.join(map(repr, choices))}" if choices else "a string"
        value = self._get(name, default, expected)
        if not isinstance(value, str) or (choices and value not in choices):
            raise self.error(name, expected)
        return value

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """Return an array of integers from ``low`` to ``high`` inclusive."""
        expected = f"an array of integers from {low} to {high}"
        value = self._get(name, _REQUIRED, expected)
        if not isinstance(value, list | tuple):
            raise self.error(name, expected)
        numbers = whole_items(value, f"{self.json_path}.{name}")
        if not all(is_integer(v) and low <= v <= high for v in numbers):
            raise self.error(name, expected)
        self.values[name] = numbers
        return tuple(int(v) for v in numbers)

    def array(self, name: str) -> list[Any]:
        """Return a non-empty array of any values."""
        value = self._get(name, _REQUIRED, "a non-empty array")
        if not isinstance(value, list | tuple) or not value:
            raise self.error(name, "a non-empty array")
        return list(value)

    def dtype(self, name: str, default: Any = _REQUIRED) -> str:
        """Return the text of a NumPy dtype of numbers, dates or booleans (``"<f4"``, ``"float32"``)."""
        expected = "a NumPy number type such as '<f4'"
        value = self._get(name, default, expected)
        known = isinstance(value, str) and (value in _NUMBER_NAMES or _NUMBER_DTYPE.fullmatch(value))
        try:
            return np.dtype(value).str if known else self._wrong(name, expected)
        except (TypeError, ValueError):
            raise self.error(name, expected) from None

    def _wrong(self, name: str, expected: str) -> str:
        raise self.error(name, expected)

    def finish(self) -> None:
        """Refuse members that were never read.

        Raises
        ------
        MetadataError
            If there is one; the message names the first.
        """
        for name in self.values:
            if name not in self._asked:
                raise MetadataError(
                    f"{self.owner} does not know {quote(name)}"
                    + (f"; it knows {', '.join(sorted(self._asked))}" if self._asked else "; it has no configuration"),
                    json_path=f"{self.json_path}.{str(name)[:100]}",
                )
