"""A wave of a read that is being staged, in a thread of the pool or by the caller.

One wave of a read is staged at a time, while the caller's thread lays out and enqueues the one before. The two threads
have nothing in common that changes:

- Until :meth:`StagedWave.result` returns, the page-locked memory of the wave belongs to whoever stages it, and nothing
  of the wave is enqueued. No other wave has its slot.
- The staging thread enqueues nothing. A direct read, past page-locked memory, writes to memory of the device that the
  caller's thread has allocated for the wave, and that no enqueued work uses.
- The source of the chunks is used by one thread at a time: the next wave begins after the result of this one is there.

The caller gets the result, or the error with the chunk that it names. An interrupt (Ctrl-C) reaches the caller only: it
has the staging end early, and waits for that before the memory is given to anyone else (:meth:`StagedWave.close`). If
no thread is free, the caller stages the wave when it needs it. A forked child has no staging thread, and no part in the
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .. import pool

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from .staging import Frames, Staged
    from .wave import Wave

    IntArray = npt.NDArray[np.int64]


class Source(Protocol):
    """Stages the chunks of a wave: in page-locked memory, or on the device (DirectStaging)."""

    def stage(
        self, rows: IntArray, staging: npt.NDArray[np.uint8], capacity: int, most_frames: int
    ) -> tuple[Staged, Frames]:
        """As :meth:`gzarr.engines.cuda.staging.Staging.stage`."""

    def cancel(self) -> None:
        """Have the call in progress, in another thread, end soon, with any result; there will be no others."""


class StagedWave:
    """A wave that is being staged: until :meth:`result` returns, its page-locked memory is the staging thread's.

    Parameters
    ----------
    wave
        The wave, of which nothing is enqueued.
    stage
        Stages its chunks.
    aside
        Whether to begin at once, in another thread if one is free.
    """

    __slots__ = ("_stage", "_task", "wave")

    def __init__(self, wave: Wave, stage: Callable[[], tuple[Staged, Frames]], *, aside: bool) -> None:
        self.wave: Wave = wave
        self._stage: Callable[[], tuple[Staged, Frames]] | None = stage
        self._task = pool.Task(stage) if aside else None

    def result(self) -> tuple[Staged, Frames]:
        """Return the staged chunks and their frames, once they are all there."""
        assert self._stage is not None
        try:
            return self._stage() if self._task is None else self._task.result()
        finally:
            # It has a view of the arena, which would otherwise live on while the next wave's is allocated.
            self._stage = None

    def close(self, source: Source) -> None:
        """Wait until nothing is staged any more."""
        if self._task is not None:
            source.cancel()
            self._task.close()
        self._stage = None
