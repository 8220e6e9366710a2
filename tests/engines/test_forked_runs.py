"""A process is forked while threads of the pool work: the child has none of them, and does not wait for them."""

from __future__ import annotations

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
    from collections.abc import Callable

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def child(work: Callable[[], object]) -> int:
    """Work in a forked child; return its exit status, 0 if the work raises that it was forked."""
    if not (pid := os.fork()):
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            work()
            os._exit(2)
        except GzarrError as error:
            os._exit(0 if "forked" in str(error) else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


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
    parent, found = os.getpid(), []

    def worker(i: int) -> None:
        if i:
            begun.set()
            end.wait()
            return
        begun.wait()
        pid = os.fork()
        if pid:
            found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            end.set()
        else:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)

    status = 2
    try:
        pool.run(worker, 2)
    except GzarrError as error:
        status = 0 if "forked" in str(error) else 1
    finally:
        if os.getpid() != parent:
            os._exit(status)
    assert found == [0]


def test_a_handler_that_forks_during_a_wait() -> None:
    """The child returns from it, and nothing comes there."""
    parent, found = os.getpid(), []

    class Answers:
        def get(self, timeout: float) -> str:
            if os.getpid() == parent:
                if pid := os.fork():
                    found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    return "answer"
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(10)
            raise Empty

    status = 2
    try:
        assert taken_from(Answers()) == "answer"  # type: ignore[arg-type]
    except GzarrError as error:
        status = 0 if "forked" in str(error) else 1
    finally:
        if os.getpid() != parent:
            os._exit(status)
    assert found == [0]
