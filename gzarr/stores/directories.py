"""Directories: making them, and flushing files and names to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

from .descriptors import open_into

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
#: What file systems answer that cannot flush.
CANNOT_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
#: Why a value is not written there.
NEEDS_FLUSH = "its file system cannot flush files to the disk, which durable=True asks for"


def flush(fd: int) -> None:
    """Flush a file to the disk, for a store that was asked to."""
    if sys.platform == "darwin":
        # On macOS, fsync leaves the data in the disk's cache. Not every file system supports F_FULLFSYNC.
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno in CANNOT_FLUSH:
            raise OSError(error.errno, f"{error.strerror}: {NEEDS_FLUSH}") from error
        raise


def flush_if_possible(fd: int) -> None:
    """Flush a file to the disk, if its file system can."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in CANNOT_FLUSH:
            raise


def sync_directory(directory: int | None, base: str) -> None:
    """Flush the names in a directory, given by its descriptor and ``""``, or by None and its path."""
    if os.name == "nt":  # it cannot open directories; NTFS journals names itself
        return
    fds: list[int] = []
    try:
        if directory is None:
            open_into(fds, base, DIRECTORY)
        os.fsync(fds[0] if directory is None else directory)
    except OSError as exc:
        # Of directories, some say it otherwise.
        if exc.errno not in CANNOT_FLUSH and exc.errno != errno.EBADF:
            raise
    finally:
        for fd in fds:
            os.close(fd)


def make_directories(path: str, *, durable: bool) -> list[str]:
    """Make a directory and its missing parents, or none; if ``durable``, flush the name of each directory made.

    Returns the paths of those made, parents first. Raises ``FileNotFoundError`` if another process erased one of them
    meanwhile: try again.
    """
    made: list[str] = []
    try:
        _make_directories(path, made, durable=durable)
    except OSError:
        # The system refuses a name that is too long, for example, only where its parents exist.
        remove_empty(made)
        raise
    return made


def remove_empty(made: Sequence[str]) -> None:
    """Remove directories of :func:`make_directories` that are still empty."""
    with contextlib.suppress(OSError):
        for path in reversed(made):
            os.rmdir(path)  # noqa: PTH106


def _make_directories(path: str, made: list[str], *, durable: bool) -> None:
    """Make the same, and append the paths of those that were missing, parents first."""
    above = os.path.dirname(path)  # noqa: PTH120
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileExistsError:
        if not _is_there(path):
            raise
        return
    except FileNotFoundError:
        if above == path:
            raise
        _make_directories(above, made, durable=durable)
        try:
            os.mkdir(path)  # noqa: PTH102
        except FileExistsError:
            return
    made.append(path)
    if durable:
        sync_directory(None, above)


def _is_there(path: str) -> bool:
    """Return whether an existing name is a directory; raise ``FileNotFoundError`` if it has been erased meanwhile."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114  (a dangling link)
            return False
        raise


def make_directory_in(directory: int, name: str, *, durable: bool) -> None:
    """Make ``name`` in an open directory unless it exists; if ``durable``, flush its name."""
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
    if durable:
        sync_directory(directory, "")
