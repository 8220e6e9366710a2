"""Imports by threads: much of gzarr, and what it needs of other packages, is imported when it is first used.

- A fork waits for imports that gzarr has begun in other threads. A child that is forked during an import has its lock,
  and no thread that would ever release it: the same import there would wait for ever.
- A module within a package is imported after its package (:func:`import_module`). Python takes the lock of the module,
  and then that of the package, which another thread may be importing, and the module with it. Where each waits for the
  other, Python gives one of them a module that is not complete.
"""

from __future__ import annotations

import importlib

# Its lock is taken by each fork, and by modules that are imported. What is registered last comes first in a fork, so
# the wait has to be registered after it.
import logging  # noqa: F401
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType, ModuleType

#: Longest wait, in seconds: an import may itself wait for what the forking thread holds.
_LONGEST_S: Final = 5.0
#: Threads that a fork has waited for in vain. No other fork does.
_in_vain: set[int] = set()
# Whether the present fork has waited.
_has_waited = False


def import_module(name: str) -> ModuleType:
    """Import a module of another package, by its full name, and return it, as :func:`importlib.import_module` does."""
    names = name.split(".")
    for count in range(1, len(names)):
        importlib.import_module(".".join(names[:count]))
    return importlib.import_module(name)


def wait_for_others() -> None:
    """Wait until no other thread is in an import that gzarr has begun; once in a fork."""
    global _has_waited
    ends = time.monotonic() + _LONGEST_S
    while not _has_waited and (importing := _importing() - _in_vain):
        if time.monotonic() >= ends:
            _in_vain.update(importing)
        time.sleep(0.0005)
    _has_waited = True


def _end_fork() -> None:
    global _has_waited
    _has_waited = False


def _importing() -> set[int]:
    """Return the other threads that import something for gzarr."""
    # Python tells nowhere else who imports. Without these names, a fork is as it is without gzarr.
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    known = [getattr(reference(), "owner", None) for reference in list(locks.values())]
    # A thread that forks during an import may be what others wait for.
    if threading.get_ident() in known:
        return set()
    # Also those that hold no lock now: a thread that looks for a module has the lock of all imports. The fork waits for
    # that, and the thread may begin to import the module meanwhile.
    return {thread for thread, frame in sys._current_frames().items() if _is_for_gzarr(frame)}


def _is_for_gzarr(frame: FrameType | None) -> bool:
    """Return whether a thread imports or looks for a module for gzarr, given its innermost frame."""
    is_import = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name == "importlib._bootstrap":
            is_import = True
        elif is_import and name.partition(".")[0] == "gzarr":
            return True
        frame = frame.f_back
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_for_others, after_in_parent=_end_fork, after_in_child=_end_fork)
