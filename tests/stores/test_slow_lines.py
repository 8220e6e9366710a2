"""Answers that take longer than the time-out because the line is slow are no failures; those that stall are."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.server
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from support.web_server import WebServer

import gzarr
from gzarr.stores.arriving import Arriving, Pace
from gzarr.stores.attempts import ShortAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

DATA = np.random.default_rng(0).integers(0, 255, (6, 1 << 17), np.uint8)
TIMEOUT_S = 2.0
PIECE_NBYTES = 2048


class Line:
    """A line of some bytes per second, of which all requests have their share."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0

    def wait(self, nbytes: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._free = max(self._free, now) + nbytes / self._rate
            seconds = self._free - now
        time.sleep(seconds)


@contextlib.contextmanager
def serving(values: Mapping[str, bytes], send: Callable[[Any, bytes], None]) -> Iterator[str]:
    """Run a server that keeps connections, and sends bodies of chunks and listings by a function; yield its URL."""
    stopped = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path).removeprefix("/bucket/").removeprefix("/")
            is_page = "list-type" in self.path
            body = b"<ListBucketResult></ListBucketResult>" if is_page else values.get(path)
            self.send_response(404 if body is None else 200)
            body = body or b""
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Wed, 21 Oct 2020 07:28:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not is_page and "c/" not in path:
                self.wfile.write(body)
                return
            with contextlib.suppress(OSError):
                while body and not stopped.is_set():
                    piece, body = body[:PIECE_NBYTES], body[PIECE_NBYTES:]
                    send(self, piece)

        def do_PUT(self) -> None:
            left = int(self.headers["Content-Length"])
            with contextlib.suppress(OSError):
                while left and not stopped.is_set():
                    send(self, b"")
                    left -= len(self.rfile.read(min(left, PIECE_NBYTES)))
                self.send_response(200)
                self.send_header("ETag", '"1"')
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(WebServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopped.set()
            server.shutdown()
            thread.join()


def trickle(handler: Any, piece: bytes) -> None:
    """Send a byte at a time, few in a second."""
    for i in range(len(piece)):
        handler.wfile.write(piece[i : i + 1])
        time.sleep(0.2)


def location(kind: str, url: str, **others: Any) -> tuple[str, dict[str, Any]]:
    """Return what is opened, and its options."""
    options: dict[str, Any] = {"timeout": TIMEOUT_S, **others}
    if kind == "http":
        return f"{url}/x", options
    return "s3://bucket/x", {"endpoint": url, "skip_signature": True, "region": "us-east-1", **options}


@pytest.fixture(scope="module")
def values() -> dict[str, bytes]:
    made: dict[str, bytes] = {}
    gzarr.create_array(made, data=DATA, chunks=(1, 1 << 17), compressors=None)
    return {f"x/{key}": bytes(value) for key, value in made.items()}


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_what_goes_on_may_take_longer_than_the_time_out(kind: str, by: str, values: dict[str, bytes]) -> None:
    line = Line(DATA.nbytes / (2.5 * TIMEOUT_S))

    def send(handler: Any, piece: bytes) -> None:
        line.wait(len(piece))
        handler.wfile.write(piece)

    with serving(values, send) as url:
        name, options = location(kind, url)
        array = gzarr.open_array(name, device="cpu", storage_options=options)
        begun, retries = time.monotonic(), gzarr.stats()["retries"]
        np.testing.assert_array_equal(array[...], DATA)
        assert time.monotonic() - begun > 1.5 * TIMEOUT_S
        assert gzarr.stats()["retries"] == retries


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_few_bytes_now_and_then_are_a_stall(kind: str, by: str, values: dict[str, bytes]) -> None:
    with serving(values, trickle) as url:
        name, options = location(kind, url)
        array = gzarr.open_array(name, device="cpu", storage_options=options)
        begun = time.monotonic()
        with pytest.raises(gzarr.ChunkError, match=r"stalled|too slow"):
            array[0]
        # The last attempt begins within the time-out.
        assert time.monotonic() - begun < 3 * TIMEOUT_S + 2


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_time_for_whole_answers_can_be_given(kind: str, by: str, values: dict[str, bytes]) -> None:
    line = Line(DATA.nbytes / 30)

    def send(handler: Any, piece: bytes) -> None:
        line.wait(len(piece))
        handler.wfile.write(piece)

    with serving(values, send) as url:
        name, options = location(kind, url, client_options={"timeout": "1s"})
        array = gzarr.open_array(name, device="cpu", storage_options=options)
        begun = time.monotonic()
        with pytest.raises(gzarr.ChunkError):
            array[...]
        assert time.monotonic() - begun < 3 * TIMEOUT_S + 2


def test_a_page_of_a_listing_has_the_time_out(values: dict[str, bytes]) -> None:
    with serving(values, trickle) as url:
        name, options = location("s3", url)
        store: Any = gzarr.open_store(name, storage_options=options)
        begun = time.monotonic()
        with pytest.raises(gzarr.StoreError, match="cannot list"):
            list(store.list())
        assert time.monotonic() - begun < 2 * TIMEOUT_S + 2


class Result:
    """An answer as obstore gives it."""

    attributes: Mapping[str, str] = {}

    def __init__(self, pieces: list[bytes], pause_s: float = 0.0) -> None:
        self._pieces, self._pause_s = pieces, pause_s
        self.range = (3, 3 + sum(map(len, pieces)))
        self.taken: str | None = None

    def stream(self, min_chunk_size: int) -> Iterator[bytes]:
        assert min_chunk_size == 1
        self.taken = "pieces"
        for piece in self._pieces:
            time.sleep(self._pause_s)
            yield piece

    def bytes(self) -> bytes:
        self.taken = "whole"
        return b"".join(self._pieces)


def test_fast_answers_are_taken_as_a_whole() -> None:
    pace = Pace(5)
    large, small = [bytes(100_000), b"x"], [b"ab", b"c"]
    for pieces, pause_s, taken in (
        (large, 0.0, "pieces"),
        (large, 0.1, "whole"),
        (small, 0.1, "pieces"),
        (large, 0.0, "whole"),
    ):
        result = Result(pieces, pause_s)
        assert Arriving(result, pace).bytes() == b"".join(pieces)
        assert result.taken == taken
    pace.is_quick = False
    Arriving(Result(large, 0.1), pace).bytes()
    assert not pace.is_quick


def test_the_end_of_an_answer_is_no_stall() -> None:
    pace = Pace(0.05)
    assert Arriving(Result([b"a" * 100, b"b"], 0.06), pace).bytes() == b"a" * 100 + b"b"
    with pytest.raises(ShortAnswerError, match=r"stalled: 1 bytes in 0\.1 s"):
        Arriving(Result([b"a", b"b", b"c"], 0.06), pace).bytes()


def test_uploads_that_go_on_may_take_longer_than_a_stall() -> None:
    sent = [bytes(3 << 19)] * 6
    total = sum(map(len, sent))
    line, pieces = Line(total / (2.5 * TIMEOUT_S)), []

    def take(_: Any, piece: bytes) -> None:
        line.wait(PIECE_NBYTES)
        pieces.append(piece)

    with serving({}, take) as url:
        store = open_for_uploads(url)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(sent)) as pool:
            list(pool.map(store.set, map(str, range(len(sent))), sent))
        assert time.monotonic() - start > 2 * TIMEOUT_S
        # None was sent a second time.
        assert len(pieces) == total // PIECE_NBYTES


def test_uploads_that_nobody_answers() -> None:
    stopped = threading.Event()
    with serving({}, lambda *_: stopped.wait(30)) as url:
        store, start = open_for_uploads(url, 1), time.monotonic()
        try:
            with pytest.raises(gzarr.StoreError, match="cannot write 'k'"):
                store.set("k", bytes(120_000))
            assert time.monotonic() - start < 4
        finally:
            stopped.set()


def test_few_stores_for_uploads() -> None:
    store = open_for_uploads("http://127.0.0.1:1", 60)
    stores = {nbytes: store._store_of_uploads(nbytes) for nbytes in (0, 1, 1 << 18, *(3 << n for n in range(17, 31)))}
    assert stores[0] is stores[1] is stores[1 << 18]
    assert len({id(one) for one in stores.values()}) == 4
    # The longest is that of a part.
    assert max(seconds for _, seconds in store._other_times.made[1]) <= 480


def open_for_uploads(url: str, timeout: float = TIMEOUT_S) -> Any:
    options = {"endpoint": url, "skip_signature": True, "region": "us-east-1", "timeout": timeout}
    return gzarr.open_store("s3://bucket/x", read_only=False, storage_options=options)
