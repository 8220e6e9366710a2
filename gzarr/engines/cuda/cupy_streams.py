"""CuPy's streams and events, including callers' streams, with gzarr's errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from .cupy_errors import no_compiler

if TYPE_CHECKING:
    from typing import Self

    from .cupy_errors import CupyErrors

#: ``cudaSuccess`` and ``cudaErrorNotReady``.
_SUCCESS: Final = 0
_NOT_READY: Final = 600
#: Address of the calling thread's default stream; 0 and 1 are those of the legacy one, which is the device's.
PER_THREAD: Final = 2


def is_own_thread() -> bool:
    """Return whether the present thread is one of gzarr's, whose names begin like that."""
    return threading.current_thread().name.startswith("gzarr-")


class CupyEvent:
    """A point in a stream; see :class:`gzarr.engines.cuda.device_protocol.Event`.

    Parameters
    ----------
    event
        CuPy's event.
    errors
        Error translation of its device.
    context
        The driver's context of its device; 0 if it is not known.
    """

    __slots__ = ("_context", "_errors", "cupy")

    def __init__(self, event: Any, errors: CupyErrors, context: int = 0) -> None:
        self.cupy: Any = event
        self._errors = errors
        self._context = context

    def __del__(self) -> None:
        # In a thread of gzarr's that has no context yet, CUDA would make one on the first GPU to destroy the event.
        try:
            from cupy.cuda import driver

            if self._context and is_own_thread() and not driver.ctxGetCurrent():
                driver.ctxSetCurrent(self._context)
                try:
                    del self.cupy
                finally:
                    driver.ctxSetCurrent(0)
        except Exception:  # also at the end of the process, when modules are gone
            return

    @property
    def done(self) -> bool:
        """Whether the stream has passed it."""
        from cupy.cuda import runtime

        with self._errors:
            # CuPy's own property takes every failure for "not done".
            status = runtime.eventQuery(self.cupy.ptr)
            if status not in (_SUCCESS, _NOT_READY):
                raise runtime.CUDARuntimeError(status)
        return bool(status == _SUCCESS)

    def synchronize(self) -> None:
        """Wait on the host until the stream has passed it."""
        with self._errors:
            self.cupy.synchronize()


class CupyStream:
    """See :class:`gzarr.engines.cuda.device_protocol.Stream`. A ``with`` statement makes it CuPy's current stream.

    Parameters
    ----------
    stream
        CuPy's stream.
    errors
        Error translation of its device.

    Attributes
    ----------
    cupy
        CuPy's stream.
    ptr
        Its address.
    """

    __slots__ = ("_errors", "cupy", "ptr")

    def __init__(self, stream: Any, errors: CupyErrors) -> None:
        self.cupy: Any = stream
        self.ptr: int = int(stream.ptr)
        self._errors = errors

    def record(self, event: CupyEvent) -> CupyEvent:
        """Record an event after everything enqueued so far; return it."""
        with self._errors:
            self.cupy.record(event.cupy)
        return event

    def wait_event(self, event: CupyEvent) -> None:
        """Make everything enqueued from now on wait for an event."""
        with self._errors:
            self.cupy.wait_event(event.cupy)

    def synchronize(self) -> None:
        """Wait on the host until everything enqueued has run."""
        with self._errors:
            self.cupy.synchronize()

    def __enter__(self) -> Self:
        """Make it CuPy's current stream of the calling thread and its device."""
        with self._errors:
            self.cupy.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        """Make the stream that was current before the current one again."""
        self.cupy.__exit__(*exc)
        error = exc[1] if exc else None
        if isinstance(error, Exception) and self._errors.is_lack_of_compiler(error):
            raise no_compiler(error) from error


class ThreadsStream(CupyStream):
    """The default stream of the thread that makes this (``cupy.cuda.Stream.ptds``), also in other threads.

    There, its address means another stream, and this is the legacy default stream in its place: that runs after what is
    enqueued on the default streams of all threads, and they after that.
    """

    __slots__ = ("_own", "_thread")

    def __init__(self, stream: Any, errors: CupyErrors) -> None:
        self._own, self._errors = stream, errors
        self._thread = threading.current_thread()

    @property
    def cupy(self) -> Any:
        """CuPy's stream for the calling thread."""
        if threading.current_thread() is self._thread:
            return self._own
        import cupy

        return cupy.cuda.Stream.null

    @property
    def ptr(self) -> int:  # type: ignore[override]
        """Its address in the calling thread."""
        return int(self.cupy.ptr)


def of_caller(stream: Any, errors: CupyErrors) -> CupyStream:
    """Return a stream of a caller's, which may be used in all threads."""
    return (ThreadsStream if stream.ptr == PER_THREAD else CupyStream)(stream, errors)
