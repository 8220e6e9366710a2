"""Arrays of thousands of millions of samples in small chunks: how groups are chosen, and what has no order."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import Loader
from gzarr.errors import ArgumentError, SelectionError
from gzarr.loader import Dataset, Merge, Patches, Rows, Windows, epoch, merge_tiles
from gzarr.loader.cells import Footprint
from gzarr.loader.keeping import doubled

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
    monkeypatch.setattr(epoch, "memory_bytes", lambda: 1 << 34)
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


@pytest.mark.parametrize("shuffle", ["full", False])
def test_reads_are_chosen_in_little_memory(shuffle: Any) -> None:
    large = gzarr.create_array({}, (10**9, 10**9), "u1", chunks=(64, 64), device="cpu")
    tracemalloc.start()
    try:
        with pytest.raises(ArgumentError, match=r"an epoch of \d+ samples has \d+ reads, .* buffer_bytes"):
            iter(Loader(large, Patches((64, 64)), batch_size=4, shuffle=shuffle))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_reads_are_cut_as_one_after_the_other() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        begin, most = rng.randint(0, 9), rng.randint(1, 40)
        end, first = begin + rng.randint(0, 200), rng.randint(1, most)
        expected, length = [begin], first
        while expected[-1] < end:
            expected.append(min(expected[-1] + length, end))
            length = min(2 * length, most)
        assert doubled(begin, end, first, most) == expected


def test_samples_and_lists_of_them_that_do_not_fit_into_memory() -> None:
    large = gzarr.create_array({}, 2**62, "u1", chunks=1000, device="cpu")
    with pytest.raises(SelectionError, match=r"an array of samples of shape \(2, \d+\), .* smaller batch_size"):
        next(iter(Loader(large, Patches((2**47,)), batch_size=2, shuffle=False, prefetch=0)))
    with pytest.raises(ArgumentError, match="weights"):
        Loader(large, Patches((2**16,), weights=[1, 2], samples=3), batch_size=2)


def test_choices_that_do_not_fit_into_memory() -> None:
    large = gzarr.create_array({}, (2**60, 2**60), "u1", chunks=(2**20, 2**20), device="cpu")
    row = gzarr.create_array({}, 2**60, "u1", chunks=1000, device="cpu")
    many = np.broadcast_to(np.True_, (2**25, 2**25))
    few = np.zeros((4, 4))
    for array, sampler, words in (
        (large, Patches((2**40, 2**40), where=large), r"the choice by where= .* list the first elements"),
        (large, Patches((2**35, 2**35), where=many), r"the choice by where= .* list the first elements"),
        (row, Rows(where=row, samples=1), r"where= takes more memory .* part"),
        (row, Rows(balance="", samples=1), r"balance='' takes more memory .* part"),
        (few, Windows(0, {"y": (0, 0)}, static={"z": row}), r"'z' of static= takes more memory .* part"),
    ):
        with pytest.raises(ArgumentError, match=words) as refused:
            Loader(array, sampler, shuffle="full")
        assert "read it in parts" not in str(refused.value)


@pytest.mark.parametrize(("chunk", "tiles"), [(100, "76924000000 parts"), (10**5, "1000000 parts")])
def test_more_parts_or_patches_than_fit_memory(chunk: int, tiles: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_tiles, "memory_bytes", lambda: 1 << 34)
    out = gzarr.create_array({}, (10**8, 10**8), "f4", chunks=(chunk, chunk), device="cpu")
    with pytest.raises(ArgumentError, match=rf"1000000000000 patches are put together in {tiles} .* larger chunks"):
        Merge(out, Patches((100, 100)))
