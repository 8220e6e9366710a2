"""Files that are replaced whole: temporary names, what killed writers left behind, flushing to the disk.

A value is written to a temporary file beside its target, which then takes the target's name in one step. A writer that
is killed leaves its temporary file. So that the next one can tell such a leftover from a file that is being written,
the name says who writes it: ``.gzarr-temporary-MACHINE-PID-START-UNIQUE``. MACHINE stands for this boot of this host
and its process namespace (a container has its own); START is when the process began, so that a number used again
misleads nobody.

A leftover of this machine goes when its process has ended. Of another machine nothing is known; its leftovers go when
nobody has written to them for an hour, by the file system's clock. Should one be removed that is still wanted (a writer
suspended for an hour), then its renaming fails, and the value is written again: nothing is lost either way.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import re
import secrets
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TEMPORARY = ".gzarr-temporary-"
LOCKS = ".gzarr-locks"

DIRECTORY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_WRITER = re.compile(re.escape(TEMPORARY) + r"([0-9a-f]{12})-([0-9]{1,9})-([0-9]+)-")
_UNTOUCHED_NS = 3600 * 10**9
# A directory is scanned once a process, and not to its end where it is this large.
_MOST_SCANNED = 100_000
_MOST_REMEMBERED = 100_000
_scanned: set[str] = set()

# Names that another file has already, in a row: 64 random bits do not collide by chance.
_MOST_COLLISIONS = 8
# Each writer that had opened a directory before it was renamed can disturb its removal, about twice.
_MOST_REMOVALS = 100
# What one call may gather: IOV_MAX of every system is at least this (POSIX says 16, Linux and macOS 1024).
_MOST_GATHERED = 1024

_writer: tuple[int, str] = (0, "")


def is_reserved(name: str) -> bool:
    """Return whether a file or directory of this name is gzarr's own, and so no part of any key."""
    return name.startswith(TEMPORARY) or name == LOCKS


# -- names


def temporary_prefix() -> str:
    """Return the beginning of the names of this process's temporary files; the caller makes the rest unique."""
    global _writer
    pid = os.getpid()
    if _writer[0] != pid:
        _scanned.clear()  # a child of a fork looks for itself
        _writer = pid, f"{TEMPORARY}{_machine()}-{pid}-{_start_of(pid) or 0}-"
    return _writer[1]


def _machine() -> str:
    """Return what two processes have in common just where one can ask the system about the other."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115  (it names no file)
    if hasattr(os, "uname"):
        parts.append(os.uname().nodename)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _start_of(pid: int) -> str | None:
    """Return when a process began, in the system's own unit, or None if it does not say."""
    try:
        # The second field is the program's name in brackets, and may have spaces and brackets of its own.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


# -- leftovers


def clean_once(directory: int | None, base: str, path: str, now_ns: int) -> None:
    """Remove what killed writers left in a directory, the first time that this process writes into it.

    Parameters
    ----------
    directory, base
        The directory: its descriptor and ``""``, or None and its path.
    path
        Its path, by which it is remembered.
    now_ns
        The time by the clock of the file system: when a file made just now was changed.
    """
    if path in _scanned:
        return
    if len(_scanned) >= _MOST_REMEMBERED:
        _scanned.clear()
    _scanned.add(path)
    with contextlib.suppress(OSError), os.scandir(base if directory is None else directory) as entries:
        for entry in itertools.islice(entries, _MOST_SCANNED):
            if entry.name.startswith(TEMPORARY):
                _remove_abandoned(entry, directory, now_ns)


def _remove_abandoned(entry: os.DirEntry[str], directory: int | None, now_ns: int) -> None:
    with contextlib.suppress(OSError):
        status = entry.stat(follow_symlinks=False)
        if not _is_abandoned(entry.name, now_ns - status.st_mtime_ns):
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(entry.path, ignore_errors=True, dir_fd=directory)
        else:
            os.unlink(entry.path, dir_fd=directory)


def _is_abandoned(name: str, untouched_ns: int) -> bool:
    writer = _WRITER.match(name)
    # On Windows os.kill(pid, 0) is no question.
    if writer and os.name == "posix" and temporary_prefix().startswith(f"{TEMPORARY}{writer[1]}-"):
        return not _is_running(int(writer[2]), writer[3])
    return untouched_ns > _UNTOUCHED_NS


def _is_running(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not ours to ask about, so it is there
        pass
    return start == "0" or (_start_of(pid) or start) == start


# -- writing


def replace_file(
    directory: int | None,
    base: str,
    name: str,
    parts: Sequence[memoryview],
    *,
    durable: bool,
    path: str,
    exclusive: bool = False,
) -> None:
    """Make ``parts`` the content of a file in one step; on failure the file is as before, and nothing is left behind.

    (If it is the flushing of the name that fails, then the file has the new content, but for how long is not known.)

    Parameters
    ----------
    directory, base
        The directory: its descriptor and ``""``, or None and its path with a slash.
    name
        Of the file in it.
    parts
        Flat views of bytes, one after the other.
    durable
        Flush the content to the disk before it takes the name, and then the name.
    path
        Of the directory, by which it is remembered.
    exclusive
        Raise ``FileExistsError`` if there is such a file; of several that make it, one succeeds.
    """
    for _ in range(_MOST_COLLISIONS):
        # Known before the file is there: an interrupt may come as soon as it is.
        temporary = base + temporary_name()
        try:
            try:
                fd = os.open(temporary, _CREATE, 0o666, dir_fd=directory)
            except FileExistsError:
                temporary = ""
                continue
            try:
                clean_once(directory, base, path, os.fstat(fd).st_mtime_ns)
                _write(fd, list(parts))
                if durable:
                    _flush(fd)
            finally:
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
    raise FileExistsError(errno.EEXIST, f"files named {TEMPORARY}... keep appearing under the names chosen at random")


def _link(directory: int | None, temporary: str, target: str) -> bool:
    """Give a file another name, which no file has; return False where the file system gives only one."""
    try:
        os.link(temporary, target, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        return False
    os.unlink(temporary, dir_fd=directory)
    return True


def temporary_name() -> str:
    """Return a name that no file has."""
    return temporary_prefix() + secrets.token_hex(8)


def _write(fd: int, parts: list[memoryview]) -> None:
    """Write all of ``parts``, however little the system takes at a time."""
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


# -- erasing


def remove_tree(directory: int | None, path: str) -> None:
    """Remove a directory and all below it, also while others write into it or remove parts of it.

    Parameters
    ----------
    directory, path
        The directory: a descriptor and its name in it, or None and its path.
    """
    for attempt in range(_MOST_REMOVALS):
        try:
            os.stat(path, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return
        try:
            shutil.rmtree(path, dir_fd=directory)
            return
        except OSError as exc:
            # Something in it went before it was its turn, or came after.
            if exc.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) or attempt == _MOST_REMOVALS - 1:
                raise


# -- flushing


def _flush(fd: int) -> None:
    if sys.platform == "darwin":
        # There fsync leaves the data in the disk's own cache. Not every file system knows the request.
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_directory(directory: int | None, base: str) -> None:
    """Flush the names in a directory: its descriptor and ``""``, or None and its path."""
    if os.name == "nt":  # directories cannot be opened there; NTFS keeps a journal of names
        return
    fd = os.open(base, DIRECTORY) if directory is None else directory
    try:
        os.fsync(fd)
    except OSError as exc:
        # What file systems say that have no such thing for directories.
        if exc.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        if directory is None:
            os.close(fd)


def make_directories(path: str, *, durable: bool) -> None:
    """Make a directory and those above it that are missing, flushing the name of each that was made if ``durable``.

    ``FileNotFoundError`` says that somebody else erased one of them just then: try again.
    """
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
        make_directories(above, durable=durable)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)  # noqa: PTH102
    if durable:
        sync_directory(None, above)


def _is_there(path: str) -> bool:
    """Return whether a name that was taken just now is a directory's; raise ``FileNotFoundError`` if it is gone."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114  (a link to nothing stays in the way)
            return False
        raise


def make_directory_in(directory: int, name: str, *, durable: bool) -> None:
    """Make ``name`` in an open directory unless it is there, flushing its name if ``durable``."""
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
    if durable:
        sync_directory(directory, "")


# -- for engines


# Others may erase an emptied directory before there is a file in it.
_MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """See :class:`gzarr.stores.base.FileWriter`."""

    root: bytes
    durable: bool

    def temporary_prefix(self) -> str:
        """Return the beginning of temporary names; the caller makes the rest unique."""
        return temporary_prefix()

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it, durably if that is asked for."""
        for attempt in range(_MOST_ATTEMPTS):
            try:
                make_directories(folder, durable=self.durable)
                return
            except FileNotFoundError:
                # Somebody else has emptied one of them just then.
                if attempt == _MOST_ATTEMPTS - 1:
                    raise

    def flush_folder(self, folder: str) -> None:
        """Have the names in a folder reach the disk."""
        # Where it is not there any more, somebody else has erased what was written.
        with contextlib.suppress(FileNotFoundError):
            sync_directory(None, folder)

    def clean_folders(self, folders: Sequence[str], written: str | None) -> None:
        """Remove what killed writers left; ``written`` was written just now, by the clock of its file system."""
        now_ns = 0
        if written is not None:
            try:
                now_ns = os.stat(written).st_mtime_ns  # noqa: PTH116
            except OSError:
                # Erased meanwhile by somebody else: without the time, only what is known to be abandoned goes.
                now_ns = 0
        for folder in folders:
            clean_once(None, folder, folder, now_ns)
