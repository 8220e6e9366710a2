"""Epochs of a loader in PyTorch's ``DataLoader``: each is another one, as the plain loader's, also in workers."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
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
    # They inherit nothing either, but the modules that their server has imported, once for all of them.
    "of a server": {"num_workers": 2, "multiprocessing_context": "forkserver"},
}


@pytest.fixture(scope="module", autouse=True)
def imported_by_the_server() -> None:
    multiprocessing.set_forkserver_preload(["gzarr.loader.torch", "torchdata.stateful_dataloader"])


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


@pytest.mark.parametrize("way", [*list(WAYS)[:4], pytest.param("of a server", marks=pytest.mark.slow)])
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
@pytest.mark.parametrize("way", [*list(WAYS)[:4], pytest.param("of a server", marks=pytest.mark.slow)])
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
    for _ in range(2):
        dataset.load_state_dict(state)
        if setting:
            dataset.set_epoch(0)
        rest = given(loader)
        assert sorted(x for batch in some + rest for x in batch) == list(range(240))
        if setting:
            dataset.set_epoch(4)
        assert sorted(given(loader)) == whole[4 if setting else 2]
        assert dataset.state_dict()["epoch"] == (5 if setting else 3)


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


class Late:
    """What keeps the last worker from its first iteration until it is let go."""

    def __init__(self) -> None:
        self.go = multiprocessing.get_context("fork").Event()

    def __call__(self, worker: int) -> None:
        if worker:
            self.wait(worker)

    def wait(self, worker: int) -> None:
        """Wait, as any worker."""
        assert self.go.wait(60)


def loader_of(dataset: IterableLoader, **options: Any) -> Any:
    options = {"num_workers": 2, "multiprocessing_context": "fork", **options}
    return torch.utils.data.DataLoader(dataset, batch_size=None, **options)


@pytest.mark.parametrize("setting", [False, True], ids=["epochs follow", "an epoch is set"])
def test_a_late_persistent_worker_begins_the_epoch_of_the_others(setting: bool) -> None:
    dataset, late, whole = IterableLoader(rows()), Late(), shares(rows(), 2, 7)
    loader = loader_of(dataset, worker_init_fn=late, persistent_workers=True)
    next(iter(loader))
    if setting:
        dataset.set_epoch(4)
    # The next iteration waits for both workers, of which the first one is through with the one before.
    late.go.set()
    first = 4 if setting else 1
    assert [sorted(given(loader)) for _ in range(3)] == whole[first : first + 3]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("epoch", [0, 4])
def test_an_epoch_that_is_set_is_not_that_of_workers_made_before(epoch: int, persistent: bool) -> None:
    dataset, late, whole = IterableLoader(rows()), Late(), shares(rows(), 1, 6)
    loader = loader_of(dataset, num_workers=1, worker_init_fn=late.wait, persistent_workers=persistent)
    batches = iter(loader)
    dataset.set_epoch(epoch)
    late.go.set()
    assert [sorted(given(each)) for each in (batches, loader, loader)] == [whole[0], *whole[epoch : epoch + 2]]


def test_iterations_side_by_side_have_an_epoch_each() -> None:
    dataset, late, whole = IterableLoader(rows()), Late(), shares(rows(), 2, 2)
    one = iter(loader_of(dataset, worker_init_fn=late))
    some = given([next(one)])
    assert sorted(given(loader_of(dataset))) == whole[1]
    late.go.set()
    assert sorted(some + given(one)) == whole[0]


def test_persistent_workers_go_on_from_a_state_of_another_seed() -> None:
    first = Loader(gzarr.array(np.arange(240), chunks=20, device="cpu"), batch_size=8, seed=2**64 + 7, like="torch")
    given(first)
    batches = iter(first)
    some = given(next(batches) for _ in range(12))
    dataset = IterableLoader(rows())
    loader = loader_of(dataset, persistent_workers=True)
    given(loader)
    dataset.load_state_dict(first.state_dict())
    rest = given(loader)
    assert sorted(x for batch in some + rest for x in batch) == list(range(240))
    parts = [first.split(worker, 2) for worker in range(2)]
    for part in parts:
        part.set_epoch(2)
    assert sorted(given(loader)) == sorted(batch for part in parts for batch in given(part))


def test_epochs_in_workers_and_without_them_follow_each_other() -> None:
    one, dataset = rows(), IterableLoader(rows())
    state = rows().state_dict() | {"epoch": 3, "cursor": 80}
    expected = [given(one) for _ in range(6)]
    inside, outside = loader_of(dataset, num_workers=1), loader_of(dataset, num_workers=0, multiprocessing_context=None)
    assert [given(each) for each in (inside, inside, outside, outside, inside)] == expected[:5]
    dataset.load_state_dict(state)
    assert given(inside) == expected[3][10:]
    # The state is used up.
    dataset.set_epoch(5)
    assert dataset.state_dict() == state | {"epoch": 5, "cursor": 0}
    assert given(inside) == expected[5]
    assert dataset.state_dict()["epoch"] == 6


def test_processes_count_epochs_of_their_own() -> None:
    dataset, expected = IterableLoader(rows()), shares(rows(), 1, 2)
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_train, args=(dataset, there))
        process.start()
        assert here.recv() == expected
        process.join()


def _train(dataset: IterableLoader, there: Any) -> None:
    loader = loader_of(dataset, num_workers=1)
    there.send([sorted(given(loader)) for _ in range(2)])


def test_what_other_processes_do_takes_no_epochs_away() -> None:
    dataset, expected = IterableLoader(rows()), shares(rows(), 1, 3)
    loader = loader_of(dataset, num_workers=1)
    assert [sorted(given(loader)) for _ in range(2)] == expected[:2]
    process = multiprocessing.get_context("fork").Process(target=_set, args=(dataset,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert sorted(given(loader)) == expected[2]


def _set(dataset: IterableLoader) -> None:
    for epoch in range(300):
        dataset.set_epoch(epoch)


def test_a_pickled_copy_goes_on_in_another_process() -> None:
    """One that is forked after PyTorch has used its threads, too, which are not there any more."""
    torch.zeros(1 << 20).share_memory_()
    dataset, expected = IterableLoader(rows()), shares(rows(), 1, 4)
    loader = loader_of(dataset, num_workers=1)
    assert [sorted(given(loader)) for _ in range(2)] == expected[:2]
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_unpickle, args=(pickle.dumps(dataset), there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == expected[2:]
    finally:
        process.kill()
        process.join()


def _unpickle(pickled: bytes, there: Any) -> None:
    _train(pickle.loads(pickled), there)
