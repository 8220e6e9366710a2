"""Changes that a web server sends elsewhere, such as to a page for logging in, whose success says nothing of them."""

from __future__ import annotations

import http.server
from typing import TYPE_CHECKING, Any

import pytest
from support.web_server import running

import gzarr
from gzarr.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = b"<html>log in"


class Redirecting(http.server.BaseHTTPRequestHandler):
    """Takes changes, or sends them to a page."""

    protocol_version = "HTTP/1.1"
    values: dict[str, bytes]
    log: list[str]
    # Status of the answer to changes; 0 to take them.
    status = 0
    tags = True
    # What it makes of what it takes.
    spoiled = b""

    def do_GET(self) -> None:
        self.log.append(self.command)
        value = PAGE if self.path == "/login" else self.values.get(self.path)
        self.answer(404 if value is None else 200, value or b"")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        self.log.append(self.command)
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.status and self.command == "PUT":
            self.values[self.path] = self.spoiled or content
            self.answer(201, b"", content)
        elif not self.status:
            known = self.values.pop(self.path, None)
            self.answer(404 if known is None else 204, b"")
        else:
            self.answer(self.status, b"")

    def do_DELETE(self) -> None:
        if self.path == "/login":
            self.do_GET()
        else:
            self.do_PUT()

    def answer(self, status: int, body: bytes, tagged: bytes | None = None) -> None:
        self.send_response(status)
        if self.tags:
            self.send_header("ETag", f'"{(body if tagged is None else tagged).hex()}"')
        if 300 <= status < 400:
            self.send_header("Location", "/login")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def handler() -> Any:
    return type("Handler", (Redirecting,), {"values": {"/k": b"old"}, "log": []})


@pytest.fixture
def store(handler: Any) -> Iterator[Any]:
    with running(handler) as url:
        yield gzarr.open_store(url, read_only=False)


@pytest.mark.parametrize("tags", [True, False])
def test_a_write_that_is_redirected_is_an_error(tags: bool, handler: Any, store: Any) -> None:
    handler.status, handler.tags = 303, tags
    with pytest.raises(StoreError, match=r"cannot write 'k': .* there is not the value .* logging in"):
        store.set("k", b"new")
    assert handler.values == {"/k": b"old"}
    if tags:
        with pytest.raises(StoreError, match="cannot write 'other'"):
            store.set("other", b"new")


@pytest.mark.parametrize("status", [302, 303, 307])
def test_an_erasure_that_is_redirected_is_an_error(status: int, handler: Any, store: Any) -> None:
    handler.status = status
    with pytest.raises(StoreError, match=r"cannot erase 'k': .* still there"):
        store.erase("k")
    with pytest.raises(StoreError, match=r"cannot erase 'k': .* still there"):
        store.erase_values(["absent", "k"])
    assert handler.values == {"/k": b"old"}


@pytest.mark.parametrize(("tags", "first"), [(True, ["PUT", "HEAD"]), (False, ["PUT", "HEAD", "GET"])])
def test_requests_of_changes(tags: bool, first: list[str], handler: Any, store: Any) -> None:
    handler.tags = tags
    for expected in (first, ["PUT", "HEAD"]):
        handler.log.clear()
        store.set("k", b"new")
        assert handler.log == expected
    assert store.get("k") == b"new"
    handler.log.clear()
    store.erase("k")
    assert handler.log == ["DELETE", "HEAD"]
    assert store.get("k") is None


def test_a_value_whose_tag_is_another_one_is_read_again(handler: Any, store: Any) -> None:
    handler.spoiled = b"odd"
    with pytest.raises(StoreError, match="cannot write 'k'"):
        store.set("k", b"new")
    assert handler.log == ["PUT", "HEAD", "GET"] * 3
