"""Atomic replacement of files.

A value is written to a temporary file beside its target, which is then renamed to the target in one step. A writer that
is killed leaves its temporary file behind (:mod:`gzarr.stores.leftovers`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .descriptors import open_into
from .directories import flush, make_directories, sync_directory
from .leftovers import clean_once, uncleaned
from .removal import remove_left_over
from .temporary_names import TEMPORARY, temporary_name, temporary_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Consecutive names that already exist: 64 random bits do not collide by chance.
_MOST_COLLISIONS = 8
# Buffers per call: IOV_MAX is at least this on the supported systems (POSIX requires 16, Linux and macOS have 1024).
_MOST_GATHERED = 1024
# Other processes may erase an empty directory before it holds a file.
_MOST_ATTEMPTS = 20


def replace_file(
    directory: int | None,
    base: str,
    name: str,
    parts: Sequence[memoryview],
    *,
    durable: bool,
    path: str,
    exclusive: bool = False,
    mode: int = 0o666,
) -> None:
    """Replace the content of a file by ``parts`` in one step; a failure leaves the file unchanged and no leftovers.

    (If flushing the name fails, the file has the new content, but a loss of power may undo that.)

    Parameters
    ----------
    directory, base
        Directory: its descriptor and ``""``, or None and its path with a trailing slash.
    name
        Name of the file in it.
    parts
        Flat views of bytes, to be concatenated.
    durable
        Flush the content to disk before the rename, and the name after it.
    path
        Path of the directory, under which it is remembered.
    exclusive
        Raise ``FileExistsError`` if the file exists; of several concurrent calls, exactly one succeeds.
    mode
        Permissions of the file, of which the umask is taken away.
    """
    for _ in range(_MOST_COLLISIONS):
        # Recorded before the file is made: an interrupt may come right afterwards.
        temporary = base + temporary_name()
        try:
            fds: list[int] = []
            try:
                try:
                    open_into(fds, temporary, _CREATE, mode, directory)
                except FileExistsError:
                    temporary = ""
                    continue
                clean_once(directory, base, path, os.fstat(fds[0]).st_mtime_ns)
                write_all(fds[0], list(parts))
                if durable:
                    flush(fds[0])
            finally:
                for fd in fds:
                    os.close(fd)
            if not exclusive or not _link(directory, temporary, base + name):
                os.replace(temporary, base + name, src_dir_fd=directory, dst_dir_fd=directory)
            if durable:
                sync_directory(directory, base)
            return
        except BaseException:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
            raise
    raise FileExistsError(errno.EEXIST, f"every randomly chosen name {TEMPORARY}... already exists")


def _link(directory: int | None, temporary: str, target: str) -> bool:
    """Give a file a second, unused name; return False if the file system has no hard links."""
    try:
        os.link(temporary, target, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        return False
    os.unlink(temporary, dir_fd=directory)
    return True


def write_all(fd: int, parts: list[memoryview]) -> None:
    """Write all of ``parts``, even if the system accepts only some bytes at a time."""
    at = 0
    while at < len(parts):
        if len(parts) - at > 1 and hasattr(os, "writev"):
            written = os.writev(fd, parts[at : at + _MOST_GATHERED])
        else:
            written = os.write(fd, parts[at])
        if not written and len(parts[at]):
            raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
        while at < len(parts) and written >= len(parts[at]):
            written -= len(parts[at])
            at += 1
        if written:
            parts[at] = parts[at][written:]


def give_access(path: Path, old: os.stat_result, mode: int) -> int:
    """Give a new file or directory the group and permissions of the one that it will replace.

    Where this user may not give it that group, both its own group and all others get the rights that both had before.
    File systems that keep no permissions refuse them, and give all files the same; that is no failure unless others
    would then have more rights than before.

    Parameters
    ----------
    path
        Path of the new one.
    old
        Status of the other one.
    mode
        Permissions to give.

    Returns
    -------
    int
        Permissions that were given: fewer if the group could not be.
    """
    if path.stat().st_gid != old.st_gid:
        try:
            os.chown(path, -1, old.st_gid)
        except OSError:
            both = (mode >> 3) & mode & stat.S_IRWXO
            mode = (mode & ~(stat.S_ISGID | stat.S_IRWXG | stat.S_IRWXO)) | both << 3 | both
    try:
        path.chmod(mode)
    except OSError:
        if path.stat().st_mode & ~mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise
    return mode


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """See :class:`gzarr.stores.base.FileWriter`."""

    root: bytes
    durable: bool

    def temporary_prefix(self) -> str:
        """Return the beginning of temporary names; the caller makes the rest unique."""
        return temporary_prefix()

    def make_folder(self, folder: str) -> None:
        """Make a folder and its missing parents; if durable, flush their names."""
        for attempt in range(_MOST_ATTEMPTS):
            try:
                make_directories(folder, durable=self.durable)
                return
            except FileNotFoundError:
                # Another process has just erased one of them.
                if attempt == _MOST_ATTEMPTS - 1:
                    raise

    def flush_folder(self, folder: str) -> None:
        """Flush the names in a folder to the disk."""
        # If the folder is gone, another process has erased the written files.
        with contextlib.suppress(FileNotFoundError):
            sync_directory(None, folder)

    def uncleaned_folders(self, folders: Sequence[str]) -> list[str]:
        """Return those folders that exist, and that this process has not cleaned."""
        remove_left_over()
        return [folder for folder in uncleaned(folders) if os.path.isdir(folder)]  # noqa: PTH112

    def clean_folders(self, folders: Sequence[str], written: str | None) -> None:
        """Remove the leftovers of killed writers; the time of ``written``, a new file, is the current time."""
        if not folders:
            return
        now_ns = 0
        if written is not None:
            try:
                now_ns = os.stat(written).st_mtime_ns  # noqa: PTH116
            except OSError:
                # Erased meanwhile by another process: without a time, only leftovers of ended processes are removed.
                now_ns = 0
        for folder in folders:
            clean_once(None, folder, folder, now_ns)
