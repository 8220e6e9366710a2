"""The end of the process: which threads may still begin what must not be cut off.

When the interpreter shuts down, a daemon thread that returned from compiled code would be ended in the middle of it,
which aborts the process. So once the end has begun (``gzarr.engines.kernels``), only the main thread goes on, with the
threads that work for it: functions that the program has registered to run at exit may still read and write. Every other
thread ends with ``SystemExit`` at the next place where it would begin such work. It does not wait there, for it may
hold something that the main thread waits for.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable
    from typing import ParamSpec

    P = ParamSpec("P")


class _Here(threading.local):
    """Whether the present thread works for the main thread."""

    for_main = False


#: Why something that takes other threads is refused.
NO_THREADS: Final = (
    "no other thread can run while the interpreter shuts down; do this before, in a function that was registered with "
    "atexit for example"
)

_here = _Here()
_begun = False


def begin() -> None:
    """Let the end begin."""
    global _begun
    _begun = True


def begun() -> bool:
    """Return whether the process ends."""
    return _begun


def is_alone() -> bool:
    """Return whether only the present thread still runs: the interpreter shuts down, and calls what is left to call.

    No other thread begins or goes on any more, so whoever waits for one waits for ever. Python 3.11 does not even
    refuse to start one.
    """
    return sys.is_finalizing()


def leave() -> None:
    """End the present thread if the process ends, unless it works for the main thread.

    Raises
    ------
    SystemExit
        To end it.
    """
    if _begun and not _is_for_main():
        raise SystemExit


def for_caller(function: Callable[P, None]) -> Callable[P, None]:
    """Return a function that another thread runs for the present one, and may run if the present one may."""
    if not (_begun and _is_for_main()):
        return function

    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        before, _here.for_main = _here.for_main, True
        try:
            function(*args, **kwargs)
        finally:
            _here.for_main = before

    return run


def finish(finalizer: weakref.finalize[Any, Any]) -> None:
    """Call a finalizer, if it has not been called. At exit, its own call does nothing."""
    if (found := finalizer.detach()) is not None:
        _, function, arguments, keywords = found
        function(*arguments, **keywords)


def _is_for_main() -> bool:
    return _here.for_main or threading.current_thread() is threading.main_thread()
