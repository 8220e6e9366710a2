"""Arrays of thousands of millions of samples in small chunks: how groups are chosen, and what has no order."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import Loader
from gzarr.errors import ArgumentError
from gzarr.loader import Dataset, Patches, Rows, epoch
from gzarr.loader.cells import Footprint

MANY = 8 * 10**9


def array(rows: int) -> gzarr.Array:
    return gzarr.create_array({}, shape=(rows,), chunks=(4,), dtype="u1", fill_value=7, device="cpu")


def counted(of: Footprint, cells: int, length: int) -> float:
    """Return the amplification of groups along the one axis, each of which is looked at."""
    first = np.arange(0, cells, length)
    begin = first * of.stride[0] + of.low[0]
    end = (np.minimum(first + length, cells) - 1) * of.stride[0] + of.low[0] + of.length[0] - 1
    low, high = (np.clip(found, 0, of.size[0] - 1) // of.chunk[0] for found in (begin, end))
    chunks = int((high - low).sum()) + len(first)
    between = int(np.maximum(low[1:] - high[:-1] - 1, 0).sum())
    return chunks / (int(high[-1] - low[0]) + 1 - between)


def test_amplification_is_that_of_all_groups() -> None:
    rng = random.Random(0)
    for _ in range(5000):
        stride, window, low = rng.choice([1, 1, 2, 3, 8, 40]), rng.randint(1, 30), rng.randint(-60, 20)
        cells = rng.randint(1, 60)
        size = max(rng.choice([(cells - 1) * stride + window + low, rng.randint(1, 400)]), 1)
        one = Footprint((stride,), (low,), (window,), (rng.choice([1, 2, 3, 7, 16, 64]),), (size,), 1.0)
        length = rng.randint(1, cells + 3)
        assert one.amplification(0, cells, length) == counted(one, cells, length), (one, cells, length)


@pytest.mark.parametrize("shuffle", ["full", False])
def test_the_first_batch_takes_little_memory(shuffle: Any) -> None:
    tracemalloc.start()
    try:
        loader = Loader(array(MANY), batch_size=2, shuffle=shuffle, buffer_bytes=1 << 20, prefetch=0)
        batch = next(iter(loader))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(loader) == MANY // 2
    assert batch["data"].tolist() == [7, 7]
    assert peak < 32 << 20


def test_more_groups_or_reads_than_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "_memory_bytes", lambda: 1 << 34)
    with pytest.raises(ArgumentError, match=f"an epoch of {MANY} samples has {MANY // 4} groups, .* shuffle='full'"):
        Loader(array(MANY), batch_size=2)
    one = Loader(array(2**45), batch_size=2, shuffle="full", buffer_bytes=8)
    with pytest.raises(ArgumentError, match=rf"an epoch of {2**45} samples has {2**43} reads, .* buffer_bytes"):
        iter(one)
    # Of few samples, however large the array is.
    few = Loader(array(2**40), Rows(samples=64), batch_size=2)
    assert len([*few]) == 32


@pytest.mark.parametrize("rows", [2**48 + 1, 2**63 - 1])
def test_more_samples_than_orders_have(rows: int) -> None:
    for shuffle in ("blocks", "full", False):
        with pytest.raises(ArgumentError, match=f"there are {rows} samples, and orders are made of at most 2\\*\\*48"):
            Loader(array(rows), batch_size=2, shuffle=shuffle)
    with pytest.raises(ArgumentError, match=f"there are {rows} samples"):
        Dataset(array(rows))
    with pytest.raises(ArgumentError, match="orders are made of at most"):
        Loader(array(rows), Patches((1,)), batch_size=2)
    with pytest.raises(ArgumentError, match=f"there are {MANY * 10**6} samples"):
        Loader(array(MANY), batch_size=2, shuffle="full", weights=[10**6])
