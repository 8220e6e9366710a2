"""A cache on disk before a store: what was read once need not be sent again.

Every answer is one that the store itself could have given. What the cache has of a value is kept with the value's
version, and is used only if the store has confirmed the version recently enough (``check``), by a request that is
answered without data if the version is the current one. All parts of an answer, and a shard's index and its chunks,
have one version. That a value is absent is never kept.

A read sends at most as many requests as it would without the cache, for at most as many bytes: for each of its byte
ranges one, for what is missing of it, or to confirm the version. (One more is sent if a value was replaced while the
cache had parts of it.)
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import ArgumentError, ValueReplacedError, ValueSizeError
from ..positive import positive
from . import io_threads, traffic
from .base import (
    Answer,
    ByteRange,
    LocatedStore,
    RemoteValues,
    Request,
    RequestLimits,
    SizedStore,
    VersionedStore,
    WritableStore,
)
from .cache_directory import CacheDirectory, Found
from .file_tree import FreshVersion
from .local_paths import absolute_path
from .passed_through import class_for
from .resolve import open_store
from .whole_values import RequestedValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from .base import ReadableStore
    from .resolve import StoreLike

#: How recently the store must have confirmed the version of a value.
Check: TypeAlias = "Literal['always', 'once'] | float"

# Most seconds by which the clocks of machines that share a directory may differ.
_CLOCK_S = 5.0


class CachedStore(RequestedValues):
    """A cache on disk before a store, usually a remote one.

    The cache may be shared by threads, processes and stores. It never fails a read: if its directory is full, damaged,
    not writable or gone, values come from the store, and ``gzarr.stats()["cache_failures"]`` counts that. A process
    that is killed and a loss of power leave at most damaged files, which are recognised by their checksums.

    Parameters
    ----------
    store
        Store, or path or URL of one, which is opened for reading. Listing, sizes, writing and locks are the store's
        own: the object has the methods that the store has.
    directory
        Directory of the cache, made if necessary. Below it, everything is readable by this user only; names are hashes.
    max_bytes
        Limit of the bytes on disk. Files of the cache that were used the longest ago are removed before it is reached;
        if many threads and processes fill the cache, it may be exceeded by a few hundredths for a moment. Values (of
        values above 16 MiB, parts of 16 MiB) larger than 1/8 of it are not kept.
    check
        How recently the store must have confirmed that the cached version of a chunk or shard is the current one:

        - ``"always"``: At each read. A read costs as many requests as without the cache, but no data is sent that the
          cache has.
        - ``"once"``: Since this object, or the one that it was copied or unpickled from, was made. Later reads send no
          requests.
        - a number: After this many seconds: ``3600``, or ``math.inf`` for data that never changes.

        With the last two, changes of chunks by others are seen later; so they are only for stores that are read-only.
        Metadata documents are confirmed whenever a node is opened.
    name
        Text that tells the store's values from all other values in the directory, in every process. Not needed
        for object stores, web servers and directories.
    storage_options
        As for :func:`gzarr.open_store`, if ``store`` is a URL.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or the store needs a name.

    Notes
    -----
    Values whose version the store does not tell are read, but not kept. A version is as precise as the store's: a web
    server without entity tags only tells the second in which a file was changed.

    Examples
    --------
    >>> import gzarr, tempfile
    >>> directory, cache = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> gzarr.save(directory, [1, 2, 3])
    >>> store = gzarr.CachedStore(directory, cache, 10 << 30, check="once")
    >>> gzarr.open(store, device="cpu")[...].tolist()
    [1, 2, 3]
    """

    store: ReadableStore
    directory_of_cache: str
    max_bytes: int
    check: Check

    def __new__(
        cls,
        store: StoreLike,
        directory: str | os.PathLike[str],
        max_bytes: int,
        *,
        check: Check = "always",
        name: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> CachedStore:
        """Make an object of the class that has the methods of the store."""
        inner: Any = open_store(store, storage_options=storage_options)
        max_bytes = positive("max_bytes", max_bytes)
        _check_check(check)
        if check != "always" and isinstance(inner, WritableStore) and not inner.read_only:
            raise ArgumentError(
                f"check={check!r} is only for stores that are read-only, and {inner!r} can be written: a write that "
                "changes a part of a chunk needs its current content; open it with gzarr.open_store(URL), or pass "
                "check='always'"
            )
        place = _directory(directory)
        location = name
        if name is None and isinstance(inner, LocatedStore):
            location = inner.location()
        if not location or not isinstance(location, str):
            raise ArgumentError(
                f"nothing tells {inner!r} from other stores in the same cache, in every process; pass a name= of your "
                "own for it"
            )
        self = object.__new__(class_for(cls, inner))
        self.store = inner
        self.directory_of_cache = place
        self.max_bytes = max_bytes
        self.check = check
        self._name = name
        self._location = location
        self._files = CacheDirectory(place, max_bytes)
        self._since = time.time()
        return self

    _name: str | None
    _location: str
    _files: CacheDirectory
    _since: float

    def __repr__(self) -> str:
        return f"<gzarr.CachedStore of {self.store!r} in {self.directory_of_cache!r}>"

    def _identity(self) -> tuple[Any, ...]:
        return self.directory_of_cache, self.max_bytes, self.check, self._location

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CachedStore):
            return NotImplemented
        return bool(self._identity() == other._identity() and self.store == other.store)

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.store, self.directory_of_cache, self.max_bytes, self.check, self._name, self._since)
        return _unpickled, arguments

    def location(self) -> str | None:
        """Return a text that names the root of the store, or None if there is none."""
        return self.store.location() if isinstance(self.store, LocatedStore) else None

    # -- reading

    def request_limits(self) -> RequestLimits:
        """Return how requests should be made: as to the store."""
        if isinstance(self.store, RemoteValues):
            return replace(self.store.request_limits(), streams=None)
        return RequestLimits(io_threads.io_thread_count())

    def _answer_all(self, requests: Sequence[Request]) -> Iterator[Answer]:
        # Each by itself, as it is now, and side by side.
        return chain.from_iterable(
            io_threads.call_all([partial(self._answers, [request], math.inf) for request in requests])
        )

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer some requests, in order: from the cache, or by one call of the store for all others."""
        if self.check == "always":
            since = math.inf
        else:
            since = self._since if self.check == "once" else time.time() - float(self.check)
        return self._answers(requests, since)

    def _answers(self, requests: Sequence[Request], since: float) -> list[Answer]:
        """Answer some requests, with versions that were confirmed after ``since``."""
        answers: list[Any] = [None] * len(requests)
        asked: list[tuple[int, Found | None, Request]] = []
        for i, request in enumerate(requests):
            found = self._find(request)
            if found is None:
                asked.append((i, None, request))
            elif found.missing is None and since <= found.confirmed <= time.time() + _CLOCK_S:
                answers[i] = _from_cache(found, found.before)
            else:
                asked.append((i, found, _rest(request, found)))
        while asked:
            begun = time.time()
            told = _ask(self.store, [request for _, _, request in asked])
            again: list[tuple[int, Found | None, Request]] = []
            for (i, found, rest), answer in zip(asked, told, strict=True):
                answers[i] = self._take(requests[i], found, rest, answer, begun)
                if answers[i] is None:
                    again.append((i, None, requests[i]))
            asked = again
        return [_unless(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _path(self, key: str) -> str:
        return self._files.path(self._location, key)

    def _drop(self, key: str) -> None:
        """Forget the value of ``key``."""
        self._files.drop(self._path(key))

    def _find(self, request: Request) -> Found | None:
        """Return what the cache has for a request; None if that is nothing."""
        most = request.most_nbytes

        def resolve(size: int | None) -> tuple[int, int] | None:
            # Whatever may be an error is left to the store.
            wanted = _resolve(request.byte_range, size)
            return None if wanted is None or (most is not None and wanted[1] - wanted[0] > most) else wanted

        found = self._files.find(self._path(request.key), resolve)
        if found is None or (found.missing is not None and found.missing == (found.begin, found.end)):
            return None
        return None if request.version is not None and request.version != found.version else found

    def _take(
        self, request: Request, found: Found | None, rest: Request, answer: Answer, begun: float
    ) -> Answer | None:
        """Return the answer to a request from the store's answer; None if it has to be asked again, for all of it.

        Parameters
        ----------
        request
            The request.
        found
            What the cache has for it.
        rest
            What the store was asked for.
        answer
            What the store answered.
        begun
            When it was asked, in seconds since 1970.
        """
        if isinstance(answer.error, ValueReplacedError):
            # Whatever the cache has, it is not current. (A shard's index would be read from it again and again.)
            self._drop(request.key)
        if found is not None and answer.error is not None:
            # The value may have been replaced; then parts in the cache are of no use. The store has the last word.
            return None if isinstance(answer.error, (ValueReplacedError, ValueSizeError)) else answer
        if answer.error is not None:
            return answer
        if found is not None and found.missing is not None and answer.version != found.version:
            # From a store that does not compare versions.
            return None
        path = self._path(request.key)
        if found is not None and (answer.unchanged or answer.version == found.version):
            self._files.confirm(path, found.version, begun)
            if found.missing is None:
                return _from_cache(found, found.before)
            assert answer.value is not None
            self._files.add(path, found.version, found.size, found.missing[0], answer.value, begun)
            whole = b"".join([memoryview(part).cast("B") for part in (found.before, answer.value, found.after)])
            return _from_cache(found, whole, len(memoryview(answer.value)))
        if answer.value is None:
            if not answer.unchanged:
                self._drop(request.key)
        elif answer.version is not None and not isinstance(answer.version, FreshVersion):
            wanted = _resolve(rest.byte_range, answer.size)
            if wanted is not None:
                self._files.add(path, answer.version, answer.size, wanted[0], answer.value, begun)
        if request.version is not None and not answer.unchanged and answer.version != request.version:
            error = ValueReplacedError(f"{self!r}: {request.key!r} was replaced or erased meanwhile", key=request.key)
            return Answer(None, error=error)
        return answer


def _unpickled(store: Any, directory: str, max_bytes: int, check: Check, name: str | None, since: float) -> CachedStore:
    made = CachedStore(store, directory, max_bytes, check=check, name=name)
    made._since = since
    return made


def _check_check(check: Any) -> None:
    is_number = isinstance(check, (int, float)) and not isinstance(check, bool)
    if check not in ("always", "once") and not (is_number and check >= 0):
        raise ArgumentError(f"check must be 'always', 'once' or a number of seconds, not {check!r}")


def _directory(directory: Any) -> str:
    path = absolute_path(directory, "the directory of a cache must be")
    if os.path.lexists(path) and not os.path.isdir(path):  # noqa: PTH112
        raise ArgumentError(f"{path!r} is not a directory, so there can be no cache in it")
    return path


def _resolve(byte_range: ByteRange, size: int | None) -> tuple[int, int] | None:
    """Return the first byte and the end of a range; None if it is not in the value, or the size is needed for that."""
    offset, length = byte_range.offset, byte_range.length
    if size is None:
        # No bytes are in the value only if it does not end before them.
        return None if offset < 0 or length is None or length <= 0 else (offset, offset + length)
    begin = size + offset if offset < 0 else offset
    end = size if length is None else begin + length
    return (begin, end) if 0 <= begin <= end <= size and (offset >= 0 or length is None) else None


def _rest(request: Request, found: Found) -> Request:
    """Return the request for what the cache lacks: the missing bytes, or whether the version is still the same."""
    if found.missing is None:
        return Request(request.key, request.byte_range, None, request.most_nbytes, found.version)
    begin, end = found.missing
    return Request(request.key, ByteRange(begin, end - begin), found.version)


def _from_cache(found: Found, value: Buffer, fetched: int = 0) -> Answer:
    traffic.count(cache_hits=1, cache_bytes=found.end - found.begin - fetched)
    return Answer(value, found.version, size=found.size)


def _unless(request: Request, answer: Answer) -> Answer:
    """Return an answer, without the value if the caller has it."""
    if request.unless_version is None or answer.error is not None or answer.version != request.unless_version:
        return answer
    return Answer(None, answer.version, unchanged=True)


# -- stores without get_many


def _ask(store: Any, requests: Sequence[Request]) -> list[Answer]:
    if isinstance(store, RemoteValues):
        return store.get_many(requests)
    return [_answer_of(store, request) for request in requests]


def _answer_of(store: Any, request: Request) -> Answer:
    """Answer a request by a store without ``get_many``."""
    key = request.key
    try:
        version = store.version(key) if isinstance(store, VersionedStore) else None
        if version is not None and version == request.unless_version:
            return Answer(None, version, unchanged=True)
        whole = request.byte_range == ByteRange()
        if whole and request.most_nbytes is not None and isinstance(store, SizedStore):
            value = store.get_small_values([key], request.most_nbytes)[0]
        elif whole:
            value = store.get(key)
        else:
            value = store.get_partial_values([(key, request.byte_range)])[0]
        # A value that was replaced meanwhile may be of either version.
        if version is not None and store.version(key) != version:
            version = None
    # Third-party stores may raise anything.
    except Exception as error:
        return Answer(None, error=error)
    if request.version is not None and (value is None or version != request.version):
        return Answer(None, error=ValueReplacedError(f"{store!r}: {key!r} was replaced meanwhile", key=key))
    return Answer(value, None if value is None else version, size=len(value) if whole and value is not None else None)
