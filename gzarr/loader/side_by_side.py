"""Work that waits for remote stores, in threads of its own."""

from __future__ import annotations

import contextlib
import contextvars
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from ..starting import NamedThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Most threads: a loader may have thousands of arrays.
_MOST_THREADS: Final = 32


def run(tasks: Sequence[Callable[[], object]]) -> None:
    """Run tasks side by side, in up to 32 threads, one of which is the caller's.

    In an I/O thread, a task would have to send its requests one after the other.

    Parameters
    ----------
    tasks
        Functions without parameters.

    Raises
    ------
    BaseException
        That of the first of the tasks that failed, once those in progress have ended; or an interrupt (Ctrl-C), which
        does not wait for them. No others are begun.
    """
    failures: dict[int, BaseException] = {}
    interrupted: list[None] = []
    turn = count()

    def work(caught: type[BaseException] = BaseException) -> None:
        while not (failures or interrupted) and (i := next(turn)) < len(tasks):
            try:
                tasks[i]()
            except caught as error:
                # After an interrupt, nobody asks.
                if not interrupted:
                    failures[i] = error

    threads = []
    try:
        with contextlib.suppress(RuntimeError):
            # The system refuses threads, or the process ends; the others do all.
            for i in range(1, min(len(tasks), _MOST_THREADS)):
                # Each in a copy of the context, which has the monitor of the reads.
                own = partial(contextvars.copy_context().run, work)
                thread = NamedThread(own, f"gzarr-loader-array-{i}")
                thread.start()
                threads.append(thread)
        # An interrupt comes to the caller's thread, also within a task, and is no failure of that task.
        work(Exception)
        for thread in threads:
            thread.join()
    except BaseException:
        interrupted.append(None)
        failures.clear()
        raise
    if failures:
        try:
            raise failures[min(failures)]
        finally:
            # An error's traceback has this frame: they would keep each other until garbage is collected.
            failures.clear()
