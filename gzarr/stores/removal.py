"""Removal of directory trees, while others may write into them, and Ctrl-C may come at any moment.

A directory gets a temporary name before it is removed: for readers that is one step, and a killed process leaves what
others remove later (:mod:`gzarr.stores.leftovers`).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat

from .descriptors import open_into
from .directories import DIRECTORY
from .temporary_names import temporary_name, temporary_prefix

# Directories under temporary names that an interrupt kept from being removed. Others do not take this process for
# ended, so it removes them itself, when it next writes or erases.
_left_over: set[str] = set()

# Whether files can be removed relative to a directory: not on Windows.
_REMOVES_BELOW = {os.open, os.unlink, os.rmdir} <= os.supports_dir_fd and os.scandir in os.supports_fd
# A writer that opened the directory before it was renamed can disturb its removal, about twice each.
_MOST_REMOVALS = 100


def erase_directory(directory: int | None, base: str, name: str, path: str, *, protected: bool = False) -> None:
    """Erase a directory tree; where the system allows it, readers see this as one step.

    Parameters
    ----------
    directory, base
        Directory that it is in: its descriptor and ``""``, or None and its path with a trailing slash.
    name
        Its name.
    path
        Whole path of the directory that it is in.
    protected
        As of :func:`remove_tree`.

    Raises
    ------
    OSError
        If it cannot be erased, or not all of it: the text then says where the rest is.
    """
    remove_left_over()
    # If the process is killed between the two steps, the next writer removes the rest as a leftover.
    hidden = temporary_name()
    try:
        try:
            os.rename(base + name, base + hidden, src_dir_fd=directory, dst_dir_fd=directory)
        except FileNotFoundError:  # others are erasing it
            raise
        except OSError as error:  # a mount point, or a directory that is in use on Windows
            if os.name == "posix" and isinstance(error, PermissionError):
                # All below it could be erased, but not the directory itself.
                raise
            _remove_in_place(directory, base + name, protected=protected)
            return
        try:
            remove_tree(directory, base + hidden, protected=protected)
        except OSError as error:
            rest = f"; it is gone all the same, and what is left of it is in {f'{path}/{hidden}'!r}"
            raise OSError(error.errno, f"{error.strerror}{rest}") from error
    except BaseException as error:
        # An interrupt (Ctrl-C).
        if not isinstance(error, Exception):
            _left_over.add(f"{path}/{hidden}")
        raise


def _remove_in_place(directory: int | None, path: str, *, protected: bool) -> None:
    """Remove a directory tree; of a mount point, all that is in it."""
    try:
        remove_tree(directory, path, protected=protected)
    except OSError as error:
        if error.errno != errno.EBUSY or not _is_empty(directory, path):
            raise


def _is_empty(directory: int | None, path: str) -> bool:
    fds: list[int] = []
    try:
        open_into(fds, path, DIRECTORY, directory=directory)
        with os.scandir(fds[0]) as entries:
            return next(entries, None) is None
    finally:
        # As in ``remove_below``.
        for fd in fds:
            os.closerange(fd, fd + 1)


def remove_later(path: str) -> None:
    """Leave a directory of this process, under a temporary name, to its next writer."""
    _left_over.add(path)


def remove_left_over() -> None:
    """Remove the directories that interrupts have left."""
    if not _left_over:
        return
    ours = temporary_prefix()
    # A list is made in one step, whatever other threads add.
    for path in list(_left_over):
        # A forked child may have copies of what its parent is still making.
        if ours in path:
            with contextlib.suppress(OSError):
                remove_tree(None, path, protected=True)
        _left_over.discard(path)


def remove_tree(directory: int | None, path: str, *, protected: bool = False) -> None:
    """Remove a directory tree, even while others write into it or remove parts of it; of a link, only the link.

    Parameters
    ----------
    directory, path
        Directory to remove: descriptor of its parent and its name, or None and its path.
    protected
        Whether to remove what is write-protected, too: only for directories under temporary names.
    """
    for attempt in range(_MOST_REMOVALS):
        try:
            status = os.stat(path, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return
        try:
            if stat.S_ISLNK(status.st_mode):
                os.unlink(path, dir_fd=directory)
            else:
                remove_below(path, directory)
            return
        except OSError as exc:
            if protected and isinstance(exc, PermissionError):
                protected = False
                _make_writable(directory, path)
                continue
            # Others removed an entry before its turn, or added one after.
            if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) or attempt == _MOST_REMOVALS - 1:
                raise


def remove_below(path: str, directory: int | None = None) -> None:
    """Remove a directory with all in it, never through a link.

    ``shutil.rmtree`` may lose a descriptor to an interrupt (Ctrl-C), or close one twice, which takes the place of the
    interrupt as an error.

    Parameters
    ----------
    path
        Path of the directory.
    directory
        Descriptor of an open directory to which ``path`` is relative, or None.
    """
    if not _REMOVES_BELOW:
        shutil.rmtree(path)
        return
    # The directories that are open, each in the one before: their descriptors, names, and what is left in them.
    fds: list[int] = []
    names: list[str] = []
    entries: list[list[os.DirEntry[str]]] = []
    below = path
    try:
        while True:
            open_into(fds, below, DIRECTORY | os.O_NOFOLLOW, directory=fds[-1] if fds else directory)
            names.append(below)
            # One call of compiled code, for an interrupt would leave the iterator of ``scandir`` open.
            entries.append(list(itertools.chain.from_iterable(map(os.scandir, fds[-1:]))))
            while not (below := _remove_files(entries[-1], fds[-1])):
                # By one call, as in ``close_all``. Without errors: nothing was written.
                with contextlib.suppress(OSError):
                    list(map(os.close, map(fds.pop, (-1,))))
                entries.pop()
                os.rmdir(names.pop(), dir_fd=fds[-1] if fds else directory)
                if not fds:
                    return
    finally:
        # Not a function of Python, at whose beginning an interrupt may come.
        for fd in fds:
            os.closerange(fd, fd + 1)


def _remove_files(entries: list[os.DirEntry[str]], directory: int) -> str:
    """Remove files of a directory, and take them from a list, up to the first folder; return its name, or ``""``."""
    while entries:
        entry = entries.pop()
        if entry.is_dir(follow_symlinks=False):
            return entry.name
        os.unlink(entry.name, dir_fd=directory)
    return ""


def _make_writable(directory: int | None, path: str) -> None:
    """Give this user all rights to the directories of a tree, where the system allows it."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        os.chmod(path, stat.S_IRWXU, dir_fd=directory)
        # From the top down: each is opened after it has got the rights.
        for _, folders, _, fd in os.fwalk(path, dir_fd=directory):
            for name in folders:
                # Never through a link, which ``fwalk`` names among the directories.
                if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.chmod(name, stat.S_IRWXU, dir_fd=fd)
