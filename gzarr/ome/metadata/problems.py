"""Checked access to untrusted JSON, which records each broken rule and goes on where it can.

A :class:`DocumentPart` is a JSON value with its place. Reading a part that is needed and wrong raises
:class:`MetadataError`; one that is not needed is left out. Either way the broken rule is among the problems of the
document.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from ...documents.json import quote
from ...errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

#: ``"schema"``: a rule that NGFF's JSON schemas have as well; ``"text"``: a MUST of the specification that they lack;
#: ``"strict"``: a recommendation that the strict schemas have; ``"should"``: any other recommendation.
Level: TypeAlias = Literal["schema", "text", "strict", "should"]
#: Limit on the problems kept: a document may have as many as it has members.
MAX_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule of the specification that a document breaks.

    Attributes
    ----------
    json_path
        Place in the attributes, e.g. ``$.ome.multiscales[0].axes``.
    text
        What was expected there, and what is there.
    level
        Whether the rule is one of the schemas, of the text only, or a recommendation.
    """

    json_path: str
    text: str
    level: Level

    @property
    def is_rule(self) -> bool:
        """Whether a MUST of the specification is broken, not only a recommendation."""
        return self.level in ("schema", "text")

    def __str__(self) -> str:
        return f"{self.json_path}: {self.text}"


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A JSON value, its place in the document, and the problems found so far."""

    value: Any
    json_path: str
    found: list[BrokenRule]

    def note(self, text: str, level: Level = "schema") -> None:
        """Record a broken rule."""
        if len(self.found) < MAX_KEPT:
            self.found.append(BrokenRule(self.json_path, text, level))

    def wrong(self, expected: str, level: Level = "schema") -> MetadataError:
        """Record that the value is not what was expected; return the error."""
        text = f"expected {expected}, got {quote(self.value)}"
        self.note(text, level)
        return MetadataError(text, json_path=self.json_path)

    def at(self, name: str) -> DocumentPart:
        """Return a member that is there."""
        return DocumentPart(self.value[name], f"{self.json_path}.{name}", self.found)

    def object(self) -> DocumentPart:
        """Return the part itself, which must be an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def needed(self, name: str, read: Callable[[DocumentPart], T], level: Level = "schema") -> T:
        """Return a member that must be there and be right."""
        if name not in self:
            text = f"lacks {name!r}"
            self.note(text, level)
            raise MetadataError(text, json_path=self.json_path)
        return read(self.at(name))

    def optional(self, name: str, read: Callable[[DocumentPart], T]) -> T | None:
        """Return a member, or None if it is absent or wrong."""
        if name not in self:
            return None
        try:
            return read(self.at(name))
        except MetadataError:
            return None

    def expect(self, name: str, level: Level) -> None:
        """Note a member that should be there and is not."""
        if name not in self:
            self.note(f"lacks {name!r}", level)

    def items(self, least: int = 0, most: int | None = None, *, unique: bool = False) -> list[DocumentPart]:
        """Return the items of an array; a wrong number of them, and equal ones, are noted."""
        if not isinstance(self.value, list | tuple):
            raise self.wrong("an array")
        if len(self.value) < least:
            raise self.wrong(f"at least {least} item{'s' * (least > 1)}")
        if most is not None and len(self.value) > most:
            self.note(f"expected at most {most} items, got {len(self.value)}")
        if unique and len(set(map(_canonical, self.value))) < len(self.value):
            self.note("expected items that all differ")
        return [DocumentPart(value, f"{self.json_path}[{i}]", self.found) for i, value in enumerate(self.value)]

    def readable(self, read: Callable[[DocumentPart], T], least: int = 0, *, unique: bool = False) -> Iterator[T]:
        """Yield the items of an array that can be read."""
        for item in self.items(least, unique=unique):
            try:
                yield read(item)
            except MetadataError:
                continue

    def string(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.wrong("a string")
        return self.value

    def boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def number(self) -> float:
        """Return a finite number as a float."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong("a number")
        try:
            number = float(self.value)
        except OverflowError:
            raise self.wrong("a number that a float can hold", "text") from None
        if not math.isfinite(number):
            raise self.wrong("a finite number", "text")
        return number

    def integer(self, least: int | None = None, most: int | None = None) -> int:
        """Return an integer, as JSON has it: ``2.0`` is one."""
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong("an integer")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least}" if most is None else f"from {least} to {most}"
            raise self.wrong(f"an integer {bounds}")
        return value


def _canonical(value: Any) -> str:
    """Return a text that is the same for values that JSON takes as equal: ``1`` and ``1.0``, but not ``true``."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr(value)
    # Longer ones than floats can be, which Python may refuse to write in digits.
    return value if isinstance(value, int) and value.bit_length() <= 1024 else f"{type(value).__name__} {hash(value)}"
