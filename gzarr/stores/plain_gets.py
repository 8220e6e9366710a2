"""Reading from a remote store by plain GET requests (:mod:`gzarr.stores.curl_threads`), where that is the same.

They are sent where nothing but a URL and a byte range makes a request: to web servers without headers of their own, and
to S3 and Azure by signed URLs, which obstore makes. Answers that bring what was asked for are used. After anything else
(a failure, an answer cut off, another version, a redirection) the request is sent by obstore, which knows what it means
and tries again. Where plain requests fail and obstore's succeed, no more are sent.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import threading
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from .. import ending
from ..errors import StoreError
from . import curl_threads, io_threads, obstore_module, traffic
from .attempts import FailedRequest, ShortAnswerError
from .base import Answer
from .curl_threads import Failed, Get, Options, Response
from .object_errors import Failure, Kind, failure_of_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .base import Request, RequestStream

#: Options of a client that mean nothing but times, and the name that it gives.
_CLIENT: Final = frozenset({"allow_http", "connect_timeout", "read_timeout", "timeout", "user_agent"})
#: Options of a store that a signed URL contains.
_SIGNED: Final = {
    "S3Store": frozenset(
        {
            "access_key_id",
            "bucket",
            "endpoint",
            "region",
            "secret_access_key",
            "session_token",
            "skip_signature",
            "virtual_hosted_style_request",
        }
    ),
    "AzureStore": frozenset({"account_key", "account_name", "container_name", "endpoint", "use_emulator"}),
}
#: Variables with which requests go another way.
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
#: Paths that no client encodes, or each in the same way.
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*", re.ASCII)
_PLAIN_URL: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~-]+)*/?", re.ASCII)
#: A version that can be sent in a header.
_TAG: Final = re.compile(r'"[\x21\x23-\x7e]*"', re.ASCII)
_RANGE: Final = re.compile(rb"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.IGNORECASE)
#: Of "content-encoding", "content-range", "etag", "last-modified" and "x-amz-version-id".
_INITIALS: Final = frozenset((b"c", b"C", b"e", b"E", b"l", b"L", b"x", b"X"))
_ANY: Final = ("Accept: */*",)
_STATUSES: Final = frozenset(HTTPStatus)
#: Seconds for which a signed URL is valid: it is used at once.
_VALID_S: Final = 3600
#: Plain requests in a row that failed where obstore's did not.
_MOST_FAILURES: Final = 4
_TWIN: Final = {"access_key_id": "none", "secret_access_key": "none", "skip_signature": "false"}


class PlainGets:
    """How to send plain requests to a store.

    Parameters
    ----------
    kind, arguments, keywords
        Class of obstore and its arguments.
    """

    def __init__(self, kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        client = keywords.get("client_options") or {}
        self.options = Options(
            connect_s=_seconds(client.get("connect_timeout"), 5),
            stall_s=_seconds(client.get("read_timeout"), 30),
            timeout_s=_seconds(client.get("timeout"), 30),
            agent=str(client.get("user_agent", "gzarr")),
        )
        self._kind = kind
        self._base = str(arguments[0]).rstrip("/") if kind == "HTTPStore" and len(arguments) == 1 else ""
        self._config = dict(keywords.get("config") or {})
        skips = self._config.get("skip_signature", os.environ.get("AWS_SKIP_SIGNATURE", "false"))
        self._unsigned = kind == "S3Store" and str(skips).lower() == "true"
        #: Whether URLs are signed, and whether one was taken.
        self.is_signed = kind != "HTTPStore" and not self._unsigned
        self.proven = False
        self._failures = 0
        self._possible = _are_plain(kind, arguments, keywords)

    def possible(self) -> bool:
        """Return whether plain requests can be sent now."""
        return (
            self._possible
            and self._failures < _MOST_FAILURES
            and not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
            and curl_threads.available()
        )

    def takes(self, request: Request) -> bool:
        """Return whether a request can be a plain one."""
        wanted, version = request.byte_range, request.version
        # A range of no bytes cannot be expressed in HTTP, and Azure takes none that count from the end.
        if wanted.length == 0 or (wanted.offset < 0 and self._kind == "AzureStore"):
            return False
        return request.unless_version is None and (not isinstance(version, str) or bool(_TAG.fullmatch(version)))

    def failed(self) -> None:
        """Count a request that failed where obstore's did not."""
        self._failures += 1

    def succeeded(self) -> None:
        """Begin to count anew."""
        self._failures = 0
        self.proven = True

    def urls(self, paths: Sequence[str], store: Any) -> list[str]:
        """Return the URLs of some objects.

        Parameters
        ----------
        paths
            Paths from the root of the store of obstore.
        store
            That store.
        """
        if self._base:
            return [f"{self._base}/{path}" for path in paths]
        if self._unsigned:
            # obstore signs nothing for such a store. One with any keys has the same URLs, apart from the signature.
            keywords = {"config": self._config | _TWIN, "client_options": {"allow_http": True}}
            store = obstore_module.make(self._kind, (), keywords)
        valid = datetime.timedelta(seconds=_VALID_S)
        try:
            signed: list[str] = obstore_module.module().sign(store, "GET", list(paths), valid)
        except BaseException:
            # Not for every store can it be done, and the wait for credentials may be long.
            self._possible = False
            raise
        return [url.partition("?")[0] for url in signed] if self._unsigned else signed


def _are_plain(kind: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    client = keywords.get("client_options") or {}
    if set(client) - _CLIENT or set(keywords) - {"client_options", "config", "credential_provider", "retry_config"}:
        return False
    config = keywords.get("config") or {}
    if kind == "HTTPStore":
        return len(arguments) == 1 and not config and _PLAIN_URL.fullmatch(str(arguments[0])) is not None
    return kind in _SIGNED and not arguments and bool(config) and not set(config) - _SIGNED[kind]


def _seconds(value: Any, default: float) -> float:
    return value.total_seconds() if isinstance(value, datetime.timedelta) else default


class Behind(Protocol):
    """The store of the values (:class:`gzarr.stores.remote_store.RemoteStore`)."""

    url: str
    _seen: bool

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

    def __init__(self, store: Behind, plain: PlainGets, stream: RequestStream, most: int) -> None:
        self._store, self._plain, self._stream, self._most = store, plain, stream, most
        self.options = plain.options
        self._lock = threading.Lock()
        self._in_progress = 0
        # In I/O threads.
        self._run = ending.for_caller(self._work)

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""
        return self._stream.has_ended()

    def take(self, most: int) -> list[tuple[Any, Get]]:
        """Return at most a number of requests, each with what tells it apart."""
        found: list[tuple[Any, Request]] = []
        with self._lock:
            most = min(most, self._most - self._in_progress)
            while len(found) < most and (asked := self._stream.next_request()) is not None:
                found.append(asked)
            self._in_progress += len(found)
        gets = []
        urls = self._urls([request for _, request in found])
        for token, url in zip(found, urls, strict=True):
            if url is None:
                self._begin(token, partial(self._store._get, token[1]))
            else:
                gets.append((token, _get(url, token[1])))
        return gets

    def _urls(self, requests: Sequence[Request]) -> list[str | None]:
        paths = [self._store._path(request.key) for request in requests]
        plain = [i for i, path in enumerate(paths) if _PLAIN_PATH.fullmatch(path) and self._plain.takes(requests[i])]
        urls: list[str | None] = [None] * len(paths)
        if plain and self._plain.possible():
            # An exception of obstore may be of any class. Its own request will say what is wrong.
            with contextlib.suppress(Exception):
                signed = self._plain.urls([paths[i] for i in plain], self._store._store())
                for i, url in zip(plain, signed, strict=True):
                    urls[i] = url
        return urls

    def done(self, token: tuple[Any, Request], response: Response | Failed) -> None:
        """Hand over the answer to a request, if it brings what was asked for."""
        request = token[1]
        traffic.count(requests=1, seconds=response.seconds)
        failure: Failure | None
        if isinstance(response, Failed):
            failure = Failure(Kind.TEMPORARY, None, response.reason)
        elif 200 <= response.status < 300:
            try:
                answer = self._answer(request, response)
            except ShortAnswerError as error:
                failure = Failure(Kind.TEMPORARY, None, str(error))
            except (StoreError, MemoryError) as error:
                self._finish(token, Answer(None, error=error))
                return
            else:
                if answer is not None:
                    self._plain.succeeded()
                    self._store._seen = True
                    self._finish(token, answer)
                    return
                failure = None
        else:
            failure = self._failure(response)
            if failure is not None and request.version is None and self._is_absent(failure):
                self._finish(token, Answer(None))
                return
        first = None if failure is None else FailedRequest(failure, 1, response.seconds)
        if first is not None and first.failure.kind is not Kind.TEMPORARY:
            self._begin(token, partial(self._store._answer_of, request, first))
            return
        if first is not None:
            traffic.count(retries=1)
        self._begin(token, partial(self._by_obstore, request, first))

    def _answer(self, request: Request, response: Response) -> Answer | None:
        """Return the answer to a request; None if obstore has to say what it means.

        Raises
        ------
        ShortAnswerError
            If it is worth another attempt.
        StoreError
            If the value is not as it should be.
        """
        wanted = request.byte_range
        whole = not wanted.offset and wanted.length is None
        headers = _parsed(response.lines)
        if response.status != (200 if whole else 206) or b"content-encoding" in headers:
            return None
        begin, size = 0, len(response.body)
        if not whole:
            found = _RANGE.fullmatch(headers.get(b"content-range", b""))
            if found is None:
                return None
            begin, size = int(found[1]), int(found[3])
        return self._store._checked(request, _meta(headers, size), _Received(begin, response.body))

    def _failure(self, response: Response) -> Failure | None:
        """Return what a failure means; None if obstore has to say it."""
        status = response.status
        if status < 400 and status != 304:
            return None
        if self._plain.is_signed and status in (400, 401, 403) and not self._plain.proven:
            # Some servers take no signed URLs.
            return None
        phrase = HTTPStatus(status).phrase if status in _STATUSES else ""
        return failure_of_answer(status, phrase, bytes(response.body), self._store.url)

    def _is_absent(self, failure: Failure) -> bool:
        absent = failure.kind is Kind.ABSENT
        if absent:
            self._store._seen = True
        return absent or (failure.kind is Kind.ABSENT_OR_NO_BUCKET and self._store._seen)

    # -- in I/O threads

    def _begin(self, token: tuple[Any, Request], work: Callable[[], Answer]) -> None:
        io_threads.submit(partial(self._run, token, work), self._stream.is_given_up)

    def _by_obstore(self, request: Request, first: FailedRequest | None) -> Answer:
        """Answer a request whose plain form has failed."""
        answer = self._store._get(request, first)
        if answer.value is not None:
            self._plain.failed()
        return answer

    def _work(self, token: tuple[Any, Request], work: Callable[[], Answer]) -> None:
        try:
            answer = work()
        # A panic of obstore is a BaseException.
        except BaseException as error:
            failure = error if isinstance(error, Exception) else StoreError(str(error), key=token[1].key)
            answer = Answer(None, error=failure)
        self._finish(token, answer)
        # There is room for another.
        curl_threads.wake()

    def _finish(self, token: tuple[Any, Request], answer: Answer) -> None:
        with self._lock:
            self._in_progress -= 1
        self._stream.answered(token[0], answer)


class _Received:
    """Bytes of a value, as obstore returns them."""

    __slots__ = ("_body", "range")

    def __init__(self, begin: int, body: memoryview) -> None:
        self.range = begin, begin + len(body)
        self._body = body

    def bytes(self) -> memoryview:
        """Return the bytes."""
        return self._body


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
    return Get(url, lines, nbytes, nbytes or request.most_nbytes or 0)


def _parsed(lines: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a header that matter here, by name in lower case."""
    found = {}
    for line in lines:
        # Most lines are others.
        if line[:1] in _INITIALS:
            name, _, value = line.partition(b":")
            found[name.lower()] = value.strip()
    return found


def _meta(headers: Mapping[bytes, bytes], size: int) -> dict[str, Any]:
    """Return what the server says of a value, as obstore does."""
    tag = headers.get(b"etag")
    meta: dict[str, Any] = {"size": size, "e_tag": None if tag is None else tag.decode("latin-1")}
    if b"x-amz-version-id" in headers:
        meta["version"] = headers[b"x-amz-version-id"].decode("latin-1")
    modified = headers.get(b"last-modified")
    if modified is not None and (tag is None or tag.startswith(b"W/")):
        try:
            meta["last_modified"] = parsedate_to_datetime(modified.decode("latin-1"))
        except ValueError as error:
            raise ShortAnswerError(f"the server sent the date {modified!r}") from error
    return meta
