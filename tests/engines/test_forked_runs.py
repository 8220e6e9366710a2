"""A process is forked while threads of the pool work: the child has none of them, and does not wait for them."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from queue import Empty
from typing import TYPE_CHECKING

import pytest

from gzarr import GzarrError
from gzarr.engines import pool
from gzarr.waiting import taken_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def forked() -> int | None:
    """Fork, and return the exit status of the child; None in the child, which ends after 10 s."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)
    return None


@contextlib.contextmanager
def child_ends() -> Iterator[None]:
    """Let a child that is forked in here end, with the status 0 if it is told that it was forked."""
    parent, status = os.getpid(), 2
    try:
        yield
    except GzarrError as error:
        if os.getpid() == parent:
            raise
        status = 0 if "forked" in str(error) else 1
    finally:
        if os.getpid() != parent:
            os._exit(status)


def child(work: Callable[[], object]) -> int | None:
    """Work in a forked child; return its exit status."""
    with child_ends():
        status = forked()
        if status is None:
            work()
    return status


def test_a_task_that_a_helper_does() -> None:
    begun, end = threading.Event(), threading.Event()
    task = pool.Task(lambda: begun.set() or end.wait())
    begun.wait()

    def close() -> None:
        task.close()
        raise GzarrError("forked, and closed")

    try:
        assert child(task.result) == 0
        assert child(close) == 0
    finally:
        end.set()
    assert task.result() is True


def test_a_run_with_a_helper() -> None:
    """The caller's own part forks: its helper's part is missing in the child."""
    begun, end = threading.Event(), threading.Event()
    found = []

    def worker(i: int) -> None:
        if i:
            begun.set()
            end.wait()
            return
        begun.wait()
        status = forked()
        if status is not None:
            found.append(status)
            end.set()

    with child_ends():
        pool.run(worker, 2)
    assert found == [0]


def test_a_handler_that_forks_during_a_wait() -> None:
    """The child returns from it, and nothing comes there."""
    parent, found = os.getpid(), []

    class Answers:
        def get(self, timeout: float) -> str:
            status = forked() if os.getpid() == parent else None
            if status is None:
                raise Empty
            found.append(status)
            return "answer"

    with child_ends():
        assert taken_from(Answers()) == "answer"  # type: ignore[arg-type]
    assert found == [0]
