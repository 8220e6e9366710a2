"""Which samples of each of several volumes an epoch has: others in each epoch, as many as expected in the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loaders import SHUFFLES

import gzarr
from gzarr.loader import Loader, Rows, Windows
from gzarr.loader.drawing import drawn_counts, total_count
from gzarr.loader.permutation import mix

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def clips(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return volumes whose elements are the numbers of all samples, with classes: 1 is rare, and in the first ones."""
    ends = np.cumsum(sizes)
    return [
        {"x": np.arange(n) + end - n, "k": (np.arange(n) == 3) & (end < 80)} for n, end in zip(sizes, ends, strict=True)
    ]


def times(loader: Loader, total: int, epoch: int = 0) -> Any:
    """Return how often each sample comes in an epoch, of which nothing is read."""
    cells = loader._of_epoch(epoch).cells
    return np.bincount(cells.labels(np.arange(cells.first[-1])), minlength=total)


@settings(max_examples=200, deadline=None)
@given(expected=st.lists(st.floats(0, 50), min_size=1, max_size=30), seed=st.integers(0, 2**63))
def test_counts_are_those_expected_rounded_up_or_down(expected: list[float], seed: int) -> None:
    counts = drawn_counts(expected, mix(seed))
    assert sum(counts) == total_count(expected)
    assert all(np.floor(e) <= n <= np.ceil(e) for e, n in zip(expected, counts, strict=True))


def test_counts_are_those_expected_in_the_mean() -> None:
    expected = [0.5, 0.25, 2.75, 3, 0, 1.5, 0.1, 0.9]
    mean = np.mean([drawn_counts(expected, mix(seed)) for seed in range(4000)], axis=0)
    assert np.abs(mean - expected).max() < 0.03


def test_the_rounding_of_all_counts_is_shared_in_proportion() -> None:
    counts = np.array([drawn_counts([0.4, 1.4, 0.7], mix(seed)) for seed in range(4000)])
    assert set(counts.sum(axis=1)) == {2}
    # One of the fractions, which are 1.5 together, is rounded up.
    assert np.abs(counts.mean(axis=0) - [0.4 / 1.5, 1 + 0.4 / 1.5, 0.7 / 1.5]).max() < 0.03


@pytest.mark.parametrize(("weight", "size"), [(0.5, 1), (0.25, 2), (0.1, 4), (0.5, 3), (1.3, 2)])
def test_parts_of_short_volumes(weight: float, size: int) -> None:
    loader = Loader(clips([size] * 50), weights=[weight] * 50, batch_size=10, drop_last=False)
    epochs = [times(loader, 50 * size, epoch) for epoch in range(60)]
    assert {int(each.sum()) for each in epochs} == {round(50 * size * weight)}
    assert len(loader) == -(-round(50 * size * weight) // 10)
    assert len({each.tobytes() for each in epochs}) > 50
    mean = np.mean(epochs, axis=0)
    # Six standard deviations of a sample that comes or does not.
    assert np.abs(mean - weight).max() < 6 * np.sqrt(0.25 / 60)
    assert max(each.max() for each in epochs) <= np.ceil(weight)
    assert abs(mean.mean() - weight) < 1e-9


def test_volumes_have_other_rows() -> None:
    loader = Loader(clips([20] * 40), Rows(samples=1), batch_size=40)
    assert len(set((np.flatnonzero(times(loader, 800)) % 20).tolist())) > 10


@pytest.mark.parametrize("options", [{"replace": False}, {"samples": 1}])
def test_classes_over_many_volumes(options: dict[str, Any]) -> None:
    volumes = clips([20] * 30)
    rare = np.concatenate([volume["k"] for volume in volumes])
    number = 2 * int(rare.sum()) if "replace" in options else 30
    loader = Loader(volumes, Rows(balance="k", **options), batch_size=number)
    together = {"x": np.arange(600), "k": rare}
    one = Loader(
        together, Rows(balance="k", **options | ({"samples": 30} if "samples" in options else {})), batch_size=number
    )
    both = [[times(each, 600, epoch) for epoch in range(80)] for each in (loader, one)]
    for epochs in both:
        for each in epochs:
            assert each.sum() == number
            assert each[rare].sum() == each[~rare].sum() == number // 2
    seen, of_one = (np.sum(epochs, axis=0) for epochs in both)
    assert (seen.reshape(30, 20).sum(axis=1) > 0).all()
    assert np.count_nonzero(seen) > 0.9 * np.count_nonzero(of_one)


def test_as_many_of_each_class_as_the_smallest_has() -> None:
    rng = np.random.default_rng(0)
    labels = [rng.choice(5, 50, p=(0.1, 0.2, 0.2, 0.3, 0.2)), rng.choice(5, 33)]
    volumes = [{"x": np.arange(len(k)), "k": k} for k in labels]
    least = int(np.bincount(np.concatenate(labels)).min())
    for shuffle in SHUFFLES:
        loader = Loader(volumes, Rows(balance="k", replace=False), batch_size=5, shuffle=shuffle, drop_last=False)
        for _ in range(5):
            assert np.bincount(np.concatenate([batch["k"] for batch in loader])).tolist() == [least] * 5


def test_a_class_of_one_volume_without_replacement() -> None:
    volumes = [{"x": np.arange(2), "k": np.ones(2, int)}, {"x": np.arange(98) + 2, "k": np.zeros(98, int)}]
    loader = Loader(volumes, Rows(balance="k", samples=10, replace=False), batch_size=20)
    found = times(loader, 100)
    assert found[:2].tolist() == [1, 1]
    assert found.sum() == 20
    assert found.max() == 1
    with pytest.raises(
        gzarr.ArgumentError, match="samples=51 of each of 2 volumes without replacement, but there are 100"
    ):
        Loader(volumes, Rows(balance="k", samples=51, replace=False), batch_size=20)


def test_classes_and_weights_of_volumes() -> None:
    loader = Loader(clips([40, 40]), Rows(balance=np.arange(40) % 2), weights=[0.25, 1], batch_size=50)
    for epoch in range(3):
        found = times(loader, 80, epoch)
        assert found[:40].sum() == pytest.approx(10, abs=2)
        assert found.sum() == 50
        assert found[::2].sum() == 25


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    ("sampler", "weights"),
    [
        (Rows(), [0.5, 0.3, 1.25] * 4),
        (Rows(balance="k"), None),
        (Rows(balance="k", replace=False), [1, 0.5, 2] * 4),
        (Rows(samples=3), [1, 0.5, 1] * 4),
        (Windows(0, {"y": (0, 0)}, every=2), [0.5, 1, 2] * 4),
    ],
    ids=["weights", "classes", "both", "samples", "every"],
)
def test_states(sampler: Any, weights: Any, shuffle: Any) -> None:
    """A state goes on exactly, also with another number of ranks and another size of batches."""

    def made(batch_size: int, rank: int = 0, world_size: int = 1) -> Loader:
        return Loader(
            clips([5, 9, 14] * 4), sampler, weights=weights, batch_size=batch_size, rank=rank, world_size=world_size,
            shuffle=shuffle, seed=7, streams=6, drop_last=False, buffer_bytes=600,
        )  # fmt: skip

    whole = made(1)
    epochs = [[int(batch.samples[0]) for batch in whole] for _ in range(3)]
    assert len(epochs[0]) == len(whole) == len(epochs[1])
    assert sorted(epochs[0]) != sorted(epochs[1])
    for (ranks, batch_size), (again, size) in (((2, 3), (1, 5)), ((2, 3), (6, 1)), ((6, 1), (2, 2))):
        begun = [made(batch_size, rank, ranks) for rank in range(ranks)]
        for loader in begun:
            loader.set_epoch(1)
            for _, _ in zip(range(2), loader, strict=False):
                pass
        states = [loader.state_dict() for loader in begun]
        assert all(state == states[0] for state in states)
        cursor = states[0]["cursor"]
        assert 0 < cursor < len(epochs[1])
        found = np.full(len(epochs[1]), -1)
        for rank in range(again):
            loader = made(size, rank, again)
            loader.load_state_dict(states[0])
            own = [n for batch in loader for n in batch.samples.tolist()]
            found[cursor + (rank - cursor) % again :: again] = own
        assert found[cursor:].tolist() == epochs[1][cursor:]


@pytest.mark.parametrize(
    ("sampler", "weights", "before"),
    [
        (Rows(), [0.5, 1, 1.5], "22:fe6e.3d29.091e.0678.5ff9.4946:937e:df09:95a9f8b4135e1ab8"),
        (Rows(balance="k"), None, "21:fe6e.3d29.091e.0678.5ff9.4946:ae2e:df09:823dcf92942c4bd6"),
        (Rows(samples=2), None, "6:fe6e.3d29.091e.0678.5ff9.4946:f5d0:df09:1be85ab54e8c639b"),
    ],
)
def test_states_of_another_way_to_draw_are_refused(sampler: Any, weights: Any, before: str) -> None:
    loader = Loader(clips([6, 7, 8]), sampler, weights=weights)
    state = loader.state_dict() | {"fingerprint": before}
    with pytest.raises(gzarr.ArgumentError, match="sampler has changed"):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("sampler", "weights", "fingerprint"),
    [
        (Rows(), None, "21:fe6e.3d29.091e.0678.5ff9.4946:d16f:df09:1c3f7dc354c1c304"),
        (Rows(), [1, 2, 0], "20:fe6e.3d29.091e.0678.5ff9.4946:605c:5501:4de75dab489df1c4"),
        (Windows(0, {"y": (0, 1)}, every=2), None, "8:fe6e.3d29.091e.0678.5ff9.4946:bb79:9461:eb5a15c74f74ec42"),
    ],
)
def test_fingerprints_stay_where_nothing_is_drawn(sampler: Any, weights: Any, fingerprint: str) -> None:
    assert Loader(clips([6, 7, 8]), sampler, weights=weights).fingerprint == fingerprint
