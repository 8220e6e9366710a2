"""Threads that take batches from one iterator, and samples from one dataset, and one order that they share."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import Loader
from gzarr.errors import ArgumentError
from gzarr.loader import Dataset, Patches
from gzarr.loader.order import EpochOrder, Order

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROWS = 40
#: Long enough for another thread that need not wait.
SOON_S = 0.1


def new(**options: Any) -> Loader:
    array = gzarr.create_array({}, data=np.arange(ROWS), chunks=4, device="cpu")
    return Loader(array, batch_size=8, seed=3, **options)


class Meanwhile:
    """Calls a function in another thread, once, in the middle of another call, and gives it time."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._thread: threading.Thread | None = None
        self._found: list[Any] = []

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run)
            self._thread.start()
            self._thread.join(SOON_S)

    def _run(self) -> None:
        try:
            self._found.append(self._function())
        except BaseException as error:
            self._found.append(error)

    def result(self) -> Any:
        assert self._thread is not None
        self._thread.join(20)
        (found,) = self._found
        return found


@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_batch_is_given_out_once(prefetch: int) -> None:
    loader = new(prefetch=prefetch)
    batches = iter(loader)
    memory = batches._work.memory
    other = Meanwhile(lambda: next(batches)["data"].tolist())
    hand_over = memory.hand_over

    def handed_over(*given: Any, **named: Any) -> Any:
        other.begin()
        return hand_over(*given, **named)

    memory.hand_over = handed_over  # type: ignore[method-assign]
    found = [next(batches)["data"].tolist(), other.result()]
    found += [batch["data"].tolist() for batch in batches]
    assert found == [batch["data"].tolist() for batch in new()]
    assert loader.stats().batches == ROWS // 8


def test_a_batch_that_is_read_is_waited_for() -> None:
    """Without threads of the loader's own, a consumer's thread reads."""

    def transform(batch: Any) -> Any:
        other.begin()
        return batch

    batches = iter(new(prefetch=0, transform=transform))
    other = Meanwhile(lambda: next(batches)["data"].tolist())
    first = next(batches)["data"].tolist()
    assert [first, other.result()] == [batch["data"].tolist() for batch in new()][:2]


def test_an_interrupt_of_one_thread_ends_the_wait_of_others() -> None:
    """Whether it comes while the turn is taken, which then is left so, or while others wait for a batch."""
    batches = iter(new())

    class Lost:
        """A turn that is taken, but an interrupt comes before that is known."""

        def acquire(self, timeout: float = -1) -> bool:
            other.begin()
            assert waits.wait(20)
            raise KeyboardInterrupt

    class Taken:
        def acquire(self, timeout: float = -1) -> bool:
            waits.set()
            ended.wait(20)
            return False

        def release(self) -> None:
            raise AssertionError

    waits, ended = threading.Event(), threading.Event()

    def wait() -> Any:
        batches._turn = Taken()  # type: ignore[assignment]
        return next(batches)

    other = Meanwhile(wait)
    batches._turn = Lost()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    ended.set()
    error = other.result()
    assert isinstance(error, ArgumentError)
    assert "was ended by a KeyboardInterrupt" in str(error)


def test_a_sample_has_another_place_for_each_thread() -> None:
    array = gzarr.create_array({}, data=np.arange(1000), chunks=10, device="cpu")

    def dataset() -> Dataset:
        return Dataset(array, Patches((4,), jitter=True, stride=500), seed=1)

    alone, shared = dataset(), dataset()
    wanted = [alone[0]["data"].tolist() for _ in range(2)]
    assert wanted[0] != wanted[1]

    class Counts(np.ndarray[Any, Any]):
        """Counts that another thread would change before they are raised."""

        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            other.begin()
            return np.asarray(found)

    other = Meanwhile(lambda: shared[0]["data"].tolist())
    shared._asked = np.zeros(len(shared), np.uint32).view(Counts)
    first = shared[0]["data"].tolist()
    assert [first, other.result()] == wanted


def test_a_block_that_another_thread_keeps_meanwhile_disturbs_nobody() -> None:
    """It does before one instruction of the function that keeps blocks, each in turn."""
    order = EpochOrder(Order("blocks", 400, 1, 7), 2, np.arange(0, 4001, 10))
    other = order._block(0)
    left = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal left
        if frame.f_code is not EpochOrder._block.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if not left:
                order._blocks[-1] = other
        return trace

    at = 0
    while not left:
        order._blocks.clear()
        order._blocks.update(dict.fromkeys((4, 5, 6), other))
        at += 1
        left = at
        previous = sys.gettrace()
        # Python 3.12 asks the frame that sets the function whether instructions are wanted.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        try:
            order._block(1)
        finally:
            sys.settrace(previous)
        assert 1 in order._blocks
        left = max(left, 0)
    assert at > 30
