"""Paths of local files and directories, as the operating system understands them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError, StoreError, with_errno
from ..reasons import pass_on
from .keys import split_key, split_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the names of files; the locale determines it.
_ENCODING: Final = sys.getfilesystemencoding().upper()
_ADVICE: Final = "" if _ENCODING == "UTF-8" else "; run Python with PYTHONUTF8=1, or in a locale with UTF-8"


def file_name(name: str, what: str = "the path") -> bytes:
    """Return the name, or path, of a file as the system has it; ``what`` begins the message of the error.

    Raises
    ------
    ArgumentError
        If the system's encoding lacks a character.
    """
    try:
        return os.fsencode(name)
    except UnicodeEncodeError as exc:
        raise ArgumentError(
            f"{what} {name!r} cannot be encoded as {_ENCODING}, as names of files are here{_ADVICE}"
        ) from exc


def _checked(split: Callable[[str], list[str]], what: str) -> Callable[[str], list[str]]:
    def names_of(key: str) -> list[str]:
        names = split(key)
        file_name(key, what)
        return names

    return names_of


#: As :func:`gzarr.stores.keys.split_key` and ``split_prefix``, for keys of which the system can have files. (UTF-8 has
#: been checked there, and this is done for every value that is read.)
names_of_key: Final = split_key if _ENCODING == "UTF-8" else _checked(split_key, "store key")
names_of_prefix: Final = split_prefix if _ENCODING == "UTF-8" else _checked(split_prefix, "store prefix")


def status_at(path: str | os.PathLike[str], *, follow_symlinks: bool = True) -> os.stat_result | None:
    """Return the status of what is at a path; None if nothing is, also if no file can have such a path.

    The functions of pathlib raise some of the system's errors as they are, and those of ``os.path`` take each for an
    absent file.

    Raises
    ------
    StoreError
        If the system does not say.
    """
    try:
        return os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise with_errno(StoreError(f"{str(path)!r} cannot be examined: {error}"), error) from error
    except ValueError as error:
        pass_on(error)
        return None


def absolute_path(given: object, whose: str) -> str:
    """Return an absolute path without ``.`` and ``..``.

    ``..`` is what the system takes it for: on POSIX, after a symbolic link, the directory above the one that the link
    leads to. Only such links are resolved; what others lead to may change later.

    Parameters
    ----------
    given
        The path: text, or an object with ``__fspath__``.
    whose
        Beginning of the messages of errors, such as ``"LocalStore needs"``.

    Raises
    ------
    ArgumentError
        If it is not a path, or one that no file can have.
    StoreError
        If it is relative, and the current directory cannot be found.
    """
    try:
        path = os.fspath(given)  # type: ignore[call-overload]
    except TypeError as exc:
        raise ArgumentError(f"{whose} a path, not {type(given).__name__}") from exc
    if not isinstance(path, str):
        raise ArgumentError(f"{whose} a path that is text, not {path!r}")
    if not path or "\0" in path:
        raise ArgumentError(f"{whose} a non-empty path without NUL, not {path!r}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as exc:
        raise ArgumentError(
            f"{whose} a path that can be encoded as {_ENCODING}, as names of files are here, not {path!r}{_ADVICE}"
        ) from exc
    try:
        return _absolute(path)
    except OSError as exc:
        why = "no longer exists" if isinstance(exc, FileNotFoundError) else f"cannot be found: {exc.strerror}"
        message = f"{path!r} is relative to the current directory, which {why}; change to another one"
        raise with_errno(StoreError(message), exc) from exc


def _absolute(path: str) -> str:
    if os.name == "nt" or ".." not in path.split("/"):
        # Windows itself takes ".." for the name before it, whatever that is.
        return os.path.abspath(path)  # noqa: PTH100  (Path.absolute() keeps "..")
    found = "/"
    # The current directory, which may be gone, is of no matter to an absolute path.
    for name in (path if path.startswith("/") else f"{os.getcwd()}/{path}").split("/"):  # noqa: PTH109
        if name == "..":
            found = os.path.dirname(os.path.realpath(found) if os.path.islink(found) else found)  # noqa: PTH114, PTH120
        elif name not in ("", "."):
            found = os.path.join(found, name)  # noqa: PTH118
    return found
