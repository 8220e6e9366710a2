"""Monitors of reads: where their time goes, and how to end them before they are complete.

Whoever wants to know (a loader) reads in a ``with monitor.watching():`` block. The reads of that thread then belong to
the monitor, in whichever threads they run. Without a monitor, nothing is measured.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: What a thread of a read does: it waits for the store (reads a file), decodes and places chunks, waits for the device.
Activity: TypeAlias = Literal["store", "decoder", "device"]

_current: ContextVar[Monitor | None] = ContextVar("gzarr_monitor", default=None)


class ReadCancelledError(BaseException):
    """A read was ended by its monitor. It is no ``Exception``, so that nothing takes it for a failure of the store."""


class AskedAhead(Protocol):
    """Chunks of a read that were asked for before it began; any of its threads may take some."""

    def take(self) -> tuple[IntArray, list[Any], int] | None:
        """As :meth:`gzarr.engines.asking.Taken.take`."""

    def close(self) -> None:
        """Take no more: one of the threads has failed."""


class Ahead(Protocol):
    """Chunks that were asked for before the read that needs them."""

    def take(
        self, store: object, node: str, chunks: IntArray, rows: IntArray, workers: int
    ) -> tuple[AskedAhead | None, IntArray]:
        """Take some chunks of a read.

        Parameters
        ----------
        store, node
            Store and path of the array.
        chunks, rows
            int64 ``(n, k)`` and ``(m,)``: coordinates of the read's chunks, and which of them.
        workers
            Number of threads that use them.

        Returns
        -------
        Those that were asked for, None if there are none, and the rows of the others.
        """


class Monitor:
    """Monitor of reads.

    Parameters
    ----------
    timed
        Whether times are added up, for someone who takes them now and then.

    Attributes
    ----------
    absent
        Whether the store lacked a chunk, for which fill values were read; who wants to know clears it.
    ahead
        What was asked for ahead in remote stores; None for nothing.
    cancelled
        Whether reads should end. Set it from any thread: they end after the requests and chunks in progress, with
        :class:`ReadCancelledError`.
    chunks
        Chunks that were read.
    uses
        Pieces of results that were taken from them: one for each chunk and each window that needs it.
    """

    __slots__ = ("_added", "_chunks", "_counted", "_timed", "_uses", "absent", "ahead", "cancelled")

    def __init__(self, *, timed: bool = True) -> None:
        self._timed = timed
        self.cancelled: bool = False
        self.absent: bool = False
        self.ahead: Ahead | None = None
        self._chunks = self._uses = 0
        self._counted: deque[tuple[int, int]] = deque()
        self._added: deque[tuple[Activity, float]] = deque()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Have the reads of this thread belong to the monitor in a block of code."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def count(self, chunks: int, uses: int) -> None:
        """Add to the counters; any thread may do this."""
        self._counted.append((chunks, uses))

    @property
    def chunks(self) -> int:
        """As above."""
        self._count_up()
        return self._chunks

    @property
    def uses(self) -> int:
        """As above; may be set when no read runs."""
        self._count_up()
        return self._uses

    @uses.setter
    def uses(self, number: int) -> None:
        self._count_up()
        self._uses = number

    def _count_up(self) -> None:
        for _ in range(len(self._counted)):
            chunks, uses = self._counted.popleft()
            self._chunks += chunks
            self._uses += uses

    def add(self, activity: Activity, seconds: float) -> None:
        """Add time of a thread; any thread may do this."""
        # Appending is atomic: an interrupt (Ctrl-C) leaves no lock taken.
        if self._timed:
            self._added.append((activity, seconds))

    def check(self) -> None:
        """End this read if it was cancelled."""
        if self.cancelled:
            raise ReadCancelledError

    def take(self) -> dict[Activity, float]:
        """Return and reset the seconds of threads since the last call."""
        totals: dict[Activity, float] = {"store": 0.0, "decoder": 0.0, "device": 0.0}
        for _ in range(len(self._added)):
            activity, seconds = self._added.popleft()
            totals[activity] += seconds
        return totals


def current() -> Monitor | None:
    """Return the monitor of the reads of this thread, or None."""
    return _current.get()


@contextlib.contextmanager
def spent(monitor: Monitor | None, activity: Activity, threads: int = 1) -> Iterator[None]:
    """Add the time of a block to a monitor, for the number of threads that it keeps busy or waiting."""
    if monitor is None:
        yield
        return
    begin = time.perf_counter()
    try:
        yield
    finally:
        monitor.add(activity, (time.perf_counter() - begin) * threads)
