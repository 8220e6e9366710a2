"""A cache on disk before a store: against a real S3 server behind a proxy that counts requests."""

from __future__ import annotations

import http.server
import math
import os
import random
import stat
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers
from support.caching import CHUNKED, SECRET_NAME, SHARDED, damage, elements, failures, files, options
from support.requests_of import requests_of

import gzarr
from gzarr.errors import ArgumentError, ChunkError, ReadOnlyError, ValueReplacedError, ValueSizeError
from gzarr.stores import ByteRange
from gzarr.stores import base as protocols
from gzarr.stores.base import Request
from gzarr.stores.cache_directory import CacheDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.fault_proxy import FaultProxy, Seen

# -- requests


@pytest.mark.parametrize("check", ["always", "once", 60, math.inf])
@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_requests_are_counted(
    proxy: FaultProxy, writer: Any, cached: Callable[..., Any], check: Any, kind: dict[str, Any]
) -> None:
    data = elements()
    plain = gzarr.create_array(writer, data=data, **kind)

    def seen_by(array: gzarr.Array, selection: Any = np.s_[...]) -> list[Seen]:
        seen, added = requests_of(proxy, lambda: np.testing.assert_array_equal(array[selection], data[selection]))
        assert added["bytes_read"] == sum(one.nbytes for one in seen)
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
        seen, added = requests_of(proxy, lambda: np.testing.assert_array_equal(array[selection], data[selection]))
        return len(seen), int(added["bytes_read"])

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


def test_no_bytes_beyond_the_end(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "key").write_bytes(b"0123456789")
    os.utime(tmp_path / "data" / "key", (1e9, 1e9))
    store: Any = gzarr.CachedStore(tmp_path / "data", tmp_path / "cache", 1 << 20)
    # Of a part, the size of the value is not known.
    for _ in range(2):
        assert store.get_partial_values([("key", ByteRange(0, 4))]) == [b"0123"]
        with pytest.raises(ValueSizeError):
            store.get_partial_values([("key", ByteRange(11, 0))])


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
    never = {protocols.LocalFiles, protocols.WritableFiles, protocols.StagingStore}
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
