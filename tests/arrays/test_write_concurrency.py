"""Concurrent writers lose nothing: threads, processes, dask's workers; and readers see only whole chunks."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest
import zarr
from support import writers as w

import gzarr
from gzarr.engines.access import locate as locating
from gzarr.stores import LocalStore, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

# -- the peers' recipes


RECIPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    # Shape, chunks of dask, layout of the array.
    "zarr-python 3682": ((100, 100, 100), (25, 25, 25), {"chunks": (25, 25, 25), "shards": (50, 50, 50)}),
    "dask 12583, chunks": ((10, 10), (2, 2), {"chunks": (4, 4)}),
    "dask 12583, shards": ((10, 10), (2, 2), {"chunks": (2, 2), "shards": (4, 4)}),
    "zarr-python 3514": ((100, 30, 30), (25, 25, 25), {"chunks": (8, 3, 5), "shards": (48, 24, 25)}),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_by_which_others_lose_data(
    recipe: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """dask's workers store neighbouring blocks of one chunk or shard."""
    shape, blocks, layout = RECIPES[recipe]
    data = np.arange(1, np.prod(shape) + 1, dtype="f8").reshape(shape)
    source = da.from_array(data, chunks=blocks)
    theirs = zarr.create_array(tmp_path / "theirs", shape=shape, dtype="f8", **layout)
    da.store(source, theirs, lock=False, scheduler="threads", num_workers=8)
    # What is lost there is a matter of luck; it is told (pytest --junit-xml), and nothing depends on it.
    record_property("lost by zarr-python", float((np.asarray(theirs[...]) != data).mean()))
    zarr.create_array(tmp_path / "ours", shape=shape, dtype="f8", **layout)
    ours = gzarr.open_array(tmp_path / "ours", mode="r+", device="cpu")
    da.store(source, ours, lock=False, scheduler="threads", num_workers=8)
    np.testing.assert_array_equal(ours[...], data)
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path / "ours", mode="r")[...]), data)


# -- threads


def through_one_array(root: Path) -> list[gzarr.Array]:
    return [gzarr.open_array(root, path="g/a", mode="r+", device="cpu")]


def through_arrays(root: Path) -> list[gzarr.Array]:
    store = LocalStore(root)
    return [gzarr.open_array(store, path="g/a", mode="r+", device="cpu") for _ in range(3)]


def through_stores(root: Path) -> list[gzarr.Array]:
    """Return arrays of the same files: from the root, from below, through links, by a store that refuses links."""
    (root / "link").symlink_to(root / "g")
    (root.parent / "alias").symlink_to(root)
    return [
        gzarr.open_array(root, path="g/a", mode="r+", device="cpu"),
        gzarr.open_array(root / "g", path="a", mode="r+", device="cpu"),
        gzarr.open_array(root / "g" / "a", mode="r+", device="cpu"),
        gzarr.open_array(root.parent / "alias" / "g", path="a", mode="r+", device="cpu"),
        gzarr.open_array(root, path="link/a", mode="r+", device="cpu"),
        gzarr.open_array(LocalStore(root, follow_symlinks=False), path="g/a", mode="r+", device="cpu"),
        gzarr.open_array(LocalStore(root / "g" / "a", follow_symlinks=False), mode="r+", device="cpu"),
    ]


def write_own(array: gzarr.Array, own: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], how: int) -> None:
    """Write exactly the elements that a mask selects, in one of several ways."""
    if how == 0:
        array.vindex[own] = expected[own]
        return
    for row in np.flatnonzero(own.any(axis=1)).tolist():
        columns = np.flatnonzero(own[row])
        if how == 1:
            array.oindex[[row], columns] = expected[row, columns][None]
        elif how == 2:
            array.write_many([(row, c) for c in columns.tolist()], [expected[row, c] for c in columns.tolist()])
        else:
            for c in columns.tolist():
                array[row, c] = expected[row, c]


@pytest.mark.parametrize("through", [through_one_array, through_arrays, through_stores])
@pytest.mark.parametrize("layout", ["chunks", "raw shards", "shards of a codec in threads"])
def test_threads_that_share_chunks(layout: str, through: Any, tmp_path: Path) -> None:
    """All threads share every chunk, by single elements, and each thread writes in its own way."""
    root = tmp_path / "root"
    w.make(root / "g" / "a", layout, rows=8)
    arrays = through(root)
    n = 8
    expected = np.arange(1, 8 * w.WIDTH + 1, dtype="i4").reshape(8, w.WIDTH)
    owner = np.random.default_rng(0).integers(0, n, expected.shape)
    w.in_threads([lambda i=i: write_own(arrays[i % len(arrays)], owner == i, expected, i // 2 % 4) for i in range(n)])
    np.testing.assert_array_equal(arrays[0][...], expected)
    np.testing.assert_array_equal(np.asarray(zarr.open_array(root / "g" / "a", mode="r")[...]), expected)


def test_threads_that_share_chunks_in_memory() -> None:
    store = MemoryStore()
    array = gzarr.create_array(store, shape=(8, w.WIDTH), chunks=(2, 8), shards=(4, 32), dtype="i4", device="cpu")
    expected = np.arange(1, array.size + 1, dtype="i4").reshape(array.shape)
    owner = np.arange(array.size).reshape(array.shape) % 8
    w.in_threads([lambda i=i: write_own(array, owner == i, expected, i % 4) for i in range(8)])
    np.testing.assert_array_equal(array[...], expected)


def test_fields_of_one_chunk(tmp_path: Path) -> None:
    """Each thread writes a field of the same records."""
    dtype = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "S4")])
    zarr.create_array(tmp_path, shape=(40,), chunks=(20,), dtype=dtype, zarr_format=2, fill_value=None)
    array = gzarr.open_array(tmp_path, mode="r+", device="cpu")
    expected = np.zeros(40, dtype)
    expected["a"], expected["b"], expected["c"] = np.arange(40), np.arange(40) / 3, np.arange(40).astype("S4")

    def work(name: str) -> None:
        for i in range(40):
            array[i, name] = expected[name][i]

    w.in_threads([lambda name=name: work(name) for name in dtype.names])
    np.testing.assert_array_equal(array[...], expected)


def appended(array: np.ndarray[Any, Any], blocks: int, rows: int) -> None:
    """Check that an array consists of blocks of rows, each with one value, and that each value occurs once."""
    assert array.shape == (blocks * rows, w.WIDTH)
    firsts = array[::rows, 0]
    np.testing.assert_array_equal(array, np.repeat(firsts, rows)[:, None] * np.ones(w.WIDTH, "i4"))
    assert sorted(firsts.tolist()) == list(range(1, blocks + 1))


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_threads_append_in_turns(layout: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    w.make(root / "g" / "a", layout, rows=0)
    arrays = through_stores(root)

    def work(i: int) -> None:
        for k in range(4):
            arrays[i].append(np.full((3, w.WIDTH), i * 4 + k + 1, "i4"))

    w.in_threads([lambda i=i: work(i) for i in range(6)])
    appended(gzarr.open_array(root, path="g/a", device="cpu")[...], 24, 3)


# -- processes


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_processes_with_locks(layout: str, tmp_path: Path) -> None:
    """Each process has elements of its own in all chunks, writes several chunks at a time, and opened another store."""
    root = tmp_path / "root"
    w.make(root / "g" / "a", layout, rows=8)
    arrays = through_stores(root)[:5]
    n = len(arrays)

    def work(i: int) -> None:
        # In different orders, so that none waits for another in a circle.
        rows = range(8) if i % 2 else range(7, -1, -1)
        for row, column in itertools.product(rows, range(i, w.WIDTH, 4 * n)):
            arrays[i].write(np.s_[row, column::n], np.full(len(range(column, w.WIDTH, n)), row * 10 + i), lock=True)
        arrays[i].write(np.s_[:, i::n], np.full(len(range(i, w.WIDTH, n)), 100 + i), lock=True)

    w.in_processes([lambda i=i: work(i) for i in range(n)])
    expected = np.broadcast_to(100 + np.arange(w.WIDTH, dtype="i4") % n, (8, w.WIDTH))
    np.testing.assert_array_equal(arrays[0][...], expected)


def test_processes_append_with_locks(tmp_path: Path) -> None:
    root = tmp_path / "root"
    w.make(root / "g" / "a", "shards", rows=0)
    arrays = through_stores(root)

    def work(i: int) -> None:
        for k in range(4):
            arrays[i].append(np.full((3, w.WIDTH), i * 4 + k + 1, "i4"), lock=True)

    w.in_processes([lambda i=i: work(i) for i in range(4)])
    appended(gzarr.open_array(root, path="g/a", device="cpu")[...], 16, 3)


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_processes_without_locks_on_their_own_chunks(layout: str, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout, rows=32)

    def work(i: int) -> None:
        for k in range(10):
            for j in range(2):
                value = np.full((4, 32), 100 * k + 2 * i + j)
                array.write(np.s_[4 * i : 4 * i + 4, 32 * j : 32 * j + 32], value, aligned=True)

    w.in_processes([lambda i=i: work(i) for i in range(8)])
    expected = 900 + np.kron(np.arange(16).reshape(8, 2), np.ones((4, 32), "i4"))
    np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("durable", [False, True])
def test_processes_that_empty_and_fill_one_directory(durable: bool, tmp_path: Path) -> None:
    """Chunks of only fill values are erased, and with the last of them the directory that others write into."""
    store = LocalStore(tmp_path, durable=durable)
    array = gzarr.create_array(store, shape=(24, 4, 4), chunks=(4, 4, 4), dtype="u1", device="cpu")

    def work(i: int) -> None:
        for k in range(200 if durable else 1000):
            array[4 * i : 4 * i + 4] = k % 2

    w.in_processes([lambda i=i: work(i) for i in range(6)])
    np.testing.assert_array_equal(array[...], 1)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_of_processes_that_make_a_node_one_succeeds(zarr_format: Any, tmp_path: Path) -> None:
    def work(i: int) -> None:
        for k in range(150):
            with contextlib.suppress(gzarr.ArgumentError):
                path = tmp_path / f"{k}/a"
                gzarr.create_array(path, shape=i + 1, chunks=1, dtype="u1", zarr_format=zarr_format)
                (tmp_path / f"{k}-made-by-{i}").touch()

    w.in_processes([lambda i=i: work(i) for i in range(3)])
    for k in range(150):
        (winner,) = tmp_path.glob(f"{k}-made-by-*")
        assert gzarr.open_array(tmp_path / f"{k}/a").shape == (int(winner.name[-1]) + 1,)


def state(path: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_ino) for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_regions_that_are_not_aligned_are_refused_before_anything_is_written(layout: str, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout)
    array[...] = 1
    before = state(tmp_path)
    for selection in (np.s_[0:15], np.s_[:, 0:40], np.s_[4:8, 8:32], np.s_[::2], np.s_[3]):
        for lock in (False, True):
            with pytest.raises(gzarr.ArgumentError, match="aligned"):
                array.write(selection, 2, aligned=True, lock=lock)
    with pytest.raises(gzarr.ArgumentError, match="aligned"):
        array.write_many([np.s_[0:4], np.s_[4:7]], [2, 2], aligned=True)
    assert state(tmp_path) == before


@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_boxes_that_cover_a_chunk_together_are_aligned(layout: str, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout)
    upper, lower = np.s_[:3], np.s_[3 : array.shape[0]]
    array.write_many([upper, lower], [1, 2], aligned=True)
    assert (array[upper] == 1).all()
    assert (array[lower] == 2).all()
    before = state(tmp_path)
    for other in (np.s_[4:], np.s_[3:, 1:]):
        with pytest.raises(gzarr.ArgumentError, match="aligned"):
            array.write_many([upper, other], [3, 3], aligned=True)
    assert state(tmp_path) == before


def test_stores_without_locks_say_so() -> None:
    array = gzarr.create_array(MemoryStore(), shape=(8,), chunks=(4,), dtype="i4", device="cpu")
    for change in (lambda: array.write(..., 1, lock=True), lambda: array.append([1], lock=True)):
        with pytest.raises(gzarr.ArgumentError, match="no locks between processes"):
            change()
    assert array.nchunks_initialized == 0
    assert array.shape == (8,)


@pytest.mark.parametrize("layout", ["chunks", "shards of a codec in threads"])
def test_fork_while_another_thread_writes(layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child writes, with and without locks, what threads of its parent are writing at that moment."""
    monkeypatch.setenv("GZARR_THREADS", "3")
    array = w.make(tmp_path, layout)
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            array.write(np.s_[:8], 1)
            array.write(np.s_[1:7], 1, lock=True)

    def child() -> None:
        # Its own chunks without, the parent's with locks.
        array.write(np.s_[8:15], 2)
        array.write(np.s_[15, ::2], 2, lock=True)
        array.write(np.s_[0, 0], 1, lock=True)

    def fork() -> None:
        try:
            for _ in range(12):
                w.finish(w.start(child), seconds=20)
                time.sleep(0.003)
        finally:
            stop.set()

    w.in_threads([loop, loop, fork])
    expected = np.zeros((16, w.WIDTH), "i4")
    expected[:8], expected[8:15], expected[15, ::2] = 1, 2, 2
    np.testing.assert_array_equal(array[...], expected)


# -- readers


def read_all_ways(path: Path) -> Callable[[], list[np.ndarray[Any, Any]]]:
    """Return a function that reads the array by plans that are large, small, and of few chunks."""
    array = gzarr.open_array(path, device="cpu")

    def read() -> list[np.ndarray[Any, Any]]:
        parts = [array[row : row + 4, :] for row in range(0, array.shape[0], 4)]
        return [array[...], np.concatenate(parts)]

    return read


@pytest.mark.parametrize("layout", w.LAYOUTS)
@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_readers_see_whole_chunks(layout: str, processes: bool, tmp_path: Path) -> None:
    array = w.make(tmp_path, layout)
    inner = w.LAYOUTS[layout]["chunks"]
    array[...] = w.stamp(1, array.shape, inner)
    stop = tmp_path / "stop"

    def write(first: int) -> None:
        for generation in itertools.count(first, 2):
            if stop.exists():
                return
            array[...] = w.stamp(generation, array.shape, inner)

    def read() -> None:
        try:
            of_array = read_all_ways(tmp_path)
            seen = set()
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                for found in of_array():
                    seen.update(np.unique(w.generations(found, inner)).tolist())
            assert len(seen) > 3
        finally:
            stop.touch()

    if processes:
        pids = [w.start(lambda: write(2))]
        read()
        w.finish(*pids)
    else:
        w.in_threads([lambda: write(2), lambda: write(3), read])


@pytest.mark.parametrize("layout", ["shards", "raw shards", "shards of a codec in threads"])
@pytest.mark.parametrize("memory", [False, True], ids=["files", "memory"])
def test_a_shard_replaced_between_its_index_and_its_chunks(
    layout: str, memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The critical moment is prolonged here: the new shard has other chunks, at other positions."""
    array = w.make(tmp_path, layout)
    if memory:
        store = MemoryStore()
        for key in LocalStore(tmp_path).list():
            store.set(key, LocalStore(tmp_path).get(key) or b"")
        array = gzarr.open_array(store, mode="r+", device="cpu")
    inner = w.LAYOUTS[layout]["chunks"]
    array[...] = w.stamp(1, array.shape, inner)
    # Small reads do not look for chunks whose indexes are known; they have tests of their own.
    monkeypatch.setattr("gzarr.engines.cpu.small_reads.small_reads_of", lambda *_: None)
    generation, replace_until = 1, 0
    real = locating.Locator.locate

    def locate(*arguments: Any, **named: Any) -> Any:
        nonlocal generation
        sources = real(*arguments, **named)
        if generation < replace_until:
            generation += 1
            array[...] = w.stamp(generation, array.shape, inner)
        return sources

    monkeypatch.setattr(locating.Locator, "locate", locate)
    # By the indexes of many shards at once, and of few.
    for selection in (np.s_[...], np.s_[4:12, :], np.s_[0:4, :32], np.s_[:, :32]):
        replace_until = generation + 3
        found = array[selection]
        assert generation == replace_until
        np.testing.assert_array_equal(found, w.stamp(generation, array.shape, inner)[selection])
    replace_until = generation + 100_000
    monkeypatch.setattr(locating, "MOST_ATTEMPTS", 5)
    with pytest.raises(gzarr.ChunkReadError, match=r"key 'c/1/0': its shard was replaced during each of 5 reads"):
        array[4:8, :32]


def test_an_error_that_a_replaced_shard_does_not_explain(tmp_path: Path) -> None:
    """A corrupt shard stays an error while another one is being replaced."""
    array = w.make(tmp_path, "shards")
    inner = w.LAYOUTS["shards"]["chunks"]
    array[...] = w.stamp(1, array.shape, inner)
    shard = tmp_path / "c" / "1" / "1"
    shard.write_bytes(b"\xff" * 40 + shard.read_bytes()[40:])
    stop = threading.Event()

    def write() -> None:
        for generation in itertools.count(2):
            if stop.is_set():
                return
            array[8:] = w.stamp(generation, array.shape, inner)[8:]

    def read() -> None:
        opened = gzarr.open_array(tmp_path, device="cpu")
        try:
            for _ in range(50):
                with pytest.raises(gzarr.ChunkDecodeError) as caught:
                    opened[...]
                assert caught.value.key == "c/1/1"
        finally:
            stop.set()

    w.in_threads([write, read])
