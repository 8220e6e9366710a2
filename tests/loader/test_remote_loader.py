"""Loaders of arrays in remote stores: requests stay in progress across arrays, reads and batches, in bounded memory."""

from __future__ import annotations

import contextlib
import gc
import http.server
import re
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import garbage
from support.loaders import SHUFFLES, await_end_of_threads, loader_threads

import gzarr
from gzarr.engines.asking import Asked, Taken
from gzarr.engines.monitor import ReadCancelledError
from gzarr.loader import Loader, Rows, Windows, pipeline, side_by_side
from gzarr.loader.ahead import _cut
from gzarr.loader.documents import Documents
from gzarr.stores import connections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

NAMES = tuple("stuv")
ROWS, LONG = 60, 300
#: Bytes of a chunk, which is a row, and not compressed; and of a sample of one row.
CHUNK = 50 * 8
SAMPLE = len(NAMES) * CHUNK
#: How many requests may be in progress.
ALLOWED = 64


class Holding(http.server.ThreadingHTTPServer):
    """A server of files that counts the requests for chunks in progress, and may hold them.

    Attributes
    ----------
    most
        Most requests that were in progress at once.
    asked
        Paths of the chunks that were asked for.
    hold
        No request is answered until so many have been in progress, or ``patience_s`` are over.
    broken
        Part of the paths that are refused.
    """

    daemon_threads = True
    request_queue_size = 256
    patience_s = 5.0

    def __init__(self, root: Path) -> None:
        self.changed = threading.Condition()
        self.active = self.most = self.hold = 0
        self.asked: list[str] = []
        self.broken = ""
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                path = root / self.path.lstrip("/")
                is_chunk = "/c/" in self.path
                if is_chunk:
                    server.enter(self.path)
                try:
                    if server.broken and server.broken in self.path:
                        self.answer(403, b"")
                    elif not path.is_file():
                        self.answer(404, b"")
                    else:
                        self.send_part(path.read_bytes())
                finally:
                    if is_chunk:
                        server.leave()

            do_HEAD = do_GET

            def send_part(self, data: bytes) -> None:
                wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
                if wanted is None:
                    self.answer(200, data)
                    return
                first = int(wanted[1]) if wanted[1] else max(len(data) - int(wanted[2]), 0)
                last = min(int(wanted[2]), len(data) - 1) if wanted[1] and wanted[2] else len(data) - 1
                self.answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

            def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {"ETag": '"1"', "Content-Length": str(len(data)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients may have left before they were answered."""

    def enter(self, path: str) -> None:
        with self.changed:
            self.asked.append(path)
            self.active += 1
            self.most = max(self.most, self.active)
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self.most >= self.hold, self.patience_s):
                self.hold = 0
                self.changed.notify_all()

    def leave(self) -> None:
        with self.changed:
            self.active -= 1

    def clear(self) -> None:
        self.most = 0
        self.asked.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def data_of(name: str) -> Any:
    """Return an array whose elements tell their places."""
    return np.arange(ROWS * 50).reshape(ROWS, 50) + 10_000 * NAMES.index(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("remote")
    for name in NAMES:
        gzarr.create_array(root / name, data=data_of(name), chunks=(1, 50), compressors=None)
        gzarr.create_array(root / f"{name}s", data=data_of(name), chunks=(1, 50), shards=(20, 50))
        gzarr.create_array(
            root / f"{name}l", data=np.arange(LONG * 50).reshape(LONG, 50), chunks=(1, 50), compressors=None
        )
    return root


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holding]:
    # It would wait for more requests than a server gets that has not answered.
    monkeypatch.setattr(connections, "FIRST", 1000)
    with Holding(folder) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        yield served
        served.hold = 0
        with served.changed:
            served.changed.notify_all()
        served.shutdown()
        thread.join()


def opened(root: Path | str, suffix: str = "") -> dict[str, gzarr.Array]:
    return {name: gzarr.open_array(f"{root}/{name}{suffix}", device="cpu") for name in NAMES}


#: Ways to read: the sampler, and buffers that are too small for an epoch, but not for as many chunks as are allowed.
#: Windows share slabs if they are shuffled in blocks; in other orders, chunks stay. Rows need each chunk once.
WAYS = {
    "rows": (Rows(), 60 * SAMPLE),
    "rows, one read": (Rows(), 400 * SAMPLE),
    "windows": (Windows(0, {"x": (0, 3)}), 100 * SAMPLE),
    "windows, all stay": (Windows(0, {"x": (0, 3)}), 2000 * SAMPLE),
}
EACH_WAY = pytest.mark.parametrize("way", list(WAYS))
EACH_ORDER = pytest.mark.parametrize("shuffle", SHUFFLES)


def loader_of(arrays: dict[str, gzarr.Array], way: str, shuffle: Any, **options: Any) -> Loader:
    sampler, buffer = WAYS[way]
    return Loader(
        arrays, sampler, **{"batch_size": 2, "shuffle": shuffle, "buffer_bytes": buffer, "drop_last": False, **options}
    )


def same(a: Any, b: Any) -> bool:
    """Return whether batches have the same samples and the same elements."""
    pairs = [(a["x"], b["x"])] if "x" in a else [(a, b)]
    return a.samples.tolist() == b.samples.tolist() and all(
        np.array_equal(p[name], q[name]) for p, q in pairs for name in NAMES
    )


def rows_of(batch: Any) -> list[int]:
    """Check the elements of rows; return their numbers."""
    for name in NAMES:
        assert np.array_equal(batch[name], data_of(name)[batch.samples])
    return list(batch.samples.tolist())


@EACH_ORDER
@EACH_WAY
def test_as_many_requests_are_in_progress_as_are_allowed(server: Holding, way: str, shuffle: Any) -> None:
    loader = loader_of(opened(server.url), way, shuffle)
    server.clear()
    # A read of the first batch alone has 8 or 20, and one array of a block of windows fewer than allowed as well.
    server.hold = ALLOWED
    assert sum(len(batch.samples) for batch in loader) == len(loader) * 2 - (way.startswith("windows"))
    assert server.most == ALLOWED


@EACH_ORDER
@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"x": (0, 3)})], ids=["rows", "windows"])
def test_they_are_for_the_whole_epoch(server: Holding, shuffle: Any, sampler: Any) -> None:
    buffer = 100 * SAMPLE if isinstance(sampler, Rows) else 150 * SAMPLE
    batches = iter(Loader(opened(server.url, "l"), sampler, batch_size=4, shuffle=shuffle, buffer_bytes=buffer))
    for _ in range(30):
        next(batches)
    with server.changed:
        server.most, server.hold = 0, ALLOWED
    for _ in batches:
        pass
    assert server.most == ALLOWED


@EACH_ORDER
@EACH_WAY
@pytest.mark.parametrize("suffix", ["", "s"])
def test_batches_are_those_of_a_local_copy(server: Holding, folder: Path, way: str, shuffle: Any, suffix: str) -> None:
    remote, local = (loader_of(opened(root, suffix), way, shuffle, seed=3) for root in (server.url, folder))
    for _ in range(2):
        assert all(same(*pair) for pair in zip(remote, local, strict=True))
    assert remote.stats().uses == local.stats().uses


@EACH_ORDER
@EACH_WAY
def test_an_epoch_goes_on_in_its_middle(server: Holding, folder: Path, way: str, shuffle: Any) -> None:
    remote, local = (loader_of(opened(root), way, shuffle) for root in (server.url, folder))
    batches = iter(remote)
    given = [next(batches) for _ in range(7)]
    state = remote.state_dict()
    del batches
    resumed = loader_of(opened(server.url), way, shuffle)
    resumed.load_state_dict(state)
    assert all(same(*pair) for pair in zip([*given, *resumed], local, strict=True))


@EACH_ORDER
@EACH_WAY
def test_each_chunk_is_asked_for_by_one_read(server: Holding, way: str, shuffle: Any) -> None:
    loader = loader_of(opened(server.url), way, shuffle)
    server.clear()
    for _ in loader:
        pass
    assert len(server.asked) == loader.stats().chunks


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shards_are_asked_for_as_a_whole(server: Holding, shuffle: Any) -> None:
    loader = Loader(opened(server.url, "s"), batch_size=ROWS, shuffle=shuffle)
    server.clear()
    (batch,) = loader
    assert sorted(rows_of(batch)) == list(range(ROWS))
    assert len(server.asked) == len(NAMES) * ROWS // 20


@EACH_ORDER
def test_memory_bounds_what_is_asked_for(server: Holding, shuffle: Any) -> None:
    buffer, prefetch, batch = 16 * SAMPLE, 2, 2
    loader = Loader(opened(server.url), batch_size=batch, shuffle=shuffle, buffer_bytes=buffer, prefetch=prefetch)
    server.clear()
    batches = iter(loader)
    next(batches)
    # Until nothing more comes: a count that is taken too early is too low, and does no harm.
    count = -1
    while count < len(server.asked):
        count = len(server.asked)
        time.sleep(0.3)
    assert (prefetch + 1) * batch * SAMPLE < count * CHUNK <= buffer + (prefetch + 2) * batch * SAMPLE
    assert sum(len(batch.samples) for batch in batches) == ROWS - batch


def test_without_threads_nothing_is_asked_for_ahead(server: Holding) -> None:
    await_end_of_threads()
    loader = Loader(opened(server.url), Rows(where=range(4)), batch_size=2, prefetch=0)
    server.clear()
    batches = iter(loader)
    rows_of(next(batches))
    assert len(server.asked) <= 4 * len(NAMES)
    assert server.most <= 4
    assert not loader_threads()


@EACH_ORDER
@pytest.mark.parametrize("buffer", [400 * SAMPLE, 20 * SAMPLE])
def test_an_error_takes_the_place_of_its_batch(server: Holding, shuffle: Any, buffer: int) -> None:
    loader = Loader(opened(server.url), batch_size=4, shuffle=shuffle, buffer_bytes=buffer)
    server.broken = "u/c/7/"
    batches, failed, seen = iter(loader), [], []
    for _ in range(len(loader)):
        try:
            batch = next(batches)
        except gzarr.ChunkError as error:
            failed.append(str(error))
        else:
            seen += rows_of(batch)
    assert len(failed) == 1
    assert "403" in failed[0]
    assert len(seen) == len(set(seen)) == ROWS - 4
    assert next(batches, None) is None


@EACH_ORDER
def test_samples_that_cannot_be_read_are_left_out(server: Holding, shuffle: Any) -> None:
    loader = Loader(opened(server.url), batch_size=4, shuffle=shuffle, on_error="skip", buffer_bytes=40 * SAMPLE)
    server.broken = "u/c/7/"
    assert sorted(row for batch in loader for row in rows_of(batch)) == [row for row in range(ROWS) if row != 7]
    assert loader.stats().skipped == 1


@EACH_ORDER
@EACH_WAY
def test_closing_does_not_wait_for_answers(server: Holding, way: str, shuffle: Any) -> None:
    server.patience_s = 60
    loader = loader_of(opened(server.url), way, shuffle)
    server.clear()
    server.hold = 1000
    batches = iter(loader)
    with server.changed:
        assert server.changed.wait_for(lambda: server.active >= 20, 30)
    batches.close()
    await_end_of_threads()
    # The server has not answered yet.
    assert server.active >= 20


@EACH_WAY
def test_chunks_are_asked_for_while_documents_are_looked_at(
    server: Holding, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = loader_of(opened(server.url), way, "full")
    look = Documents.look

    def waiting(self: Documents) -> list[str]:
        with server.changed:
            assert server.changed.wait_for(lambda: server.asked, 20)
        return look(self)

    monkeypatch.setattr(Documents, "look", waiting)
    next(iter(loader))


@EACH_WAY
def test_threads_end_with_the_epoch(server: Holding, way: str) -> None:
    loader = loader_of(opened(server.url), way, "full")
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    # The iterator still lives, and does not know that it was the last one.
    await_end_of_threads()


def test_documents_are_looked_at_side_by_side(server: Holding) -> None:
    loader = Loader(opened(server.url), batch_size=4)
    seen: list[str] = []
    both = threading.Barrier(len(NAMES))

    def present(array: Any) -> Any:
        both.wait(20)
        seen.append(array.name)
        return array.metadata

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gzarr.loader.documents.present_metadata", present)
        next(iter(loader))
    assert len(seen) >= len(NAMES)


def test_a_failure_ends_the_waits_of_other_threads() -> None:
    taken = Taken([0], [Asked()], 2)
    taken.close()
    # That nobody reads any more would not be the failure.
    assert taken.take() is None
    ended = Asked()
    ended.cancel()
    with pytest.raises(ReadCancelledError):
        Taken([0], [ended], 2).take()


def test_tasks() -> None:
    seen: list[int] = []
    side_by_side.run([lambda i=i: seen.append(i) for i in range(5)])
    assert sorted(seen) == list(range(5))
    # However many tasks there are, there are few threads.
    ran: set[int] = set()
    side_by_side.run([lambda: (time.sleep(0.05), ran.add(threading.get_ident()))] * 200)
    assert 1 < len(ran) <= 32

    def fail(number: int) -> None:
        raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        side_by_side.run([lambda: seen.append(9), lambda: fail(1), lambda: fail(2)])
    assert seen[-1] == 9
    side_by_side.run([])


@pytest.fixture
def interrupted_at_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt ``side_by_side.run`` when its second thread has started."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "gzarr-loader-array-2":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)


def await_tasks() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("gzarr-loader-array"):
            thread.join(20)


def test_no_task_begins_after_an_interrupt(interrupted_at_the_second: None) -> None:
    seen: list[int] = []
    held = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        side_by_side.run([lambda i=i: (seen.append(i), held.wait()) for i in range(40)])
    held.set()
    await_tasks()
    assert len(seen) <= 2


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_in_a_task_waits_for_no_others(fails: bool) -> None:
    """Nor is it a failure among those of others."""
    caller, both = threading.current_thread(), threading.Barrier(2)
    held, failed, seen = threading.Event(), threading.Event(), []

    def task(i: int) -> None:
        seen.append(i)
        both.wait(20)
        if threading.current_thread() is caller:
            assert not fails or failed.wait(20)
            raise KeyboardInterrupt
        try:
            if fails:
                raise OSError("another")
            # Only a caller that waits for this waits long.
            held.wait(30)
        finally:
            failed.set()

    with pytest.raises(KeyboardInterrupt):
        side_by_side.run([partial(task, i) for i in range(2)])
    assert failed.is_set() == fails
    held.set()
    await_tasks()
    assert len(seen) == 2


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_while_the_threads_of_an_epoch_start(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("gzarr-loader-run"):
            started.append(thread)
            if len(started) == number:
                raise KeyboardInterrupt

    loader = Loader(gzarr.create_array({}, data=np.arange(100), chunks=10, device="cpu"), Rows(), batch_size=10)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(loader)
    assert len(started) == number
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_an_interrupt_after_the_threads_of_an_epoch_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []

    def interrupted(work: Any) -> bool:
        before = set(threading.enumerate())
        pipeline_started(work)
        started.extend(set(threading.enumerate()) - before)
        raise KeyboardInterrupt

    pipeline_started = pipeline._started
    loader = Loader(gzarr.create_array({}, data=np.arange(1000), chunks=10, device="cpu"), Rows(), batch_size=10)
    monkeypatch.setattr(pipeline, "_started", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(loader)
    gc.collect()
    assert started
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_an_interrupt_keeps_no_tasks(interrupted_at_the_second: None) -> None:
    with garbage.kept_by_cycles() as kept:
        with contextlib.suppress(KeyboardInterrupt):
            side_by_side.run([partial(len, [i]) for i in range(40)])
        await_tasks()
    assert kept == []


@pytest.mark.parametrize("suffix", ["", "s"])
def test_what_is_wanted_of_a_shard_is_asked_for_together(folder: Path, suffix: str) -> None:
    loader = Loader({"u": opened(folder, suffix)["u"]}, Rows())
    (source,) = loader._volumes.each[0].sources
    # Of the second shard, a quarter is wanted.
    rows = np.random.default_rng(1).permutation(np.delete(np.arange(ROWS), slice(20, 35)))
    each = 20 if suffix else 1
    values = ROWS // 20 if suffix else len(rows)
    for most in (1, 2, 3, values):
        parts = _cut(np.stack([rows, 0 * rows], axis=1), source, most * len(rows) // values * source.chunk_nbytes)
        assert sorted(np.concatenate(parts)[:, 0].tolist()) == sorted(rows.tolist())
        found = [set((part[:, 0] // each).tolist()) for part in parts]
        assert max(map(len, found)) == most
        assert sum(map(len, found)) == values
    assert _cut(np.empty((0, 2), np.int64), source, 1) == []


@pytest.mark.parametrize("kind", ["", "s"], ids=["chunks", "shards"])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_views_are_asked_for_ahead(server: Holding, kind: str, shuffle: Any) -> None:
    """Of the array's chunks, those that the views have are fetched, and no others."""
    array = gzarr.open_array(f"{server.url}/s{kind}", device="cpu")
    views = {"back": array.view[40:20:-1, 10:30], "every": array.view[20:40:1, ::7]}
    server.clear()
    seen = 0
    for batch in Loader(views, Rows(), batch_size=4, shuffle=shuffle):
        np.testing.assert_array_equal(batch["back"], data_of("s")[40:20:-1, 10:30][batch.samples])
        np.testing.assert_array_equal(batch["every"], data_of("s")[20:40, ::7][batch.samples])
        seen += len(batch.samples)
    assert seen == 20
    rows = {int(path.split("/")[3]) for path in server.asked}
    assert rows == ({1, 2} if kind else set(range(20, 41)))
