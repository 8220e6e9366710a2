"""I/O threads: requests to remote stores wait here, so that no caller and no decoding thread has to.

One pool per process, created at first use. A caller waits for an answer, not for the call that gets it: an interrupt
(Ctrl-C) ends the wait at once, and the request ends by itself later. After ``fork``, the child starts its own threads.
"""

from __future__ import annotations

import _thread
import os
import threading
from itertools import count
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from .. import ending
from ..variables import number_in
from ..waiting import taken_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Task = Callable[[], None]
    GivenUp = Callable[[], bool]

T = TypeVar("T")

#: Number of I/O threads, unless ``GZARR_IO_THREADS`` says otherwise. At 30 ms a request, 32 are half as fast, and where
#: requests take no time, fewer are no faster.
DEFAULT_THREADS: Final = 64

_waiting: SimpleQueue[tuple[Task, GivenUp | None]] = SimpleQueue()
# One entry for each started thread, for each that waits for a task, and for each task that no thread has taken. (append
# and pop are atomic. The length of the queue does not tell: from Python 3.13 on, a task that is put while threads wait
# is handed to one of them at once.)
_started: list[None] = []
_idle: list[None] = []
_open: list[None] = []
_here = threading.local()


def io_thread_count() -> int:
    """Return how many requests to remote stores may be in progress: ``GZARR_IO_THREADS``, or 64.

    Raises
    ------
    ArgumentError
        If ``GZARR_IO_THREADS`` is set and is not a positive integer.
    """
    text = os.environ.get("GZARR_IO_THREADS", "").strip()
    if not text:
        return DEFAULT_THREADS
    return min(number_in("GZARR_IO_THREADS", text, least=1), 1024)


def submit(task: Task, given_up: GivenUp | None = None) -> None:
    """Run a task in an I/O thread, soon.

    Parameters
    ----------
    task
        Function without parameters, which must not raise.
    given_up
        Function that returns whether nobody waits for the task any more; None if somebody always does.
    """
    if ending.is_alone():
        # No thread can take it any more.
        task()
        return
    _open.append(None)
    _waiting.put((ending.for_caller(task), given_up))
    if len(_idle) < len(_open) and len(_started) < io_thread_count():
        try:
            _started.append(None)
            _thread.start_new_thread(_serve, (_waiting, _idle, _open))
        except BaseException as error:
            # After an interrupt, one thread more than counted may be running. Counting one too many would be worse: if
            # it were the only one, all later requests would wait for ever.
            _started.pop()
            if not isinstance(error, (RuntimeError, MemoryError)):
                raise
            if not _started:
                # No thread can be had at all: the caller does the work.
                _work_off()


def given_up() -> bool:
    """Return whether nobody waits any more for the task of the present thread, so that it must not try again."""
    return wanted_by()[0]()


def wanted_by() -> tuple[GivenUp, bool]:
    """Return what tells whether nobody waits for the task of the present thread, and whether it is a call.

    The caller of such a one does nothing else meanwhile.
    """
    asked: GivenUp | None = getattr(_here, "given_up", None)
    if asked is not None:
        return asked, False
    outcome: _Outcome[Any] | None = getattr(_here, "outcome", None)
    return (_never if outcome is None else outcome.is_given_up), True


def _never() -> bool:
    return False


def is_one() -> bool:
    """Return whether the present thread is an I/O thread."""
    return getattr(_here, "serves", False)


def others_wait() -> bool:
    """Return whether tasks wait for an I/O thread, so that a long task should make room."""
    return _waiting.qsize() > 0 and not ending.is_alone()


def start(function: Callable[[], T]) -> Callable[[], T]:
    """Call a function in an I/O thread; return what waits for its result, or raises its exception."""
    if is_one():
        # Waiting for another thread could wait for ever, if all of them did.
        return function
    outcome = _Outcome(function)
    try:
        submit(outcome.run)
    except BaseException:
        # The caller was interrupted.
        outcome.give_up()
        raise
    return outcome.get


def call(function: Callable[[], T]) -> T:
    """Return ``function()``, called in an I/O thread; raise its exception."""
    return start(function)()


def call_all(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of some functions, called in I/O threads; raise the exception of the first that failed."""
    if len(functions) == 1 or is_one():
        return [call(function) for function in functions]
    outcomes = [_Outcome(function) for function in functions]
    try:
        for outcome in outcomes:
            submit(outcome.run)
        return [outcome.get() for outcome in outcomes]
    finally:
        for outcome in outcomes:
            outcome.give_up()


def each(work: Callable[[int], object], items: int, workers: int) -> None:
    """Run ``work(0)`` … ``work(items - 1)`` in I/O threads, begun in this order; after a failure begin no more.

    Parameters
    ----------
    work
        Function of the item's number.
    items, workers
        Number of items, and most threads.

    Raises
    ------
    Exception
        The exception of the failed item with the lowest number, once all items in progress have ended.
    """
    turn = count()
    failed: list[tuple[int, BaseException]] = []
    stopped: list[None] = []

    def serve() -> None:
        while not failed and not stopped and (i := next(turn)) < items:
            try:
                work(i)
            except BaseException as error:
                failed.append((i, error))

    try:
        call_all([serve] * min(workers, items))
    except BaseException:
        # The caller was interrupted: requests in progress are completed, others are not begun.
        stopped.append(None)
        raise
    if failed:
        try:
            raise min(failed, key=itemgetter(0))[1]
        finally:
            # Break the cycle of exception, traceback and this frame.
            failed.clear()


class _Outcome(Generic[T]):
    """The result of a function, or its exception, handed from one thread to another."""

    __slots__ = ("_done", "_function", "_given_up")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._given_up = False
        # What to return, or to raise.
        self._done: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    def is_given_up(self) -> bool:
        return self._given_up

    def give_up(self) -> None:
        self._given_up = True

    def run(self) -> None:
        if self._given_up:
            # What it would write may have been written by others since.
            return
        before, _here.outcome = getattr(_here, "outcome", None), self
        try:
            self._done.put((self._function(),))
        except BaseException as error:
            self._done.put(error)
        finally:
            _here.outcome = before

    def get(self) -> T:
        try:
            found = taken_from(self._done)
        except BaseException:
            self.give_up()
            raise
        if isinstance(found, tuple):
            return found[0]
        try:
            raise found
        finally:
            # Break the cycle of exception, traceback and this frame.
            del found


def _serve(waiting: SimpleQueue[tuple[Task, GivenUp | None]], idle: list[None], untaken: list[None]) -> None:
    """Run one task after the other until the process ends."""
    _here.serves = True
    while True:
        idle.append(None)
        task, _here.given_up = waiting.get()
        idle.pop()
        untaken.pop()
        task()
        # Do not keep its memory alive until the next one comes.
        del task, _here.given_up


def _work_off() -> None:
    while True:
        try:
            task, _ = _waiting.get_nowait()
        except Empty:
            return
        _open.pop()
        task()


def _forget() -> None:
    global _waiting, _here, _idle, _open
    _waiting = SimpleQueue()
    _here = threading.local()
    _idle, _open = [], []
    _started.clear()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget)
