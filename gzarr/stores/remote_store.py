"""What object stores and web servers have in common, by obstore.

obstore brings the protocols, signatures and connections. This module brings what a store of gzarr promises: an absent
value is told apart from every other failure, lengths are checked, failed requests are sent again for a bounded time,
versions of values are compared, and no request keeps a caller from being interrupted.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..errors import ArgumentError, ReadOnlyError, StoreError, ValueReplacedError, ValueSizeError
from ..flags import flag
from ..reasons import pass_on
from . import attempts, curl_threads, io_threads, late_changes, obstore_module, redaction, traffic
from .arriving import Arriving, Pace
from .attempts import FailedRequest, ShortAnswerError
from .base import Answer, ByteRange, Request, RequestLimits
from .buffers import as_view
from .byte_ranges import check_range, describe_range
from .content_encodings import without_length
from .keys import is_key, split_key, split_prefix
from .locations import client_of, location_of
from .object_errors import NO_RANGES, Kind, failure_of, is_unreadable
from .plain_gets import Gets
from .plain_urls import PlainUrls
from .remote_answers import OtherBytesError, few_times, other_range
from .whole_values import RequestedValues, WholeValues

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Buffer

    from .base import Listing, RequestStream
    from .connections import Connections

    T = TypeVar("T")

#: Seconds after which a failing request is not sent again.
DEFAULT_TIMEOUT_S: Final = 60.0
#: Longest time of an answer that goes on, unless options of the client give another.
ANSWER_TIME: Final = datetime.timedelta(hours=1)
#: Seconds without a byte after which a request counts as failed, unless its time-out is shorter.
STALL_S: Final = 15.0
#: How many times :data:`STALL_S` an upload has above each of these sizes in bytes: nothing is heard before its end, and
#: many share a line. Few sizes, as each has a store of obstore with connections of its own; none above that of parts.
UPLOAD_STALLS: Final = ((4 << 20, 32), (1 << 20, 8), (256 << 10, 2))
#: Times that a value may be replaced between two requests of a read.
MOST_REPLACEMENTS: Final = 16
#: Values above this size are uploaded in parts, of this many bytes.
MULTIPART_BYTES: Final = 64 << 20
PART_BYTES: Final = 16 << 20
#: Keys of a page of a listing, and of a request that erases.
PAGE_KEYS: Final = 1000
#: What obstore says of a successful answer whose length is not known before its end.
LACKS_LENGTH: Final = "Content-Length Header missing"
#: Statuses of servers that do not know HEAD.
_NO_HEAD: Final = frozenset((405, 501))
_NO_CERTIFICATES: Final = (
    "this machine has no CA certificates, and obstore makes no connection without any, not even for http://: install "
    "them (often a package ca-certificates), or set SSL_CERT_FILE to a file that has some"
)


class _OtherTimes:
    """Stores of obstore with other times, with the generation that they are of; a child keeps those of its parent."""

    def __init__(self) -> None:
        self.made: tuple[int, dict[tuple[str, float], Any]] = (-1, {})
        obstore_module.register(self)


class RemoteStore(RequestedValues, WholeValues):
    """Values behind a web server, read and, if the server takes that, written and listed.

    Parameters
    ----------
    kind
        Name of the class of obstore.
    arguments, keywords
        Arguments of that class.
    url
        URL of the root, without user names, passwords and queries, for messages.
    prefix
        Path of the root within the bucket, without slashes at either end.
    read_only
        Refuse every change.
    timeout
        Seconds after which a failing request is not sent again.
    limits
        How requests should be made; None for the defaults, with one request in each I/O thread.

    Raises
    ------
    ArgumentError
        If obstore is not installed, or refuses the arguments.
    """

    #: Whether the server takes a value in parts.
    _takes_parts = True
    #: Whether content encodings are the server's own. Object stores keep them with the object, and send what they keep.
    _undoes_encodings = False
    #: Whether obstore has been found to make nothing of answers to it that plain requests bring.
    _needs_plain = False

    def __init__(
        self,
        kind: str,
        arguments: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
        *,
        url: str,
        prefix: str = "",
        read_only: bool = False,
        timeout: float = DEFAULT_TIMEOUT_S,
        limits: RequestLimits | None = None,
    ) -> None:
        self.read_only: bool = flag("read_only", read_only)
        self._limits = limits
        self.url = url
        self.timeout = timeout
        self._recipe = (kind, tuple(arguments), dict(keywords or {}))
        self._prefix = f"{prefix}/" if prefix else ""
        self._plain = PlainUrls(*self._recipe)
        self._pace = Pace(self._plain.options.stall_s or DEFAULT_TIMEOUT_S)
        self._other_times = _OtherTimes()
        # Whether the bucket is known to exist.
        self._seen = False
        self.made: tuple[int, Any] = (-1, None)
        self._address: str | None = None
        obstore_module.register(self)
        self._store()

    def __repr__(self) -> str:
        return f"<gzarr.{type(self).__name__} {self.url!r}>"

    def _identity(self) -> tuple[Any, ...]:
        return type(self), self._recipe[0], self.url, self._prefix, self.read_only, self.location()

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, RemoteStore) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(
            type(self),
            url=self.url,
            prefix=self._prefix.rstrip("/"),
            read_only=self.read_only,
            timeout=self.timeout,
            limits=self._limits,
        )
        return made, self._recipe

    def location(self) -> str | None:
        """Return a text that names the root and its values, the same in all processes, or None if there is none."""
        client = client_of(self._recipe[2])
        # Before the address, so that keys make names of values whichever the root is.
        return f"{client} {self._address}" if self._address and client else self._address

    def address(self) -> str | None:
        """Return a text that names the root, whatever headers are sent there; None if there is none."""
        return self._address

    # -- requests

    def connections(self) -> Connections | None:
        """Return what limits the number of requests to the server; None if nothing does."""
        return None

    def _store(self) -> Any:
        """Return the store of obstore, made anew after a fork."""
        generation, store = self.made
        if generation != obstore_module.generation():
            kind, arguments, keywords = self._recipe
            obstore_module.module()
            try:
                store = obstore_module.make(kind, arguments, keywords)
            # An exception of a copy of obstore may be of any class.
            except Exception as error:
                pass_on(error)
                if "No CA certificates" in str(error):
                    raise StoreError(f"{self!r}: {_NO_CERTIFICATES}") from None
                # It may repeat what it does not understand.
                secrets = redaction.secrets_of(keywords)
                reason = redaction.without(failure_of(error, self.url).reason, secrets)
                raise ArgumentError(f"{self!r}: obstore refuses its options: {reason}") from None
            self.made = (obstore_module.generation(), store)
            # Later, the environment may name another place; this store asks where it did when it was made.
            self._address = location_of(*self._recipe, self._prefix)
        return store

    def _store_of_pages(self) -> Any:
        """Return the store of obstore for listings: nobody looks at a page as it arrives, so its time is bounded."""
        return self._store_with("timeout", ANSWER_TIME.total_seconds(), self.timeout)

    def _store_of_uploads(self, nbytes: int) -> Any:
        """Return the store of obstore for uploads of a size, during which it counts no byte as one that arrives."""
        usual = min(self.timeout, STALL_S)
        times = next((times for size, times in UPLOAD_STALLS if nbytes > size), 1)
        return self._store_with("read_timeout", usual, times * usual)

    def _store_with(self, option: str, usual: float, seconds: float) -> Any:
        """Return a store of obstore with another time for its requests, unless that is the user's own."""
        kind, arguments, keywords = self._recipe
        client = keywords.get("client_options") or {}
        store = self._store()
        if seconds == usual or client.get(option) != datetime.timedelta(seconds=usual):
            return store
        generation, stores = self._other_times.made
        if generation != obstore_module.generation():
            stores = {}
            self._other_times.made = (obstore_module.generation(), stores)
        other = stores.get((option, seconds))
        if other is None:
            client = {**client, option: datetime.timedelta(seconds=seconds)}
            other = obstore_module.make(kind, arguments, {**keywords, "client_options": client})
            stores[option, seconds] = other
        return other

    def _path(self, key: str) -> str:
        return self._prefix + key

    def _send(
        self,
        request: Callable[[Any, Any], T],
        *,
        listing: bool = False,
        upload: int = 0,
        first: FailedRequest | None = None,
        changes: Sequence[str] = (),
    ) -> T:
        """Return ``request(obstore, store)``; send it again while that may help and the time is not over.

        ``upload`` is the number of bytes that it sends, ``first`` a first attempt that has failed, and ``changes`` are
        the keys that it changes.

        Raises
        ------
        FailedRequest
            If it fails for good.
        """

        def store() -> Any:
            return self._store_of_pages() if listing else self._store_of_uploads(upload)

        return attempts.send(
            lambda: request(obstore_module.module(), store()),
            few_times(partial(failure_of, url=self.url, listing=listing)),
            self.timeout,
            first,
            self.connections(),
            [self._name(key) for key in changes],
        )

    def _name(self, key: str) -> str:
        """Return a name of the value of a key, the same in all stores of this process that have it."""
        return f"{self._address or id(self)}/{key}"

    def _error(self, what: str, key: str | None, failed: FailedRequest) -> StoreError:
        times = f"{failed.attempts} attempt{'s' * (failed.attempts > 1)}"
        reason = failed.failure.reason
        if failed.failure.kind is Kind.NO_BUCKET:
            reason = f"there is no such bucket or container ({reason})"
        name = "" if key is None else f" {key!r}"
        return StoreError(f"{self!r}: cannot {what}{name}: {reason}; {times} in {failed.seconds:.1f} s", key=key)

    def _is_absent(self, what: str, key: str, failed: FailedRequest) -> bool:
        """Return whether a failure means that a value is absent; raise an error if its bucket is."""
        if failed.failure.kind is Kind.ABSENT:
            self._seen = True
            return True
        if failed.failure.kind is not Kind.ABSENT_OR_NO_BUCKET:
            return False
        if not self._seen:
            # The answer does not say what is absent. Listing a bucket that does not exist fails.
            try:
                self._send(lambda module, store: next(iter(module.list(store, chunk_size=1)), None), listing=True)
            except FailedRequest as listed:
                if listed.failure.kind is not Kind.FINAL:
                    raise self._error(what, key, listed) from None
                # A bucket that may not be listed exists.
            self._seen = True
        return True

    # -- reading

    def request_limits(self) -> RequestLimits:
        """Return how requests should be made: streamed, or one at a time in each I/O thread."""
        limits = self._limits or RequestLimits(io_threads.io_thread_count())
        return replace(limits, streams=self) if self._plain.possible() else limits

    def answer_each(self, stream: RequestStream) -> bool:
        """Answer the requests of a stream by plain GET requests, in few threads."""
        return curl_threads.submit(Gets(self, self._plain, stream, self.request_limits().calls))

    def look_again(self) -> None:
        """Look for requests of all streams."""
        curl_threads.wake()

    def give_up(self) -> None:
        """Forget streams that are given up; end their requests if these leave no room for others."""
        connections = self.connections()
        if connections is not None and connections.are_taken():
            curl_threads.give_up()
        else:
            # What is kept serves the next requests.
            curl_threads.wake()

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer some requests, one after the other."""
        answers = []
        for request in requests:
            try:
                answers.append(self._get(request))
            except (ArgumentError, StoreError, MemoryError) as error:
                answers.append(Answer(None, error=error))
        return answers

    def _get(self, request: Request, first: FailedRequest | None = None) -> Answer:
        """Answer one request, of which a first attempt may have failed.

        Raises
        ------
        ValueReplacedError
            If the value has another version.
        ValueSizeError
            If the range does not lie within the value, or the value is too large.
        StoreError
            If the request fails.
        """
        key, wanted = request.key, request.byte_range
        split_key(key)
        check_range(wanted)
        if wanted.offset < 0 and not self._plain.from_end:
            return self._get_end(request)
        path = self._path(key)
        options: dict[str, Any] = {}
        if wanted.offset < 0:
            options["range"] = {"suffix": -wanted.offset}
        elif wanted.length is not None:
            options["range"] = (wanted.offset, wanted.offset + wanted.length)
        elif wanted.offset:
            options["range"] = {"offset": wanted.offset}
        if isinstance(request.version, str):
            options["if_match"] = request.version
        known = request.unless_version
        if isinstance(known, str):
            options["if_none_match"] = known

        def send(module: Any, store: Any) -> Answer:
            if wanted.length == 0 or not isinstance(known, (str, type(None))):
                # A range of no bytes cannot be expressed in HTTP, nor can versions that are not entity tags.
                meta = module.head(store, path)
                if known is not None and _version(meta) == known:
                    return Answer(None, known, unchanged=True)
                if wanted.length == 0:
                    return self._checked(request, meta, None)
            result = module.get(store, path, options=options)
            return self._checked(request, result.meta, Arriving(result, self._pace))

        try:
            answer = self._send(send, first=first)
        except FailedRequest as failed:
            return self._answer_of(request, failed)
        self._seen = True
        return answer

    def _get_end(self, request: Request) -> Answer:
        """Return the end of a value by two requests, as :meth:`_get`: some servers have no ranges that count from it.

        The first asks for the size: with a byte, because the answer to a request for none would not tell an absent
        value from an absent container.
        """
        wanted = request.byte_range
        for _ in range(MOST_REPLACEMENTS):
            try:
                found = self._get(replace(request, byte_range=ByteRange(0, 1)))
            except ValueSizeError:
                raise self._too_short(request.key, 0, wanted) from None
            if found.value is None:
                return found
            if found.size is None:
                raise without_length(self, request, "how many bytes the value has")
            begin = found.size + wanted.offset
            if begin < 0:
                raise self._too_short(request.key, found.size, wanted)
            version = found.version if request.version is None else request.version
            try:
                answer = self._get(replace(request, byte_range=ByteRange(begin, -wanted.offset), version=version))
            except ValueReplacedError:
                if request.version is not None:
                    raise
            else:
                # Where values have no version, another size tells that one was replaced.
                if answer.size in (None, found.size):
                    return answer
        raise StoreError(f"{self!r}: {request.key!r} is replaced again and again during the read", key=request.key)

    def _get_nothing(self, request: Request) -> Answer:
        """Return the answer to a request for all from a byte on, where there is none: the value may end there.

        To HTTP, no bytes are no range. So the byte before them is asked for.
        """
        key, wanted = request.key, request.byte_range
        try:
            found = self._get(replace(request, byte_range=ByteRange(wanted.offset - 1, 1), most_nbytes=None))
        except ValueSizeError:
            found = None
        if found is not None and found.value is None:
            return found
        if found is None or found.size not in (None, wanted.offset):
            raise ValueSizeError(f"{self!r}: {key!r} has too few bytes for the range {describe_range(wanted)}", key=key)
        return replace(found, value=b"", size=wanted.offset)

    def _answer_of(self, request: Request, failed: FailedRequest) -> Answer:
        """Return the answer that a failure is, or raise as :meth:`_get`. It may take another request."""
        key, wanted, kind = request.key, request.byte_range, failed.failure.kind
        # To a request without a condition, it is no answer: a proxy or cache in between is confused.
        if kind is Kind.UNCHANGED and isinstance(request.unless_version, str):
            self._seen = True
            return Answer(None, request.unless_version, unchanged=True)
        if kind is Kind.RANGE:
            if wanted.length is None and wanted.offset > 0:
                return self._get_nothing(request)
            raise ValueSizeError(
                f"{self!r}: {key!r} has too few bytes for the range {describe_range(wanted)}", key=key
            ) from None
        if LACKS_LENGTH in failed.failure.reason:
            raise without_length(self, request, "how long it is") from None
        absent = self._is_absent("read", key, failed)
        if request.version is not None and (absent or kind is Kind.CONDITION):
            raise ValueReplacedError(f"{self!r}: {key!r} was replaced or erased meanwhile", key=key) from None
        if absent:
            return Answer(None)
        what = "read" if wanted == ByteRange() else f"read {describe_range(wanted)} of"
        raise self._error(what, key, failed) from None

    def _checked(self, request: Request, meta: Mapping[str, Any], result: Any) -> Answer:
        """Return the bytes of an answer of obstore, once its size, range and version are as they should be.

        Without a result, no bytes were asked for. The size may be None for a range with a length.
        """
        key, wanted = request.key, request.byte_range
        size = meta["size"]
        version = _version(meta)
        if size is None or request.version is not None:
            version = _as_known(version, request)
        if request.version is not None and version != request.version:
            raise ValueReplacedError(f"{self!r}: {key!r} was replaced meanwhile", key=key)
        end = result.range[1] if size is None else size
        start = end + wanted.offset if wanted.offset < 0 else wanted.offset
        stop = end if wanted.length is None else start + wanted.length
        if not 0 <= start <= stop <= end:
            raise self._too_short(key, end, wanted)
        if request.most_nbytes is not None and stop - start > request.most_nbytes:
            raise ValueSizeError(
                f"{self!r}: {key!r} has {stop - start} bytes; at most {request.most_nbytes} are read", key=key
            )
        if result is None:
            return Answer(b"", version, size=size)
        if tuple(result.range) != (start, stop):
            raise OtherBytesError(other_range(result.range, (start, stop)))
        value = result.bytes()
        nbytes = len(value)
        if nbytes != stop - start:
            raise OtherBytesError(f"the server sent {nbytes} bytes instead of {stop - start}")
        traffic.count(bytes_read=nbytes)
        return Answer(value, version, size=size, token=(meta.get("e_tag") or None, meta.get("version")))

    def _too_short(self, key: str, size: int, wanted: ByteRange) -> ValueSizeError:
        return ValueSizeError(
            f"{self!r}: {key!r} has {size} bytes, too few for the range {describe_range(wanted)}", key=key
        )

    def _answer_all(self, requests: Sequence[Request]) -> list[Answer]:
        return io_threads.call_all([partial(self._get, request) for request in requests])

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return self._values([Request(key, most_nbytes=max_nbytes) for key in keys])

    def contains(self, keys: Iterable[str]) -> list[bool]:
        """Return whether each key has a value, in order."""
        found = io_threads.call_all([partial(self._head, "look for", key) for key in keys])
        return [meta is not None for meta in found]

    def _head(self, what: str, key: str) -> Mapping[str, Any] | None:
        """Return what the server says of a value without sending it, or None if there is none."""
        split_key(key)
        try:
            meta: Mapping[str, Any] = self._send(lambda module, store: module.head(store, self._path(key)))
        except FailedRequest as failed:
            if self._is_absent(what, key, failed):
                return None
            if LACKS_LENGTH in failed.failure.reason or is_unreadable(failed.failure):
                # It is there, but the server does not say how long it is, or obstore cannot read what it says.
                return {}
            if failed.failure.status in _NO_HEAD:
                try:
                    return None if self._get(Request(key, ByteRange(0, 1))).value is None else {}
                except ValueSizeError:
                    # It is empty.
                    return {}
                except StoreError as error:
                    if NO_RANGES not in str(error):
                        raise
                    return {}
            raise self._error(what, key, failed) from None
        return meta

    # -- listing

    def list(self) -> Iterator[str]:
        """Yield all keys, in the order of the server."""
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, in the order of the server, which lists them by pages."""
        return (key for key, _ in self.list_sizes(prefix))

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, each with the size of its value in bytes."""
        split_prefix(prefix)
        return ((key, meta["size"]) for key, meta in self._list_objects(prefix))

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, each with its entity tag, or else with what the server says."""
        split_prefix(prefix)
        for key, meta in self._list_objects(prefix):
            version = _version(meta)
            yield key, None if version is None else repr(version)

    def _list_objects(self, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield keys, each with what the server says of its object."""
        stream: Any = None
        last: str | None = None
        # The first key of each page, to notice a server that sends pages again and again.
        begins: set[str] = set()
        folder = self._path(prefix)

        def page(module: Any, store: Any) -> Any:
            nonlocal stream
            try:
                if stream is None:
                    stream = iter(module.list(store, folder or None, offset=last, chunk_size=PAGE_KEYS))
                return next(stream, None)
            except BaseException:
                # The next attempt begins after the last key that was seen.
                stream = None
                raise

        while True:
            try:
                found = io_threads.call(lambda: self._send(page, listing=True))
            except FailedRequest as failed:
                raise self._error("list", prefix, failed) from None
            self._seen = True
            if found is None:
                return
            begin = found[0]["path"] if len(found) else ""
            if begin in begins:
                raise StoreError(
                    f"{self!r}: cannot list {prefix!r}: the server sends the page that begins with {begin!r} again, so "
                    "its listing has no end",
                    key=prefix,
                )
            begins.add(begin)
            for entry in found:
                last = path = entry["path"]
                key = self._key(path, prefix)
                if key is not None:
                    yield key, entry

    def _key(self, path: str, prefix: str) -> str | None:
        """Return the key of an object, or the prefix of some; None if it is neither, or not below ``prefix``.

        Consoles of object stores make markers of folders: objects whose names end with a slash, which obstore leaves
        out. So the marker of the folder itself looks like another object beside it.
        """
        begin = self._prefix + prefix
        if not path.startswith(begin) or path == begin:
            return None
        key = path[len(self._prefix) :]
        return key if is_key(key.removesuffix("/")) else None

    def _direct_key(self, path: str, prefix: str) -> str | None:
        """Return the same; None also if it is not directly below: some WebDAV servers list all that is."""
        key = self._key(path, prefix)
        return None if key is None or "/" in key[len(prefix) :].removesuffix("/") else key

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted."""
        objects, prefixes = self._listed(prefix)
        return sorted(objects), sorted(prefixes)

    def _listed(self, prefix: str) -> tuple[dict[str, Mapping[str, Any]], Sequence[str]]:
        """Return the keys directly under ``prefix`` with what the server says of them, and the prefixes there."""
        split_prefix(prefix)
        try:
            return io_threads.call(lambda: self._entries(prefix))
        except FailedRequest as failed:
            raise self._error("list", prefix, failed) from None

    def _entries(self, prefix: str) -> tuple[dict[str, Mapping[str, Any]], Sequence[str]]:
        """Return the same; raise :class:`FailedRequest` instead of an error for users."""
        folder = self._path(prefix)
        found = self._send(lambda module, store: module.list_with_delimiter(store, folder or None), listing=True)
        self._seen = True
        objects = ((self._direct_key(entry["path"], prefix), entry) for entry in found["objects"])
        folders = (self._direct_key(f"{path}/", prefix) for path in found["common_prefixes"])
        return {key: entry for key, entry in objects if key is not None}, [name for name in folders if name]

    # -- writing

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} was opened read-only; nothing was changed")

    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` (bytes-like) under ``key``, in one step.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the object cannot be written; the old one is kept.
        """
        self._check_writable()
        split_key(key)
        view = as_view(value, key)
        try:
            self._overwrite(key, view)
        except FailedRequest as failed:
            raise self._error("write", key, failed) from None
        self._seen = True

    def set_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of some buffers under ``key``, like :meth:`set`."""
        self.set(key, parts[0] if len(parts) == 1 else b"".join(as_view(part, key) for part in parts))

    def _overwrite(self, key: str, view: memoryview) -> str | None:
        """Store a value; return as :meth:`_put`; raise :class:`FailedRequest` if it fails for good."""
        return self._change(key, view, partial(self._put, key, view, "overwrite"))

    def _change(self, key: str, view: memoryview, request: Callable[[Any, Any], T]) -> T:
        """Send a request that stores a value; raise :class:`FailedRequest` if it fails for good."""
        return io_threads.call(lambda: self._send(request, upload=view.nbytes, changes=(key,)))

    def _put(self, key: str, view: memoryview, mode: str | dict[str, Any], module: Any, store: Any) -> str | None:
        """Store a value; return the entity tag in the answer, or None if there was none and the value has its size."""
        large = view.nbytes > MULTIPART_BYTES and mode == "overwrite" and self._takes_parts
        stored = module.put(store, self._path(key), view, mode=mode, use_multipart=large, chunk_size=PART_BYTES)
        tag = stored.get("e_tag") if isinstance(stored, dict) else None
        if not tag:
            # The server may have taken the value for later ("202 Accepted"), or not at all.
            try:
                nbytes = module.head(store, self._path(key))["size"]
            # It may be any class of obstore.
            except Exception as error:
                if failure_of(error, self.url).kind not in (Kind.ABSENT, Kind.ABSENT_OR_NO_BUCKET):
                    raise
                nbytes = None
            if nbytes != view.nbytes:
                there = "there is no value" if nbytes is None else f"the value has {nbytes} bytes"
                raise ShortAnswerError(f"the server took {view.nbytes} bytes, but afterwards {there}")
        traffic.count(bytes_written=view.nbytes)
        return tag or None

    def _create(self, key: str, view: memoryview, request: Callable[[Any, Any], object]) -> bool:
        """Send a request that stores a value unless the key exists; return whether it was stored.

        Raises
        ------
        FailedRequest
            If it fails for another reason.
        """
        try:
            self._change(key, view, request)
        except FailedRequest as failed:
            if failed.failure.kind is not Kind.CONDITION:
                raise
            # The answer to an earlier attempt may have been lost after the server had stored the value.
            return failed.may_be_done and self.get(key) == view.tobytes()
        return True

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys, up to 1000 in a request where the server takes that."""
        self._check_writable()
        left = iter(keys)
        while some := tuple(islice(left, PAGE_KEYS)):
            for key in some:
                split_key(key)
            self._erase(some)
            self._check_erased(some)

    def _check_erased(self, keys: Sequence[str]) -> None:
        """Raise an error if there still are values that the server says it has erased, where its word is not enough."""

    def _erase(self, keys: Sequence[str]) -> None:
        # S3 takes many in a request. Elsewhere, one absent key would end a request for many.
        together = len(keys) if self._recipe[0] == "S3Store" else 1

        def send(i: int) -> None:
            some = keys[i * together : (i + 1) * together]
            paths = [self._path(key) for key in some]
            try:
                self._send(
                    lambda module, store: module.delete(store, paths if len(paths) > 1 else paths[0]), changes=some
                )
            except FailedRequest as failed:
                if not self._is_absent("erase", some[0], failed):
                    raise self._error("erase", some[0], failed) from None

        # Once one has failed for good, none goes on behind the caller's back.
        io_threads.each(send, -(-len(keys) // together), io_threads.io_thread_count())

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""
        self._check_writable()
        # What arrives after the listing would stay.
        late_changes.wait(self._name(prefix).rstrip("/"))
        self.erase_values(self.list_prefix(prefix))


def _version(meta: Mapping[str, Any]) -> Hashable | None:
    """Return the version of an object: a strong entity tag, or else what else the server says of it."""
    # Some servers send an empty one, which says nothing.
    tag = meta.get("e_tag") or None
    if tag is not None and not tag.startswith("W/"):
        return str(tag)
    modified = meta.get("last_modified")
    # Servers that do not say when a value was modified are given the beginning of time by obstore.
    seconds = None if modified is None or modified.timestamp() <= 0 else modified.timestamp()
    return None if tag is None and seconds is None else (tag, seconds, meta["size"])


def _as_known(version: Hashable | None, request: Request) -> Hashable | None:
    """Return the version that a request names, if the one of its answer differs in nothing but a size that is unknown.

    Servers that do not tell the size with each answer would have two versions of a value.
    """
    for known in (request.version, request.unless_version):
        if not isinstance(version, tuple) or not isinstance(known, tuple):
            continue
        if version[:2] == known[:2] and None in (version[2], known[2]):
            return known
    return version
