"""Files below a root directory, by the segments of their keys; failures are the system's own ``OSError``.

Only this module decides whether symbolic links are followed: if so, an operation passes a whole path to the system; if
not, every segment is opened relative to its parent directory without following links, so that no link can be inserted
between a check and a use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import TYPE_CHECKING, Final, NoReturn

from .descriptors import close_all, open_into
from .directories import DIRECTORY, make_directories, make_directory_in
from .temporary_names import is_reserved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .base import Listing

#: How files are opened for reading. Without O_NONBLOCK, opening a named pipe inside a store would block for ever.
READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

#: What says that there is nothing of a name. After any other error, nobody knows.
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)

#: Where the times of files are this coarse, one that was changed less than so long ago may be changed again and have
#: the same times. They are at most two seconds apart, on FAT.
_COARSE_NS: Final = 1_000_000
_FRESH_NS: Final = 2_000_000_000

CAN_REFUSE_LINKS = bool(_NOFOLLOW) and os.open in os.supports_dir_fd and os.scandir in os.supports_fd


class FileTree:
    """Files below one directory.

    Parameters
    ----------
    root
        Absolute path of the directory; may itself be a link, and need not exist.
    follow_symlinks
        If False, any symbolic link below ``root`` is an error (``ELOOP``).
    durable
        Flush the names of new directories.
    """

    def __init__(self, root: str, *, follow_symlinks: bool, durable: bool) -> None:
        self.root = root
        self.follow_symlinks = follow_symlinks
        self.durable = durable

    def path(self, segments: Sequence[str]) -> str:
        """Return a whole path, for messages and to remember directories."""
        return "/".join((self.root, *segments))

    @contextlib.contextmanager
    def at(self, segments: Sequence[str], *, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Give the directory of the last segment: a descriptor and ``""``, or None and its path with a final slash."""
        if self.follow_symlinks:
            directory = self.path(segments[:-1])
            if create:
                make_directories(directory, durable=self.durable)
            yield None, directory + "/"
            return
        if create:
            make_directories(self.root, durable=self.durable)
        # Each holds a descriptor or none.
        here: list[int] = []
        above: list[int] = []
        try:
            open_into(here, self.root, DIRECTORY)
            for segment in segments[:-1]:
                if create:
                    make_directory_in(here[0], segment, durable=self.durable)
                above, here = here, above
                _open_below(here, above[0], segment, DIRECTORY)
                _close(above)
            yield here[0], ""
        finally:
            # Not a function of Python, at whose beginning an interrupt may come. Without errors: all was read.
            for fd in (*above, *here):
                os.closerange(fd, fd + 1)

    def open_file(self, segments: Sequence[str], fds: list[int]) -> None:
        """Open a file for reading, and append its descriptor to a list."""
        if self.follow_symlinks:
            # As ``open_into`` does, without another call: this is done for every small value that is read.
            fds.extend(map(os.open, (self.path(segments),), (READ,)))
            return
        with self.at(segments) as (directory, _):
            assert directory is not None
            _open_below(fds, directory, segments[-1], READ)

    def stat(self, segments: Sequence[str]) -> os.stat_result:
        """Return the status of a file."""
        if self.follow_symlinks:
            # No context manager, because this is called for every shard that is read.
            return os.stat(self.path(segments))  # noqa: PTH116
        with self.at(segments) as (directory, base):
            return os.stat(base + segments[-1], dir_fd=directory, follow_symlinks=self.follow_symlinks)

    def scan(self, segments: Sequence[str], *, walked: bool) -> Listing:
        """Return the names of files and of directories in a directory, without reserved ones.

        Parameters
        ----------
        segments
            Segments of the directory.
        walked
            Whether the tree below is walked. A link to a directory above it is an error then, because the walk would
            have no end; otherwise, it is left out.
        """
        with contextlib.ExitStack() as stack:
            if self.follow_symlinks:
                where: str | int = self.path(segments)
            else:
                fd, _ = stack.enter_context(self.at([*segments, ""]))
                assert fd is not None
                where = fd
            files, directories = [], []
            for entry in stack.enter_context(os.scandir(where)):
                if is_reserved(entry.name):
                    continue
                if not self.follow_symlinks and entry.is_symlink():
                    _refuse(entry.name)
                if entry.is_dir(follow_symlinks=self.follow_symlinks):
                    if entry.is_symlink() and self._is_above(segments, entry):
                        if not walked:
                            continue
                        raise OSError(errno.ELOOP, f"{entry.name!r} is a symbolic link to a directory above it")
                    directories.append(entry.name)
                # A link to a file that does not exist is a key, whose value cannot be read.
                elif entry.is_file(follow_symlinks=self.follow_symlinks) or entry.is_symlink():
                    files.append(entry.name)
        return files, directories

    def _is_above(self, segments: Sequence[str], link: os.DirEntry[str]) -> bool:
        """Return whether a link, in the directory ``segments``, leads to that directory or one above it."""
        target = link.stat()
        above = (self.path(segments[:depth]) for depth in range(len(segments) + 1))
        return any(os.path.samestat(target, os.stat(path)) for path in above)  # noqa: PTH116

    def check_link(self, directory: int | None, base: str, name: str) -> None:
        """Refuse ``name`` in a directory from :meth:`at` if it is a link and links are not followed."""
        if not self.follow_symlinks and is_link(directory, base + name):
            _refuse(name)


def _close(fds: list[int]) -> None:
    """Close the descriptors of a list that were only read; it is empty then.

    Network file systems may report failures of others here. All that was read is complete.
    """
    while fds:
        try:
            close_all(fds)
        except OSError:
            # It is out of the list, and no second attempt would close it.
            continue


def _open_below(fds: list[int], directory: int, name: str, flags: int) -> None:
    """Open ``name`` in ``directory`` without following a link, and append the descriptor to a list."""
    try:
        open_into(fds, name, flags | _NOFOLLOW, directory=directory)
    except OSError as exc:
        # Systems report ELOOP, ENOTDIR or EMLINK for a link. It was not followed; this check is for the message.
        if exc.errno != errno.ENOENT and is_link(directory, name):
            _refuse(name)
        raise


def _refuse(name: str) -> NoReturn:
    raise OSError(errno.ELOOP, f"{name!r} is a symbolic link, and the store was opened with follow_symlinks=False")


def dangling_link(root: str, segments: Sequence[str]) -> str | None:
    """Return what an absent file misses: the first link on its path whose target does not exist, or None.

    Parameters
    ----------
    root
        Directory of the store; links above and in it are not looked at.
    segments
        Segments of the key.
    """
    path = root
    for segment in segments:
        path = f"{path}/{segment}"
        try:
            link = stat.S_ISLNK(os.lstat(path).st_mode)
        except _ABSENT:
            return None
        if link:
            try:
                os.stat(path)  # noqa: PTH116
            except _ABSENT:
                return path
    return None


def is_link(directory: int | None, name: str) -> bool:
    """Return whether a name is a symbolic link, False if there is none; other failures are errors."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except _ABSENT:
        return False


def is_directory(directory: int | None, name: str) -> bool:
    """Return whether a name is a directory, not a link to one; False if there is none, other failures are errors."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except _ABSENT:
        return False


class FreshVersion(tuple[int, ...]):
    """The version of a file that may be replaced by one of the same version, as times are coarse where it is.

    It compares as any other version, within a read. Nothing is to be kept under it.
    """

    __slots__ = ()


def identity(status: os.stat_result) -> tuple[int, ...] | None:
    """Return a token that changes when a file is replaced (inode, size, times); None if it is not a regular file.

    To be called right after the system was asked. It is a :class:`FreshVersion` where times have whole milliseconds and
    the file was changed just now.
    """
    if not stat.S_ISREG(status.st_mode):
        return None
    changed, written = status.st_ctime_ns, status.st_mtime_ns
    version = status.st_dev, status.st_ino, status.st_size, written, changed
    if changed % _COARSE_NS == 0 and written % _COARSE_NS == 0 and time.time_ns() - max(changed, written) < _FRESH_NS:
        return FreshVersion(version)
    return version
