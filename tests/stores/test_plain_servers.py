"""Web servers that know little, or that send what the client does not understand."""

from __future__ import annotations

import gzip
import http.server
import zlib
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support.web_server import running

import gzarr
from gzarr.errors import ArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Plain(http.server.BaseHTTPRequestHandler):
    """Sends values by GET and by nothing else."""

    values: ClassVar[dict[str, bytes]]
    encoding: ClassVar[str]
    has_ranges: ClassVar[bool] = True

    def do_GET(self) -> None:
        value = self.values.get(self.path)
        has_range = self.has_ranges and "Range" in self.headers
        if value and has_range:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 0-0/{len(value)}")
            value = value[:1]
        else:
            self.send_response(404 if value is None else 416 if has_range else 200)
        if self.encoding:
            self.send_header("Content-Encoding", self.encoding)
        self.send_header("Content-Length", str(len(value or b"")))
        self.end_headers()
        self.wfile.write(value or b"")

    def do_HEAD(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Plain]]]:
    class Handler(Plain):
        values: ClassVar[dict[str, bytes]] = {}
        encoding: ClassVar[str] = ""

    with running(Handler) as url:
        yield url, Handler


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "no ranges"])
def test_values_are_looked_for_though_there_is_no_head(server: tuple[str, type[Plain]], has_ranges: bool) -> None:
    url, handler = server
    handler.has_ranges = has_ranges
    handler.values.update({"/k": b"value", "/empty": b""})
    store: Any = gzarr.open_store(url)
    assert store.contains(["k", "empty", "absent"]) == [True, True, False]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("x-gzip", gzip.compress(b"value", mtime=0)),
        ("gzip, gzip", gzip.compress(gzip.compress(b"value", mtime=0), mtime=0)),
        ("compress", b"value"),
    ],
    ids=["other name", "twice", "other"],
)
def test_content_encodings_that_fsspec_does_not_undo(
    server: tuple[str, type[Plain]], encoding: str, body: bytes
) -> None:
    url, handler = server
    handler.values["/k"], handler.encoding = body, encoding
    with pytest.raises(StoreError, match=f"cannot read 'k': .*the content encoding '{encoding}'"):
        gzarr.open_store(f"fsspec+{url}").get("k")  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "utf-8"])
def test_content_encodings_that_fsspec_undoes(server: tuple[str, type[Plain]], encoding: str) -> None:
    url, handler = server
    body = {"gzip": gzip.compress(b"value", mtime=0), "deflate": zlib.compress(b"value")}.get(encoding, b"value")
    handler.values["/k"], handler.encoding = body, encoding
    assert gzarr.open_store(f"fsspec+{url}").get("k") == b"value"  # type: ignore[attr-defined]


def test_names_that_are_no_utf_8(server: tuple[str, type[Plain]]) -> None:
    url, handler = server
    handler.values["/caf%E9"] = b"value"
    assert gzarr.open_store(f"fsspec+{url}").get("caf\udce9") == b"value"  # type: ignore[attr-defined]


def test_encoded_slashes_in_urls(server: tuple[str, type[Plain]]) -> None:
    url, handler = server
    handler.values["/x%2Fy/z"] = b"value"
    with pytest.raises(ArgumentError, match=r"'%2F' in the path; open it by fsspec, as 'fsspec\+http://.*/x%2Fy'"):
        gzarr.open_store(f"{url}/x%2Fy")
    assert gzarr.open_store(f"fsspec+{url}/x%2Fy").get("z") == b"value"  # type: ignore[attr-defined]
