"""What is drawn comes as often as is said: places, classes, volumes. It stays so when the user's arrays change."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


@pytest.mark.parametrize("size", [512, 520])
@pytest.mark.parametrize(
    "options",
    [{"pad": None}, {"flip": True}, {"stride": 32, "shape": 100}, {"stride": 128}],
    ids=["patches", "flips", "long", "apart"],
)
def test_all_places_come_equally_often_in_blocks(size: int, options: dict[str, Any]) -> None:
    array = gzarr.array(np.zeros((size, 8), "u1"), chunks=(64, 8))
    length, stride = options.get("shape", 64), options.get("stride", 64)
    sampler = Patches(**options | {"shape": (length, 8), "stride": (stride, 8), "jitter": True})
    loader = Loader(array, sampler, batch_size=1, prefetch=0, buffer_bytes=4096)
    # Of few samples, as many epochs as make six standard errors of a part less than a third.
    drawn = [loader._of_epoch(e).origins(np.arange(loader._volumes.count))[:, 0] for e in range(500)]
    counts = np.bincount(np.concatenate(drawn), minlength=size - length + 1)
    assert len(counts) == size - length + 1
    parts = [part.mean() / counts.mean() for part in (*np.array_split(counts, 12), counts[:9], counts[-9:])]
    assert min(parts) > 0.67
    assert max(parts) < 1.33
    # Neighbouring groups have no chunk in common.
    assert len(list(loader)) == len(drawn[0])
    assert loader.stats().chunks <= -(-size // 64) + (options.get("shape", 0) > 0) * 4


def test_more_cells_than_places_share_these_evenly() -> None:
    loader = Loader(np.zeros(520), Patches((64,), stride=1, jitter=True), batch_size=8, shuffle="full")
    drawn = [loader._of_epoch(e).origins(np.arange(520))[:, 0] for e in range(200)]
    counts = np.bincount(np.concatenate(drawn))
    assert len(counts) == 457
    # About 1.14 an epoch, and each once or twice, or missing.
    assert counts.min() > 0.75 * counts.mean()
    assert counts.max() < 1.25 * counts.mean()


@pytest.mark.parametrize("weighed", [False, True], ids=["mask", "weights"])
def test_random_places_of_what_is_chosen_are_inside(weighed: bool) -> None:
    options: Any = {"weights": np.ones(14)} if weighed else {"where": np.ones(41, bool)}
    loader = Loader(np.arange(41), Patches((7,), stride=3, jitter=True, pad=None, **options), batch_size=14)
    for _ in range(20):
        (batch,) = loader
        np.testing.assert_array_equal(batch["data"], batch.origins + np.arange(7))
    with pytest.raises(gzarr.ArgumentError, match="where= has patches that are not inside of the array"):
        Loader(np.arange(41), Patches((7,), jitter=True, pad=None, where=[[40]]))


def test_stages_have_what_was_given() -> None:
    where, valid, weights, rollout = np.arange(4), np.ones(20, bool), np.ones(4), {"y": [1, 2]}
    sampler = Windows(
        0, steps={"x": (0,), "y": (1, 2)}, rollout=rollout, where=where, valid=valid, weights=weights, samples=4
    )
    loader = Loader(np.arange(20), sampler, batch_size=4, shuffle=False)
    dataset = Dataset(np.arange(20), Windows(0, steps=sampler.steps, rollout=rollout, where=where))
    rows = Loader(np.arange(4), Rows(weights=weights))
    where[:], valid[:], weights[:], rollout["y"] = 10, False, [0, 0, 0, -1], [2, 1]
    for steps in (1, 2):
        (batch,) = loader
        assert batch["x"].ravel().tolist() == [0, 1, 2, 3]
        assert batch["y"].shape == (4, steps)
        dataset.set_epoch(steps - 1)
        assert [sample["y"].tolist() for sample in dataset] == [list(range(n + 1, n + 1 + steps)) for n in range(4)]
    assert rows.explain() is not None


def test_steps_may_be_what_cannot_be_copied() -> None:
    steps: Any = MappingProxyType({"x": (0,), "y": {1: 0, 2: 0}.keys()})
    (batch,) = Loader(np.arange(20), Windows(0, steps=steps), batch_size=18)
    assert batch["y"].shape == (18, 2)
    view: Any = memoryview(b"steps")
    with pytest.raises(gzarr.ArgumentError, match="must be a dict by name"):
        Loader(np.arange(20), Windows(0, steps=view))


LABELS = [np.repeat([0, 1], [10, 30]), np.repeat([0, 1], [30, 10])]


@pytest.mark.parametrize(
    ("replace", "weights", "classes", "volumes", "most"),
    [
        (True, [1, 0], [20, 20], [40, 0], [2, 0]),
        (True, [2, 1], [60, 60], [80, 40], [4, 2]),
        (False, [2, 1], [60, 60], [80, 40], [3, 1]),
        (False, [0.5, 0.25], [15, 15], [20, 10], [1, 1]),
        (False, [1, 0], [10, 30], [40, 0], [1, 0]),
    ],
)
def test_classes_of_volumes_with_weights(
    replace: bool, weights: list[float], classes: list[int], volumes: list[int], most: list[int]
) -> None:
    loader = Loader(
        [{"y": labels} for labels in LABELS], Rows(balance="y", replace=replace), weights=weights, batch_size=1
    )
    means = []
    for epoch in range(40):
        cells = loader._of_epoch(epoch).cells
        times = np.bincount(cells.labels(np.arange(cells.first[-1])), minlength=80)
        assert np.bincount(np.concatenate(LABELS), times).tolist() == classes
        assert times.reshape(2, 40).max(axis=1).tolist() <= most
        means.append(times.reshape(2, 40).sum(axis=1))
    assert np.abs(np.mean(means, axis=0) - volumes).max() < 1.5


def test_classes_come_equally_often_where_samples_come_twice() -> None:
    loader = Loader({"y": LABELS[0]}, Rows(balance="y", replace=False), weights=[3], batch_size=60)
    for _ in range(3):
        (batch,) = loader
        assert np.bincount(batch["y"]).tolist() == [30, 30]
        assert np.bincount(batch.samples).tolist() == [3] * 10 + [1] * 30


def test_a_mask_by_halves_along_one_axis_and_thirds_along_the_other_is_refused() -> None:
    mask = np.zeros((2, 4), bool)
    mask[0] = True
    array = np.arange(48).reshape(4, 12)
    with pytest.raises(gzarr.ArgumentError, match="one may stand for 2 or 3 of them"):
        Loader(array, Patches((1, 12), where=mask))


def test_a_sample_that_comes_twice_has_two_poses() -> None:
    volume = np.random.default_rng(0).random((96, 8), "f4")
    sampler = Patches((8, 8), rotate=True, weights=np.r_[np.ones(10), 0, 0], samples=9, replace=False)
    loader = Loader([volume, volume.copy()], sampler, weights=[1.15, 1.15], batch_size=21)
    for _ in range(3):
        (batch,) = loader
        assert len(np.unique(batch.samples)) == 20
        assert len(np.unique(batch["data"].reshape(21, -1), axis=0)) == 21
