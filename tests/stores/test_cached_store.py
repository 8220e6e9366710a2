"""A cache on disk before a store: against a real S3 server behind a proxy that counts requests, and directories."""

from __future__ import annotations

import http.server
import math
import os
import pickle
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers
from support.fault_proxy import FAULTS, FaultProxy, Seen

import gzarr
from gzarr.errors import ArgumentError, ChunkError, GzarrError, ReadOnlyError, ValueReplacedError, ValueSizeError
from gzarr.stores import ByteRange
from gzarr.stores import base as protocols
from gzarr.stores.base import Request
from gzarr.stores.cache_directory import CacheDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

BUCKET = "cached"
SECRET_NAME = "unmistakable-name"
CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
NO_FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server, stall_s=1.0) as made:
        yield made


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"s3://{BUCKET}/{SECRET_NAME}-{name}"


def options(proxy: FaultProxy) -> dict[str, Any]:
    return servers.s3_options(proxy.url, **servers.PATIENT)


@pytest.fixture
def writer(proxy: FaultProxy, url: str) -> Any:
    """The store without a cache."""
    return gzarr.open_store(url, read_only=False, storage_options=options(proxy))


@pytest.fixture
def cached(proxy: FaultProxy, url: str, tmp_path: Path) -> Callable[..., Any]:
    """Function that makes a store with a cache in one directory."""

    def make(max_bytes: int = 64 << 20, **arguments: Any) -> gzarr.CachedStore:
        return gzarr.CachedStore(url, tmp_path / "cache", max_bytes, storage_options=options(proxy), **arguments)

    return make


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


def files(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "gzarr-cache-1").rglob("*") if path.is_file())


_before = [0.0]


@pytest.fixture(autouse=True)
def count_from_here() -> None:
    _before[0] = gzarr.stats()["cache_failures"]


def failures() -> int:
    """Return the failures of caches in this test."""
    return int(gzarr.stats()["cache_failures"] - _before[0])


# -- requests


@pytest.mark.parametrize("check", ["always", "once", 60, math.inf])
@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_requests_are_counted(
    proxy: FaultProxy, writer: Any, cached: Callable[..., Any], check: Any, kind: dict[str, Any]
) -> None:
    data = elements()
    plain = gzarr.create_array(writer, data=data, **kind)

    def seen_by(array: gzarr.Array, selection: Any = np.s_[...]) -> list[Seen]:
        before = gzarr.stats()
        with proxy.counting() as seen:
            np.testing.assert_array_equal(array[selection], data[selection])
        after = gzarr.stats()
        assert after["requests"] - before["requests"] == len(seen)
        assert after["bytes_read"] - before["bytes_read"] == sum(one.nbytes for one in seen)
        return seen

    fresh = gzarr.open_array(writer)
    expected = len(seen_by(fresh))
    assert expected == (4 if kind is SHARDED else 16)
    store = cached(check=check)
    array = gzarr.open_array(store)
    assert len(seen_by(array)) == expected
    # A kept index of a shard is used unchecked by arrays, with or without a cache.
    expected = len(seen_by(fresh))
    hits = gzarr.stats()["cache_hits"]
    seen = seen_by(array)
    assert gzarr.stats()["cache_hits"] - hits == expected
    if check == "always":
        assert [one.status for one in seen] == [304] * expected
    else:
        assert not seen
    assert len(seen_by(array, np.s_[:60, :50])) == (0 if check != "always" else expected // 4)
    # Metadata is confirmed when a node is opened.
    with proxy.counting() as seen:
        array = gzarr.open_array(store)
    assert [one.status for one in seen] == [304]
    # Another store over the same directory, as in a new process.
    array = gzarr.open_array(cached(check=check))
    seen = seen_by(array)
    assert not sum(one.nbytes for one in seen)
    if check in (60, math.inf):
        assert not seen
    elif check == "once":
        # The index of a shard confirms the version of its chunks.
        assert [one.status for one in seen] == [304] * (4 if kind is SHARDED else 16)
    assert failures() == 0
    np.testing.assert_array_equal(plain[...], data)


def test_seconds(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    writer.set("key", b"old")
    # Stores with one directory: what one of them confirms, it confirms for both.
    store, soon = cached(check=60), cached(check=0.2)
    assert bytes(store.get_many([Request("key")])[0].value) == b"old"
    writer.set("key", b"new")
    assert bytes(store.get_many([Request("key")])[0].value) == b"old"
    time.sleep(0.3)
    assert bytes(soon.get_many([Request("key")])[0].value) == b"new"
    with proxy.counting() as seen:
        assert bytes(store.get_many([Request("key")])[0].value) == b"new"
    assert not seen
    time.sleep(0.3)
    with proxy.counting() as seen:
        assert bytes(soon.get_many([Request("key")])[0].value) == b"new"
        assert bytes(store.get_many([Request("key")])[0].value) == b"new"
    assert [one.status for one in seen] == [304]


def test_windows_fetch_what_is_missing(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    data = np.random.default_rng(0).integers(0, 2**31, (64, 100, 100), dtype="i4")
    gzarr.create_array(writer, data=data, chunks=(1, 100, 100), shards=(64, 100, 100), codecs=["bytes"])
    array = gzarr.open_array(cached(check="once"))
    chunk = data[0].nbytes

    def fetched(selection: Any) -> tuple[int, int]:
        before = gzarr.stats()["bytes_read"]
        with proxy.counting() as seen:
            np.testing.assert_array_equal(array[selection], data[selection])
        return len(seen), int(gzarr.stats()["bytes_read"] - before)

    fetched(0)
    assert fetched(np.s_[8:12]) == (1, 4 * chunk)
    assert fetched(np.s_[9:11]) == (0, 0)
    assert fetched(np.s_[10:14]) == (1, 2 * chunk)
    assert fetched(np.s_[6:14]) == (1, 2 * chunk)
    # From the first missing byte to the last.
    assert fetched(np.s_[4:16]) == (1, 12 * chunk)
    assert fetched(np.s_[:]) == (1, 63 * chunk)
    assert fetched(np.s_[:]) == (0, 0)
    assert failures() == 0


def test_values_of_many_segments(proxy: FaultProxy, url: str, tmp_path: Path) -> None:
    patient = servers.s3_options(proxy.url)
    value = random.Random(1).randbytes((33 << 20) + 5)
    writer: Any = gzarr.open_store(url, read_only=False, storage_options=patient)
    writer.set("key", value)
    store = gzarr.CachedStore(url, tmp_path, 1 << 30, check="once", storage_options=patient)
    begin, end = (15 << 20) + 7, (32 << 20) + 9
    for _ in range(2):
        with proxy.counting() as seen:
            (answer,) = store.get_many([Request("key", ByteRange(begin, end - begin))])
            assert answer.value == value[begin:end]
            assert (answer.size, answer.version) == (
                len(value),
                writer.get_many([Request("key", ByteRange(0, 1))])[0].version,
            )
    assert len(seen) == 1
    with proxy.counting() as seen:
        assert store.get_many([Request("key")])[0].value == value
        assert store.get_many([Request("key", ByteRange(-3))])[0].value == value[-3:]
        assert store.get_many([Request("key", ByteRange(1 << 24))])[0].value == value[1 << 24 :]
    assert len(seen) == 1
    assert failures() == 0


def test_ranges(writer: Any, cached: Callable[..., Any]) -> None:
    writer.set("key", b"0123456789")
    writer.set("empty", b"")
    for store in (cached(), cached(check="once")):
        for _ in range(3):
            ranges = [ByteRange(2, 3), ByteRange(-4), ByteRange(7), ByteRange(0, 0), ByteRange(10, 0), ByteRange()]
            found = store.get_partial_values([("key", wanted) for wanted in ranges])
            assert found == [b"234", b"6789", b"789", b"", b"", b"0123456789"]
            assert [answer.value for answer in store.get_many([Request("key", wanted) for wanted in ranges])] == found
            assert store.get_partial_values([("absent", ByteRange(2, 3)), ("absent", ByteRange(-1))]) == [None, None]
            assert store.get("empty") == b""
            for wanted in (ByteRange(5, 6), ByteRange(11, 1), ByteRange(-11), ByteRange(20)):
                with pytest.raises(ValueSizeError, match="too few"):
                    store.get_partial_values([("key", wanted)])
            with pytest.raises(ValueSizeError, match="at most 9"):
                store.get_small_values(["key"], 9)
            for key in ("", "/a", "a/../b", 7):
                with pytest.raises(ArgumentError):
                    store.get(key)
            with pytest.raises(ArgumentError):
                store.get_partial_values([("key", ByteRange(-1, 3))])


# -- changes by others


def test_changes_are_seen(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    other = gzarr.create_array(writer, data=data, **SHARDED)
    always = gzarr.open_array(cached())
    once = gzarr.open_array(cached(check="once"))
    for array in (always, once):
        np.testing.assert_array_equal(array[...], data)
    other[:60, :50] = data[:60, :50] = 7
    np.testing.assert_array_equal(always[...], data)
    np.testing.assert_array_equal(gzarr.open_array(cached(check="once"))[...], data)
    writer.erase_prefix("c/")
    assert not always[...].any()
    assert not gzarr.open_array(cached(check="once"))[...].any()
    # That a value is absent is not kept.
    other[...] = data
    np.testing.assert_array_equal(always[...], data)
    np.testing.assert_array_equal(once[...], data)


@pytest.mark.parametrize("known", [False, True], ids=["new", "in the cache"])
@pytest.mark.parametrize("check", ["always", "once"])
def test_a_shard_that_is_replaced_during_the_read(
    proxy: FaultProxy, writer: Any, cached: Callable[..., Any], known: bool, check: str
) -> None:
    data = elements()
    other = gzarr.create_array(writer, data=data, **SHARDED)
    array = gzarr.open_array(cached(check=check))
    if known:
        np.testing.assert_array_equal(array[:30, :50], data[:30, :50])
    once = threading.Event()

    def replace(number: int, seen: Seen) -> None:
        # Before the first request for chunks of the first shard is sent.
        if seen.range is not None and "suffix" not in seen.range and "=-" not in seen.range and not once.is_set():
            once.set()
            other[...] = data + 1

    proxy.fault_of = replace
    # Shards that are wanted as a whole would be one request each.
    found = array[:40, :50]
    assert once.is_set()
    np.testing.assert_array_equal(found, data[:40, :50] + 1)


def test_parts_of_two_versions_never_mix(writer: Any, cached: Callable[..., Any]) -> None:
    store, small = cached(check="once"), ByteRange(0, 4)
    writer.set("key", b"0123456789")
    (first,) = store.get_many([Request("key", small)])
    writer.set("key", b"abcdefghij")
    (found,) = store.get_many([Request("key")])
    assert found.value == b"abcdefghij"
    (found,) = store.get_many([Request("key", small)])
    assert found.value == b"abcd"
    (found,) = store.get_many([Request("key", ByteRange(2, 4), version=first.version)])
    assert isinstance(found.error, ValueReplacedError)
    # A caller that needs a version gets no other one, in whatever way the cache asks.
    for policy in ("always", "once"):
        store = cached(check=policy)
        for byte_range in (small, ByteRange(0, 6), ByteRange()):
            (answer,) = store.get_many([Request("key", small)])
            writer.set("key", random.randbytes(10))
            if policy == "once" and byte_range == small:
                # Confirmed since the store was made.
                continue
            (found,) = store.get_many([Request("key", byte_range, version=answer.version)])
            assert isinstance(found.error, ValueReplacedError), (policy, byte_range)
        (answer,) = store.get_many([Request("key", small)])
        writer.set("key", b"x")
        (found,) = cached().get_many([Request("key", small, version=answer.version)])
        assert isinstance(found.error, ValueReplacedError)
        writer.erase("key")
        (found,) = cached().get_many([Request("key", small, version=answer.version)])
        assert isinstance(found.error, ValueReplacedError)
        writer.set("key", b"0123456789")


def test_segments_of_two_versions_never_mix(tmp_path: Path) -> None:
    cache = CacheDirectory(str(tmp_path), 1 << 30)
    path, far = cache.path("store", "key"), 16 << 20
    cache.add(path, "old", far + 9, far, b"old data.", 1.0)
    assert cache.find(path, lambda size: (far, far + 9)).before == b"old data."
    cache.add(path, "new", far + 9, 0, b"new data.", 2.0)
    found = cache.find(path, lambda size: (far, far + 9))
    assert (found.version, found.missing, found.before) == ("new", (far, far + 9), b"")
    # What was asked for earlier does not replace what was asked for later.
    cache.add(path, "old", far + 9, 0, b"old data.", 1.5)
    assert cache.find(path, lambda size: (0, 9)).before == b"new data."
    cache.add(path, "new", far + 9, far, b"new data.", 3.0)
    assert cache.find(path, lambda size: (far, far + 9)).before == b"new data."


def test_an_absence_that_was_seen(writer: Any, cached: Callable[..., Any]) -> None:
    writer.set("key", b"value")
    store = cached(check="once")
    assert bytes(store.get_many([Request("key")])[0].value) == b"value"
    writer.erase("key")
    assert store.get("key") is None
    assert store.get_many([Request("key")])[0].value is None


def test_a_cache_before_a_cache(proxy: FaultProxy, writer: Any, cached: Callable[..., Any], tmp_path: Path) -> None:
    writer.set("key", b"0123456789")
    near = gzarr.CachedStore(cached(), tmp_path / "near", 1 << 20)
    assert near.get("key") == b"0123456789"
    with proxy.counting() as seen:
        assert near.get("key") == b"0123456789"
    assert [one.status for one in seen] == [304]
    writer.set("key", b"new")
    assert near.get("key") == b"new"


# -- writing


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_writing(proxy: FaultProxy, url: str, writer: Any, tmp_path: Path, kind: dict[str, Any]) -> None:
    store: Any = gzarr.CachedStore(writer, tmp_path, 64 << 20)
    data = elements()
    array = gzarr.create_array(store, data=data, **kind)
    np.testing.assert_array_equal(array[...], data)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    np.testing.assert_array_equal(array[...], data)
    # What others have changed is not lost by a write of a part.
    gzarr.open_array(writer, mode="r+")[:3, :3] = data[:3, :3] = 8
    array[4, 4] = data[4, 4] = 9
    np.testing.assert_array_equal(array[...], data)
    array.resize((100, 130))
    np.testing.assert_array_equal(array[:, :100], data[:100])
    assert not array[:, 100:].any()
    np.testing.assert_array_equal(gzarr.open_array(writer)[...], array[...])
    assert store.create("key", b"1")
    assert not store.create("key", b"2")
    store.set_partial_values([("key", 1, b"23")])
    assert store.get("key") == b"123"
    store.erase("key")
    assert store.get("key") is None
    assert sorted(store.list()) == sorted(writer.list())
    assert list(store.list_sizes("")) == list(writer.list_sizes(""))
    store.erase_prefix("")
    assert list(writer.list()) == []
    for check in ("once", 7, math.inf):
        with pytest.raises(ArgumentError, match="only for stores that are read-only"):
            gzarr.CachedStore(writer, tmp_path, 1 << 20, check=check)  # type: ignore[arg-type]
    readable: Any = gzarr.CachedStore(url, tmp_path, 1 << 20, storage_options=options(proxy))
    with pytest.raises(ReadOnlyError):
        readable.set("key", b"")


@pytest.mark.parametrize("seed", range(3))
def test_random_operations(proxy: FaultProxy, url: str, writer: Any, tmp_path: Path, seed: int) -> None:
    """Values, ranges and writes of any order, with a small cache, other writers and damage: as without a cache."""
    numbers = random.Random(seed)
    store: Any = gzarr.CachedStore(writer, tmp_path, 2 << 20)
    expected: dict[str, bytes] = {}
    keys = [f"k/{i}" for i in range(6)]
    for _ in range(250):
        key = numbers.choice(keys)
        value = expected.get(key)
        choice = numbers.random()
        if choice < 0.15:
            new = numbers.randbytes(numbers.choice([0, 1, 100, 70_000, 200_000]))
            numbers.choice([store, writer]).set(key, new)
            expected[key] = new
        elif choice < 0.18:
            numbers.choice([store, writer]).erase(key)
            expected.pop(key, None)
        elif choice < 0.2:
            numbers.choice([store, writer]).erase_prefix("k/")
            expected.clear()
        elif choice < 0.25 and files(tmp_path):
            damage(numbers.choice(files(tmp_path)), numbers, files(tmp_path))
        elif choice < 0.3:
            store = numbers.choice([store, gzarr.CachedStore(writer, tmp_path, 2 << 20)])
        elif choice < 0.4:
            assert store.get(key) == value
        else:
            size = len(value or b"")
            begin = numbers.randrange(size + 1)
            end = numbers.randrange(begin, size + 1)
            # (S3 has no answer for what follows the last byte.)
            tails = [ByteRange(begin), ByteRange(begin - size)] if begin < size else []
            wanted = numbers.choice([ByteRange(begin, end - begin), ByteRange(), *tails])
            (answer,) = store.get_many([Request(key, wanted)])
            assert answer.error is None
            if value is None:
                assert answer.value is None
            else:
                start = wanted.offset if wanted.offset >= 0 else size + wanted.offset
                assert answer.value == value[start : None if wanted.length is None else start + wanted.length]


def damage(path: Path, numbers: random.Random, others: list[Path]) -> None:
    """Change a bit, cut a file off, append to it, or exchange it with another."""
    content = bytearray(path.read_bytes())
    how = numbers.randrange(4)
    if how == 0 and content:
        content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    elif how == 1:
        del content[numbers.randrange(len(content) + 1) :]
    elif how == 2:
        content += numbers.randbytes(numbers.randrange(100))
    else:
        content = bytearray(numbers.choice(others).read_bytes())
    path.write_bytes(content)


# -- damage


def test_damaged_files(writer: Any, cached: Callable[..., Any], tmp_path: Path) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, chunks=(10, 10), shards=(120, 100), codecs=["bytes"])
    numbers = random.Random(3)
    found = 0
    for _ in range(120):
        store = cached(check=math.inf)
        array = gzarr.open_array(store)
        before = failures()
        np.testing.assert_array_equal(array[20:50], data[20:50])
        np.testing.assert_array_equal(array[30:70], data[30:70])
        found += failures() > before
        for path in files(tmp_path / "cache"):
            if path.name != "written":
                damage(path, numbers, files(tmp_path / "cache"))
    assert found > 5


def test_every_bit_of_a_small_file(tmp_path: Path) -> None:
    cache = CacheDirectory(str(tmp_path), 1 << 20)
    path = cache.path("store", "key")
    cache.add(path, "version", 30, 0, b"0123456789", 5.0)
    cache.add(path, "version", 30, 20, b"abcdefghij", 6.0)
    (name,) = [file for file in files(tmp_path) if file.name != "written"]
    whole = name.read_bytes()

    def find(begin: int, end: int) -> Any:
        return cache.find(path, lambda size: (begin, end))

    kept = find(5, 25)
    assert (kept.before, kept.missing, kept.after) == (b"56789", (10, 20), b"abcde")
    assert (kept.version, kept.size, kept.confirmed) == ("version", 30, 6.0)
    for i in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[i // 8] ^= 1 << i % 8
        name.write_bytes(changed)
        found = find(5, 25)
        if found is not None:
            # Lost may be: the time of the confirmation, or records from the damaged one on.
            assert (found.version, found.size) == ("version", 30)
            assert found.confirmed in (0.0, 6.0)
            assert (found.before, found.after) in ((b"56789", b"abcde"), (b"56789", b""), (b"", b""))
            assert found != kept
    for length in range(len(whole)):
        name.write_bytes(whole[:length])
        found = find(5, 25)
        assert found is None or (found.before, found.after) in ((b"56789", b""), (b"", b""))
        # A writer continues from what is left.
        cache.add(path, "version", 30, 8, b"89ABCD", 7.0)
        found = find(8, 14)
        assert found is None or (found.missing, found.before) == (None, b"89ABCD")


def test_a_record_in_place_of_another(tmp_path: Path) -> None:
    cache = CacheDirectory(str(tmp_path), 1 << 20)
    path = cache.path("store", "key")
    for begin in range(0, 200, 20):
        cache.add(path, "version", 200, begin, b"%010d" % begin, 1.0)
    # This process knows where the records are; another one finds the first one damaged, and writes on from there.
    assert bytes(cache.find(path, lambda size: (20, 30)).before) == b"0000000020"
    (name,) = [file for file in files(tmp_path) if file.name != "written"]
    content = name.read_bytes()
    at = content.index(b"0000000000")
    name.write_bytes(content[: at - 12] + b"damage" + content[at - 6 :])
    code = "import sys; from gzarr.stores.cache_directory import CacheDirectory; " + (
        "[CacheDirectory(sys.argv[1], 1 << 20).add(sys.argv[2], 'version', 200, i * 20 + 10, b'other data', 2.0)"
        " for i in range(10)]"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), path], check=True)
    for begin in range(0, 200, 10):
        found = cache.find(path, lambda size, begin=begin: (begin, begin + 10))
        expected = b"other data" if begin % 20 else b"%010d" % begin
        assert found is None or found.missing is not None or bytes(found.before) == expected


@pytest.mark.parametrize("how", ["gone", "a file", "never writable", "read-only parent"])
def test_a_directory_that_fails(writer: Any, cached: Callable[..., Any], tmp_path: Path, how: str) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **CHUNKED)
    store = cached(check="once")
    array = gzarr.open_array(store)
    directory = tmp_path / "cache"
    if how in ("gone", "a file"):
        np.testing.assert_array_equal(array[...], data)
        shutil.rmtree(directory)
    if how in ("a file", "never writable"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.write_bytes(b"")
    if how == "read-only parent":
        # A folder of the cache is a file.
        shutil.rmtree(directory)
        directory.mkdir()
        (directory / "gzarr-cache-1").write_bytes(b"")
    for _ in range(2):
        np.testing.assert_array_equal(array[...], data)
    assert (failures() > 0) == (how != "gone")


FULL = """
import os, resource, sys
import numpy as np
import gzarr
directory, cache, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
expected = gzarr.open_array(directory)[...]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for _ in range(3):
    array = gzarr.open_array(gzarr.CachedStore(directory, cache, 1 << 30, check="once"))
    for begin in range(0, 120, 17):
        np.testing.assert_array_equal(array[begin : begin + 40], expected[begin : begin + 40])
print(int(gzarr.stats()["cache_failures"]), int(gzarr.stats()["cache_hits"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit of a file's size")
@pytest.mark.parametrize("limit", [0, 100, 3000, 20_000])
def test_a_full_disk(tmp_path: Path, limit: int) -> None:
    gzarr.create_array(tmp_path / "data", data=elements(), chunks=(10, 10), shards=(40, 100), codecs=["bytes"])
    arguments = [str(tmp_path / "data"), str(tmp_path / "cache"), str(limit)]
    done = subprocess.run([sys.executable, "-c", FULL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failed, hits = map(int, done.stdout.split())
    assert (failed > 0) == (limit < 20_000)
    assert (hits > 0) == (limit >= 3000)


# -- the limit


def on_disk(directory: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in files(directory))


def test_the_limit(tmp_path: Path) -> None:
    data = tmp_path / "data"
    store = gzarr.LocalStore(data)
    for i in range(400):
        store.set(f"k/{i}", random.Random(i).randbytes(20_000))
    limit = 2 << 20
    cache = tmp_path / "cache"
    cached = gzarr.CachedStore(data, cache, limit, check="once")
    hot = cached._files.path(cached.location(), "k/0") + "-0"
    numbers = random.Random(0)
    for i in range(400):
        assert cached.get_many([Request(f"k/{i}")])[0].value == store.get(f"k/{i}")
        # What is used again and again stays.
        assert cached.get_many([Request("k/0")])[0].value == store.get("k/0")
        if i % 10 == 0:
            assert on_disk(cache) <= 1.02 * limit
        os.utime(hot, (time.time() + i, time.time() + i))
    assert on_disk(cache) > limit / 2
    assert os.path.exists(hot)  # noqa: PTH110
    for _ in range(300):
        key = f"k/{numbers.randrange(400)}"
        assert cached.get_many([Request(key)])[0].value == store.get(key)
    assert on_disk(cache) <= 1.02 * limit
    # Values larger than an eighth are not kept.
    store.set("large", bytes(limit // 7))
    before = gzarr.stats()["cache_hits"]
    for _ in range(3):
        assert cached.get_many([Request("large")])[0].value == bytes(limit // 7)
    assert gzarr.stats()["cache_hits"] == before


def test_short_lived_writers_count(tmp_path: Path) -> None:
    """Each writer writes much less than what is counted."""
    limit = 2 << 20
    for i in range(1200):
        cache = CacheDirectory(str(tmp_path), limit)
        cache.add(cache.path("store", str(i)), "v", 3000, 0, bytes(3000), 1.0)
    assert limit / 2 < on_disk(tmp_path) <= 1.05 * limit


def test_known_records_are_bounded(tmp_path: Path) -> None:
    from gzarr.stores import cache_file

    cache = CacheDirectory(str(tmp_path), 1 << 30)
    for i in range(30):
        path = cache.path("store", str(i))
        for begin in range(0, 40, 2):
            cache.add(path, "v", 40, begin, b"x", 1.0)
        assert cache.find(path, lambda size: (0, 40)).before == b"x"
    assert len(cache_file._known) <= cache_file._MOST_KNOWN
    assert sum(len(records) for _, records, _ in cache_file._known.values()) <= cache_file._MOST_RECORDS_KNOWN


# -- processes


@NO_FORK
@pytest.mark.timeout(100)
def test_killed_processes(tmp_path: Path) -> None:
    """Four processes fill one small cache, and are killed at any moment."""
    data = np.random.default_rng(1).integers(0, 2**31, (64, 64, 64), dtype="i4")
    gzarr.create_array(tmp_path / "sharded", data=data, chunks=(8, 16, 16), shards=(32, 32, 64), codecs=["bytes"])
    gzarr.create_array(tmp_path / "chunked", data=data, chunks=(16, 16, 16))
    cache, numbers = tmp_path / "cache", random.Random(2)

    def arrays() -> list[gzarr.Array]:
        return [
            gzarr.open_array(gzarr.CachedStore(tmp_path / name, cache, 700_000, check=math.inf), device="cpu")
            for name in ("sharded", "chunked")
        ]

    def window(own: random.Random) -> Any:
        return tuple(slice(begin := own.randrange(60), begin + own.randrange(4, 40)) for _ in range(3))

    def read(seed: int, opened: list[gzarr.Array]) -> None:
        own = random.Random(seed)
        while True:
            selection = window(own)
            np.testing.assert_array_equal(own.choice(opened)[selection], data[selection])

    def start(seed: int) -> int:
        pid = os.fork()
        if not pid:
            try:
                signal.alarm(90)
                read(seed, arrays())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        return pid

    running = [start(seed) for seed in range(4)]
    try:
        for seed in range(4, 48):
            time.sleep(numbers.uniform(0.01, 0.1))
            pid = running.pop(numbers.randrange(4))
            # Nobody has ended because of wrong data.
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            running.append(start(seed))
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for array in arrays():
        for _ in range(3):
            np.testing.assert_array_equal(array[...], data)
    assert on_disk(cache) <= 1.5 * 700_000


READ = """
import random, sys
import numpy as np
import gzarr
url, options, cache, seed = sys.argv[1], eval(sys.argv[2]), sys.argv[3], int(sys.argv[4])
data = np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")
numbers = random.Random(seed)
for check in ("always", "once", 0.05):
    store = gzarr.CachedStore(url, cache, 300_000, check=check, storage_options=options)
    for path in ("chunked", "sharded"):
        array = gzarr.open_array(store, path=path)
        for _ in range(6):
            i, j = numbers.randrange(120), numbers.randrange(100)
            np.testing.assert_array_equal(array[i : i + 50, j : j + 50], data[i : i + 50, j : j + 50])
print(int(gzarr.stats()["cache_hits"]), int(gzarr.stats()["cache_failures"]))
"""


def test_four_processes(proxy: FaultProxy, url: str, writer: Any, tmp_path: Path) -> None:
    for name, kind in (("chunked", CHUNKED), ("sharded", SHARDED)):
        gzarr.create_array(writer, path=name, data=elements(), **kind)
    arguments = [url, repr(options(proxy)), str(tmp_path / "cache")]
    started = [
        subprocess.Popen([sys.executable, "-c", READ, *arguments, str(seed)], stdout=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for process in started:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        hits, failed = map(int, output.split())
        assert hits > 10
        assert not failed
    assert on_disk(tmp_path / "cache") <= 1.1 * 300_000


@NO_FORK
def test_a_forked_child(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **SHARDED)
    array = gzarr.open_array(cached(check="once"))
    np.testing.assert_array_equal(array[:60], data[:60])
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(30)
            np.testing.assert_array_equal(array[...], data)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    # What the child has fetched is there for its parent, and confirmed.
    with proxy.counting() as seen:
        np.testing.assert_array_equal(array[...], data)
    assert len(seen) == 0


def test_pickles(writer: Any, cached: Callable[..., Any], proxy: FaultProxy) -> None:
    writer.set("key", b"value")
    store = cached(check="once")
    store.get("key")
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert hash(again) == hash(store)
    assert type(again) is type(store)
    with proxy.counting() as seen:
        assert again.get_many([Request("key")])[0].value == b"value"
    assert not seen
    assert cached() != store


def test_many_threads(writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **SHARDED)
    array = gzarr.open_array(cached(400_000))
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        try:
            for _ in range(6):
                i, j = numbers.randrange(120), numbers.randrange(100)
                np.testing.assert_array_equal(array[i : i + 40, j:], data[i : i + 40, j:])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert failures() == 0


@pytest.mark.parametrize("seed", range(4))
def test_faults(proxy: FaultProxy, writer: Any, cached: Callable[..., Any], seed: int) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **(SHARDED if seed % 2 else CHUNKED))
    draws = random.Random(seed)
    # An answer that is consistent in itself, but not what the server sent, cannot be told from a right one.
    usable = [fault for fault in FAULTS if fault not in ("short body", "long body", "stall")]
    proxy.fault_of = lambda number, seen: draws.choice(usable) if draws.random() < 0.2 else None
    right = 0
    for check in ("always", "once", "always", "once"):
        try:
            array = gzarr.open_array(cached(check=check))
            np.testing.assert_array_equal(array[:70], data[:70])
            np.testing.assert_array_equal(array[...], data)
            right += 1
        except GzarrError as error:
            assert "attempt" in str(error)  # noqa: PT017
    assert right


# -- stores


def test_a_cache_has_what_its_store_has(writer: Any, tmp_path: Path) -> None:
    kinds = [
        kind
        for name, kind in vars(protocols).items()
        if getattr(kind, "_is_protocol", False) and getattr(kind, "_is_runtime_protocol", False)
    ]
    assert len(kinds) >= 14

    class Plain:
        def __init__(self) -> None:
            self.values = {"key": b"0123"}

        def get(self, key: str) -> bytes | None:
            return self.values.get(key)

        def get_partial_values(self, key_ranges: Any) -> list[bytes | None]:
            return [
                None if (value := self.get(key)) is None else value[r.offset :][: r.length] for key, r in key_ranges
            ]

    # Files are not offered: engines would pass the cache by. Parts can always be joined.
    always = {protocols.RemoteValues, protocols.LocatedStore}
    never = {protocols.LocalFiles, protocols.WritableFiles}
    for store in (writer, gzarr.LocalStore(tmp_path / "data"), gzarr.MemoryStore(), Plain()):
        cached = gzarr.CachedStore(store, tmp_path / "cache", 1 << 20, name="store")
        for kind in kinds:
            if kind is protocols.GatheringStore:
                assert isinstance(cached, kind) == isinstance(store, protocols.WritableStore)
            else:
                expected = kind in always or (kind not in never and isinstance(store, kind))
                assert isinstance(cached, kind) == expected, (store, kind)
        if hasattr(store, "read_only"):
            assert cached.read_only == store.read_only  # type: ignore[attr-defined]
    # Of some classes, only some stores can list.
    assert not hasattr(gzarr.CachedStore(writer, tmp_path, 1 << 20), "can_list")

    class Asked(gzarr.LocalStore):
        def can_list(self) -> bool:
            return False

    asked: Any = gzarr.CachedStore(Asked(tmp_path), tmp_path, 1 << 20)
    assert not asked.can_list()
    # The last one tells no versions, so nothing is kept.
    for _ in range(2):
        assert cached.get("key") == b"0123"
        assert cached.get("absent") is None
        assert cached.get_partial_values([("key", ByteRange(1, 2))]) == [b"12"]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_directories(tmp_path: Path, kind: dict[str, Any]) -> None:
    data = elements()
    path = tmp_path / "data"
    other = gzarr.create_array(path, data=data, **kind)
    array = gzarr.open_array(gzarr.CachedStore(path, tmp_path / "cache", 1 << 20), device="cpu")
    for _ in range(2):
        before = gzarr.stats()["cache_hits"]
        np.testing.assert_array_equal(array[...], data)
    assert gzarr.stats()["cache_hits"] - before >= 4
    other[3:90] = data[3:90] = 5
    np.testing.assert_array_equal(array[...], data)
    # Read and written by the same locks as without a cache.
    store: Any = gzarr.CachedStore(gzarr.LocalStore(path), tmp_path / "cache", 1 << 20)
    both = gzarr.open_array(store, mode="r+")
    threads = [
        threading.Thread(target=lambda i=i: [both, other][i % 2].__setitem__((slice(None), i), i)) for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(12):
        data[:, i] = i
    np.testing.assert_array_equal(array[...], data)


def test_a_server_without_entity_tags(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    gzarr.create_array(tmp_path / "data", data=elements(), **CHUNKED)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "data"))
    log: list[str] = []

    class Quiet(http.server.ThreadingHTTPServer):
        def finish_request(self, request: Any, client_address: Any) -> None:
            class Handler(http.server.SimpleHTTPRequestHandler):
                def log_message(self, *arguments: Any) -> None:
                    log.append(self.requestline.split()[0])

            Handler(request, client_address, self, directory=handler.keywords["directory"])

    with Quiet(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            store = gzarr.CachedStore(f"http://127.0.0.1:{server.server_address[1]}", tmp_path / "cache", 1 << 20)
            array = gzarr.open_array(store)
            np.testing.assert_array_equal(array[...], elements())
            del log[:]
            np.testing.assert_array_equal(array[...], elements())
            assert log == ["HEAD"] * 16
        finally:
            server.shutdown()


def test_stores_that_share_a_directory(writer: Any, tmp_path: Path) -> None:
    stores = {}
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_bytes(name.encode())
        os.utime(tmp_path / name / "key", ns=(5, 5))
        stores[name] = gzarr.CachedStore(tmp_path / name, tmp_path / "cache", 1 << 20, check=math.inf)
    for _ in range(2):
        for name, store in stores.items():
            assert store.get_many([Request("key")])[0].value == name.encode()
    # The same bucket at another endpoint is another bucket.
    one, other = (
        gzarr.open_store("s3://bucket/a", storage_options=servers.s3_options(f"http://127.0.0.1:{port}"))
        for port in (1, 2)
    )
    assert one.location() != other.location()  # type: ignore[attr-defined]
    same = gzarr.open_store("s3://bucket/a", storage_options=servers.s3_options("http://127.0.0.1:1", timeout=3))
    assert same.location() == one.location()  # type: ignore[attr-defined]


def test_nothing_is_shown(writer: Any, cached: Callable[..., Any], tmp_path: Path, url: str) -> None:
    gzarr.create_array(writer, path="a-node", data=elements(), **SHARDED)
    store = cached(check="once")
    gzarr.open_array(store, path="a-node")[...]
    assert servers.S3_SECRET not in repr(store)
    assert servers.S3_SECRET not in store.location()
    assert url in repr(store)
    found = files(tmp_path / "cache")
    assert len(found) > 4
    for path in found:
        content = path.read_bytes()
        for word in (servers.S3_SECRET, SECRET_NAME, "a-node", "ACCESS"):
            assert word not in str(path.relative_to(tmp_path / "cache"))
            if path.name != "written" and b'"zarr_format"' not in content:
                assert word.encode() not in content
        if os.name == "posix":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "cache" / "gzarr-cache-1").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_bytes": 0}, "max_bytes must be a positive integer"),
        ({"max_bytes": True}, "max_bytes must be a positive integer"),
        ({"max_bytes": 1.5}, "max_bytes must be a positive integer"),
        ({"check": "never"}, "check must be"),
        ({"check": -1}, "check must be"),
        ({"check": math.nan}, "check must be"),
        ({"check": True}, "check must be"),
        ({"check": None}, "check must be"),
        ({"directory": 7}, "must be a path"),
        ({"directory": ""}, "non-empty path"),
        ({"directory": "a\0b"}, "non-empty path"),
        ({"directory": __file__}, "is not a directory"),
        ({"store": {}}, "pass a name="),
        ({"store": {}, "name": ""}, "pass a name="),
        ({"store": 7}, "a store must be"),
        ({"storage_options": {"region": "x"}}, "storage_options= is for URLs"),
        ({"store": "s3://bucket/a#node"}, "names the node"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"store": tmp_path, "directory": tmp_path / "cache", "max_bytes": 1 << 20}
    with pytest.raises(ArgumentError, match=message):
        gzarr.CachedStore(**{**right, **arguments})


def test_a_store_that_fails(proxy: FaultProxy, writer: Any, cached: Callable[..., Any]) -> None:
    data = elements()
    gzarr.create_array(writer, data=data, **CHUNKED)
    array = gzarr.open_array(cached())
    np.testing.assert_array_equal(array[...], data)
    proxy.fault_of = lambda number, seen: "status 403"
    # What is cached is not passed off as the current value.
    with pytest.raises(ChunkError, match="HTTP status 403"):
        array[...]
