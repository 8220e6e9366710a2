"""Damaged chunks, silent stores, wrong arguments; the end of a loader's threads."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import garbage
from support.loaders import DATA, ROWS, SHUFFLES, await_end_of_threads, labels, rows, write_rows

import gzarr
from gzarr.loader import Loader, Patches, Rows, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    (tmp_path / "x" / "c" / "3" / "0" / "0").write_bytes(b"damaged")
    return tmp_path


BAD = set(range(21, 28))


@pytest.fixture
def uncollected() -> Iterator[None]:
    with garbage.uncollected():
        yield


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_an_error_is_raised_in_the_place_of_its_batch(damaged: Path, prefetch: int, shuffle: Any) -> None:
    loader = rows(damaged, prefetch=prefetch, shuffle=shuffle)
    wanted = labels(rows(damaged, on_error="skip", shuffle=shuffle, prefetch=0))
    batches = iter(loader)
    found: list[list[int]] = []
    failures = []
    while len(found) < len(loader):
        try:
            batch = next(batches)
        except gzarr.ChunkDecodeError as error:
            failures.append(error)
            found.append([])
        else:
            found.append(batch.samples.tolist())
            assert np.array_equal(batch["x"], DATA[batch.samples])
    assert list(batches) == []
    assert failures
    assert all(error.chunk == (3, 0, 0) and "in sample" in error.__notes__[0] for error in failures)
    assert len(found) == len(wanted)
    for mine, other in zip(found, wanted, strict=True):
        assert mine in ([], other)
    assert not BAD & {number for batch in found for number in batch}


class Silent(gzarr.MemoryStore):
    """A store that fails for chunks when it is told to."""

    fails = False
    asked = 0

    def get(self, key: str) -> Any:
        if self.fails and "/c/" in f"/{key}":
            self.asked += 1
            raise gzarr.StoreError("no answer")
        return super().get(key)


def test_a_store_that_does_not_answer_is_not_asked_for_each_sample() -> None:
    store = Silent()
    gzarr.create_array(store, data=np.arange(2000), chunks=10)
    batches = iter(Loader(gzarr.open_array(store), batch_size=200, prefetch=0, shuffle=False))
    assert np.array_equal(next(batches)["data"], np.arange(200))
    store.fails = True
    with pytest.raises(gzarr.ChunkReadError, match="no answer"):
        next(batches)
    # The 40 chunks of a block, and the 20 of a batch; not those of 200 samples one by one.
    assert store.asked <= 60


def test_samples_that_cannot_be_read_are_skipped(damaged: Path) -> None:
    told: list[tuple[Exception, int]] = []
    for on_error in ("skip", lambda error, number: told.append((error, number))):
        loader = rows(damaged, on_error=on_error)
        seen = []
        for batch in loader:
            assert np.array_equal(batch["x"], DATA[batch.samples])
            assert np.array_equal(batch["y"], batch.samples)
            seen.extend(batch.samples.tolist())
        assert sorted(seen) == sorted(set(range(ROWS)) - BAD)
    assert sorted(number for _, number in told) == sorted(BAD)
    assert all(isinstance(error, gzarr.ChunkDecodeError) for error, _ in told)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_of_which_all_is_skipped_is_empty(tmp_path: Path, prefetch: int) -> None:
    array = gzarr.create_array(tmp_path, data=np.arange(100), chunks=5)
    for i in range(0, 20, 2):
        (tmp_path / "c" / str(i)).write_bytes(b"damaged")
    given: list[int] = []

    def transform(batch: Any) -> Any:
        given.append(len(batch.samples))
        return batch

    loader = Loader(
        array, batch_size=5, shuffle=False, prefetch=prefetch, on_error="skip", transform=transform, like="numpy"
    )
    batches = list(loader)
    # As many steps as without errors, as other ranks have.
    assert len(batches) == len(loader) == 20
    assert given == [len(batch["data"]) for batch in batches] == [0, 5] * 10
    assert {batch["data"].shape[1:] for batch in batches} == {()}


def test_an_error_of_the_transform_is_raised(root: Path) -> None:
    def transform(batch: Any) -> Any:
        if 7 in batch.samples:
            raise ValueError("seven")
        return len(batch.samples)

    batches = iter(rows(root, transform=transform, shuffle=False))
    with pytest.raises(ValueError, match="seven"):
        next(batches)
    assert next(batches) == 16


def failing(batch: Any) -> Any:
    if 40 in batch.samples:
        raise ValueError("40")
    return batch


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("buffer", [12000, 1 << 20])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"on_error": "skip"},
        {"on_error": lambda error, number: None},
        {"shuffle": "full"},
        {"transform": failing, "on_error": "skip"},
        {"sampler": Windows(0, runs={"x": (0, 3), "y": (0, 0)})},
        {"sampler": Windows(0, runs={"x": (0, 3), "y": (0, 0)}), "on_error": "skip"},
        {"changed": True},
    ],
    ids=lambda options: "-".join(options) or "raise",
)
def test_what_failed_is_not_kept(
    damaged: Path, options: dict[str, Any], buffer: int, prefetch: int, closes: bool, uncollected: None
) -> None:
    options = dict(options)
    changed = options.pop("changed", False)
    batches: Any = iter(rows(damaged, prefetch=prefetch, buffer_bytes=buffer, **{"shuffle": False, **options}))
    work = weakref.ref(batches._work)
    if changed:
        next(batches)
        shutil.rmtree(damaged / "y")
    failures = 0
    while not batches.ended:
        try:
            next(batches)
        except StopIteration:
            break
        except (gzarr.GzarrError, ValueError):
            failures += 1
            if closes:
                break
    assert failures or ("on_error" in options and "transform" not in options)
    assert batches.stats.skipped or closes or "on_error" not in options
    if closes:
        batches.close()
    del batches
    await_end_of_threads()
    assert work() is None


def test_an_error_that_comes_after_the_end_is_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch, uncollected: None
) -> None:
    """Its traceback has the frames of the thread, and these the memory of the epoch."""

    def fails(*_: object) -> None:
        raise ValueError("late")

    batches: Any = iter(rows(root, prefetch=2))
    work = batches._work
    monkeypatch.setattr(type(work), "_block", fails)
    work.stop()
    work.run_reader()
    gone = weakref.ref(work)
    del batches, work
    await_end_of_threads()
    assert gone() is None


@pytest.mark.parametrize("way", ["close", "break", "collect", "exhaust", "error"])
def test_threads_end(root: Path, way: str) -> None:
    # Errors of other tests keep their iterators until they are collected.
    gc.collect()
    await_end_of_threads()
    loader: Any = rows(root)
    batches: Any = iter(loader)
    next(batches)
    if way == "close":
        batches.close()
        assert list(batches) == []
    elif way == "break":
        for _ in batches:
            break
        del batches
    elif way == "collect":
        del batches, loader
        gc.collect()
    elif way == "exhaust":
        list(batches)
    else:
        with pytest.raises(ZeroDivisionError):
            batches.throw_away = 1 / 0
        del batches
    await_end_of_threads()


def test_two_iterators_at_a_time(root: Path) -> None:
    loader = rows(root)
    wanted = rows(root, prefetch=0)
    first, second = labels(wanted), labels(wanted)
    one, two = iter(loader), iter(loader)
    pairs = list(zip(one, two, strict=True))
    assert labels(a for a, _ in pairs) == first
    assert labels(b for _, b in pairs) == second


# -- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"world_size": 3, "streams": 64}, r"world_size 3 does not divide streams=64; .* streams=192"),
        ({"rank": 2, "world_size": 2}, "rank must be below"),
        ({"rank": -1}, "rank"),
        ({"shuffle": "some"}, "shuffle must be"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"prefetch": -1}, "prefetch"),
        ({"buffer_bytes": "1 GB"}, "buffer_bytes"),
        ({"seed": None}, "seed"),
    ],
)
def test_wrong_arguments_are_refused(root: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        rows(root, **options)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (Rows(axis=3), "no axis 3"),
        (Rows(where=[500]), "outside"),
        (Rows(where=[True]), "mask where= has shape"),
        (Rows(where=[1.5]), "where= must be"),
        (Windows(0, {}), "at least one run"),
        (Windows(0, {"x": (1, 0)}), "first and a last step"),
        (Windows(0, {"x": (0, 500)}), "takes 501 steps"),
        (Windows(0, {"x": (0, 1)}, stride=0), "stride"),
        (Windows(0, {"x": (0, 1)}, where=[499]), "not inside"),
        (Patches((600, 2, 3), pad=None), "do not fit"),
        (Patches((1, 1, 1, 1)), "no patches of 4 axes"),
        (Patches((0, 1, 1)), "shape must be"),
        (Patches((1, 1, 1), halo=1, pad=None), "halo needs pad"),
        (Patches((1, 1, 1), pad="mirror"), "pad must be one of reflect, symmetric.*SciPy calls 'mirror' is 'reflect'"),  # type: ignore[arg-type]
        (Patches((1, 1, 1), stride=(1, 2)), "stride must be"),
        (Patches((1, 1, 1), where=[(0, 0)]), "where= must be"),
        (Patches((1, 1, 1), where=np.ones((2, 2), bool)), "mask where= has shape"),
        (Patches((1, 1, 1), where=[(0, 0, 0)], weights=[-1]), "weights must be"),
        (Patches((1, 1, 1), where=[(0, 0, 0)], weights=[1, 2]), "weights must be"),
    ],
)
def test_samplers_that_do_not_fit_are_refused(root: Path, sampler: Any, message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(gzarr.open_array(root / "x"), sampler)


def test_arrays_that_do_not_fit_each_other_are_refused(root: Path, tmp_path: Path) -> None:
    a, b = gzarr.open_array(root / "x"), gzarr.create_array(tmp_path, data=np.arange(9))
    with pytest.raises(gzarr.ArgumentError, match="one length along axis 0"):
        Loader({"a": a, "b": b})
    for wrong in ({}, [], [{}], {"a": 1}, [None], [a, b], ["x"]):
        with pytest.raises(gzarr.GzarrError):
            Loader(wrong)


@pytest.mark.parametrize("refused", [1, 2])
def test_without_threads_the_consumer_does_the_work(root: Path, refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process ends (Python 3.12 and later), or has too many."""
    before = [batch.samples.tolist() for batch in rows(root)]
    start, starts = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) >= refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    loader = rows(root)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [batch.samples.tolist() for batch in loader] == before
    assert len(starts) == refused
    a = gzarr.array(DATA, chunks=(50, *DATA.shape[1:]), device="cpu")
    starts.clear()
    found = gzarr.map_blocks(lambda block: block + 1, a, out={}, block=100)
    assert len(starts) >= 1
    np.testing.assert_array_equal(found[...], DATA + 1)
