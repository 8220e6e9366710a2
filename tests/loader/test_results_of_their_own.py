"""Each result of a batch has a name and memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.sparse_groups import dense, stored, to_dense

import gzarr
from gzarr.loader import Dataset, Loader, Part, Sampler, Samples, Windows

N = 60
VALUES = np.arange(N * 3.0).reshape(N, 3)

# Keywords of Windows, and the runs that have memory of their own from the beginning.
SHARED = [
    ({"runs": {"x": (0, 3), "y": (1, 4)}}, {"x"}),
    ({"runs": {"x": (0, 3), "y": (4, 6), "z": (2, 4)}}, {"x", "y"}),
    ({"runs": {"x": (0, 3), "y": (3, 4), "z": (4, 5)}}, {"x", "z"}),
    ({"steps": {"x": (0, 2), "y": (2, 4), "z": (1,)}}, {"x", "z"}),
    ({"runs": {"x": (0, 3), "y": (4, 6)}}, {"x", "y"}),
]
IDS = ["next", "third", "chain", "steps", "disjoint"]


def array() -> gzarr.Array:
    return gzarr.array(VALUES, chunks=(8, 3), device="cpu")


def changed(batch: dict[str, Any]) -> None:
    for i, name in enumerate(batch):
        before = {other: batch[other].copy() for other in batch if other != name}
        batch[name][...] = -i - 1
        for other, values in before.items():
            assert np.array_equal(batch[other], values), (name, other)


@pytest.mark.parametrize(("arguments", "views"), SHARED, ids=IDS)
@pytest.mark.parametrize("shuffle", ["blocks", False])
def test_batches_may_be_changed(arguments: dict[str, Any], views: set[str], shuffle: Any) -> None:
    offsets = {
        name: range(given[0], given[1] + 1) if "runs" in arguments else given
        for name, given in next(iter(arguments.values())).items()
    }
    seen = []

    def transform(batch: Any) -> Any:
        for name, steps in offsets.items():
            assert np.array_equal(batch[name], VALUES[batch.origins + np.array(steps)])
        seen.append(len(batch.samples))
        changed(batch)
        return batch

    loader = Loader(array(), Windows(0, **arguments), batch_size=4, shuffle=shuffle, transform=transform)
    for batch in loader:
        changed(batch)
    copied = set(offsets) - views
    assert len(seen) == len(loader)
    assert {part.names[0] for part, _ in loader._volumes.each[0].reading.shared} == copied
    # What is copied takes memory, three times: two batches are ready while one is used.
    without = Loader(array(), Windows(0, **arguments), batch_size=4, shuffle=shuffle)
    without._volumes.each[0].reading.shared.clear()
    more = 3 * 4 * sum(len(offsets[name]) for name in copied) * 3 * 8
    assert loader.explain().held_bytes - without.explain().held_bytes == more


@pytest.mark.parametrize(("arguments", "views"), SHARED, ids=IDS)
def test_samples_may_be_changed(arguments: dict[str, Any], views: set[str]) -> None:
    dataset = Dataset(array(), Windows(0, **arguments))
    for sample in dataset.__getitems__([5, 6]):
        changed(sample)


def test_stacked_and_named_arrays_may_be_changed() -> None:
    arrays = {"a": array(), "b": gzarr.array(-VALUES, chunks=(8, 3), device="cpu")}
    sampler = Windows(0, {"x": (0, 3), "y": (1, 4)})
    stacked = next(iter(Loader(arrays, sampler, batch_size=4, stack=("a", "b"))))
    assert stacked["x"].shape == (4, 2, 4, 3)
    changed(stacked)
    named = next(iter(Loader(arrays, sampler, batch_size=4)))
    changed({f"{run}/{name}": named[run][name] for run in named for name in named[run]})


class Ends(Sampler):
    """A sampler of one's own, which takes indices in several ways from one window."""

    def bind(self, arrays: Any, most_bytes: int) -> Samples:
        takes = {"last": (-1,), "all": (), "rest": (slice(None, -1),), "odd": (Ellipsis, 0)}
        parts = [Part((n,), "", (4, 3), (0, 0), (0, None), (1, 1), take=take) for n, take in takes.items()]
        return Samples(tuple(parts), (N // 4,), (4,), (4,), (N,))


def test_samplers_of_ones_own_may_take_anything() -> None:
    loader = Loader(array(), Ends(), batch_size=4)
    assert [part.names for part, _ in loader._volumes.each[0].reading.shared] == [("all",), ("odd",)]
    for batch in loader:
        assert np.array_equal(batch["odd"], batch["all"][..., 0])
        assert np.array_equal(batch["last"], batch["all"][:, -1])
        changed(batch)


@pytest.mark.parametrize("damaged", [False, True])
def test_rows_that_stay_sparse_may_be_changed(damaged: bool) -> None:
    matrix = dense((60, 20), seed=0)
    store = stored(matrix, chunks=20)
    if damaged:
        gzarr.open_group(store, mode="r+")["X/indices"][0] = 40  # type: ignore[index]
    loader = Loader(
        gzarr.sparse.open(store, path="X", device="cpu"),
        Windows(0, {"x": (0, 0), "y": (0, 0)}),
        batch_size=20,
        dense=False,
        like="numpy",
        on_error="skip",
    )
    for batch in loader:
        for name in ("data", "indices", "indptr"):
            getattr(batch["x"], name)[...] = 0
        np.testing.assert_array_equal(to_dense(batch["y"], "csr"), matrix[batch.samples])


@pytest.mark.parametrize(
    ("arrays", "sampler", "place"),
    [
        ({"": VALUES, "data": VALUES + 1}, None, "data"),
        ({"data": VALUES, "": VALUES + 1}, None, "data"),
        (VALUES, Windows(0, {"": (0, 0), "data": (1, 1)}), "data"),
        ({"": VALUES, "b": VALUES}, Windows(0, {"x": (0, 0)}), "x/b"),
        ({"b": VALUES, "": VALUES}, Windows(0, {"x": (0, 0)}), "x"),
    ],
    ids=["arrays", "reversed", "runs", "run", "run reversed"],
)
def test_no_result_takes_the_place_of_another(arrays: Any, sampler: Any, place: str) -> None:
    for kind in (Loader, Dataset):
        with pytest.raises(gzarr.ArgumentError, match=f"two results in one place, '{place}'"):
            kind(arrays, sampler)[0] if kind is Dataset else kind(arrays, sampler)  # type: ignore[operator]


def test_no_result_takes_the_place_of_stacked_arrays() -> None:
    with pytest.raises(gzarr.ArgumentError, match="two results in one place, 'data'"):
        Loader({"a": VALUES, "b": VALUES, "data": VALUES}, stack=("a", "b"))


@pytest.mark.parametrize("name", ["", "data"])
def test_no_static_array_takes_the_place_of_a_result(name: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match="same names: \\['data'\\]"):
        Loader(VALUES, Windows(0, {name: (0, 0)}, static={"data": np.zeros(2)}))
