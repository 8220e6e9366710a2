"""A fork waits for imports that gzarr has begun in other threads.

Much of gzarr, and what it needs of other packages, is imported when it is first used. A child that is forked during an
import has its lock, and no thread that would ever release it: the same import there would wait for ever.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

#: Longest wait, in seconds: an import may itself wait for what the forking thread holds.
_LONGEST_S: Final = 5.0


def wait_for_others() -> None:
    """Wait until no other thread is in an import that gzarr has begun."""
    ends = time.monotonic() + _LONGEST_S
    while _others_import() and time.monotonic() < ends:
        time.sleep(0.0005)


def _others_import() -> bool:
    # Python tells nowhere else who imports. Without these names, a fork is as it is without gzarr.
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    known = [getattr(reference(), "owner", None) for reference in list(locks.values())]
    owners = {owner for owner in known if isinstance(owner, int)}
    # A thread that forks during an import may be what others wait for.
    if not owners or threading.get_ident() in owners:
        return False
    frames = sys._current_frames()
    return any(_is_for_gzarr(frames.get(owner)) for owner in owners)


def _is_for_gzarr(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == "gzarr":
            return True
        frame = frame.f_back
    return False
