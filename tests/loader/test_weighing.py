"""Samples that come as often as their weights and classes say, in orders that can be resumed."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows
from gzarr.loader.drawing import TABLED, drawn
from gzarr.loader.permutation import mix

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

#: 300 rows of class 0, 30 of class 1, 6 of class 2, in runs.
CLASSES = np.repeat([0, 2, 0, 1], [100, 6, 200, 30])


def table(root: Path, classes: npt.NDArray[Any] = CLASSES) -> dict[str, Any]:
    """Write a table whose elements are the rows' numbers, with their classes; return the arrays of a loader."""
    data = np.repeat(np.arange(len(classes))[:, np.newaxis], 3, axis=1)
    gzarr.create_array(root / "x", data=data, chunks=(7, 3))
    gzarr.create_array(root / "label", data=classes, chunks=50)
    return {"x": root / "x", "label": root / "label"}


def numbers(loader: Loader) -> list[int]:
    return [number for batch in loader for number in batch.samples.tolist()]


@settings(max_examples=200, deadline=None)
@given(
    weights=st.lists(st.floats(0, 100), min_size=1, max_size=40).filter(any),
    count=st.integers(0, 100),
    seed=st.integers(0, 2**63),
    replace=st.booleans(),
)
def test_each_is_drawn_as_often_as_expected(weights: list[float], count: int, seed: int, replace: bool) -> None:
    some = np.array(weights)
    if not replace:
        count = min(count, np.count_nonzero(some))
    found = drawn(len(some), count, some, mix(seed), replace=replace)
    times = np.bincount(found, minlength=len(some))
    assert len(found) == count
    assert (np.diff(found) >= 0).all()
    assert not times[some == 0].any()
    if replace:
        expected = count * some / some.sum()
        assert (np.abs(times - expected) < 1 + 1e-6).all()
    else:
        assert times.max(initial=0) <= 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weights", [(1e308, 1e308, 0, 5e307), (5e-324, 1e-310, 0, 1e-320), (1, 1e-310, 0, 3e-310)])
def test_huge_and_tiny_weights(weights: tuple[float, ...], replace: bool) -> None:
    times = np.bincount(drawn(4, 2, np.array(weights), mix(1), replace=replace), minlength=4)
    assert times.sum() == 2
    assert times[2] == 0
    assert times[np.argmax(weights)] >= 1


def test_draws_of_neighbours_are_independent() -> None:
    # Systematic sampling in the rows' own order would take every second one, and never two neighbours.
    both = np.zeros(40)
    for seed in range(400):
        found = drawn(40, 20, np.ones(40), mix(seed), replace=False)
        taken = np.zeros(40, bool)
        taken[found] = True
        both += taken & np.roll(taken, 1)
    assert abs(both.mean() / 400 - 0.5 * 19 / 39) < 0.02
    once = np.zeros(40)
    for seed in range(400):
        once[drawn(40, 20, np.ones(40), mix(seed), replace=False)] += 1
    assert (np.abs(once / 400 - 0.5) < 0.12).all()


def test_without_replacement_the_probabilities_are_the_weights() -> None:
    weights = np.array([1.0, 1, 2, 4, 8, 0, 100])
    times = np.zeros(7)
    for seed in range(4000):
        found = drawn(7, 3, weights, mix(seed), replace=False)
        assert len(set(found.tolist())) == 3
        times[found] += 1
    # One is drawn always; two of the others, in proportion to their weights: 2 · 8 / 16 at most.
    assert times[6] == 4000
    assert np.allclose(times[:6] / 4000, 2 * weights[:6] / 16, atol=0.03)


def test_some_of_many_take_no_time_and_memory_of_all() -> None:
    drawn(10**7, 10, None, mix(0), replace=True)
    tracemalloc.start()
    try:
        found = drawn(10**7, 1000, None, mix(1), replace=False)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert len(found) == 1000
    assert (np.diff(found) > 0).all()
    assert 0 <= found[0] < found[-1] < 10**7
    # About as many in each tenth: six standard deviations.
    assert np.abs(np.bincount(found // 10**6, minlength=10) - 100).max() < 60


@pytest.mark.parametrize("total", [TABLED, TABLED + 1, 3 * TABLED])
def test_equal_ones_are_drawn_equally_often(total: int) -> None:
    count = total // 4
    times, both = np.zeros(total), 0.0
    for seed in range(400):
        found = drawn(total, count, None, mix(seed), replace=False)
        taken = np.zeros(total, bool)
        taken[found] = True
        assert np.count_nonzero(taken) == count
        times += taken
        both += np.count_nonzero(taken[1:] & taken[:-1]) / (total - 1) / 400
    assert abs(np.sum((times - 100) ** 2 / 75) / total - 1) < 0.2
    assert abs(both - 1 / 16) < 0.002
    # Whole rounds of all, and some of one more.
    rounds = np.bincount(drawn(total, 2 * total + count, None, mix(1), replace=True), minlength=total)
    assert (np.bincount(rounds) == [0, 0, total - count, count]).all()


def test_without_replacement_more_than_there_are_come_in_rounds() -> None:
    weights = np.array([1.0, 0, 3, 9, 1])
    for seed in range(50):
        times = np.bincount(drawn(5, 10, weights, mix(seed), replace=False), minlength=5)
        assert times[1] == 0
        assert sorted(times[weights > 0].tolist()) == [2, 2, 3, 3]
    loader = Loader(np.arange(8), Rows(weights=np.arange(8), samples=6, replace=False), weights=[2], batch_size=4)
    assert sum(len(batch.samples) for batch in loader) == 4 * len(loader) == 12


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("options", [{}, {"replace": False}])
def test_states_of_some_of_many(options: dict[str, Any], shuffle: Any) -> None:
    def made(batch_size: int, rank: int = 0, world_size: int = 1) -> Loader:
        return Loader(
            gzarr.array(np.arange(20_000), chunks=(500,), device="cpu"), Rows(samples=90, **options), streams=6,
            batch_size=batch_size, rank=rank, world_size=world_size, shuffle=shuffle, buffer_bytes=20_000,
            drop_last=False,
        )  # fmt: skip

    whole = made(1)
    first, second = numbers(whole), numbers(whole)
    assert len(set(first)) == len(set(second)) == 90
    assert len(set(first) & set(second)) < 10
    begun = made(7)
    for _, _ in zip(range(3), begun, strict=False):
        pass
    state = begun.state_dict()
    found = np.full(90, -1)
    for rank in range(6):
        loader = made(2, rank, 6)
        loader.load_state_dict(state)
        found[21 + (rank - 21) % 6 :: 6] = numbers(loader)
    assert found[21:].tolist() == first[21:]
    # They were drawn in another way once.
    with pytest.raises(gzarr.ArgumentError, match="sampler has changed"):
        Loader(np.arange(20_000), Rows(samples=20)).load_state_dict(
            {"version": 1, "seed": 0, "epoch": 0, "cursor": 8, "fingerprint": "20:ebb3:0c34:9ed5:4a42ec66c604fbc2"}
        )


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_weights_of_rows(tmp_path: Path, shuffle: Any, device: TestedDevice) -> None:
    table(tmp_path)
    weights = np.where(CLASSES == 2, 25.0, np.where(CLASSES == 1, 0.0, 1.0))
    loader = Loader(
        {name: device.open(tmp_path / name) for name in ("x", "label")},
        Rows(weights=weights), batch_size=16, shuffle=shuffle, buffer_bytes=4000, drop_last=False,
    )  # fmt: skip
    for _ in range(3):
        seen: Counter[int] = Counter()
        for batch in loader:
            assert (device.to_numpy(batch["x"])[:, 0] == batch.samples).all()
            assert (device.to_numpy(batch["label"]) == CLASSES[batch.samples]).all()
            seen.update(batch.samples.tolist())
        assert sum(seen.values()) == len(CLASSES)
        for row, times in seen.items():
            assert abs(times - len(CLASSES) * weights[row] / weights.sum()) < 1


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_classes_in_balance(tmp_path: Path, shuffle: Any, rank: int) -> None:
    arrays = table(tmp_path)
    seen: Counter[int] = Counter()
    for part in range(rank):
        loader = Loader(arrays, Rows(balance="label"), batch_size=16, shuffle=shuffle, rank=part, world_size=rank)
        for batch in loader:
            seen.update(batch["label"].tolist())
    assert max(seen.values()) - min(seen.values()) <= 24
    assert set(seen) == {0, 1, 2}


def test_classes_without_replacement(tmp_path: Path) -> None:
    arrays = table(tmp_path)
    loader = Loader(arrays, Rows(balance="label", replace=False), batch_size=2, drop_last=False)
    all_seen: set[int] = set()
    for _ in range(20):
        found = numbers(loader)
        assert len(found) == len(set(found)) == 18
        assert np.bincount(CLASSES[found]).tolist() == [6, 6, 6]
        all_seen.update(found)
    assert len(all_seen) > 120
    some = Loader(arrays, Rows(balance="label", samples=60), batch_size=4)
    assert len(some) == 15
    strings = np.array(["a", "b", "cat"])[CLASSES]
    gzarr.create_array(tmp_path / "names", data=strings, chunks=50)
    by_name = Loader(arrays | {"names": tmp_path / "names"}, Rows(balance="names"), batch_size=4)
    in_memory = Loader(arrays, Rows(balance=strings), batch_size=4)
    assert numbers(by_name) == numbers(in_memory)


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("sizes", [(10, 40, 50), (6, 60, 60), (5, 7, 9, 200), (1, 1), (3, 500)])
def test_each_class_comes_as_often_as_the_others(sizes: tuple[int, ...], shuffle: Any) -> None:
    """Not only in the mean: in each epoch."""
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    options: dict[str, Any] = {"batch_size": 1, "shuffle": shuffle, "drop_last": False}
    arrays = {"x": np.arange(len(label)), "label": label}
    where = rng.permutation(len(label))
    for sampler, wanted in (
        (Rows(balance="label", replace=False), [min(sizes)] * len(sizes)),
        (Rows(balance="label", replace=False, where=where), [min(sizes)] * len(sizes)),
        (Rows(balance=label, samples=12 * len(sizes)), [12] * len(sizes)),
        (Windows(0, {"x": (0, 0)}, balance="label", samples=12 * len(sizes)), [12] * len(sizes)),
    ):
        loader = Loader(arrays, sampler, **options)
        orders = set()
        for _ in range(5):
            found = numbers(loader)
            assert np.bincount(label[where[found] if sampler.where is where else found]).tolist() == wanted
            orders.add(tuple(sorted(found)))
        assert len(orders) > 1 or sum(wanted) in (len(label), 12 * len(label))
    whole = Loader(arrays, Rows(balance="label"), **options)
    for _ in range(5):
        times = np.bincount(label[numbers(whole)])
        assert times.sum() == len(label)
        assert times.max() - times.min() <= 1


def test_classes_over_all_volumes(tmp_path: Path) -> None:
    volumes = [table(tmp_path / "a"), table(tmp_path / "b", np.repeat([1, 2], [20, 4]))]
    seen: Counter[int] = Counter()
    for batch in Loader(volumes, Rows(balance="label"), batch_size=8, drop_last=False):
        seen.update(batch["label"].tolist())
    assert sum(seen.values()) == len(CLASSES) + 24
    assert max(seen.values()) - min(seen.values()) <= 8


def test_where_and_weights(tmp_path: Path) -> None:
    arrays = table(tmp_path)
    where = np.flatnonzero(CLASSES > 0)
    for sampler in (
        Rows(where=where, balance="label"),
        Rows(where=where, weights=np.where(CLASSES == 2, 5.0, 1.0)),
        Rows(where=where, weights=np.where(CLASSES[where] == 2, 5.0, 1.0)),
        Rows(where=CLASSES > 0),
    ):
        found = [row for batch in Loader(arrays, sampler, batch_size=1) for row in batch["x"][:, 0].tolist()]
        assert len(found) == 36
        assert set(found) <= set(where.tolist())
        if sampler.where is where:
            assert np.count_nonzero(CLASSES[found] == 2) == pytest.approx(18, abs=2)


def test_windows_by_class(tmp_path: Path) -> None:
    arrays = table(tmp_path)
    loader = Loader(arrays, Windows(0, {"x": (-1, 0)}, balance="label"), batch_size=1)
    seen = Counter(int(batch["x"]["label"][0, 1]) for batch in loader)
    assert max(seen.values()) - min(seen.values()) <= 8
    by_step = np.zeros(len(CLASSES))
    by_step[[50, 60]] = 1
    loader = Loader(arrays, Windows(0, {"x": (-1, 2)}, weights=by_step, samples=10), batch_size=1)
    assert sorted(int(batch["x"]["x"][0, 1, 0]) for batch in loader) == [50] * 5 + [60] * 5


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    "sampler",
    [Rows(balance="label"), Rows(weights=CLASSES + 1.0, samples=100, replace=False)],
    ids=["class", "weights"],
)
def test_states(tmp_path: Path, sampler: Rows, shuffle: Any) -> None:
    arrays = table(tmp_path)
    options: dict[str, Any] = {"batch_size": 8, "shuffle": shuffle, "seed": 3}
    loader = Loader(arrays, sampler, **options)
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) != sorted(second)
    again = Loader(arrays, sampler, **options)
    batches = iter(again)
    begun = [number for _ in range(4) for number in next(batches).samples.tolist()]
    state = again.state_dict()
    del batches
    other = Loader(arrays, sampler, **options)
    other.load_state_dict(state)
    assert begun + numbers(other) == first
    assert numbers(other) == second
    # Other weights make another order.
    changed = Loader(arrays, Rows(weights=CLASSES + 2.0), **options)
    with pytest.raises(gzarr.ArgumentError, match="the sampler has changed"):
        changed.load_state_dict(state)


def test_a_part_of_a_volume_is_a_random_one(tmp_path: Path) -> None:
    volumes = [table(tmp_path / "a"), table(tmp_path / "b")]
    loader = Loader(volumes, batch_size=4, weights=[0.5, 1], drop_last=False)
    halves = [{n for n in numbers(loader) if n < len(CLASSES)} for _ in range(2)]
    assert [len(half) for half in halves] == [168, 168]
    # Neither every second one, nor the same.
    assert 60 < len(halves[0] & halves[1]) < 110
    assert any(n + 1 in halves[0] for n in halves[0])


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Rows(balance="class"), "balance='class' names no array"),
        (Rows(balance="x"), "one class for each row"),
        (Rows(balance=[1, 2]), "2 classes for 336 rows"),
        (Rows(balance="label", weights=np.ones(336)), "not both"),
        (Rows(weights=np.ones(4)), "weights must be 336 numbers"),
        (Rows(weights=np.zeros(336)), "not all of them 0"),
        (Rows(weights=np.full(336, np.nan)), "weights must be numbers of at least 0, but weight 0 is nan"),
        (Rows(weights=[1.0] * 9 + [-2.0] * 327), "but weight 9 is -2.0"),
        (Rows(weights=[1.0] * 335 + [np.inf]), "but weight 335 is inf"),
        # The number of its row, or its place in a list of those of the chosen rows.
        (Rows(where=[5, 300], weights=[1.0] * 300 + [-1.0] * 36), "but weight 300 is -1.0"),
        (Rows(where=[5, 300], weights=[1.0, np.nan]), "but weight 1 is nan"),
        (Rows(weights="heavy"), "weights must be numbers"),
        (Rows(samples=-1), "samples must be"),
        (Rows(samples=2.5), "samples must be"),  # type: ignore[arg-type]
        (Rows(samples=400, replace=False), "samples=400 without replacement"),
        (Rows(weights=CLASSES * 1.0, samples=40, replace=False), "there are 36 to draw from"),
        (Rows(weights=np.ones(336), replace=False), "need samples="),
        (Rows(balance="label", samples=337, replace=False), "there are 336"),
    ],
)
def test_bad_arguments(tmp_path: Path, sampler: Rows, message: str) -> None:
    arrays = table(tmp_path)
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(arrays, sampler)


def test_numbers_of_samples_have_no_weights(tmp_path: Path) -> None:
    arrays = table(tmp_path)
    for sampler in (
        Rows(weights=np.ones(336)),
        Rows(balance="label"),
        Rows(samples=3),
        Windows(0, {"x": (0, 1)}, every=2),
    ):
        with pytest.raises(gzarr.ArgumentError, match="no meaning"):
            Dataset(arrays, sampler)
    assert len(Dataset(arrays, Patches((1,), where=[(0,), (3,)], axes=(0,)))) == 2
