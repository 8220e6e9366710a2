"""What a loader's counters and its progress line say about its speed; how soon its threads end."""

from __future__ import annotations

import dataclasses
import http.server
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices
from support.loaders import ROWS, await_end_of_threads, loader_threads, rows, write_rows
from support.range_server import range_server
from support.terminals import on_terminal

import gzarr
from gzarr.engines.cpu import native
from gzarr.engines.cuda.cupy_streams import CupyEvent
from gzarr.engines.cuda.engine import CudaEngine
from gzarr.loader import Loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

#: Seconds, long beside everything else in these tests.
NAP_S = 0.02


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "2")


class Slow(gzarr.MemoryStore):
    """A store that takes a nap before it answers for a chunk or a part of one, and counts its naps."""

    naps = 0
    nap_s = NAP_S

    def get(self, key: str) -> Any:
        self._nap(key, 1)
        return super().get(key)

    def get_partial_values(self, requests: Any) -> Any:
        requests = list(requests)
        self._nap(requests[0][0], len(requests))
        return super().get_partial_values(requests)

    def _nap(self, key: str, times: int) -> None:
        if "/c/" in f"/{key}":
            self.naps += times
            time.sleep(self.nap_s * times)


def stored(kind: str, store: Any) -> gzarr.Array:
    """Write 400 numbers in 40 chunks, and open them."""
    options: dict[str, dict[str, Any]] = {
        "native": {},
        "threads": {"compressors": [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]},
        "shards": {"shards": 100},
    }
    gzarr.create_array(store, data=np.arange(400), chunks=10, **options[kind])
    return gzarr.open_array(store)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["native", "threads", "shards"])
def test_a_slow_store_shows(kind: str, prefetch: int) -> None:
    store = Slow()
    loader = Loader(stored(kind, store), batch_size=40, buffer_bytes=1600, prefetch=prefetch)
    store.naps = 0
    for batch in loader:
        assert np.array_equal(batch["data"], batch.samples)
    stats = loader.stats()
    assert store.naps >= 10
    assert stats.slowest == "store"
    # Two threads nap at a time.
    assert stats.store_s >= 0.8 * store.naps * NAP_S / 2
    assert stats.waiting_s > stats.consumer_s
    assert stats.samples_per_s == pytest.approx(400 / stats.elapsed_s)


@pytest.fixture
def slow_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of 400 numbers in 40 chunks, each of which the server sends late."""
    gzarr.create_array(tmp_path / "a", data=np.arange(400), chunks=10)
    answer = http.server.BaseHTTPRequestHandler.send_response

    def late(self: Any, *arguments: Any) -> None:
        if "/c/" in self.path:
            time.sleep(10 * NAP_S)
        answer(self, *arguments)

    monkeypatch.setattr(http.server.BaseHTTPRequestHandler, "send_response", late)
    with range_server(tmp_path) as url:
        yield f"{url}/a"


def test_a_slow_remote_store_shows(slow_url: str) -> None:
    loader = Loader(gzarr.open_array(slow_url), batch_size=40, buffer_bytes=1600)
    assert sorted(number for batch in loader for number in batch["data"].tolist()) == list(range(400))
    stats = loader.stats()
    # The chunks of a block are asked for at once.
    assert stats.slowest == "store"
    assert stats.store_s >= 10 * NAP_S


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_slow_transform_shows(root: Path, prefetch: int) -> None:
    loader = rows(root, transform=lambda batch: time.sleep(NAP_S), prefetch=prefetch)
    number = len(list(loader))
    stats = loader.stats()
    assert stats.slowest == "transform"
    assert stats.transform_s >= number * NAP_S
    assert stats.waiting_s > stats.consumer_s


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_slow_consumer_shows(root: Path, prefetch: int) -> None:
    loader = rows(root, prefetch=prefetch)
    for _ in loader:
        time.sleep(NAP_S)
    stats = loader.stats()
    assert stats.slowest == "consumer"
    assert stats.consumer_s >= len(loader) * NAP_S


def test_slow_indexes_of_shards_show() -> None:
    class SlowIndexes(Slow):
        """Only the first request for a shard, which is for its index, takes long."""

        def _nap(self, key: str, times: int) -> None:
            if key not in seen:
                seen.add(key)
                super()._nap(key, 5)

    seen: set[str] = set()
    store = SlowIndexes()
    array = stored("shards", store)
    seen.clear()
    store.naps = 0
    loader = Loader(array, batch_size=40)
    list(loader)
    stats = loader.stats()
    assert store.naps == 4 * 5
    assert stats.store_s >= 0.9 * store.naps * NAP_S
    assert stats.slowest == "store"


@pytest.mark.parametrize("decode", ["cuda", "cpu"])
def test_a_slow_device_shows(root: Path, monkeypatch: pytest.MonkeyPatch, decode: Any) -> None:
    choose = CudaEngine.route
    monkeypatch.setattr(
        CudaEngine, "route", lambda self, chunks, nbytes, *_, **__: choose(self, chunks, nbytes, decode)
    )
    wait = CupyEvent.synchronize
    waits = []

    def late(self: Any) -> None:
        time.sleep(10 * NAP_S)
        waits.append(1)
        wait(self)

    monkeypatch.setattr(CupyEvent, "synchronize", late)
    with devices.use("on host") as device:
        loader = rows(root, device)
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        stats = loader.stats()
        batches.close()
        await_end_of_threads()
        del batches, loader
    assert waits
    assert stats.slowest == "device"
    assert stats.device_s >= 10 * NAP_S


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["native", "shards"])
def test_chunks_are_counted(kind: str, prefetch: int) -> None:
    loader = Loader(stored(kind, gzarr.MemoryStore()), batch_size=40, buffer_bytes=3200, prefetch=prefetch)
    assert loader.stats().hit_rate == 0
    native.take_stats()
    list(loader)
    stats = loader.stats()
    assert stats.chunks == native.take_stats()["chunks"] == 40
    assert stats.uses == 400
    assert stats.hit_rate == 0.9
    assert (stats.samples, stats.batches, stats.skipped) == (400, 10, 0)
    next(iter(loader))
    # Another epoch counts for itself, and what was returned before does not change.
    assert (loader.stats().batches, stats.batches) == (1, 10)


def test_skipped_samples_are_counted(tmp_path: Path) -> None:
    write_rows(tmp_path)
    (tmp_path / "x" / "c" / "3" / "0" / "0").write_bytes(b"damaged")
    loader = rows(tmp_path, on_error="skip")
    assert sum(len(batch.samples) for batch in loader) == ROWS - 7
    assert (loader.stats().samples, loader.stats().skipped) == (ROWS - 7, 7)
    assert "7 skipped" in str(loader.stats())


# -- the progress line


def test_progress_gives_out_the_same(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wanted = rows(root)
    list(wanted)
    loader = rows(root)
    assert [batch.samples.tolist() for batch in loader.progress()] != []
    assert [batch.samples.tolist() for batch in loader.progress()] == [batch.samples.tolist() for batch in wanted]
    # No terminal: a line at the end of each epoch.
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 1 ")
    assert " 32/32 " in lines[1]
    assert "samples/s" in lines[1]


def test_progress_goes_on_after_a_state_and_after_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path)
    (tmp_path / "x" / "c" / "3" / "0" / "0").write_bytes(b"damaged")
    batches = rows(tmp_path, shuffle=False).progress()
    next(batches)
    with pytest.raises(gzarr.ChunkDecodeError):
        next(batches)
    assert next(batches).samples[0] == 32
    batches.close()
    assert list(batches) == []
    loader = rows(tmp_path, shuffle=False)
    loader.load_state_dict(loader.state_dict() | {"cursor": 480})
    assert len(list(loader.progress())) == 2
    assert [line.split()[3] for line in capfd.readouterr().err.splitlines()] == ["2/32", "32/32"]


def test_the_line_is_rewritten_on_a_terminal(root: Path) -> None:
    code = (
        "import gzarr, time\n"
        f"for batch in gzarr.Loader(gzarr.open_array({str(root / 'x')!r}), batch_size=50).progress():\n"
        "    time.sleep(0.05)\n"
    )
    _, seen = on_terminal([sys.executable, "-W", "ignore", "-c", code])
    text = seen.decode()
    assert text.count("epoch 0") > 1
    assert text.count("\n") == 1
    assert "10/10" in text


# -- the end of the threads


def closed(batches: Any) -> None:
    batches.close()


def collected(batches: Any) -> None:
    del batches


@pytest.mark.parametrize("kind", ["native", "threads", "shards"])
@pytest.mark.parametrize("end", [closed, collected])
def test_threads_end_in_the_middle_of_a_block(kind: str, end: Callable[[Any], None]) -> None:
    store = Slow()
    array = stored(kind, store)
    store.nap_s = 0.5
    store.naps = 0
    batches: Any = iter(Loader(array, batch_size=400, buffer_bytes=1 << 20))
    while not store.naps:
        time.sleep(0.01)
    threads = loader_threads()
    assert threads
    end(batches)
    del batches
    begin = time.monotonic()
    for thread in threads:
        thread.join(20)
    # The block would take ten seconds and more.
    assert time.monotonic() - begin < 4
    assert not any(thread.is_alive() for thread in threads)


def test_threads_end_while_they_wait_for_a_remote_store(slow_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = gzarr.open_array(slow_url)
    # One request at a time: the block would take eight seconds.
    kind: Any = type(array.store)
    limits = dataclasses.replace(array.store.request_limits(), calls=1, each=1)
    monkeypatch.setattr(kind, "request_limits", lambda _: limits)
    batches: Any = iter(Loader(array, batch_size=400, buffer_bytes=1 << 20))
    time.sleep(0.3)
    threads = loader_threads()
    batches.close()
    begin = time.monotonic()
    for thread in threads:
        thread.join(20)
    assert time.monotonic() - begin < 4
    assert not any(thread.is_alive() for thread in threads)


INTERRUPTED = """
import signal, sys, threading, time
sys.path[:0] = {path!r}
# Processes in the background of a shell begin with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from loader.test_stats import Slow, stored
from support.loaders import loader_threads
import gzarr

store = Slow()
array = stored("native", store)
loader = gzarr.Loader(array, batch_size=40, buffer_bytes=1 << 20, prefetch={prefetch})
if {where!r} == "waiting":
    store.nap_s = 0.5
    threading.Timer(0.3, lambda: print("ready", flush=True)).start()
try:
    for batch in loader:
        print("ready", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    begin = time.monotonic()
    for thread in loader_threads():
        thread.join(20)
    print(time.monotonic() - begin, len(loader_threads()), flush=True)
    raise
"""


@pytest.mark.slow  # Starts processes. One Python is enough.
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("where", ["waiting", "consuming"])
def test_an_interrupt_ends_all_threads_and_the_process(where: str, prefetch: int) -> None:
    path = [str(Path(__file__).parents[1])]
    code = INTERRUPTED.format(path=path, where=where, prefetch=prefetch)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # A signal that comes between the end of a line of Python and the beginning of a sleep is seen after the sleep only.
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    seconds, left = out.split()[-2:]
    assert int(left) == 0
    # The rest of the block would take nine seconds.
    assert float(seconds) < 4
