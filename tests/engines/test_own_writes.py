"""A process sees what it has written itself, however coarse the times of files are; it keeps nothing of old shards."""

from __future__ import annotations

import stat
import struct
import time
import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest
from support.counting_store import CountingStore

import gzarr
from gzarr.stores import file_tree, local
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from gzarr.stores.base import ByteRange

#: Other inner chunks are stored, of a shard with as many bytes.
BEFORE, AFTER = np.array([1, 2, 3, 4, 0, 0, 0, 0], "i4"), np.array([0, 0, 0, 0, 5, 6, 7, 8], "i4")


def by_size(status: os.stat_result) -> tuple[int, ...]:
    """Return all that differs between two files if times are coarse and inodes are used again."""
    return status.st_dev, status.st_size


def just_now(status: os.stat_result) -> tuple[int, ...]:
    return file_tree.FreshVersion(by_size(status))


def made(store: Any, **options: Any) -> Any:
    return gzarr.create_array(store, shape=(8,), dtype="i4", chunks=(4,), shards=(8,), device="cpu", **options)


@pytest.mark.parametrize("codecs", [[], [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]])
@pytest.mark.parametrize("follow_symlinks", [True, False])
def test_own_writes_of_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codecs: list[Any], follow_symlinks: bool
) -> None:
    monkeypatch.setattr(local, "identity", by_size)
    array = made(LocalStore(tmp_path / "a", follow_symlinks=follow_symlinks), codecs=codecs)
    above = gzarr.open_array(LocalStore(tmp_path), path="a", device="cpu")
    array[:] = BEFORE
    for handle in (array, above):
        np.testing.assert_array_equal(handle[:], BEFORE)
        np.testing.assert_array_equal(handle[:2], BEFORE[:2])
    size = (tmp_path / "a/c/0").stat().st_size
    array[:] = AFTER
    assert (tmp_path / "a/c/0").stat().st_size == size or codecs
    for handle in (array, above):
        np.testing.assert_array_equal(handle[:], AFTER)


def test_an_index_of_just_now_is_not_kept_where_times_are_coarse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "identity", just_now)
    array = made(tmp_path / "a", codecs=[])
    array[:] = AFTER
    after = (tmp_path / "a/c/0").read_bytes()
    array[:] = BEFORE
    cached = gzarr.CachedStore(LocalStore(tmp_path / "a", read_only=True), tmp_path / "cache", 1 << 30)
    handles = [array, gzarr.open_array(cached, device="cpu")]
    for handle in handles:
        np.testing.assert_array_equal(handle[:], BEFORE)
    (tmp_path / "a/c/0").write_bytes(after)
    for handle in handles:
        np.testing.assert_array_equal(handle[:], AFTER)


def test_what_versions_are_of_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    second = 1_000_000_000
    now = time.time_ns() // second * second
    # However slow the machine is.
    monkeypatch.setattr(file_tree, "time", SimpleNamespace(time_ns=lambda: now + second))

    def is_fresh(written: int, changed: int) -> bool:
        status: Any = SimpleNamespace(
            st_mode=stat.S_IFREG, st_dev=1, st_ino=2, st_size=3, st_mtime_ns=written, st_ctime_ns=changed
        )
        version = file_tree.identity(status)
        assert version == (1, 2, 3, written, changed)
        return isinstance(version, file_tree.FreshVersion)

    assert is_fresh(now, now)
    assert is_fresh(now - 60 * second, now + 5_000_000)
    assert is_fresh(now + 60 * second, now + 60 * second)
    assert not is_fresh(now - second, now - second)
    assert not is_fresh(now, now + 1)
    assert not is_fresh(now + 1, now)


def test_values_in_memory_are_not_kept_once_they_are_gone() -> None:
    mapping: dict[str, bytes] = {}
    nbytes = 4 << 20
    shape: Any = {"shape": (4 * nbytes,), "chunks": (nbytes // 4,), "shards": (nbytes,)}
    tracemalloc.start()
    try:
        array = gzarr.create_array(MemoryStore(mapping), dtype="u1", codecs=[], device="cpu", **shape)
        array[:] = 1
        assert array[:].all()
        array[:nbytes] = 2
        assert array[: 2 * nbytes : nbytes].tolist() == [2, 1]
        assert 4 * nbytes < tracemalloc.get_traced_memory()[0] < 4.5 * nbytes
        MemoryStore(mapping).erase_prefix("c/")
        assert tracemalloc.get_traced_memory()[0] < nbytes / 2
        assert not array[:].any()
    finally:
        tracemalloc.stop()


def with_gap(shard: bytes, gap: int) -> bytes:
    """Return a shard of two inner chunks with bytes that belong to none, before them."""
    index = [n + gap * (i % 2 == 0) for i, n in enumerate(struct.unpack("<4Q", shard[-36:-4]))]
    encoded = struct.pack("<4Q", *index)
    return bytes(gap) + shard[:-36] + encoded + struct.pack("<I", google_crc32c.value(encoded))


class _Replaced:
    """Part of a store in which another process replaces a shard once, after the index was read."""

    mapping: Any
    new: bytes | None = None

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        found: list[bytes | None] = super().get_partial_values(key_ranges)  # type: ignore[misc]
        if self.new is not None and key_ranges:
            self.mapping["c/0"], self.new = self.new, None
        return found


class _InMemory(_Replaced, MemoryStore):
    pass


class _Remote(_Replaced, CountingStore):
    pass


@pytest.mark.parametrize("kind", [_InMemory, _Remote])
def test_a_large_shard_that_is_replaced_while_it_is_changed(kind: Any) -> None:
    store = kind()
    array = made(store, codecs=[{"name": "numcodecs.bz2", "configuration": {"level": 1}}])
    array[:] = np.arange(10, 18)
    new = with_gap(store.mapping["c/0"], (1 << 20) + 7)
    array[:] = np.arange(20, 28)
    store.mapping["c/0"] = with_gap(store.mapping["c/0"], 1 << 20)
    store.new = new
    array[1] = 99
    assert store.new is None
    np.testing.assert_array_equal(array[:], [10, 99, *range(12, 18)])
    assert len(store.mapping["c/0"]) < 1024
