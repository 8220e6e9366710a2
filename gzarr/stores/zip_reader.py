"""Values in a zip archive, wherever the archive is: a local file, or a value of another store.

A stored entry is a byte range of the archive, so engines read it from there like a chunk of a shard
(:class:`gzarr.stores.base.PackedValues`). Where the bytes of an entry begin is only in the header before them: a local
file's headers are read and checked when their entries are first needed; a remote one's come with the entry, in one
request.

CRC-32 is checked where a value is read whole by :meth:`ZipReader.get`, and for each whole value of a remote archive
(about 0.5 ms per MiB). Engines that read ranges of a local archive do not check it, as nothing is checked in a
directory: it would double the time of an uncompressed read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import numpy as np

from ..errors import ArgumentError, NodeNotFoundError, StoreError, ValueReplacedError, ValueSizeError
from . import io_threads, ozx, zip_format
from . import zip_format as z
from .base import Answer, ByteRange, Extents, RequestLimits
from .byte_ranges import check_range, resolve_range
from .file_tree import FreshVersion
from .keys import split_key, split_prefix
from .zip_files import RemoteFile
from .zip_format import CentralDirectory, ZipFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from .base import Listing, ReadableStore, RemoteValues, Request
    from .zip_files import ArchiveFile

    T = TypeVar("T")
    IntArray = npt.NDArray[np.int64]

#: Bytes of extra fields in a header for which there is room in the request for an entry; writers need 0 to 60.
SLACK_BYTES: Final = 256
#: How often something is read again because the archive was replaced meanwhile.
MOST_ATTEMPTS: Final = 10


class ZipReader:
    """Values in an archive, for reading.

    Parameters
    ----------
    file
        The archive.
    keep
        Whether to keep the directory as it is in the file, to write it again.
    """

    read_only = True

    def __init__(self, file: ArchiveFile, *, keep: bool = False) -> None:
        # One attribute, so that threads see a directory with the file that it is of.
        self._state: tuple[ArchiveFile, CentralDirectory | None] = (file, None)
        self._keep = keep

    def __repr__(self) -> str:
        return f"<gzarr.ZipStore in {self._state[0]!r}>"

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, ZipReader) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self._state[0].key))

    def _identity(self) -> tuple[Any, ...]:
        file = self._state[0]
        return type(self), file.key, file.store

    # -- the directory

    def _open(self) -> tuple[ArchiveFile, CentralDirectory]:
        """Return the archive's file and its directory, which is read again if the file was replaced."""
        file, held = self._state
        if held is None or not file.is_current(held.version):
            return self._reload()
        return file, held

    def _reload(self) -> tuple[ArchiveFile, CentralDirectory]:
        file = self._state[0]
        for _ in range(MOST_ATTEMPTS):
            try:
                directory = self._load(file)
            except ValueReplacedError:
                continue
            self._state = (file, directory)
            return file, directory
        raise StoreError(f"{self!r}: it was replaced each of {MOST_ATTEMPTS} times that it was opened; try again later")

    def _load(self, file: ArchiveFile) -> CentralDirectory:
        found = file.end(z.TAIL_BYTES)
        if found is None:
            raise NodeNotFoundError(f"there is no zip archive: {file!r} does not exist")
        tail, size, version = found
        try:
            after, nbytes, begin, count = zip_format.find_directory(tail, size)
            shift = 0 if size is None else size - after - nbytes - begin
            if after + nbytes <= len(tail):
                raw = tail[len(tail) - after - nbytes : len(tail) - after]
            else:
                (data,) = file.read([(begin + shift, nbytes)], version)
                raw = bytes(data)
            directory = zip_format.read_directory(raw, begin, count, shift=shift, version=version, keep=self._keep)
        except (ZipFormatError, ValueSizeError) as error:
            raise StoreError(f"{self!r} cannot be opened as a zip archive: {error}") from error
        directory.comment = zip_format.comment_of(tail)
        return directory

    def broken_rules(self) -> list[str]:
        """Return the rules of OME-Zarr in one file that an ``.ozx`` file breaks; none of another archive.

        Raises
        ------
        StoreError
            If the archive cannot be read.
        """
        file, directory = self._open()
        if not ozx.is_ozx(file.key):
            return []
        found = file.end(z.TAIL_BYTES)
        if found is None:
            raise NodeNotFoundError(f"there is no zip archive: {file!r} does not exist")
        try:
            return ozx.broken_rules(directory, zip_format.comment_of(found[0]))
        except ZipFormatError as error:
            raise StoreError(f"{self!r} cannot be opened as a zip archive: {error}") from error

    def _trying(self, work: Callable[[ArchiveFile, CentralDirectory], T]) -> T:
        """Return the result of something that reads; try again with a new directory if the file was replaced."""
        for _ in range(MOST_ATTEMPTS):
            file, directory = self._open()
            try:
                return work(file, directory)
            except ValueReplacedError:
                self.forget(directory.version)
            except ValueSizeError:
                # The archive may be shorter than before.
                if not self._is_another(file, directory):
                    raise
                self.forget(directory.version)
        raise ValueReplacedError(f"{self!r}: it was replaced during each of {MOST_ATTEMPTS} reads; try again later")

    def _is_another(self, file: ArchiveFile, directory: CentralDirectory) -> bool:
        """Return whether a file without versions now has another directory; False for others, which say so."""
        if directory.version is not None:
            return False
        now = self._load(file)
        return now.rows != directory.rows or not np.array_equal(now.columns[: z.DATA], directory.columns[: z.DATA])

    def is_current(self, version: Hashable | None) -> bool:
        """Return whether the archive still has this version, as far as that can be told without a request."""
        file, held = self._state
        return held is not None and held.version == version and file.is_current(version)

    def forget(self, version: Hashable | None) -> None:
        """Read the directory again before the next value, if it is of this version."""
        file, held = self._state
        if held is not None and held.version == version:
            self._state = (file, None)

    # -- entries

    def _fail(self, key: str, error: Exception) -> NoReturn:
        raise StoreError(f"{self!r}: cannot read {key!r}: {error}", key=key) from error

    def _refuse(self, file: ArchiveFile, directory: CentralDirectory, key: str, error: ZipFormatError) -> NoReturn:
        """Raise the error of an entry that is not where the directory says: the archive is damaged, or another one."""
        if self._is_another(file, directory):
            raise ValueReplacedError(f"{self!r} was replaced meanwhile", key=key) from error
        self._fail(key, error)

    def _span(self, columns: IntArray, rows: Any) -> tuple[Any, Any]:
        """Return where entries are, with their headers: offset and bytes, which may be more than theirs."""
        header = columns[z.HEADER, rows]
        most = z.HEADER_BYTES + columns[z.NAME, rows] + columns[z.PACKED, rows] + SLACK_BYTES
        return header, np.minimum(columns[z.LIMIT, rows] - header, most)

    def _unwrap(self, file: ArchiveFile, directory: CentralDirectory, row: int, key: str, view: memoryview) -> Any:
        """Return the value of an entry, given the bytes of :meth:`_span`."""
        columns = directory.columns
        try:
            z.check_entry(columns, row)
            begin = z.data_offset(view, directory.name_of(row, key), columns, row)
            at, packed = begin - int(columns[z.HEADER, row]), int(columns[z.PACKED, row])
            data: Any = view[at : at + packed]
            if len(data) != packed:
                # Unusually long extra fields.
                data = memoryview(file.read([(begin, packed)], directory.version)[0])
            return z.unpacked(data, columns, row)
        except ZipFormatError as error:
            self._refuse(file, directory, key, error)

    def _find_data(
        self, file: ArchiveFile, directory: CentralDirectory, keys: Sequence[str], rows: IntArray
    ) -> IntArray:
        """Return the offsets of the data of some stored entries, from their headers unless these were read before.

        Where the file has no version, only the headers tell whether the entries are still there: they are always read.

        Raises
        ------
        ZipFormatError
            If a header is not what it should be.
        """
        # A writer in another thread may put a larger array in its place.
        columns = directory.columns
        data: IntArray = columns[z.DATA, rows]
        is_versioned = directory.version is not None
        unknown = np.flatnonzero((data < 0) | (not is_versioned))
        if len(unknown) and isinstance(file, RemoteFile) and is_versioned:
            # Saves a request: whatever the header says, there is one place for the data.
            tight = unknown[z.is_tight(columns, rows[unknown])]
            some = rows[tight]
            data[tight] = columns[z.HEADER, some] + z.HEADER_BYTES + columns[z.NAME, some]
            unknown = unknown[~np.isin(unknown, tight)]
        if len(unknown):
            wanted = rows[unknown]
            begins, sizes = columns[z.HEADER, wanted], z.HEADER_BYTES + columns[z.NAME, wanted]
            headers = file.read(list(zip(begins.tolist(), sizes.tolist(), strict=True)), directory.version)
            data[unknown] = [
                z.data_offset(header, directory.name_of(row, keys[i]), columns, row, same_crc=not is_versioned)
                for header, i, row in zip(headers, unknown.tolist(), wanted.tolist(), strict=True)
            ]
        if is_versioned:
            columns[z.DATA, rows] = data
        return data

    # -- values

    def _values(self, keys: Sequence[str], most_nbytes: int | None) -> list[bytes | None]:
        for key in keys:
            split_key(key)

        def read(file: ArchiveFile, directory: CentralDirectory) -> list[bytes | None]:
            rows = directory.find(keys, len(keys)).tolist()
            wanted = [(key, row) for key, row in zip(keys, rows, strict=True) if row >= 0]
            for key, row in wanted:
                self._check_size(directory, row, key, most_nbytes)
            offsets, sizes = self._span(directory.columns, [row for _, row in wanted])
            spans = list(zip(offsets.tolist(), sizes.tolist(), strict=True))
            views = iter(file.read(spans, directory.version) if spans else ())
            return [
                None if row < 0 else bytes(self._unwrap(file, directory, row, key, memoryview(next(views))))
                for key, row in zip(keys, rows, strict=True)
            ]

        return self._trying(read)

    def _check_size(self, directory: CentralDirectory, row: int, key: str, most_nbytes: int | None) -> None:
        size = int(directory.columns[z.SIZE, row])
        if most_nbytes is not None and size > most_nbytes:
            raise ValueSizeError(f"{self!r}: {key!r} has {size} bytes; at most {most_nbytes} are read", key=key)
        try:
            z.check_entry(directory.columns, row)
        except ZipFormatError as error:
            self._fail(key, error)

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if the archive has no such entry.

        Raises
        ------
        StoreError
            If the entry is damaged, encrypted or compressed by an unsupported method, or the archive cannot be read.
        """
        return self._values([key], None)[0]

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return self._values(keys, max_nbytes)

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        A compressed entry is read and decompressed as a whole. CRC-32 is not checked for a part of a stored one.

        Raises
        ------
        StoreError
            As for :meth:`get`, or if a range does not lie within the value.
        """
        for key, wanted in key_ranges:
            split_key(key)
            check_range(wanted)

        def read(file: ArchiveFile, directory: CentralDirectory) -> list[bytes | None]:
            values: list[bytes | None] = [None] * len(key_ranges)
            parts: list[tuple[int, int, int, int]] = []
            for i, (key, wanted) in enumerate(key_ranges):
                row = directory.rows.get(key, -1)
                if row < 0:
                    continue
                # Rows of a writer in another thread may be in a larger array than before.
                columns = directory.columns
                self._check_size(directory, row, key, None)
                begin, nbytes = resolve_range(wanted, int(columns[z.SIZE, row]), self, key)
                if columns[z.METHOD, row] != z.STORED or wanted == ByteRange():
                    offset, span = map(int, self._span(columns, row))
                    (data,) = file.read([(offset, span)], directory.version)
                    value = self._unwrap(file, directory, row, key, memoryview(data))
                    values[i] = bytes(value if nbytes == len(value) else memoryview(value)[begin : begin + nbytes])
                else:
                    parts.append((i, row, begin, nbytes))
            if parts:
                for (i, *_), part in zip(parts, self._parts(file, directory, key_ranges, parts), strict=True):
                    values[i] = bytes(part)
            return values

        return self._trying(read)

    def _parts(
        self,
        file: ArchiveFile,
        directory: CentralDirectory,
        key_ranges: Sequence[tuple[str, ByteRange]],
        parts: Sequence[tuple[int, int, int, int]],
    ) -> list[Any]:
        keys = [key_ranges[i][0] for i, *_ in parts]
        try:
            data = self._find_data(file, directory, keys, np.array([row for _, row, _, _ in parts]))
        except ZipFormatError as error:
            self._refuse(file, directory, keys[0], error)
        ranges = [(at + begin, nbytes) for at, (_, _, begin, nbytes) in zip(data.tolist(), parts, strict=True)]
        return file.read(ranges, directory.version)

    def contains(self, keys: Iterable[str]) -> list[bool]:
        """Return whether each key has a value, in order."""
        wanted = list(keys)
        for key in wanted:
            split_key(key)
        rows = self._open()[1].rows
        return [key in rows for key in wanted]

    def _sizes(self, keys: Iterable[str]) -> list[int | None]:
        """Return the sizes of some values in bytes, in order; None for each absent key."""
        directory = self._open()[1]
        rows = [directory.rows.get(key, -1) for key in keys]
        return [None if row < 0 else int(directory.columns[z.SIZE, row]) for row in rows]

    def _count(self) -> int:
        """Return the number of keys."""
        return len(self._open()[1].rows)

    def version(self, key: str) -> Hashable | None:
        """Return a token that changes when the archive is replaced, or the value; None if it is absent, or unknown."""
        return self.versions([key])[0]

    def versions(self, keys: Iterable[str]) -> list[Hashable | None]:
        """Return :meth:`version` of several ``keys``."""
        directory = self._open()[1]
        return [self._token(directory, directory.rows.get(key, -1)) for key in keys]

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, each with a text that changes when the archive is replaced."""
        split_prefix(prefix)
        directory = self._open()[1]
        for key in directory.below(prefix):
            row = directory.rows.get(key, -1)
            if row >= 0:
                token = self._token(directory, row)
                yield key, None if token is None else repr(token)

    @staticmethod
    def _token(directory: CentralDirectory, row: int) -> Hashable | None:
        if row < 0 or directory.version is None:
            return None
        token: Any = directory.version, int(directory.columns[z.HEADER, row])
        return FreshVersion(token) if isinstance(directory.version, FreshVersion) else token

    # -- for engines

    def holder(self) -> ReadableStore:
        """Return the store that holds the archive."""
        return self._state[0].store

    def extents(self, keys: Sequence[str], *, parts: bool) -> Extents | None:
        """Return where some values are in the archive; None if one of them is not simply there."""
        return self._trying(lambda file, directory: self._extents(file, directory, keys, parts))

    def _extents(
        self, file: ArchiveFile, directory: CentralDirectory, keys: Sequence[str], parts: bool
    ) -> Extents | None:
        rows = directory.find(keys, len(keys))
        present = np.flatnonzero(rows >= 0)
        some = rows[present]
        columns = directory.columns
        wrapped = isinstance(file, RemoteFile) and not parts
        method, packed, size = columns[z.METHOD, some], columns[z.PACKED, some], columns[z.SIZE, some]
        end = columns[z.HEADER, some] + z.HEADER_BYTES + columns[z.NAME, some] + packed
        plain = (columns[z.FLAGS, some] & z.ENCRYPTED == 0) & (end <= columns[z.LIMIT, some])
        if not (plain & (wrapped | ((method == z.STORED) & (packed == size)))).all():
            return None
        offset, nbytes = np.zeros(len(rows), np.int64), np.full(len(rows), -1)
        sizes = nbytes.copy()
        sizes[present] = size
        if wrapped:
            offset[present], nbytes[present] = self._span(columns, some)
        else:
            try:
                offset[present] = self._find_data(file, directory, [keys[i] for i in present.tolist()], some)
            except ZipFormatError as error:
                if self._is_another(file, directory):
                    raise ValueReplacedError(f"{self!r} was replaced meanwhile") from error
                # Reading it as a value reports this.
                return None
            nbytes[present] = packed

        def unwrap(i: int, view: memoryview) -> Any:
            return self._unwrap(file, directory, int(rows[i]), keys[i], view)

        return Extents(file.store, file.key, directory.version, offset, nbytes, sizes, unwrap if wrapped else None)

    # -- listing

    def list(self) -> Iterator[str]:
        """Yield all keys, sorted."""
        return iter(self._open()[1].names())

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, sorted."""
        split_prefix(prefix)
        return self._open()[1].below(prefix)

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted."""
        split_prefix(prefix)
        return self._open()[1].children(prefix)

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, sorted, each with the size of its value in bytes."""
        split_prefix(prefix)
        directory = self._open()[1]
        for key in directory.below(prefix):
            row = directory.rows.get(key, -1)
            if row >= 0:
                yield key, int(directory.columns[z.SIZE, row])


class RemoteZipStore(ZipReader):
    """Values in an archive that is a value of a remote store; for reading only.

    Parameters
    ----------
    store, key
        Store and key of the archive, which is opened with one or two requests.

    Raises
    ------
    NodeNotFoundError
        If there is no such value.
    StoreError
        If it cannot be read, or is no zip archive.
    """

    def __init__(self, store: RemoteValues, key: str) -> None:
        super().__init__(RemoteFile(store, key))
        self._remote = store
        self._reload()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteZipStore, (self._remote, self._state[0].key)

    def request_limits(self) -> RequestLimits:
        """Return how requests should be made: as those to the store of the archive."""
        return replace(self._remote.request_limits(), streams=None)

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer some requests: one request for a whole value, one or two for a part."""
        answers = []
        for request in requests:
            try:
                answers.append(self._answer(request))
            except (ArgumentError, StoreError, NodeNotFoundError, MemoryError) as error:
                answers.append(Answer(None, error=error))
        return answers

    def _answer(self, request: Request) -> Answer:
        directory = self._open()[1]
        row = directory.rows.get(request.key, -1)
        token = self._token(directory, row)
        if request.version is not None and token != request.version:
            raise ValueReplacedError(f"{self!r}: {request.key!r} was replaced meanwhile", key=request.key)
        if token is not None and token == request.unless_version:
            if self._is_confirmed(directory, row):
                return Answer(None, token, unchanged=True)
            return self._answer(replace(request, unless_version=None))
        if request.byte_range == ByteRange():
            value = self._values([request.key], request.most_nbytes)[0]
        else:
            value = self.get_partial_values([(request.key, request.byte_range)])[0]
        if self._open()[1] is not directory:
            if request.version is not None:
                raise ValueReplacedError(f"{self!r}: {request.key!r} was replaced meanwhile", key=request.key)
            # Of the old archive or of the new one: nothing is promised about it.
            token, row = None, -1
        if value is not None and request.most_nbytes is not None and len(value) > request.most_nbytes:
            raise ValueSizeError(
                f"{self!r}: {request.key!r} has {len(value)} bytes; at most {request.most_nbytes} are read",
                key=request.key,
            )
        return Answer(value, token, size=int(directory.columns[z.SIZE, row]) if row >= 0 else None)

    def _is_confirmed(self, directory: CentralDirectory, row: int) -> bool:
        """Return whether the archive is as it was, which takes one request; False also where the value takes none."""
        file: Any = self._state[0]
        offset, nbytes = map(int, self._span(directory.columns, row))
        if file.kept([(offset, nbytes)], directory.version) is not None:
            return False
        if file.has(directory.version):
            return True
        self.forget(directory.version)
        return False

    def _values(self, keys: Sequence[str], most_nbytes: int | None) -> list[bytes | None]:
        if len(keys) == 1:
            return super()._values(keys, most_nbytes)
        one = super()._values
        return [value for (value,) in io_threads.call_all([partial(one, [key], most_nbytes) for key in keys])]
