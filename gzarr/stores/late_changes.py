"""Changes of values that nobody waits for any more, after an interrupt or a time-out, and that may still arrive.

What was sent cannot be called back. Whoever changes the same value waits until it has ended: else a late change would
replace what was written after it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from .. import ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    GivenUp = Callable[[], bool]

#: Longest wait, in seconds, before a thread looks whether its own change, or that of another thread, is still wanted.
_LOOK_S: Final = 0.5
#: Seconds between two looks of a thread that changes nothing.
_POLL_S: Final = 0.02


class _Change(NamedTuple):
    names: frozenset[str]
    given_up: GivenUp

    def is_late_for(self, names: frozenset[str]) -> bool:
        """Return whether nobody waits for the change, and it may be one of the same files, or of a folder of theirs."""
        if not self.given_up():
            return False
        return not (_with_folders(names).isdisjoint(self.names) and names.isdisjoint(_with_folders(self.names)))


_in_progress: list[_Change] = []
_ended = threading.Condition()


@contextmanager
def changing(names: Sequence[str], given_up: GivenUp) -> Iterator[bool]:
    """Change files or folders in a block, after late changes of these; give whether somebody waits for that still.

    Parameters
    ----------
    names
        Their names, the same in all stores of this process; without any, nothing is changed.
    given_up
        Function that returns whether nobody waits for the change any more; then it must not begin.
    """
    if not names or ending.is_alone():
        yield True
        return
    change = _Change(frozenset(names), given_up)
    with _ended:
        _wait(change)
        begins = not given_up()
        if begins:
            _in_progress.append(change)
    try:
        yield begins
    finally:
        if begins:
            with _ended:
                # Others may be equal.
                _in_progress[:] = [other for other in _in_progress if other is not change]
                _ended.notify_all()


def wait(name: str, timeout: float = math.inf) -> bool:
    """Wait for late changes of a file or folder, and of those below it; return whether they have ended in time."""
    end = time.monotonic() + timeout
    names = frozenset((name,))
    # Without the lock: an interrupt comes to this thread, and must not leave it taken.
    while not ending.is_alone() and any(other.is_late_for(names) for other in tuple(_in_progress)):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def _wait(change: _Change) -> None:
    while not change.given_up() and any(other.is_late_for(change.names) for other in _in_progress):
        _ended.wait(_LOOK_S)


def _with_folders(names: frozenset[str]) -> set[str]:
    found = set(names)
    for name in names:
        while (name := name.rpartition("/")[0]) and name not in found:
            found.add(name)
    return found


def _forget() -> None:
    global _in_progress, _ended
    _in_progress, _ended = [], threading.Condition()


if hasattr(os, "register_at_fork"):
    # A child has none of its parent's threads.
    os.register_at_fork(after_in_child=_forget)
