"""Appending to sparse matrices that fails, is killed, or has company: readers see whole blocks."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from support import writers
from support.sparse_groups import dense

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def block(i: int) -> Any:
    return sp.csr_array(dense((7, 30), seed=i))


def stacked(count: int) -> np.ndarray[Any, Any]:
    return np.vstack([np.zeros((0, 30), "f4"), *(block(i).toarray() for i in range(count))])


class FailingStore(gzarr.MemoryStore):
    """A store in memory that refuses everything after some writes."""

    left = 10**9

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise gzarr.StoreError("the disk is full")

    def set(self, key: str, value: Any) -> None:
        self._count()
        super().set(key, value)

    def set_parts(self, key: str, parts: Sequence[Any]) -> None:
        self._count()
        super().set_parts(key, parts)

    def erase(self, key: str) -> None:
        self._count()
        super().erase(key)

    def erase_values(self, keys: Iterable[str]) -> None:
        self._count()
        super().erase_values(keys)


@pytest.mark.parametrize("layout", [{"chunks": 16}, {"chunks": 16, "shards": 64}], ids=["chunks", "shards"])
def test_a_store_that_fails_at_each_write(layout: dict[str, Any]) -> None:
    store = FailingStore()
    m = gzarr.sparse.create(store, block(0), **layout)
    count, failures = 1, 0
    for _ in range(3):
        for writes in range(1000):
            store.left = writes
            try:
                m.append(block(count))
            except (gzarr.StoreError, gzarr.ChunkWriteError):
                failures += 1
            else:
                count += 1
                break
            finally:
                store.left = 10**9
            np.testing.assert_array_equal(m.to_dense(), stacked(count))
            np.testing.assert_array_equal(gzarr.sparse.open(store, device="cpu").to_dense(), stacked(count))
        np.testing.assert_array_equal(gzarr.sparse.open(store, device="cpu").to_dense(), stacked(count))
    assert count == 4
    assert failures > 20


class FailingOnce(FailingStore):
    """A store in memory that fails at one write, before it or after it, and works again."""

    after = False

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise gzarr.StoreError("the connection was lost")

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        if self.left == 0 and self.after:
            self.left = -1
            raise gzarr.StoreError("the answer was lost")


def lengths(store: gzarr.MemoryStore) -> list[int]:
    return [len(gzarr.open_array(store, path=name, device="cpu")) for name in ("data", "indices", "indptr")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("layout", [{"chunks": 16}, {"chunks": 16, "shards": 64}], ids=["chunks", "shards"])
def test_a_failed_append_leaves_nothing(layout: dict[str, Any], after: bool) -> None:
    created = gzarr.MemoryStore()
    gzarr.sparse.create(created, block(0), **layout)
    old = stacked(1)
    failures = 0
    for write in range(1, 1000):
        store = FailingOnce({key: created.get(key) or b"" for key in created.list()})
        m = gzarr.sparse.open(store, mode="r+", device="cpu")
        store.left, store.after = write, after
        try:
            m.append(block(1))
        except (gzarr.StoreError, gzarr.ChunkWriteError):
            failures += 1
        if store.left > 0:
            break
        found = gzarr.sparse.open(store, device="cpu").to_dense()
        # Only where the answer to the last write was lost, it is there.
        assert len(found) == 7 or (after and len(found) == 14)
        np.testing.assert_array_equal(found, stacked(len(found) // 7))
        # What appends behind the ends of the arrays, as AnnData does, continues the matrix.
        assert lengths(store) == [np.count_nonzero(found), np.count_nonzero(found), len(found) + 1]
    assert failures > 4
    np.testing.assert_array_equal(gzarr.sparse.open(created, device="cpu").to_dense(), old)


def test_an_interrupted_append_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = gzarr.MemoryStore()
    m = gzarr.sparse.create(store, block(0), chunks=16)
    before = lengths(store)
    was = gzarr.Array.append

    def interrupted(array: gzarr.Array, *args: Any, **options: Any) -> Any:
        if array.path == "indptr":
            raise KeyboardInterrupt
        return was(array, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(gzarr.Array, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            m.append(block(1))
    assert lengths(store) == before
    m.append(block(1))
    np.testing.assert_array_equal(m.to_dense(), stacked(2))


class BrokenStore(gzarr.MemoryStore):
    """A store that is interrupted once, and raises afterwards what stores of third parties may raise."""

    interrupted: bool | None = None

    def set(self, key: str, value: Any) -> None:
        if self.interrupted:
            raise RuntimeError("it is closed")
        if self.interrupted is False and key.startswith("indptr"):
            self.interrupted = True
            raise KeyboardInterrupt
        super().set(key, value)


def test_the_first_error_is_raised() -> None:
    store = BrokenStore()
    m = gzarr.sparse.create(store, block(0), chunks=16)
    store.interrupted = False
    with pytest.raises(KeyboardInterrupt):
        m.append(block(1))
    assert store.interrupted
    np.testing.assert_array_equal(gzarr.sparse.open(store, device="cpu").to_dense(), stacked(1))


@pytest.mark.slow
def test_killed_while_appending_rows(tmp_path: Path) -> None:
    gzarr.sparse.create(tmp_path, shape=(0, 30), chunks=16, shards=64)
    rng = random.Random(3)
    kills, blocks, at_most_s = 0, 0, 0.05
    while kills < 15 or blocks < 8:

        def append() -> None:
            m = gzarr.sparse.open(tmp_path, mode="r+", device="cpu")
            while True:
                m.append(block(m.shape[0] // 7))

        writers.kill_at_random(append, at_most_s, rng)
        kills += 1
        m = gzarr.sparse.open(tmp_path, device="cpu")
        assert m.shape[0] % 7 == 0
        before, blocks = blocks, m.shape[0] // 7
        assert blocks >= before
        if blocks == before:
            at_most_s *= 1.3
        np.testing.assert_array_equal(m.to_dense(), stacked(blocks))


def test_a_reader_sees_whole_blocks(tmp_path: Path) -> None:
    m = gzarr.sparse.create(tmp_path, shape=(0, 30), chunks=16)
    seen, failures = set(), []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                found = gzarr.sparse.open(tmp_path, device="cpu").to_dense()
                assert len(found) % 7 == 0
                seen.add(len(found))
                np.testing.assert_array_equal(found, stacked(len(found) // 7))
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for i in range(20):
        m.append(block(i))
    done.set()
    reader.join()
    assert not failures, failures
    assert len(seen) > 1


def test_threads_take_turns(tmp_path: Path) -> None:
    gzarr.sparse.create(tmp_path, shape=(0, 30), chunks=16)

    def work(i: int) -> None:
        m = gzarr.sparse.open(tmp_path, mode="r+", device="cpu")
        for _ in range(3):
            m.append(block(i), lock=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = gzarr.sparse.open(tmp_path, device="cpu").to_dense().reshape(12, 7, 30)
    numbers = [next(i for i in range(4) if (part == block(i).toarray()).all()) for part in found]
    assert sorted(numbers) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_a_damaged_matrix_takes_nothing() -> None:
    store = gzarr.MemoryStore()
    m = gzarr.sparse.create(store, block(0), chunks=16)
    gzarr.open_array(store, path="indptr", mode="r+")[7] = 10**12
    before = {key: store.get(key) for key in store.list()}
    with pytest.raises(gzarr.ChunkDecodeError, match=r"1000000000000 values.*nothing was appended"):
        m.append(block(1))
    assert {key: store.get(key) for key in store.list()} == before
