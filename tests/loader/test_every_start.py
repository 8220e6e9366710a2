"""Samples at every element: in the same order as if all were listed, but only a few batches of them ever are."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Windows, explanation
from gzarr.loader.epoch import LISTED
from gzarr.loader.order import EpochOrder
from gzarr.loader.slabs import PLANNED, Slabs

if TYPE_CHECKING:
    from gzarr.loader import Sampler

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

LINE = np.random.default_rng(0).integers(0, 60_000, 3000).astype("u2")
IMAGE = np.random.default_rng(1).integers(0, 255, (60, 50)).astype("u1")


def line(chunk: int = 128, size: int = len(LINE)) -> Any:
    return gzarr.create_array({}, data=LINE[:size], chunks=(chunk,), device="cpu")


def image(chunk: int = 8) -> Any:
    return gzarr.create_array({}, data=IMAGE, chunks=(chunk, chunk), device="cpu")


def absent(*shape: int, chunk: int) -> Any:
    return gzarr.create_array({}, shape=shape, dtype="u2", chunks=(chunk,) * len(shape), device="cpu")


RUNS = Windows(0, {"x": (-3, 60), "y": (0, 61)})

CASES: dict[str, tuple[Any, Sampler, int]] = {
    "runs": (lambda: line(), RUNS, 4000),
    "every third": (lambda: line(), Windows(0, {"x": (0, 60)}, stride=3), 4000),
    "one block": (lambda: line(), RUNS, 1 << 20),
    "volumes": (lambda: [line(), line(50, 1111), line()], RUNS, 4000),
    "two arrays": (lambda: {"a": line(), "b": line(50)}, RUNS, 9000),
    "patches": (lambda: image(), Patches((9, 7), stride=(1, 1)), 2500),
    "padded patches": (lambda: image(10), Patches((6, 9), stride=(2, 1), pad="reflect", halo=3), 2500),
    "patches of volumes": (lambda: [image(), image(13)], Patches((9, 7), stride=(2, 3)), 4000),
}


def elements(batch: Any) -> list[Any]:
    """Return the arrays of a batch."""
    return [each for _, value in batch.items() for each in (elements(value) if hasattr(value, "items") else [value])]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("world_size", [1, 2, 6])
def test_batches_are_the_same(case: str, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make, sampler, buffer_bytes = CASES[case]
    arrays = make()
    whole_groups = []

    def batches() -> list[list[Any]]:
        found = []
        for rank in range(world_size):
            options: dict[str, Any] = {
                "batch_size": 50, "rank": rank, "world_size": world_size, "buffer_bytes": buffer_bytes, "seed": 3,
                "prefetch": 2 * (rank % 2), "pad": rank % 3 == 0, "drop_last": False,
            }  # fmt: skip
            loader = Loader(arrays, sampler, **options)
            whole_groups.append(loader._of_epoch(0).reads_groups)
            for steps in (None, len(loader) // 2):
                given = iter(loader)
                found += [[b.samples, b.origins, *elements(b)] for b in itertools.islice(given, steps)]
            # In the middle of a block, and of its first groups.
            resumed = Loader(arrays, sampler, **options)
            resumed.load_state_dict(loader.state_dict())
            found += [[b.samples, b.origins, *elements(b)] for b in resumed]
        return found

    listed = batches()
    monkeypatch.setattr("gzarr.loader.epoch.LISTED", 20)
    told = batches()
    assert len(listed) == len(told)
    for one, other in zip(listed, told, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert not any(whole_groups[:world_size])
    # Each of several ranks has too few samples of each group.
    few = world_size >= {"every third": 6, "padded patches": 6, "patches of volumes": 2}.get(case, 7)
    assert set(whole_groups[world_size:]) == {not few}


@pytest.mark.parametrize("where", ["line", "volumes", "plane", "of two ranks", "of six ranks"])
def test_the_first_batch_takes_no_order_of_all_others(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array, sampler = absent(1_500_000, chunk=50_000), Windows(0, {"x": (0, 99)})
    arrays = {"plane": absent(1200, 1200, chunk=200), "volumes": [array, absent(400_000, chunk=30_000)]}
    ranks = {"of two ranks": {"rank": 1, "world_size": 2}, "of six ranks": {"rank": 3, "world_size": 6}}
    loader = Loader(
        arrays.get(where, array), Patches((20, 20), stride=(1, 1)) if where == "plane" else sampler, batch_size=32,
        buffer_bytes=6 << 20, prefetch=0, **ranks.get(where, {}),
    )  # fmt: skip
    asked: list[int] = []
    samples = EpochOrder.samples

    def counted(order: EpochOrder, positions: Any) -> Any:
        asked.append(len(positions))
        return samples(order, positions)

    monkeypatch.setattr(EpochOrder, "samples", counted)
    next(iter(loader))
    # To know the groups, and to gather.
    assert 32 <= sum(asked) <= LISTED + 2 * PLANNED
    # In the middle of a block, and in its last samples.
    for cursor in (32 * 6 * 1000, loader._volumes.count // 192 * 192 - 960):
        asked.clear()
        loader.load_state_dict(loader.state_dict() | {"cursor": cursor})
        next(iter(loader))
        assert sum(asked) < 150_000
    said = loader.explain()
    assert said.planning_bytes < 64 << 20
    tracemalloc.start()
    try:
        next(iter(loader))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < said.held_bytes + said.planning_bytes


def test_a_loader_of_windows_takes_no_list_of_them() -> None:
    array = absent(10**8, chunk=1 << 20)
    tracemalloc.start()
    try:
        loader = Loader(array, RUNS, batch_size=32)
        said = loader.explain()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said.samples == 10**8 - 64
    assert peak < 8 << 20


@pytest.mark.parametrize("world_size", [2, 3, 6, 8])
@pytest.mark.parametrize("groups", [3, 40, 200])
def test_a_rank_knows_the_groups_of_a_block_that_it_needs(groups: int, world_size: int) -> None:
    loader = Loader(
        line(len(LINE) // groups), Windows(0, {"x": (0, 4)}), buffer_bytes=5000, world_size=world_size, seed=1
    )  # fmt: skip
    epoch = loader._of_epoch(0)
    order = epoch.order
    assert len(order.bounds) > 2
    for block, (begin, end) in enumerate(itertools.pairwise(order.bounds.tolist())):
        for rank in range(world_size):
            numbers = order.samples(np.arange(begin + (rank - begin) % world_size, end, world_size))
            found = np.unique(np.searchsorted(order.offsets, numbers, "right") - 1)
            assert set(found.tolist()) <= set(order.groups_of_rank(block, rank, world_size).tolist())


@pytest.mark.parametrize("world_size", [2, 4, 8])
@pytest.mark.parametrize("buffer_bytes", [3000, 9000, 1 << 20])
def test_no_rank_has_larger_slabs_than_said(buffer_bytes: int, world_size: int) -> None:
    """A rank of many may need most groups of a block, which others need too."""
    for rank in range(world_size):
        loader = Loader(line(), RUNS, rank=rank, world_size=world_size, buffer_bytes=buffer_bytes)
        epoch = loader._of_epoch(0)
        assert epoch.shares_slabs
        slabs = [epoch.slabs(a, b) for a, b in itertools.pairwise(epoch.bounds(0, epoch.end(0)))]
        assert all(isinstance(each, Slabs) for each in slabs)
        assert max(each.nbytes for each in slabs) <= epoch.largest_block_bytes <= loader.explain().held_bytes


@pytest.mark.parametrize("case", [*CASES, "far apart"])
def test_chunks_of_samples_without_gaps_are_not_counted(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # No sample needs all chunks of a run that is far from the other one.
    far = (lambda: line(), Windows(0, {"x": (0, 9), "y": (900, 905)}), 4000)
    make, sampler, buffer_bytes = CASES.get(case, far)
    loader = Loader(make(), sampler, batch_size=8, shuffle="full", buffer_bytes=buffer_bytes)
    counted = loader.explain().amplification
    epoch = loader._of_epoch(0)
    assert epoch.is_dense
    touched = explanation._touched(epoch, np.arange(epoch.samples.count))
    needed = sum(len(chunks) * source.touched_nbytes for source, chunks in touched)
    decoded = explanation._of_reads(epoch)
    assert counted == max(decoded / needed, 1.0)
    monkeypatch.setattr(explanation, "_of_reads", lambda epoch: decoded)
    monkeypatch.setattr(explanation, "_touched", None)
    monkeypatch.setattr(explanation, "_AT_ONCE", 500)
    assert loader.explain().amplification == counted
