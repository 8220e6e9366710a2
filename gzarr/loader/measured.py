"""What a read of an epoch takes, and whether it is a reason to look at documents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import ChunkError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from ..engines.monitor import Monitor
    from .documents import Documents
    from .stats import Stats


class Measured:
    """Counts what is read in one block of code, and the time it takes.

    It is no function with :func:`contextlib.contextmanager`: where that raises another error, the first one and frames
    of its own keep each other, with all that was read, until garbage is collected.

    Parameters
    ----------
    monitor
        Counts what is read.
    stats
        Counters of the epoch.
    documents
        Looked at after the block if a chunk is absent, or cannot be read; it may then raise errors.
    """

    _watching: AbstractContextManager[None]

    def __init__(self, monitor: Monitor, stats: Stats, documents: Documents) -> None:
        self._monitor, self._stats, self._documents = monitor, stats, documents
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()
        self._watching = self._monitor.watching()
        self._watching.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watching.__exit__(None, None, None)
        monitor, stats = self._monitor, self._stats
        try:
            if error is None:
                absent, monitor.absent = monitor.absent, False
                self._documents.look_again(reason=absent)
            elif isinstance(error, ChunkError):
                self._documents.look_again(reason=True)
        finally:
            stats.add_read(time.perf_counter() - self._started, monitor.take())
            stats.chunks, stats.uses = monitor.chunks, monitor.uses
