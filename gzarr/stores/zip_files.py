"""Where the bytes of an archive are: a local file, or a value of another store."""

from __future__ import annotations

import contextlib
import os
import stat
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import StoreError, ValueReplacedError, ValueSizeError, with_errno
from . import io_threads
from .base import ByteRange, ReadableStore, RemoteValues, Request, SizedStore, VersionedStore
from .byte_ranges import resolve_range
from .descriptors import open_into
from .file_tree import READ, identity
from .local_paths import status_at

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from pathlib import Path

#: End of a file: its last bytes, its size if known, and its version if known.
End = tuple[bytes, int | None, Any]


class ArchiveFile(Protocol):
    """A file that holds an archive.

    Attributes
    ----------
    store, key
        Store and key of the file, for engines.
    """

    store: ReadableStore
    key: str

    def end(self, nbytes: int) -> End | None:
        """Return the end of the file: at least its last ``nbytes`` bytes, or all of it. None if there is no file."""

    def read(self, ranges: Sequence[tuple[int, int]], version: Hashable | None) -> list[Any]:
        """Return some ranges (offset, bytes).

        Raises
        ------
        ValueReplacedError
            If the file has another version.
        StoreError
            If it cannot be read, or is too short.
        """

    def version(self) -> Hashable | None:
        """Return the version of the file now, without a request; None if it is absent, or if unknown."""

    def is_current(self, version: Hashable | None) -> bool:
        """Return whether the file has a version, as far as that can be told without a request."""


class LocalFile:
    """A local file, also a store of one value for engines, which read the file themselves.

    Parameters
    ----------
    path
        Absolute path.
    grows
        Whether the file may grow while it is read: its bytes never change, so its version is that of the inode.
    """

    def __init__(self, path: Path, *, grows: bool = False) -> None:
        self.path = path
        self._grows = grows
        self.store: ReadableStore = self
        self.key: str = path.name

    def __repr__(self) -> str:
        return f"the file {str(self.path)!r}"

    def file_root(self) -> bytes:
        """Return the directory of the file."""
        return os.fsencode(self.path.parent)

    def _identity(self, status: os.stat_result) -> Hashable | None:
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{self!r} is not a regular file, so it can be no zip archive; pass the path of one")
        # File systems soon use the number of an erased file again; names of unfinished files are unique.
        return (status.st_dev, status.st_ino, self.key) if self._grows else identity(status)

    def version(self) -> Hashable | None:
        """Return the identity of the file; None if it is absent.

        Raises
        ------
        StoreError
            If it is something else than a regular file, or if the system does not say.
        """
        try:
            return self._identity(self.path.stat())
        except StoreError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise with_errno(StoreError(f"{self!r} cannot be examined: {error}"), error) from error

    def is_current(self, version: Hashable | None) -> bool:
        """Return whether the file has a version."""
        return self.version() == version

    def end(self, nbytes: int) -> End | None:
        """Return the end of the file."""
        try:
            with opened(self.path) as fd:
                status = os.fstat(fd)
                version = self._identity(status)
                start = max(status.st_size - nbytes, 0)
                return _read(fd, start, status.st_size - start), status.st_size, version
        except StoreError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise with_errno(StoreError(f"{self!r} cannot be read: {error}"), error) from error

    def read(self, ranges: Sequence[tuple[int, int]], version: Hashable | None) -> list[Any]:
        """Return some ranges; the file is opened once."""
        try:
            with opened(self.path) as fd:
                now = self._identity(os.fstat(fd))
                if version is not None and now != version:
                    raise ValueReplacedError(f"{self!r} was replaced meanwhile")
                parts = [_read(fd, offset, nbytes) for offset, nbytes in ranges]
        except StoreError:
            raise
        except FileNotFoundError as error:
            raise ValueReplacedError(f"{self!r} was erased or renamed meanwhile") from error
        except (OSError, MemoryError, OverflowError) as error:
            raise with_errno(StoreError(f"{self!r} cannot be read: {error}"), error) from error
        for part, (offset, nbytes) in zip(parts, ranges, strict=True):
            if len(part) != nbytes:
                raise ValueSizeError(f"{self!r} ends before its {nbytes} bytes from byte {offset} on: truncated")
        return parts

    # -- for engines

    def get(self, key: str) -> bytes | None:
        """Return the whole file."""
        return self.get_partial_values([(key, ByteRange())])[0]

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of the file. That it is absent is a failure: the directory of the archive has been read."""
        version = self.version()
        status = status_at(self.path)
        if status is None:
            raise ValueReplacedError(f"{self!r} was erased or renamed meanwhile")
        ranges = [resolve_range(wanted, status.st_size, self, key) for key, wanted in key_ranges]
        return self.read(ranges, version)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Give the descriptor of a file that is only read. What it is must be looked at: a pipe is not waited for."""
    fds: list[int] = []
    try:
        open_into(fds, path, READ)
        yield fds[0]
    finally:
        # Not a function of Python, at whose beginning an interrupt may come. Without errors: all was read.
        for fd in fds:
            os.closerange(fd, fd + 1)


def _read(fd: int, offset: int, nbytes: int) -> bytes:
    """Return the bytes of a range of a file, fewer if it ends before."""
    os.lseek(fd, offset, os.SEEK_SET)
    data = os.read(fd, nbytes)
    if len(data) < nbytes:
        parts = [data]
        while parts[-1] and (left := nbytes - sum(map(len, parts))):
            parts.append(os.read(fd, left))
        data = b"".join(parts)
    return data


class StoredFile:
    """A value of a store.

    Parameters
    ----------
    store, key
        Store and key of the value.
    """

    def __init__(self, store: ReadableStore, key: str) -> None:
        self.store = store
        self.key = key

    def __repr__(self) -> str:
        return f"{self.key!r} of {self.store!r}"

    def version(self) -> Hashable | None:
        """Return the version of the value if the store can tell."""
        return self.store.version(self.key) if isinstance(self.store, VersionedStore) else None

    def is_current(self, version: Hashable | None) -> bool:
        """Return whether the value has a version."""
        return self.version() == version

    def end(self, nbytes: int) -> End | None:
        """Return the end of the value."""
        version = self.version()
        try:
            (tail,) = self.store.get_partial_values([(self.key, ByteRange(-nbytes))])
            size = None if tail is None else self._size()
        except ValueSizeError:
            # It has fewer bytes.
            tail = self.store.get(self.key)
            size = None if tail is None else len(tail)
        return None if tail is None else (tail, size, version)

    def _size(self) -> int | None:
        if not isinstance(self.store, SizedStore):
            return None
        folder, slash, _ = self.key.rpartition("/")
        return next((size for key, size in self.store.list_sizes(folder + slash) if key == self.key), None)

    def read(self, ranges: Sequence[tuple[int, int]], version: Hashable | None) -> list[Any]:
        """Return some ranges."""
        parts = self.store.get_partial_values([(self.key, ByteRange(offset, nbytes)) for offset, nbytes in ranges])
        if None in parts or self.version() != version:
            raise ValueReplacedError(f"{self!r} was replaced or erased meanwhile", key=self.key)
        return list(parts)


class RemoteFile:
    """A value of a store with ``get_many``.

    Its end is kept: in a small archive that is all of it, in others often the documents that were written last.

    Parameters
    ----------
    store, key
        Store and key of the value.
    """

    def __init__(self, store: RemoteValues, key: str) -> None:
        self.store: Any = store
        self.key = key
        # Version, offset and bytes.
        self._tail: tuple[Hashable, int, bytes] | None = None

    def __repr__(self) -> str:
        return f"{self.key!r} of {self.store!r}"

    def version(self) -> Hashable | None:
        """Return None: every request names the version that it needs."""
        return None

    def is_current(self, version: Hashable | None) -> bool:
        """Return True, as above."""
        return True

    def end(self, nbytes: int) -> End | None:
        """Return the end of the value, with one request; two if it has fewer than ``nbytes`` bytes."""
        answer = self._ask(Request(self.key, ByteRange(-nbytes)))
        if isinstance(answer.error, ValueSizeError):
            answer = self._ask(Request(self.key, most_nbytes=nbytes))
        if answer.error is not None:
            raise answer.error
        if answer.value is None:
            return None
        tail = bytes(answer.value)
        size = answer.size if answer.size is not None or len(tail) == nbytes else len(tail)
        self._tail = None if size is None or answer.version is None else (answer.version, size - len(tail), tail)
        return tail, size, answer.version

    def _ask(self, request: Request) -> Any:
        return io_threads.call(partial(self.store.get_many, [request]))[0]

    def has(self, version: Hashable) -> bool:
        """Return whether the value still has a version, with one request."""
        # A byte, because a request for none would not tell an absent value from an absent container.
        answer = self._ask(Request(self.key, ByteRange(0, 1), unless_version=version))
        if answer.error is not None and not isinstance(answer.error, ValueSizeError):
            raise answer.error
        return answer.unchanged or (answer.value is not None and answer.version == version)

    def kept(self, ranges: Sequence[tuple[int, int]], version: Hashable | None) -> list[Any] | None:
        """Return some ranges if all are in the end that is kept."""
        if self._tail is None or self._tail[0] != version:
            return None
        _, first, tail = self._tail
        if any(offset < first or offset + nbytes > first + len(tail) for offset, nbytes in ranges):
            return None
        return [tail[offset - first : offset - first + nbytes] for offset, nbytes in ranges]

    def read(self, ranges: Sequence[tuple[int, int]], version: Hashable | None) -> list[Any]:
        """Return some ranges: one request each, side by side, or none if all are in the end that is kept."""
        kept = self.kept(ranges, version)
        if kept is not None:
            return kept
        asked = [Request(self.key, ByteRange(offset, nbytes), version) for offset, nbytes in ranges]
        parts: list[Any] = []
        for (answer,), request in zip(
            io_threads.call_all([partial(self.store.get_many, [one]) for one in asked]), asked, strict=True
        ):
            if answer.error is not None:
                raise answer.error
            if answer.value is None:
                raise ValueReplacedError(f"{self!r} was erased meanwhile", key=self.key)
            if memoryview(answer.value).nbytes != request.byte_range.length:
                raise StoreError(f"{self!r}: the store returned another number of bytes than asked for", key=self.key)
            parts.append(answer.value)
        return parts
