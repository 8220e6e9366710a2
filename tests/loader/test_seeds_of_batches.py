"""Random numbers of a transform: the same in each run, whichever thread or process draws them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from gzarr.loader import Loader, Patches

pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DATA = np.arange(46, dtype="f8")


def augmented(batch: Any) -> Any:
    noise = np.random.default_rng(batch.seed).random(batch["data"].shape)
    batch["data"] = batch["data"] + noise
    return batch


def made(**options: Any) -> Loader:
    options = {"batch_size": 4, "seed": 3, "prefetch": 2, "drop_last": False, "transform": augmented} | options
    return Loader(DATA, **options)


def values(batches: Any) -> list[list[float]]:
    return [batch["data"].tolist() for batch in batches]


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_runs_augment_alike(shuffle: Any) -> None:
    first, second = made(shuffle=shuffle), made(shuffle=shuffle, prefetch=0)
    epochs = [values(first) for _ in range(2)]
    assert epochs == [values(second) for _ in range(2)]
    # Wherever it was interrupted.
    for epoch in range(2):
        loader = made(shuffle=shuffle)
        loader.set_epoch(epoch)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        resumed = made(shuffle=shuffle, seed=0)
        resumed.load_state_dict(loader.state_dict())
        assert values(resumed) == epochs[epoch][5:]
        assert values(resumed) == values(loader)


def test_all_batches_differ() -> None:
    seeds = []
    for rank in range(2):
        loader = made(transform=None, rank=rank, world_size=2, pad=True)
        for _ in range(2):
            seeds += [batch.seed for batch in loader]
    seeds += [batch.seed for batch in made(transform=None, seed=4)]
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 6 + 12
    assert all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)
    (batch, *_) = made(transform=None)
    assert pickle.loads(pickle.dumps(batch)).seed == batch.seed


def test_seeds_do_not_depend_on_how_batches_are_read() -> None:
    options: dict[str, Any] = {"transform": None, "sampler": Patches((4,), stride=1, pad="edge")}
    found = [[batch.seed for batch in made(**options, buffer_bytes=size)] for size in (200, 1 << 20)]
    assert found[0] == found[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_augment_alike(workers: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    from gzarr.loader.torch import IterableLoader

    def run() -> list[list[float]]:
        loader = data.DataLoader(IterableLoader(made()), batch_size=None, num_workers=workers)
        return values(loader)

    found = run()
    assert found == run()
    if not workers:
        assert found == values(made())
