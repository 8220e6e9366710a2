"""Files that tell other processes that a node is being made, beside the directory that it will be.

A claim is a file under a reserved name, locked by whoever makes the node, and removed at the end. What a killed process
leaves is free: the next one that wants the same place takes it, and any writer of the directory removes it. (On network
file systems, see :mod:`gzarr.stores.file_locks`.)
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from .descriptors import close_all, open_into
from .file_locks import brief_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN: Final = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)


@contextlib.contextmanager
def hold_claim(path: str, directory: int | None = None) -> Iterator[bool]:
    """Hold a claim for the duration of a ``with`` block, unless somebody else does.

    Parameters
    ----------
    path
        Path of its file.
    directory
        Descriptor of an open directory to which ``path`` is relative, or None.

    Yields
    ------
    Whether it is held.

    Raises
    ------
    OSError
        If the file cannot be made, or its file system has no locks.
    """
    fds: list[int] = []
    process = os.getpid()
    has_locks = False
    try:
        while True:
            open_into(fds, path, _OPEN, directory=directory)
            with brief_lock(fds[0], 0) as is_free:
                has_locks = True
                # Who has just given it up has removed the file.
                if not is_free or _is_in_place(fds[0], path, directory):
                    try:
                        yield is_free
                    finally:
                        # A forked child has no claim, even if it leaves the block.
                        if is_free and os.getpid() == process:
                            with contextlib.suppress(OSError):
                                os.unlink(path, dir_fd=directory)
                    return
            close_all(fds)
    except OSError:
        if fds and not has_locks:
            # There are no locks, so nobody would ever find it free.
            with contextlib.suppress(OSError):
                os.unlink(path, dir_fd=directory)
        raise
    finally:
        try:
            if os.getpid() != process:
                # They were closed by the fork (:func:`gzarr.stores.file_locks.brief_lock`).
                fds.clear()
        finally:
            # Not a function of Python, at whose beginning an interrupt may come: nobody else could give the claim up.
            for fd in fds:
                os.closerange(fd, fd + 1)


def _is_in_place(fd: int, path: str, directory: int | None) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return False
