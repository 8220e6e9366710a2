"""Parts of a work in other processes: nothing is written after an error has been raised."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gzarr.tools import processes
from gzarr.tools.processes import in_processes

begun, failed = threading.Event(), threading.Event()
done: list[int] = []


class Work:
    """Part 0 fails once part 1 has begun, which ends after the failure."""

    def work_on(self, part: int) -> int:
        if part == 0:
            begun.wait(10)
            raise RuntimeError("part 0")
        begun.set()
        failed.wait(0.3)
        done.append(part)
        return part


def test_after_an_error_parts_that_have_begun_are_waited_for() -> None:
    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(RuntimeError, match="part 0"):
            list(in_processes(executor, Work(), range(9)))
        found = list(done)
        failed.set()
    # Nothing is done later, and what had not begun never is.
    assert 1 in found
    assert done == found
    assert len(done) < 8


def test_another_interrupt_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    class Stuck:
        def work_on(self, part: int) -> None:
            stuck.wait(10)

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "pickled", lambda work: work)
    monkeypatch.setattr(processes, "_work_on", lambda work, part: work.work_on(part))
    monkeypatch.setattr(processes, "wait", interrupted)
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(KeyboardInterrupt):
            list(in_processes(executor, Stuck(), range(2)))
        stuck.set()
