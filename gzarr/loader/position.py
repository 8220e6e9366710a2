"""Where a loader is in its epochs: what has been given out, and which epoch its next iteration is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .stats import Stats

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from .pipeline import Pipeline


@dataclass(slots=True, eq=False)
class Place:
    """A place in the epochs, after which the next iteration comes.

    Attributes
    ----------
    epoch, cursor
        Epoch of what was given out last, and position of its order after that.
    is_used
        Whether an iterator has begun the epoch, so that the next one gives out the next epoch.
    is_loaded
        Whether it is that of a state, with which no iterator has gone on.
    """

    epoch: int = 0
    cursor: int = 0
    is_used: bool = False
    is_loaded: bool = False

    @property
    def next_epoch(self) -> int:
        """Number of the epoch of the next iteration."""
        return self.epoch + self.is_used

    @property
    def next_cursor(self) -> int:
        """Position of the order from which the next iteration goes on."""
        return 0 if self.is_used else self.cursor


@dataclass(slots=True, eq=False)
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
        Place of the loader when it began.
    earlier
        The iteration before it, until a batch was taken.
    place
        Its own place: the loader's, if nothing has come after it.
    stats
        Counters of its iterator.
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
    before: Place
    earlier: BegunEpoch | None
    place: Place
    stats: Stats = field(default_factory=Stats)
    steps: int = 0
    is_taken: bool = False
    is_known: bool = False
    pipeline: weakref.ref[Pipeline] | None = None

    @property
    def iterator(self) -> Pipeline | None:
        """The iterator, if it is still there and no batch was taken."""
        return None if self.is_taken or self.pipeline is None else self.pipeline()

    @property
    def is_nothing(self) -> bool:
        """Whether the iterator was dropped or interrupted before a batch was taken, so that it counts for nothing."""
        if self.is_taken or self.pipeline is None:
            return False
        # The traceback of an interrupt keeps it.
        return (iterator := self.pipeline()) is None or iterator.is_interrupted


@dataclass(slots=True)
class Position:
    """Where a loader is in its epochs.

    The place is that of the last iteration, or one that was set since. Iterations that count for nothing are passed
    over when it is asked for, not when their iterators are dropped: the garbage collector does that at any moment.

    Attributes
    ----------
    difference
        Of the loader's number of an epoch from a trainer's.
    """

    difference: int = 0
    _place: Place = field(default_factory=Place)
    _last: BegunEpoch | None = None

    def without_iterator(self) -> Position:
        """Return a copy for another loader, which has no iterator yet."""
        return Position(self.difference, replace(self.place))

    @property
    def place(self) -> Place:
        """The present place."""
        self._pass_over()
        return self._place

    @property
    def last(self) -> BegunEpoch | None:
        """The last iteration."""
        self._pass_over()
        return self._last

    def _pass_over(self) -> None:
        """Go back to before the last iterations, where they count for nothing."""
        while (last := self._last) is not None and last.is_nothing:
            self._take_back(last)

    def _take_back(self, last: BegunEpoch) -> None:
        if self._place is last.place:
            self._place = last.before
        self._last = last.earlier

    @property
    def untaken(self) -> BegunEpoch | None:
        """The last iteration, if no batch of it was taken."""
        last = self.last
        return None if last is None or last.is_taken else last

    @property
    def stats(self) -> Stats:
        """Counters of the last iteration."""
        last = self.last
        return Stats() if last is None else last.stats

    def begin(self) -> BegunEpoch:
        """Begin an iteration."""
        before, earlier = self.place, self.last
        # Whoever begins many and takes nothing keeps no more of them than there are iterators.
        one = earlier
        while one is not None and (gone := one.earlier) is not None:
            if not gone.is_nothing:
                one = gone
                continue
            if one.before is gone.place:
                one.before = gone.before
            one.earlier = gone.earlier
        epoch, cursor = before.next_epoch, before.next_cursor
        own = Place(epoch, cursor, is_used=True)
        begun = BegunEpoch(epoch, cursor, before.is_loaded, before, earlier, own)
        self._place, self._last = own, begun
        return begun

    def undo(self, begun: BegunEpoch) -> None:
        """Take back an iteration that cannot begin after all."""
        if self._last is begun:
            self._take_back(begun)

    def give(self, begun: BegunEpoch, cursor: int | None) -> None:
        """Take note of a batch that was given out, after which the order is at ``cursor``; None after the last one."""
        begun.is_taken, begun.earlier = True, None
        place = begun.place
        if cursor is None:
            place.epoch, place.cursor, place.is_used = begun.epoch + 1, 0, False
        else:
            place.cursor, place.is_used = cursor, True

    def go_to(self, epoch: int, cursor: int = 0, *, is_loaded: bool = False) -> None:
        """Make the next iteration an epoch, from a position of its order on, whatever iterators give out meanwhile."""
        self._place = Place(epoch, cursor, is_loaded=is_loaded)

    def repeat(self, begun: BegunEpoch) -> None:
        """Make the next iteration the epoch of the last one, unless that gives out a batch before."""
        begun.before, begun.place = Place(begun.epoch), Place(begun.epoch)
        self._place = begun.place

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
        begun, place = self.untaken, self.place
        if place.is_loaded:
            first, left = place.epoch, has_more()
        elif begun is not None and not begun.is_known and (begun.loaded or not epoch):
            # Trainers make the iterator of their first epoch before they say which one it is.
            begun.is_known = True
            first, left = begun.epoch, begun.steps > 0
        else:
            return max(epoch + self.difference, 0)
        # After a state of an epoch's last batch, the trainer goes on with the next one.
        first += not left
        self.difference = first - epoch
        return None if left else first
