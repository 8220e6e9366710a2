"""What becomes of a loader whose iterator was interrupted while it waited for a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import Loader
from gzarr.errors import ArgumentError
from gzarr.loader.work import EpochWork

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 40


class Interrupts:
    """Interrupts the consumer instead of giving out the batch of a step, once: a Ctrl-C while it waits, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step: int | None = None
        self.late = False
        for name in ("take", "next_inline"):
            monkeypatch.setattr(EpochWork, name, self._instead_of(getattr(EpochWork, name)))

    def _instead_of(self, function: Any) -> Any:
        def interrupted(work: EpochWork, *given: Any) -> Any:
            is_now = work.stats.batches == self.step
            if is_now:
                self.step = None
                if not self.late:
                    raise KeyboardInterrupt
            ready = function(work, *given)
            if is_now:
                work.memory.hand_over = self._raise  # type: ignore[method-assign]
            return ready

        return interrupted

    def _raise(self, *given: Any, **named: Any) -> Any:
        raise KeyboardInterrupt


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    return Interrupts(monkeypatch)


def new(**options: Any) -> Loader:
    array = gzarr.create_array({}, data=np.arange(ROWS), chunks=4, device="cpu")
    return Loader(array, batch_size=8, seed=3, **options)


def rows(batches: Any) -> list[list[int]]:
    return [batch["data"].tolist() for batch in batches]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("shuffle", ["blocks", "full"])
def test_goes_on_after_what_was_given_out(shuffle: Any, prefetch: int, late: bool, interrupts: Interrupts) -> None:
    wanted = rows(new(shuffle=shuffle))
    loader = new(shuffle=shuffle, prefetch=prefetch)
    interrupts.step, interrupts.late = 2, late
    batches = iter(loader)
    seen = [next(batches)["data"].tolist() for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="was ended by a KeyboardInterrupt: iterate the loader anew"):
            next(batches)
    batches.close()
    loader.load_state_dict(loader.state_dict())
    assert seen + rows(loader) == wanted


@pytest.mark.parametrize("late", [False, True])
def test_what_gave_out_nothing_counts_for_nothing(late: bool, interrupts: Interrupts) -> None:
    loader = new()
    first, second = rows(loader), rows(loader)
    interrupts.step, interrupts.late = 0, late
    kept = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        next(kept)
    assert loader.next_epoch == 2
    third = rows(loader)
    assert sorted(map(tuple, third)) not in (sorted(map(tuple, first)), sorted(map(tuple, second)))
    # Nor does it use up a state.
    other = new()
    other.load_state_dict({**other.state_dict(), "epoch": 1, "cursor": 16})
    interrupts.step = 0
    also_kept = iter(other)
    with pytest.raises(KeyboardInterrupt):
        next(also_kept)
    assert rows(other) == second[2:]
    assert rows(other) == third


def test_the_end_of_an_epoch_stays_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt after the last batch loses none."""
    loader = new()
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "_progress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert next(batches, None) is None


def of_progress(loader: Loader) -> Iterator[Any]:
    return loader.progress()


def of_torch(loader: Loader) -> Iterator[Any]:
    pytest.importorskip("torch")
    from gzarr.loader.torch import IterableLoader

    return iter(IterableLoader(loader))


def of_a_dataloader(loader: Loader) -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    from gzarr.loader.torch import IterableLoader

    made: Iterator[Any] = iter(torch.utils.data.DataLoader(IterableLoader(loader), batch_size=None))
    return made


@pytest.mark.parametrize("wrapped", [of_progress, of_torch, of_a_dataloader])
def test_wrappers_pass_it_on(wrapped: Any, interrupts: Interrupts) -> None:
    loader = new()
    wanted = rows(new())
    interrupts.step = 2
    batches = wrapped(loader)
    seen = [next(batches)["data"].tolist() for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    with pytest.raises(ArgumentError, match="was ended by a KeyboardInterrupt"):
        next(batches)
    loader.load_state_dict(loader.state_dict())
    assert seen + rows(loader) == wanted


@pytest.mark.parametrize("wrapped", [of_progress, of_torch, of_a_dataloader])
def test_wrappers_go_on_after_a_batch_that_cannot_be_made(wrapped: Any) -> None:
    calls: list[int] = []

    def transform(batch: Any) -> Any:
        calls.append(0)
        if len(calls) == 2:
            raise ValueError("no batch")
        return batch

    batches = wrapped(new(transform=transform))
    next(batches)
    with pytest.raises(ValueError, match="no batch"):
        next(batches)
    assert len(list(batches)) == 3
