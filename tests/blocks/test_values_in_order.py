"""Values of ``reduce``: their order, how many of them wait, and those that are dicts of a class of their own."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.blocks.workers import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from gzarr.blocks import Block


def test_values_come_in_the_order_of_numbers_where_memory_is_short() -> None:
    array = gzarr.create_array({}, data=np.zeros((64, 1024)), chunks=(8, 8), device="cpu")

    def number(_: np.ndarray, block_info: Block) -> list[int]:
        return [block_info.number]

    for budget in (50_000, 100_000, 1 << 29):
        found = gzarr.map_blocks(number, array, block=(8, 8), halo=2, reduce=lambda p, q: p + q, budget_bytes=budget)
        assert found == list(range(8 * 128))


def test_few_tasks_run_ahead_of_one_that_is_slow() -> None:
    begun, slow = [], threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i == 3:
            assert slow.wait(60)
        return i

    results = run(range(50), work, threads=3, describe=str, ahead=8)
    found = [next(results)[1] for _ in range(3 + 7)]
    assert sorted(begun) == sorted([*found, 3]) == list(range(11))
    slow.set()
    assert sorted([*found, *(value for _, value in results)]) == list(range(50))


@pytest.mark.parametrize(
    "made",
    [Counter, OrderedDict, dict, lambda items: defaultdict(int, items)],
    ids=["Counter", "OrderedDict", "dict", "default"],
)
def test_dicts_of_every_class(made: Callable[[Any], Any]) -> None:
    data = np.arange(12)

    def counts(x: np.ndarray) -> Any:
        # An array in it, so that it is copied.
        return made({"sum": np.array(x.sum()), "n": len(x)})

    found = gzarr.map_blocks(counts, data, block=4, reduce=lambda p, q: made({k: p[k] + q[k] for k in p}))
    assert type(found) is type(made({}))
    assert dict(found) == {"sum": data.sum(), "n": 12}
