"""Where a loader is, however iterators are begun, used and dropped: the rules of the page, beside a plain model."""

from __future__ import annotations

import collections
import gc
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import gzarr
from gzarr.loader import Loader

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

EPOCHS = 4


def rows(count: int = 10, batch_size: int = 4, **options: Any) -> Loader:
    array = gzarr.array(np.arange(count), chunks=3, device="cpu")
    return Loader(array, **({"batch_size": batch_size, "seed": 1, "prefetch": 0, "drop_last": False} | options))


def state(loader: Loader) -> tuple[int, int]:
    now = loader.state_dict()
    return now["epoch"], now["cursor"]


@cache
def order(epoch: int) -> list[list[int]]:
    """Return the batches of an epoch: the first two have 4 samples, the last one 2."""
    loader = rows()
    loader.set_epoch(epoch)
    return [batch.samples.tolist() for batch in loader]


# -- one by one


def test_an_iterator_that_is_dropped_counts_for_nothing() -> None:
    loader = rows(200, 10)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    probe = iter(loader)
    del probe
    assert state(loader) == (0, 30)
    assert loader.stats().batches == 3
    for _ in zip(range(0), loader, strict=False):
        pass
    assert state(loader) == (0, 30)
    next(batches)
    assert state(loader) == (0, 40)
    resumed = rows(200, 10)
    resumed.load_state_dict(loader.state_dict())
    assert [batch.samples.tolist() for batch in resumed] == [batch.samples.tolist() for batch in batches]


def test_an_iterator_goes_on_beside_one_that_is_dropped_later() -> None:
    loader = rows(200, 10)
    batches = iter(loader)
    next(batches)
    probes = [iter(loader), iter(loader)]
    next(batches)
    del probes[0]
    assert state(loader) == (2, 0)
    probes.clear()
    assert state(loader) == (0, 20)


def test_a_probe_after_a_break() -> None:
    loader = rows(200, 10)
    for _ in loader:
        break
    iter(loader)
    assert state(loader) == (0, 10)
    assert loader.next_epoch == 1


def test_a_probe_that_is_garbage_in_a_cycle() -> None:
    loader = rows(200, 10)
    batches = iter(loader)
    next(batches)
    cycle: list[Any] = [iter(loader)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert state(loader) == (0, 10)


def test_a_state_stands_until_a_new_iteration_begins() -> None:
    loader = rows(200, 10)
    before = iter(loader)
    next(before)
    saved = loader.state_dict()
    next(before)
    loader.load_state_dict(saved)
    next(before)
    assert state(loader) == (0, 10)
    assert sum(1 for _ in before) == 17
    assert state(loader) == (0, 10)
    assert loader.goes_on
    after = iter(loader)
    next(after)
    assert state(loader) == (0, 20)


def test_an_epoch_that_is_set_begins_anew() -> None:
    loader = rows(200, 10)
    before = iter(loader)
    next(before)
    loader.set_epoch(0)
    next(before)
    assert (state(loader), loader.next_epoch) == ((0, 0), 0)


def test_of_two_iterators_of_one_epoch_the_last_one_counts() -> None:
    loader = rows(200, 10)
    loader.set_epoch(0)
    first = iter(loader)
    next(first)
    loader.set_epoch(0)
    last = iter(loader)
    next(last)
    next(first)
    next(first)
    assert state(loader) == (0, 10)
    assert loader.stats().batches == 1
    assert sum(1 for _ in first) == 17
    assert state(loader) == (0, 10)


def test_an_epoch_that_cannot_begin_has_not() -> None:
    """Where warnings are errors, one says that the shuffling is coarse."""
    loader = rows(200, 10, buffer_bytes=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="shuffling is coarse"):
            iter(loader)
    assert (state(loader), loader.next_epoch) == ((0, 0), 0)


def test_many_probes_are_not_kept() -> None:
    loader = rows(200, 10)
    batches = iter(loader)
    next(batches)
    for _ in range(50):
        probe = iter(loader)
    kept, one = 0, loader._position.last
    while one is not None:
        kept, one = kept + 1, one.earlier
    assert kept <= 3
    del probe
    assert state(loader) == (0, 10)


def test_of_many_living_probes_only_those_are_kept() -> None:
    loader = rows(200, 10)
    living = collections.deque((iter(loader) for _ in range(3)), maxlen=3)
    for _ in range(50):
        living.append(iter(loader))
    kept, one = 0, loader._position.last
    while one is not None:
        kept, one = kept + 1, one.earlier
    assert kept <= 5
    living.clear()
    assert state(loader) == (0, 0)


def test_a_trainer_s_epoch_and_a_probe() -> None:
    """Lightning makes an iterator, says which epoch it is, and may look whether it can make another one."""
    loader = rows()
    list(loader)
    used = iter(loader)
    loader.batch_sampler.set_epoch(0)
    probe = iter(loader)
    del probe
    loader.batch_sampler.set_epoch(1)
    assert [batch.samples.tolist() for batch in used] == order(2)
    assert state(loader) == (3, 0)


# -- in any order


@dataclass
class Event:
    """What a place comes from: an iteration, or a call that set it.

    Attributes
    ----------
    epoch, cursor
        Where the next iteration begins, or where this one is.
    kind
        ``"set"``, ``"loaded"`` or ``"iteration"``.
    given
        Batches that were given out.
    dropped, over
        Whether the iterator is gone, and whether it has said that there are no more batches.
    """

    epoch: int
    cursor: int
    kind: str
    given: int = 0
    dropped: bool = False
    over: bool = False

    @property
    def is_nothing(self) -> bool:
        return self.kind == "iteration" and self.dropped and not (self.given or self.over)

    @property
    def following(self) -> tuple[int, int]:
        """Epoch and cursor of the next iteration."""
        used = self.kind == "iteration" and not self.over
        return (self.epoch + 1, 0) if used else (self.epoch, self.cursor)


class Places(RuleBasedStateMachine):
    """A loader beside the list of all that has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.loader = rows()
        self.events = [Event(0, 0, "set")]
        self.alive: list[tuple[Any, Event]] = []
        self.saved: list[Any] = []

    @property
    def now(self) -> Event:
        return next(event for event in reversed(self.events) if not event.is_nothing)

    @precondition(lambda self: len(self.alive) < 4 and self.now.following[0] < EPOCHS)
    @rule()
    def begin(self) -> None:
        event = Event(*self.now.following, "iteration")
        self.alive.append((iter(self.loader), event))
        self.events.append(event)

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), times=st.integers(1, 3))
    def take(self, data: st.DataObject, times: int) -> None:
        batches, event = self.alive[data.draw(st.integers(0, len(self.alive) - 1))]
        for _ in range(times):
            found = next(batches, None)
            if event.over:
                assert found is None
            elif event.cursor < 10:
                assert found.samples.tolist() == order(event.epoch)[event.cursor // 4]
                event.given, event.cursor = event.given + 1, min(event.cursor + 4, 10)
            else:
                assert found is None
                event.epoch, event.cursor, event.over = event.epoch + 1, 0, True

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        _, event = self.alive.pop(data.draw(st.integers(0, len(self.alive) - 1)))
        event.dropped = True

    @rule(epoch=st.integers(0, EPOCHS - 2))
    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)
        now = self.now
        # A state that was loaded comes first, unless nothing could.
        if now.kind != "loaded" or (now.cursor == 10 and epoch != now.epoch):
            self.events.append(Event(epoch, 0, "set"))

    @rule()
    def save(self) -> None:
        self.saved.append(self.loader.state_dict())

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        saved = self.saved[data.draw(st.integers(0, len(self.saved) - 1))]
        self.loader.load_state_dict(saved)
        self.events.append(Event(saved["epoch"], saved["cursor"], "loaded"))

    @invariant()
    def agrees(self) -> None:
        now = self.now
        assert state(self.loader) == (now.epoch, now.cursor)
        assert self.loader.next_epoch == now.following[0]
        assert self.loader.goes_on == (now.kind == "loaded")
        iterations = [event for event in self.events if event.kind == "iteration" and not event.is_nothing]
        assert self.loader.stats().batches == (iterations[-1].given if iterations else 0)


TestPlaces = pytest.mark.filterwarnings("ignore:shuffling is coarse")(Places.TestCase)
TestPlaces.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
