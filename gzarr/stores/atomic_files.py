"""Atomic replacement of files: temporary names, leftovers of killed writers, flushing to disk.

A value is written to a temporary file beside its target, which is then renamed to the target in one step. A writer that
is killed leaves its temporary file behind. To tell such leftovers from files being written, the name identifies the
writer: ``.gzarr-temporary-MACHINE-PID-START-UNIQUE``. MACHINE stands for the current boot of this host and its process
namespace (a container has its own); START is the start time of the process, which tells it from others with the same
PID.

A leftover of this machine is removed once its process has ended. Processes of other machines and containers cannot be
checked; their leftovers are removed after a day without writes, by the file system's clock. A directory is as old as
the newest change in it: each new file changes the time of the folder that it is in.

A writer that is still running after such a day finds all of what it has made, or nothing, because a directory gets
another name before it is removed. A single value is then written again; a directory (:mod:`gzarr.stores.staging`) or a
zip archive cannot be put in place, which is an error: what was there before stays.
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

from .claims import hold_claim
from .descriptors import open_into

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TEMPORARY = ".gzarr-temporary-"
# Files of :mod:`gzarr.stores.claims`.
_CLAIM = f"{TEMPORARY}claim-"
LOCKS = ".gzarr-locks"

DIRECTORY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_WRITER = re.compile(re.escape(TEMPORARY) + r"([0-9a-f]{12})-([0-9]{1,9})-([0-9]+)-")
_UNTOUCHED_NS = 24 * 3600 * 10**9
# A directory is scanned once per process, and only up to this many entries.
_MOST_SCANNED = 100_000
_MOST_REMEMBERED = 100_000
_scanned: set[str] = set()
# Directories under temporary names that an interrupt kept from being removed. Others do not take this process for
# ended, so it removes them itself, when it next writes or erases.
_left_over: set[str] = set()

# Consecutive names that already exist: 64 random bits do not collide by chance.
_MOST_COLLISIONS = 8
# Whether files can be removed relative to a directory: not on Windows.
_REMOVES_BELOW = {os.open, os.unlink, os.rmdir} <= os.supports_dir_fd and os.scandir in os.supports_fd
# A writer that opened the directory before it was renamed can disturb its removal, about twice each.
_MOST_REMOVALS = 100
# Buffers per call: IOV_MAX is at least this on the supported systems (POSIX requires 16, Linux and macOS have 1024).
_MOST_GATHERED = 1024

_writer: tuple[int, str] = (0, "")


def is_reserved(name: str) -> bool:
    """Return whether a file or directory name is reserved for gzarr, and so never part of a key."""
    return name.startswith(TEMPORARY) or name == LOCKS


#: What file systems answer that cannot flush.
CANNOT_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
#: Why a value is not written there.
NEEDS_FLUSH = "its file system cannot flush files to the disk, which durable=True asks for"


# -- names


def temporary_prefix() -> str:
    """Return the prefix of the names of this process's temporary files; the caller appends a unique part."""
    global _writer
    pid = os.getpid()
    if _writer[0] != pid:
        _scanned.clear()  # a forked child scans for itself
        _left_over.clear()
        _writer = pid, f"{TEMPORARY}{_machine()}-{pid}-{_start_of(pid) or 0}-"
    return _writer[1]


def _machine() -> str:
    """Return a name that two processes share exactly if each can ask the system whether the other is running."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115  (not a file)
    if hasattr(os, "uname"):
        parts.append(os.uname().nodename)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _start_of(pid: int) -> str | None:
    """Return the start time of a process in the system's own unit, or None if unknown."""
    try:
        # The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


# -- leftovers


def clean_once(directory: int | None, base: str, path: str, now_ns: int) -> None:
    """Remove the leftovers of killed writers from a directory, once per process.

    Parameters
    ----------
    directory, base
        Directory: its descriptor and ``""``, or None and its path.
    path
        Path of the directory, under which it is remembered.
    now_ns
        Current time of the file system's clock in nanoseconds: the modification time of a file just made.
    """
    if _left_over:
        remove_left_over()
    if path in _scanned:
        return
    if len(_scanned) >= _MOST_REMEMBERED:
        _scanned.clear()
    _scanned.add(path)
    with contextlib.suppress(OSError), os.scandir(base if directory is None else directory) as entries:
        for entry in itertools.islice(entries, _MOST_SCANNED):
            if entry.name.startswith(TEMPORARY):
                _remove_abandoned(entry, directory, path, now_ns)


def _remove_abandoned(entry: os.DirEntry[str], directory: int | None, path: str, now_ns: int) -> None:
    with contextlib.suppress(OSError):
        if entry.name.startswith(_CLAIM):
            # One that nobody holds is removed when it is given up.
            with hold_claim(entry.path, directory):
                return
        if not _is_abandoned(entry, directory, now_ns):
            return
        if entry.is_dir(follow_symlinks=False):
            base = entry.path[: -len(entry.name)]
            erase_directory(directory, base, entry.name, path, protected=True)
        else:
            os.unlink(entry.path, dir_fd=directory)


def _is_abandoned(entry: os.DirEntry[str], directory: int | None, now_ns: int) -> bool:
    writer = _WRITER.match(entry.name)
    # On Windows, os.kill(pid, 0) is more than a check.
    if writer and os.name == "posix" and temporary_prefix().startswith(f"{TEMPORARY}{writer[1]}-"):
        return not _is_running(int(writer[2]), writer[3])
    then = now_ns - _UNTOUCHED_NS
    return all(changed < then for changed in _changes(entry, directory))


def _changes(entry: os.DirEntry[str], directory: int | None) -> Iterator[int]:
    """Yield the modification time of a file, or those of a directory and of all below it, in nanoseconds."""
    yield entry.stat(follow_symlinks=False).st_mtime_ns
    if not entry.is_dir(follow_symlinks=False):
        return
    if hasattr(os, "fwalk"):
        for *_, fd in os.fwalk(entry.path, dir_fd=directory):
            yield os.fstat(fd).st_mtime_ns
    else:
        for folder, *_ in os.walk(entry.path):
            yield os.stat(folder).st_mtime_ns  # noqa: PTH116


def _is_running(pid: int, start: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # no permission, so the process exists
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
                    _flush(fds[0])
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


def temporary_name() -> str:
    """Return a unique name for a temporary file."""
    return temporary_prefix() + secrets.token_hex(8)


def claim_name(name: str) -> str:
    """Return the name of the file that claims a name in the same directory."""
    return _CLAIM + hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


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


# -- erasing


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


# -- permissions


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


# -- flushing


def _flush(fd: int) -> None:
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


# -- for engines


# Other processes may erase an empty directory before it holds a file.
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
        if _left_over:
            remove_left_over()
        return [folder for folder in folders if folder not in _scanned and os.path.isdir(folder)]  # noqa: PTH112

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
