"""Threads of gzarr's own that have a name, and whose start cannot hang, and cannot be cut in two by an interrupt.

``threading.Thread.start`` waits until the new thread says that it runs. If memory is so short that the thread ends
before that, the wait has no end.

An interrupt (Ctrl-C, or what a handler of a signal raises) may come in it after the thread was made. Python then raises
``KeyError`` in its place, or ends the thread with one; or it lists a thread for ever that was not made. No interrupt
comes in other threads than the main one, so what that one asks for is started in another.
"""

from __future__ import annotations

import _thread
import contextvars
import threading
from typing import TYPE_CHECKING, Final

from . import ending

if TYPE_CHECKING:
    from collections.abc import Callable

#: Longest wait until a thread runs, in seconds. One that is later does nothing.
LONGEST_S: Final = 10.0


class _Started(threading.Event):
    """What a thread sets when it runs."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(LONGEST_S if timeout is None else timeout)


class NamedThread(threading.Thread):
    """A daemon thread that calls a function for the present thread.

    Parameters
    ----------
    function
        What is called.
    name
        Name of the thread.
    """

    def __init__(self, function: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._function: Callable[[], None] | None = ending.for_caller(function)
        # Whoever takes it decides: the thread, that it works; its starter, that it never does. (pop is atomic.)
        self._turn: list[None] = [None]
        # Where a version of Python has another way to wait, there is nothing to be bounded.
        self._event: threading.Event | None = None
        if isinstance(getattr(self, "_started", None), threading.Event):
            self._started = self._event = _Started()

    def start(self) -> None:
        """Start the thread. If the wait for it is interrupted, it runs all the same.

        Raises
        ------
        RuntimeError
            If the system refuses it, or has no memory for it, or the process ends; it will never call the function.
        """
        if ending.is_alone():
            raise RuntimeError(ending.NO_THREADS)
        try:
            if threading.get_ident() == threading.main_thread().ident:
                done = self._start_apart()
            else:
                super().start()
                done = True
        except MemoryError as error:
            if self._given_up():
                raise RuntimeError("there is no memory for a new thread") from error
        else:
            runs = done if self._event is None else self._event.is_set()
            if not runs and self._given_up():
                raise RuntimeError(f"a new thread did not run within {LONGEST_S:g} seconds")

    def _start_apart(self) -> bool:
        """Have another thread start it; return whether that has come to its end."""
        failures: list[BaseException] = []
        begin = super().start
        done = _thread.allocate_lock()
        done.acquire()

        def start() -> None:
            try:
                begin()
            except BaseException as error:
                failures.append(error)
            finally:
                done.release()

        # Some versions of Python give a thread the context of the one that starts it.
        _thread.start_new_thread(contextvars.copy_context().run, (start,))
        is_done = done.acquire(timeout=LONGEST_S)
        if failures:
            try:
                raise failures[0]
            finally:
                # The error's traceback has this frame: they would keep each other until garbage is collected.
                failures.clear()
        return is_done

    def run(self) -> None:
        """Call the function, unless the start was given up."""
        function = self._function
        if function is not None and self._taken():
            try:
                function()
            finally:
                # What it refers to may be large.
                del function
                self._function = None

    def _given_up(self) -> bool:
        """Have the function not called, unless it has been."""
        given_up = self._taken()
        if given_up:
            # The interpreter keeps a thread that has not run.
            self._function = None
        return given_up

    def _taken(self) -> bool:
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True
