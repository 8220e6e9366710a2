"""Reads from a web server that were given up, or that read ahead: they leave room for what others wait for."""

from __future__ import annotations

import contextlib
import http.server
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

import gzarr
from gzarr.loader import Patches
from gzarr.loader.documents import Documents
from gzarr.stores import connections, curl_threads, http_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = np.arange(40 * 8, dtype="u2").reshape(40, 8)

#: What would wait for an answer that does not come waits longer, also on a busy machine.
SOON_S = 8

pytestmark = pytest.mark.timeout(40)
needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")


class GivenUpError(Exception):
    """What the handler of a signal raises."""


class Silent(http.server.SimpleHTTPRequestHandler):
    """Answers requests for documents, and those for chunks once it may."""

    protocol_version = "HTTP/1.1"
    may: threading.Event
    #: One entry for each connection that is open.
    opened: ClassVar[list[None]]

    def handle(self) -> None:
        self.opened.append(None)
        try:
            with contextlib.suppress(OSError):
                super().handle()
        finally:
            self.opened.pop()

    def do_GET(self) -> None:
        if "/c/" in self.path:
            while not self.may.wait(0.02):
                with contextlib.suppress(BlockingIOError):
                    if not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                        self.close_connection = True
                        return
        super().do_GET()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, type[Silent]]]:
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=(1, 8))

    class Handler(Silent):
        may = threading.Event()
        opened: ClassVar[list[None]] = []

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def finish_request(self, request: Any, address: Any) -> None:
            Handler(request, address, self, directory=str(tmp_path))

    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}/x", Handler
        finally:
            Handler.may.set()
            made.shutdown()
            thread.join()


@contextlib.contextmanager
def given_up(after_s: float) -> Iterator[None]:
    """Expect that the handler of a timer ends what is done."""

    def end(*_: object) -> None:
        raise GivenUpError

    before = signal.signal(signal.SIGALRM, end)
    # The timer is that of the test's own time limit.
    rest, _ = signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        with pytest.raises(GivenUpError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest)
        signal.signal(signal.SIGALRM, before)


@needs_timers
def test_reads_that_were_given_up_leave_room(by: str, server: tuple[str, type[Silent]]) -> None:
    url, handler = server
    a = gzarr.open_array(url, device="cpu")
    for _ in range(4):
        with given_up(0.1):
            a[...]
        begin = time.monotonic()
        assert gzarr.open_array(url, device="cpu").shape == DATA.shape
        assert time.monotonic() - begin < SOON_S
    # libcurl ends those requests with their connections. For obstore, its threads are the bound.
    begin = time.monotonic()
    while len(handler.opened) > (10 if by == "libcurl" else 5 * 6 + 2):
        assert time.monotonic() - begin < SOON_S
        time.sleep(0.01)
    handler.may.set()
    begin = time.monotonic()
    np.testing.assert_array_equal(a[...], DATA)
    assert time.monotonic() - begin < SOON_S


@needs_timers
def test_reads_that_were_given_up_leave_handles_of_libcurl(
    server: tuple[str, type[Silent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from servers far away and object stores, to which the number of connections is not limited."""
    url, handler = server
    monkeypatch.setattr(http_store, "to_server", lambda url: None)
    a = gzarr.open_array(url, device="cpu")
    for _ in range(3):
        with given_up(0.1):
            a[...]
    # All 64 handles were taken, and the connections of the last read may stay.
    begin = time.monotonic()
    while len(handler.opened) > len(DATA) + 1:
        assert time.monotonic() - begin < SOON_S
        time.sleep(0.01)
    handler.may.set()
    np.testing.assert_array_equal(a[...], DATA)


def test_a_document_is_read_while_all_room_is_taken(by: str, server: tuple[str, type[Silent]]) -> None:
    url, handler = server
    a = gzarr.open_array(url, device="cpu")
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(a[:12]))
    thread.start()
    while len(handler.opened) < 6:
        time.sleep(0.01)
    begin = time.monotonic()
    assert gzarr.open_array(url, device="cpu").shape == DATA.shape
    assert time.monotonic() - begin < SOON_S
    assert not found
    handler.may.set()
    thread.join()
    np.testing.assert_array_equal(found[0], DATA[:12])


def test_a_loader_begins_though_no_chunk_arrives(
    by: str, server: tuple[str, type[Silent]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    look = Documents.look

    def late(self: Documents) -> list[str]:
        while len(handler.opened) < 6:
            time.sleep(0.01)
        return look(self)

    monkeypatch.setattr(Documents, "look", late)
    loader = gzarr.Loader(gzarr.open_array(url, device="cpu"), Patches((2, 8)), batch_size=2, seed=0)
    begin = time.monotonic()
    batches = iter(loader)
    assert time.monotonic() - begin < SOON_S
    handler.may.set()
    assert sum(1 for _ in batches) == 10


def test_room_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a request is wanted until its end or not."""
    woken: list[None] = []
    monkeypatch.setattr(curl_threads, "wake", lambda: woken.append(None))
    connected = connections.Connections("http://127.0.0.1:1")
    is_there = threading.Barrier(connections.FIRST + 1)
    unwanted, end = threading.Event(), threading.Event()

    def ask() -> None:
        assert connected.wait(bool, unwanted.is_set)
        is_there.wait()
        end.wait()
        connected.leave(None)

    threads = [threading.Thread(target=ask) for _ in range(connections.FIRST)]
    for thread in threads:
        thread.start()
    is_there.wait()
    assert connected.are_taken()
    assert connected.take(100) == 0
    connected.want_more()
    assert connected.wait(bool, bool, is_call=True)
    connected.leave(None)
    assert woken.pop() is None
    connected.want_more()
    unwanted.set()
    assert connected.take(100) == connections.FIRST
    assert woken == [None]
    connected.want_more()
    end.set()
    for thread in threads:
        thread.join()
    assert len(woken) == 2
    assert connected.take(100) == 0
    connected.want_more()
    connected.give_back(connections.FIRST)
    assert len(woken) == 3
    assert connected.take(100) == connections.FIRST
