"""The directory of a read cache: parts of values, by key and version, shared by processes.

A value is cut into segments, and each segment has a file (:mod:`gzarr.stores.cache_file`), whose name is a hash. It has
the byte ranges that were read, as they were read. So what is fetched for one read serves every other read that needs
the same bytes, and nothing is fetched that no read asked for. Segment 0 always has a file, whose version and
confirmation count for the value. A file of another version replaces the old one in one step.

The bytes that are written are counted by all processes together: for each 1/1024 of the limit, a byte is appended to a
file. (Less than that appends one with a probability, so that short-lived processes count too.) Every 64 of them, the
process that wrote the last one removes the files that were used the longest ago, until 7/8 of the limit are left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..guarded import Lock
from . import traffic
from .atomic_files import replace_file
from .cache_file import SEGMENT_BYTES, CacheFile, DamageError, encode_version, gaps, new_file
from .descriptors import close_all, open_into

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from typing_extensions import Buffer

    from .cache_file import Record

#: A segment above this share of the limit is not kept.
MOST_SHARE: Final = 8
_QUANTA: Final = 1024
_QUANTA_BEFORE_EVICTION: Final = 64
# Files take whole blocks of the disk.
_BLOCK: Final = 4096

_FOLDER: Final = "gzarr-cache-1"
_COUNTER: Final = "written"
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WRITE = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# Writers of one file in this process take turns.
_turns: list[Any] = []


def _renew() -> None:
    _turns[:] = [Lock() for _ in range(64)]


_renew()
if hasattr(os, "register_at_fork"):
    # A child lacks the threads that held locks.
    os.register_at_fork(after_in_child=_renew)


@dataclass(frozen=True, slots=True)
class Found:
    """What the cache has of a byte range.

    Attributes
    ----------
    version
        Version of the value.
    size
        Size of the whole value in bytes; None if unknown.
    confirmed
        When the store last confirmed the version, in seconds since 1970.
    begin, end
        The range in the value.
    missing
        First byte and end of what has to be fetched; None if nothing has to.
    before, after
        Data before and after ``missing``; ``before`` is all of it if nothing is missing.
    """

    version: Hashable
    size: int | None
    confirmed: float
    begin: int
    end: int
    missing: tuple[int, int] | None
    before: Buffer
    after: Buffer = b""


class CacheDirectory:
    """The files of a cache. No method raises an exception because of the directory: what fails is not in the cache.

    Parameters
    ----------
    directory
        Path of the directory, which need not exist.
    max_bytes
        Limit of the files' sizes.
    """

    def __init__(self, directory: str, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self._root = os.path.join(directory, _FOLDER)  # noqa: PTH118

    def path(self, location: str, key: str) -> str:
        """Return the path of the value of ``key`` in the store at ``location``, without the number of a segment."""
        name = hashlib.blake2b(f"{location}\0{key}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
        return f"{self._root}/{name[:2]}/{name[2:]}"

    def find(self, path: str, resolve: Callable[[int | None], tuple[int, int] | None]) -> Found | None:
        """Return what there is of a byte range of a value; None if nothing is known of the value.

        Parameters
        ----------
        path
            From :meth:`path`.
        resolve
            Function from the size of the value, None if unknown, to the first byte and the end of the range; it returns
            None if the range cannot be in the value, or needs the size.
        """
        with contextlib.ExitStack() as stack:
            try:
                head = self._open(f"{path}-0", _READ)
                if head is None:
                    return None
                stack.callback(head.close)
                wanted = resolve(head.size)
                if wanted is None:
                    return None
                begin, end = wanted
                pieces: list[tuple[int, int, CacheFile, Record]] = []
                for number in range(begin // SEGMENT_BYTES, -(-end // SEGMENT_BYTES)):
                    file = head if not number else self._open(f"{path}-{number}", _READ)
                    if file is None:
                        continue
                    if number:
                        stack.callback(file.close)
                    if file.token == head.token:
                        pieces += [(max(a, begin), min(b, end), file, (a, b, at)) for a, b, at in file.within(*wanted)]
                missing = _missing(begin, end, [(a, b) for a, b, _, _ in pieces])
                first, last = missing or (end, end)
                before = _join([file.read(record, a, min(b, first)) for a, b, file, record in pieces if a < first])
                after = _join([file.read(record, max(a, last), b) for a, b, file, record in pieces if b > last])
                return Found(head.version, head.size, head.confirmed, begin, end, missing, before, after)
            except DamageError as damage:
                traffic.count(cache_failures=1)
                with contextlib.suppress(OSError):
                    os.unlink(str(damage))  # noqa: PTH108
            except OSError:
                traffic.count(cache_failures=1)
        return None

    def add(self, path: str, version: Hashable, size: int | None, begin: int, value: Buffer, confirmed: float) -> None:
        """Keep a byte range of a value.

        Parameters
        ----------
        path
            From :meth:`path`.
        version, size
            Version of the value, and its size in bytes, None if unknown.
        begin, value
            First byte of the range in the value, and its bytes.
        confirmed
            When the store was asked for them, in seconds since 1970.
        """
        token = encode_version(version)
        if token is None:
            return
        data = memoryview(value).cast("B")
        end = begin + len(data)
        last = max(end - 1, 0) // SEGMENT_BYTES
        numbers = sorted({0, *range(begin // SEGMENT_BYTES, last + 1)})
        header = (token, -1 if size is None else size, confirmed)
        try:
            for number in numbers:
                a = max(begin, number * SEGMENT_BYTES)
                b = max(min(end, (number + 1) * SEGMENT_BYTES), a)
                part = data[a - begin : b - begin] if a <= end else data[:0]
                if len(part) > self.max_bytes // MOST_SHARE:
                    part = part[:0]
                if len(part) or not number:
                    self._add(f"{path}-{number}", header, a, part)
        except (OSError, DamageError):
            traffic.count(cache_failures=1)

    def confirm(self, path: str, version: Hashable, confirmed: float) -> None:
        """Note that the store has confirmed a version."""
        with contextlib.suppress(OSError), _turn(path):
            file = self._open(f"{path}-0", _WRITE)
            if file is not None:
                with contextlib.closing(file):
                    if file.version == version:
                        file.confirm(confirmed)

    def drop(self, path: str) -> None:
        """Forget a value."""
        with contextlib.suppress(OSError):
            os.unlink(f"{path}-0")  # noqa: PTH108

    def _open(self, path: str, flags: int) -> CacheFile | None:
        """Open a file; remove it if its header is damaged."""
        fds: list[int] = []
        try:
            open_into(fds, path, flags)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return CacheFile(path, fds[0])
        except DamageError:
            close_all(fds)
            traffic.count(cache_failures=1)
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            return None
        except BaseException:
            close_all(fds)
            raise

    def _add(self, path: str, header: tuple[str, int, float], begin: int, data: memoryview) -> None:
        with _turn(path):
            file = self._open(path, _WRITE)
            if file is None:
                self._replace(path, header, begin, data)
                return
            with contextlib.closing(file):
                if file.token == header[0]:
                    file.append(begin, data, self._make_room)
                    file.confirm(header[2])
                elif file.confirmed < header[2]:
                    self._replace(path, header, begin, data)

    def _replace(self, path: str, header: tuple[str, int, float], begin: int, data: memoryview) -> None:
        self._make_room(len(data) + _BLOCK)
        parts = new_file(path, *header, begin, data)
        folder = path.rpartition("/")[0]
        try:
            self._write_new(folder, path, parts)
        except FileNotFoundError:
            os.makedirs(self.directory, exist_ok=True)  # noqa: PTH103
            for made in (self._root, folder):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(made, 0o700)  # noqa: PTH102
            self._write_new(folder, path, parts)

    def _write_new(self, folder: str, path: str, parts: list[memoryview]) -> None:
        name = path.rpartition("/")[2]
        replace_file(None, f"{folder}/", name, parts, durable=False, path=folder, mode=0o600)

    # -- the limit

    def _make_room(self, nbytes: int) -> None:
        """Count bytes that are about to be written, and remove files if it is time to."""
        quanta = int(nbytes / max(self.max_bytes / _QUANTA, 1) + random.random())
        if not quanta:
            return
        counter = f"{self._root}/{_COUNTER}"
        fds: list[int] = []
        try:
            open_into(fds, counter, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        except FileNotFoundError:
            return
        try:
            fd = fds[0]
            os.write(fd, bytes(min(quanta, _QUANTA)))
            due = os.fstat(fd).st_size >= _QUANTA_BEFORE_EVICTION
            if due:
                os.ftruncate(fd, 0)
        finally:
            close_all(fds)
        if due:
            self.evict(self.max_bytes - self.max_bytes // 8 - min(nbytes, self.max_bytes // 4))

    def evict(self, target: int) -> None:
        """Remove the files that were used the longest ago until ``target`` bytes are left."""
        # Two scans, so that no names have to be held: there may be millions.
        used, sizes = array("d"), array("q")
        for _, status in self._scan():
            used.append(status.st_mtime)
            sizes.append(_on_disk(status.st_size))
        excess = sum(sizes) - target
        if excess <= 0:
            return
        order = np.argsort(np.frombuffer(used), kind="stable")
        freed = np.cumsum(np.frombuffer(sizes, np.int64)[order])
        latest = used[int(order[min(int(np.searchsorted(freed, excess)), len(order) - 1)])]
        for path, status in self._scan():
            if status.st_mtime <= latest and excess > 0:
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
                    excess -= _on_disk(status.st_size)

    def _scan(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield path and status of all files, also of files that killed writers left."""
        with contextlib.suppress(OSError), os.scandir(self._root) as folders:
            for folder in folders:
                with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                    for file in files:
                        with contextlib.suppress(OSError):
                            yield file.path, file.stat(follow_symlinks=False)


def _missing(begin: int, end: int, covered: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the smallest range that has all of a range that is not covered; None if all is."""
    found = gaps(begin, end, covered)
    return (found[0][0], found[-1][1]) if found else None


def _join(parts: list[memoryview]) -> Buffer:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _on_disk(nbytes: int) -> int:
    return -(-nbytes // _BLOCK) * _BLOCK


def _turn(path: str) -> Any:
    return _turns[zlib.crc32(path.encode(errors="surrogateescape")) % len(_turns)]
