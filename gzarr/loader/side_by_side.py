"""Work that waits for remote stores, in threads of its own."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

from .. import ending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run(tasks: Sequence[Callable[[], object]]) -> None:
    """Run each task in a thread of its own, the first one in the caller's.

    In an I/O thread, a task would have to send its requests one after the other.

    Parameters
    ----------
    tasks
        Functions without parameters.

    Raises
    ------
    BaseException
        That of the first of the tasks that failed, once all have ended.
    """
    if not tasks:
        return
    failures: dict[int, BaseException] = {}

    def work(i: int) -> None:
        try:
            tasks[i]()
        except BaseException as error:
            failures[i] = error

    threads = []
    for i in range(1, len(tasks)):
        # Each in a copy of the context, which has the monitor of the reads.
        own = partial(contextvars.copy_context().run, work, i)
        thread = threading.Thread(target=ending.for_caller(own), name=f"gzarr-loader-array-{i}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system refuses threads, or the process ends.
            work(i)
        else:
            threads.append(thread)
    work(0)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[min(failures)]
