"""Threads that work on one task after the other, in bounded memory.

Each task is worked on wholly in one thread: reading, computing and writing of different tasks run at the same time, as
decoders, encoders and most functions of arrays release the GIL. The caller's thread hands tasks out and takes results;
it can be interrupted (Ctrl-C) at any moment.
"""

from __future__ import annotations

import contextvars
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..engines import pool
from ..engines.monitor import Monitor, ReadCancelledError
from ..starting import NamedThread
from ..waiting import taken_from

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")


def run(
    tasks: Iterable[T],
    work: Callable[[T], R],
    *,
    threads: int,
    describe: Callable[[T], str],
    helped: bool = False,
    ahead: int | None = None,
) -> Generator[tuple[int, R]]:
    """Work on tasks in threads; yield results as they are complete.

    Parameters
    ----------
    tasks
        What to work on, in this order. At most one more than ``threads`` is taken from it ahead of its result.
    work
        Function of a task, called in any of the threads, with the caller's context variables.
    threads
        Most tasks that are worked on at a time.
    describe
        Function of a task that names it in errors, such as ``"block (0, 1)"``.
    helped
        Whether each task may have all threads of the CPU engine's pool, as it waits for a device most of the time. If
        not, tasks in progress share them: with as many tasks as processors, helpers would only be in the way.
    ahead
        From the first task that is not complete, how many may be begun, if their results wait for that one; None for
        any number.

    Yields
    ------
    Number of the task, from 0, and the result of ``work``.

    Raises
    ------
    Exception
        That of the first task that failed, with a note that names the task; RuntimeError for a StopIteration, which is
        its cause. Tasks in progress are completed, except for their reads, which are cancelled; no others are begun. So
        it is if the iterator is closed.
    """
    team = _Team(work, threads, helped=helped)
    numbered = enumerate(tasks)
    waiting = begun = 0
    # The first task that is not complete, and those after it that are.
    first, complete = 0, set[int]()
    try:
        while True:
            room = threads + 1 - waiting
            for one in islice(numbered, room if ahead is None else max(min(room, first + ahead - begun), 0)):
                team.begin(one)
                waiting += 1
                begun += 1
            if not waiting:
                return
            done = taken_from(team.done)
            waiting -= 1
            complete.add(done.number)
            while first in complete:
                complete.remove(first)
                first += 1
            if done.error is not None:
                error = _noted(team.end() or done, describe)
                try:
                    raise error
                finally:
                    # Break the cycle of exception, traceback and this frame, which would keep blocks alive.
                    del error, done
            yield done.number, done.result
            # Nothing of a result is to be held while waiting for the next one.
            del done
    finally:
        team.end()


@contextmanager
def noted(task: object) -> Iterator[None]:
    """Have errors name what was worked on, as :func:`run` does."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"(in {task})")
        raise


def _noted(failed: _Done[Any, Any], describe: Callable[[Any], str]) -> BaseException:
    """Return the error of a task, with a note that names it."""
    error = failed.error
    assert error is not None
    if isinstance(error, StopIteration):
        # An iterator cannot pass it on.
        stopped, error = error, RuntimeError("StopIteration was raised")
        error.__cause__ = stopped
    error.add_note(f"(in {describe(failed.task)})")
    return error


class _Done(Generic[T, R]):
    """A task that has ended, with its result or its error."""

    __slots__ = ("error", "number", "result", "task")

    def __init__(self, number: int, task: T, result: R | None, error: BaseException | None) -> None:
        self.number, self.task, self.error = number, task, error
        self.result: Any = result


class _Team(Generic[T, R]):
    """The threads of one run.

    Attributes
    ----------
    done
        Tasks that have ended.
    """

    def __init__(self, work: Callable[[T], R], threads: int, *, helped: bool) -> None:
        self._work = work
        self._helped = helped
        # One entry for each task in progress.
        self._busy: list[None] = []
        self._monitor = Monitor(timed=False)
        self._failed: list[_Done[T, R]] = []
        self._stopped = False
        # None ends a thread.
        self._tasks: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        self.done: SimpleQueue[_Done[T, R]] = SimpleQueue()
        self._most = threads
        self._threads: list[NamedThread] = []

    def begin(self, one: tuple[int, T]) -> None:
        """Have a numbered task worked on; the first ones start a thread each."""
        self._tasks.put(one)
        if len(self._threads) < self._most:
            thread = NamedThread(partial(contextvars.copy_context().run, self._serve), "gzarr-blocks")
            # Before it starts: an interrupt may come between the two, and it has to be ended, too.
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError:
                # The system refuses another one, or the process ends: those that there are will do, or this one.
                self._most = len(self._threads) - 1
                self._threads.pop()
        if not self._threads:
            self._tasks.put(None)
            self._serve()

    def end(self) -> _Done[T, R] | None:
        """End all threads; return the first task that failed."""
        self._stopped = self._monitor.cancelled = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            # The start of the last one may have been interrupted: then it ends as soon as it begins, if it ever does.
            if thread.ident is not None:
                thread.join()
        self._threads.clear()
        failed = min(self._failed, key=lambda done: done.number, default=None)
        self._failed.clear()
        return failed

    def _serve(self) -> None:
        while not self._stopped and (one := self._tasks.get()) is not None and not self._stopped:
            done = self._worked_on(*one)
            if done.error is not None:
                # No other task is begun, in this thread or another.
                self._stopped = True
                if not isinstance(done.error, ReadCancelledError):
                    self._failed.append(done)
            self.done.put(done)
            del one, done

    def _worked_on(self, number: int, task: T) -> _Done[T, R]:
        self._busy.append(None)
        try:
            with self._monitor.watching(), nullcontext() if self._helped else pool.sharing(self._share):
                return _Done(number, task, self._work(task), None)
        except BaseException as error:
            # Not by a variable, which would be in the frame that the error's traceback leads to.
            return _Done(number, task, None, error)
        finally:
            self._busy.pop()

    def _share(self) -> int:
        """Return most workers of what a task runs."""
        return -(-pool.thread_count() // max(len(self._busy), 1))
