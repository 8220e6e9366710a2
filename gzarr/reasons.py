"""What an error of a store, a codec or another library says, for the error of gzarr that it becomes."""

from __future__ import annotations

import functools
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType


def reason_of(error: BaseException) -> str:
    """Return the text of an error, its type if it has none; raise it if it says nothing, as :func:`pass_on` does."""
    try:
        pass_on(error)
        return text_of(error) or type(error).__name__
    finally:
        # As below.
        del error


def text_of(error: BaseException) -> str:
    """Return the text of an error; none if its class, which may be of another package, fails to say it."""
    try:
        return str(error)
    except Exception as failure:
        pass_on(failure)
        return ""


def pass_on(error: BaseException) -> None:
    """Raise an error that a program's handler of a signal raised, as timeouts do; return from any other.

    Such an error may hit any line: it says nothing of the store, the codec or the value that were at work.
    """
    # Python's own codecs raise another one of the same type, with a text of theirs.
    cause = error.__cause__
    for one in (error, cause) if cause is not None and type(cause) is type(error) else (error,):
        if _is_of_handler(one):
            try:
                raise one
            finally:
                # Break the cycle of exception, traceback and this frame, which would keep the memory of a read alive.
                del error, cause, one


def _is_of_handler(error: BaseException) -> bool:
    """Return whether an error was raised in a handler of a signal."""
    # Handlers run in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = set()
    trace = error.__traceback__
    while trace is not None:
        codes.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    return any(_code_of(signal.getsignal(number)) in codes for number in signal.valid_signals())


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a handler that is written in Python; None for others."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    # Not the constants of the module.
    if not callable(handler):
        return None
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
