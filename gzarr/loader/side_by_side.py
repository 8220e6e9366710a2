"""Reads of several arrays at a time: in a remote store, the requests of one leave most that are allowed unused."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

from .. import ending
from ..stores.base import RemoteValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .reading import Source


def are_remote(sources: Iterable[Source]) -> bool:
    """Return whether sources are read by requests, to host memory: on a device, one stream orders all reads."""
    return any(isinstance(source.array.store, RemoteValues) and source.array.device == "cpu" for source in sources)


def run(tasks: Sequence[Callable[[], object]], *, together: bool) -> None:
    """Run tasks one after the other, or each in a thread of its own.

    Threads wait for the same requests in progress, of which the store and the process limit the number, and decode in
    the same pool.

    Parameters
    ----------
    tasks
        Functions without parameters, which write to different memory.
    together
        Whether to use threads. The first task runs in the caller's.

    Raises
    ------
    BaseException
        That of the first of the tasks that failed, once all have ended.
    """
    if not together or len(tasks) < 2:
        for task in tasks:
            task()
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
