"""Memory of results that is used again: for arrays of many sizes, and never much more than was in use."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from gzarr.arrays.recycling import RecycledResults

BYTE = np.dtype(np.uint8)


class Counted(RecycledResults):
    """Results that count what is made anew, and tell what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def _new(self, nbytes: int) -> Any:
        self.made += 1
        return super()._new(nbytes)

    @property
    def kept(self) -> int:
        """Bytes that are kept."""
        return sum(size * len(memories) for size, memories in self._kept.items())


def most_held(results: Counted, sizes: list[int], held: int) -> int:
    """Take arrays of some sizes, of which some are held at a time; return the most bytes that were in memory."""
    arrays: deque[Any] = deque(maxlen=held)
    most = 0
    for size in sizes:
        arrays.append(results.empty((size,), BYTE))
        assert arrays[-1].shape == (size,)
        arrays[-1][:: 1 << 12] = 1
        most = max(most, results.kept + sum(array.nbytes for array in arrays))
    return most


@pytest.mark.parametrize("nbytes", [100_000, 3 << 20, 20 << 20])
def test_arrays_of_any_size(nbytes: int) -> None:
    results = Counted()
    sizes = np.random.default_rng(0).integers(nbytes * 3 // 4, nbytes, 500).tolist()
    assert most_held(results, sizes, 4) <= 1.5 * 6 * nbytes + (32 << 20)
    assert results.made <= 20


def test_sizes_that_come_one_after_the_other() -> None:
    """What no longer fits makes way."""
    results = Counted()
    sizes = [n << 20 for n in range(10, 100) for _ in range(5)]
    assert most_held(results, sizes, 2) <= 1.25 * 4 * (100 << 20) + (32 << 20)
    falling = Counted()
    assert most_held(falling, sizes[::-1], 2) <= 1.25 * 4 * (100 << 20) + (32 << 20)


@pytest.mark.parametrize("run", [1, 20])
def test_two_sizes_in_turn(run: int) -> None:
    results = Counted()
    most_held(results, [(64 if i // run % 2 else 40) << 20 for i in range(200)], 3)
    assert results.made <= 8


def test_nothing_is_kept_once_it_is_closed() -> None:
    results = Counted()
    array = results.empty((1 << 20,), BYTE)
    results.close()
    del array
    assert not results.kept
