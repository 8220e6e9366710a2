"""Exclusive file locks, by which writers of a local hierarchy exclude each other, across threads and processes.

The system releases a lock when its holder ends for any reason, so there is nothing to clean up after a kill. A forked
child holds none of its parent's locks.

The locks of a node lie in its directory and are erased with it, even while they are held: erasing does not wait for
holders. Threads that were waiting, or ask later, take the lock of the node that now has that name. A holder of an
erased lock may therefore run beside a holder of the new one until it finishes; nobody can acquire an erased lock.

On a network file system, a lock excludes other machines only if the mount passes it to the server: NFS does unless it
is mounted with ``nolock`` or ``local_lock``, Lustre does with ``flock``. gzarr cannot detect this; without such a
mount, let each machine write its own chunks (or shards). A file system that reports no lock support is an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING

from .descriptors import close_all, open_into

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

# Locks per directory. With too few, writers of different values wait for each other more often; with too many, a write
# needs many open files.
STRIPES = 64

# In place of the names of a node's documents, in lock keys; not a key of a store. They have a lock of their own: who
# holds it may ask for those of chunks.
DOCUMENTS = "documents"

_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Relative to a directory and never through a link, for stores that refuse links.
_OPEN_BELOW = _OPEN | getattr(os, "O_NOFOLLOW", 0)

_open_locks: set[FileLock] = set()
# Descriptors of files that this process holds, or waits for, with brief_lock.
_briefly_locked: set[int] = set()
_PAUSE_S = 0.002


def stripe(name: str) -> int:
    """Return the number of the lock of ``name`` in a directory: the same in every process and release."""
    return zlib.crc32(os.fsencode(name)) % STRIPES


class FileLock:
    """An exclusive lock on a file, which is made if necessary and never removed.

    A thread that holds it may take it again through another object; the first taken must be the last released.

    Parameters
    ----------
    path
        Path of the file. Its directory must exist.
    directory
        Descriptor of an open directory to which ``path`` is relative, or None.
    """

    def __init__(self, path: str, directory: int | None = None) -> None:
        self.path = path
        self._directory = directory
        # Holds one descriptor while the file is open, else none.
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
            If the lock is already held through this object.
        OSError
            If the file cannot be opened, or its file system has no locks.
        """
        if self._fds:
            raise RuntimeError(f"the lock {self.path!r} is already held through this object")
        while True:
            # Registered before the file is opened, so that a fork at any moment finds the descriptor.
            _open_locks.add(self)
            try:
                flags = _OPEN if self._directory is None else _OPEN_BELOW
                open_into(self._fds, self.path, flags, directory=self._directory)
                (fd,) = self._fds
                status = os.fstat(fd)
                self._file = status.st_dev, status.st_ino
                if not self._is_ours():
                    _wait(fd)
                # The file may have been erased meanwhile, alone or with its directory; then nobody else uses this lock.
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
        """Return whether the locked file is still the one at its path in ``directory``, which others would lock."""
        try:
            status = os.stat(self.path, dir_fd=directory, follow_symlinks=directory is None)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._file

    def release(self) -> None:
        """Release the lock, if it is held. After an interrupt, the next call does what is left."""
        self._thread = None
        try:
            for fd in self._fds:
                with contextlib.suppress(OSError):  # closing releases it too, unless a child has a copy
                    _unlock(fd)
        finally:
            close_all(self._fds)
            _open_locks.discard(self)
            self._file = None

    def _forget(self) -> None:
        # Only close: the lock is the parent's, and unlocking here would release it there.
        for fd in self._fds:
            os.close(fd)
        self._fds, self._file, self._thread = [], None, None


def holds_documents() -> bool:
    """Return whether this thread holds the lock of some documents."""
    thread = threading.get_ident()
    return any(lock._thread == thread and os.path.basename(lock.path) == DOCUMENTS for lock in list(_open_locks))  # noqa: PTH119


def release_all(locks: Iterable[FileLock]) -> None:
    """Release some locks, the last taken first, those that are held."""
    for lock in reversed([*locks]):
        lock.release()


@contextlib.contextmanager
def brief_lock(fd: int, seconds: float) -> Iterator[bool]:
    """Lock an open file unless someone else holds it for longer; for callers who can do without.

    Parameters
    ----------
    fd
        Descriptor of the file, opened for writing by the caller alone.
    seconds
        How long to wait.

    Yields
    ------
    Whether the file is locked.

    Raises
    ------
    OSError
        If its file system has no locks.
    """
    end = time.monotonic() + seconds
    try:
        _briefly_locked.add(fd)
        while not (locked := _try(fd)) and time.monotonic() < end:
            time.sleep(_PAUSE_S)
        yield locked
    finally:
        try:
            # Whether or not it is known to be locked: an interrupt may have come right after that.
            with contextlib.suppress(OSError):
                _unlock(fd)
        finally:
            # After another interrupt, too: a forked child would close whatever has this number by then.
            _briefly_locked.discard(fd)


def _forget_all() -> None:
    for lock in list(_open_locks):
        lock._forget()
    _open_locks.clear()
    # Only close, as above: a child's copy would keep the lock after its parent was killed.
    for fd in _briefly_locked:
        with contextlib.suppress(OSError):
            os.close(fd)
    _briefly_locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


if sys.platform == "win32":
    import errno
    import msvcrt

    def _try(fd: int) -> bool:
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as exc:
            if exc.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            return False
        return True

    def _wait(fd: int) -> None:
        # msvcrt's own waiting gives up after ten seconds, so poll.
        pause_s = 0.001
        while not _try(fd):
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    # flock rather than lockf: lockf's locks belong to the process, so threads share them, and closing any descriptor of
    # the file releases them all.
    def _try(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)
