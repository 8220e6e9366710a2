"""The threads of the CPU engine: one pool a process, made at first use, forgotten at fork.

The caller's own thread always works too, and never waits for a helper that has not started: many Python threads may
read at once, and a read may happen inside a pool thread, without deadlock; where no thread can be started, the caller
does it all. After ``fork`` the child makes a pool of its own.

There is no lock here that Python code takes: an interrupt (Ctrl-C) at any moment leaves nothing taken, which cannot be
said of the standard library's executors. Nor does the interpreter stop these threads before it has ended: those of the
program that it waits for at exit still read and write.
"""

from __future__ import annotations

import _thread
import os
from itertools import count
from operator import itemgetter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

#: What work returns that wants no more to begin.
STOP: Final = object()

#: Where so much waits for threads that are busy, more helpers would come too late.
_MOST_WAITING: Final = 1000

_waiting: SimpleQueue[tuple[_Run, int]] = SimpleQueue()
# One for each thread that was started.
_started: list[None] = []


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
    this = _Run(worker)
    try:
        _start(workers - 1)
        if _waiting.qsize() < _MOST_WAITING:
            for i in range(1, workers):
                _waiting.put((this, i))
        worker(0)
        this.close()
    except BaseException:
        # They use memory of the caller; and there is an exception to be raised already.
        while True:
            try:
                this.close()
                break
            except BaseException:
                continue
        raise
    if this.errors:
        try:
            raise this.errors[0]
        finally:
            # What an exception refers to by way of this function would live on with it: the memory of a whole read.
            this.errors.clear()


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


class _Run:
    """What the threads of one run share.

    Parameters
    ----------
    worker
        As for :func:`run`.

    Attributes
    ----------
    errors
        What helpers raised, in the order of time.
    """

    __slots__ = ("_closed", "_ended", "_running", "_worker", "errors")

    def __init__(self, worker: Callable[[int], None]) -> None:
        self._worker: Callable[[int], None] | None = worker
        self._running: list[int] = []
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._closed = False
        self.errors: list[BaseException] = []

    def help(self, i: int) -> None:
        """Be a helper, unless the run has ended already."""
        # In this order, and the caller's the other way round: either it waits for this one, or this one does nothing.
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
        """Let no more helpers begin, and wait for those that run. To be called again if it is interrupted."""
        self._closed = True
        while self._running:
            # Whoever is still there says so when it has ended.
            self._ended.get()
        # Helpers whose turn has not come wait in a queue, for long if all threads are busy.
        self._worker = None


def _start(threads: int) -> None:
    """Start threads until there are so many, or the system has no more of them."""
    while len(_started) < threads:
        try:
            _started.append(None)
            _thread.start_new_thread(_serve, (_waiting,))
        except BaseException as error:
            # After an interrupt there may be one more than are counted. Fewer would make all reads slower.
            _started.pop()
            if isinstance(error, (RuntimeError, MemoryError)):
                return
            raise


def _serve(waiting: SimpleQueue[tuple[_Run, int]]) -> None:
    """Help, one run after the other, as long as the process lives."""
    while True:
        one, i = waiting.get()
        one.help(i)
        # The caller's memory is not to be kept until the next one comes.
        del one


def _forget() -> None:
    global _waiting
    _waiting = SimpleQueue()
    _started.clear()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget)
