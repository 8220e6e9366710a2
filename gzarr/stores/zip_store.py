"""Zip archives in local files as stores, for reading and writing."""

from __future__ import annotations

import os
import stat
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..errors import ArgumentError, ReadOnlyError, StoreError
from ..guarded import ForkSafeLock, RLock
from . import ozx
from .base import ReadableStore, RemoteValues
from .buffers import as_view
from .keys import split_key, split_prefix
from .local_paths import absolute_path, status_at
from .whole_values import WholeValues
from .zip_files import LocalFile, StoredFile
from .zip_format import CentralDirectory
from .zip_reader import RemoteZipStore, ZipReader
from .zip_writer import ZipWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from .zip_files import ArchiveFile

ZipMode: TypeAlias = Literal["r", "r+", "a", "w", "w-", "x"]

_MODES: Final = ("r", "r+", "a", "w", "w-", "x")
#: The longest name that a record can have.
_LONGEST_NAME: Final = 65535

#: The locks of the stores of this process, and what there is to commit, by path: an archive has one of each. A writer
#: stays until it has ended, also if its store is gone.
_locks: weakref.WeakValueDictionary[str, RLock] = weakref.WeakValueDictionary()
_writing: weakref.WeakValueDictionary[str, ZipWriter] = weakref.WeakValueDictionary()
_making = ForkSafeLock()


def _lock_of(path: str) -> RLock:
    with _making.lock:
        lock = _locks.get(path)
        if lock is None:
            _locks[path] = lock = RLock()
        return lock


def _begin_anew() -> None:
    """Forget what the parent of a forked process writes, and locks that its threads may have held."""
    _locks.clear()
    _writing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class ZipStore(ZipReader, WholeValues):
    """Values as entries of a zip archive in a local file.

    Entries are written without compression, since chunks are compressed already: so they are byte ranges of one file,
    which are read as fast as files in a directory. Compressed entries (deflate, bzip2) of other writers can be read,
    too.

    Parameters
    ----------
    path
        Path of the archive. If it ends in ``.ozx``, the archive is written as OME-Zarr in one file (RFC-9 of OME-NGFF):
        all ``zarr.json`` first, breadth first, with a comment that says the version; nodes are of Zarr version 3.
    mode
        ``"r"`` to read an existing archive, ``"r+"`` to read and write it, ``"a"`` to make it if it does not exist,
        ``"w"`` to replace it by an empty one, ``"w-"`` (or ``"x"``) to make one that must not exist.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or the archive exists with ``mode="w-"``.
    NodeNotFoundError
        If the archive does not exist with ``mode="r"`` or ``"r+"``.
    StoreError
        If the file cannot be read, or is no zip archive.

    Notes
    -----
    What is written goes to a temporary file beside the archive, which replaces the archive in one step in :meth:`flush`
    and :meth:`close`, at the end of a ``with`` block, when the store is garbage-collected, and when the interpreter
    exits: other processes see either the whole old archive or the whole new one, and a process that is killed leaves
    the old one. So does a ``with`` block that an exception (or Ctrl-C) ends: what it wrote since the last :meth:`flush`
    is discarded, as by :meth:`discard`. A daemon thread that still writes when the interpreter exits gets a
    :class:`~gzarr.errors.StoreError`, and the archive has what it wrote by then. Opening the same path again in the
    process flushes it first, and so does a change by another store of the process, after which it cannot be discarded:
    nothing is lost, but pass one store to all that write in turn. Stores that are open for changes see at once what
    others of the process have written. To add to an existing archive copies it once after each flush; the disk needs
    room for both.

    A value that is replaced or erased leaves the directory of the archive, but its bytes stay in the file; copying the
    hierarchy to a new archive (:func:`gzarr.copy`) gets rid of them. An ``.ozx`` file is copied once more with each
    flush, to get its order, and has no such bytes. Threads may share a store. Only one process can
    write an archive at a time: if another one has changed it, ``flush`` fails. A copy of a store in another process
    (by pickling, or after a fork) is read-only.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: ZipMode = "r") -> None:
        if mode not in _MODES:
            raise ArgumentError(f'mode must be "r", "r+", "a", "w" or "w-", not {mode!r}')
        text = absolute_path(path, "ZipStore needs")
        # The archive is replaced by renaming, which would replace a link and not what it leads to.
        self.path: Path = Path(os.path.realpath(text))
        self.read_only: bool = mode == "r"
        self._is_ozx = ozx.is_ozx(text) or ozx.is_ozx(self.path)
        super().__init__(LocalFile(self.path), keep=not self.read_only)
        self._lock = _lock_of(str(self.path))
        self._pid = os.getpid()
        self._writer: ZipWriter | None = None
        self._finalizer: Any = None
        status = status_at(self.path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise ArgumentError(f"{str(self.path)!r} is a directory; open it as such, or pass the path of a zip file")
        with self._lock:
            if self._commit_other():
                status = status_at(self.path)
            found = LocalFile(self.path).version()
            if mode in ("w-", "x") and status is not None:
                raise ArgumentError(f"{str(self.path)!r} exists; pass mode='w' to replace it, or 'a' to add to it")
            if mode in ("w", "w-", "x"):
                self._begin(CentralDirectory(), found)
            elif mode == "a" and status is None:
                self._state = (self._state[0], CentralDirectory())
            else:
                self._reload()

    def __repr__(self) -> str:
        return f"<gzarr.ZipStore {str(self.path)!r}>"

    def __hash__(self) -> int:
        return hash(self.path)

    def _identity(self) -> tuple[Any, ...]:
        return type(self), self.path

    def __reduce__(self) -> tuple[Any, ...]:
        self.flush()
        return ZipStore, (str(self.path),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not self.read_only:
            # What is incomplete must not replace what was there.
            self.discard()
        self.close()

    def _open(self) -> tuple[ArchiveFile, CentralDirectory]:
        writer = self._unfinished()
        if writer is not None and writer.file is not self._state[0]:
            return self._reload()
        return super()._open()

    def _unfinished(self) -> ZipWriter | None:
        """Return the writer of what is not yet committed.

        It may be that of another store of the process, since what is changed here must be what others have left.
        """
        if os.getpid() != self._pid:
            return None
        writer = self._writer if self.read_only else _writing.get(str(self.path))
        return None if writer is None or writer.finished or writer.has_ended() else writer

    def _commit_other(self) -> bool:
        """Commit what another store of the process has written to the archive; return whether there was something.

        That store finds its writer ended.
        """
        other = _writing.get(str(self.path))
        if other is None or other is self._writer:
            return False
        with self._lock:
            other = _writing.get(str(self.path))
            if other is None or other is self._writer or other.has_ended():
                return False
            other.commit()
            return True

    def _reload(self) -> tuple[ArchiveFile, CentralDirectory]:
        if os.getpid() == self._pid:
            # Another thread may just be flushing the file, or have begun a new one.
            with self._lock:
                writer = self._unfinished()
                if writer is not None:
                    self._state = unfinished = (writer.file, writer.directory)
                    return unfinished
                if self._state[0].key != self.path.name:
                    # In place, or gone. What another store was to make and has discarded is still to be made.
                    if self._writer is None and status_at(self.path) is None:
                        self._state = absent = (LocalFile(self.path), CentralDirectory())
                        return absent
                    self._state = (LocalFile(self.path), None)
                return super()._reload()
        if self._state[0].key != self.path.name and self._state[0].version() is None:
            # The parent has completed what this process was forked from.
            self._writer, self._state = None, (LocalFile(self.path), None)
        return super()._reload()

    def is_current(self, version: Hashable | None) -> bool:
        """Return whether the archive, or the unfinished one, still has this version."""
        # What was read before a new version was begun is valid until that one is complete.
        return super().is_current(version) or (version is not None and LocalFile(self.path).version() == version)

    def forget(self, version: Hashable | None) -> None:
        """Read the directory again before the next value, if it is of this version."""
        if os.getpid() == self._pid:
            with self._lock:
                super().forget(version)
        else:
            super().forget(version)

    # -- writing

    def _begin(self, old: CentralDirectory, found: Any) -> ZipWriter:
        writer = ZipWriter(self.path, old, found, as_ozx=self._is_ozx, lock=self._lock)
        try:
            # First: an interrupt may come between any two of these.
            self._finalizer = weakref.finalize(self, writer.finish)
            self._writer, self._state = writer, (writer.file, writer.directory)
            _writing[str(self.path)] = writer
        except BaseException:
            # A finalizer that this store may not know of has nothing to do then.
            writer.discard()
            raise
        return writer

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} was opened read-only, or closed; nothing was changed")
        if os.getpid() != self._pid:
            raise StoreError(f"{self!r} was opened for writing by another process; open it again in this one")

    def _current_writer(self) -> ZipWriter:
        """Return the writer, begun if need be; the caller holds the lock."""
        self._commit_other()
        if self._writer is not None and self._writer.has_ended():
            # An interrupt came before this store knew.
            self.flush()
        if self._writer is not None:
            return self._writer
        directory = self._open()[1]
        return self._begin(directory, directory.version)

    def refusal(self, documents: Collection[str]) -> str:
        """Return why nodes cannot be in this archive, given the names of their documents; empty if they can."""
        return ozx.refusal(documents) if self._is_ozx else ""

    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` (bytes-like) under ``key``. Readers see it after :meth:`flush`.

        Raises
        ------
        ReadOnlyError
            If the store is read-only or closed.
        StoreError
            If it cannot be written; the old value is kept.
        """
        self.set_parts(key, [value])

    def set_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of some buffers under ``key``, like :meth:`set`."""
        self._check_writable()
        split_key(key)
        try:
            name = key.encode()
        except UnicodeEncodeError:
            # Directories have such names.
            raise ArgumentError(
                f"the store key {key!r} has characters that UTF-8 cannot encode, and names in a zip archive are UTF-8"
            ) from None
        if len(name) > _LONGEST_NAME:
            raise ArgumentError(f"the store key {key[:80]!r}... is too long for a zip archive")
        views = [as_view(part, key) for part in parts]
        with self._lock:
            self._current_writer().add(key, views)

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        self._check_writable()
        wanted = list(keys)
        for key in wanted:
            split_key(key)
        with self._lock:
            rows = self._open()[1].rows
            present = [key for key in wanted if key in rows]
            if present:
                self._current_writer().remove(present)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""
        self._check_writable()
        split_prefix(prefix)
        self.erase_values(list(self.list_prefix(prefix)))

    def flush(self) -> None:
        """Replace the archive by what was written so far; nothing happens if that is nothing.

        Raises
        ------
        StoreError
            If that fails, or another process has changed the archive; the archive is then as it was.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            writer = self._writer
            # What the end of the process has finished stays so: a thread that goes on must not begin another one.
            if writer is None or writer.finished:
                return
            writer.commit()
            self._forget_writer(writer)

    def discard(self) -> None:
        """Forget what was written since the last :meth:`flush`; the archive stays as it is.

        Raises
        ------
        StoreError
            If this thread is just writing to it, as a handler of a signal may find it.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            writer = self._writer
            if writer is None:
                return
            writer.discard()
            self._forget_writer(writer)

    def _forget_writer(self, writer: ZipWriter) -> None:
        # A handler of a signal may have begun another one meanwhile.
        if self._writer is writer:
            self._finalizer.detach()
            # What was to be made and was discarded is still to be made.
            is_absent = writer.found is None and status_at(self.path) is None
            self._writer, self._state = None, (LocalFile(self.path), CentralDirectory() if is_absent else None)
            if _writing.get(str(self.path)) is writer:
                del _writing[str(self.path)]

    def close(self) -> None:
        """Flush, and refuse further changes. Values can still be read.

        Raises
        ------
        StoreError
            As for :meth:`flush`; what was written since the last one is then lost.
        """
        try:
            self.flush()
        finally:
            self.read_only = True
            self.discard()


def zip_in(store: ReadableStore, key: str) -> ZipReader:
    """Return the store of an archive that is a value of another store, for reading.

    Raises
    ------
    NodeNotFoundError
        If there is no such value.
    StoreError
        If it cannot be read, or is no zip archive.
    """
    if isinstance(store, RemoteValues):
        return RemoteZipStore(store, key)
    made = ZipReader(StoredFile(store, key))
    made._reload()
    return made
