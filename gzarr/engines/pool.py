"""The threads of the CPU engine: one pool a process, made at first use, forgotten at fork.

The caller's own thread always works too, and never waits for a helper that has not started: many Python threads may
read at once, and a read may happen inside a pool thread, without deadlock. After ``fork`` the child makes a pool of its
own; a fork waits until no thread is inside the pool's lock, so the child never inherits a held one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError
from .forks import ForkSafeLock

if TYPE_CHECKING:
    from collections.abc import Callable

#: What work returns that wants no more to begin.
STOP: Final = object()

_lock = ForkSafeLock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def thread_count() -> int:
    """Return how many threads a read uses: ``GZARR_THREADS``, or the cores that this process may run on.

    Raises
    ------
    ArgumentError
        If ``GZARR_THREADS`` is set and is not a positive integer.
    """
    text = os.environ.get("GZARR_THREADS", "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ArgumentError(f"GZARR_THREADS must be a positive integer, not {text!r}")
        return min(int(text), 1024)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _executor(helpers: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size < helpers:
        # A pool that is too small is left to end by itself once its queue is empty.
        if _pool is not None:
            _pool.shutdown(wait=False)
        _pool = ThreadPoolExecutor(max_workers=helpers, thread_name_prefix="gzarr")
        _pool_size = helpers
    return _pool


def run(worker: Callable[[int], None], workers: int) -> None:
    """Run ``worker(0)`` … ``worker(workers - 1)``, the first in the calling thread; wait for those that started.

    Workers share their work dynamically, so a worker that never starts (all pool threads busy) costs speed only.

    Raises
    ------
    Exception
        The first exception of any worker, after all have ended.
    """
    if workers <= 1:
        worker(0)
        return
    running: deque[int] = deque()
    closed: list[bool] = []

    def helper(i: int) -> None:
        # In this order, and the caller's the other way round: either it waits for this one, or this one does nothing.
        running.append(i)
        try:
            if not closed:
                worker(i)
        finally:
            running.pop()

    futures: list[Future[None]] = []
    try:
        with _lock.lock:
            executor = _executor(workers - 1)
            futures += [executor.submit(helper, i) for i in range(1, workers)]
        try:
            worker(0)
        finally:
            started = [f for f in futures if not f.cancel()]
            errors = [e for f in started if (e := f.exception()) is not None]
    except BaseException:
        _wait(running, closed)
        raise
    if errors:
        raise errors[0]


def each(work: Callable[[int], object], items: int, workers: int) -> None:
    """Do ``work(0)`` … ``work(items - 1)``, in turns in some threads; begin no more once one has failed.

    Parameters
    ----------
    work
        May return :data:`STOP`: begin no more, and raise nothing.
    items, workers
        How many there are, and in how many threads at most; one is the caller's.

    Raises
    ------
    Exception
        Of those raised the one of the lowest number, when all that had begun have ended. All before it had begun, so
        which one that is does not depend on the threads.
    """
    # next() on a count, and append(), are one step for any number of threads, so they need no lock.
    turn = count()
    stopped: list[tuple[int, Exception | None]] = []

    def worker(_: int) -> None:
        i = items
        try:
            while not stopped and (i := next(turn)) < items:
                if work(i) is STOP:
                    stopped.append((i, None))
        except Exception as error:
            stopped.append((i, error))
        except BaseException:
            stopped.append((i, None))
            raise

    run(worker, min(workers, items))
    errors = [(i, error) for i, error in stopped if error is not None]
    # What an exception refers to by way of this function would live on with it: the memory of a whole read.
    stopped.clear()
    if errors:
        try:
            raise min(errors, key=itemgetter(0))[1]
        finally:
            errors.clear()


def _wait(running: deque[int], closed: list[bool]) -> None:
    """Wait for the helpers that run, however often that is interrupted (Ctrl-C): they use memory of the caller."""
    while True:
        try:
            closed.append(True)
            while running:
                time.sleep(0.001)
            return
        except BaseException:
            # There is an exception to be raised already.
            continue


def _forget() -> None:
    global _pool, _pool_size
    _pool = None
    _pool_size = 0


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget)
