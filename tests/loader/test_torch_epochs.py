"""Epochs of a loader in PyTorch's ``DataLoader``: each is another one, as the plain loader's, also in workers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import gzarr
from gzarr.loader import Loader, Patches, Rows
from gzarr.loader.torch import IterableLoader

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


def patches() -> Loader:
    array = gzarr.array(np.arange(4096).reshape(64, 64), chunks=16, device="cpu")
    return Loader(array, Patches((8, 8), jitter=True), batch_size=4, seed=1, like="torch", prefetch=0)


def rows(**options: Any) -> Loader:
    array = gzarr.array(np.arange(240), chunks=20, device="cpu")
    return Loader(array, Rows(), batch_size=8, seed=2, like="torch", prefetch=0, **options)


def given(batches: Any) -> list[list[int]]:
    return [batch["data"].flatten().tolist() for batch in batches]


def shares(loader: Loader, workers: int, epochs: int) -> list[list[list[int]]]:
    """Return the batches of some epochs that workers together give out, sorted."""
    parts = [loader.split(i, workers) for i in range(workers)]
    return [sorted(batch for part in parts for batch in given(part)) for _ in range(epochs)]


WAYS: dict[str, dict[str, Any]] = {
    "no workers": {"num_workers": 0},
    "one": {"num_workers": 1},
    "three": {"num_workers": 3},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "spawned": {"num_workers": 2, "multiprocessing_context": "spawn"},
}


@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("way", [*list(WAYS)[:4], pytest.param("spawned", marks=pytest.mark.slow)])
def test_epochs_are_those_of_the_plain_loader(way: str, kind: Any) -> None:
    loader = kind(IterableLoader(patches()), batch_size=None, **WAYS[way])
    found = [sorted(given(loader)) for _ in range(3)]
    assert found == shares(patches(), max(WAYS[way]["num_workers"], 1), 3)
    # Random places are drawn anew.
    assert not {tuple(batch) for batch in found[0]} & {tuple(batch) for batch in found[1]}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_can_be_set(workers: int) -> None:
    dataset = IterableLoader(rows())
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    whole = shares(rows(), max(workers, 1), 6)
    dataset.set_epoch(4)
    assert [sorted(given(loader)) for _ in range(2)] == whole[4:]
    dataset.set_epoch(1)
    assert sorted(given(loader)) == whole[1]
    with pytest.raises(gzarr.ArgumentError, match="epoch must be"):
        dataset.set_epoch(-1)


@pytest.mark.parametrize("way", [*list(WAYS)[:4], pytest.param("spawned", marks=pytest.mark.slow)])
def test_the_epoch_is_the_loader_s_own(way: str) -> None:
    """Whoever set it: the data set, or the loader before and between iterations, which workers are copies of."""
    own = rows()
    own.set_epoch(3)
    dataset = IterableLoader(own)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, **WAYS[way])
    whole = shares(rows(), max(WAYS[way]["num_workers"], 1), 7)
    assert [sorted(given(loader)) for _ in range(2)] == whole[3:5]
    assert dataset.state_dict() == {**own.state_dict(), "epoch": 5, "cursor": 0}
    if not WAYS[way].get("persistent_workers"):
        own.set_epoch(1)
        assert [sorted(given(loader)) for _ in range(2)] == whole[1:3]
        assert dataset.state_dict()["epoch"] == 3
    dataset.set_epoch(6)
    assert dataset.state_dict()["epoch"] == 6
    assert sorted(given(loader)) == whole[6]


@pytest.mark.parametrize("setting", [False, True], ids=["epochs follow", "epochs are set"])
@pytest.mark.parametrize("way", [*list(WAYS)[:4], pytest.param("spawned", marks=pytest.mark.slow)])
def test_a_state_of_the_data_set_is_gone_on_from_once(way: str, setting: bool) -> None:
    """Workers that end with the epoch are copies of a loader that has loaded it, each time anew."""
    first = rows()
    given(first)
    batches = iter(first)
    some = [next(batches)["data"].tolist() for _ in range(12)]
    state = first.state_dict()
    dataset = IterableLoader(rows())
    workers = max(WAYS[way]["num_workers"], 1)
    whole = shares(rows(), workers, 5)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, **WAYS[way])
    # Persistent workers that are there already cannot go on from it.
    for _ in range(1 if WAYS[way].get("persistent_workers") else 2):
        dataset.load_state_dict(state)
        if setting:
            dataset.set_epoch(0)
        rest = given(loader)
        assert sorted(x for batch in some + rest for x in batch) == list(range(240))
        if setting:
            dataset.set_epoch(4)
        assert sorted(given(loader)) == whole[4 if setting else 2]
        assert dataset.state_dict()["epoch"] == (5 if setting else 3)
    if WAYS[way].get("persistent_workers"):
        dataset.load_state_dict(state)
        assert sorted(given(loader)) == whole[1]


def test_epochs_that_are_set_need_no_names() -> None:
    """PyTorch's seed, by which iterations are told apart, may be set to the same before each."""
    first = rows()
    batches = iter(first)
    some = [next(batches)["data"].tolist() for _ in range(3)]
    dataset = IterableLoader(rows())
    dataset.load_state_dict(first.state_dict())
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)
    found = []
    for epoch in range(3):
        torch.manual_seed(0)
        dataset.set_epoch(epoch)
        found.append(given(loader))
    assert [sorted(some + found[0]), *map(sorted, found[1:])] == shares(rows(), 1, 3)


def test_copies_share_no_epoch() -> None:
    one = IterableLoader(rows())
    other = copy.deepcopy(one)
    loaders = [torch.utils.data.DataLoader(each, batch_size=None, num_workers=1) for each in (one, other)]
    whole = shares(rows(), 1, 2)
    assert [sorted(given(each)) for each in (*loaders, *loaders)] == [whole[0], whole[0], whole[1], whole[1]]


@pytest.mark.parametrize("moment", ["start", "middle", "last batch", "after the end"])
@pytest.mark.parametrize("way", [*list(WAYS)[:4]])
def test_states_lose_and_repeat_nothing(way: str, moment: str) -> None:
    """A state is taken in the second epoch; two more follow it. In a new loader, the same comes."""

    def made() -> Any:
        return StatefulDataLoader(IterableLoader(rows()), batch_size=None, **WAYS[way])

    loader = made()
    expected = [given(loader) for _ in range(5)]
    loader = made()
    assert given(loader) == expected[0]
    batches = iter(loader)
    count = {"start": 0, "middle": 7, "last batch": len(expected[1]) - 1, "after the end": len(expected[1])}[moment]
    some = [next(batches)["data"].flatten().tolist() for _ in range(count)]
    if moment == "after the end":
        assert next(batches, None) is None
    state = loader.state_dict()
    assert some == expected[1][:count]
    resumed = made()
    resumed.load_state_dict(state)
    rest = [given(resumed) for _ in range(3)]
    if moment == "after the end":
        # torchdata says once more that this epoch is over, or begins the next one.
        rest = [epoch for epoch in rest if epoch]
        assert rest == expected[2 : 2 + len(rest)]
        assert len(rest) >= 2
    else:
        assert rest == [expected[1][count:], *expected[2:4]]


def test_a_state_comes_before_an_epoch_that_is_set() -> None:
    loader = rows()
    for _ in range(3):
        whole = given(loader)
    batches = iter(loader)
    some = [next(batches)["data"].tolist() for _ in range(4)]
    resumed = rows()
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    rest = given(resumed)
    assert sorted(x for batch in some + rest for x in batch) == list(range(240))
    assert some + rest != whole
    resumed.set_epoch(2)
    assert given(resumed) == whole
