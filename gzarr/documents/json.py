"""Parsing untrusted JSON documents.

Zarr documents are JSON (https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#metadata-documents). Beyond
JSON, the literals ``NaN``, ``Infinity`` and ``-Infinity`` are understood, because zarr-python writes them in
attributes. A document with duplicate keys is refused: readers disagree on which one counts.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from typing import TYPE_CHECKING, Any, Final

from ..errors import MetadataError
from .departures import is_collecting, note

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Longer documents are refused (consolidated metadata of a million arrays is about this long).
MAX_DOCUMENT_BYTES: Final = 256 << 20
#: Documents nested deeper are refused, so that code that walks attributes never runs out of stack.
MAX_DEPTH: Final = 128


class _Quote(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxdict = self.maxtuple = 6
        self.maxstring = self.maxother = 100

    # Python refuses to print integers of thousands of digits.
    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**40 else f"<an integer of {x.bit_length()} bits>"


_quote = _Quote()


def quote(value: object) -> str:
    """Return a JSON value as a short text for messages."""
    return _quote.repr(value)


class _DuplicateKeyError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _DuplicateKeyError(f"the key {quote(name)} occurs twice in one object")
            seen.add(name)
    return result


# One object each, as in the standard library, so that attributes with NaN equal the same attributes read again.
_CONSTANTS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}


def _constant(name: str) -> float:
    note(f"{name}, which JSON does not have", "$")
    return _CONSTANTS[name]


def _noted_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        note(f"{quote(text)}, which is too large for 64-bit floating point, and becomes Infinity", "$")
    return value


def _check_depth(document: object) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    raise ValueError(f"objects and arrays are nested more than {MAX_DEPTH} deep")


# Half of a pair, maybe of one that is complete; as bytes, UTF-8 has none.
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def unpaired_surrogates(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """Yield the text in a JSON value, names included, that has unpaired surrogates, which UTF-8 cannot encode.

    Parameters
    ----------
    value, at
        The value, nested at most ``MAX_DEPTH`` deep, and its location.

    Yields
    ------
    Location and text.
    """
    try:
        # By far the fastest way to look at all of it, and mostly there are none.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield from _unpaired(value, at)
    # Not JSON: numbers and text of other types, which become JSON later.
    except (TypeError, ValueError, RecursionError):
        yield from _unpaired(value, at)


def _unpaired(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if not _is_encodable(value):
            yield at, value
    elif isinstance(value, dict):
        for name, item in value.items():
            if not _is_encodable(name):
                yield f"{at}, a name", name
            yield from _unpaired(item, f"{at}[{quote(name)}]")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _unpaired(item, f"{at}[{i}]")


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _note_surrogates(document: Any) -> None:
    for at, text in unpaired_surrogates(document, "$"):
        note(f"{quote(text)} has an unpaired surrogate, which UTF-8 cannot encode", at)


def load_attributes(data: bytes, key: str) -> Any:
    """Parse a document of attributes, which may be any value: what is none is decided by who knows its format.

    Parameters
    ----------
    data, key
        As for :func:`load_document`.

    Raises
    ------
    MetadataError
        As for :func:`load_document`, but for what is not an object.
    """
    return _load(data, key)


def load_document(data: bytes, key: str) -> dict[str, Any]:
    """Parse a metadata document.

    Parameters
    ----------
    data
        Value of ``key``.
    key
        Store key, for messages.

    Raises
    ------
    MetadataError
        If ``data`` is not one JSON object in UTF-8, has duplicate keys, is longer than 256 MiB, or is nested more than
        128 levels deep.
    """
    document = _load(data, key)
    if type(document) is not dict:
        raise MetadataError(f"expected a JSON object, got {quote(document)}", key=key)
    return document


def check_length(data: bytes, key: str) -> None:
    """Refuse a document that is too long by a :class:`MetadataError`; ``key`` is for its message."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise MetadataError(
            f"the document has {len(data)} bytes; more than {MAX_DOCUMENT_BYTES} are not read as metadata", key=key
        )


def _load(data: bytes, key: str) -> Any:
    check_length(data, key)
    try:
        text = str(data, "utf-8")
        if text.startswith("\ufeff"):
            note("a byte order mark", "$")
            text = text[1:]
        parse_float = _noted_float if is_collecting() else None
        document = json.loads(text, object_pairs_hook=_object, parse_float=parse_float, parse_constant=_constant)
        if type(document) is dict:
            _check_depth(document)
            if is_collecting() and _SURROGATE.search(data):
                _note_surrogates(document)
    except UnicodeDecodeError as error:
        raise MetadataError(f"not UTF-8 (byte {error.start}: {error.reason})", key=key) from None
    except RecursionError:
        raise MetadataError("objects and arrays are nested too deep", key=key) from None
    except json.JSONDecodeError as error:
        text = "the document is empty" if not data.strip() else f"not valid JSON: {error}"
        raise MetadataError(text, key=key) from None
    except ValueError as error:
        # Duplicate keys, nesting, and integers with more digits than Python converts.
        raise MetadataError(str(error), key=key) from None
    return document
