"""Locks that an interrupt never leaves taken, on each version of Python.

In Python 3.14, an interrupt (Ctrl-C, or a timeout that the program's handler of a signal raises) may come after
``with`` has taken a lock and before its block is entered: nobody releases it then, and each later use waits for ever
(issue 148874 of CPython). Other versions look for no signal in between, and have the standard library's locks here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

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

__all__ = ["Lock", "RLock"]
