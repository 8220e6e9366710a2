"""Changes that were given up by an interrupt or a time-out: they never replace, or erase, what is written later."""

from __future__ import annotations

import _thread
import asyncio
import http.server
import re
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from support.servers import s3_options
from support.web_server import running

import gzarr
from gzarr.stores import attempts
from gzarr.stores.fsspec_store import FsspecStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


def listing(keys: list[str]) -> bytes:
    """Return S3's answer to a request for a listing."""
    found = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2025-01-01T00:00:00Z</LastModified><Size>3</Size></Contents>"
        for key in keys
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


def propfind(paths: list[str]) -> bytes:
    """Return WebDAV's answer to a request for a listing."""
    found = "".join(
        f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:getcontentlength>3</D:getcontentlength>"
        "<D:getlastmodified>Wed, 01 Jan 2025 00:00:00 GMT</D:getlastmodified><D:resourcetype/></D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for path in paths
    )
    return f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{found}</D:multistatus>'.encode()


class Bucket(http.server.BaseHTTPRequestHandler):
    """A server of one bucket, which refuses changes or lets them wait, as long as it is told to."""

    protocol_version = "HTTP/1.1"
    values: dict[str, bytes]
    #: Called with each change, before it; returns whether it is refused.
    before: Callable[[str, str], bool]

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PROPFIND(self) -> None:
        inside = {p for p in self.values if p.startswith(self.path.rstrip("/") + "/")}
        self._answer(207 if inside else 404, propfind(sorted(inside)))

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            self._answer(200, listing([path.removeprefix("/b/") for path in sorted(self.values)]))
            return
        value = self.values.get(self.path.partition("?")[0])
        if value is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(200, value)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if type(self).before(self.path, body.decode("latin-1")):
            self._answer(503)
        else:
            self.values[self.path] = body
            self._answer(200)

    def do_POST(self) -> None:
        # S3's request to erase several.
        keys = re.findall("<Key>(.*?)</Key>", self.rfile.read(int(self.headers["Content-Length"])).decode())
        if type(self).before(self.path, ""):
            self._answer(503)
        else:
            for key in keys:
                self.values.pop(f"/b/{key}", None)
            self._answer(200, b"<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>")

    def do_DELETE(self) -> None:
        if type(self).before(self.path, ""):
            self._answer(503)
        else:
            for path in [path for path in self.values if f"{path}/".startswith(f"{self.path.rstrip('/')}/")]:
                del self.values[path]
            self._answer(204)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def bucket() -> Iterator[tuple[str, type[Bucket]]]:
    class Handler(Bucket):
        values: ClassVar[dict[str, bytes]] = {}

        @staticmethod
        def before(path: str, body: str) -> bool:
            return False

    with running(Handler) as url:
        yield url, Handler


def interrupted(change: Callable[[], object], once: threading.Event) -> None:
    """Do a change, in the main thread, that Ctrl-C ends once an event is set."""

    def interrupt() -> None:
        assert once.wait(30)
        _thread.interrupt_main(signal.SIGINT)

    # A shell that starts the tests in the background lets them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            change()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_writes_are_not_sent_again_after_an_interrupt(bucket: tuple[str, type[Bucket]], monkeypatch: Any) -> None:
    url, handler = bucket
    monkeypatch.setattr(attempts, "_LONGEST_PAUSE_S", 0.05)
    a = gzarr.create_array(
        "s3://b/x", shape=(4,), chunks=(4,), dtype="i4", compressors=None, storage_options=s3_options(url)
    )
    refused = threading.Event()
    put = [0]

    def refuse(path: str, body: str) -> bool:
        put[0] += 1
        if put[0] == 3:
            refused.set()
        return True

    usual, handler.before = handler.before, staticmethod(refuse)
    interrupted(lambda: a.__setitem__(slice(None), 1), refused)
    handler.before = staticmethod(usual)
    a[:] = 2
    begin, seen = time.monotonic(), dict(handler.values)
    while time.monotonic() < begin + 0.5:
        assert handler.values == seen
        time.sleep(0.02)
    np.testing.assert_array_equal(a[:], [2, 2, 2, 2])


class Held:
    """The first change of a kind, which does not end before it may."""

    def __init__(self) -> None:
        self.begun, self.may, self.next = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, *_: object) -> bool:
        if self.begun.is_set():
            self.next.set()
        else:
            self.begun.set()
            assert self.may.wait(30)
        return False

    def comes_first(self, change: Callable[[], object]) -> None:
        """Do another change in a thread: it waits until the held one has ended."""
        thread = threading.Thread(target=change)
        thread.start()
        try:
            assert not self.next.wait(0.3)
        finally:
            self.may.set()
            thread.join()
        assert self.next.is_set()


@pytest.mark.parametrize(
    ("first", "then", "url"),
    [
        ("set", "set", "s3://b"),
        ("erase", "set", "s3://b"),
        ("set", "erase", "s3://b"),
        ("erase_prefix", "set", "web"),
        ("set", "erase_prefix", "s3://b"),
    ],
)
def test_changes_wait_for_one_that_was_given_up(
    bucket: tuple[str, type[Bucket]], first: str, then: str, url: str
) -> None:
    server, handler = bucket
    options = {} if url == "web" else {"storage_options": s3_options(server)}
    held = Held()
    one = gzarr.open_store(server if url == "web" else f"{url}/x", read_only=False, **options)
    # Another store of the same place.
    other = gzarr.open_store(server if url == "web" else url, read_only=False, **options)
    prefix = "" if url == "web" else "x/"

    def change(store: Any, method: str, prefix: str, value: bytes) -> None:
        if method == "set":
            store.set(f"{prefix}g/k", value)
        elif method == "erase":
            store.erase(f"{prefix}g/k")
        else:
            store.erase_prefix(f"{prefix}g/")

    change(one, "set", "", b"before")
    handler.before = held
    interrupted(lambda: change(one, first, "", b"old"), held.begun)
    held.comes_first(lambda: change(other, then, prefix, b"new"))
    assert one.get("g/k") == (b"new" if then == "set" else None)


def test_an_interrupt_does_not_wait_for_a_draft(bucket: tuple[str, type[Bucket]]) -> None:
    """The draft is erased once it has arrived, behind the caller's back."""
    url, handler = bucket
    held = Held()
    handler.before = held
    store: Any = gzarr.open_store(url, read_only=False)
    interrupted(lambda: store.create("g/k", b"value"), held.begun)
    assert not handler.values
    assert not held.next.is_set()
    held.may.set()
    assert held.next.wait(30)
    end = time.monotonic() + 30
    while handler.values and time.monotonic() < end:
        time.sleep(0.01)
    assert not handler.values


def test_files_wait_for_a_write_that_took_too_long() -> None:
    held = Held()

    class Slow(MemoryFileSystem):
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]
        cachable = False

        def pipe_file(self, path: str, value: bytes, **keywords: Any) -> None:
            held()
            super().pipe_file(path, value, **keywords)

    fs = Slow()
    with pytest.raises(gzarr.errors.StoreError, match=r"cannot write 'k': .*no answer in 0.2 s"):
        FsspecStore(fs, "/x", timeout=0.2).set("k", b"old")
    # What cannot wait so long fails, and changes nothing.
    with pytest.raises(gzarr.errors.StoreError, match=r"cannot write 'k': .*no answer in 0.2 s"):
        FsspecStore(fs, "/x", timeout=0.2).set("k", b"between")
    with pytest.raises(gzarr.errors.StoreError, match=r"cannot erase '': .*no answer in 0.2 s"):
        FsspecStore(fs, "/x", timeout=0.2).erase_prefix("")
    store = FsspecStore(fs, "/x")
    held.comes_first(lambda: store.set("k", b"new"))
    assert store.get("k") == b"new"


def test_an_interrupt_ends_a_write_of_an_asynchronous_filesystem() -> None:
    begun, ended = threading.Event(), threading.Event()

    class Slow(AsyncFileSystem):
        protocol = "slow"
        cachable = False

        async def _pipe_file(self, path: str, value: bytes, **keywords: Any) -> None:
            begun.set()
            try:
                await asyncio.sleep(30)
            finally:
                ended.set()

    store = FsspecStore(Slow(), "x")
    interrupted(lambda: store.set("k", b"old"), begun)
    assert ended.wait(10)


@pytest.mark.parametrize("status", [429, 503])
def test_an_equal_value_of_another_writer_is_not_taken_for_an_own_one(
    bucket: tuple[str, type[Bucket]], status: int
) -> None:
    """The server has refused the first attempt, and another writer creates the same before the second."""
    url, handler = bucket
    answers = [status, 412]

    def put(self: Bucket) -> None:
        self.values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(answers.pop(0))

    handler.do_PUT = put  # type: ignore[method-assign]
    store: Any = gzarr.open_store("s3://b", read_only=False, storage_options=s3_options(url))
    assert not store.create("k", b"value")
    assert not answers
