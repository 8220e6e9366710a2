"""Reading from a remote store by plain GET requests (:mod:`gzarr.stores.curl_threads`), where that is the same.

They are sent where nothing but a URL and a byte range makes a request: to web servers without headers of their own, and
to S3 and Azure by signed URLs, which obstore makes. An answer that brings what was asked for is used, and so is one
that says for good why there is none. An answer that obstore would mistake for a whole value is an error: obstore takes
what comes with any status that means success. All else is asked for again by obstore, which knows what it means and how
long to go on. Where plain requests fail and obstore's succeed, none are sent for a minute.

Some answers of web servers are of use here alone: those in chunks (``Transfer-Encoding: chunked``), whose length nobody
knows before the end, those with a content encoding, and parts of values whose size is not told.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import deque
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from .. import ending
from ..errors import StoreError, ValueSizeError
from ..guarded import Lock
from ..waiting import taken_from
from . import attempts, curl_threads, io_threads, traffic
from .attempts import FailedRequest, ShortAnswerError
from .base import Answer
from .content_encodings import content_encodings, decoded, encoded, without_length
from .curl_transfers import Failed, Get, Response
from .object_errors import Failure, Kind, failure_of_answer
from .plain_urls import can_be_sent
from .remote_answers import CONTENT_RANGE, STATUSES, WHOLE, OtherBytesError, few_times, why_not_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .base import Request, RequestStream
    from .connections import Connections
    from .curl_transfers import Options
    from .plain_urls import PlainUrls

#: Of "content-encoding", "content-length", "content-range", "etag", "last-modified", "transfer-encoding" and
#: "x-amz-version-id"; and of the line with the status.
_INITIALS: Final = frozenset((b"c", b"C", b"e", b"E", b"l", b"L", b"t", b"T", b"x", b"X", b"H"))
_ANY: Final = ("Accept: */*",)
#: Answers that some servers give to all plain requests, or to signed URLs.
_REFUSALS: Final = frozenset((400, 401, 403))


class Behind(Protocol):
    """The store of the values (:class:`gzarr.stores.remote_store.RemoteStore`)."""

    url: str
    timeout: float
    _seen: bool
    _undoes_encodings: bool
    _needs_plain: bool

    def connections(self) -> Connections | None:
        """Return what limits the number of requests to the server; None if nothing does."""

    def _path(self, key: str) -> str: ...

    def _store(self) -> Any: ...

    def _get(self, request: Request, first: FailedRequest | None = None) -> Answer: ...

    def _answer_of(self, request: Request, failed: FailedRequest) -> Answer: ...

    def _checked(self, request: Request, meta: Mapping[str, Any], result: Any) -> Answer: ...


class Gets:
    """The requests of a stream, as plain ones where that is possible.

    Parameters
    ----------
    store
        Store of the values.
    plain
        How to send plain requests to it.
    stream
        The requests, and what takes their answers.
    most
        Most of them in progress.
    """

    def __init__(self, store: Behind, plain: PlainUrls, stream: RequestStream, most: int) -> None:
        self._store, self._plain, self._stream, self._most = store, plain, stream, most
        self.options: Options = plain.options
        self._connections = store.connections()
        self._lock = Lock()
        self._in_progress = 0
        # Requests whose URLs are being signed, or are signed.
        self._signing = 0
        self._signed: deque[tuple[Any, Get]] = deque()
        # In I/O threads.
        self._run = ending.for_caller(self._work)
        self._sign = ending.for_caller(self._sign_urls)

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""
        return self._stream.has_ended() and not self._signing and not self._signed

    def is_given_up(self) -> bool:
        """Return whether nobody waits for answers any more."""
        return self._stream.is_given_up()

    def take(self, most: int) -> list[tuple[Any, Get]]:
        """Return at most a number of requests, each with what tells it apart."""
        if self._connections is None:
            return self._take(most)
        room = self._connections.take(most)
        taken: list[tuple[Any, Get]] = []
        try:
            # URLs of web servers are not signed: each request that is taken is sent now.
            taken = self._take(room) if room else []
        finally:
            if room > len(taken):
                self._connections.give_back(room - len(taken))
        if len(taken) == room < most and not self._stream.has_ended():
            self._connections.want_more()
        return taken

    def _take(self, most: int) -> list[tuple[Any, Get]]:
        gets: list[tuple[Any, Get]] = []
        found: list[tuple[Any, Request]] = []
        with self._lock:
            while len(gets) < most and self._signed:
                gets.append(self._signed.popleft())
            room = min(most - len(gets), self._most - self._in_progress)
            while len(found) < room and (asked := self._stream.next_request()) is not None:
                found.append(asked)
            self._in_progress += len(found)
            quick = self._plain.are_quick or not found
            if not quick:
                self._signing += 1
        if not quick:
            io_threads.submit(partial(self._sign, found), self._stream.is_given_up)
        elif found:
            gets += self._with_urls(found)
        if found and self._stream.has_ended():
            # Other threads need not keep it any longer.
            curl_threads.wake()
        return gets

    def _with_urls(self, asked: Sequence[tuple[Any, Request]]) -> list[tuple[Any, Get]]:
        """Return plain requests; the others are sent by obstore."""
        urls: list[str | None] = [None] * len(asked)
        # An exception of obstore may be of any class. Its own request will say what is wrong.
        with contextlib.suppress(BaseException):
            paths = [self._store._path(request.key) for _, request in asked]
            plain = [i for i, (_, request) in enumerate(asked) if self._plain.takes(request, paths[i])]
            if plain and self._plain.possible():
                found = self._plain.of([paths[i] for i in plain], self._store._store())
                for i, made in zip(plain, found, strict=True):
                    urls[i] = made
        gets = []
        for token, url in zip(asked, urls, strict=True):
            if url is None:
                self._begin(token, partial(self._store._get, token[1]))
            else:
                gets.append((token, _get(url, token[1])))
        return gets

    def done(self, token: tuple[Any, Request], response: Response | Failed) -> None:
        """Hand over the answer to a request, if it brings what was asked for."""
        try:
            if self._connections is not None:
                answered = isinstance(response, Response)
                self._connections.ended(response.seconds if answered else None, _keeps_connection(response))
            answer: Answer | None
            if isinstance(response, Failed) and self.is_given_up():
                answer = _failed(StoreError(response.reason, key=token[1].key), token[1])
            else:
                answer = self._answer_or_begin(token, response)
        # Nobody else would hear of it.
        except BaseException as error:
            answer = _failed(error, token[1])
        if answer is not None:
            self._finish(token, answer)

    def _answer_or_begin(self, token: tuple[Any, Request], response: Response | Failed) -> Answer | None:
        """Return the answer to a request; None if an I/O thread will hand it over."""
        request = token[1]
        traffic.count(requests=1, seconds=response.seconds)
        failure: Failure | None = None
        if isinstance(response, Failed):
            failure = Failure(Kind.TEMPORARY, None, response.reason)
        elif 200 <= response.status < 300:
            try:
                answer = _answer_in(response, request, self._store)
            except (ShortAnswerError, OtherBytesError) as error:
                failure = Failure(Kind.TEMPORARY, None, str(error))
            else:
                if answer is not None:
                    self._plain.succeeded()
                    self._store._seen = True
                    return answer
        else:
            failure = _failure_in(response, self._store.url, self._plain)
            if failure is not None and failure.kind is Kind.ABSENT:
                self._store._seen = True
            if failure is not None and request.version is None and self._is_absent(failure):
                return Answer(None)
        if failure is None:
            traffic.count(retries=1)
            self._begin(token, partial(self._by_obstore, request, None))
            return None
        first = FailedRequest(failure, 1, response.seconds)
        if failure.kind is Kind.TEMPORARY:
            self._begin(token, partial(self._by_obstore, request, first))
        else:
            self._begin(token, partial(self._store._answer_of, request, first))
        return None

    def _is_absent(self, failure: Failure) -> bool:
        return failure.kind is Kind.ABSENT or (failure.kind is Kind.ABSENT_OR_NO_BUCKET and self._store._seen)

    # -- in I/O threads

    def _begin(self, token: tuple[Any, Request], work: Callable[[], Answer]) -> None:
        io_threads.submit(partial(self._run, token, work), self._stream.is_given_up)

    def _sign_urls(self, asked: Sequence[tuple[Any, Request]]) -> None:
        if self._stream.is_given_up():
            for token in asked:
                self._finish(token, Answer(None))
        else:
            self._signed.extend(self._with_urls(asked))
        with self._lock:
            self._signing -= 1
        curl_threads.wake()

    def _by_obstore(self, request: Request, first: FailedRequest | None) -> Answer:
        """Answer a request whose plain form has failed."""
        from_end = self._plain.from_end
        answer = self._store._get(request, first)
        # The request was no better than the plain one if the server has been found to lack such ranges, or if it was
        # another plain one that succeeded.
        if answer.value is not None and from_end == self._plain.from_end and not self._store._needs_plain:
            self._plain.failed(busy=first is not None and first.failure.status is not None)
        return answer

    def _work(self, token: tuple[Any, Request], work: Callable[[], Answer]) -> None:
        try:
            answer = work()
        # A panic of obstore is a BaseException.
        except BaseException as error:
            answer = _failed(error, token[1])
        self._finish(token, answer)
        # There is room for another.
        curl_threads.wake()

    def _finish(self, token: tuple[Any, Request], answer: Answer) -> None:
        with self._lock:
            self._in_progress -= 1
        self._stream.answered(token[0], answer)


def _failed(error: BaseException, request: Request) -> Answer:
    return Answer(None, error=error if isinstance(error, Exception) else StoreError(str(error), key=request.key))


class _Received:
    """Bytes of a value, as obstore returns them."""

    __slots__ = ("_body", "range")

    #: What obstore says of an encoding; here it is undone.
    attributes: Final[Mapping[str, str]] = {}

    def __init__(self, begin: int, body: bytes | memoryview) -> None:
        self.range = begin, begin + len(body)
        self._body = body

    def bytes(self) -> bytes | memoryview:
        """Return the bytes."""
        return self._body


class _One:
    """One request, whose sender waits for the answer.

    Parameters
    ----------
    get
        The request.
    options
        How it is made.
    """

    def __init__(self, get: Get, options: Options) -> None:
        self.options = options
        self._left = [get]
        self.answers: SimpleQueue[Response | Failed] = SimpleQueue()

    def take(self, most: int) -> list[tuple[Any, Get]]:
        """Return the request, once."""
        with contextlib.suppress(IndexError):
            return [(None, self._left.pop())]
        return []

    def done(self, token: Any, response: Response | Failed) -> None:
        """Take the answer."""
        if isinstance(response, Response):
            response = response._replace(lines=tuple(response.lines))
        self.answers.put(response)

    def has_ended(self) -> bool:
        """Return whether the request was taken."""
        return not self._left

    def is_given_up(self) -> bool:
        """Return False: the sender waits."""
        return False


class _RefusedError(Exception):
    """An answer that does not bring what was asked for."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def answer_one(store: Behind, plain: PlainUrls, request: Request, first: FailedRequest | None) -> Answer | None:
    """Answer a request by a plain one and wait for it; None if there is none for it, or if it brings no answer.

    Parameters
    ----------
    store, plain
        Store of the value, and how to send plain requests to it.
    request
        The request. A value that the caller has already is sent, too, if its version is no entity tag.
    first
        A first attempt that has failed; None if there was none.

    Raises
    ------
    FailedRequest
        If it fails for good.
    StoreError
        If the value is not as it should be.
    """
    path = store._path(request.key)
    if not (plain.takes(replace(request, unless_version=None), path) and plain.possible()):
        return None
    (url,) = plain.of([path], store._store())
    get = _get(url, request)

    def send() -> Answer | None:
        one = _One(get, plain.options)
        if not curl_threads.submit(one):
            return None
        response = taken_from(one.answers)
        if isinstance(response, Failed):
            if response.is_too_long and get.nbytes is not None:
                return None
            if response.is_too_long:
                most = get.most_nbytes
                raise ValueSizeError(
                    f"{store!r}: {request.key!r} has more than {most} bytes; at most {most} are read", key=request.key
                )
            raise ShortAnswerError(response.reason)
        if 200 <= response.status < 300:
            return _answer_in(response, request, store)
        failure = _failure_in(response, store.url, plain)
        if failure is None:
            return None
        raise _RefusedError(failure)

    answer = attempts.send(send, few_times(_failure_of), store.timeout, first, store.connections())
    if answer is not None:
        plain.succeeded()
        store._seen = True
    return answer


def _failure_of(error: BaseException) -> Failure:
    return error.failure if isinstance(error, _RefusedError) else Failure(Kind.FINAL, None, type(error).__name__)


def _answer_in(response: Response, request: Request, store: Behind) -> Answer | None:
    """Return the answer to a request; None if obstore has to say what it means.

    Raises
    ------
    ShortAnswerError, OtherBytesError
        If it is worth another attempt.
    StoreError
        If the value is not as it should be.
    """
    wanted = request.byte_range
    whole = not wanted.offset and wanted.length is None
    headers = _parsed(response.lines)
    if not whole:
        if response.status != 206:
            return None
    elif response.status not in WHOLE:
        if response.status not in STATUSES:
            return None
        wrong = why_not_whole(response.status, headers.get(b"content-range", b""), len(response.body))
        if wrong:
            raise StoreError(f"{store!r}: cannot read {request.key!r}: {wrong}", key=request.key)
    encoding = headers.get(b"content-encoding")
    if encoding is not None and not store._undoes_encodings:
        return None
    encodings = [] if encoding is None else content_encodings(encoding.decode("latin-1"))
    if encodings and not whole:
        raise encoded(store, request, encodings)
    begin, nbytes = 0, len(response.body)
    size: int | None
    if whole:
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            size = int(length)
        elif headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            # To libcurl, one that was cut off is a failure.
            size = nbytes
        else:
            raise without_length(store, request, "where it ends, so one that was cut off looks like a complete one")
    else:
        found = CONTENT_RANGE.fullmatch(headers.get(b"content-range", b""))
        if found is None or int(found[2]) != int(found[1]) + nbytes - 1:
            return None
        begin = int(found[1])
        if found[3] != b"*":
            size = int(found[3])
        else:
            # A part without a length of its own ends where the value does.
            size = begin + nbytes if wanted.length is None else None
    body: bytes | memoryview = response.body
    if encodings:
        if size != nbytes:
            raise ShortAnswerError(f"the server sent {nbytes} bytes instead of {size}")
        body = decoded(response.body, encodings, request, store)
        size = len(body)
    return store._checked(request, _meta(headers, size), _Received(begin, body))


def _failure_in(response: Response, url: str, plain: PlainUrls) -> Failure | None:
    """Return what a failure means; None if obstore has to say it."""
    status = response.status
    if status < 400 and status != 304:
        return None
    if status in _REFUSALS and not plain.proven:
        return None
    phrase = HTTPStatus(status).phrase if status in STATUSES else ""
    return failure_of_answer(status, phrase, response.body, url)


def _get(url: str, request: Request) -> Get:
    """Return the plain request for one that is not for a range of no bytes."""
    wanted, nbytes = request.byte_range, request.byte_range.length
    lines: tuple[str, ...] = _ANY
    if wanted.offset < 0:
        nbytes = -wanted.offset
        lines += (f"Range: bytes={wanted.offset}",)
    elif nbytes is not None:
        lines += (f"Range: bytes={wanted.offset}-{wanted.offset + nbytes - 1}",)
    elif wanted.offset:
        lines += (f"Range: bytes={wanted.offset}-",)
    if isinstance(request.version, str):
        lines += (f"If-Match: {request.version}",)
    if isinstance(request.unless_version, str) and can_be_sent(request.unless_version):
        lines += (f"If-None-Match: {request.unless_version}",)
    return Get(url, lines, nbytes, nbytes or request.most_nbytes or 0)


def _keeps_connection(response: Response | Failed) -> bool | None:
    """Return whether a server has kept a connection open after an answer; None if there is none."""
    if isinstance(response, Failed) or not response.lines:
        return None
    version = b"HTTP/1.1"
    stated: set[bytes] = set()
    for line in response.lines:
        if line.startswith(b"HTTP/"):
            # What came before was a part of another header.
            version, stated = line[:8], set()
        elif line[:11].lower() == b"connection:":
            stated.update(option.strip() for option in line[11:].lower().split(b","))
    return b"keep-alive" in stated if version == b"HTTP/1.0" else b"close" not in stated


def _parsed(lines: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of the last header that matter here, by name in lower case; of equal ones the first.

    The lines of content encodings are one list (RFC 9110, section 5.3).
    """
    found: dict[bytes, bytes] = {}
    for line in lines:
        # Most lines are others.
        if line[:1] in _INITIALS:
            if line.startswith(b"HTTP/"):
                # What came before was a part of another header.
                found.clear()
                continue
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip()
            if name == b"content-encoding" and name in found:
                found[name] += b", " + value
            else:
                found.setdefault(name, value)
    return found


def _meta(headers: Mapping[bytes, bytes], size: int | None) -> dict[str, Any]:
    """Return what the server says of a value, as obstore does; its size may be None, if it says none."""
    tag = headers.get(b"etag")
    if not tag or not tag.isascii():
        # It says nothing, or cannot be sent back in a condition.
        tag = None
    meta: dict[str, Any] = {"size": size, "e_tag": None if tag is None else tag.decode("ascii")}
    if b"x-amz-version-id" in headers:
        meta["version"] = headers[b"x-amz-version-id"].decode("latin-1")
    modified = headers.get(b"last-modified")
    if modified is not None and (not tag or tag.startswith(b"W/")):
        # To a date that nobody understands, none is as good.
        with contextlib.suppress(ValueError, OverflowError):
            date = parsedate_to_datetime(modified.decode("latin-1"))
            meta["last_modified"] = date if date.tzinfo is not None else date.replace(tzinfo=datetime.UTC)
    return meta
