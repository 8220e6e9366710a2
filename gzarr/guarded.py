"""Locks that an interrupt never leaves taken, on each version of Python, and that a forked child never inherits taken.

In Python 3.14, an interrupt (Ctrl-C, or a timeout that the program's handler of a signal raises) may come after
``with`` has taken a lock and before its block is entered: nobody releases it then, and each later use waits for ever
(issue 148874 of CPython). Other versions look for no signal in between, and have the standard library's locks here.
"""

from __future__ import annotations

import os
import sys
from itertools import compress, repeat
from operator import call
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING or sys.version_info[:2] != (3, 14):
    from threading import Lock, RLock
else:
    import _thread

    class Guarded(_thread.RLock):
        """A lock that is released if its ``__enter__`` is interrupted.

        Only a reentrant lock knows whether this thread has taken it. ``__exit__`` is that of C: nothing interrupts it
        before the lock is released.
        """

        def __enter__(self) -> bool:
            depth = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                while True:
                    try:
                        if self._recursion_count() <= depth:
                            break
                        self.release()
                    except BaseException:
                        # Another interrupt: the first one is raised.
                        continue
                raise

    Lock = RLock = Guarded


class ForkSafeLock:
    """A lock that a fork waits for: one per module, not per object, and never held while taking another one.

    The handler of a signal may come in the middle of a block, in the thread that holds the lock, and use gzarr or fork.
    So the lock is reentrant, and what it protects must bear that.

    Attributes
    ----------
    lock
        The lock, for use in ``with`` only; do not store it, since a forked child gets a new one. It is no method
        of this class because an interrupt (Ctrl-C) could come in there, after it is taken and before the block.
    """

    def __init__(self) -> None:
        self.lock: RLock = RLock()
        # What forks call at their end, the last one first: a handler may fork while the thread is about to. A fork that
        # has begun when this is made calls only what comes after it.
        self._ends: list[Callable[[], object]] = [bool]
        if hasattr(os, "register_at_fork"):
            # Calls the last end, in compiled code alone: a fork takes long, and where a function of Python begins after
            # it, an interrupt that came meanwhile would be raised, and leave the lock taken.
            release = map(call, map(call, repeat(self._ends.pop))).__next__
            os.register_at_fork(before=self._acquire, after_in_parent=release, after_in_child=self._renew)

    def _acquire(self) -> None:
        lock = self.lock
        # One call of compiled code: an interrupt after the lock is taken, and before that is noted, would leave it so.
        self._ends.extend(compress((lock.release,), map(call, (lock.acquire,))))

    def _renew(self) -> None:
        self._ends[:] = [bool]
        self.lock = RLock()


__all__ = ["ForkSafeLock", "Lock", "RLock"]
