"""CuPy's streams and events, including callers' streams, with gzarr's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import Self

    from .cupy_errors import CupyErrors

#: ``cudaSuccess`` and ``cudaErrorNotReady``.
_SUCCESS: Final = 0
_NOT_READY: Final = 600


class CupyEvent:
    """A point in a stream; see :class:`gzarr.engines.cuda.device_protocol.Event`.

    Parameters
    ----------
    event
        CuPy's event.
    errors
        Error translation of its device.
    """

    __slots__ = ("_errors", "cupy")

    def __init__(self, event: Any, errors: CupyErrors) -> None:
        self.cupy: Any = event
        self._errors = errors

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
