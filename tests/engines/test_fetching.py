"""Requests of a read in I/O threads, within a budget: all are answered, and nobody waits for ever."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountingStore

import gzarr
from gzarr.engines.access.fetching import Fetching
from gzarr.errors import ChunkReadError
from gzarr.stores import io_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gzarr.stores.base import Answer, Request

DATA = np.random.default_rng(3).integers(0, 1000, (64, 64), dtype="u2")
CHUNK_BYTES = 4 * 4 * 2


class SlowStore(CountingStore):
    """A store whose requests take a time of their own.

    Attributes
    ----------
    pause_s
        Function that returns it.
    failing
        Keys that cannot be read.
    in_progress
        For each call, how many were in progress when it began.
    """

    pause_s: Any = staticmethod(lambda: 0.0)
    failing: frozenset[str] = frozenset()
    _now = 0

    def __init__(self, values: dict[str, Any], **limits: int) -> None:
        super().__init__(values, **limits)
        self.in_progress: list[int] = []

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        with self._lock:
            self._now += 1
            self.in_progress.append(self._now)
        time.sleep(self.pause_s())
        with self._lock:
            self._now -= 1
        if any(request.key in self.failing for request in requests):
            raise OSError("broken")
        return super().get_many(requests)


def made(**limits: int) -> tuple[SlowStore, gzarr.Array]:
    store = SlowStore({}, **limits)
    array = gzarr.create_array(store, data=DATA, chunks=(4, 4), compressors=None)
    return store, array


def await_idle_threads() -> None:
    deadline = time.monotonic() + 20
    while len(io_threads._idle) < len(io_threads._started) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(io_threads._idle) == len(io_threads._started)


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("budget", [1, 3 * CHUNK_BYTES, 40 * CHUNK_BYTES, 1 << 20])
def test_budgets(budget: int, each: int) -> None:
    store, array = made(calls=16, each=each)
    draws = random.Random(1)
    store.pause_s = lambda: draws.choice([0, 0, 0.001, 0.003])
    for _ in range(3):
        np.testing.assert_array_equal(array.read(..., budget_bytes=budget), DATA)
    await_idle_threads()


@pytest.mark.parametrize("each", [1, 3])
def test_no_thread_waits_for_a_read_that_has_failed(each: int) -> None:
    store, array = made(calls=16, each=each)
    draws = random.Random(2)
    store.pause_s = lambda: draws.choice([0, 0.0005, 0.001])
    for i in range(60):
        store.failing = frozenset({f"c/{draws.randrange(16)}/{draws.randrange(16)}"})
        with pytest.raises(ChunkReadError):
            array.read(..., budget_bytes=CHUNK_BYTES * (1 + i % 7))
    await_idle_threads()


def test_those_who_wait_are_woken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for many requests, made at once, is used by many."""
    store, array = made(calls=16)
    store.pause_s = lambda: 0.01
    release = Fetching.release
    given_back = 0

    def release_together(self: Fetching, nbytes: int) -> None:
        nonlocal given_back
        given_back += nbytes
        if given_back == 16 * CHUNK_BYTES:
            given_back = 0
            release(self, 16 * CHUNK_BYTES)

    monkeypatch.setattr(Fetching, "release", release_together)
    np.testing.assert_array_equal(array.read(..., budget_bytes=16 * CHUNK_BYTES), DATA)
    # Without the first ones, for which there was room from the beginning.
    assert statistics.fmean(store.in_progress[16:]) > 5
