"""Locks that a fork waits for, so that a child never inherits one that is held by a thread it does not have."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """A lock for the life of the process: one a module, not one an object, and never held while another is taken.

    Attributes
    ----------
    lock
        For ``with``, at once: a forked child gets another one. It is the lock itself, because an interrupt (Ctrl-C) may
        come between its being taken in an ``__enter__`` of ours and the block.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._acquire, after_in_parent=self._release, after_in_child=self._renew)

    def _acquire(self) -> None:
        self.lock.acquire()

    def _release(self) -> None:
        self.lock.release()

    def _renew(self) -> None:
        self.lock = threading.Lock()
