"""Numbers that loaders and samplers are given, or reckon with, at their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Loader, Part, Patches, Rows, Sampler, Samples, Windows
from gzarr.loader.weighing import _at_most

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gzarr.loader import Geometry

X = np.arange(40.0).reshape(20, 2)


def test_no_volume_has_more_samples_than_rows() -> None:
    """Shares of volumes are rounded."""
    labels = [[3, 5, 3, 2, 4, 0, 2, 0, 2, 0, 0], [2, 0, 3, 4], [3, 4, 4], [0, 0, 0, 4], [0, 2, 3, 1, 5, 0]]
    loader = Loader([{"y": np.array(y)} for y in labels], Rows(balance="y", samples=5, replace=False))
    batches = list(loader)
    samples = np.concatenate([batch.samples for batch in batches])
    assert len(samples) == len(set(samples.tolist())) == 25
    assert np.array_equal(np.concatenate([batch["y"] for batch in batches]), np.concatenate(labels)[samples])


def test_rounded_shares_fit_in_each_volume() -> None:
    random = np.random.default_rng(0)
    changed = 0
    for _ in range(300):
        rows = random.integers(0, 5, random.integers(1, 7))
        borders = np.append(0, np.cumsum(rows))
        inner = np.sort(random.integers(0, borders[-1] + 1, len(rows)))
        given = np.append(0, inner)
        found = np.diff(_at_most(given, borders))
        assert found.sum() == given[-1]
        assert ((found >= 0) & (found <= rows)).all()
        if (np.diff(given) <= rows).all():
            assert np.array_equal(found, np.diff(given))
        else:
            changed += 1
    assert changed > 100


@pytest.mark.parametrize("named", [{"runs": {"x": (0, 0), "y": (1, 4)}}, {"steps": {"x": (0,), "y": (1, 2, 3, 4)}}])
def test_datasets_have_the_steps_of_their_epoch(named: Any) -> None:
    dataset = Dataset(X, Windows(0, rollout={"y": (1, 1, 4)}, **named))
    assert len(dataset) == 16
    for epoch, steps in ((None, 1), (1, 1), (2, 4), (9, 4), (0, 1)):
        if epoch is not None:
            dataset.set_epoch(epoch)
        assert np.array_equal(dataset[3]["y"], X[4 : 4 + steps])
        assert np.array_equal(dataset[15]["x"], X[15:16])


@pytest.mark.parametrize(
    "sampler",
    [Windows(0, {"x": (0, 1)}, valid=np.arange(20) != 9), Patches((2, 2), jitter=True, where=np.ones((10, 1), bool))],
    ids=["steps", "patches"],
)
def test_samples_by_number_are_listed_once(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    cells = Samples.cells

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return cells(*given, **named)

    monkeypatch.setattr(Samples, "cells", counted)
    dataset = Dataset(X, sampler)
    for i in range(8):
        dataset.set_epoch(i)
        assert len(dataset[i])
    assert len(calls) == 1


class Own(Sampler):
    """A sampler of one's own that says nothing of itself."""

    def __init__(self, step: int, low: int = 0) -> None:
        self.step, self.low = step, low

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        part = Part(("x",), "", (2, 2), (self.low, 0), (0, None), (1, 1), "fill")
        return Samples((part,), (5,), (self.step,), (5,), (20,))


class Derived(Patches):
    """One with an option that is no field."""

    def __init__(self, step: int) -> None:
        super().__init__((2, 2))
        object.__setattr__(self, "step", step)

    def bind(self, arrays: Mapping[str, Geometry], most_bytes: int) -> Samples:
        return Patches((2, 2), stride=(self.step, 2), where=[[0, 0], [12, 0]]).bind(arrays, most_bytes)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sampler", "same", "other"),
    [(Own(2), Own(2), Own(3)), (Own(2), Own(2), Own(2, -1)), (Derived(2), Derived(2), Derived(3))],
    ids=["stride", "window", "derived"],
)
def test_samplers_that_say_nothing_of_themselves(sampler: Sampler, same: Sampler, other: Sampler) -> None:
    state = Loader(X, sampler).state_dict()
    Loader(X, same).load_state_dict(state)
    with pytest.raises(gzarr.ArgumentError, match="the sampler has changed"):
        Loader(X, other).load_state_dict(state)


@pytest.mark.parametrize(
    ("arrays", "sampler", "message"),
    [
        ([{"x": X}, {}], None, "volume 1 has no arrays"),
        ([{}, {"x": X}], None, "volume 0 has no arrays"),
        ({"x": X, "y": X}, Rows(3, balance="y"), r"x has shape \(20, 2\), so it has no axis 3"),
        ({"x": X, "y": X[:, 0]}, Windows("0", {"x": (0, 0)}, balance="y"), "axis must be an integer"),  # type: ignore[arg-type]
        ({"x": X, "y": X[:9, 0]}, Rows(balance="y"), "need one length along axis 0"),
    ],
    ids=["last volume", "first volume", "axis", "no integer", "lengths"],
)
def test_errors_say_what_is_wrong(arrays: Any, sampler: Any, message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(arrays, sampler)


@pytest.mark.parametrize("key", ["version", "seed", "epoch", "cursor", "streams", "fingerprint"])
def test_states_have_single_values(key: str) -> None:
    loader = Loader(X)
    state = loader.state_dict()
    loader.load_state_dict(state | {key: np.array(state[key])})
    with pytest.raises(gzarr.ArgumentError, match="state"):
        loader.load_state_dict(state | {key: np.array([state[key]] * 2)})
    assert loader.state_dict() == state


def test_workers_share_numbers_of_epochs() -> None:
    torch = pytest.importorskip("torch")
    from gzarr.loader.torch import IterableLoader

    loader = Loader(X)
    data = IterableLoader(loader)
    workers = torch.utils.data.DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="fork")
    data.set_epoch(2**48)
    for after in (2**48 + 1, 2**48 + 2):
        assert [*workers]
        assert data.state_dict()["epoch"] == after
    with pytest.raises(gzarr.ArgumentError, match="epoch must be below 4611686018427387904"):
        data.set_epoch(2**62)
    assert data.state_dict()["epoch"] == 2**48 + 2
    with pytest.raises(gzarr.ArgumentError, match="epoch must be below 4611686018427387904"):
        data.load_state_dict(loader.state_dict() | {"epoch": 2**62 + 1})
    loader.load_state_dict(loader.state_dict() | {"epoch": 2**62 + 1})
    with pytest.raises(gzarr.ArgumentError, match="epoch must be below 4611686018427387904"):
        [*workers]
