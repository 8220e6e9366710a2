"""Web servers that can do little: they hold or keep few connections, or have no ranges that count from the end."""

from __future__ import annotations

import contextlib
import http.server
import math
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.stores import connections
from gzarr.stores.http_store import HttpStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gzarr.stores.base import Answer

DATA = np.random.default_rng(0).integers(0, 255, (300, 64)).astype("u2")


class Counting(http.server.SimpleHTTPRequestHandler):
    """Answers after a while; counts connections that are open, and those that were opened before the first answer."""

    disable_nagle_algorithm = True
    lock = threading.Lock()
    open = most = first = answers = 0

    @classmethod
    def count(cls, opened: int) -> None:
        with cls.lock:
            cls.open += opened
            cls.most = max(cls.most, cls.open)
            if opened > 0 and not cls.answers:
                cls.first += 1

    def handle(self) -> None:
        self.count(1)
        try:
            super().handle()
        finally:
            self.count(-1)

    def do_GET(self) -> None:
        time.sleep(0.005)
        with self.lock:
            type(self).answers += 1
        super().do_GET()

    def do_HEAD(self) -> None:
        with self.lock:
            type(self).answers += 1
        super().do_HEAD()

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path, version: str) -> Iterator[tuple[str, type[Counting]]]:
    handler = type("Handler", (Counting,), {"protocol_version": version, "lock": threading.Lock()})

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256

        def finish_request(self, request: object, address: object) -> None:
            handler(request, address, self, directory=str(folder))

    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", handler
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def program(module: str, folder: Path, *arguments: str) -> Iterator[str]:
    """Run a server's program; yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, str(port), "--bind", "127.0.0.1", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.timeout(15)
@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_the_server_of_python(version: str, by: str, tmp_path: Path) -> None:
    """It holds 5 connections that it has not accepted, and closes each: more requests at once stall for 20 seconds."""
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(1, 64))
    with program("http.server", tmp_path, "--protocol", version) as url:
        np.testing.assert_array_equal(gzarr.open_array(f"{url}/x", device="cpu")[...], DATA)


def test_a_server_without_ranges_that_count_from_the_end(by: str, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(10, 64), shards=(100, 64))
    (tmp_path / "x" / "c" / "1" / "0").unlink()
    (tmp_path / "x" / "c" / "2" / "0").write_bytes(b"short")
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        gzarr.create_array(store, data=DATA, chunks=(50, 64))
    with program("RangeHTTPServer", tmp_path) as url:
        a = gzarr.open_array(f"{url}/x", device="cpu")
        for _ in range(2):
            np.testing.assert_array_equal(a[5:45], DATA[5:45])
            assert not a[150:170].any()
            with pytest.raises(gzarr.ChunkDecodeError, match="has 5 bytes, too few for the range"):
                a[250]
        np.testing.assert_array_equal(gzarr.open_array(f"{url}/x.zip", device="cpu")[...], DATA)


def test_a_server_that_closes_connections_gets_few_at_once(by: str, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(1, 64))
    with serving(tmp_path, "HTTP/1.0") as (url, handler):
        a = gzarr.open_array(f"{url}/x", device="cpu")
        for _ in range(2):
            np.testing.assert_array_equal(a[...], DATA)
        assert handler.answers >= 2 * len(DATA)
        # A connection is counted until its thread has ended it.
        assert 2 <= handler.most <= connections.FIRST + 4


def test_a_server_that_keeps_connections_gets_more_with_each_answer(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(1, 64))
    monkeypatch.setattr(connections, "_NEAR_S", 10.0)
    with serving(tmp_path, "HTTP/1.1") as (url, handler):
        a = gzarr.open_array(f"{url}/x", device="cpu")
        handler.answers = handler.first = 0
        np.testing.assert_array_equal(a[...], DATA)
        # One of them may ask whether the server keeps connections.
        assert handler.first <= connections.FIRST + 1
        for _ in range(20):
            if handler.most > 2 * connections.FIRST:
                break
            # A busy machine may have answered that question last.
            np.testing.assert_array_equal(a[...], DATA)
        assert handler.most > 2 * connections.FIRST


@pytest.mark.parametrize("told", [None, False], ids=["nothing", "that it closes them"])
def test_a_server_is_asked_again_after_a_while(
    told: bool | None, near: connections.Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been too busy to answer, or another one may have taken its place."""
    asked: list[str] = []

    def tell(url: str) -> bool | None:
        asked.append(url)
        return told if len(asked) == 1 else True

    def room_comes() -> bool:
        near.ended(0.001)
        return False

    monkeypatch.setattr(connections, "_keeps_connections", tell)
    for again_s, questions, keeps in ((60.0, 1, told), (60.0, 1, told), (0.0, 2, True), (0.0, 2, True)):
        near._ask_at = min(near._ask_at, time.monotonic() + again_s)
        room = near.take(1000)
        assert near.wait(room_comes)
        for _ in range(room):
            near.ended(0.001)
        assert (len(asked), near._keeps) == (questions, keeps)


def test_a_server_that_does_not_answer_has_told_nothing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert connections._keeps_connections(url) is None


def used(server: connections.Connections, most: int, seconds: float | None = 0.001, keeps: bool | None = None) -> int:
    """Return for how many requests there is room, and end them."""
    room = server.take(most)
    for _ in range(room):
        server.ended(seconds, keeps)
    return room


@pytest.fixture
def near() -> connections.Connections:
    server = connections.Connections("http://127.0.0.1:1")
    # It has answered just now.
    assert server.take(1) == 1
    server.ended(0.001)
    return server


def test_the_number_of_requests_follows_from_answers(near: connections.Connections) -> None:
    most = connections.FIRST
    # Answers that do not tell leave it at what was known.
    for keeps, room in (
        (None, most),
        (True, most),
        (None, 2 * most),
        (True, 4 * most),
        # Each of these halves it.
        (False, 8 * most),
        (None, most),
        (True, most),
        # Then it grows by one for 16 answers.
        (True, most),
        (True, most),
        (True, most + 1),
    ):
        assert used(near, 1000, keeps=keeps) == room


def test_only_answers_make_it_more(near: connections.Connections) -> None:
    assert used(near, 100, keeps=True) == connections.FIRST
    for _ in range(5):
        assert used(near, 100, seconds=None) == 2 * connections.FIRST
        room = near.take(100)
        assert room == 2 * connections.FIRST
        near.give_back(room)


def test_a_server_that_has_rested_gets_few_at_once_again(
    near: connections.Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(near, 100, keeps=True)
    assert used(near, 100) == 2 * connections.FIRST
    monkeypatch.setattr(connections, "_REST_S", 0.0)
    time.sleep(0.001)
    assert used(near, 100) == connections.FIRST
    assert near._keeps
    monkeypatch.setattr(connections, "_FORGET_S", 0.0)
    time.sleep(0.001)
    assert used(near, 100) == connections.FIRST
    assert near._keeps is None


def test_a_server_far_away_gets_all_at_once() -> None:
    server = connections.Connections("http://127.0.0.1:1")
    # It has not told yet whether it keeps connections.
    assert used(server, 100, 0.03) == connections.FIRST
    assert used(server, 100, 0.04, keeps=True) == connections.FIRST
    assert used(server, 100, 0.03) == 100
    # A failure takes no time. One answer from a cache counts for a while.
    assert used(server, 100, None) == 100
    assert server.take(1) == 1
    server.ended(0.001)
    assert server.take(1000) < 1000


def test_threads_wait_for_room_while_somebody_wants_the_answer(near: connections.Connections) -> None:
    assert near.take(connections.FIRST) == connections.FIRST
    near._keeps, near._ask_at = False, math.inf
    wanted = threading.Event()
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(near.wait(wanted.is_set))) for _ in range(2)]
    for thread in threads:
        thread.start()
    near.ended(0.001)
    while not found:
        time.sleep(0.01)
    assert found == [True]
    wanted.set()
    for thread in threads:
        thread.join()
    assert found == [True, False]


class Idle:
    """A stream of requests that has none at present."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = False

    def next_request(self) -> None:
        self.asked += 1

    def answered(self, token: Any, answer: Answer) -> None:
        """Never called."""

    def has_ended(self) -> bool:
        return self.over

    def is_given_up(self) -> bool:
        return self.over


def test_a_stream_without_requests_at_present_is_not_asked_again_and_again() -> None:
    store = HttpStore("HTTPStore", ["http://127.0.0.1:1"], {}, url="http://127.0.0.1:1")
    stream = Idle()
    assert store.answer_each(stream)
    time.sleep(0.2)
    asked = stream.asked
    time.sleep(0.2)
    # Other streams may have woken the threads.
    assert 0 < asked <= stream.asked < asked + 20
    stream.over = True
    store.look_again()


def test_only_servers_without_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.to_server("https://example.org/x") is None
    assert connections.to_server("s3://bucket/x") is None
    one = connections.to_server("http://example.org/x")
    assert one is not None
    assert connections.to_server("http://example.org/y") is one
    assert connections.to_server("http://example.org:8080/x") is not one
    # A proxy is a server of another kind.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    assert connections.to_server("http://example.org/x") is None
    assert connections.to_server("http://localhost:8000/x") is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_anew() -> None:
    one = connections.to_server("http://example.org/x")
    assert one is not None
    one.take(6)
    child = os.fork()
    if not child:
        code = 1
        try:
            other = connections.to_server("http://example.org/x")
            code = 0 if other is not None and other.take(6) == 6 else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    one.give_back(6)
