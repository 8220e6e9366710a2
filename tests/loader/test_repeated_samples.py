"""A sample that is asked for several times has as many random places and poses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.loader import Dataset, Patches

RAMP = np.arange(96 * 96, dtype="f4").reshape(96, 96)
SAMPLERS = [Patches((32, 32), jitter=True), Patches((32, 32), rotate=True), Patches((32, 32), jitter=True, flip=True)]
ids = ["jitter", "rotate", "both"]
WANTED = [5, 2, 5, 5, 2, -4, 0]


def dataset_of(sampler: Patches) -> Any:
    return Dataset(gzarr.array(RAMP, chunks=32), sampler, seed=3)


def different(samples: Any) -> int:
    return len(np.unique([np.asarray(sample["data"]) for sample in samples], axis=0))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=ids)
def test_in_one_list_as_in_several_calls(sampler: Patches) -> None:
    together, single = dataset_of(sampler), dataset_of(sampler)
    for _ in range(2):
        found = together.__getitems__(WANTED)
        assert different(found) == len(WANTED)
        for number, sample in zip(WANTED, found, strict=True):
            np.testing.assert_array_equal(sample["data"], single[number]["data"])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=ids)
def test_in_an_epoch_that_is_set(sampler: Patches) -> None:
    dataset = dataset_of(sampler)
    dataset.set_epoch(4)
    single = {number: dataset[number]["data"] for number in set(WANTED)}
    for asked in (dataset, dataset_of(sampler)):
        asked.set_epoch(4)
        found = asked.__getitems__(WANTED)
        assert different(found) == len(WANTED)
        for i in (0, 1, 6):
            np.testing.assert_array_equal(found[i]["data"], single[WANTED[i]])
        again = asked.__getitems__(WANTED)
        np.testing.assert_array_equal([x["data"] for x in found], [x["data"] for x in again])
    dataset.set_epoch(5)
    assert different([*found, *dataset.__getitems__(WANTED)]) == 2 * len(WANTED)


def test_samples_on_the_grid_are_one_thing() -> None:
    assert different(dataset_of(Patches((32, 32))).__getitems__([5, 5])) == 1


def test_in_the_workers_of_a_dataloader() -> None:
    data = pytest.importorskip("torch").utils.data
    loader = data.DataLoader(dataset_of(SAMPLERS[1]), batch_size=2, sampler=[5] * 8, num_workers=2)
    found = [{"data": one} for _ in range(2) for batch in loader for one in batch["data"]]
    assert different(found) == 16
