"""Errors of Icechunk: what they say of keys, and how they are shown."""

from __future__ import annotations

import re
from typing import Final

#: How Icechunk begins to say that it cannot have a key or a prefix: beside its format, beyond an array's shape, ...
OTHER_FORMAT: Final = "invalid zarr key"
NO_KEY: Final = (OTHER_FORMAT, "invalid chunk index", "bad key prefix")
#: ... and, of a chunk, that there is no such array.
NO_ARRAY: Final = ("node not found at", "there is not an array at")
GONE: Final = (
    "there is no such array now: it was erased, moved, replaced or discarded since it was opened; open what is there"
)
#: Icechunk's keys of chunks.
CHUNK: Final = re.compile(r"(?:.*/)?c(?:/\d+)*", re.DOTALL)
#: What marks the first line of Icechunk's errors, and one with a cause. In a terminal, marks are others, in colour.
_FIRST: Final = re.compile(r"\s*(?:[x\u00d7]\s+)?")
_CAUSE: Final = re.compile(r"\s*(?:[|`]-+>|[\u251c\u2570]\u2500+\u25b6)(.*)")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def says_absent(key: str, outcome: object) -> bool:
    """Return whether Icechunk says that there can be no value with a key.

    A document may be absent with its node, but an array that is not there does not say what a chunk of it holds.
    """
    return says(outcome, NO_KEY) or (says(outcome, NO_ARRAY) and CHUNK.fullmatch(key) is None)


def says(outcome: object, words: tuple[str, ...]) -> bool:
    """Return whether an outcome is an error of Icechunk that begins with some words.

    What follows may have any words in it: keys, and the places of files.
    """
    return is_of_icechunk(outcome) and _lines(outcome)[0].startswith(words)


def _lines(error: object) -> list[str]:
    """Return the lines of an error of Icechunk, the first one without its mark."""
    first, *others = _COLOUR.sub("", str(error)).strip().splitlines() or [""]
    return [_FIRST.sub("", first, count=1).strip(), *others]


def is_of_icechunk(value: object) -> bool:
    """Return whether a value is a store, or an error, of Icechunk."""
    return type(value).__module__.partition(".")[0] == "icechunk"


def without_trace(error: BaseException) -> BaseException:
    """Return an error of Icechunk with what has failed and why, without the places in its code; others as they are."""
    if not is_of_icechunk(error):
        return error
    first, *others = _lines(error)
    # Causes have arrows; the last one is often said at the beginning.
    causes = (cause[1].strip() for line in others if (cause := _CAUSE.match(line)))
    return type(error)(": ".join(dict.fromkeys([first, *causes])))
