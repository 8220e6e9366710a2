"""Locks that a fork waits for, so that a child never inherits a lock held by a thread that it does not have."""

from __future__ import annotations

import os

from ..guarded import Lock


class ForkSafeLock:
    """A lock for the life of the process: one per module, not per object, and never held while taking another one.

    Attributes
    ----------
    lock
        The lock, for use in ``with`` only; do not store it, since a forked child gets a new one. It is no method
        of this class because an interrupt (Ctrl-C) could come in there, after it is taken and before the block.
    """

    def __init__(self) -> None:
        self.lock: Lock = Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._acquire, after_in_parent=self._release, after_in_child=self._renew)

    def _acquire(self) -> None:
        self.lock.acquire()

    def _release(self) -> None:
        self.lock.release()

    def _renew(self) -> None:
        self.lock = Lock()
