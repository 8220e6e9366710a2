"""An iterator that is asked for a batch within its own call, by a function of the user's or the handler of a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import Loader
from gzarr.errors import ArgumentError
from gzarr.loader.pipeline import Pipeline
from gzarr.loader.work import EpochWork

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 40


def new(**options: Any) -> Loader:
    array = gzarr.create_array({}, data=np.arange(ROWS), chunks=4, device="cpu")
    return Loader(array, batch_size=8, seed=3, **options)


def rows(batches: Any) -> list[list[int]]:
    return [batch["data"].tolist() for batch in batches]


class Once:
    """Calls the function that was set, once, and keeps what comes of it."""

    def __init__(self) -> None:
        self.function: Callable[[], Any] | None = None
        self.found: Any = None

    def __call__(self, *given: Any) -> None:
        function, self.function = self.function, None
        if function is not None:
            try:
                self.found = function()
            except Exception as error:
                self.found = error


def test_a_function_that_makes_a_batch_cannot_have_one() -> None:
    wanted = rows(new())
    inside = Once()

    def transform(batch: Any, *given: Any) -> Any:
        inside()
        return batch

    batches = iter(new(prefetch=0, transform=transform))
    seen = [next(batches)["data"].tolist()]
    inside.function = lambda: next(batches)
    seen.append(next(batches)["data"].tolist())
    assert isinstance(inside.found, ArgumentError)
    assert "asked for a batch while it makes one" in str(inside.found)
    # All goes on as if nothing had been asked.
    assert seen + rows(batches) == wanted


def test_an_error_of_such_a_function_is_that_of_its_batch() -> None:
    wanted = rows(new())
    asked: list[Any] = []

    def transform(batch: Any, *given: Any) -> Any:
        if len(asked) == 1:
            asked.append(None)
            next(batches)
        asked.append(None)
        return batch

    batches = iter(new(prefetch=0, transform=transform))
    assert next(batches)["data"].tolist() == wanted[0]
    with pytest.raises(ArgumentError, match="asked for a batch while it makes one"):
        next(batches)
    assert rows(batches) == wanted[2:]


def test_a_function_that_makes_a_batch_may_end_the_epoch() -> None:
    def transform(batch: Any, *given: Any) -> Any:
        batches.close()
        assert next(batches, None) is None
        return batch

    batches = iter(new(prefetch=0, transform=transform))
    next(batches)
    assert rows(batches) == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_is_given_out_once_where_another_is_asked_for_while_it_is_handed_over(
    prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rows(new())
    batches = iter(new(prefetch=prefetch))
    inside = Once()
    memory = batches._work.memory
    hand_over = memory.hand_over

    def with_a_call_inside(*given: Any, **named: Any) -> Any:
        inside()
        return hand_over(*given, **named)

    monkeypatch.setattr(memory, "hand_over", with_a_call_inside)
    inside.function = lambda: next(batches)
    first = next(batches)["data"].tolist()
    assert [first, inside.found["data"].tolist(), *rows(batches)] == wanted


@pytest.mark.parametrize("what", ["a call", "an error"])
def test_an_error_in_the_middle_of_reading_is_no_end_of_the_epoch(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the handler of a signal, which may come anywhere."""
    wanted = rows(new())
    loader = new(prefetch=0)
    batches = iter(loader)
    seen = [next(batches)["data"].tolist()]
    inside = iter([None])

    def handler() -> None:
        if what == "a call":
            next(batches)
        raise TimeoutError("too late")

    def finished(*given: Any) -> Any:
        for _ in inside:
            handler()
        return of_work(*given)

    of_work = EpochWork._finished
    monkeypatch.setattr(EpochWork, "_finished", finished)
    name = "ArgumentError" if what == "a call" else "TimeoutError"
    with pytest.raises(ArgumentError if what == "a call" else TimeoutError):
        next(batches)
    for _ in range(2):
        with pytest.raises(ArgumentError, match=f"was ended by an? {name}: iterate the loader anew"):
            next(batches)
    batches.close()
    loader.load_state_dict(loader.state_dict())
    assert seen + rows(loader) == wanted


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("name", ["take", "hand_over"])
def test_a_batch_that_an_error_has_cost_is_not_waited_for(
    name: str, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rows(new())
    loader = new(prefetch=prefetch)
    batches = iter(loader)
    seen = [next(batches)["data"].tolist()]
    owner: Any = EpochWork if name == "take" else Pipeline
    attribute = {"hand_over": "_handed_over"}.get(name, "take" if prefetch else "next_inline")
    function, inside = getattr(owner, attribute), iter([None])

    def interrupted(*given: Any) -> Any:
        found = function(*given) if name == "take" else None
        for _ in inside:
            raise TimeoutError("too late")
        return found or function(*given)

    monkeypatch.setattr(owner, attribute, interrupted)
    with pytest.raises(TimeoutError):
        next(batches)
    with pytest.raises(ArgumentError, match="was ended by a TimeoutError"):
        next(batches)
    loader.load_state_dict(loader.state_dict())
    assert seen + rows(loader) == wanted
