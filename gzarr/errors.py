"""All exceptions that gzarr raises on purpose.

Each derives from :class:`GzarrError` and from the built-in exception that a user would expect, so that existing
``except`` clauses keep working. Messages name the node, the chunk and the key, and say what was expected and what to
do.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final, TypeVar

from .reasons import pass_on

E = TypeVar("E", bound=OSError)

#: Characters of a store's text that a terminal obeys, and ones that it cannot print: controls but the end of a line,
#: those of the direction of text, line and paragraph separators, and halves of characters.
_NOT_SHOWN: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

__all__ = [
    "ArgumentError",
    "ChunkDecodeError",
    "ChunkError",
    "ChunkReadError",
    "ChunkWriteError",
    "DeviceError",
    "GzarrError",
    "MetadataError",
    "MissingChunkError",
    "NodeNotFoundError",
    "NodeTypeError",
    "OutputError",
    "ReadOnlyError",
    "SelectionError",
    "StoreError",
    "UnsupportedError",
    "ValueReplacedError",
    "ValueSizeError",
]


class GzarrError(Exception):
    """Base of all exceptions raised by gzarr."""

    # KeyError prints the repr of its message; ours are sentences.
    def __str__(self) -> str:
        return _shown(str(self.args[0])) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self._state()

    def _state(self) -> dict[str, Any]:
        """Return all attributes: notes, which name the block that failed, and the system's number of an error, too."""
        number = getattr(self, "errno", None)
        return self.__dict__ if number is None else {**self.__dict__, "errno": number}


class ArgumentError(GzarrError, ValueError):
    """An argument is wrong; nothing was read."""


class OutputError(ArgumentError):
    """The array given as ``out=`` cannot take the result; nothing was read."""


class SelectionError(GzarrError, IndexError):
    """A selection does not fit the array; the message shows both."""


class DeviceError(GzarrError, RuntimeError):
    """The requested device cannot be used, or failed; the message says which part is missing, or quotes CUDA's error.

    Some CUDA errors make a device unusable for the rest of the process; decoding a damaged chunk on a GPU may cause
    one. Every later use of the device in this process raises the same message, which names the chunks that were on it.
    """


class NodeNotFoundError(GzarrError, FileNotFoundError, KeyError):
    """No array or group at that path."""


class NodeTypeError(GzarrError, TypeError):
    """A group was found where an array was expected, or the other way round."""


class MetadataError(GzarrError, ValueError):
    """A metadata document is malformed.

    Parameters
    ----------
    message
        Description of the error and of the expected content.
    json_path
        Location in the document, e.g. ``$.codecs[1].configuration.level``.
    key
        Store key of the document, if known.
    """

    def __init__(self, message: str, *, json_path: str = "$", key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.json_path = json_path
        self.key = key

    def __str__(self) -> str:
        where = f"{self.key!r} at {self.json_path}" if self.key is not None else self.json_path
        return _shown(f"{where}: {self.message}")

    def at(self, key: str) -> MetadataError:
        """Return the same error with ``key`` added, the document's key in its store."""
        self.key = key
        return self


class UnsupportedError(MetadataError):
    """A metadata document is well formed but uses something that gzarr does not know (codec, data type, grid)."""


class StoreError(GzarrError, OSError):
    """A store operation failed (refused, timed out, short read). Never raised for an absent key.

    Parameters
    ----------
    message
        What failed, and in which store.
    key
        Store key, if the operation had one.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class ValueSizeError(StoreError):
    """A value is too short for the requested range, or larger than the caller's limit."""


class ValueReplacedError(StoreError):
    """A value was replaced, or erased, between two requests that need the same version of it."""


class ReadOnlyError(StoreError):
    """A write to something that was opened read-only; nothing was changed."""


class ChunkError(GzarrError):
    """A chunk could not be read.

    Parameters
    ----------
    reason
        What went wrong. The message is this text, preceded by node, chunk and key.
    node
        Path of the array in its store (``"/"`` for the root).
    chunk
        Grid coordinates of the chunk (in a sharded array, of the inner chunk).
    key
        Store key of the chunk (in a sharded array, of its shard).
    """

    def __init__(self, reason: str, *, node: str, chunk: tuple[int, ...], key: str) -> None:
        super().__init__(f"array {node!r}, chunk {chunk}, key {key!r}: {reason}")
        self.reason = reason
        self.node = node
        self.chunk = chunk
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), node=self.node, chunk=self.chunk, key=self.key)
        return make, (self.reason,), self._state()


class ChunkDecodeError(ChunkError, ValueError):
    """The bytes of a chunk are corrupt or truncated, or decode to another size than the metadata says."""


class ChunkReadError(ChunkError, OSError):
    """The store failed while reading a chunk; the chunk may well exist."""


class ChunkWriteError(ChunkError, OSError):
    """A chunk could not be written; its old value is still there. The message says how many others were written."""


class MissingChunkError(ChunkError, LookupError):
    """The chunk is not in the store, and the caller passed ``missing="error"``."""


def _shown(text: str) -> str:
    """Return a message on one line, as it may be printed: names and values in it may be those of a stranger's store."""
    if "\n" in text:
        # Arrays and tables are shown on several lines.
        text = " ".join(line.strip() for line in text.split("\n"))
    return _NOT_SHOWN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def with_errno(error: E, cause: BaseException) -> E:
    """Return an error with the number of its cause, if the system has given one.

    A cause that a handler of a signal raised is raised instead. Where the error is raised as it is returned, no
    variable there and its traceback keep each other.
    """
    # As a timeout of the program is, which may well be a TimeoutError, and says nothing of the system.
    try:
        pass_on(cause)
        if isinstance(cause, OSError):
            error.errno = cause.errno
    finally:
        del cause
    return error
