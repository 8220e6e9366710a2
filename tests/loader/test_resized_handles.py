"""Arrays that grow through the very object that a loader or a dataset was given: the samples stay as they were."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse

import gzarr
from gzarr.loader import Dataset, Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.filterwarnings("ignore:shuffling is coarse"),
    pytest.mark.filterwarnings("ignore:.*since this loader was made"),
]


def counted(*shape: int, chunks: Any = 8) -> gzarr.Array:
    data = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    return gzarr.create_array(gzarr.MemoryStore(), data=data, chunks=chunks, device="cpu")


def leaves(batch: Any) -> list[list[Any]]:
    """Return the elements of a batch's arrays."""
    values = [batch[name] for name in sorted(batch)]
    return [x for value in values for x in (leaves(value) if isinstance(value, dict) else [value.tolist()])]


def epoch(loader: Loader) -> list[Any]:
    return [(batch.samples.tolist(), leaves(batch)) for batch in loader]


SAMPLERS: dict[str, tuple[tuple[int, ...], Any]] = {
    "rows": ((20,), Rows()),
    "rows along the second axis": ((4, 20), Rows(1)),
    "runs": ((20,), Windows(0, {"x": (-1, 0), "y": (1, 2)})),
    "steps": ((20,), Windows(0, steps={"x": (-4, 0), "y": (2,)})),
    "edge": ((20,), Patches((8,), pad="edge")),
    "reflect": ((20,), Patches((8,), pad="reflect")),
    "fill": ((20,), Patches((8,), pad="fill")),
    "halo": ((20, 3), Patches((8,), halo=3, pad="symmetric", axes=(0,))),
    "narrower than a patch": ((5,), Patches((8,), pad="edge")),
    "overlapping": ((20, 20), Patches((8, 8), stride=3, halo=2, pad="edge")),
    "anywhere": ((20, 20), Patches((8, 8), jitter=True, pad="edge", halo=4)),
    "posed": ((20, 20), Patches((8, 8), rotate=True, pad="edge")),
    "posed, cubic": ((20, 20), Patches((8, 8), rotate=True, pad="reflect", interpolation="cubic")),
}


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_samples_stay_when_the_array_grows(kind: str, shuffle: Any) -> None:
    shape, sampler = SAMPLERS[kind]
    array, other = counted(*shape), counted(*shape)
    options: dict[str, Any] = {"batch_size": 3, "drop_last": False, "shuffle": shuffle, "prefetch": 0}
    loader, expected = Loader(array, sampler, **options), Loader(other, sampler, **options)
    before = epoch(expected)
    batches = iter(loader)
    # Within an epoch, and between two.
    found = [next(batches)]
    array.resize(tuple(n + 20 for n in shape))
    array[(slice(shape[0], None), ...)] = 1000
    array[(..., slice(shape[-1], None))] = 1000
    found += list(batches)
    assert [(batch.samples.tolist(), leaves(batch)) for batch in found] == before
    assert epoch(loader) == epoch(expected)
    assert len(loader) == len(expected)
    assert str(loader.explain()) == str(expected.explain())
    assert repr(loader) == repr(expected)
    copied = pickle.loads(pickle.dumps(loader))
    copied.load_state_dict(loader.state_dict())
    assert epoch(copied) == epoch(expected)


@pytest.mark.parametrize("kind", [kind for kind in SAMPLERS if kind != "anywhere" and "posed" not in kind])
def test_samples_by_number_stay(kind: str) -> None:
    shape, sampler = SAMPLERS[kind]
    array = counted(*shape)
    dataset = Dataset(array, sampler)
    before = [leaves(sample) for sample in dataset]
    array.resize(tuple(n + 20 for n in shape))
    array[(slice(shape[0], None), ...)] = 1000
    for one in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert len(one) == len(before)
        assert [leaves(sample) for sample in one] == before


def test_posed_samples_by_number_stay() -> None:
    array = counted(20, 20)
    datasets = [Dataset(each, Patches((8, 8), rotate=True, pad="edge")) for each in (array, counted(20, 20))]
    array.resize((40, 40))
    array[20:] = array[:, 20:] = 1000
    one, other = ([leaves(sample) for sample in dataset] for dataset in datasets)
    assert one == other


@pytest.mark.parametrize(
    "grow",
    [lambda array: array.append(np.arange(40)), lambda array: array.append(np.arange(3)), lambda array: None],
    ids=["as many", "a few", "none"],
)
def test_later_stages_have_the_samples_of_the_first(grow: Callable[[gzarr.Array], Any]) -> None:
    array = counted(40)
    sampler = Windows(0, {"x": (0, 0), "y": (1, 4)}, rollout={"y": (1, 4)})
    loader = Loader(array, sampler, batch_size=4, seed=3, drop_last=False)
    assert sum(len(batch.samples) for batch in loader) == 36
    grow(array)
    loader.explain()
    batches = list(loader)
    assert sorted(i for batch in batches for i in batch.samples.tolist()) == list(range(36))
    for batch in batches:
        np.testing.assert_array_equal(batch["y"], batch["x"] + np.arange(1, 5))
    assert len(loader) == 9
    loader.load_state_dict(loader.state_dict())


def test_an_array_that_is_smaller_for_a_while() -> None:
    array = counted(20)
    loader = Loader(array, Patches((8,), pad="edge"), batch_size=3, shuffle=False, drop_last=False)
    before = epoch(loader)
    array.resize(10)
    with pytest.raises(gzarr.ArgumentError, match=r"has shrunk from shape \(20,\) to \(10,\)"):
        iter(loader)
    array.resize(20)
    array[...] = np.arange(20)
    assert epoch(loader) == before


def test_names_of_one_array_grow_together() -> None:
    array = counted(20)
    loader = Loader({"x": array, "y": array}, Patches((8,), pad="edge"), batch_size=1, shuffle=False)
    array.append(np.full(9, 1000))
    with pytest.warns(UserWarning, match="'y' has grown"):
        last = list(loader)[-1]
    assert last["x"].tolist() == last["y"].tolist() == [[16, 17, 18, 19, 19, 19, 19, 19]]


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize(
    ("sampler", "dense"),
    [(Rows(), True), (Rows(), False), (Patches((8,), axes=(0,), pad="edge"), True)],
    ids=["dense rows", "sparse rows", "patches"],
)
def test_a_sparse_matrix_that_grows(sampler: Any, dense: bool, shuffle: Any) -> None:
    data = scipy.sparse.random_array((30, 12), density=0.3, format="csr", rng=np.random.default_rng(0))
    matrix = gzarr.sparse.create({}, data, chunks=20, device="cpu")
    loader = Loader(matrix, sampler, batch_size=3, drop_last=False, shuffle=shuffle, dense=dense, prefetch=0)
    told = str(loader.explain())

    def given() -> list[Any]:
        batches = [(batch.samples.tolist(), batch["data"]) for batch in loader]
        return [(numbers, (x if dense else x.todense()).tolist()) for numbers, x in batches]

    before = given()
    matrix.append(data)
    assert str(loader.explain()) == told
    loader.set_epoch(0)
    assert given() == before
