"""The order of samples as a training sees it: classes, pairs and places are those of a global shuffle."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows
from gzarr.loader.order import EpochOrder, Order

if TYPE_CHECKING:
    import numpy.typing as npt

ROWS, CLASSES, EPOCHS = 3840, 10, 20
#: A table sorted by class.
LABELS = np.repeat(np.arange(CLASSES), ROWS // CLASSES)
LAYOUTS: dict[str, dict[str, Any]] = {
    "one chunk": {"chunks": ROWS},
    "two chunks": {"chunks": ROWS // 2},
    "64 chunks": {"chunks": 60},
    "480 chunks": {"chunks": 8},
    "shards": {"chunks": 60, "shards": 960},
}


def orders(seed: int, epochs: int, size: int, groups: int) -> list[npt.NDArray[np.int64]]:
    """Return the samples of some epochs in their order; all groups fit the buffer."""
    offsets = np.arange(0, groups * size + 1, size)
    count = np.arange(groups * size)
    order = Order("blocks", 1 << 30, 64, seed)
    return [EpochOrder(order, epoch, offsets).samples(count) for epoch in range(epochs)]


@pytest.mark.parametrize("world_size", [1, 2, 6, 8])
@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"data": (0, 0)})], ids=["rows", "windows"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_rank_meets_all_classes(layout: str, sampler: Any, world_size: int) -> None:
    """The classes of a rank in an epoch differ from the mean as by chance: chi-squared, nine degrees of freedom.

    A rank of whole groups, each of one class, differs as if it had as many samples as it has groups.
    """
    labels = gzarr.array(LABELS, device="cpu", **LAYOUTS[layout])
    loader = Loader(labels, sampler, seed=3, world_size=world_size)
    size, expected = labels.chunks[0], ROWS / world_size / CLASSES
    for rank in range(world_size):
        found, groups = [], []
        for epoch in range(EPOCHS):
            numbers = loader._of_epoch(epoch).order.samples(np.arange(rank, ROWS, world_size))
            counts = np.bincount(LABELS[numbers], minlength=CLASSES)
            found.append(((counts - expected) ** 2).sum() / expected / max(1 - 1 / world_size, 0.5))
            groups.append(len(np.unique(numbers // size)))
        each = ROWS / world_size / min(groups)
        # A few may be missed by chance.
        assert min(groups) >= 0.9 * min(64, ROWS // size)
        # A rank that reads all groups has samples as by chance. 20 epochs: four standard errors are 3.8.
        allowed = 13.0 if min(groups) >= 0.9 * ROWS // size else 13.0 * each
        assert np.mean(found) <= allowed, (rank, found)


@pytest.mark.parametrize("world_size", [1, 2, 6, 8])
@pytest.mark.parametrize("jitter", [False, True])
@pytest.mark.parametrize("chunks", [(40, 48, 48), (4, 8, 8), (8, 48, 48), (40, 8, 8)])
def test_patches_of_each_rank_are_of_all_classes(chunks: tuple[int, ...], jitter: bool, world_size: int) -> None:
    """Of a volume whose ten classes lie one above the other; random places lie within groups of chunks."""
    volume = gzarr.create_array({}, shape=(40, 48, 48), dtype="u1", chunks=chunks, device="cpu")
    loader = Loader(volume, Patches((4, 8, 8), jitter=jitter), seed=5, world_size=world_size)
    count = 360
    expected = count / world_size / CLASSES
    for rank in range(world_size):
        found, shares, whole = [], [], True
        each = 1.0
        for epoch in range(EPOCHS):
            this = loader._of_epoch(epoch)
            numbers = this.order.samples(np.arange(rank, count, world_size))
            sizes = np.diff(this.cells.offsets)
            available = len(sizes)
            groups = len(np.unique(this.cells.each[0].groups(numbers)))
            # If samples were drawn.
            shares.append(groups / min(64, (1 - (1 - sizes / count) ** len(numbers)).sum()))
            assert shares[-1] >= 0.5
            whole, each = whole and groups >= 0.9 * available, max(each, len(numbers) / groups)
            counts = np.bincount(this.origins(numbers)[:, 0] // 4, minlength=CLASSES)
            found.append(((counts - expected) ** 2).sum() / expected / max(1 - 1 / world_size, 0.5))
        # As many as if samples were drawn, at least.
        assert np.mean(shares) >= 0.9
        if not jitter:
            assert np.mean(found) <= (13.0 if whole else 13.0 * each), (rank, found)


def test_random_crops_never_repeat() -> None:
    volume = gzarr.create_array({}, shape=(64, 96, 96), dtype="u1", chunks=32, device="cpu")
    loader = Loader(volume, Patches((16, 16, 16), jitter=True), seed=5)
    seen = [tuple(origin) for epoch in range(EPOCHS) for origin in origins_of(loader, epoch)]
    assert len(seen) == EPOCHS * 4 * 6 * 6
    # By chance, a pair of 320,000 places or so.
    assert len(set(seen)) >= len(seen) - 40


def origins_of(loader: Loader, epoch: int) -> list[list[int]]:
    this = loader._of_epoch(epoch)
    return this.origins(np.arange(this.samples.count)).tolist()


def test_loaders_of_two_ranks_give_out_what_the_order_says() -> None:
    labels = gzarr.array(LABELS, device="cpu", chunks=ROWS // 2)
    for rank in range(2):
        loader = Loader(labels, batch_size=16, seed=3, rank=rank, world_size=2)
        for epoch in range(2):
            found = np.concatenate([batch["data"] for batch in loader])
            assert np.array_equal(found, LABELS[loader._of_epoch(epoch).order.samples(np.arange(rank, ROWS, 2))])


@pytest.mark.parametrize("groups", [1, 4, 32])
def test_pairs_meet_in_a_batch_as_often_as_by_chance(groups: int) -> None:
    """Neighbours in particular, and samples at any distance; those of one group no more often than others."""
    rows, batch, epochs = 512, 16, 300
    met = np.zeros((rows, rows))
    for order in orders(5, epochs, rows // groups, groups):
        for members in order.reshape(-1, batch):
            met[np.ix_(members, members)] += 1
    chance = epochs * (batch - 1) / (rows - 1)
    for distance in range(1, rows // 2):
        assert np.diagonal(met, distance).mean() <= 1.1 * chance, distance
    if groups == 1:
        assert np.diagonal(met, 1).mean() >= 0.9 * chance


@pytest.mark.parametrize("groups", [1, 4, 32, 128])
def test_samples_come_at_any_place_of_an_epoch(groups: int) -> None:
    rows, epochs = 1024, 200
    places = np.array([np.argsort(order) for order in orders(9, epochs, rows // groups, groups)])
    # The means of uniform places, and how many places two epochs have in common.
    errors = (places.mean(axis=0) - (rows - 1) / 2) / (rows / np.sqrt(12 * epochs))
    assert abs(errors).max() < 5
    assert 0.9 < errors.std() < 1.1
    assert (places[:100] == places[100:]).mean() < 3 / rows
    # The first 16 are others in each epoch.
    first = [set(np.argsort(place)[:16]) for place in places]
    common = np.mean([len(a & b) for a, b in itertools.pairwise(first)])
    assert common < 3 * 16 * 16 / rows


def test_each_stream_has_samples_of_enough_groups() -> None:
    for groups, size, block in ((6, 100, 1 << 20), (100, 10, 1 << 20), (100, 10, 200), (1000, 4, 1 << 20)):
        order = EpochOrder(Order("blocks", block, 64, 1), 0, np.arange(0, groups * size + 1, size))
        for stream in (0, 1, 63):
            samples = order.samples(np.arange(stream, order.count, 64))
            # A stream of few samples cannot have more groups than these, and draws some twice.
            assert len(np.unique(samples // size)) >= 0.6 * min(64, groups, len(samples))


@pytest.mark.parametrize("world_size", [3, 6, 12, 96, 100, 128])
def test_any_number_of_ranks_shares_an_epoch(world_size: int) -> None:
    labels = gzarr.array(np.arange(1000), device="cpu", chunks=100)
    loaders = [Loader(labels, drop_last=False, rank=r, world_size=world_size) for r in range(world_size)]
    streams = {loader.state_dict()["streams"] for loader in loaders}
    assert len(streams) == 1
    assert not streams.pop() % world_size
    found = [x for loader in loaders[:12] for batch in loader for x in batch["data"].tolist()]
    assert len(set(found)) == len(found) > 0
    if world_size <= 12:
        assert sorted(found) == list(range(1000))


def accuracy(loader: Any, weights: npt.NDArray[np.float64], test: tuple[Any, Any]) -> float:
    """Train a softmax regression by mini-batches for three epochs; return its accuracy."""
    weights = weights.copy()
    for _ in range(3):
        for batch in loader:
            x = np.hstack([batch["x"], np.ones((len(batch["x"]), 1))])
            scores = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
            scores[np.arange(len(x)), batch["y"]] -= 1
            weights -= 0.2 * x.T @ scores / len(x)
    x, y = test
    return float(((np.hstack([x, np.ones((len(x), 1))]) @ weights).argmax(axis=1) == y).mean())


def table(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], tuple[Any, Any]]:
    """Return a row of 16 numbers for each label, and a test set of all classes alike."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 0.6, (CLASSES, 16))
    x = centres[labels] + rng.normal(size=(len(labels), 16))
    y = rng.integers(0, CLASSES, 20_000)
    return x, (centres[y] + rng.normal(size=(len(y), 16)), y)


def mean_accuracy(arrays: Any, test: tuple[Any, Any], *sampler: Any, seeds: int = 6, **options: Any) -> float:
    """Return the accuracy of some trainings, in the mean, if ``explain`` finds the mixing enough."""
    loaders = [Loader(arrays, *sampler, batch_size=32, seed=seed, **options) for seed in range(seeds)]
    assert loaders[0].explain().mixing.is_enough
    return float(np.mean([accuracy(loader, np.zeros((17, CLASSES)), test) for loader in loaders]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_learns_as_from_a_global_shuffle(layout: str) -> None:
    """Softmax regression on a table sorted by class: within half a point where ``explain`` finds the mixing enough."""
    x, test = table(LABELS)
    options = LAYOUTS[layout]
    wide = {name: (n, 16) for name, n in options.items()}
    arrays = {"x": gzarr.array(x, device="cpu", **wide), "y": gzarr.array(LABELS, device="cpu", **options)}
    expected = mean_accuracy(arrays, test, shuffle="full")
    assert 0.6 < expected < 0.95
    assert abs(mean_accuracy(arrays, test) - expected) < 0.005
    # In their own order, which forgets the first classes: the test is able to fail.
    assert accuracy(Loader(arrays, batch_size=32, shuffle=False), np.zeros((17, CLASSES)), test) < expected - 0.1


@pytest.mark.parametrize("stored", [True, False], ids=["labels in one chunk", "labels of NumPy"])
def test_labels_do_not_ask_for_large_groups(stored: bool) -> None:
    """Groups of many rows, made to decode labels once, would leave two or three groups to be mixed in this buffer."""
    x, test = table(LABELS)
    labels: Any = LABELS.astype("u1")
    if stored:
        labels = gzarr.array(labels, chunks=ROWS, device="cpu")
        assert labels.compressors
    arrays = {"x": gzarr.array(x, device="cpu", chunks=(1, 16)), "y": labels}
    explanation = Loader(arrays, batch_size=32, buffer_bytes=128 << 10).explain()
    assert explanation.mixing.groups > 400
    assert explanation.amplification < 1.1
    expected = mean_accuracy(arrays, test, shuffle="full")
    assert abs(mean_accuracy(arrays, test, buffer_bytes=128 << 10) - expected) < 0.005


def test_columns_beside_images_do_not_ask_for_large_groups() -> None:
    """A label and two more columns, too large to be left out of account: within a point of a global shuffle."""
    x, test = table(LABELS)
    columns = {"y": LABELS, "index": np.arange(ROWS), "weight": np.ones(ROWS)}
    arrays = {name: gzarr.array(data, chunks=ROWS, device="cpu") for name, data in columns.items()}
    arrays["x"] = gzarr.array(x, device="cpu", chunks=(1, 16))
    loader = Loader(arrays, batch_size=32, buffer_bytes=128 << 10)
    assert loader.explain().mixing.groups > 200
    expected = mean_accuracy(arrays, test, seeds=3, shuffle="full")
    assert abs(mean_accuracy(arrays, test, seeds=3, buffer_bytes=128 << 10) - expected) < 0.01


def test_rare_classes_are_mixed_with_the_others() -> None:
    """Rows of a rare class come many times, and not all in one block, if classes come equally often."""
    sizes = [ROWS // 10] * (CLASSES - 2) + [8, 24]
    labels = np.repeat(np.arange(CLASSES), sizes)
    x, test = table(labels)
    arrays = {"x": gzarr.array(x, device="cpu", chunks=(4, 16)), "y": labels}
    expected = mean_accuracy(arrays, test, Rows(balance="y"), shuffle="full")
    assert expected > 0.4
    assert abs(mean_accuracy(arrays, test, Rows(balance="y"), buffer_bytes=160 << 10) - expected) < 0.01
