"""Answers of web servers with unusual headers, and what is asked of such servers again."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import types
import zlib
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support.web_server import running

import gzarr
from gzarr.engines.access.answers import answers
from gzarr.errors import StoreError, ValueSizeError
from gzarr.stores import connections, content_encodings, curl_threads
from gzarr.stores.base import ByteRange, Request
from gzarr.stores.content_encodings import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VALUE = b"value" * 10


class Odd(http.server.BaseHTTPRequestHandler):
    """Sends one value."""

    protocol_version = "HTTP/1.1"
    value = VALUE
    tag = '"1"'
    fields: ClassVar[list[tuple[str, str]]] = []
    is_chunked = False
    # Statuses of the next answers, with pages; 200 afterwards.
    statuses: list[int]
    sent: list[int]

    def handle(self) -> None:
        # libcurl leaves long pages.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        value, status = self.value, self.statuses.pop(0) if self.statuses else 200
        wanted = self.headers.get("Range", "")
        if status != 200:
            value = b"<p>busy</p>" * 10_000
        elif self.tag and self.headers.get("If-None-Match") == self.tag:
            status, value = 304, b""
        elif wanted:
            begin, end = wanted.removeprefix("bytes=").split("-")
            value = value[int(begin) : int(end or len(value)) + 1]
            status = 206 if value else 416
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(value) - 1}/{len(self.value)}")
        self.send_header("ETag", self.tag)
        for name, field in self.fields:
            self.send_header(name, field)
        is_chunked = self.is_chunked and status != 304
        if is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
            value = b"%x\r\n%s\r\n0\r\n\r\n" % (len(value), value)
        elif status != 304:
            self.send_header("Content-Length", str(len(value)))
        self.sent.append(status)
        self.end_headers()
        if self.command == "GET" and status != 304:
            self.wfile.write(value)

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def handler() -> Any:
    return type("Handler", (Odd,), {"statuses": [], "sent": []})


@pytest.fixture
def url(handler: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(connections, "_servers", {})
    with running(handler) as url:
        yield url


@pytest.mark.parametrize("fields", ["utf-8|gzip", "identity|gzip"])
def test_lines_of_content_encodings_are_one_list(fields: str, handler: Any, url: str) -> None:
    handler.value = gzip.compress(VALUE)
    handler.fields = [("Content-Encoding", field) for field in fields.split("|")]
    store: Any = gzarr.open_store(url)
    assert store.get("k") == VALUE
    whole, part = answers(store, [Request("k"), Request("k", ByteRange(0, 5))])
    assert whole.value == VALUE
    assert isinstance(part.error, StoreError)
    assert "content encoding 'gzip'" in str(part.error)
    (part,) = gzarr.open_store(url).get_many([Request("k", ByteRange(0, 5))])  # type: ignore[attr-defined]
    assert "content encoding 'gzip'" in str(part.error)


def test_two_encodings_are_refused(handler: Any, url: str) -> None:
    handler.value = gzip.compress(gzip.compress(VALUE))
    handler.fields = [("Content-Encoding", "gzip")] * 2
    for answer in (*answers(gzarr.open_store(url), [Request("k")]), *gzarr.open_store(url).get_many([Request("k")])):  # type: ignore[attr-defined]
        assert "content encoding 'gzip, gzip'" in str(answer.error)


def test_an_encoding_without_meaning(by: str, handler: Any, url: str) -> None:
    handler.fields = [("Content-Encoding", "utf-8")]
    store: Any = gzarr.open_store(url)
    assert store.get("k") == VALUE
    assert store.get_many([Request("k", ByteRange(5, 5))])[0].value == b"value"


@pytest.mark.parametrize("status", [404, 503])
def test_long_pages_in_chunks_have_a_status(status: int, handler: Any, url: str) -> None:
    handler.is_chunked = True
    store: Any = gzarr.open_store(url)
    # A request by obstore finds out that answers have no length.
    assert store.get("k") == VALUE
    for ask in (store.get_many, lambda asked: answers(store, asked)):
        handler.statuses[:] = [status]
        (answer,) = ask([Request("k", most_nbytes=100)])
        assert answer.error is None
        assert answer.value == (None if status == 404 else VALUE)
    handler.value = bytes(1 << 17)
    (answer,) = store.get_many([Request("k", most_nbytes=100)])
    assert isinstance(answer.error, ValueSizeError)


def test_an_empty_entity_tag_is_none(by: str, handler: Any, url: str, tmp_path: Path) -> None:
    handler.tag = ""
    store = gzarr.CachedStore(url, tmp_path, 1 << 20)
    for value in (b"old", b"new"):
        handler.value = value
        (answer,) = store.get_many([Request("k")])
        assert (answer.value, answer.version) == (value, None)
        assert answers(gzarr.open_store(url), [Request("k")])[0].version is None


def test_what_a_cache_has_is_not_sent_again(handler: Any, url: str, tmp_path: Path) -> None:
    handler.is_chunked = True
    store = gzarr.CachedStore(url, tmp_path, 1 << 20)
    assert store.get_many([Request("k")])[0].value == VALUE
    handler.sent.clear()
    for _ in range(2):
        assert store.get_many([Request("k")])[0].value == VALUE
    assert handler.sent == [304, 304]
    handler.tag, handler.value = '"2"', b"new"
    assert store.get_many([Request("k")])[0].value == b"new"


def test_a_range_may_begin_at_the_end(by: str, handler: Any, url: str) -> None:
    store: Any = gzarr.open_store(url)
    size = len(VALUE)
    for ask in (store.get_many, lambda asked: answers(store, asked)):
        for offset in (size, size + 1):
            (answer,) = ask([Request("k", ByteRange(offset))])
            if offset == size:
                assert (answer.value, answer.size, answer.version) == (b"", size, '"1"')
            else:
                assert isinstance(answer.error, ValueSizeError)
                assert f"from byte {offset} to the end" in str(answer.error)
    handler.value = b""
    assert isinstance(store.get_many([Request("k", ByteRange(1))])[0].error, ValueSizeError)


def test_many_parts_of_gzip_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Counting:
        """Counts the bytes that zlib is given, of which it copies those that follow a part."""

        def __init__(self, wbits: int) -> None:
            self._decoder = zlib.decompressobj(wbits)

        def decompress(self, data: memoryview, most: int) -> bytes:
            given.append(len(data))
            return self._decoder.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._decoder, name)

    fake = types.SimpleNamespace(decompressobj=Counting, error=zlib.error)
    monkeypatch.setattr(content_encodings, "zlib", fake)
    large = bytes(range(256)) * 1000
    data = memoryview(gzip.compress(b"") * 4000 + gzip.compress(large, 0) + gzip.compress(VALUE))
    assert decoded(data, ["gzip"], Request("k"), None) == large + VALUE  # type: ignore[arg-type]
    # It would be 4000 times as many.
    assert sum(given) < 60 * len(data)


@pytest.fixture(autouse=True)
def libcurl() -> None:
    assert curl_threads.available()
