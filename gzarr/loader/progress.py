"""A line on stderr that shows how far an epoch is, and what limits its speed."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from .. import ending
from ..progress import start_bar

if TYPE_CHECKING:
    from .pipeline import Pipeline
    from .stats import Stats


class Progress:
    """Iterator over the batches of an epoch that shows its progress.

    Parameters
    ----------
    batches
        Iterator of the epoch.
    what
        Name of the epoch.
    done, total
        Batches of the epoch that were given out before, and in all.
    """

    def __init__(self, batches: Pipeline, what: str, done: int, total: int) -> None:
        self._batches = batches
        self._done = done
        stack = contextlib.ExitStack()
        self._end = weakref.finalize(self, stack.close)
        self._advance = start_bar(stack, what, total, stays=True)
        self._advance(done)

    def __iter__(self) -> Progress:
        return self

    def __next__(self) -> Any:
        """Return the next batch, as the epoch's own iterator does."""
        try:
            batch = next(self._batches)
        except BaseException:
            # Also after an interrupt; after the error of a batch, it goes on.
            if self._batches.ended:
                ending.finish(self._end)
            raise
        stats = self._batches.stats
        self._advance(self._done + stats.batches, note(stats))
        return batch

    def close(self) -> None:
        """End the line, the epoch and its threads."""
        ending.finish(self._end)
        self._batches.close()


def note(stats: Stats) -> str:
    """Return the speed, and the slowest stage with its share of the elapsed time."""
    share = min(stats.seconds_of(stats.slowest) / stats.elapsed_s, 1) if stats.elapsed_s else 0
    return f"{stats.samples_per_s:,.0f} samples/s · {stats.slowest} {share:.0%}"
