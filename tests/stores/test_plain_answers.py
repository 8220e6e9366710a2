"""What is made of answers to plain GET requests, as a server writes them here: the same as obstore makes of them."""

from __future__ import annotations

import contextlib
import socketserver
from typing import TYPE_CHECKING, Any

import pytest
from support.web_server import running

import gzarr
from gzarr.engines.access.answers import answers
from gzarr.stores.base import ByteRange, Request

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def answering(answers: dict[str, list[bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Run a server; yield its URL and the paths that it was asked for.

    Each path has its answers, one after the other, of which the last one stays; each ends its connection.
    """
    asked: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            left = answers[path]
            asked.append(path)
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

    with running(Handler) as url:
        yield url, asked


def answer(body: bytes = b"0123456789", status: str = "200 OK", **fields: str | None) -> bytes:
    head = {"Content-Length": str(len(body)), "ETag": '"v"', "Connection": "close"}
    head |= {name.replace("_", "-"): value for name, value in fields.items()}  # type: ignore[misc]
    lines = [f"{name}: {value}" for name, value in head.items() if value is not None]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


def ask(url: str, *asked: Request, timeout: float = 1) -> list[Any]:
    # Two at least are sent as a stream.
    store = gzarr.open_store(url, storage_options={"timeout": timeout})
    return answers(store, [*asked, Request("other")])[:-1]


OTHER = {"/other": [answer()]}
PART = Request("a", ByteRange(0, 5))


@pytest.mark.parametrize(
    ("request_", "given"),
    [
        pytest.param(Request("a"), answer(b"01234", Content_Length=None), id="no length, cut off"),
        pytest.param(Request("a"), answer(b"01234", Content_Length="10"), id="cut off"),
        pytest.param(PART, answer(b"01234", "206 OK", Content_Range="bytes 0-9/10"), id="another end"),
        pytest.param(PART, answer(b"01234", "206 OK", Content_Range="bytes 1-5/10"), id="another begin"),
        pytest.param(PART, answer(b"01234", "206 OK", Content_Range="bytes 0-4/*"), id="no size"),
        pytest.param(PART, answer(b"0123456789"), id="whole"),
        pytest.param(Request("a"), answer(Content_Encoding="gzip"), id="encoded"),
        pytest.param(
            Request("a"), answer(ETag=None, Last_Modified="Thu, 01 Jan 99999999999999999999 00:00:00 GMT"), id="date"
        ),
        pytest.param(Request("a"), b"HTTP/1.1 200 OK\r\nContent-Le", id="cut header"),
        pytest.param(Request("a"), b"nonsense", id="nonsense"),
        pytest.param(Request("a"), b"", id="nothing"),
    ],
)
def test_answers_that_bring_something_else(request_: Request, given: bytes) -> None:
    """What libcurl makes of them is what obstore does: an error, or the value."""
    with answering({"/a": [given], **OTHER}) as (url, _):
        (found,) = ask(url, request_, timeout=0.3)
        store = gzarr.open_store(url, storage_options={"timeout": 0.3})
        (expected,) = store.get_many([request_])
    assert (found.value is None) == (expected.value is None)
    assert type(found.error) is type(expected.error)
    if expected.value is not None:
        assert bytes(found.value) == bytes(expected.value)


def test_versions_are_those_of_obstore() -> None:
    given = {
        "/tag": [answer()],
        "/weak": [answer(ETag='W/"x"', Last_Modified="Fri, 27 Nov 2026 10:00:00 GMT")],
        "/date": [answer(ETag=None, Last_Modified="Fri, 27 Nov 2026 10:00:00 -0000")],
        "/empty": [answer(ETag="", Last_Modified="Fri, 27 Nov 2026 10:00:00 GMT")],
        "/none": [answer(ETag=None)],
        "/twice": [answer().replace(b"ETag", b'ETag: "first"\r\nETag')],
        "/hints": [b'HTTP/1.1 103 Early Hints\r\nETag: "old"\r\nContent-Length: 999999\r\n\r\n' + answer(ETag=None)],
        "/colon": [b'HTTP/1.1 103 A: b\r\nETag: "old"\r\n\r\n' + answer(status="200 OK: yes")],
    }
    with answering({**given, **OTHER}) as (url, asked):
        wanted = [Request(path[1:]) for path in given]
        found = ask(url, *wanted)
        assert len(asked) == len(given) + 1
        expected = gzarr.open_store(url).get_many(wanted)
    assert [one.version for one in found] == [one.version for one in expected]
    assert [one.size for one in found] == [10] * len(given)


def test_long_pages_say_what_is_absent() -> None:
    """Their length does not hide their status: each is asked for once."""
    page = b"x" * 60_000
    given = {"/a": [answer(page, "404 Not Found")], "/b": [answer(page, "412 Precondition Failed")], **OTHER}
    with answering(given) as (url, asked):
        found = ask(url, Request("a", most_nbytes=10), Request("b", ByteRange(0, 5), '"v"'))
    assert sorted(asked) == ["/a", "/b", "/other"]
    assert found[0].value is None
    assert found[0].error is None
    assert type(found[1].error).__name__ == "ValueReplacedError"


def test_a_busy_server_does_not_end_it() -> None:
    busy = answer(b"", "503 Slow Down")
    given = {f"/{i}": [busy, answer()] for i in range(8)}
    before = gzarr.stats()
    with answering({**given, **OTHER}) as (url, asked):
        store = gzarr.open_store(url, storage_options={"timeout": 5})
        assert answers(store, [Request("other")] * 2)[0].error is None
        found = answers(store, [Request(str(i)) for i in range(8)])
    assert all(bytes(one.value) == b"0123456789" for one in found)
    assert len(asked) == 18
    assert store.request_limits().streams is not None
    after = gzarr.stats()
    assert after["requests"] - before["requests"] == 18
    assert after["retries"] - before["retries"] == 8
