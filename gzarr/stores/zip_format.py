"""Records of zip archives: the directory at the end of a file, the header before each entry, compressed entries.

Specification: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (6.3.9), sections 4.3 and 4.5. Everything in
a record is untrusted: offsets and sizes are checked against the file before anything is read or allocated.
"""

from __future__ import annotations

import bz2
import contextlib
import re
import struct
import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..distinct import distinct
from .sorted_keys import changed_keys, children_of, keys_below, sorted_keys

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from .base import Listing

    IntArray = npt.NDArray[np.int64]

#: Bytes at the end of a file in which its directory's end must be: a comment and the records before it.
TAIL_BYTES: Final = 65535 + 22 + 20 + 56
#: Most bytes of a directory; about 100 bytes are an entry.
MOST_DIRECTORY_BYTES: Final = 256 << 20
#: Bytes of the header of an entry, without name and extra fields.
HEADER_BYTES: Final = 30
STORED: Final = 0
DEFLATED: Final = 8
BZIP2: Final = 12
#: Flag of encrypted entries.
ENCRYPTED: Final = 0x1

#: Columns of :attr:`Directory.columns`: offset of the entry's header, bytes of its data as stored and as a value,
#: CRC-32 of the value, method, flags, bytes of its name, first byte that is no longer its own, offset of its data (-1
#: if its header has not been read), offset and bytes of its record in the raw directory (0 bytes if it has none).
HEADER, PACKED, SIZE, CRC, METHOD, FLAGS, NAME, LIMIT, DATA, RECORD, RECORD_BYTES = range(11)

_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
#: The least size or offset that a record has in a field of zip64.
_U4: Final = 0xFFFFFFFF
_UTF8: Final = 0x800
# Flag of entries whose CRC-32 and sizes are behind their data.
_SIZES_FOLLOW: Final = 0x8
# Versions of the format that a reader needs: for folders and deflate, and for zip64.
_ZIP: Final = 20
_ZIP64: Final = 45
_MOST: Final = 1 << 62
# Methods that may be met, for messages.
_METHODS: Final = {1: "shrink", 6: "implode", 9: "deflate64", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}
# Deflate packs at most 1,032 bytes into one (bzip2 more, about 45 MB of zeros into 113 bytes).
_MOST_RATIO: Final = {DEFLATED: 1032, BZIP2: 1 << 20}
# Names that are no keys: absolute, with empty, "." or ".." segments, with NUL; directories end in a slash.
_NO_KEY: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\0")
# Where a directory may have an extra field 0x7075 (APPNOTE 4.6.9): a name in UTF-8, beside one in another code.
_UNICODE_NAME: Final = re.compile(rb"up..\x01", re.DOTALL)


class ZipFormatError(Exception):
    """A record is invalid; the message says what is wrong with it."""


class CentralDirectory:
    """The directory of an archive.

    Attributes
    ----------
    rows
        Row of each key in ``columns``. Of entries with the same name, the last one.
    others
        Name and row of each entry that is no key. Writers keep them.
    columns
        int64 ``(11, capacity)``.
    raw
        The directory as it is in the file; empty if that was not asked for.
    begin
        Offset of the directory in the file.
    shift
        Bytes before the archive in the file, which offsets in the archive do not count.
    comment
        Comment of the archive.
    version
        Version of the file.
    nbytes
        Most bytes that the directory will have when it is written.
    """

    def __init__(self, version: Hashable | None = None) -> None:
        self.rows: dict[str, int] = {}
        self.others: list[tuple[str, int]] = []
        self.columns: IntArray = np.zeros((11, 0), np.int64)
        self.raw = b""
        self.begin = 0
        self.shift = 0
        self.comment = b""
        self.version = version
        self.nbytes: int = 0
        self._count = 0
        # Names of entries, by row, that their headers have in another spelling than the key's.
        self._raw_names: dict[int, bytes] = {}
        # Keys that were added or removed, in order, and the sorted keys after so many of these changes (-1: unknown).
        self._changed: list[str] = []
        self._sorted: tuple[int, list[str]] = (-1, [])

    def add(self, name: str, entry: Iterable[int]) -> None:
        """Add an entry; it replaces an earlier one of the same name."""
        row = self._count
        if row == self.columns.shape[1]:
            # Readers in other threads keep the old array, in which their rows are.
            larger = np.zeros((11, max(64, 2 * row)), np.int64)
            larger[:, :row] = self.columns
            self.columns = larger
        columns = list(entry)
        self.columns[:, row] = columns
        self._count += 1
        self.nbytes += record_nbytes(columns)
        if name in self.rows:
            freed = self.record_nbytes_of(name)
            self.rows[name] = row
            self.nbytes -= freed
            return
        # Before, since an interrupt may come right after the change; and after it, since another thread may have
        # listed without the name in between.
        self._changed.append(name)
        self.rows[name] = row
        self._changed.append(name)

    def copy(self, version: Hashable | None) -> CentralDirectory:
        """Return a directory with the same entries and comment, without the raw one."""
        other = CentralDirectory(version)
        other.rows, other.columns, other._count = dict(self.rows), self.columns.copy(), self._count
        other.others, other.comment = self.others, self.comment
        other.nbytes, other._raw_names = self.nbytes, self._raw_names
        return other

    def remove(self, name: str) -> None:
        """Remove an entry."""
        if name in self.rows:
            freed = self.record_nbytes_of(name)
            # As in ``add``.
            self._changed.append(name)
            self.rows.pop(name, None)
            self._changed.append(name)
            self.nbytes -= freed

    def record_nbytes_of(self, name: str) -> int:
        """Return the bytes that the record of an entry has in the directory; 0 if there is no such entry."""
        row = self.rows.get(name, -1)
        return record_nbytes(self.columns[:, row].tolist()) if row >= 0 else 0

    def names(self) -> list[str]:
        """Return all keys, sorted; not to be changed. Other entries, which are no keys, are left out."""
        count = len(self._changed)
        done, names = self._sorted
        if done != count:
            # A writer lists after every node that it creates.
            now = changed_keys(names, set(self._changed[done:count]), self.rows) if done >= 0 else None
            # Making a list is one step, so that no other thread can change the dictionary meanwhile.
            names = sorted_keys(list(self.rows)) if now is None else now
            self._sorted = count, names
        return names

    def below(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with a prefix, sorted."""
        return keys_below(self.names(), prefix)

    def children(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, each sorted."""
        return children_of(self.names(), prefix)

    def find(self, keys: Iterable[str], count: int) -> IntArray:
        """Return the row of each key, -1 for absent ones."""
        get = self.rows.get
        return np.fromiter((get(key, -1) for key in keys), np.int64, count)

    def name_of(self, row: int, key: str) -> bytes:
        """Return the name of an entry as its header has it."""
        raw = self._raw_names.get(row)
        return encoded_name(key, int(self.columns[FLAGS, row])) if raw is None else raw


def encoded_name(name: str, flags: int) -> bytes:
    """Return a name as records have it."""
    return name.encode("utf-8" if flags & _UTF8 else "cp437")


def record_nbytes(entry: Sequence[int]) -> int:
    """Return the bytes that the record of an entry has in the directory, given its columns."""
    if entry[RECORD_BYTES]:
        return entry[RECORD_BYTES]
    large = sum(value >= _U4 for value in entry[: SIZE + 1])
    return _CENTRAL.size + entry[NAME] + (4 + 8 * large if large else 0)


def find_directory(tail: bytes, nbytes: int | None) -> tuple[int, int, int, int]:
    """Find the directory of an archive.

    Parameters
    ----------
    tail
        The last :data:`TAIL_BYTES` bytes of the file, or all of it.
    nbytes
        Size of the file; None if unknown, in which case the archive must begin where the file does.

    Returns
    -------
    after
        Bytes of the file from the end of the directory on.
    directory_nbytes
        Bytes of the directory.
    begin
        Offset of the directory in the archive.
    count
        Number of entries, as the archive says.
    """
    at = _last_record(tail)
    _, disk, first_disk, _, count, directory_nbytes, begin, _ = _END.unpack_from(tail, at)
    end = at
    locator = at - _LOCATOR_64.size
    if locator >= 0 and tail[locator : locator + 4] == b"PK\6\7":
        record = locator - _END_64.size
        if record < 0 or tail[record : record + 4] != b"PK\6\6":
            raise ZipFormatError("the zip64 record at its end is missing or has fields that are not known")
        _, _, _, _, disk, first_disk, _, count, directory_nbytes, begin = _END_64.unpack_from(tail, record)
        end = record
    if disk != 0 or first_disk != 0:
        raise ZipFormatError("it is one part of an archive of several files")
    after = len(tail) - end
    if _has_padding(tail, at) and nbytes is not None and begin + directory_nbytes + after != nbytes:
        # It may be an archive in one that was cut off, at which a file with room for the rest was begun.
        raise ZipFormatError("there are bytes after its end, and others before its beginning")
    if directory_nbytes > MOST_DIRECTORY_BYTES:
        raise ZipFormatError(f"its directory has {directory_nbytes} bytes; at most {MOST_DIRECTORY_BYTES} are read")
    if begin > _MOST or (nbytes is not None and begin + directory_nbytes + after > nbytes):
        raise ZipFormatError(f"its directory, {directory_nbytes} bytes from byte {begin} on, is not in the file")
    if count * _CENTRAL.size > directory_nbytes:
        raise ZipFormatError(f"its directory has {directory_nbytes} bytes, too few for {count} entries")
    return after, directory_nbytes, begin, count


def _last_record(tail: bytes) -> int:
    """Return where the last record of an archive begins in the end of its file."""
    stop, solid = len(tail), len(tail.rstrip(b"\0"))
    padded: int | None = None
    while (at := tail.rfind(b"PK\5\6", 0, stop)) >= 0:
        if at + _END.size <= len(tail):
            end = _end_of_comment(tail, at)
            # The comment ends where the file does.
            if end == len(tail):
                return at
            # Some media and programs fill the last block with zeros.
            if padded is None and solid <= end < len(tail):
                padded = at
        stop = at + 3
    if padded is not None:
        return padded
    raise ZipFormatError("it does not end as a zip file does: truncated, still being written, or no zip file")


def _end_of_comment(tail: bytes, at: int) -> int:
    nbytes: int = _END.unpack_from(tail, at)[7]
    return at + _END.size + nbytes


def _has_padding(tail: bytes, at: int) -> bool:
    return _end_of_comment(tail, at) != len(tail)


def comment_of(tail: bytes) -> bytes:
    """Return the comment of an archive, given the end of its file."""
    at = _last_record(tail)
    return tail[at + _END.size : _end_of_comment(tail, at)]


def read_directory(
    raw: bytes, begin: int, count: int, *, shift: int, version: Hashable | None, keep: bool
) -> CentralDirectory:
    """Parse a directory.

    Parameters
    ----------
    raw
        The directory.
    begin, count
        As from :func:`find_directory`.
    shift
        Bytes before the archive in the file.
    version
        Version of the file.
    keep
        Whether the directory will be written again.
    """
    found = CentralDirectory(version)
    found.begin, found.shift, found.nbytes = begin + shift, shift, len(raw)
    has_names = _UNICODE_NAME.search(raw) is not None
    entries: list[tuple[int, ...]] = []
    unpack, size, end, at = _CENTRAL.unpack_from, _CENTRAL.size, len(raw), 0
    while at + size <= end:
        (
            signature, _, _, flags, method, _, _, crc, packed, nbytes, name, extra, comment, _, _, _, header,
        ) = unpack(raw, at)  # fmt: skip
        if signature != b"PK\1\2":
            break
        first = at + size
        after = first + name + extra + comment
        if after > end:
            break
        if header == _U4 or packed == _U4 or nbytes == _U4:
            fields = raw[first + name : first + name + extra]
            nbytes, packed, header = _zip64(fields, nbytes, packed, header)
        try:
            key = raw[first : first + name].decode("utf-8" if flags & _UTF8 else "cp437")
        except UnicodeDecodeError:
            raise ZipFormatError(f"a name in its directory is not UTF-8: {raw[first : first + name][:80]!r}") from None
        if has_names and not flags & _UTF8:
            spelled, unicode = raw[first : first + name], _field(raw[first + name : first + name + extra], 0x7075)
            # It is of this name, and not of one before the entry was renamed.
            if unicode[:5] == struct.pack("<BL", 1, zlib.crc32(spelled)):
                with contextlib.suppress(UnicodeDecodeError):
                    key = unicode[5:].decode()
                    found._raw_names[len(entries)] = spelled
        if not _NO_KEY.search(key):
            found.rows[key] = len(entries)
        elif keep:
            found.others.append((key, len(entries)))
        entries.append((header + shift, packed, nbytes, crc, method, flags, name, 0, -1, at, after - at))
        at = after
    # Archives of more than 65,535 entries without zip64 exist.
    if at != end or (len(entries) - count) % 65536:
        raise ZipFormatError(f"its directory is damaged: {len(entries)} of {count} entries can be read")
    columns = np.array(entries, np.int64).reshape(-1, 11).T.copy()
    starts = np.append(distinct(columns[HEADER]), found.begin)
    columns[LIMIT] = np.minimum(starts[np.searchsorted(starts[:-1], columns[HEADER], side="right")], found.begin)
    found.columns = columns
    found._count = len(entries)
    if keep:
        found.raw = raw
    return found


def _zip64(fields: bytes, *values: int) -> tuple[int, int, int]:
    """Return size, packed size and header offset, from the extra field for those that do not fit in four bytes."""
    field, wanted = _field(fields, 1), sum(value == _U4 for value in values)
    # Exactly this many bytes are possible without zip64.
    size, packed, header = values
    if len(field) >= 8 * wanted:
        large = iter(struct.unpack_from(f"<{wanted}Q", field))
        size, packed, header = (next(large) if value == _U4 else value for value in values)
        if max(size, packed, header) > _MOST:
            raise ZipFormatError("an entry of its directory has an impossible size or offset")
    return size, packed, header


def _field(fields: bytes, wanted: int) -> bytes:
    """Return what is in the first extra field of a kind; empty if there is none, or not all of it."""
    at = 0
    while at + 4 <= len(fields):
        kind, nbytes = struct.unpack_from("<2H", fields, at)
        at += 4
        if kind == wanted:
            return fields[at : at + nbytes] if at + nbytes <= len(fields) else b""
        at += nbytes
    return b""


def check_entry(columns: IntArray, row: int) -> None:
    """Refuse an entry that cannot be read, by its record in the directory."""
    header, packed, size, _, method, flags, name, limit = columns[:8, row].tolist()
    if flags & ENCRYPTED:
        raise ZipFormatError("it is encrypted, which is not supported")
    if method not in (STORED, DEFLATED, BZIP2):
        what = f"{_METHODS[method]}, " if method in _METHODS else ""
        raise ZipFormatError(
            f"it is compressed by {what}method {method} of zip; supported are stored and deflated entries: write the "
            "archive without compression (zip -0)"
        )
    if header + HEADER_BYTES + name + packed > limit:
        raise ZipFormatError(f"its {packed} bytes from byte {header} on overlap with something else, or leave the file")
    if method == STORED and packed != size:
        raise ZipFormatError(f"it is stored, but has {packed} bytes in the archive and {size} without it")
    if method != STORED and size > packed * _MOST_RATIO[method]:
        raise ZipFormatError(f"its {packed} bytes cannot unpack to {size} bytes")


def data_offset(header: Any, name: bytes, columns: IntArray, row: int, *, same_crc: bool = False) -> int:
    """Return the offset of an entry's data in the file, given the first bytes of the entry.

    With ``same_crc``, the header must also have the CRC-32 that the directory has, unless it stands behind the data.
    """
    at, packed, limit = int(columns[HEADER, row]), int(columns[PACKED, row]), int(columns[LIMIT, row])
    if len(header) < HEADER_BYTES + len(name):
        raise ZipFormatError("its header is truncated")
    signature, _, flags, method, _, _, crc, *_, name_nbytes, extra_nbytes = _LOCAL.unpack_from(header)
    if signature != b"PK\3\4" or name_nbytes != len(name) or header[HEADER_BYTES : HEADER_BYTES + len(name)] != name:
        raise ZipFormatError(f"there is no header of it at byte {at}: the archive is damaged")
    is_other = same_crc and not flags & _SIZES_FOLLOW and crc != columns[CRC, row]
    if is_other or method != columns[METHOD, row]:
        raise ZipFormatError("its header and the directory disagree: the archive is damaged")
    begin: int = at + HEADER_BYTES + name_nbytes + extra_nbytes
    if begin + packed > limit:
        raise ZipFormatError(f"its {packed} bytes from byte {begin} on overlap with something else, or leave the file")
    return begin


def is_tight(columns: IntArray, rows: IntArray) -> Any:
    """Return of which entries the data begin right after the name, because there is no room for anything else."""
    room = columns[LIMIT, rows] - columns[HEADER, rows]
    return room == HEADER_BYTES + columns[NAME, rows] + columns[PACKED, rows]


def unpacked(data: Any, columns: IntArray, row: int) -> Any:
    """Return the value of an entry, given its data; its size and its CRC-32 are checked.

    At most the declared size is made, and one byte.
    """
    method, size = int(columns[METHOD, row]), int(columns[SIZE, row])
    value = data
    if method != STORED:
        stream: Any = zlib.decompressobj(-15) if method == DEFLATED else bz2.BZ2Decompressor()
        parts, missing, given = [], size + 1, data
        try:
            while missing > 0 and not stream.eof:
                part = stream.decompress(given, missing)
                given = stream.unconsumed_tail if method == DEFLATED else b""
                if not part and not given:
                    break
                parts.append(part)
                missing -= len(part)
        except (zlib.error, OSError, ValueError, EOFError) as error:
            raise ZipFormatError(f"it cannot be decompressed: {error}") from None
        value = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(value) != size or not stream.eof or stream.unused_data:
            more = "more" if len(value) > size else f"{len(value)}"
            raise ZipFormatError(f"it decompresses to {more} bytes instead of {size}: damaged")
    if zlib.crc32(value) != columns[CRC, row]:
        raise ZipFormatError("it does not match its CRC-32: damaged")
    return value


# -- writing


def dos_time(seconds: float) -> tuple[int, int]:
    """Return time and date as records have them, in local time."""
    year, month, day, hour, minute, second, *_ = time.localtime(seconds)
    return hour << 11 | minute << 5 | second // 2, max(year - 1980, 0) << 9 | month << 5 | day


def _flags(name: str) -> int:
    return 0 if name.isascii() else _UTF8


def local_header(name: str, nbytes: int, crc: int, when: tuple[int, int], *, zip64: bool = False) -> bytes:
    """Return the header of a stored entry; with ``zip64``, one that says that it needs it whatever its size."""
    return _header(name, (nbytes, nbytes, crc, STORED, _flags(name)), when, zip64)


def _header(name: str, entry: Sequence[int], when: tuple[int, int], zip64: bool) -> bytes:
    packed, nbytes, crc, method, flags = entry
    raw = encoded_name(name, flags)
    large = max(packed, nbytes) >= _U4
    extra = struct.pack("<2H2Q", 1, 16, nbytes, packed) if large else b""
    sizes = (_U4, _U4) if large else (packed, nbytes)
    needed = _ZIP64 if large or zip64 else _ZIP
    fields = (b"PK\3\4", needed, flags, method, *when, crc, *sizes, len(raw), len(extra))
    return _LOCAL.pack(*fields) + raw + extra


def new_entry(name: str, header: int, prefix_nbytes: int, nbytes: int, crc: int) -> tuple[int, ...]:
    """Return the columns of a stored entry that has been written."""
    data, flags = header + prefix_nbytes, _flags(name)
    raw = len(encoded_name(name, flags))
    return header, nbytes, nbytes, crc, STORED, flags, raw, data + nbytes, data, 0, 0


def moved_header(name: str, columns: IntArray, row: int, when: tuple[int, int]) -> bytes:
    """Return a header for an entry that is copied to another archive, as it is stored, without other fields.

    It says that it needs zip64, and has the sizes that may have stood behind the data.
    """
    packed, nbytes, crc, method, flags = columns[PACKED : FLAGS + 1, row].tolist()
    return _header(name, (packed, nbytes, crc, method, _moved_flags(name, flags)), when, True)


def moved_entry(name: str, columns: IntArray, row: int, header: int, prefix_nbytes: int) -> tuple[int, ...]:
    """Return the columns of an entry that was copied to another archive with :func:`moved_header`."""
    packed, nbytes, crc, method, flags = columns[PACKED : FLAGS + 1, row].tolist()
    data, flags = header + prefix_nbytes, _moved_flags(name, flags)
    raw = len(encoded_name(name, flags))
    return header, packed, nbytes, crc, method, flags, raw, data + packed, data, 0, 0


def _moved_flags(name: str, flags: int) -> int:
    """Return the flags of an entry that is copied, whose name then is in UTF-8."""
    return flags & ~(_SIZES_FOLLOW | _UTF8) | _flags(name)


def central_record(name: str, columns: IntArray, row: int, when: tuple[int, int], *, zip64: bool = False) -> bytes:
    """Return the record of an entry for the directory; with ``zip64``, one that says that it needs it."""
    header, packed, nbytes, crc, method, flags = columns[: FLAGS + 1, row].tolist()
    raw = encoded_name(name, flags)
    large = [value for value in (nbytes, packed, header) if value >= _U4]
    extra = struct.pack(f"<2H{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    needed = _ZIP64 if large or zip64 else _ZIP
    fields = (
        b"PK\1\2", 3 << 8 | needed, needed, flags, method, *when, crc, min(packed, _U4), min(nbytes, _U4), len(raw),
        len(extra), 0, 0, 0, 0o100644 << 16, min(header, _U4),
    )  # fmt: skip
    return _CENTRAL.pack(*fields) + raw + extra


def end_records(begin: int, nbytes: int, count: int, *, zip64: bool = False, comment: bytes = b"") -> bytes:
    """Return what follows the directory; with ``zip64``, with its records whatever the sizes."""
    large = zip64 or begin >= _U4 or nbytes >= _U4 or count >= 0xFFFF
    more = b""
    if large:
        more = _END_64.pack(b"PK\6\6", _END_64.size - 12, 3 << 8 | _ZIP64, _ZIP64, 0, 0, count, count, nbytes, begin)
        more += _LOCATOR_64.pack(b"PK\6\7", 0, begin + nbytes, 1)
    short = min(count, 0xFFFF)
    end = _END.pack(b"PK\5\6", 0, 0, short, short, min(nbytes, _U4), min(begin, _U4), len(comment))
    return more + end + comment
