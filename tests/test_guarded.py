"""Locks for Python 3.14, whose ``with`` may be interrupted after it has taken a lock. Every version can run them."""

from __future__ import annotations

import importlib.util
import random
import signal
import sys
import threading
from typing import Any

import pytest

from gzarr import guarded


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as Python 3.14 loads it."""
    spec = importlib.util.find_spec("gzarr.guarded")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 14, 0, "final", 0))
        spec.loader.exec_module(module)
    return module


def is_free(lock: Any) -> bool:
    """Whether another thread can take a lock."""
    found = []

    def attempt() -> None:
        if lock.acquire(blocking=False):
            found.append(True)
            lock.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(found)


def test_an_interrupt_after_it_is_taken_gives_it_back(locks: Any) -> None:
    interrupts = [KeyboardInterrupt(f"{i}") for i in range(3)]

    class Interrupted(locks.Lock):  # type: ignore[misc]
        def acquire(self, *arguments: Any, **named: Any) -> bool:
            taken: bool = super().acquire(*arguments, **named)
            if interrupts:
                raise interrupts.pop(0)
            return taken

        def release(self) -> None:
            super().release()
            if interrupts:
                raise interrupts.pop(0)

    lock = Interrupted()
    with pytest.raises(KeyboardInterrupt, match="0"), lock:
        raise AssertionError("the block is not entered")
    assert len(interrupts) == 1
    interrupts.clear()
    assert is_free(lock)
    with lock:
        assert not is_free(lock)
        interrupts.append(KeyboardInterrupt("inner"))
        # What was taken before is kept.
        with pytest.raises(KeyboardInterrupt, match="inner"), lock:
            raise AssertionError("the block is not entered")
        assert not is_free(lock)
    assert is_free(lock)


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
@pytest.mark.parametrize("version", ["this one", "3.14"])
def test_a_storm_of_interrupts_leaves_it_free(kind: str, version: str, locks: Any) -> None:
    lock = getattr(guarded if version == "this one" else locks, kind)()
    numbers = random.Random(1)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        came = 0
        for _ in range(300):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, numbers.random() * 1e-4 + 1e-6)
                    for _ in range(5000):
                        with lock:
                            pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                came += 1
            assert is_free(lock)
        assert came > 100
    finally:
        signal.signal(signal.SIGALRM, old)
