"""Threads that end before they run, as memory is short, or that are late: nobody waits for them for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from gzarr import starting
from gzarr.starting import NamedThread

DYING = """
import threading
import numpy as np
import gzarr
from gzarr import starting
from gzarr.loader import Loader, Rows
starting.LONGEST_S = 0.2
array = gzarr.create_array({}, data=np.arange(100), chunks=10, device="cpu")
def dying(self):
    raise MemoryError
threading.Thread._bootstrap_inner = dying
assert gzarr.map_blocks(lambda block: block + 1, array, block=10)[...].sum() == 5050
assert sum(len(batch.samples) for batch in Loader(array, Rows(), batch_size=10)) == 100
print("fine")
"""


def test_no_thread_can_run() -> None:
    """The caller does it all."""
    done = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]


def test_a_thread_that_is_late_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its starter has said that it could not be started, and others do its work."""
    monkeypatch.setattr(starting, "LONGEST_S", 0.1)
    begin, calls = threading.Event(), []
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def late(thread: Any) -> None:
        begin.wait()
        bootstrap(thread)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", late)
    thread = NamedThread(lambda: calls.append(1), "gzarr-late")
    with pytest.raises(RuntimeError, match="did not run"):
        thread.start()
    begin.set()
    until = time.monotonic() + 20
    while thread.is_alive() or thread in threading.enumerate():
        assert time.monotonic() < until
    assert not calls


def test_a_thread_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(thread: threading.Thread) -> None:
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "start", starved)
    with pytest.raises(RuntimeError, match="no memory"):
        NamedThread(print, "gzarr-starved").start()


def test_a_thread_keeps_its_name_and_ends_with_the_process() -> None:
    found: list[threading.Thread] = []
    thread = NamedThread(lambda: found.append(threading.current_thread()), "gzarr-named")
    assert thread.daemon
    thread.start()
    thread.join()
    assert found == [thread]
    assert thread.name == "gzarr-named"


class TimeIsUp(Exception):
    """What a program's handler of a signal raises."""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupt_once_the_thread_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the program as it is, and the thread runs."""
    name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
    make, interrupt, calls = getattr(threading, name), TimeIsUp("5 s are over"), threading.Event()

    def made(*arguments: Any, **named: Any) -> Any:
        found = make(*arguments, **named)
        signal.raise_signal(signal.SIGUSR1)
        return found

    def handler(*_: object) -> None:
        raise interrupt

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        thread = NamedThread(calls.set, "gzarr-interrupted")
        monkeypatch.setattr(threading, name, made)
        with pytest.raises(TimeIsUp) as raised:
            thread.start()
    finally:
        monkeypatch.undo()
        signal.signal(signal.SIGUSR1, before)
    assert raised.value is interrupt
    assert calls.wait(20)
    until = time.monotonic() + 20
    while thread in threading.enumerate():
        assert time.monotonic() < until
