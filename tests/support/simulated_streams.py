"""Streams and events of a simulated device: lazy, so that a missing dependency shows."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulated_device import SimulatedDevice


class SimulatedEvent:
    """A point in a stream: the number of operations before it."""

    # Like CuPy's adapter, it takes no other attributes.
    __slots__ = ("_device", "mark")

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self.mark: tuple[SimulatedStream, int] | None = None

    @property
    def done(self) -> bool:
        with self._device.calls.call("query"):
            return self.mark is None or self.mark[0].has_run(self.mark[1])

    def synchronize(self) -> None:
        with self._device.calls.call("synchronize event"):
            self._device.counts["synchronize"] += 1
            if self.mark is not None:
                stream, position = self.mark
                stream.run_to(position)


class SimulatedStream:
    """Operations that run in order when something waits for them; operations of an eager stream run at once."""

    def __init__(self, device: SimulatedDevice, *, eager: bool = False) -> None:
        self._device = device
        self._eager = eager
        self._pending: deque[Callable[[], None]] = deque()
        self._enqueued = 0
        self._done = 0

    @property
    def pending(self) -> int:
        """Operations that have not run."""
        return len(self._pending)

    def enqueue(self, operation: Callable[[], None]) -> None:
        with self._device.lock:
            self._pending.append(operation)
            self._enqueued += 1
            if self._eager:
                self.run_to(self._enqueued)

    def has_run(self, position: int) -> bool:
        """Return whether this number of operations has run."""
        return self._done >= position

    def run_to(self, position: int) -> None:
        with self._device.lock:
            while self._done < position:
                operation = self._pending.popleft()
                self._done += 1
                operation()

    def record(self, event: SimulatedEvent) -> SimulatedEvent:
        with self._device.calls.call("record"):
            event.mark = (self, self._enqueued)
            return event

    def wait_event(self, event: SimulatedEvent) -> None:
        with self._device.calls.call("wait"):
            # As in CUDA, the last record before this call counts; an event that was never recorded is not waited for.
            if event.mark is not None:
                stream, position = event.mark
                self.enqueue(partial(stream.run_to, position))

    def synchronize(self) -> None:
        with self._device.calls.call("synchronize"):
            self._device.counts["synchronize"] += 1
            self._device.sweep()
            self.run_to(self._enqueued)

    def __enter__(self) -> SimulatedStream:
        """Make it the thread's current stream, like a CuPy stream."""
        self._device.streams_of_thread().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._device.streams_of_thread().pop()
