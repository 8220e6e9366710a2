"""One file of a read cache: a header, and byte ranges of a value as records, each with checksums.

The header has the version and the size of the value, and when the store last confirmed the version. Records follow in
any order, without overlaps, appended by one writer at a time. Nothing is flushed to disk. Instead, every header, record
and 64 KiB of data has a checksum that also covers the file's name and a random number made with the file, so whatever a
killed writer, a full disk or a loss of power leaves is recognised: what follows a damaged record is cut off by the next
writer, and damaged data is an error, upon which the file is to be removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import struct
import time
import zlib
from bisect import bisect_right, insort
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from ..guarded import ForkSafeLock
from .atomic_files import write_all
from .file_locks import brief_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    # First byte and end in the value, and position in the file.
    Record = tuple[int, int, int]

#: Bytes of data that have a checksum of their own.
PART_BYTES: Final = 64 << 10
#: Most bytes of a record.
SEGMENT_BYTES: Final = 16 << 20
# The time of last use is updated when it is older than this.
_TOUCH_S: Final = 1.0
# How long a writer waits for another one before it leaves its data out.
_LOCK_S: Final = 1.0
# Bytes that are read at once from the beginning of a file.
_BLOCK: Final = 4096
_MAGIC: Final = b"gzcache1"
# Magic number, random number, size of the value (-1 if unknown), bytes of the version, checksum.
_HEADER: Final = struct.Struct("<8s8sqII")
# Time of the confirmation in seconds since 1970, and its checksum. It is overwritten in place.
_CONFIRMED: Final = struct.Struct("<dI")
_VERSION_AT: Final = _HEADER.size + _CONFIRMED.size
# Checksum, first byte and number of bytes; the checksums of the parts follow, then the data.
_RECORD: Final = struct.Struct("<Iqq")
# Records of files with many, by path: the file's random number, the records, and where the next one begins.
_known: OrderedDict[str, tuple[bytes, Sequence[Record], int]] = OrderedDict()
# Held while they are changed or counted; one is looked up without it.
_lock = ForkSafeLock()
_MOST_KNOWN: Final = 1000
_MOST_RECORDS_KNOWN: Final = 100_000
_FEW_RECORDS: Final = 8

if hasattr(os, "register_at_fork"):
    # A handler of a signal may fork in the middle of a change.
    os.register_at_fork(after_in_child=_known.clear)


class DamageError(Exception):
    """The file at the path given as argument is damaged."""


class CacheFile:
    """An open file of the cache."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        status = os.fstat(fd)
        begin = os.read(fd, _BLOCK)
        if len(begin) < _VERSION_AT:
            raise DamageError(path)
        magic, self._nonce, size, length, checksum = _HEADER.unpack_from(begin)
        self._seed = _seed(path, self._nonce)
        first = _VERSION_AT + length
        if magic != _MAGIC or first > len(begin):
            raise DamageError(path)
        token = begin[_VERSION_AT:first]
        if checksum != _header_checksum(self._seed, size, token):
            raise DamageError(path)
        self.token: str = token.decode()
        self.version: Hashable = decode_version(self.token)
        self.size: int | None = None if size < 0 else size
        time_, checksum = _CONFIRMED.unpack_from(begin, _HEADER.size)
        # Of a torn update, nothing is known.
        self.confirmed: float = time_ if checksum == _confirmation(self._seed, time_) else 0.0
        known = _known.get(path)
        # In order. A list that others may have is never changed.
        self._records: Sequence[Record] = ()
        self._end = first
        if known is not None and known[0] == self._nonce and known[2] <= status.st_size:
            _, self._records, self._end = known
        self._parse(begin, status.st_size)
        if time.time() - status.st_mtime > _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(path)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _at(self, position: int, nbytes: int) -> bytes:
        os.lseek(self._fd, position, os.SEEK_SET)
        data = os.read(self._fd, nbytes)
        while len(data) < nbytes and (more := os.read(self._fd, nbytes - len(data))):
            data += more
        return data

    def _parse(self, begin: bytes, size: int) -> None:
        """Read the headers of further records up to the end, or to the first that is not complete."""
        at = self._end
        if at >= size:
            return
        records = list(self._records)
        while at < size:
            head = begin[at : at + _RECORD.size] if at + _RECORD.size <= len(begin) else self._at(at, _RECORD.size)
            if len(head) < _RECORD.size:
                break
            _, first, length = _RECORD.unpack(head)
            data_at = at + _RECORD.size + 4 * _part_count(length)
            if not 0 < length <= SEGMENT_BYTES or first < 0 or data_at + length > size:
                break
            whole = begin[at:data_at] if data_at <= len(begin) else self._at(at, data_at - at)
            if not _is_record(self._seed, whole) or _within(records, first, first + length):
                break
            insort(records, (first, first + length, at))
            at = data_at + length
        self._records, self._end = records, at
        if len(records) > _FEW_RECORDS:
            self._remember()

    def _remember(self) -> None:
        # The handler of a signal may change them here, too.
        with _lock.lock, contextlib.suppress(KeyError):
            _known[self._path] = (self._nonce, self._records, self._end)
            _known.move_to_end(self._path)
            while len(_known) > _MOST_KNOWN or sum(len(v[1]) for v in list(_known.values())) > _MOST_RECORDS_KNOWN:
                _known.popitem(last=False)

    def within(self, begin: int, end: int) -> list[Record]:
        """Return the records that have bytes of a range, in order."""
        return _within(self._records, begin, end)

    def read(self, record: Record, begin: int, end: int) -> memoryview:
        """Return bytes ``begin`` to ``end`` of the value, which are in ``record``.

        Raises
        ------
        DamageError
            If they are not what was written.
        """
        if end <= begin:
            return memoryview(b"")
        first, last, at = record
        count = _part_count(last - first)
        head = self._at(at, _RECORD.size + 4 * count)
        if len(head) < _RECORD.size + 4 * count or not _is_record(self._seed, head):
            raise DamageError(self._path)
        # Another record may be there now, after one before it was damaged and another process has written on.
        if _RECORD.unpack_from(head)[1:] != (first, last - first):
            raise DamageError(self._path)
        checksums = struct.unpack_from(f"<{count}I", head, _RECORD.size)
        a, b = (begin - first) // PART_BYTES, -(-(end - first) // PART_BYTES)
        skipped = a * PART_BYTES
        nbytes = min(b * PART_BYTES, last - first) - skipped
        data = memoryview(self._at(at + len(head) + skipped, nbytes))
        parts = (data[i * PART_BYTES : (i + 1) * PART_BYTES] for i in range(b - a))
        if len(data) < nbytes or any(zlib.crc32(part) != checksums[a + i] for i, part in enumerate(parts)):
            raise DamageError(self._path)
        return data[begin - first - skipped : end - first - skipped]

    def append(self, begin: int, data: memoryview, make_room: Callable[[int], None]) -> None:
        """Append what is not yet there of a byte range, unless another process holds the file for long."""
        with brief_lock(self._fd, _LOCK_S) as locked:
            if not locked or not self._is_in_place():
                return
            size = os.fstat(self._fd).st_size
            self._parse(b"", size)
            parts: list[memoryview] = []
            for a, b in gaps(begin, begin + len(data), [(a, b) for a, b, _ in self.within(begin, begin + len(data))]):
                parts += _record(self._seed, a, data[a - begin : b - begin])
            if not parts:
                return
            make_room(sum(map(len, parts)))
            if size > self._end:
                # What a killed writer left.
                os.ftruncate(self._fd, self._end)
            try:
                os.lseek(self._fd, self._end, os.SEEK_SET)
                write_all(self._fd, parts)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._end)
                raise

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def confirm(self, confirmed: float) -> None:
        """Note that the store has confirmed the version."""
        if confirmed > self.confirmed:
            os.lseek(self._fd, _HEADER.size, os.SEEK_SET)
            os.write(self._fd, _CONFIRMED.pack(confirmed, _confirmation(self._seed, confirmed)))


# -- the format


def encode_version(version: Hashable | None) -> str | None:
    """Return a version as text, or None if it cannot be written down."""
    try:
        token = json.dumps(version)
    except (TypeError, ValueError):
        return None
    return token if version is not None and len(token) < 1024 and decode_version(token) == version else None


def decode_version(token: str) -> Hashable:
    """Return the version that a text stands for."""
    version: Hashable = _with_tuples(json.loads(token))
    return version


def _with_tuples(version: Any) -> Any:
    return tuple(map(_with_tuples, version)) if isinstance(version, list) else version


def _seed(path: str, nonce: bytes) -> int:
    """Return the beginning of checksums, by which data of another file is told apart, wherever the cache lies."""
    return zlib.crc32(nonce, zlib.crc32("/".join(path.rsplit("/", 2)[1:]).encode()))


def _header_checksum(seed: int, size: int, token: bytes) -> int:
    return zlib.crc32(token, zlib.crc32(struct.pack("<qI", size, len(token)), seed))


def _confirmation(seed: int, confirmed: float) -> int:
    return zlib.crc32(struct.pack("<d", confirmed), seed)


def new_file(path: str, token: str, size: int, confirmed: float, begin: int, data: memoryview) -> list[memoryview]:
    """Return the content of a new file, in parts.

    Parameters
    ----------
    path
        Path that it will have.
    token, size
        Version as text (:func:`encode_version`), and size of the value in bytes, -1 if unknown.
    confirmed
        When the store confirmed the version, in seconds since 1970.
    begin, data
        First byte of the first record in the value, and its bytes; no bytes for no record.
    """
    nonce = secrets.token_bytes(8)
    seed, text = _seed(path, nonce), token.encode()
    header = _HEADER.pack(_MAGIC, nonce, size, len(text), _header_checksum(seed, size, text))
    header += _CONFIRMED.pack(confirmed, _confirmation(seed, confirmed)) + text
    return [memoryview(header), *(_record(seed, begin, data) if len(data) else [])]


def _part_count(nbytes: int) -> int:
    return -(-nbytes // PART_BYTES)


def _record(seed: int, begin: int, data: memoryview) -> list[memoryview]:
    """Return the header of a record, with the checksums of its parts, and its data."""
    checksums = [zlib.crc32(data[i : i + PART_BYTES]) for i in range(0, len(data), PART_BYTES)]
    rest = struct.pack(f"<qq{len(checksums)}I", begin, len(data), *checksums)
    return [memoryview(struct.pack("<I", zlib.crc32(rest, seed)) + rest), data]


def _is_record(seed: int, head: bytes) -> bool:
    """Return whether this is the whole header of a record of this file."""
    return bool(zlib.crc32(head[4:], seed) == struct.unpack_from("<I", head)[0])


def _within(records: Sequence[Record], begin: int, end: int) -> list[Record]:
    """Return the records that have bytes of a range, of some that are in order."""
    i = max(bisect_right(records, (begin,)) - 1, 0)
    found = []
    while i < len(records) and records[i][0] < end:
        if records[i][1] > begin:
            found.append(records[i])
        i += 1
    return found


def gaps(begin: int, end: int, covered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a range that ranges in order, without overlaps, do not cover."""
    found = []
    at = begin
    for a, b in covered:
        if a > at:
            found.append((at, a))
        at = max(at, b)
    return [*found, (at, end)] if at < end else found
