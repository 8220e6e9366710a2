"""Changes of values that nobody waits for any more, after an interrupt or a time-out, and that may still arrive.

What was sent cannot be called back. Whoever changes the same value waits until it has ended: else a late change would
replace what was written after it.
"""

from __future__ import annotations

import _thread
import contextlib
import math
import os
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .. import ending
from . import io_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..guarded import Lock

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


@contextlib.contextmanager
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


def outcome_of(
    function: Callable[[], object], timeout: float, names: Sequence[str] = (), lock: Lock | None = None
) -> Any:
    """Return what a function returns, or the exception that it raises; ``TimeoutError`` if that takes too long.

    Parameters
    ----------
    function
        Function that is called in another thread: nothing else can end the wait for it.
    timeout
        Seconds after which nobody waits for it any more.
    names
        Names of what it changes, as for :func:`changing`.
    lock
        Lock that it needs; None for none.
    """
    # The result, or an exception.
    done: SimpleQueue[Any] = SimpleQueue()
    left: list[None] = []
    nobody_waits, _ = io_threads.wanted_by()

    def given_up() -> bool:
        return bool(left) or nobody_waits()

    def run() -> None:
        if lock is not None and not lock.acquire(timeout=timeout):
            return
        try:
            with changing(names, given_up) as wanted:
                if wanted:
                    done.put(function())
        except BaseException as error:
            done.put(error)
        finally:
            if lock is not None:
                lock.release()

    alone = ending.is_alone()
    if alone:
        # No other thread gives the lock back.
        timeout = 0
    end = time.monotonic() + timeout
    try:
        try:
            run() if alone else _thread.start_new_thread(run, ())
        except (RuntimeError, MemoryError):
            run()
        while (remains := end - time.monotonic()) > 0:
            # Python may have to be awake to see an interrupt.
            with contextlib.suppress(Empty):
                return done.get(timeout=min(remains, _LOOK_S))
        return done.get_nowait()
    except BaseException as error:
        # Also after an interrupt.
        left.append(None)
        if isinstance(error, Empty):
            return RuntimeError(ending.NO_THREADS) if alone else TimeoutError(f"no answer in {timeout:g} s")
        raise


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
