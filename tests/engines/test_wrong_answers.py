"""Stores that answer otherwise than asked, and interrupts: nobody waits for ever, and errors say what was wrong."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.counting_store import CountingStore

import gzarr
from gzarr.engines import pool
from gzarr.engines.access.fetching import Fetching
from gzarr.errors import ChunkDecodeError, ChunkReadError
from gzarr.stores import io_threads
from gzarr.stores.base import Answer, Request
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DATA = np.random.default_rng(5).integers(0, 1000, (64, 64), dtype="u8")


def within_a_minute(function: Callable[[], Any]) -> Any:
    """Call a function in another thread; return its result or raise its exception, and fail if it does not end."""
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((function(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    result, error = done.get(timeout=60)
    if error is not None:
        raise error
    return result


def all_threads_become_idle() -> bool:
    deadline = time.monotonic() + 20
    while len(io_threads._idle) < len(io_threads._started) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(io_threads._idle) == len(io_threads._started)


class Changing(CountingStore):
    """A store that changes its answers."""

    change: Callable[[list[Answer]], Any] = staticmethod(lambda answers: answers)

    def get_many(self, requests: Sequence[Request]) -> Any:
        return self.change(super().get_many(requests))


def with_value(answer: Answer, value: Any) -> Answer:
    return Answer(value, answer.version, size=answer.size)


def each_value(change: Callable[[Any], Any]) -> Callable[[list[Answer]], list[Answer]]:
    return lambda answers: [with_value(answer, change(answer.value)) for answer in answers]


def made(shards: tuple[int, int] | None, **limits: int) -> tuple[Changing, gzarr.Array]:
    store = Changing({}, **limits)
    gzarr.create_array(store, data=DATA, chunks=(4, 4), shards=shards, compressors=None)
    return store, gzarr.open_array(store, device="cpu")


WRONG = {
    "too few": (lambda answers: answers[1:], "get_many returned [02] answers to [13] requests"),
    "too many": (lambda answers: [*answers, answers[0]], "get_many returned [24] answers to [13] requests"),
    "none": (lambda _: None, "not iterable"),
    "no answers": (lambda answers: [answer.value for answer in answers], "returned a bytes for .*, expected an Answer"),
    "texts": (each_value(lambda _: "text"), "returned a str for .*, expected bytes"),
    "gaps": (
        each_value(lambda value: memoryview(bytes(2 * len(value)))[::2]),
        "returned a memoryview for .*, expected",
    ),
}


@pytest.mark.parametrize("shards", [None, (16, 16)], ids=["chunks", "shards"])
@pytest.mark.parametrize("wrong", WRONG)
def test_answers_that_are_none(wrong: str, shards: tuple[int, int] | None) -> None:
    store, array = made(shards, each=3)
    store.change, message = WRONG[wrong]
    with pytest.raises(ChunkReadError, match=message):
        within_a_minute(lambda: array[:])
    # Of a shard's index.
    with pytest.raises(ChunkReadError, match=message):
        within_a_minute(lambda: array[0, 0])
    store.change = Changing.change
    np.testing.assert_array_equal(within_a_minute(lambda: array[:]), DATA)


@pytest.mark.parametrize("shards", [None, (16, 16)], ids=["chunks", "shards"])
@pytest.mark.parametrize("kind", ["array", "words", "box"])
def test_any_contiguous_buffer_is_a_value(kind: str, shards: tuple[int, int] | None) -> None:
    def change(value: bytes) -> Any:
        if kind == "array":
            return np.frombuffer(value, "u1")
        return memoryview(value).cast("B", (2, len(value) // 2)) if kind == "box" else memoryview(value).cast("I")

    store, array = made(shards)
    store.change = each_value(change)
    np.testing.assert_array_equal(within_a_minute(lambda: array[:]), DATA)
    np.testing.assert_array_equal(within_a_minute(lambda: array[:3, 2:9]), DATA[:3, 2:9])


# With more senders than threads, some are queued before what is to make room.
@pytest.mark.parametrize("calls", [64, 200])
def test_a_shard_that_is_cut_off_while_others_wait_for_room(calls: int) -> None:
    rows = np.arange(300 * 400, dtype="i8").reshape(300, 400)
    memory = zarr.storage.MemoryStore()
    shards: Any = {"shape": (1, 400), "index_location": "start"}
    zarr.create_array(memory, data=rows, chunks=(1, 100), shards=shards, compressors=None)
    store = CountingStore({key: value.to_bytes() for key, value in memory._store_dict.items()}, calls=calls)
    # The second chunk of this row is incomplete.
    store.mapping["c/200/0"] = store.mapping["c/200/0"][:1200]
    array = gzarr.open_array(store, device="cpu")
    with pytest.raises(ChunkDecodeError, match="c/200/0") as caught:
        within_a_minute(lambda: array.read((slice(None), slice(0, 200)), budget_bytes=2000))
    assert caught.value.chunk == (200, 1)
    assert all_threads_become_idle()


@pytest.mark.parametrize("where", ["start", "run"])
def test_interrupts_before_a_read_begins(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "4")
    _, array = made(None, calls=64)
    interrupted: list[None] = []

    def interrupt(*_: Any) -> None:
        interrupted.append(None)
        raise KeyboardInterrupt

    start = Fetching.start
    with monkeypatch.context() as patch:
        if where == "run":
            patch.setattr(pool, "_start", interrupt)
        else:

            def start_and_interrupt(fetching: Fetching) -> None:
                start(fetching)
                interrupt()

            patch.setattr(Fetching, "start", start_and_interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                array.read(budget_bytes=200)
    assert len(interrupted) == 2
    assert all_threads_become_idle()
    np.testing.assert_array_equal(within_a_minute(lambda: array[:]), DATA)


def test_a_thread_that_fails_otherwise_ends_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _, array = made(None, calls=4)
    monkeypatch.setattr(Fetching, "answered", lambda *_: 1 / 0)
    with pytest.raises(ChunkReadError, match="division by zero"):
        within_a_minute(lambda: array[:])
    assert all_threads_become_idle()


class Plain(MemoryStore):
    """A store whose values of chunks are changed, by plain calls."""

    change: Callable[[Any], Any] = staticmethod(lambda value: value)

    def _changed(self, key: str, value: Any) -> Any:
        return self.change(value) if value is not None and key.startswith("c/") else value

    def get(self, key: str) -> Any:
        return self._changed(key, super().get(key))

    def get_small_values(self, keys: Any, max_nbytes: int) -> Any:
        return [self.get(key) for key in keys]

    def get_partial_values(self, parts: Any) -> Any:
        parts = list(parts)
        values = super().get_partial_values(parts)
        return [self._changed(key, value) for (key, _), value in zip(parts, values, strict=True)]


@pytest.mark.parametrize("shards", [None, (16, 16)], ids=["chunks", "shards"])
def test_values_of_plain_calls(shards: tuple[int, int] | None) -> None:
    store = Plain({})
    gzarr.create_array(store, data=DATA, chunks=(4, 4), shards=shards, compressors=None)
    for change in (
        lambda value: np.frombuffer(value, "u1"),
        lambda value: memoryview(value).cast("B", (2, len(value) // 2)),
        lambda value: memoryview(value).cast("I"),
    ):
        store.change = change
        np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[:], DATA)
    for wrong in (lambda _: "text", lambda value: memoryview(bytes(2 * len(value)))[::2], lambda _: 7):
        store.change = wrong
        with pytest.raises(ChunkReadError, match="expected bytes or a contiguous buffer"):
            gzarr.open_array(store, device="cpu")[:]
