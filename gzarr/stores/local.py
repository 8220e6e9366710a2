"""Local directories as stores: a key is a file, ``/`` separates directories.

:mod:`gzarr.stores.file_tree` finds the files and decides about symbolic links; :mod:`gzarr.stores.atomic_files`
replaces values in one step and removes the temporary files of killed writers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import random
import stat
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import ArgumentError, ReadOnlyError, StoreError, ValueSizeError, with_errno
from ..flags import check_flags
from ..reasons import pass_on
from .atomic_files import FolderWriter, replace_file
from .buffers import as_view
from .byte_ranges import check_range, resolve_range, splice
from .directories import sync_directory
from .erasing_checks import can_be_moved, check_erasable, check_removable
from .file_locks import DOCUMENTS, STRIPES, FileLock, release_all, stripe
from .file_tree import CAN_REFUSE_LINKS, FileTree, dangling_link, identity, is_directory, is_link
from .local_paths import absolute_path, names_of_key, names_of_prefix
from .removal import erase_directory
from .staging import FolderStage, can_be_staged
from .temporary_names import LOCKS, TEMPORARY, is_reserved

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from .base import ByteRange, Listing

    # Directories from the root down to the current one: prefix, names left.
    _Levels = list[tuple[str, list[str]]]
    _Descriptors = list[int]
    _Locks = list[FileLock]

# Errors that mean an absent key. All others are failures.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
# Files of a listing whose versions are looked up at a time.
_VERSIONS = 1000

# Attempts of a write whose directory others keep erasing.
_MOST_ATTEMPTS = 50
# Making several directories takes longer than erasing one, so after some attempts a writer waits for a random time,
# which grows with each attempt.
_ATTEMPTS_AT_ONCE = 3
_PAUSE_S = 0.0005


class LocalStore:
    """Values as files under a directory.

    Parameters
    ----------
    root
        Path of the directory. It need not exist; the first ``set`` makes it. ``..`` after a symbolic link is, as for
        the system, the directory above the one that the link leads to.
    read_only
        Refuse every change.
    follow_symlinks
        If False, a symbolic link anywhere below ``root`` is an error (``root`` itself may be one).
    durable
        Flush each change to disk (``fsync`` of the file, its directory and all new directories) before the call
        returns, so that a loss of power cannot undo it. Much slower on most disks.

    Raises
    ------
    ArgumentError
        If ``root`` is not a path, or this platform does not support ``follow_symlinks=False``.
    StoreError
        If ``root`` is relative, and the current directory no longer exists.

    Notes
    -----
    ``set`` writes a temporary file beside the target and renames it: readers see either the whole old value or the
    whole new one, and a write that fails or is killed leaves the old value. Temporary files of killed writers are never
    keys; the next writer of their directory removes them. ``.gzarr-locks`` and names that start with
    ``.gzarr-temporary-`` are reserved: nothing can be stored or found under them.
    """

    #: What errors name in place of the root: where the values that are made here will be.
    _stands_for: Path | None = None

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        read_only: bool = False,
        follow_symlinks: bool = True,
        durable: bool = False,
    ) -> None:
        check_flags(read_only=read_only, follow_symlinks=follow_symlinks, durable=durable)
        if not follow_symlinks and not CAN_REFUSE_LINKS:
            raise ArgumentError(
                "follow_symlinks=False is not supported on this platform: it cannot open files relative to a directory"
            )
        self.root: Path = Path(absolute_path(root, "LocalStore needs"))
        self.read_only = read_only
        self.follow_symlinks = follow_symlinks
        self.durable = durable
        self._tree = FileTree(str(self.root), follow_symlinks=follow_symlinks, durable=durable)

    def __repr__(self) -> str:
        return f"<gzarr.LocalStore {str(self._stands_for or self.root)!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LocalStore):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, bool, bool, bool]:
        return str(self.root), self.read_only, self.follow_symlinks, self.durable

    def file_root(self) -> bytes | None:
        """Return the absolute root directory, or None if links are refused (plain paths would follow them)."""
        return os.fsencode(self.root) if self.follow_symlinks else None

    def directory(self) -> bytes:
        """Return the root directory, absolute."""
        return os.fsencode(self.root)

    def location(self) -> str:
        """Return a text that names the root, the same in all processes: its host and directory."""
        return f"file://{platform.node()}{self.root}".rstrip("/")

    def file_writer(self) -> FolderWriter | None:
        """Return the file writer for engines, or None if links are refused or a subclass may do more in ``set``."""
        root = self.file_root()
        return None if root is None or type(self) is not LocalStore else FolderWriter(root, self.durable)

    def contains(self, keys: Iterable[str]) -> list[bool]:
        """Return whether each key has a value, in order."""
        return [version is not None for version in self.versions(keys)]

    def _fail(self, what: str, key: str, exc: BaseException) -> NoReturn:
        cause = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        raise with_errno(StoreError(f"{self!r}: cannot {what} {key!r}: {cause}", key=key), exc) from exc

    # -- reading

    def _open(self, key: str, fds: _Descriptors) -> int | None:
        """Append the file descriptor of a value to a list; return its size, or None if there is no such key."""
        segments = names_of_key(key)
        if _is_hidden(segments):
            return None
        try:
            self._tree.open_file(segments, fds)
        except OSError as exc:
            if exc.errno in _ABSENT:
                self.check_absent(key)
                return None
            self._fail("read", key, exc)
        try:
            status = os.fstat(fds[0])
        except OSError as exc:
            self._fail("read", key, exc)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        if stat.S_ISDIR(status.st_mode):
            return None
        raise StoreError(f"{self!r}: {key!r} is neither a file nor a directory", key=key)

    def check_absent(self, key: str) -> None:
        """Raise if a file that was not found is a link to an absent one, as git-annex and DataLad make them.

        Parameters
        ----------
        key
            Key of the file.

        Raises
        ------
        StoreError
            If there is such a link, or a directory in the path of the file is one; or if the system does not say.
        """
        try:
            link = dangling_link(self._tree.root, key.split("/"))
        except OSError as exc:
            self._fail("look at", key, exc)
        if link is not None:
            try:
                target = os.readlink(link)  # noqa: PTH115
            except OSError:
                # It is no link any more: another program changes the directory.
                return
            raise StoreError(
                f"{self!r}: {key!r} is not absent: {link!r} is a symbolic link to {target!r}, "
                "which does not exist. Fetch its content (git annex get, datalad get), or remove the link if the value "
                "is to be absent",
                key=key,
            )

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
            If the file exists but cannot be read.
        """
        return self._get(key, None)

    def _get(self, key: str, max_nbytes: int | None) -> bytes | None:
        # Holds the descriptor once the file is open.
        fds: _Descriptors = []
        try:
            size = self._open(key, fds)
            if size is None:
                return None
            if max_nbytes is not None and size > max_nbytes:
                raise ValueSizeError(f"{self!r}: {key!r} has {size} bytes; at most {max_nbytes} are read", key=key)
            return self._read(fds[0], 0, size, key)
        finally:
            # Not a function of Python, at whose beginning an interrupt may come. Without errors: all was read.
            for fd in fds:
                os.closerange(fd, fd + 1)

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
            fds: _Descriptors = []
            try:
                size = self._open(key, fds)
                if size is None:
                    values.append(None)
                    continue
                start, nbytes = resolve_range(byte_range, size, self, key)
                values.append(self._read(fds[0], start, nbytes, key))
            finally:
                # As in ``_get``.
                for fd in fds:
                    os.closerange(fd, fd + 1)
        return values

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return [self._get(key, max_nbytes) for key in keys]

    def version(self, key: str) -> Hashable | None:
        """Return a token that changes when the file is replaced (inode number, size, times); None if it is absent."""
        segments = names_of_key(key)
        if _is_hidden(segments):
            return None
        try:
            status = self._tree.stat(segments)
        except OSError as exc:
            if exc.errno in _ABSENT:
                self.check_absent(key)
                return None
            self._fail("look at", key, exc)
        return identity(status)

    def versions(self, keys: Iterable[str]) -> list[Hashable | None]:
        """Return :meth:`version` of several ``keys``. Fast, because it is called twice for every shard that is read."""
        result: list[Hashable | None] = []
        root = f"{self._tree.root}/"
        for key in keys:
            # Keys that are not plainly files below the root go to the method that checks each segment.
            plain = self.follow_symlinks and key[:1] not in ("", ".", "/") and "/." not in key and "//" not in key
            try:
                status = os.stat(root + key) if plain else None  # noqa: PTH116
            except (OSError, ValueError) as exc:
                # The system gives its errors a number; a timeout of the program may come without.
                if getattr(exc, "errno", None) is None:
                    pass_on(exc)
                status = None
            result.append(self.version(key) if status is None else identity(status))
        return result

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, each with a text that changes when its file is replaced."""
        keys = self.list_prefix(prefix)
        while some := tuple(islice(keys, _VERSIONS)):
            for key, version in zip(some, self.versions(some), strict=True):
                # None: it was erased since the listing.
                if version is not None:
                    yield key, repr(version)

    # -- listing

    def _scan(self, segments: Sequence[str], prefix: str, *, walked: bool = True) -> Listing:
        """Return the names of files and of directories in a directory; see :meth:`FileTree.scan`."""
        if _is_hidden(segments):
            return [], []
        try:
            return self._tree.scan(segments, walked=walked)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return [], []
            self._fail("list", prefix, exc)

    def list(self) -> Iterator[str]:
        """Yield all keys, sorted. Memory is bounded by the largest directories on one path."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, sorted. Memory is bounded by the largest directories on one path.

        Raises
        ------
        StoreError
            If a directory cannot be listed, or a symbolic link leads back to a directory above it.
        """
        # Checked now, not when the first key is asked for.
        names_of_prefix(prefix)
        return self._walk(prefix)

    def _walk(self, prefix: str) -> Iterator[str]:
        # One level per directory: its prefix and its remaining names, last first. Directories sort with their slash, so
        # that the keys of the whole walk are sorted.
        levels: _Levels = []
        entering: str | None = prefix
        while True:
            if entering is not None:
                names = entering[:-1].split("/") if entering else []
                files, directories = self._scan(names, entering)
                levels.append((entering, sorted([*files, *(d + "/" for d in directories)], reverse=True)))
                entering = None
            here, left = levels[-1]
            if not left:
                levels.pop()
                if not levels:
                    return
            elif (name := left.pop()).endswith("/"):
                entering = here + name
            else:
                yield here + name

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted.

        An empty directory counts as a prefix. A symbolic link to a directory above it does not: all that is below it is
        elsewhere, too.
        """
        return self._list_dir(prefix, walked=False)

    def _list_dir(self, prefix: str, *, walked: bool) -> Listing:
        files, directories = self._scan(names_of_prefix(prefix), prefix, walked=walked)
        return sorted(prefix + name for name in files), sorted(f"{prefix}{name}/" for name in directories)

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, sorted, each with the size of its file in bytes."""
        for key in self.list_prefix(prefix):
            try:
                size = self._tree.stat(key.split("/")).st_size
            except OSError as exc:
                if exc.errno in _ABSENT:  # erased since the listing
                    continue
                self._fail("read the size of", key, exc)
            yield key, size

    # -- writing

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} was opened read-only; nothing was changed")

    def _check_name(self, segments: Sequence[str], key: str) -> None:
        if _is_hidden(segments):
            raise ArgumentError(
                f"store key {key!r}: {LOCKS!r} and names starting with {TEMPORARY!r} are reserved for locks and "
                "unfinished writes"
            )

    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` (bytes-like) under ``key``. Readers see either the whole old value or the whole new one.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the file cannot be written; the old value is kept.
        """
        self.set_parts(key, [value])

    def set_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of some buffers under ``key``, like :meth:`set` but without joining them."""
        self._write(key, parts, exclusive=False)

    def create(self, key: str, value: Buffer) -> bool:
        """Store ``value`` like :meth:`set` unless the key exists; return whether it was stored.

        Of several concurrent calls in threads and processes, exactly one succeeds, except on file systems without hard
        links, where that is not certain.
        """
        return self._write(key, [value], exclusive=True)

    def _write(self, key: str, parts: Sequence[Buffer], *, exclusive: bool) -> bool:
        self._check_writable()
        segments = names_of_key(key)
        self._check_name(segments, key)
        views = [as_view(part, key) for part in parts]
        # The first attempt expects the directory to exist; later ones make it. Until it holds a file, another process
        # may erase it as an empty directory.
        attempt = 0
        while True:
            try:
                self._replace(segments, views, create=attempt > 0, exclusive=exclusive)
                return True
            except OSError as exc:
                if exclusive and exc.errno == errno.EEXIST and self.version(key) is not None:
                    return False
                if exc.errno != errno.ENOENT or attempt == _MOST_ATTEMPTS - 1:
                    self._fail("write", key, exc)
                _pause(attempt)
            attempt += 1

    def _replace(self, segments: Sequence[str], views: Sequence[memoryview], *, create: bool, exclusive: bool) -> None:
        name = segments[-1]
        with self._tree.at(segments, create=create) as (directory, base):
            self._tree.check_link(directory, base, name)
            path = self._tree.path(segments[:-1])
            replace_file(directory, base, name, views, durable=self.durable, path=path, exclusive=exclusive)

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). A gap after the old end is filled with zero bytes.

        Each value is read, changed and replaced whole; of two concurrent partial writes of one key, one can be lost
        unless both hold its :meth:`lock`.
        """
        self._check_writable()
        for key, start, part in key_start_values:
            self.set(key, splice(self.get(key), start, part))

    def erase(self, key: str) -> None:
        """Erase ``key`` if it exists, and the directories that this leaves empty."""
        self._check_writable()
        segments = names_of_key(key)
        self._check_name(segments, key)
        name = segments[-1]
        try:
            with self._tree.at(segments) as (directory, base):
                self._tree.check_link(directory, base, name)
                try:
                    os.unlink(base + name, dir_fd=directory)
                except PermissionError as exc:  # some systems say this instead of EISDIR
                    if is_directory(directory, base + name):
                        return
                    raise exc
                if self.durable:
                    sync_directory(directory, base)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return
            self._fail("erase", key, exc)
        self._drop_empty(segments[:-1])

    def _drop_empty(self, segments: Sequence[str]) -> None:
        for depth in range(len(segments), 0, -1):
            try:
                with self._tree.at(segments[:depth]) as (directory, base):
                    os.rmdir(base + segments[depth - 1], dir_fd=directory)
            except OSError:  # not empty, or not erasable: the key is gone either way
                return

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        for key in keys:
            self.erase(key)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``; where the system allows it, readers see this as one step.

        Links are erased, never their targets. (With ``""``, the entries of the root are erased one by one.)

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the system refuses. If that is for something below the prefix, readers no longer see the prefix, and the
            message says where the rest is.
        """
        self._check_writable()
        segments = names_of_prefix(prefix)
        self._check_name(segments, prefix)
        if not segments:
            keys, prefixes = self._list_dir("", walked=True)
            self.erase_values(keys)
            for below in prefixes:
                self.erase_prefix(below)
            return
        name = segments[-1]
        try:
            with self._tree.at(segments) as (directory, base):
                self._tree.check_link(directory, base, name)
                if is_link(directory, base + name):
                    # A prefix that names a file has no keys.
                    if stat.S_ISDIR(os.stat(base + name).st_mode):  # noqa: PTH116
                        os.unlink(base + name, dir_fd=directory)
                elif is_directory(directory, base + name):
                    erase_directory(directory, base, name, self._tree.path(segments[:-1]))
                if self.durable:
                    sync_directory(directory, base)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return
            self._fail("erase", prefix, exc)
        self._drop_empty(segments[:-1])

    def rename_prefix(self, prefix: str, to: str) -> bool:
        """Give all keys that start with ``prefix`` another prefix in one step; return whether that was done.

        Nothing is changed if there is something at the other prefix, or no directory at this one; if symbolic links are
        in it, which may lead elsewhere from another place; if the directory above hands another group down to what is
        made in it; if the system refuses; or in a subclass, which may do more in ``set``. Of several concurrent calls,
        in threads and processes, one gets the prefix. Of a link to a directory, only the link gets the new name, and
        leads where it did.

        Parameters
        ----------
        prefix, to
            Present and new prefix, both with a slash at the end.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the new names, which are in place, cannot be flushed to the disk (``durable=True``).
        """
        self._check_writable()
        old, new = names_of_prefix(prefix), names_of_prefix(to)
        self._check_name(old, prefix)
        self._check_name(new, to)
        if type(self) is not LocalStore or not old or not new:
            return False
        is_done = False
        try:
            with self._tree.at(old) as (directory, base), self._tree.at(new) as (other, below):
                source = self._tree.path(old)
                if self.follow_symlinks and is_link(None, source):
                    if not os.path.isdir(source) or not _move_link(source, self._tree.path(new)):  # noqa: PTH112
                        return False
                else:
                    if not is_directory(directory, base + old[-1]) or _has_links(source):
                        return False
                    if _gets_another_group(source, self._tree.path(new[:-1])):
                        return False
                    # Of a directory, this replaces nothing but an empty one: no link, and no node.
                    os.rename(base + old[-1], below + new[-1], src_dir_fd=directory, dst_dir_fd=other)
                is_done = True
                if self.durable:
                    sync_directory(other, below)
                    sync_directory(directory, base)
        except OSError as exc:
            if is_done:
                self._fail("flush the new name of", prefix, exc)
            return False
        self._drop_empty(old[:-1])
        return True

    def check_erasable(self, prefix: str) -> None:
        """Refuse to erase what starts with ``prefix`` where the system would keep a part of it; nothing is changed.

        Raises
        ------
        StoreError
            If a directory on the way to it, or in it, does not let this user erase what has to be erased there.
        """
        segments = names_of_prefix(prefix)
        self._check_name(segments, prefix)
        try:
            if segments:
                self._check_below(segments)
                return
            # As :meth:`erase_prefix`, which leaves the root, and in it locks and the temporary files of others.
            keys, prefixes = self._list_dir("", walked=True)
            for below in prefixes:
                self._check_below(names_of_prefix(below))
            with self._tree.at([""]) as (directory, base):
                check_removable(directory, base, keys, self._tree.path([]))
        except OSError as exc:
            if exc.errno not in _ABSENT:
                self._fail("erase", prefix, exc)

    def _check_below(self, segments: Sequence[str]) -> None:
        name = segments[-1]
        with self._tree.at(segments) as (directory, base):
            if is_directory(directory, base + name):
                check_erasable(directory, base + name, self._tree.path(segments))
            elif not is_link(directory, base + name):
                return
            check_removable(directory, base, [name], self._tree.path(segments[:-1]))

    def stage(self, prefix: str, *, replace: bool) -> FolderStage | None:
        """Begin to make what is at a prefix aside; see :class:`gzarr.stores.base.StagingStore`."""
        self._check_writable()
        segments = names_of_prefix(prefix)
        self._check_name(segments, prefix)
        if not self.follow_symlinks:
            return None
        target = os.path.realpath(self._tree.path(segments))
        if replace and segments:
            # If it is a link, that is replaced, never what it leads to.
            target = f"{os.path.realpath(self._tree.path(segments[:-1])).rstrip('/')}/{segments[-1]}"
        if not can_be_staged(target) or (os.path.exists(target) and not (replace or _is_empty(target))):  # noqa: PTH110
            return None
        try:
            # Now rather than when all is written.
            check_erasable(None, target, target)
            if replace and not can_be_moved(target, must=bool(segments)):
                return None
        except FileNotFoundError:
            pass
        except OSError as exc:
            self._fail("replace", prefix, exc)
        try:
            return FolderStage(target, "/".join(segments), self._elsewhere, durable=self.durable)
        except OSError as exc:
            # Names of new files would be as long: nothing could take the place of what is erased.
            if replace and exc.errno == errno.ENAMETOOLONG:
                self._fail("replace", prefix, exc)
            # Nothing can be made beside it.
            return None

    def _elsewhere(self, root: Path) -> LocalStore:
        """Return a store of another directory that is otherwise like this one, also if its class is another one."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.root, made._stands_for = root, self.root
        made._tree = FileTree(str(root), follow_symlinks=self.follow_symlinks, durable=self.durable)
        return made

    # -- locks

    @contextlib.contextmanager
    def lock(self, *keys: str, below: str = "") -> Iterator[None]:
        """Lock some keys, or a node, against other threads and processes for the duration of a ``with`` block.

        Parameters
        ----------
        *keys
            Store keys of one node; none to lock the node itself, which has a separate lock. Keys share locks, so a
            caller may have to wait for a holder of other keys.
        below
            Prefix of the node. The locks are files in its ``.gzarr-locks``, so that they are the same whether a process
            has opened the node itself or a group above it.

        Raises
        ------
        StoreError
            If the file system refuses, or has no locks.

        Notes
        -----
        The locks are advisory. Reading needs none, and erasing the node does not wait for them: the module
        ``gzarr.stores.file_locks`` says what that means for holders, and which guarantees hold on network file systems.

        To rule out deadlocks, a thread takes the node's lock first, then that of its documents (the key ``documents``),
        then those of other keys in one call.
        """
        self._check_writable()
        segments = names_of_prefix(below)
        self._check_name(segments, below)
        wanted: set[int] = set()
        others: list[str] = []
        for key in keys:
            self._check_name(names_of_key(key), key)
            if not key.startswith(below):
                raise ArgumentError(f"store key {key!r} is not below {below!r}")
            if key[len(below) :] == DOCUMENTS:
                others = [DOCUMENTS]
            elif len(wanted) < STRIPES:
                wanted.add(stripe(key[len(below) :]))
        names = [*others, *map(str, sorted(wanted))] or ["node"]
        asked: _Locks = []
        try:
            for attempt in range(_MOST_ATTEMPTS):
                try:
                    self._take(asked, [*segments, LOCKS, ""], names)
                    break
                except OSError as exc:
                    release_all(asked)
                    asked.clear()
                    # Absent: the node was erased meanwhile.
                    if exc.errno != errno.ENOENT or attempt == _MOST_ATTEMPTS - 1:
                        self._fail("lock", keys[0] if keys else below, exc)
                    _pause(attempt)
            yield
        finally:
            try:
                release_all(asked)
            except BaseException:
                # Interrupted (Ctrl-C): nobody else could release them.
                release_all(asked)
                raise

    def _take(self, asked: _Locks, segments: Sequence[str], names: Sequence[str]) -> None:
        """Take the locks of some names in a directory, each recorded before: an interrupt may come right afterwards."""
        with self._tree.at(segments, create=True) as (directory, base):
            for name in names:
                asked.append(FileLock(base + name, directory))
                asked[-1].acquire()
            # During the wait for the last lock, all may have been erased together with their directory.
            with self._tree.at(segments) as (now, _):
                if not all(lock.is_in_place(now) for lock in asked):
                    raise FileNotFoundError(errno.ENOENT, "the lock was erased while waiting for it")


def _move_link(link: str, new: str) -> bool:
    """Give a symbolic link to a directory another path, where it leads to the same; return whether that was done."""
    text = os.readlink(link)  # noqa: PTH115
    if not os.path.isabs(text):  # noqa: PTH117
        above, below = (os.path.realpath(os.path.dirname(path)) for path in (link, new))  # noqa: PTH120
        text = os.path.relpath(os.path.join(above, text), below)  # noqa: PTH118
    with contextlib.suppress(OSError):
        # An empty directory is nothing.
        os.rmdir(new)  # noqa: PTH106
    # Unlike a rename, this replaces no file.
    os.symlink(text, new, target_is_directory=True)  # noqa: PTH211
    is_moved = False
    try:
        # It may not, where ".." follows a link in the text.
        is_moved = os.path.samefile(link, new)  # noqa: PTH121
        if is_moved:
            os.unlink(link)  # noqa: PTH108
    except OSError:
        # Another process has moved it.
        is_moved = False
    finally:
        if not is_moved:
            os.unlink(new)  # noqa: PTH108
    return is_moved


def _has_links(directory: str) -> bool:
    """Return whether there is a symbolic link below a directory."""
    left = [directory]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    return True
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return False


def _gets_another_group(directory: str, above: str) -> bool:
    """Return whether what is made in ``above`` gets its group, and ``directory`` has another one."""
    status = os.stat(above)  # noqa: PTH116
    return bool(status.st_mode & stat.S_ISGID) and os.stat(directory).st_gid != status.st_gid  # noqa: PTH116


def _is_empty(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _pause(attempt: int) -> None:
    if attempt >= _ATTEMPTS_AT_ONCE:
        time.sleep(random.uniform(0, _PAUSE_S * attempt))


def _is_hidden(segments: Sequence[str]) -> bool:
    """Return whether a key or prefix is, or lies below, a reserved name."""
    return any(map(is_reserved, segments))
