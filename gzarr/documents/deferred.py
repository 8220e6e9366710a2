"""Documents within a document that are parsed when they are asked for, as most of consolidated metadata never is.

To find where each begins and ends, only quotes and brackets are looked at, in whole columns. What that leaves open is
found out by parsing: the text around the documents is parsed at once, and each document by itself, so that a text is
accepted only if it is JSON as a whole.
"""

from __future__ import annotations

import bisect
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import MetadataError
from .departures import is_collecting
from .json import check_length, load_document

if TYPE_CHECKING:
    from collections.abc import Sequence

# Quotes, and brackets of either kind, which differ in one bit.
_QUOTE: Final = ord('"')
_OPEN, _CLOSE, _BIT = (np.uint8(ord(c)) for c in ("{", "}", " "))
# Characters before an object in which its name is looked for, and objects of which that is done.
_BEFORE: Final = 100
_MOST_OBJECTS: Final = 1000
# Letters can be escaped, although nobody does.
_ESCAPE: Final = b"\\u00"
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[2-7]")


class Deferred:
    """The text of a JSON object, not parsed.

    Parameters
    ----------
    data
        Text with the object.
    begin, end
        Where it is.
    """

    __slots__ = ("_begin", "_data", "_end")

    def __init__(self, data: bytes, begin: int, end: int) -> None:
        self._data = data
        self._begin = begin
        self._end = end

    def __repr__(self) -> str:
        return f"Deferred({self._data[self._begin : min(self._end, self._begin + 80)]!r})"

    def load(self, key: str) -> dict[str, Any]:
        """Return the parsed object; errors, as of :func:`load_document`, name it by ``key``."""
        return load_document(self._data[self._begin : self._end], key)


def loaded(document: Any, key: str) -> Any:
    """Return a document, parsed if it was not."""
    return document.load(key) if isinstance(document, Deferred) else document


def load_around(data: bytes, key: str, names: Sequence[str], *, wanted: str | None = None) -> dict[str, Any]:
    """Parse a document except the objects in one of its members.

    Parameters
    ----------
    data, key
        As for :func:`load_document`.
    names
        Name of the member whose own members are documents, after the names of those around it.
    wanted
        Name of a member of documents that are parsed all the same, unless they are no JSON.

    Returns
    -------
    The document; documents in the member are :class:`Deferred`. All is parsed if departures are collected, and if the
    text is not plain enough to tell documents apart.

    Raises
    ------
    MetadataError
        As for :func:`load_document`, but for errors inside the documents.
    """
    check_length(data, key)
    # Departures are recorded while a document is parsed.
    begins, ends = ([], []) if is_collecting() or not names else _places(data, names)
    if begins:
        around = zip([0, *ends], [*begins, len(data)], strict=True)
        try:
            document = load_document(b"0".join([data[begin:end] for begin, end in around]), key)
        except MetadataError:
            # Its message is about another text.
            return load_document(data, key)
        holder: Any = document
        for name in names:
            holder = holder.get(name) if isinstance(holder, dict) else None
        # Whatever else is a number there would be too many.
        left_out = [name for name, value in holder.items() if type(value) is int] if isinstance(holder, dict) else []
        if len(left_out) == len(begins):
            for name, begin, end in zip(left_out, begins, ends, strict=True):
                holder[name] = Deferred(data, begin, end)
            if wanted is not None:
                for i in _mentions(data, wanted, begins, ends):
                    with contextlib.suppress(MetadataError):
                        holder[left_out[i]] = holder[left_out[i]].load(key)
            return document
    return load_document(data, key)


def _mentions(data: bytes, name: str, begins: list[int], ends: list[int]) -> set[int]:
    """Return which of some documents may have an object with a member of a name."""
    found: set[int] = set()
    text = f'"{name}"'.encode()
    places = [data.find(text)]
    while places[-1] >= 0:
        places.append(data.find(text, places[-1] + 1))
    # One character is found much faster than several, and most texts have no backslash.
    if b"\\" in data and _ESCAPE in data:
        places += [match.start() for match in _ESCAPED_LETTER.finditer(data)]
    for place in places:
        i = bisect.bisect(begins, place) - 1
        if i >= 0 and place < ends[i]:
            found.add(i)
    return found


def _places(data: bytes, names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return where the objects in a member begin and end; no places if that is not clear."""
    if any(f'"{name}"'.encode() not in data for name in names):
        return [], []
    # What is escaped may be a quote that ends nothing.
    text = data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data
    characters = np.frombuffer(text, np.uint8)
    brackets = characters | _BIT
    at = np.flatnonzero((characters == _QUOTE) | (brackets == _OPEN) | (brackets == _CLOSE))
    found = characters[at]
    quotes = found == _QUOTE
    outside = ~np.logical_xor.accumulate(quotes)
    chosen = outside & ~quotes
    at = at[chosen]
    opens = (found[chosen] | _BIT) == _OPEN
    depths = np.cumsum(np.where(opens, np.int32(1), np.int32(-1)), dtype=np.int32)
    if not len(at) or not outside[-1] or depths[-1] or depths.min() < 0:
        return [], []
    first, last = 0, len(at)
    for depth, name in enumerate(names, 2):
        inside = depths[first:last]
        opening = first + np.flatnonzero((inside == depth) & opens[first:last])
        if len(opening) > _MOST_OBJECTS:
            return [], []
        ends_in_name = re.compile(rb'(?<!\\)"' + re.escape(name.encode()) + rb'"\s*:\s*\Z')
        named = [i for i in opening if ends_in_name.search(data, max(0, int(at[i]) - _BEFORE), int(at[i]))]
        if len(named) != 1 or data[at[named[0]]] != ord("{"):
            return [], []
        first = int(named[0]) + 1
        last = first + int(np.argmax(depths[first:last] == depth - 1))
    depth = len(names) + 2
    inside, within = depths[first:last], opens[first:last]
    begins = at[first:last][(inside == depth) & within]
    ends = at[first:last][(inside == depth - 1) & ~within] + 1
    objects = characters[begins] == _OPEN
    return begins[objects].tolist(), ends[objects].tolist()
