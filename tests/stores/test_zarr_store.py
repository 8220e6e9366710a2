"""Stores, arrays and groups of zarr-python as stores; Icechunk's too."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import obstore
import pytest
import zarr
from support import servers
from support.forks import in_child
from support.requests_of import wait_until_idle
from zarr.storage import LoggingStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore
from zarr.testing.store import LatencyStore

import gzarr
from gzarr.errors import ArgumentError, ChunkError, NodeNotFoundError, ReadOnlyError, StoreError, ValueSizeError
from gzarr.stores import ByteRange, as_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

    Values = np.ndarray[Any, Any]

CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
KINDS = pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


class Awaited(WrapperStore[Any]):
    """A store that can only be awaited, and that fails as far as the key says."""

    get_sync = property()  # type: ignore[assignment]
    set_sync = property()  # type: ignore[assignment]

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        name = key.rpartition("/")[2]
        if name == "slow":
            await asyncio.sleep(30)
        if name == "fails":
            raise RuntimeError("GET https://user:SECRET@host/x?token=SECRET failed")
        if name == "not-found":
            raise FileNotFoundError(key)
        return await self._store.get(key, prototype, byte_range)


def icechunk_session(path: Path) -> Any:
    return icechunk.Repository.create(icechunk.local_filesystem_storage(str(path / "repo"))).writable_session("main")


#: Writable stores that are not unwrapped.
STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda path: MemoryStore(),
    "awaited": lambda path: Awaited(MemoryStore()),
    "logging": lambda path: LoggingStore(zarr.storage.LocalStore(path), log_level="CRITICAL"),
    "latency": lambda path: LatencyStore(MemoryStore(), get_latency=0.001),
    "icechunk": lambda path: icechunk_session(path).store,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return STORES[request.param](tmp_path)


# -- what is unwrapped


def test_local_stores(tmp_path: Path) -> None:
    data = elements()
    path = tmp_path / "a.zarr"
    made = zarr.create_array(path, data=data, chunks=(30, 25))
    local = zarr.storage.LocalStore(path)
    for form in (
        local,
        StorePath(local),
        made,
        made._async_array,
        ObjectStore(obstore.store.LocalStore(path)),
        obstore.store.LocalStore(path),
    ):
        assert as_store(form) == (gzarr.LocalStore(path, read_only=True), "")
        assert as_store(form, "r+") == (gzarr.LocalStore(path), "")
    for form in (
        zarr.storage.LocalStore(path, read_only=True),
        ObjectStore(obstore.store.LocalStore(path), read_only=True),
    ):
        assert as_store(form, "a")[0].read_only
    with pytest.raises(NodeNotFoundError, match="no directory"):
        as_store(zarr.storage.LocalStore(tmp_path / "none"))

    class Other(zarr.storage.LocalStore):
        pass

    array = gzarr.open_array(Other(path))
    assert isinstance(array.store, gzarr.ZarrStore)
    np.testing.assert_array_equal(array[...], data)


def test_stores_of_obstore() -> None:
    data = elements()
    memory = obstore.store.MemoryStore()
    array = gzarr.create_array(memory, data=data, **SHARDED)
    np.testing.assert_array_equal(zarr.open_array(ObjectStore(memory), mode="r")[...], data)
    again = gzarr.open_array(ObjectStore(memory))
    assert type(array.store) is type(again.store)
    np.testing.assert_array_equal(again[...], data)
    assert array.store.get("absent") is None
    assert array.store == gzarr.open_store(memory, read_only=False)
    assert array.store != gzarr.open_store(obstore.store.MemoryStore(), read_only=False)
    with pytest.raises(StoreError, match="cannot leave its process"):
        pickle.dumps(array)


def test_an_object_store() -> None:
    data = elements()
    with servers.s3_server() as address:
        servers.make_bucket(address, "bucket")
        options = servers.s3_options(f"http://{address[0]}:{address[1]}")
        s3 = obstore.store.S3Store("bucket", prefix="a.zarr", config=options, client_options={"allow_http": True})
        made = zarr.create_array(ObjectStore(s3), data=data, chunks=(30, 25))
        for form in (ObjectStore(s3), made, s3):
            array = gzarr.open_array(form)
            assert isinstance(array.store, gzarr.ObjectStore)
            np.testing.assert_array_equal(array[...], data)
        # zarr-python takes a bucket that does not exist for an empty one.
        nowhere = obstore.store.S3Store("nowhere", config=options, client_options={"allow_http": True})
        with pytest.raises(StoreError, match="no such bucket"):
            gzarr.open(ObjectStore(nowhere))


def test_paths_in_stores() -> None:
    data = elements()
    memory = MemoryStore()
    group = zarr.create_group(memory)
    inner = group.create_group("g")
    array = inner.create_array("a", data=data, chunks=(30, 25))
    for form in (array, array._async_array, StorePath(memory, "g/a")):
        np.testing.assert_array_equal(gzarr.open_array(form)[...], data)
    assert gzarr.open_group(inner).name == "/g"
    np.testing.assert_array_equal(gzarr.open_array(inner, path="a")[...], data)
    assert [name for name, _ in gzarr.open_group(group).members(max_depth=None)] == ["g", "g/a"]


def test_mappings_stay_mappings() -> None:
    # Stores of zarr-python 2 are mappings of keys to bytes.
    mapping: dict[str, bytes] = {}
    gzarr.create_array(mapping, data=elements(), chunks=(30, 25), zarr_format=2)
    assert isinstance(as_store(mapping)[0], gzarr.MemoryStore)


class Asynchronous:
    async def get(self, key: str) -> bytes | None:
        return None

    async def get_partial_values(self, key_ranges: Any) -> list[bytes | None]:
        return []


def test_what_is_not_a_store() -> None:
    with pytest.raises(ArgumentError, match="asynchronous store"):
        as_store(Asynchronous())
    with pytest.raises(ArgumentError, match="store of zarr-python 3, not dict"):
        gzarr.ZarrStore({})


# -- reading and writing


@KINDS
def test_round_trip(store: Any, kind: dict[str, Any], device: TestedDevice) -> None:
    data = elements()
    gzarr.create_group(store)
    array = gzarr.create_array(store, path="g/a", data=data, device="cpu", **kind)
    assert isinstance(array.store, gzarr.ZarrStore)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    np.testing.assert_array_equal(device.read(device.open(store, path="g/a")), data)
    np.testing.assert_array_equal(zarr.open_array(store, path="g/a", mode="r")[...], data)
    np.testing.assert_array_equal(array.read(np.s_[5:90], budget_bytes=1000), data[5:90])
    array.resize((100, 130))
    assert not array[:, 100:].any()
    np.testing.assert_array_equal(gzarr.open_array(store, path="g/a", device="cpu")[:, :100], data[:100])


def test_what_zarr_python_writes(store: Any, device: TestedDevice) -> None:
    data = elements()
    root = zarr.create_group(store)
    written = root.create_array("a", shape=data.shape, dtype=data.dtype, chunks=(30, 25), fill_value=7)
    written[:60, :50] = data[:60, :50]
    array = device.open(store, path="a")
    np.testing.assert_array_equal(device.read(array), written[...])
    assert (device.read(array)[60:] == 7).all()


def test_hierarchies(store: Any) -> None:
    root = gzarr.create_group(store)
    root.create_group("g").create_array("a", shape=(4,), dtype="u1")
    root.create_array("b", shape=(4,), dtype="u1")[...] = 1
    assert sorted(name for name, _ in gzarr.open_group(store).members(max_depth=None)) == ["b", "g", "g/a"]
    opened = root.store
    assert isinstance(opened, gzarr.ZarrStore)
    assert opened.list_dir("") == (["zarr.json"], ["b/", "g/"])
    assert opened.list_dir("b/") == (["b/zarr.json"], ["b/c/"])
    assert opened.list_dir("none/") == ([], [])
    assert list(opened.list_prefix("none/")) == []
    keys = ["b/c/0", "b/zarr.json", "g/a/zarr.json", "g/zarr.json", "zarr.json"]
    assert sorted(opened.list()) == keys
    assert sorted(opened.list_prefix("g/")) == ["g/a/zarr.json", "g/zarr.json"]
    assert dict(opened.list_sizes("b/"))["b/zarr.json"] == len(opened.get("b/zarr.json") or b"")
    del root["g"]
    assert sorted(zarr.open_group(store, mode="r").keys()) == ["b"]
    opened.erase("b/c/0")
    opened.erase("b/c/0")
    assert opened.get("b/c/0") is None
    opened.erase_prefix("")
    assert list(opened.list()) == []
    with pytest.raises(NodeNotFoundError):
        gzarr.open(store)


def test_an_archive_in_which_a_key_was_written_twice_lists_it_once(tmp_path: Path) -> None:
    opened = zarr.storage.ZipStore(tmp_path / "x.zip", mode="w")
    store = gzarr.ZarrStore(opened)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(3):
            store.set("k/a", b"%d" % i)
            store.set("k/b", b"1")
        names = [f"k/{i:04}" for i in range(1500)]
        for name in (*names, *names[:3]):
            store.set(name, b"1")
    assert sorted(store.list()) == sorted(store.list_prefix("k/")) == [*names, "k/a", "k/b"]
    opened.close()


def test_listing_by_pages() -> None:
    memory = MemoryStore()
    store = gzarr.ZarrStore(memory)
    names = [f"k/{i:04}" for i in range(2000)]
    for name in names:
        store.set(name, b"")
    assert list(store.list_prefix("k/")) == names
    assert next(iter(store.list())) == names[0]


def test_ranges(store: Any) -> None:
    gzarr.create_group(store)
    opened: Any = gzarr.open_store(store)
    value = opened.get("zarr.json")
    n = len(value)
    ranges = {
        ByteRange(2, 3): value[2:5],
        ByteRange(7): value[7:],
        ByteRange(0, 0): b"",
        ByteRange(n, 0): b"",
        ByteRange(): value,
    }
    others = {ByteRange(-4): value[-4:], ByteRange(-n): value}
    outside = [ByteRange(n - 2, 3), ByteRange(n + 1, 1), ByteRange(n + 1, 0), ByteRange(-n - 1), ByteRange(n + 2)]
    if "Icechunk" not in type(store).__name__:
        # (Of documents, Icechunk gives wrong last bytes, and panics for ranges that are not in them.)
        ranges |= others
        for wanted in outside:
            with pytest.raises(ValueSizeError, match="too short"):
                opened.get_partial_values([("zarr.json", wanted)])
    assert opened.get_partial_values([("zarr.json", wanted) for wanted in ranges]) == list(ranges.values())
    assert opened.get_partial_values([("a/zarr.json", ByteRange(2, 3)), ("a/zarr.json", ByteRange(-1))]) == [None, None]
    with pytest.raises(ValueSizeError, match=f"at most {n - 1}"):
        opened.get_small_values(["zarr.json"], n - 1)
    assert opened.get_small_values(["zarr.json"], n) == [value]


def test_values_are_neither_copied_nor_shared() -> None:
    memory = MemoryStore()
    store = gzarr.ZarrStore(memory)
    value = bytearray(b"0123456789")
    store.set("key", value)
    value[0] = 0
    assert store.get("key") == b"0123456789"
    answer = store.get_many([gzarr.stores.base.Request("key")])[0]
    kept = memory._store_dict["key"].as_numpy_array()
    assert np.shares_memory(np.frombuffer(answer.value, "u1"), kept)


def test_requests_run_side_by_side() -> None:
    data = elements()
    memory = MemoryStore()
    gzarr.create_array(memory, data=data, chunks=(10, 10), codecs=["bytes"])
    array = gzarr.open_array(LatencyStore(memory, get_latency=0.05))
    wait_until_idle()
    before, begin = gzarr.stats(), time.monotonic()
    np.testing.assert_array_equal(array[...], data)
    # 120 requests, one after the other, take 6 s.
    assert time.monotonic() - begin < 5
    after = gzarr.stats()
    assert after["requests"] - before["requests"] == 120
    assert after["bytes_read"] - before["bytes_read"] == data.nbytes


def test_read_only(tmp_path: Path) -> None:
    memory = MemoryStore()
    gzarr.create_array(memory, data=elements(), chunks=(30, 25))
    for form in (gzarr.open_store(memory), gzarr.open_store(memory.with_read_only(True), read_only=False)):
        store: Any = form
        assert store.read_only
        for work in (lambda: store.set("k", b""), lambda: store.erase("k"), lambda: store.erase_prefix("")):  # noqa: B023
            with pytest.raises(ReadOnlyError):
                work()
    with pytest.raises(ReadOnlyError):
        gzarr.open_array(memory.with_read_only(True), mode="r+")


# -- failures


def test_failures() -> None:
    memory = MemoryStore()
    array = gzarr.create_array(memory, data=elements(), chunks=(30, 25))
    store = gzarr.ZarrStore(Awaited(memory), timeout=0.3)
    for key, match in [
        ("slow", r"no answer in 0\.3 s"),
        ("fails", r"RuntimeError: GET https://host/x failed"),
        # A store of zarr-python returns None for what is absent.
        ("not-found", "FileNotFoundError"),
    ]:
        begin = time.monotonic()
        with pytest.raises(StoreError, match=f"cannot read '{key}': {match}") as caught:
            store.get(key)
        assert time.monotonic() - begin < 10
        assert "SECRET" not in str(caught.value)

    class Failing(WrapperStore[Any]):
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            if key.startswith("c/"):
                raise PermissionError(key)
            return await self._store.get(key, prototype, byte_range)

        get_sync = property()  # type: ignore[assignment]

        async def set(self, key: str, value: Any) -> None:
            raise OSError("full")

    array = gzarr.open_array(Failing(memory), mode="r+")
    with pytest.raises(ChunkError, match="PermissionError"):
        array[...]
    with pytest.raises(ChunkError, match="full"):
        array[:30, :25] = 1
    assert gzarr.open_array(memory)[0, 0] == elements()[0, 0]


# -- processes


@FORKS
@pytest.mark.parametrize("name", ["memory", "awaited", "logging"])
def test_a_forked_child_reads(name: str, tmp_path: Path) -> None:
    data = elements()
    array = gzarr.create_array(STORES[name](tmp_path), data=data, **SHARDED)
    np.testing.assert_array_equal(array[...], data)
    for _ in range(2):
        assert in_child(lambda: np.testing.assert_array_equal(array[...], data)) == 0
    np.testing.assert_array_equal(array[...], data)


@FORKS
def test_an_archive_in_forked_children(tmp_path: Path) -> None:
    data = elements()
    path = tmp_path / "a.zip"
    with ZipStore(path, mode="w") as made:
        zarr.create_array(made, data=data, chunks=(30, 25))
    with ZipStore(path, mode="r") as opened:
        array = gzarr.ZarrStore(opened)
        assert array.get("zarr.json")

        def read() -> None:
            # The position in the file is not shared.
            assert all(array.get("c/0/0") == value for _ in range(200))

        value = array.get("c/0/0")
        with ThreadPoolExecutor(2) as pool:
            codes = [pool.submit(in_child, read) for _ in range(2)]
            read()
            assert [code.result() for code in codes] == [0, 0]
        # A thread that the child has not holds the lock there for ever.
        held, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with opened._lock:
                held.set()
                forked.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert in_child(read) == 0
        finally:
            forked.set()
            thread.join()


@FORKS
def test_what_does_not_work_in_a_forked_child(tmp_path: Path) -> None:
    data = elements()
    session = icechunk_session(tmp_path)
    in_memory = obstore.store.MemoryStore()
    for form in (session.store, LoggingStore(session.store, log_level="CRITICAL"), in_memory):
        array = gzarr.create_array(form, data=data, overwrite=True, **CHUNKED)
        np.testing.assert_array_equal(array[...], data)

        def refused(array: gzarr.Array = array) -> None:
            begin = time.monotonic()
            with pytest.raises((StoreError, ChunkError), match="forked process"):
                array[...]
            with pytest.raises(StoreError, match="forked process"):
                array.store.set("zarr.json", b"")
            assert time.monotonic() - begin < 5

        assert in_child(refused) == 0
        np.testing.assert_array_equal(array[...], data)


# -- Icechunk


@pytest.mark.parametrize("kind", ["in memory", "directory"])
def test_icechunk(tmp_path: Path, kind: str, device: TestedDevice) -> None:
    storage = (
        icechunk.in_memory_storage() if kind == "in memory" else icechunk.local_filesystem_storage(str(tmp_path / "r"))
    )
    repository = icechunk.Repository.create(storage)
    data = elements()
    session = repository.writable_session("main")
    zarr.create_group(session.store).create_array("a", data=data, chunks=(30, 25))
    first = session.commit("by zarr-python")
    array = device.open(repository.readonly_session("main").store, path="a")
    np.testing.assert_array_equal(device.read(array), data)

    session = repository.writable_session("main")
    group = gzarr.open_group(session.store, mode="r+")
    group["a"][:30] = 5
    group.create_array("b", data=data + 1, chunks=(10, 10), shards=(60, 50))
    group.attrs["unit"] = "m"
    session.commit("by gzarr")
    changed = data.copy()
    changed[:30] = 5
    read = zarr.open_group(repository.readonly_session("main").store, mode="r")
    np.testing.assert_array_equal(read["a"][...], changed)
    np.testing.assert_array_equal(read["b"][...], data + 1)
    assert dict(read.attrs) == {"unit": "m"}
    # An older snapshot is as it was.
    store = repository.readonly_session(snapshot_id=first).store
    np.testing.assert_array_equal(device.read(device.open(store, path="a")), data)
    with pytest.raises(NodeNotFoundError):
        gzarr.open_array(store, path="b")
    with pytest.raises(ReadOnlyError):
        gzarr.open_array(store, path="a", mode="r+")
