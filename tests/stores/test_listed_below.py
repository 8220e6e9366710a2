"""Listings give what is below a prefix and nothing beside it, whatever else servers put into their answers."""

from __future__ import annotations

import http.server
import urllib.request
from pathlib import PurePosixPath
from typing import Any

import pytest
from support.remotes import BUCKET, remote
from support.web_server import running

import gzarr


def test_markers_of_folders_are_no_objects_beside_them() -> None:
    """As the consoles of S3 and Google make them: an object whose name ends with a slash."""
    with remote("s3") as server:
        url = f"http://{server.address[0]}:{server.address[1]}"
        for name in ("x/", "x/sub/"):
            request = urllib.request.Request(f"{url}/{BUCKET}/{name}", method="PUT", data=b"")
            urllib.request.urlopen(request, timeout=30).close()
        store = server.store(url, "")
        store.set("x", b"beside")
        store.set("x/sub/k", b"below")
        assert list(store.list_prefix("x/sub/")) == ["x/sub/k"]
        assert list(store.list_sizes("x/sub/")) == [("x/sub/k", 5)]
        assert store.list_page("x/sub/") == (["x/sub/k"], True)
        assert store.list_dir("x/sub/") == (["x/sub/k"], [])
        assert store.list_dir("x/") == ([], ["x/sub/"])
        store.erase_prefix("x/")
        assert store.get("x") == b"beside"
        assert store.get("x/sub/k") is None


def test_a_server_that_lists_all_below_though_it_was_asked_for_less() -> None:
    files = ["/x/a", "/x/s/b", "/x/s/t/c", "/y"]
    folders = ["/", "/x/", "/x/s/", "/x/s/t/"]

    def response(path: str) -> str:
        kind = "<D:collection/>" if path.endswith("/") else ""
        return (
            f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype>"
            "<D:getcontentlength>1</D:getcontentlength><D:getlastmodified>Wed, 01 Jan 2025 00:00:00 GMT"
            "</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )

    class Infinite(http.server.BaseHTTPRequestHandler):
        def do_PROPFIND(self) -> None:
            folder = PurePosixPath(self.path)
            found = [response(path) for path in files + folders if PurePosixPath(path).is_relative_to(folder)]
            body = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{"".join(found)}</D:multistatus>'.encode()
            self.send_response(207 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with running(Infinite) as url:
        store: Any = gzarr.open_store(url)
        assert sorted(store.list()) == ["x/a", "x/s/b", "x/s/t/c", "y"]
        assert store.list_dir("") == (["y"], ["x/"])
        assert store.list_dir("x/") == (["x/a"], ["x/s/"])


@pytest.mark.parametrize(
    "body",
    [
        '<script>{"locale":{"code":"en"}}</script>',
        '{"code":"ObjectNotFound","message":"The object was not found"}',
        '{"error":{"code":"NotFound"}}',
    ],
    ids=["page", "oracle", "vague"],
)
def test_codes_in_pages_of_web_servers(by: str, body: str) -> None:
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body.encode())

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with running(Pages) as url:
        store: Any = gzarr.open_store(url)
        assert store.get("k") is None
        assert store.contains(["k"]) == [False]
        with pytest.raises(gzarr.errors.NodeNotFoundError):
            gzarr.open(url)
