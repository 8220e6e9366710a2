"""Absent is what the server says is absent, and nothing else; a write is done when the value is there."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from support import servers
from support.fault_proxy import FaultProxy
from support.web_server import WebServer

import gzarr
from gzarr.errors import GzarrError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = np.arange(1, 9, dtype="i4")
SOON: dict[str, Any] = {"timeout": 0.5}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, "bucket")
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server) as made:
        yield made


def store(proxy: FaultProxy, root: str, **options: Any) -> Any:
    return gzarr.open_store(
        f"s3://bucket/{root}", read_only=False, storage_options=servers.s3_options(proxy.url, **options)
    )


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", ["s3", "http"])
def test_not_modified_without_a_condition(kind: str, cached: bool, proxy: FaultProxy, tmp_path: Path) -> None:
    if kind == "s3":
        opened = store(proxy, f"304-{cached}")
        gzarr.create_array(opened, data=DATA, chunks=4)
        front, at = proxy, opened
    else:
        gzarr.create_array(tmp_path / "x", data=DATA, chunks=4)
        stack = servers.web_server(tmp_path)
        address = stack.__enter__()
        front = FaultProxy(address)
        at = gzarr.open_store(f"{front.url}/x")
    try:
        if cached:
            at = gzarr.CachedStore(at, tmp_path / "cache", 1 << 24)
        a = gzarr.open_array(at)
        front.fault_of = lambda number, seen: (
            "status 304"
            if seen.path.partition("?")[0].endswith("c/1") and "if-none-match" not in seen.headers
            else None
        )
        for read in (lambda: a[...], lambda: gzarr.copy(at, {}, progress=False)):
            with pytest.raises(GzarrError, match="HTTP status 304"):
                read()
        assert [problem.key for problem in gzarr.verify(at, progress=False)] == ["c/1"]
        front.fault_of = lambda number, seen: "status 304" if seen.path.endswith("zarr.json") else None
        with pytest.raises(StoreError, match="HTTP status 304"):
            gzarr.open_array(f"{front.url}/x" if kind == "http" else store(proxy, "304-False"))
        front.fault_of = lambda number, seen: None
        np.testing.assert_array_equal(a[...], DATA)
    finally:
        if kind == "http":
            front.stop()
            stack.__exit__(None, None, None)


class Forgetful(http.server.BaseHTTPRequestHandler):
    """A WebDAV server of sorts that answers a PUT, and does with the value what its class says."""

    protocol_version = "HTTP/1.1"
    status = 200
    keep = 0.0
    values: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        value = self.rfile.read(int(self.headers["content-length"]))
        if self.keep:
            self.values[self.path] = value[: int(len(value) * self.keep)]
        self._answer(self.status, b"")

    def do_GET(self) -> None:
        value = self.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize(("keep", "message"), [(0.0, "afterwards there is no value"), (0.5, "the value has 4 bytes")])
def test_a_write_that_is_not_there(status: int, keep: float, message: str) -> None:
    kind = type("Kind", (Forgetful,), {"status": status, "keep": keep, "values": {}})
    server = WebServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/x"
        written = gzarr.open_store(url, read_only=False, storage_options=SOON)
        with pytest.raises(StoreError, match=message):
            written.set("k", b"12345678")
        kind.keep = 1.0  # type: ignore[attr-defined]
        written.set("k", b"12345678")
        assert written.get("k") == b"12345678"
    finally:
        server.shutdown()
        server.server_close()


def test_a_write_to_s3_costs_one_request(proxy: FaultProxy) -> None:
    opened = store(proxy, "put")
    with proxy.counting() as seen:
        opened.set("k", b"1")
    assert [one.method for one in seen] == ["PUT"]


class Repeating(http.server.BaseHTTPRequestHandler):
    """An S3 server whose listing has a continuation that leads to the same page."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        entries = "".join(
            f"<Contents><Key>x/c/{i}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><Size>1</Size>"
            f'<ETag>"{i}"</ETag></Contents>'
            for i in range(1000)
        )
        body = (
            '<?xml version="1.0"?><ListBucketResult><Name>bucket</Name><IsTruncated>true</IsTruncated>'
            f"<NextContinuationToken>again</NextContinuationToken>{entries}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/xml")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_listing_that_repeats_ends() -> None:
    server = WebServer(("127.0.0.1", 0), Repeating)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        listed = gzarr.open_store("s3://bucket/x", storage_options=servers.s3_options(url))
        with pytest.raises(StoreError, match=r"sends the page that begins with .* again"):
            list(listed.list_prefix("c/"))
        assert Repeating.asked < 10
    finally:
        server.shutdown()
        server.server_close()
