"""Web servers that send other bytes than were asked for."""

from __future__ import annotations

import contextlib
import http.server
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.web_server import running

import gzarr
from gzarr.engines.access.answers import answers
from gzarr.errors import ChunkError, StoreError
from gzarr.stores import attempts, connections
from gzarr.stores.base import ByteRange, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gzarr.stores.base import Answer

DATA = b"0123456789"
#: Status, fields of the header, and body.
Sent = tuple[int, dict[str, str], bytes]
PART, TAIL, END = ByteRange(2, 4), ByteRange(4), ByteRange(-3)


@contextlib.contextmanager
def serving(given: dict[str, list[Sent]]) -> Iterator[tuple[str, list[str]]]:
    """Run a server; yield its URL and the paths that it was asked for.

    Each path has its answers, one after the other, of which the last one stays.
    """
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            asked.append(self.path)
            left = given.get(self.path, [(404, {}, b"")])
            if self.path == "/end" and self.headers["Range"].startswith("bytes=-"):
                left = [(501, {}, b"")]
            status, fields, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | fields).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with running(Handler) as url:
        yield url, asked


def part(begin: int, end: int, total: object = len(DATA), body: bytes | None = None) -> Sent:
    return 206, {"Content-Range": f"bytes {begin}-{end - 1}/{total}"}, DATA[begin:end] if body is None else body


def array(chunk: Sent) -> dict[str, list[Sent]]:
    """Return the answers of an array whose second chunk is sent in some way."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [16],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
    }
    return {
        "/zarr.json": [(200, {}, json.dumps(document).encode())],
        "/c/0": [(200, {}, bytes(range(8)))],
        "/c/1": [chunk],
    }


@pytest.fixture(autouse=True)
def new_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget servers that have had the same port, and do not wait for others to recover."""
    monkeypatch.setattr(connections, "_servers", {})
    monkeypatch.setattr(attempts, "_FIRST_PAUSE_S", 0.01)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (part(8, 16, 100, bytes(8)), "'206 Partial Content' and 'Content-Range: bytes 8-15/100'"),
        (part(0, 8, 100, bytes(8)), "'206 Partial Content' and 'Content-Range: bytes 0-7/100'"),
        (part(0, 8, "*", bytes(8)), "'206 Partial Content' and 'Content-Range: bytes 0-7/*'"),
        (part(0, 4, 4, bytes(8)), "'206 Partial Content' and 'Content-Range: bytes 0-3/4'"),
        ((206, {}, bytes(8)), "'206 Partial Content', without a word on which part"),
        ((202, {}, bytes(8)), "'202 Accepted'"),
        ((204, {}, b""), "'204 No Content'"),
        ((226, {}, bytes(8)), "'226 IM Used'"),
    ],
    ids=["part", "begin", "unknown size", "another length", "no range", "202", "204", "226"],
)
def test_no_whole_value(sent: Sent, said: str) -> None:
    with serving(array(sent)) as (url, asked):
        a = gzarr.open_array(url, device="cpu")
        with pytest.raises((StoreError, ChunkError)) as caught:
            a[...]
        assert "'c/1': all of it was asked for, and expected with '200 OK'" in str(caught.value)
        assert said in str(caught.value)
        assert asked.count("/c/1") == 1


@pytest.mark.parametrize("sent", [part(0, 8, 8, bytes(8)), (203, {}, bytes(8))], ids=["all of it", "by a proxy"])
def test_whole_values(sent: Sent) -> None:
    with serving(array(sent)) as (url, asked):
        a = gzarr.open_array(url, device="cpu")
        np.testing.assert_array_equal(a[...], [*range(8), *[0] * 8])
        assert asked.count("/c/1") == 1


def each_way(url: str, request: Request) -> list[Answer]:
    """Return the answers to a request that is sent by itself, and in a stream."""
    single = gzarr.open_store(url).get_many([request])[0]
    return [single, answers(gzarr.open_store(url), [request, Request("other")])[0]]


@pytest.mark.parametrize(
    ("wanted", "sent", "said"),
    [
        (PART, part(1, 5), "bytes 1-4 instead of 2-5"),
        (PART, part(2, 5), "bytes 2-4 instead of 2-5"),
        (PART, part(0, 10), "bytes 0-9 instead of 2-5"),
        (PART, part(2, 6, body=b"234"), "3 bytes instead of 4"),
        (TAIL, part(5, 10), "bytes 5-9 instead of 4-9"),
        (TAIL, part(4, 10, 100), "bytes 4-9 instead of 4-99"),
        (END, part(6, 10), "bytes 6-9 instead of 7-9"),
        (END, part(7, 10, 100), "bytes 7-9 instead of 97-99"),
    ],
    ids=["begin", "end", "all", "length", "tail", "size of tail", "last", "size of last"],
)
def test_another_range_is_asked_for_a_few_times(wanted: ByteRange, sent: Sent, said: str, by: str) -> None:
    with serving({"/a": [sent]}) as (url, asked):
        begun = time.monotonic()
        for answer in each_way(url, Request("a", wanted)):
            assert isinstance(answer.error, StoreError)
            assert "of 'a': the server sent " + said in str(answer.error)
        assert 2 <= len(asked) - asked.count("/other") <= 8
        assert time.monotonic() - begun < 20


def test_another_range_that_is_sent_once(by: str) -> None:
    for wanted in (PART, TAIL, END):
        begin = wanted.offset % 10
        end = 10 if wanted.length is None else begin + wanted.length
        with serving({"/a": [part(1, 3), part(begin, end)] * 2}) as (url, asked):
            for answer in each_way(url, Request("a", wanted)):
                assert answer.value is not None
                assert bytes(answer.value) == DATA[begin:end]
            assert asked.count("/a") == 4


def test_another_range_of_unknown_size() -> None:
    """Where only libcurl makes something of the answers, the bound is the same."""
    with serving({"/a": [part(1, 8, "*")]}) as (url, asked):
        store = gzarr.open_store(url)
        (answer,) = store.get_many([Request("a", PART)])
        assert "the server sent bytes 1-7 instead of 2-5" in str(answer.error)
        assert len(asked) == 4


def test_ends_of_values_that_are_replaced_without_a_version(by: str) -> None:
    """Where the end takes two requests, both are about one value."""
    old, new = b"0123456789", b"abcdefghijkl"
    first = part(0, 1, 10, old[:1])
    replaced: list[Any] = [first, part(7, 10, 12, new[7:10]), part(0, 1, 12, new[:1]), part(9, 12, 12, new[9:])]
    with serving({"/end": replaced}) as (url, asked):
        (answer,) = gzarr.open_store(url).get_many([Request("end", END)])
        assert answer.value is not None
        assert bytes(answer.value) == new[-3:]
        # One is not understood.
        assert len(asked) == 5
