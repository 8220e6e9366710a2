"""Answers of web servers to fsspec's client that bring other bytes than were asked for."""

from __future__ import annotations

import contextlib
import gzip
import http.server
from typing import TYPE_CHECKING, Any

import pytest
from support.web_server import running

import gzarr
from gzarr.errors import StoreError
from gzarr.stores.base import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = b"0123456789"
#: Status, what the header says of the range, and body.
Sent = tuple[int, str, bytes]
FORMS = ("file", "target of a reference")
PART, TAIL, END, ALL = ByteRange(2, 4), ByteRange(4), ByteRange(-3), ByteRange()


@contextlib.contextmanager
def serving(sent: Sent) -> Iterator[tuple[str, list[str]]]:
    """Run a server that sends one answer, whatever it is asked for; yield its URL and the ranges that are asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            asked.append(self.headers.get("Range", ""))
            status, content_range, body = sent
            self.send_response(status)
            if content_range:
                self.send_header("Content-Range", content_range)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # What is of no use is not read to its end.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with running(Handler) as url:
        yield url, asked


def part(begin: int, end: int, total: object = 10) -> Sent:
    return 206, f"bytes {begin}-{end - 1}/{total}", DATA[begin:end]


def value(form: str, url: str, wanted: ByteRange) -> bytes | None:
    """Return a part of a file, or of what a reference to it points to."""
    if form == "file":
        store: Any = gzarr.open_store(f"fsspec+{url}")
    else:
        options = {"fo": {"a": [f"{url}/a"]}, "remote_protocol": "http"}
        store = gzarr.open_store("reference://", storage_options=options)
    found: bytes | None = store.get_partial_values([("a", wanted)])[0]
    return found


@pytest.mark.parametrize(
    ("wanted", "sent", "said"),
    [
        (ALL, part(2, 6), "all of it was asked for.*'206 Partial Content' and 'Content-Range: bytes 2-5/10'"),
        (ALL, part(0, 10, "*"), "all of it was asked for.*'Content-Range: bytes 0-9/\\*'"),
        (ALL, (206, "", DATA), "without a word on which part it is"),
        (ALL, (201, "", DATA), "'201 Created'"),
        (ALL, (202, "", DATA), "'202 Accepted'"),
        (ALL, (204, "", b""), "'204 No Content'"),
        (PART, part(1, 5), "bytes 1-4 instead of 2-5"),
        (PART, (206, "bytes 2-5/10", DATA[2:5]), "3 bytes instead of 4"),
        (PART, (200, "", DATA[:4]), "sends whole values only"),
        (PART, (202, "", DATA[:4]), "a part of it was asked for.*'202 Accepted'"),
        (TAIL, (200, "", DATA), "sends whole values only"),
        (TAIL, part(0, 10), "bytes 0-9 instead of 3-9"),
        (TAIL, part(3, 9), "bytes 3-8 instead of 3-9"),
        (TAIL, (206, "", DATA[3:]), "without a word on which one it is"),
        (PART, (206, "", DATA[:4]), "without a word on which one it is"),
    ],
    ids=[
        "part for all", "all of unknown size", "no range", "201", "202", "204", "begin", "length", "whole for part",
        "202 for part", "whole for tail", "all for tail", "end of tail", "tail without range",
        "part without range",
    ],
)  # fmt: skip
def test_other_bytes(wanted: ByteRange, sent: Sent, said: str) -> None:
    with serving(sent) as (url, asked):
        for form in FORMS:
            with pytest.raises(StoreError, match=f"cannot read .*{said}"):
                value(form, url, wanted)
        assert len(asked) == len(FORMS)


def test_references_to_parts_on_servers_without_ranges() -> None:
    with serving((200, "", DATA)) as (url, _):
        options = {"fo": {"a": [f"{url}/a", 2, 4]}, "remote_protocol": "http"}
        with pytest.raises(StoreError, match=r"/a', the target of 'a': .* the reference needs a part") as caught:
            gzarr.open_store("reference://", storage_options=options).get("a")
    assert "shard" not in str(caught.value)


def test_other_last_bytes() -> None:
    with serving(part(6, 9)) as (url, _), pytest.raises(StoreError, match="cannot read 'a'"):
        value("file", url, END)


@pytest.mark.parametrize(
    ("wanted", "sent", "expected"),
    [
        (ALL, part(0, 10), DATA),
        (ALL, (203, "", DATA), DATA),
        (ALL, (299, "", DATA), DATA),
        (PART, part(2, 6, "*"), DATA[2:6]),
        (TAIL, part(3, 10), DATA[4:]),
        (END, part(7, 10), DATA[7:]),
        (END, part(7, 10, "*"), DATA[7:]),
        (ByteRange(0, 10), (200, "", DATA), DATA),
        (ByteRange(-10), (200, "", DATA), DATA),
    ],
    ids=[
        "all", "by a proxy", "unknown success", "unknown size", "tail", "last", "last of unknown size", "whole",
        "whole from the end",
    ],
)  # fmt: skip
def test_the_bytes_that_were_asked_for(wanted: ByteRange, sent: Sent, expected: bytes) -> None:
    with serving(sent) as (url, asked):
        for form in FORMS:
            assert value(form, url, wanted) == expected
        assert len(asked) == len(FORMS)


def test_parts_are_not_compressed_on_the_way() -> None:
    """A server may compress what it sends, and then send a part of that."""
    shown: list[str] = []

    class Compressing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            shown.append(self.headers["Accept-Encoding"])
            compressed = "gzip" in shown[-1]
            body = (gzip.compress(DATA) if compressed else DATA)[2:6]
            self.send_response(206)
            if compressed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Range", "bytes 2-5/10")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with running(Compressing) as url:
        for form in FORMS:
            assert value(form, url, PART) == DATA[2:6]
    assert shown == ["identity"] * len(FORMS)
