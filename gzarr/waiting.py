"""Waits for other threads, which an interrupt (Ctrl-C) always ends.

A signal ends a wait of the main thread only if it comes to that thread, while it waits. It may come to another thread,
or after Python's last look for signals and before the system call that waits; then Python does not see it until
something else ends the wait. So no wait is a long one.
"""

from __future__ import annotations

import os
from queue import Empty
from typing import TYPE_CHECKING, Final, TypeVar

from . import ending
from .errors import GzarrError

if TYPE_CHECKING:
    from queue import SimpleQueue

    T = TypeVar("T")

# Longest wait until Python looks for signals, in seconds.
_LONGEST_S: Final = 0.5
#: Why a forked child does not wait for its parent's threads.
FORKED: Final = (
    "this process was forked in the middle of a read or write, whose other threads it does not have; let the child "
    "leave it to the parent"
)


def taken_from(queue: SimpleQueue[T]) -> T:
    """Wait for the next item of a queue, remove it and return it.

    Raises
    ------
    GzarrError
        If it would never come: the interpreter shuts down, or this is a child that the handler of a signal forked.
    """
    process = os.getpid()
    while True:
        try:
            return queue.get(timeout=0 if ending.is_alone() else _LONGEST_S)
        except Empty:
            if ending.is_alone():
                raise GzarrError(ending.NO_THREADS) from None
            if os.getpid() != process:
                raise GzarrError(FORKED) from None
