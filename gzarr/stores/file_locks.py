"""Exclusive locks on files, with which writers of one local hierarchy take turns, in threads and between processes.

The system gives up a lock when its holder ends, however it ends; nothing has to be cleaned after a kill. A child of a
fork holds none of its parent's locks.

The locks of a node lie in its directory and are erased with it, held ones too: erasing does not wait for holders. Who
waits then, or asks later, takes the lock of what has that name now. So one holder of what was erased may still be
inside beside one of what was made in its place, until it leaves; nobody enters by a lock that is erased.

On a network file system a lock holds between machines only if the mount passes it to the server: NFS does unless it is
mounted with ``nolock`` or ``local_lock``, Lustre with ``flock``. gzarr cannot see from here which is the case; without
such a mount, let each machine write chunks (or shards) of its own. Where the file system says that it has no locks,
that is an error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

# Locks of one directory. Writers of different values wait for each other where these fall on one of them, so many are
# wanted; each that a write needs is an open file, so not too many.
STRIPES = 64

_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Relative to a directory, never through a link: that is how a store that refuses links asks.
_OPEN_BELOW = _OPEN | getattr(os, "O_NOFOLLOW", 0)

_open_locks: set[FileLock] = set()


def stripe(name: str) -> int:
    """Return which lock of a directory is that of ``name``: the same in every process and release."""
    return zlib.crc32(os.fsencode(name)) % STRIPES


class FileLock:
    """An exclusive lock on a file, which is made if it is not there and stays.

    A thread that holds it may take it again, through another object; the first to be taken is the last to be released.

    Parameters
    ----------
    path
        Of the file. Its directory must exist.
    directory
        Descriptor of an open directory that ``path`` is relative to, or None.
    """

    def __init__(self, path: str, directory: int | None = None) -> None:
        self.path = path
        self._directory = directory
        flags = _OPEN if directory is None else _OPEN_BELOW
        self._open = functools.partial(os.open, flags=flags, mode=0o666, dir_fd=directory)
        # One while it is open.
        self._fds: list[int] = []
        self._file: tuple[int, int] | None = None
        self._thread: int | None = None

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Wait until nobody else holds the lock.

        Raises
        ------
        RuntimeError
            If it is held through this object already.
        OSError
            If the file cannot be opened, or its file system has no locks.
        """
        if self._fds:
            raise RuntimeError(f"the lock {self.path!r} is already held through this object")
        while True:
            # Known before it is open, so that a fork at any moment finds the descriptor.
            _open_locks.add(self)
            try:
                # In one call: an interrupt while the file is opened comes when its descriptor is in the list.
                self._fds.extend(map(self._open, (self.path,)))
                (fd,) = self._fds
                status = os.fstat(fd)
                self._file = status.st_dev, status.st_ino
                if not self._is_ours():
                    _wait(fd)
                # It may have been erased meanwhile, itself or with its directory, and then nobody else looks at it.
                if self.is_in_place(self._directory):
                    self._thread = threading.get_ident()
                    return
            except BaseException:
                self.release()
                raise
            self.release()

    def _is_ours(self) -> bool:
        """Return whether this thread holds the lock through another object."""
        thread = threading.get_ident()
        return any(lock._thread == thread and lock._file == self._file for lock in list(_open_locks))

    def is_in_place(self, directory: int | None) -> bool:
        """Return whether the file that is locked is the one that others find: of this path, in the directory."""
        try:
            status = os.stat(self.path, dir_fd=directory, follow_symlinks=directory is None)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def release(self) -> None:
        """Let the next one have the lock. Does nothing where it is not held."""
        fds, self._fds, self._file, self._thread = self._fds, [], None, None
        _open_locks.discard(self)
        for fd in fds:
            try:
                with contextlib.suppress(OSError):  # closing gives it up as well, unless a child has a copy
                    _unlock(fd)
            finally:
                os.close(fd)

    def _forget(self) -> None:
        # Closing alone: the lock is the parent's, and unlocking here would take it from the parent.
        for fd in self._fds:
            os.close(fd)
        self._fds, self._file, self._thread = [], None, None


def _forget_all() -> None:
    for lock in list(_open_locks):
        lock._forget()
    _open_locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


if sys.platform == "win32":
    import errno
    import msvcrt
    import time

    def _wait(fd: int) -> None:
        # What waits in this library gives up after ten seconds, so ask again and again.
        pause_s = 0.001
        while True:
            os.lseek(fd, 0, os.SEEK_SET)
            try:
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
                return
            except OSError as exc:
                if exc.errno not in (errno.EACCES, errno.EDEADLK):
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    # flock and not lockf: the latter's locks are the process's, so that threads share them, and closing any descriptor
    # of the file gives them all up.
    def _wait(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)
