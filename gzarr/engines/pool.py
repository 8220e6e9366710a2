"""The threads of the CPU engine: one pool per process, created at first use.

The caller's own thread always works too, and never waits for a helper that has not started. So many Python threads may
read at once, and a read may run inside a pool thread, without deadlock. If no thread can be started, the caller does
all the work. After ``fork``, the child creates its own pool.

No Python code here takes a lock, so an interrupt (Ctrl-C) at any moment leaves none taken; the standard library's
executors cannot promise that. The interpreter does not stop these threads at exit, so the program's own threads that it
waits for can still read and write.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
from itertools import count
from operator import itemgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from .. import ending
from ..errors import GzarrError
from ..variables import number_in
from ..waiting import FORKED, taken_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

#: Return value of work after which no further items are begun.
STOP: Final = object()

#: With more requests than this waiting for busy threads, further helpers would start too late to be of use.
_MOST_WAITING: Final = 1000

_waiting: SimpleQueue[tuple[_Run, int]] = SimpleQueue()
# One entry for each started thread.
_started: list[None] = []


class _Share(threading.local):
    """What the present thread may have of the pool: a function that returns most workers; None for all."""

    most: Callable[[], int] | None = None


_share = _Share()


def thread_count() -> int:
    """Return how many threads a read uses: ``GZARR_THREADS``, or the number of cores available to this process.

    Raises
    ------
    ArgumentError
        If ``GZARR_THREADS`` is set and is not a positive integer.
    """
    text = os.environ.get("GZARR_THREADS", "").strip()
    if text:
        return min(number_in("GZARR_THREADS", text, least=1), 1024)
    # Some containers refuse to tell.
    with contextlib.suppress(AttributeError, OSError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(worker: Callable[[int], None], workers: int) -> None:
    """Run ``worker(0)`` … ``worker(workers - 1)``, the first in the calling thread; wait for those that started.

    Workers share their work dynamically, so one that never starts (all pool threads are busy) only costs speed.

    Raises
    ------
    Exception
        The first exception of any worker, once all have ended.
    GzarrError
        In a child that was forked while helpers worked, whose part is missing there.
    """
    if _share.most is not None:
        workers = min(workers, _share.most())
    if workers <= 1:
        worker(0)
        return
    this = _Run(worker)
    try:
        _start(workers - 1)
        if _waiting.qsize() < _MOST_WAITING:
            for i in range(1, workers):
                this.pool.put((this, i))
        worker(0)
        this.close()
    except BaseException:
        # Helpers use the caller's memory, so wait for them whatever happens; the first exception is the one to raise.
        while True:
            try:
                this.close()
                break
            except BaseException:
                continue
        # Those of helpers are not told, and their tracebacks have this run: see below.
        this.errors.clear()
        raise
    if this.errors:
        try:
            raise this.errors[0]
        finally:
            # Break the cycle of exception, traceback and this frame, which would keep the memory of a whole read alive.
            this.errors.clear()


@contextlib.contextmanager
def sharing(most: Callable[[], int]) -> Iterator[None]:
    """Limit the workers of runs of the present thread.

    Threads of a program that all have work to do only disturb each other if each has helpers, too.

    Parameters
    ----------
    most
        Function without parameters, called at each run: most workers, the caller's thread included.
    """
    before, _share.most = _share.most, most
    try:
        yield
    finally:
        _share.most = before


def each(work: Callable[[int], object], items: int, workers: int) -> None:
    """Run ``work(0)`` … ``work(items - 1)`` in several threads, begun in this order; after a failure begin no more.

    Parameters
    ----------
    work
        Function of the item's number. It may return :data:`STOP` to begin no more items without an exception.
    items, workers
        Number of items, and most threads, including the caller's.

    Raises
    ------
    Exception
        The exception of the failed item with the lowest number, once all items in progress have ended. All items before
        it were begun, so the choice does not depend on timing.
    """
    # next() on a count and append() are atomic, so they need no lock.
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
    # Break the cycle of exception, traceback and this frame, which would keep the memory of a whole read alive.
    stopped.clear()
    if errors:
        try:
            raise min(errors, key=itemgetter(0))[1]
        finally:
            errors.clear()


class Task(Generic[T]):
    """One piece of work, done by a thread of the pool if one is free, and otherwise by the caller when it needs it.

    Parameters
    ----------
    work
        The work; it may run other work in the pool. Its workers are limited as the caller's are (:func:`sharing`).
    """

    __slots__ = ("_found", "_run", "_turn", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._found: list[T] = []
        self._turn = count()
        most = _share.most

        def help_(_: int) -> None:
            before, _share.most = _share.most, most
            try:
                self._do()
            finally:
                _share.most = before

        self._run = _Run(help_)
        _start(thread_count())
        if _waiting.qsize() < _MOST_WAITING:
            self._run.pool.put((self._run, 0))

    def _do(self) -> None:
        # Of the caller and the helper, the first one has it; next() on a count is atomic.
        if next(self._turn) == 0:
            assert self._work is not None
            self._found.append(self._work())

    def result(self) -> T:
        """Return the result once it is there; call it once.

        Raises
        ------
        Exception
            That of the work. After an interrupt, call :meth:`close`.
        GzarrError
            In a child that was forked while a helper did it.
        """
        self._do()
        self._run.close()
        self._work = None
        if self._run.errors:
            try:
                raise self._run.errors[0]
            finally:
                self._run.errors.clear()
        return self._found.pop()

    def close(self) -> None:
        """Wait until nothing of the work runs any more, whatever happens; if it has not begun, it never will."""
        while True:
            try:
                self._run.close()
                break
            except BaseException:
                continue
        self._work = None
        self._found.clear()
        self._run.errors.clear()


class _Run:
    """State shared by the threads of one run.

    Parameters
    ----------
    worker
        As for :func:`run`.

    Attributes
    ----------
    errors
        Exceptions of helpers, in the order they occurred.
    pool
        Where its helpers come from. A forked child has another one, so no helper of the child takes part.
    """

    __slots__ = ("_closed", "_ended", "_running", "_worker", "errors", "pool")

    def __init__(self, worker: Callable[[int], None]) -> None:
        self._worker: Callable[[int], None] | None = ending.for_caller(worker)
        self._running: list[int] = []
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        self.errors: list[BaseException] = []
        self.pool = _waiting

    def help(self, i: int) -> None:
        """Work as helper ``i``, unless the run has already ended."""
        # First announce, then look; the caller closes first, then looks. So it waits for this helper, or the helper
        # does nothing.
        self._running.append(i)
        try:
            if not self._closed:
                self._worker(i)  # type: ignore[misc]
        except BaseException as error:
            self.errors.append(error)
        finally:
            self._running.pop()
            self._ended.put(None)

    def close(self) -> None:
        """Let no more helpers begin, and wait for the running ones. Call it again if it is interrupted.

        Raises
        ------
        GzarrError
            In a child that was forked while helpers were running.
        """
        self._closed = True
        while self._running:
            if self.pool is not _waiting:
                # They run in the parent only.
                self._running.clear()
                raise GzarrError(FORKED)
            # Each running helper puts an item when it ends.
            taken_from(self._ended)
        # Helpers that have not begun may stay in the queue for long; they must not keep the worker's memory alive.
        self._worker = None


def _start(threads: int) -> None:
    """Start threads until there are ``threads``, or the system refuses another one."""
    while len(_started) < threads:
        try:
            _started.append(None)
            _thread.start_new_thread(_serve, (_waiting,))
        except BaseException as error:
            # After an interrupt, one thread more than counted may be running. Counting one too many would be worse: all
            # later reads would have a thread too few.
            _started.pop()
            if isinstance(error, (RuntimeError, MemoryError)):
                return
            raise


def _serve(waiting: SimpleQueue[tuple[_Run, int]]) -> None:
    """Help one run after the other until the process ends."""
    while True:
        one, i = waiting.get()
        one.help(i)
        # Do not keep the caller's memory alive until the next run comes.
        del one


def _forget() -> None:
    global _waiting
    _waiting = SimpleQueue()
    _started.clear()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget)
