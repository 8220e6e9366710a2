"""A new version of a local archive, written beside the old one and renamed to it when it is complete."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import zlib
from typing import TYPE_CHECKING, Final

from ..errors import StoreError, with_errno
from ..guarded import RLock
from . import ozx
from . import zip_format as z
from .atomic_files import give_access
from .descriptors import close_all, open_into
from .directories import flush_if_possible, make_directories, sync_directory
from .file_tree import identity
from .leftovers import clean_once
from .local_paths import status_at
from .temporary_names import temporary_name
from .zip_files import LocalFile, opened
from .zip_format import CentralDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from pathlib import Path
    from typing import Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

#: Bytes of the old archive that are copied at a time.
_COPY_BYTES: Final = 4 << 20
#: A header and values up to this size are written with one call.
_TOGETHER_BYTES: Final = 64 << 10
#: Most seconds that the end of the process waits for a thread that writes.
_EXIT_S: Final = 10.0
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _alone(
    method: Callable[Concatenate[ZipWriter, P], R],
) -> Callable[Concatenate[ZipWriter, P], R]:
    """Have a method refuse to begin in the midst of another one.

    The lock excludes other threads, but not what the same thread runs meanwhile: a handler of a signal, a destructor.
    """

    @functools.wraps(method)
    def call(writer: ZipWriter, /, *args: P.args, **kwargs: P.kwargs) -> R:
        writer._check_alone()
        writer._busy = True
        try:
            return method(writer, *args, **kwargs)
        finally:
            writer._busy = False

    return call


class ZipWriter:
    """A new version of an archive.

    Bytes that were written never change and are never reused: a value that is replaced, or erased, only leaves the
    directory. So other threads can read from the unfinished file.

    Parameters
    ----------
    path
        Absolute path of the archive, without links.
    old
        Directory of the archive, whose entries and comment are kept. If it has no entries, the new version begins
        empty.
    found
        Version of the archive; None if there is none. It must still have it when the new one replaces it.
    as_ozx
        Whether it is OME-Zarr in one file: documents are then written in their order with the commit, for which
        everything is copied once more (:mod:`gzarr.stores.ozx`).
    lock
        Held by callers of all methods but :meth:`finish`, which takes it; None for one of its own.

    Attributes
    ----------
    finished
        Whether :meth:`finish` was called: nothing more is taken.

    Raises
    ------
    StoreError
        If the file cannot be made.
    """

    def __init__(
        self,
        path: Path,
        old: CentralDirectory,
        found: Hashable | None,
        *,
        as_ozx: bool = False,
        lock: RLock | None = None,
    ) -> None:
        self._path = path
        self._lock = lock or RLock()
        self._busy = False
        self._is_committing = False
        self.finished: bool = False
        self._as_ozx = as_ozx
        #: Version of the archive that this one replaces; None if there was none.
        self.found: Hashable | None = found
        # What the complete file is known by when it has the path of the archive; None until it is about to get that.
        self._complete: tuple[int, ...] | None = None
        self._pid = os.getpid()
        self._when = z.dos_time(time.time())
        self._old = old.raw
        temporary = path.with_name(temporary_name())
        self.file: LocalFile = LocalFile(temporary, grows=True)
        # The descriptor of the file, unless the writer has ended.
        self._fds: list[int] = []
        # Files that are not in place. Each is recorded before it is made: an interrupt may come right afterwards.
        self._unfinished: list[Path] = [temporary]
        try:
            make_directories(str(path.parent), durable=False)
            open_into(self._fds, temporary, _FLAGS)
            status = os.fstat(self._fd)
            clean_once(None, f"{path.parent}{os.sep}", str(path.parent), status.st_mtime_ns)
            if found is not None:
                replaced = path.stat()
                give_access(temporary, replaced, replaced.st_mode & 0o777)
            self._end = self._copy(old) if old.rows or old.others else 0
        except BaseException as error:
            self._remove()
            if isinstance(error, OSError) and not isinstance(error, StoreError):
                raise self._failure("begin to write", error) from error
            raise
        version = self.file.version()
        self.directory: CentralDirectory = old.copy(version)

    def __del__(self) -> None:
        # An interrupt has come before the caller had it, or in the midst of ``__init__``.
        if self.__dict__.get("_unfinished"):
            self._remove()

    @property
    def _fd(self) -> int:
        return self._fds[0]

    def _failure(self, what: str, error: OSError) -> StoreError:
        reason = f"the zip archive {str(self._path)!r}: cannot {what}: {error.strerror or error}"
        return with_errno(StoreError(reason), error)

    def _copy(self, old: CentralDirectory) -> int:
        """Copy the entries of the old archive; return their end."""
        if old.shift:
            raise StoreError(
                f"the zip archive {str(self._path)!r} begins with {old.shift} bytes that are not part of it; such a "
                "file is not written to: copy its hierarchy to another one"
            )
        with opened(self._path) as source:
            if identity(os.fstat(source)) != self.found:
                raise StoreError(f"the zip archive {str(self._path)!r} was replaced meanwhile; open it again")
            left = old.begin
            while left:
                some = os.read(source, min(left, _COPY_BYTES))
                if not some:
                    raise StoreError(f"the zip archive {str(self._path)!r} became shorter meanwhile")
                self._write(some)
                left -= len(some)
        return old.begin

    def _write(self, data: bytes | memoryview) -> None:
        _write(self._fd, data)

    def _check_alone(self) -> None:
        """Refuse to begin something in the midst of something else.

        Raises
        ------
        StoreError
            If this thread, which has the lock, is just writing to the archive.
        """
        if self._busy:
            raise StoreError(
                f"the zip archive {str(self._path)!r} is just being written by this thread, which was interrupted "
                "(by a handler of a signal?): write to it, flush and close it after that"
            )

    def has_ended(self) -> bool:
        """Return whether the new version is in place, or gone; an interrupt may come before the caller knows."""
        if not self._fds:
            return True
        if self._complete is None:
            return False
        status = status_at(self._path)
        return status is not None and _known_by(status) == self._complete

    def _check_not_ended(self) -> None:
        """Refuse changes that would be in no archive.

        Raises
        ------
        StoreError
            If the new version has been completed, or discarded.
        """
        if self.finished:
            raise StoreError(
                f"the zip archive {str(self._path)!r} was completed when the process ended, and takes no more values: "
                "wait for the threads that write to it before the program ends"
            )
        if self.has_ended():
            raise StoreError(
                f"the zip archive {str(self._path)!r} was completed or closed right before a change (by a handler of a "
                "signal?), which is not made: try it again"
            )

    def _check_room(self, key: str, record_nbytes: int) -> None:
        """Refuse an entry whose record would make the directory larger than readers take it."""
        directory = self.directory
        most = directory.nbytes + record_nbytes
        if self._as_ozx and self._end >= 1 << 32:
            # Entries that are moved may need a field for an offset.
            most += 12 * (len(directory.rows) + len(directory.others) + 1)
        if most > z.MOST_DIRECTORY_BYTES:
            # One of the same key is replaced.
            most -= directory.record_nbytes_of(key)
        if most > z.MOST_DIRECTORY_BYTES:
            raise StoreError(
                f"the zip archive {str(self._path)!r} has {len(directory.rows):,} entries, and no room for {key!r}: "
                f"its directory would have more than {z.MOST_DIRECTORY_BYTES >> 20} MiB, which are not read; write "
                "fewer and larger values (shards=... puts many chunks into one), or a directory of files",
                key=key,
            )

    @_alone
    def add(self, key: str, parts: Sequence[memoryview]) -> None:
        """Write a value, given in parts; an earlier one of the same key leaves the directory.

        Raises
        ------
        StoreError
            If it cannot be written; the earlier one is still there.
        """
        self._check_not_ended()
        nbytes, crc = sum(part.nbytes for part in parts), 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        header = z.local_header(key, nbytes, crc, self._when, zip64=self._as_ozx)
        entry = z.new_entry(key, self._end, len(header), nbytes, crc)
        self._check_room(key, z.record_nbytes(entry))
        try:
            # After what a failed write may have left.
            os.lseek(self._fd, self._end, os.SEEK_SET)
            if nbytes <= _TOGETHER_BYTES:
                self._write(b"".join([header, *parts]))
            else:
                self._write(header)
                for part in parts:
                    self._write(part)
        except OSError as error:
            raise self._failure(f"write {key!r}", error) from error
        # First: an interrupt may come after the entry is listed, and the next one must not be written over it.
        self._end += len(header) + nbytes
        self.directory.add(key, entry)

    @_alone
    def remove(self, keys: Iterable[str]) -> None:
        """Have some values leave the directory."""
        self._check_not_ended()
        for key in keys:
            self.directory.remove(key)

    @_alone
    def commit(self) -> None:
        """Complete the new version and give it the path of the archive. Does nothing in a child of the process.

        Raises
        ------
        StoreError
            If that fails, which leaves the old version; it can be tried again.
        """
        if not self._fds or os.getpid() != self._pid:
            return
        self._is_committing = True
        try:
            if not self.has_ended():
                self._put_in_place()
            self._remove()
        finally:
            self._is_committing = False
        with contextlib.suppress(OSError):
            sync_directory(None, f"{self._path.parent}{os.sep}")

    def _put_in_place(self) -> None:
        if LocalFile(self._path).version() != self.found:
            raise StoreError(
                f"the zip archive {str(self._path)!r} was changed by another writer; what was written here is lost "
                "when this store is closed: open it again, and let one process write at a time"
            )
        try:
            if self._as_ozx:
                self._commit_in_order()
            else:
                directory = self.directory
                columns = directory.columns
                entries = [*directory.rows.items(), *directory.others]
                entries.sort(key=lambda entry: int(columns[z.HEADER, entry[1]]))
                os.lseek(self._fd, self._end, os.SEEK_SET)
                self._write_directory(self._fd, self._end, directory, entries, directory.comment)
                self._rename(self._fd, self.file.path)
        except OSError as error:
            raise self._failure("complete it", error) from error

    def _rename(self, fd: int, path: Path) -> None:
        """Give a complete file the path of the archive."""
        flush_if_possible(fd)
        # First: an interrupt may come right after the new name, and then nothing may be written to the file.
        self._complete = _known_by(os.fstat(fd))
        path.replace(self._path)

    def _write_directory(
        self, fd: int, begin: int, directory: CentralDirectory, entries: Iterable[tuple[str, int]], comment: bytes
    ) -> None:
        """Write the directory at the place of a file, and cut the file after it."""
        columns, some, some_nbytes, nbytes, count = directory.columns, [], 0, 0, 0
        for key, row in entries:
            at, length = int(columns[z.RECORD, row]), int(columns[z.RECORD_BYTES, row])
            if length:
                record = self._old[at : at + length]
            else:
                record = z.central_record(key, columns, row, self._when, zip64=self._as_ozx)
            some.append(record)
            some_nbytes += len(record)
            count += 1
            if some_nbytes > _COPY_BYTES:
                _write(fd, b"".join(some))
                nbytes, some, some_nbytes = nbytes + some_nbytes, [], 0
        nbytes += some_nbytes
        _write(fd, b"".join([*some, z.end_records(begin, nbytes, count, zip64=self._as_ozx, comment=comment)]))
        os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_CUR))

    def _commit_in_order(self) -> None:
        """Write all entries to another file, documents first, and give it the path of the archive.

        What was replaced or erased is left behind.
        """
        directory = self.directory
        columns = directory.columns
        keys = ozx.in_order(sorted(directory.rows, key=lambda key: int(columns[z.HEADER, directory.rows[key]])))
        entries = [*((key, directory.rows[key]) for key in keys), *directory.others]
        names = [name for name, _ in entries]
        offsets = self._data_offsets(entries)
        temporary = self._path.with_name(temporary_name())
        self._unfinished.append(temporary)
        fds: list[int] = []
        try:
            open_into(fds, temporary, _FLAGS)
            fd = fds[0]
            status = os.fstat(self._fd)
            give_access(temporary, status, status.st_mode & 0o777)
            moved, end = CentralDirectory(), 0
            for (key, row), offset in zip(entries, offsets, strict=True):
                header, nbytes = z.moved_header(key, columns, row, self._when), int(columns[z.PACKED, row])
                _move(self._fd, fd, header, offset, nbytes)
                moved.add(key, z.moved_entry(key, columns, row, end, len(header)))
                end += len(header) + nbytes
            # Names that are no keys may be there twice.
            self._write_directory(fd, end, moved, zip(names, range(len(names)), strict=True), self._comment(offsets))
            self._rename(fd, temporary)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def _comment(self, offsets: Sequence[int]) -> bytes:
        """Return the comment of the archive, whose first entry is the document of the root if there is one."""
        columns, row = self.directory.columns, self.directory.rows.get(ozx.DOCUMENT)
        if row is None:
            return b""
        try:
            z.check_entry(columns, row)
            return ozx.comment(z.unpacked(_read(self._fd, offsets[0], int(columns[z.PACKED, row])), columns, row))
        except z.ZipFormatError:
            return b""

    def _data_offsets(self, entries: Sequence[tuple[str, int]]) -> list[int]:
        """Return where the data of each entry begin; the headers of entries that were not written here are read."""
        directory, found = self.directory, []
        columns = directory.columns
        for key, row in entries:
            at = int(columns[z.DATA, row])
            if at < 0:
                name = directory.name_of(row, key)
                header = _read(self._fd, int(columns[z.HEADER, row]), z.HEADER_BYTES + len(name))
                try:
                    at = z.data_offset(header, name, columns, row)
                except z.ZipFormatError as error:
                    raise StoreError(f"the zip archive {str(self._path)!r}: {key!r} cannot be kept: {error}") from error
            found.append(at)
        return found

    @_alone
    def discard(self) -> None:
        """Remove the new version if it is not complete. Does nothing in a child of the process.

        Raises
        ------
        StoreError
            If the thread is in the midst of writing it.
        """
        self._remove()

    def _remove(self) -> None:
        if os.getpid() != self._pid:
            return
        close_all(self._fds)
        self._unlink()

    def _unlink(self) -> None:
        while self._unfinished:
            # One that is in place has no longer this name.
            with contextlib.suppress(OSError):
                self._unfinished[-1].unlink()
            self._unfinished.pop()

    def finish(self) -> None:
        """Commit, and whatever happens leave no temporary file behind: the store is gone, or the process ends.

        Threads that still write then go on until the interpreter has ended: one of them may be in the midst of a value.

        Raises
        ------
        StoreError
            If that fails, or such a thread does not come to an end; the old version stays.
        """
        if os.getpid() != self._pid:
            return
        self.finished = True
        locked = False
        try:
            # Another store of the process may commit it meanwhile, or have done so and hold the lock for long.
            while self._unfinished and not locked:
                locked = self._lock.acquire(timeout=_EXIT_S)
                if not locked and not self._is_committing and self._unfinished:
                    raise StoreError(
                        f"the zip archive {str(self._path)!r} stays as the last flush left it: a thread was still in "
                        "the midst of writing to it when the process ended; wait for such threads, or close the store"
                    )
            if locked:
                self.commit()
        finally:
            if locked and not self._busy:
                self._remove()
            else:
                # Somebody may still use the descriptor.
                self._unlink()
            if locked:
                self._lock.release()


def _known_by(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from others, and stays when it is renamed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _write(fd: int, data: bytes | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _read(fd: int, offset: int, nbytes: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    parts: list[bytes] = []
    while nbytes:
        some = os.read(fd, nbytes)
        if not some:
            raise OSError("the file became shorter meanwhile")
        parts.append(some)
        nbytes -= len(some)
    return b"".join(parts)


def _move(source: int, target: int, header: bytes, offset: int, nbytes: int) -> None:
    """Append a header and a range of another file to a file."""
    if nbytes <= _TOGETHER_BYTES:
        _write(target, header + _read(source, offset, nbytes))
        return
    _write(target, header)
    end = offset + nbytes
    copy = getattr(os, "copy_file_range", None)
    if copy is not None:
        # Within the system; not between all file systems.
        with contextlib.suppress(OSError):
            while offset < end and (done := copy(source, target, min(end - offset, _COPY_BYTES), offset)):
                offset += done
    while offset < end:
        some = _read(source, offset, min(end - offset, _COPY_BYTES))
        _write(target, some)
        offset += len(some)
