"""Paths of local files and directories, as the operating system understands them."""

from __future__ import annotations

import os

from ..errors import ArgumentError, StoreError, with_errno


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
        raise ArgumentError(f"{whose} a path that can be encoded as UTF-8, not {path!r}") from exc
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
