"""Arrays that another handle erases, shrinks or replaces while a loader is used: errors, never fill values."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.loaders import await_end_of_threads
from support.range_server import range_server

import gzarr
from gzarr.loader import Patches, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

X = np.arange(2000 * 16, dtype="i4").reshape(2000, 16) + 1


def create(path: Path, data: Any = X, **layout: Any) -> None:
    gzarr.create_array(path, data=data, **({"chunks": (10, 16), "codecs": "zstd"} | layout), overwrite=True)


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "erased": (shutil.rmtree, "has been erased"),
    "shrunk": (lambda path: gzarr.open_array(path, mode="r+").resize((500, 16)), r"has shrunk from shape \(2000, 16\)"),
    "a group": (lambda path: gzarr.create_group(path, overwrite=True), "replaced by a group"),
    "other chunks": (lambda path: create(path, chunks=(16, 8)), "replaced by another array"),
    "other codecs": (lambda path: create(path, codecs="auto"), "replaced by another array"),
    "other dtype": (lambda path: create(path, X.astype("f4"), codecs=None), "replaced by another array"),
    "2": (lambda path: create(path, zarr_format=2), "has been erased|replaced by another array"),
}


def consume(batches: Iterator[Any], look: Callable[[Any], object]) -> None:
    for batch in batches:
        look(batch)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_between_epochs(change: str, prefetch: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    create(path)
    loader = gzarr.Loader(gzarr.open_array(path, device="cpu"), Rows(), batch_size=8, prefetch=prefetch)
    assert sum(1 for _ in loader) == 250
    apply, message = CHANGES[change]
    apply(path)
    with pytest.raises(gzarr.errors.GzarrError, match=message):
        iter(loader)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
@pytest.mark.parametrize("change", CHANGES)
def test_within_an_epoch(change: str, shuffle: Any, on_error: Any, tmp_path: Path) -> None:
    """What was read ahead is right, and then comes one error."""
    path = tmp_path / "x"
    create(path)
    a = gzarr.open_array(path, device="cpu")
    options = {"shuffle": shuffle, "on_error": on_error, "buffer_bytes": 1 << 13, "prefetch": 1}
    loader = gzarr.Loader(a, Rows(), batch_size=8, **options)
    batches = iter(loader)
    next(batches)
    apply, message = CHANGES[change]
    apply(path)
    given = []

    def look(batch: Any) -> None:
        # Documents are looked at now and then: give it time.
        time.sleep(0.002)
        given.append(batch)
        if change in ("erased", "shrunk", "a group"):
            np.testing.assert_array_equal(batch["data"], X[batch.samples])

    # Whoever replaces an array erases it first.
    with pytest.raises(gzarr.errors.GzarrError, match=f"{message}|has been erased"):
        consume(batches, look)
    assert len(given) < 249
    with pytest.raises(StopIteration):
        next(batches)


def test_samples_of_patches_and_slabs(tmp_path: Path) -> None:
    path = tmp_path / "x"
    create(path, chunks=(50, 16))
    loader = gzarr.Loader(
        gzarr.open_array(path, device="cpu"), Patches((8, 16), stride=(2, 16)), batch_size=8, buffer_bytes=1 << 14
    )
    batches = iter(loader)
    next(batches)
    shutil.rmtree(path)
    given: list[bool] = []
    with pytest.raises(gzarr.errors.NodeNotFoundError, match="has been erased since it was opened"):
        consume(batches, lambda batch: given.append(batch["data"].all()))
    assert all(given)


def test_absent_chunks_of_a_whole_array_are_fill_values(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "x", shape=(100, 4), dtype="i4", chunks=(10, 4), fill_value=7, device="cpu")
    a[:10] = 1
    for _ in range(2):
        found = np.concatenate([batch["data"] for batch in gzarr.Loader(a, Rows(), batch_size=10, prefetch=0)])
        assert np.unique(found, return_counts=True)[1].tolist() == [40, 360]


def test_an_array_that_has_grown_goes_on_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x"
    create(path)
    loader = gzarr.Loader(gzarr.open_array(path, device="cpu"), Rows(), batch_size=8)
    assert len(list(loader)) == 250
    gzarr.open_array(path, mode="r+").append(X[:5])
    with pytest.warns(UserWarning, match=r"has grown from shape \(2000, 16\) to \(2005, 16\), since this loader"):
        assert len(list(loader)) == 250


def test_arrays_that_only_consolidated_metadata_knows(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "g", zarr_format=2)
    group.create_array("a/x", data=X, chunks=(10, 16))
    gzarr.consolidate_metadata(tmp_path / "g")
    (tmp_path / "g/a/x/.zarray").unlink()
    a = gzarr.open_group(tmp_path / "g", device="cpu")["a/x"]
    loader = gzarr.Loader(a, Rows(), batch_size=8)  # type: ignore[arg-type]
    assert sum(len(batch["data"]) for batch in loader) == 2000


def test_a_store_that_fails_for_a_while_has_not_changed(tmp_path: Path) -> None:
    """Samples that cannot be read are left out, and the epoch goes on, though no document can be read either."""

    class Failing(gzarr.MemoryStore):
        failing = False

        def get(self, key: str) -> bytes | None:
            if self.failing:
                raise gzarr.StoreError("no connection", key=key)
            return super().get(key)

        def get_small_values(self, keys: Any, most: int) -> Any:
            return [self.get(key) for key in keys]

    store = Failing({})
    gzarr.create_array(store, data=X, chunks=(10, 16), device="cpu")
    bad: list[int] = []
    loader = gzarr.Loader(
        gzarr.open_array(store, device="cpu"), Rows(), batch_size=10, shuffle=False, prefetch=0, buffer_bytes=0,
        drop_last=False, on_error=lambda _, number: bad.append(number),
    )  # fmt: skip
    batches = iter(loader)
    seen = next(batches).samples.tolist()
    store.failing = True
    assert not len(next(batches).samples)
    store.failing = False
    seen += [i for batch in batches for i in batch.samples.tolist()]
    assert sorted(seen + bad) == list(range(2000))
    assert len(bad) == 10


def test_documents_of_a_remote_store(tmp_path: Path) -> None:
    with range_server(tmp_path) as url:
        create(tmp_path / "x")
        create(tmp_path / "y")
        arrays = {name: gzarr.open_array(f"{url}/{name}", device="cpu") for name in "xy"}
        loader = gzarr.Loader(arrays, Rows(), batch_size=100)
        assert sum(1 for _ in loader) == 20
        (tmp_path / "y").rename(tmp_path / "z")
        with pytest.raises(gzarr.errors.NodeNotFoundError, match="has been erased since it was opened"):
            iter(loader)
        await_end_of_threads()
        # The epoch has not begun.
        (tmp_path / "z").rename(tmp_path / "y")
        epochs = [[batch.samples.tolist() for batch in loader] for _ in range(2)]
        other = gzarr.Loader(arrays, Rows(), batch_size=100)
        assert epochs == [[batch.samples.tolist() for batch in other] for _ in range(3)][1:]
