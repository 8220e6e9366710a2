"""Loaders of arrays in a remote store: requests of several arrays are in progress at a time."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Loader, Rows, Windows, side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

NAMES = tuple("abcd")


class Counting(http.server.ThreadingHTTPServer):
    """A server of files that takes 30 ms for each, and counts the requests in progress."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, root: Path) -> None:
        self.lock, self.active, self.most, self.broken = threading.Lock(), 0, 0, ""
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(root))

            def do_GET(self) -> None:
                with server.lock:
                    server.active += 1
                    server.most = max(server.most, server.active)
                try:
                    time.sleep(0.03)
                    if server.broken and server.broken in self.path:
                        self.send_error(403)
                    else:
                        super().do_GET()
                finally:
                    with server.lock:
                        server.active -= 1

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Counting]:
    for i, name in enumerate(NAMES):
        data = np.arange(32 * 50).reshape(32, 50) + 10_000 * i
        gzarr.create_array(tmp_path / name, data=data, chunks=(1, 50))
    with Counting(tmp_path) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def opened(server: Counting) -> dict[str, gzarr.Array]:
    return {name: gzarr.open_array(f"{server.url}/{name}", device="cpu") for name in NAMES}


def check(batch: Any, steps: int = 0) -> None:
    for i, name in enumerate(NAMES):
        found = batch["x"][name] if steps else batch[name]
        rows = batch.origins + np.arange(steps) if steps else batch.origins[:, 0]
        assert (found == (rows[..., np.newaxis] * 50 + np.arange(50) + 10_000 * i)).all()


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("kept", [False, True])
def test_all_arrays_are_asked_for_at_a_time(server: Counting, shuffle: Any, kept: bool) -> None:
    arrays = opened(server)
    # One batch: one array alone has four requests.
    loader = Loader(
        arrays, Rows(where=range(4)), batch_size=4, shuffle=shuffle, buffer_bytes=(1 << 20) if kept else 100
    )
    server.most = 0
    (batch,) = loader
    check(batch)
    assert server.most >= 9
    assert loader.stats().chunks == 16


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_so_are_those_of_slabs(server: Counting, shuffle: Any) -> None:
    loader = Loader(opened(server), Windows(0, {"x": (0, 2)}, where=range(2)), batch_size=2, shuffle=shuffle)
    server.most = 0
    (batch,) = loader
    check(batch, 3)
    assert server.most >= 9


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_whole_epochs(server: Counting, shuffle: Any) -> None:
    loader = Loader(opened(server), batch_size=5, shuffle=shuffle, buffer_bytes=20_000, drop_last=False)
    for _ in range(2):
        seen = []
        for batch in loader:
            check(batch)
            seen += batch.samples.tolist()
        assert sorted(seen) == list(range(32))


def test_without_threads_there_are_none(server: Counting) -> None:
    loader = Loader(opened(server), Rows(where=range(4)), batch_size=4, prefetch=0)
    server.most = 0
    (batch,) = loader
    check(batch)
    assert server.most <= 4


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_an_error_takes_the_place_of_its_batch(server: Counting, shuffle: Any) -> None:
    loader = Loader(opened(server), batch_size=4, shuffle=shuffle, drop_last=False)
    server.broken = "/c/c/7/"
    batches, good, said = iter(loader), 0, []
    while good + len(said) < 8:
        try:
            batch = next(batches)
        except gzarr.ChunkError as error:
            said.append(str(error))
        else:
            check(batch)
            good += 1
    assert good == 7
    assert "403" in said[0]
    assert next(batches, None) is None


def test_closing_ends_soon(server: Counting) -> None:
    before = threading.active_count()
    batches = iter(Loader(opened(server), batch_size=2, shuffle="full"))
    next(batches)
    batches.close()
    end = time.monotonic() + 10
    while any("gzarr-loader" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < end, before
        time.sleep(0.01)


def test_tasks() -> None:
    seen: list[int] = []
    side_by_side.run([lambda i=i: seen.append(i) for i in range(5)], together=True)
    assert sorted(seen) == list(range(5))

    def fail(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side.run([lambda: seen.append(9), lambda: fail(1), lambda: fail(2)], together=True)
    assert seen[-1] == 9
    with contextlib.suppress(ValueError):
        side_by_side.run([lambda: fail(1), lambda: seen.append(10)], together=False)
    assert seen[-1] == 9
