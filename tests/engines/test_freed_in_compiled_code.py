"""No Python code runs when memory is freed: what the handler of a signal raises there would never reach the program."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gzarr.arrays.recycling import RecycledResults
from gzarr.engines import kernels, result_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

BYTE = np.dtype(np.uint8)
RECYCLED = RecycledResults()


def functions_called(work: Callable[[], object]) -> list[str]:
    """Return the names of the functions of Python that compiled code calls."""
    found = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("recycle", ["", "0"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: result_memory.empty((result_memory.MALLOC_BYTES,), BYTE),
        lambda: RECYCLED.empty((result_memory.ALIGNED_BYTES,), BYTE),
        lambda: RECYCLED.empty((result_memory.LARGE_BYTES,), BYTE),
        kernels.Worker,
    ],
    ids=["large", "recycled", "recycled large", "worker"],
)
def test_nothing_of_python_runs(make: Callable[[], Any], recycle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_RECYCLE_BYTES", recycle)
    held = [make() for _ in range(3)]
    live = len(kernels._live)
    assert functions_called(held.clear) == []
    assert not held
    assert len(kernels._live) == live - (3 if make is kernels.Worker else 0)


def test_a_worker_that_is_lost_is_freed_by_the_next() -> None:
    """As where an interrupt comes after one was taken."""
    kernels.load()
    kernels.release()
    worker = kernels.take_worker()
    assert not kernels._lost
    del worker
    assert len(kernels._lost) == 1
    kernels.give_worker_back(kernels.take_worker())
    assert not kernels._lost


@pytest.mark.parametrize("held", [0, 1])
def test_memory_is_freed_at_once_after_the_end_of_its_results(held: int) -> None:
    results = RecycledResults()
    arrays = [results.empty((result_memory.ALIGNED_BYTES,), BYTE) for _ in range(4)]
    results.close()
    del arrays[held:]
    assert not results._returned.items
    assert not results._returned.taken()
