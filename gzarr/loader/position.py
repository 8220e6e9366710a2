"""Where a loader is in its epochs: what has been given out, and which epoch its next iteration is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from .pipeline import Pipeline


@dataclass(slots=True)
class BegunEpoch:
    """An iteration that has begun.

    Attributes
    ----------
    epoch
        Number of the epoch.
    cursor
        Position of the order from which it goes on.
    loaded
        Whether it goes on from a state.
    before
        Epoch and cursor, ``is_used`` and ``is_loaded`` before it began.
    steps
        Number of batches that it has left.
    is_taken
        Whether a batch was taken.
    is_known
        Whether it is known which of a trainer's epochs it is.
    pipeline
        The iterator, once it is made.
    """

    epoch: int
    cursor: int
    loaded: bool
    before: tuple[int, int, bool, bool]
    steps: int = 0
    is_taken: bool = False
    is_known: bool = False
    pipeline: weakref.ref[Pipeline] | None = None

    @property
    def iterator(self) -> Pipeline | None:
        """The iterator, if it is still there and no batch was taken."""
        return None if self.is_taken or self.pipeline is None else self.pipeline()


@dataclass(slots=True)
class Position:
    """Where a loader is in its epochs.

    Attributes
    ----------
    epoch, cursor
        Epoch of what was given out last, and position of its order after that.
    is_used
        Whether an iterator has begun the epoch, so that the next one gives out the next epoch.
    is_loaded
        Whether a state was loaded since the last iterator.
    begun
        The last iteration, until its iterator is dropped.
    difference
        Of the loader's number of an epoch from a trainer's.
    """

    epoch: int = 0
    cursor: int = 0
    is_used: bool = False
    is_loaded: bool = False
    begun: BegunEpoch | None = None
    difference: int = 0

    def without_iterator(self) -> Position:
        """Return a copy for another loader, which has no iterator yet."""
        return replace(self, begun=None)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch of the next iteration."""
        return self.epoch + self.is_used

    @property
    def next_cursor(self) -> int:
        """Position of the order from which the next iteration goes on."""
        return 0 if self.is_used else self.cursor

    def begin(self) -> BegunEpoch:
        """Begin an iteration."""
        before = self.epoch, self.cursor, self.is_used, self.is_loaded
        self.epoch, self.cursor = self.next_epoch, self.next_cursor
        self.begun = BegunEpoch(self.epoch, self.cursor, self.is_loaded, before)
        self.is_used, self.is_loaded = True, False
        return self.begun

    def undo(self, begun: BegunEpoch) -> None:
        """Take back an iteration that cannot begin after all."""
        self.epoch, self.cursor, self.is_used, self.is_loaded = begun.before

    def give(self, begun: BegunEpoch, cursor: int | None) -> None:
        """Take note of a batch that was given out, after which the order is at ``cursor``; None after the last one."""
        begun.is_taken = True
        # Of several iterators, the last one's state is the loader's.
        if self.epoch == begun.epoch and cursor is None:
            self.epoch, self.cursor, self.is_used = begun.epoch + 1, 0, False
        elif self.epoch == begun.epoch and cursor is not None:
            self.cursor, self.is_used = cursor, True

    def drop(self, begun: BegunEpoch) -> None:
        """Take note that an iterator is gone. Without a batch, it counts for nothing."""
        if self.begun is begun:
            self.begun = None
        if not begun.is_taken and self.epoch == begun.epoch and self.is_used:
            self.is_used, self.is_loaded = False, begun.loaded

    def go_to(self, epoch: int, cursor: int = 0, *, is_loaded: bool = False) -> None:
        """Make the next iteration an epoch, from a position of its order on."""
        self.epoch, self.cursor, self.is_used, self.is_loaded = epoch, cursor, False, is_loaded

    def follow(self, epoch: int, has_more: Callable[[], bool]) -> int | None:
        """Count epochs with a trainer.

        Parameters
        ----------
        epoch
            Number of the trainer's epoch that begins.
        has_more
            Function that tells whether there are batches after the current position.

        Returns
        -------
        int or None
            The epoch that is to begin anew; None if the next iteration is the trainer's epoch, or the one that has
            begun.
        """
        begun = self.begun
        if self.is_loaded:
            first, left = self.epoch, has_more()
        elif begun is not None and not begun.is_taken and not begun.is_known and (begun.loaded or not epoch):
            # Trainers make the iterator of their first epoch before they say which one it is.
            begun.is_known = True
            first, left = begun.epoch, begun.steps > 0
        else:
            return max(epoch + self.difference, 0)
        # After a state of an epoch's last batch, the trainer goes on with the next one.
        first += not left
        self.difference = first - epoch
        return None if left else first
