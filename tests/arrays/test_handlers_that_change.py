"""Handlers of signals that change what the program is just changing."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Run a function as the handler of a signal that comes when a function of gzarr is called for the first time."""
    old = signal.getsignal(signal.SIGUSR1)

    def arrange(name: str, handler: Callable[[], object]) -> None:
        def run(*_: Any) -> None:
            sys.setprofile(None)
            handler()

        def profile(frame: Any, event: str, _argument: Any) -> None:
            if event == "call" and frame.f_code.co_name == name:
                signal.raise_signal(signal.SIGUSR1)

        signal.signal(signal.SIGUSR1, run)
        sys.setprofile(profile)

    yield arrange
    sys.setprofile(None)
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("place", ["as_data", "_appended", "_write", "set_shape", "change_array", "replace_documents"])
def test_no_append_overwrites_another(at: Any, tmp_path: Path, place: str, lock: bool) -> None:
    array = gzarr.create_array(tmp_path / "a", shape=0, dtype="i8", chunks=8)
    array.append([0], lock=lock)
    refused = []

    def handler() -> None:
        # A handle of its own, as a function that saves what is left may open.
        other = gzarr.open_array(tmp_path / "a", mode="r+")
        try:
            other.append([1000], lock=lock)
        except gzarr.StoreError as error:
            refused.append(error)

    at(place, handler)
    array.append([1], lock=lock)
    sys.setprofile(None)
    assert gzarr.open_array(tmp_path / "a")[...].tolist() == ([0, 1] if refused else [0, 1000, 1])
    assert bool(refused) == (place != "as_data")
    for error in refused:
        assert "this thread is just changing it (a handler of a signal has interrupted that" in str(error)


def test_a_resize_within_an_append_is_refused(at: Any) -> None:
    array = gzarr.array(np.arange(6), chunks=2)
    at("set_shape", lambda: array.resize(3))
    with pytest.raises(gzarr.StoreError, match=r"the shape of '/' in .* just changing it"):
        array.append([6])
    assert array[...].tolist() == [0, 1, 2, 3, 4, 5]
    array.append([6])
    assert array[...].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_another_array_can_be_changed_meanwhile(at: Any, tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "g")
    one, other = (group.create_array(name, shape=0, dtype="i8", chunks=4) for name in "ab")
    at("set_shape", lambda: other.append([5]))
    one.append([1])
    assert [one[...].tolist(), other[...].tolist()] == [[1], [5]]


def test_attributes_are_not_overwritten(at: Any) -> None:
    group = gzarr.create_group({})
    other = gzarr.open_group(group.store, mode="r+")
    at("replace_documents", lambda: other.attrs.update(theirs=1))
    with pytest.raises(gzarr.StoreError, match=r"the documents of '/' in .* just changing it"):
        group.attrs["mine"] = 1
    assert dict(gzarr.open_group(group.store).attrs) == {}
    group.attrs["mine"] = 2
    other.attrs["theirs"] = 3
    assert dict(group.attrs) in ({"mine": 2}, {"mine": 2, "theirs": 3})
    assert dict(gzarr.open_group(group.store).attrs) == {"mine": 2, "theirs": 3}


def test_a_change_within_a_function_that_changes_attributes_is_refused() -> None:
    group = gzarr.create_group({}, attributes={"n": 1})

    def change(found: dict[str, Any]) -> dict[str, Any]:
        group.attrs["m"] = 2
        return {**found, "n": 3}

    with pytest.raises(
        gzarr.StoreError, match=r"called by the function that changes attributes\); nothing was changed"
    ):
        group.attrs.change(change)
    assert dict(group.attrs) == {"n": 1}
