"""One GET request at a time by a handle of libcurl (pycurl): what is asked for, and the answer as it arrives."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .received import Received

#: Size of the buffer of each request, in bytes: what libcurl hands over at a time.
_BUFFER_BYTES: Final = 256 << 10
#: Bytes per second below which an answer counts as stalled: even a share of a slow line brings more.
LEAST_RATE: Final = 100
#: Most bytes of an answer that is no value, such as a page for browsers.
_PAGE_BYTES: Final = 64 << 10
_LENGTH: Final = b"content-length:"
_NOTHING: Final = memoryview(b"")


class Get(NamedTuple):
    """A GET request.

    Attributes
    ----------
    url
        Its URL, percent-encoded.
    headers
        Lines of its header, at least one, beside those that every request has.
    nbytes
        Bytes of the answer; None if they are not known.
    most_nbytes
        Most bytes of an answer; 0 for any number.
    """

    url: str
    headers: tuple[str, ...]
    nbytes: int | None
    most_nbytes: int


class Response(NamedTuple):
    """An answer.

    Attributes
    ----------
    status
        HTTP status.
    lines
        Lines of its header; only for the call that takes the answer.
    body
        All its bytes.
    seconds
        Time from the request to the last byte.
    """

    status: int
    lines: Sequence[bytes]
    body: memoryview
    seconds: float


class Failed(NamedTuple):
    """No answer, or one that is too long or was cut off.

    Attributes
    ----------
    reason
        What libcurl says of it.
    seconds
        As of :class:`Response`.
    is_too_long
        Whether the answer has more bytes than the request allows.
    """

    reason: str
    seconds: float
    is_too_long: bool = False


class Options(NamedTuple):
    """How requests are made; times in seconds.

    Attributes
    ----------
    connect_s
        Most for a connection.
    stall_s
        Most below :data:`LEAST_RATE`.
    timeout_s
        Most for a request, however it goes on.
    agent
        Name of the program, for the server.
    """

    connect_s: float
    stall_s: float
    timeout_s: float
    agent: str


class Source(Protocol):
    """Where requests come from. Its methods neither wait nor raise; threads call them, several at once.

    Several threads ask, and forget a source that has ended when they ask it again, which they do when they are woken.
    """

    options: Options

    def take(self, most: int) -> Sequence[tuple[Any, Get]]:
        """Return at most a number of requests, each with a token; none if there are none at present."""

    def done(self, token: Any, response: Response | Failed) -> None:
        """Take the answer to a request."""

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""

    def is_given_up(self) -> bool:
        """Return whether nobody waits for answers any more."""


class Transfer:
    """A handle of libcurl, and the request that it sends.

    Parameters
    ----------
    curl
        The module ``pycurl``.
    memory
        Memory of the thread.
    """

    def __init__(self, curl: Any, memory: Received) -> None:
        self._curl, self._memory = curl, memory
        self.source: Source | None = None
        self.token: Any = None
        self._lines: list[bytes] = []
        self._view, self._end = _NOTHING, 0
        self._nbytes: int | None = None
        # What the handle was told last.
        self._options: Options | None = None
        self._headers: tuple[str, ...] | None = None
        self._most_nbytes = 0
        handle: Any = curl.Curl()
        self.handle: Any = handle
        handle.transfer = self
        handle.setopt(curl.NOSIGNAL, 1)
        handle.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_1_1)
        handle.setopt(curl.BUFFERSIZE, _BUFFER_BYTES)
        handle.setopt(curl.PATH_AS_IS, 1)
        # Proxies are of the environment, which callers look at.
        handle.setopt(curl.PROXY, "")
        paths = ssl.get_default_verify_paths()
        if paths.cafile:
            handle.setopt(curl.CAINFO, paths.cafile)
        if paths.capath:
            handle.setopt(curl.CAPATH, paths.capath)
        handle.setopt(curl.WRITEFUNCTION, self._write)
        handle.setopt(curl.HEADERFUNCTION, self._lines.append)

    def set(self, source: Source, token: Any, get: Get) -> None:
        """Make the handle ready for a request."""
        curl, handle = self._curl, self.handle
        self.source, self.token, self._nbytes = source, token, get.nbytes
        self._view, self._end = _NOTHING, 0
        self._lines.clear()
        if self._options != source.options:
            self._options = options = source.options
            handle.setopt(curl.USERAGENT, options.agent)
            handle.setopt(curl.CONNECTTIMEOUT_MS, max(int(options.connect_s * 1000), 1))
            handle.setopt(curl.TIMEOUT_MS, max(int(options.timeout_s * 1000), 1))
            handle.setopt(curl.LOW_SPEED_LIMIT, LEAST_RATE)
            handle.setopt(curl.LOW_SPEED_TIME, max(int(options.stall_s), 1))
        if self._headers != get.headers:
            self._headers = get.headers
            # An empty list would leave the last one.
            handle.setopt(curl.HTTPHEADER, list(get.headers))
        # The length of a page that says why there is no value must not hide its status.
        most = max(get.most_nbytes, _PAGE_BYTES) if get.most_nbytes else 0
        if self._most_nbytes != most:
            self._most_nbytes = most
            handle.setopt(curl.MAXFILESIZE_LARGE, most)
        handle.setopt(curl.URL, get.url)

    def take(self, wrong: str, code: int = 0) -> tuple[Source, Any, Response | Failed]:
        """Return the source of the request that has ended, its token and its answer.

        Parameters
        ----------
        wrong, code
            Why there is none, and libcurl's number for it; empty and 0 if there is one.
        """
        curl, handle, source, token = self._curl, self.handle, self.source, self.token
        assert source is not None
        status, seconds = handle.getinfo(curl.RESPONSE_CODE), handle.getinfo(curl.TOTAL_TIME)
        body = self._view[: self._end]
        response: Response | Failed = Response(status, self._lines, body, seconds)
        # To libcurl, an answer may end in its header.
        is_too_long = code == curl.E_FILESIZE_EXCEEDED
        if is_too_long and self._is_header_complete() and not 200 <= status < 300:
            # The page says why there is no value, and its beginning is enough of it.
            wrong = ""
        if wrong or not self._is_header_complete():
            # What libcurl says may have the URL in it, which may be a secret.
            reason = wrong.partition("http")[0] or "the answer was cut off"
            response = Failed(reason, seconds, is_too_long)
        self.source = self.token = None
        self._view = _NOTHING
        return source, token, response

    def _is_header_complete(self) -> bool:
        """Return whether there is an empty line after the last line with a status; trailers may follow."""
        for line in reversed(self._lines):
            if line in (b"\r\n", b"\n"):
                return True
            if line.startswith(b"HTTP/"):
                return False
        return False

    def _write(self, part: bytes) -> int:
        """Take the next bytes; return how many were taken."""
        begin, end = self._end, self._end + len(part)
        try:
            if end > len(self._view):
                self._make_room(end)
            self._view[begin:end] = part
        except (MemoryError, ValueError):
            return 0
        self._end = end
        return len(part)

    def _make_room(self, nbytes: int) -> None:
        if self._end:
            expected = 2 * nbytes
        elif self._nbytes is not None:
            expected = self._nbytes
        else:
            # Of the last header. libcurl has compared it with the most bytes of the answer, if there is such a bound.
            lengths = (int(line[15:]) for line in reversed(self._lines) if line[:15].lower() == _LENGTH)
            expected = next(lengths, 0)
            if self._most_nbytes:
                expected = min(expected, self._most_nbytes)
        view = self._memory.take(max(nbytes, expected))
        view[: self._end] = self._view[: self._end]
        self._view = view
