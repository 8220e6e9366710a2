"""A directory: each key is a file, each segment but the last a directory.

Whether symbolic links are followed is decided in one place (:meth:`LocalStore._at`): with ``follow_symlinks=True`` an
operation names a whole path and the system resolves it; with ``False`` every segment is opened relative to the
directory before it without following, so that no link can be slipped in between a check and a use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import ArgumentError, ReadOnlyError, StoreError, ValueSizeError
from .byte_ranges import check_range, resolve_range, splice
from .keys import split_key, split_prefix

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from .base import ByteRange, Listing

    # Directories on the way: prefix, identity, names left.
    _Levels = list[tuple[str, tuple[int, int], list[str]]]

# Only these say that there is no such key. Everything else is a failure.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})

# Without O_NONBLOCK, opening a named pipe that someone put into a store would wait for ever.
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CAN_REFUSE_LINKS = bool(_NOFOLLOW) and os.open in os.supports_dir_fd and os.scandir in os.supports_fd

_TEMPORARY = ".gzarr-temporary-"


class LocalStore:
    """Values as files under a directory.

    Parameters
    ----------
    root
        The directory. It need not exist; the first ``set`` makes it.
    read_only
        Refuse every change.
    follow_symlinks
        If False, a symbolic link anywhere below ``root`` is an error (``root`` itself may be one).

    Raises
    ------
    ArgumentError
        If ``root`` is not a path, or ``follow_symlinks=False`` cannot be kept on this platform.

    Notes
    -----
    ``set`` writes a temporary file beside the target and renames it: readers see the old value or the new one, whole,
    and a failed write leaves the old value. The data is not flushed to the disk (``fsync``).
    """

    def __init__(self, root: str | os.PathLike[str], *, read_only: bool = False, follow_symlinks: bool = True) -> None:
        try:
            path = os.fspath(root)
        except TypeError as exc:
            raise ArgumentError(f"LocalStore needs a path, not {type(root).__name__}") from exc
        if not path or type(path) is not str or "\0" in path:
            raise ArgumentError(f"LocalStore needs a non-empty path without NUL, not {path!r}")
        if not follow_symlinks and not _CAN_REFUSE_LINKS:
            raise ArgumentError(
                "follow_symlinks=False cannot be kept on this platform: it cannot open relative to a directory"
            )
        self.root = Path(os.path.abspath(path))  # noqa: PTH100  (Path.absolute() keeps "..")
        self.read_only = read_only
        self.follow_symlinks = follow_symlinks
        self._root = str(self.root)

    def __repr__(self) -> str:
        return f"<gzarr.LocalStore {self._root!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalStore):
            return NotImplemented
        return (self._root, self.read_only, self.follow_symlinks) == (
            other._root,
            other.read_only,
            other.follow_symlinks,
        )

    def __hash__(self) -> int:
        return hash((self._root, self.read_only, self.follow_symlinks))

    def file_root(self) -> bytes | None:
        """Return the root directory, absolute, or None if links are refused (plain paths would follow them)."""
        return os.fsencode(self._root) if self.follow_symlinks else None

    # -- paths

    def _fail(self, what: str, key: str, exc: BaseException) -> NoReturn:
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        error = StoreError(f"{self!r}: cannot {what} {key!r}: {cause}", key=key)
        if isinstance(exc, OSError):
            error.errno = exc.errno
        raise error from exc

    def _refuse(self, key: str, name: str) -> NoReturn:
        raise StoreError(
            f"{self!r}: {name!r} on the way to {key!r} is a symbolic link, and the store was opened with "
            "follow_symlinks=False",
            key=key,
        )

    def _open_below(self, directory: int, name: str, flags: int, key: str) -> int:
        """Open ``name`` in ``directory`` without following a link."""
        try:
            return os.open(name, flags | _NOFOLLOW, dir_fd=directory)
        except OSError as exc:
            # Systems answer ELOOP, ENOTDIR or EMLINK for a link. It was not followed; this look is for the message.
            if exc.errno != errno.ENOENT and _is_link(name, directory):
                self._refuse(key, name)
            raise

    @contextlib.contextmanager
    def _at(self, segments: Sequence[str], key: str, *, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Give the directory of the last segment: a descriptor and ``""``, or None and the path with a slash."""
        if self.follow_symlinks:
            directory = "/".join((self._root, *segments[:-1]))
            if create:
                os.makedirs(directory, exist_ok=True)  # noqa: PTH103
            yield None, directory + "/"
            return
        if create:
            os.makedirs(self._root, exist_ok=True)  # noqa: PTH103
        fd = os.open(self._root, _DIRECTORY)
        try:
            for segment in segments[:-1]:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(segment, dir_fd=fd)
                below = self._open_below(fd, segment, _DIRECTORY, key)
                os.close(fd)
                fd = below
            yield fd, ""
        finally:
            os.close(fd)

    # -- reading

    def _open(self, key: str) -> tuple[int, int] | None:
        """Return descriptor and size of a value, or None if there is no such key."""
        segments = split_key(key)
        self._check_name(segments, key)
        try:
            if self.follow_symlinks:
                fd = os.open(f"{self._root}/{key}", _READ)
            else:
                with self._at(segments, key) as (directory, _):
                    assert directory is not None
                    fd = self._open_below(directory, segments[-1], _READ, key)
        except OSError as exc:
            if isinstance(exc, StoreError):
                raise
            if exc.errno in _ABSENT:
                return None
            self._fail("read", key, exc)
        try:
            status = os.fstat(fd)
        except OSError as exc:
            os.close(fd)
            self._fail("read", key, exc)
        if stat.S_ISREG(status.st_mode):
            return fd, status.st_size
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            return None
        raise StoreError(f"{self!r}: {key!r} is neither a file nor a directory", key=key)

    def _read(self, fd: int, start: int, nbytes: int, key: str) -> bytes:
        try:
            if start:
                os.lseek(fd, start, os.SEEK_SET)
            data = os.read(fd, nbytes)
            if len(data) < nbytes:
                parts = [data]
                while parts[-1] and (left := nbytes - sum(map(len, parts))):
                    parts.append(os.read(fd, left))
                data = b"".join(parts)
        except (OSError, MemoryError, OverflowError) as exc:
            self._fail(f"read {nbytes} bytes of", key, exc)
        if len(data) != nbytes:
            raise StoreError(f"{self!r}: short read of {key!r}: {len(data)} of {nbytes} bytes", key=key)
        return data

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if there is no such file.

        Raises
        ------
        ArgumentError
            If ``key`` would leave the root.
        StoreError
            If the file cannot be read for any other reason than not being there.
        """
        return self._get(key, None)

    def _get(self, key: str, max_nbytes: int | None) -> bytes | None:
        opened = self._open(key)
        if opened is None:
            return None
        fd, size = opened
        try:
            if max_nbytes is not None and size > max_nbytes:
                raise ValueSizeError(f"{self!r}: {key!r} has {size} bytes; at most {max_nbytes} are read", key=key)
            return self._read(fd, 0, size, key)
        finally:
            os.close(fd)

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        Raises
        ------
        StoreError
            If a range does not lie within the value, or a file cannot be read.
        """
        values: list[bytes | None] = []
        for key, byte_range in key_ranges:
            check_range(byte_range)
            opened = self._open(key)
            if opened is None:
                values.append(None)
                continue
            fd, size = opened
            try:
                start, nbytes = resolve_range(byte_range, size, self, key)
                values.append(self._read(fd, start, nbytes, key))
            finally:
                os.close(fd)
        return values

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return [self._get(key, max_nbytes) for key in keys]

    def version(self, key: str) -> Hashable | None:
        """Return what tells this file from any that replaces it (number, size, times); None if there is none."""
        segments = split_key(key)
        try:
            status = self._stat(segments, key)
        except OSError as exc:
            if isinstance(exc, StoreError):
                raise
            if exc.errno in _ABSENT:
                return None
            self._fail("look at", key, exc)
        if not stat.S_ISREG(status.st_mode):
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _stat(self, segments: Sequence[str], key: str) -> os.stat_result:
        with self._at(segments, key) as (directory, base):
            return os.stat(base + segments[-1], dir_fd=directory, follow_symlinks=self.follow_symlinks)

    # -- listing

    def _scan(self, segments: Sequence[str], prefix: str) -> tuple[Listing, tuple[int, int]]:
        """Return names of files and of directories in a directory, and what identifies the directory."""
        try:
            with contextlib.ExitStack() as stack:
                if self.follow_symlinks:
                    where: str | int = "/".join((self._root, *segments))
                    status = os.stat(where)  # noqa: PTH116
                else:
                    fd, _ = stack.enter_context(self._at([*segments, ""], prefix))
                    assert fd is not None
                    where = fd
                    status = os.fstat(fd)
                files, directories = [], []
                for entry in stack.enter_context(os.scandir(where)):
                    if entry.name.startswith(_TEMPORARY):
                        continue
                    if not self.follow_symlinks and entry.is_symlink():
                        self._refuse(prefix + entry.name, entry.name)
                    if entry.is_dir(follow_symlinks=self.follow_symlinks):
                        directories.append(entry.name)
                    elif entry.is_file(follow_symlinks=self.follow_symlinks):
                        files.append(entry.name)
        except OSError as exc:
            if isinstance(exc, StoreError):
                raise
            if exc.errno in _ABSENT:
                return ([], []), (0, 0)
            self._fail("list", prefix, exc)
        return (files, directories), (status.st_dev, status.st_ino)

    def list(self) -> Iterator[str]:
        """Yield all keys, sorted; memory is bounded by the largest directories on one path."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, sorted; memory is bounded by the largest directories on one path.

        Raises
        ------
        StoreError
            If a directory cannot be listed, or a symbolic link leads back to a directory above it.
        """
        return self._walk(split_prefix(prefix), prefix)

    def _walk(self, segments: Sequence[str], prefix: str) -> Iterator[str]:
        # One level a directory on the way: its prefix, its identity and what is left of it, last first. A directory
        # sorts with its slash, which makes the keys of the whole walk sorted.
        levels: _Levels = []
        entering: str | None = prefix
        while True:
            if entering is not None:
                names = entering[:-1].split("/") if entering else []
                (files, directories), identity = self._scan(names, entering)
                if (files or directories) and any(identity == above for _, above, _ in levels):
                    raise StoreError(f"{self!r}: {entering!r} is a symbolic link to a directory above it", key=entering)
                levels.append((entering, identity, sorted([*files, *(d + "/" for d in directories)], reverse=True)))
                entering = None
            here, _, left = levels[-1]
            if not left:
                levels.pop()
                if not levels:
                    return
            elif (name := left.pop()).endswith("/"):
                entering = here + name
            else:
                yield here + name

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, both sorted and in full from the root.

        An empty directory counts as a prefix.
        """
        (files, directories), _ = self._scan(split_prefix(prefix), prefix)
        return sorted(prefix + name for name in files), sorted(f"{prefix}{name}/" for name in directories)

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, sorted, each with the size of its file in bytes."""
        for key in self.list_prefix(prefix):
            try:
                size = self._stat(key.split("/"), key).st_size
            except OSError as exc:
                if isinstance(exc, StoreError):
                    raise
                if exc.errno in _ABSENT:  # erased since it was listed
                    continue
                self._fail("read the size of", key, exc)
            yield key, size

    # -- writing

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} was opened read-only; nothing was changed")

    def _check_name(self, segments: Sequence[str], key: str) -> None:
        if any(segment.startswith(_TEMPORARY) for segment in segments):
            raise ArgumentError(f"store key {key!r}: names starting with {_TEMPORARY!r} are kept for unfinished writes")

    def set(self, key: str, value: bytes) -> None:
        """Store ``value`` (bytes-like) under ``key``: readers see the old value or the new one, whole.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the file cannot be written; the old value is then still there.
        """
        self._check_writable()
        segments = split_key(key)
        self._check_name(segments, key)
        data = memoryview(value).cast("B")
        # Another process may erase an emptied directory between its making and the making of the file in it.
        for attempts_left in (4, 3, 2, 1, 0):
            try:
                with self._at(segments, key, create=True) as (directory, base):
                    self._replace(directory, base, segments[-1], data, key)
                return
            except OSError as exc:
                if isinstance(exc, StoreError):
                    raise
                if exc.errno != errno.ENOENT or not attempts_left:
                    self._fail("write", key, exc)

    def _replace(self, directory: int | None, base: str, name: str, data: memoryview, key: str) -> None:
        if not self.follow_symlinks and _is_link(name, directory):
            self._refuse(key, name)
        temporary = f"{base}{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(temporary, _CREATE, 0o666, dir_fd=directory)
        try:
            try:
                written = 0
                while written < len(data):
                    written += os.write(fd, data[written:])
            finally:
                os.close(fd)
            os.replace(temporary, base + name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). A gap behind the old end is filled with zero bytes.

        Each value is read, changed and replaced whole; two concurrent partial writes of one key can lose one of them.
        """
        self._check_writable()
        for key, start, part in key_start_values:
            self.set(key, splice(self.get(key), start, part))

    def erase(self, key: str) -> None:
        """Erase ``key``, and the directories that this leaves empty; silent where there is no such key."""
        self._check_writable()
        segments = split_key(key)
        self._check_name(segments, key)
        try:
            with self._at(segments, key) as (directory, base):
                if not self.follow_symlinks and _is_link(segments[-1], directory):
                    self._refuse(key, segments[-1])
                try:
                    os.unlink(base + segments[-1], dir_fd=directory)
                except PermissionError as exc:  # what some systems say where others say EISDIR
                    if _is_directory(base + segments[-1], directory):
                        return
                    raise exc
        except OSError as exc:
            if isinstance(exc, StoreError):
                raise
            if exc.errno in _ABSENT:
                return
            self._fail("erase", key, exc)
        self._drop_empty(segments[:-1], key)

    def _drop_empty(self, segments: Sequence[str], key: str) -> None:
        for depth in range(len(segments), 0, -1):
            try:
                with self._at(segments[:depth], key) as (directory, base):
                    os.rmdir(base + segments[depth - 1], dir_fd=directory)
            except OSError:  # not empty, or no longer ours to erase: either way the key is gone
                return

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        for key in keys:
            self.erase(key)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``. Links in it are erased, never what they lead to."""
        self._check_writable()
        segments = split_prefix(prefix)
        if not segments:
            keys, prefixes = self.list_dir("")
            self.erase_values(keys)
            for below in prefixes:
                self.erase_prefix(below)
            return
        try:
            with self._at(segments, prefix) as (directory, base):
                name = base + segments[-1]
                if _is_link(name, directory):
                    if not self.follow_symlinks:
                        self._refuse(prefix, segments[-1])
                    if os.path.isdir(name):  # noqa: PTH112  (else the prefix names a file, and has no keys)
                        os.unlink(name, dir_fd=directory)
                else:
                    shutil.rmtree(name, dir_fd=directory)
        except OSError as exc:
            if isinstance(exc, StoreError):
                raise
            if exc.errno in _ABSENT:
                return
            self._fail("erase", prefix, exc)
        self._drop_empty(segments[:-1], prefix)


def _is_link(name: str, directory: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_directory(name: str, directory: int | None) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
