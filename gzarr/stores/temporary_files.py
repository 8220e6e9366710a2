"""Temporary files whose errors say that they are some: nobody has named the directory that they are in."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING, Final

from ..errors import GzarrError, StoreError, with_errno

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What to do if temporary files cannot be made or written.
ADVICE: Final = "free some of its space, or set TMPDIR to another directory"


@contextlib.contextmanager
def temporary_files(what: str, *advice: str) -> Iterator[None]:
    """Have errors of the system, in a ``with`` block that uses temporary files, name their directory.

    Parameters
    ----------
    what
        What is kept in them; begins the message.
    *advice
        What else may be done, if there is something.

    Raises
    ------
    StoreError
        In place of an ``OSError``.
    """
    try:
        yield
    except GzarrError:
        raise
    except OSError as error:
        try:
            where = f"the directory of temporary files, {tempfile.gettempdir()!r}"
        except OSError:
            # The error names all that were tried.
            where = "a directory of temporary files"
        todo = ", or ".join((ADVICE, *advice))
        message = f"{what} cannot be kept in {where}: {error.strerror or error}; {todo}"
        raise with_errno(StoreError(message), error) from error


@contextlib.contextmanager
def noted(note: str, *kinds: type[GzarrError]) -> Iterator[None]:
    """Have errors of some kinds, in a ``with`` block, say that it uses a temporary directory; without a note, nothing.

    Parameters
    ----------
    note
        From :func:`note_of`; empty if the directory is not temporary.
    *kinds
        The errors.
    """
    try:
        yield
    except kinds as error:
        if note:
            error.add_note(note)
        raise


def note_of(directory: str, *advice: str) -> str:
    """Return a note that names a temporary directory, and says what to do if there is not enough room in it."""
    return f"(in the temporary directory {directory!r}: {', or '.join((ADVICE, *advice))})"
