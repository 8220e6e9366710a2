"""The output of commands where its reader has gone, as ``head`` has after some lines.

What would be printed there is dropped, and the command goes on: what it does, and its exit code, do not depend on who
reads along. On stderr nothing can be said of a full disk either.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Output(io.FileIO):
    """A descriptor that takes everything: from the first of some errors on, it leads nowhere."""

    def __init__(self, descriptor: int, errors: type[OSError]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._errors = errors
        self.is_read: bool = True

    def write(self, data: Any) -> int:
        """Write bytes; return how many."""
        try:
            return super().write(data)
        except self._errors:
            self.is_read = False
            lead_nowhere(self.fileno())
            return super().write(data)


#: Streams that were made over others. They are used again: a thread may still print to one that is sys.stdout no
#: longer, and Python before 3.14 may crash if that is freed meanwhile.
_made: Final[dict[type[OSError], WeakKeyDictionary[Any, Any]]] = {
    BrokenPipeError: WeakKeyDictionary(),
    OSError: WeakKeyDictionary(),
}


@contextlib.contextmanager
def for_any_reader() -> Iterator[None]:
    """Have prints to stdout drop what finds no reader, and prints to stderr what cannot be written."""
    streams = _over(sys.stdout, BrokenPipeError), _over(sys.stderr, OSError)
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            yield
    finally:
        # What a line was begun with, and what threads have printed until now.
        for stream in streams:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def is_read() -> bool:
    """Return whether, as far as is known, someone reads stdout."""
    return bool(getattr(_raw(sys.stdout), "is_read", True))


def lead_nowhere(descriptor: int) -> None:
    """Have what is written to a descriptor from now on dropped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _raw(stream: Any) -> Any:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _over(stream: Any, errors: type[OSError]) -> Any:
    """Return a stream to the descriptor of another one; that one itself if it has none, or is a console of Windows."""
    raw = _raw(stream)
    if not isinstance(stream, io.TextIOWrapper) or type(raw) is not io.FileIO:
        return stream
    stream.flush()
    over = _made[errors].get(stream)
    if over is None:
        output: Any = _Output(raw.fileno(), errors)
        over = _made[errors][stream] = io.TextIOWrapper(
            output if raw is stream.buffer else io.BufferedWriter(output),
            encoding=stream.encoding,
            errors=stream.errors,
        )
    _raw(over).is_read = True
    if (over.encoding, over.errors) != (stream.encoding, stream.errors):
        over.reconfigure(encoding=stream.encoding, errors=stream.errors)
    over.reconfigure(line_buffering=stream.line_buffering, write_through=stream.write_through)
    return over
