"""What every kind of remote store must do: S3, Azure, Google Cloud Storage, WebDAV, each against a server of its own.

What only one kind does has a module of its own; more faults are tried with S3.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
import zarr.storage
from support import servers
from support.fault_proxy import EACH_FAULT, FAULTS, FaultProxy, Seen
from support.remotes import BUCKET, Remote, remote
from support.requests_of import requests_of

import gzarr
from gzarr.errors import ArgumentError, ChunkError, GzarrError, ReadOnlyError, StoreError, ValueSizeError
from gzarr.stores import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Values = np.ndarray[Any, Any]

KINDS = ["s3", "azure", "gcs", "webdav"]
CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
#: Requests for the index of a shard.
INDEX = {"s3": 1, "az": 2, "gs": 1, "http": 1}


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Remote]:
    with remote(request.param) as made:
        yield made


@pytest.fixture
def proxy(server: Remote) -> Iterator[FaultProxy]:
    with FaultProxy(server.address, stall_s=3) as made:
        yield made


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)


@pytest.fixture
def opened(server: Remote, proxy: FaultProxy, root: str) -> Callable[..., Any]:
    """Return a function that makes a store of the test's root, through the proxy."""

    def make(**arguments: Any) -> Any:
        return server.store(proxy.url, **{"root": root, **servers.PATIENT, **arguments})

    return make


@pytest.fixture
def store(opened: Callable[..., Any]) -> Any:
    return opened()


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


def in_threads(work: Callable[[int], object], number: int = 8) -> None:
    with ThreadPoolExecutor(number) as threads:
        list(threads.map(work, range(number)))


# -- values


@pytest.mark.parametrize("layout", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_round_trip(store: Any, layout: dict[str, Any]) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **layout)
    np.testing.assert_array_equal(array[...], data)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    np.testing.assert_array_equal(gzarr.open_array(store)[5:90], data[5:90])
    array.resize((100, 130))
    np.testing.assert_array_equal(array[:, :100], data[:100])
    assert not array[:, 100:].any()
    with pytest.raises(ArgumentError, match=r"no locks between processes.*no two write to the same chunk"):
        array.write(np.s_[0, 0], 1, lock=True)


def test_zarr_python_reads_and_writes_the_same(server: Remote, store: Any, root: str) -> None:
    import obstore.store

    kind = {"s3": "S3Store", "az": "AzureStore", "gs": "GCSStore", "http": "HTTPStore"}[server.scheme]
    endpoint = f"http://{server.address[0]}:{server.address[1]}"
    client: Any = {"allow_http": True}
    if kind == "HTTPStore":
        made: Any = obstore.store.HTTPStore(server.url(endpoint, root), client_options=client)
    else:
        name = "container_name" if kind == "AzureStore" else "bucket"
        config = {name: BUCKET, **server.options(endpoint)}
        made = getattr(obstore.store, kind)(config=config, prefix=root, client_options=client)
    data = elements()
    gzarr.create_array(store, path="ours", data=data, **CHUNKED)
    theirs = zarr.storage.ObjectStore(made)
    np.testing.assert_array_equal(zarr.open_array(theirs, path="ours", mode="r")[...], data)
    if kind != "HTTPStore":  # to which zarr-python cannot write
        zarr.create_array(theirs, name="theirs", data=data, chunks=(30, 25))
        np.testing.assert_array_equal(gzarr.open_array(store, path="theirs")[...], data)
    # The store object of obstore itself.
    np.testing.assert_array_equal(gzarr.open_array(made, path="ours")[...], data)


def test_ranges(store: Any) -> None:
    store.set("key", b"0123456789")
    store.set("empty", b"")
    ends = [ByteRange(-4), ByteRange(-10), ByteRange(7), ByteRange(10, 0)]
    ranges = [ByteRange(2, 3), *ends, ByteRange(0, 0), ByteRange()]
    found = store.get_partial_values([("key", wanted) for wanted in ranges])
    assert found == [b"234", b"6789", b"0123456789", b"789", b"", b"", b"0123456789"]
    assert store.get_partial_values([("absent", ByteRange(2, 3)), ("absent", ByteRange(-1))]) == [None, None]
    assert store.get("empty") == b""
    for wanted in (ByteRange(5, 6), ByteRange(11, 1), ByteRange(-11), ByteRange(20)):
        with pytest.raises(ValueSizeError, match="too few"):
            store.get_partial_values([("key", wanted)])
    with pytest.raises(ValueSizeError, match="at most 9"):
        store.get_small_values(["key"], 9)


def test_keys(store: Any) -> None:
    names = ["a b", "ü", "a%20b", "a+b", "a#b", "a?b", "~t", "c0.0", "a&b=1", "[x]", "'q\"", "*", "{}|^`", "d/e/f"]
    for name in names:
        store.set(name, name.encode())
    assert sorted(store.list()) == sorted(names)
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    assert store.list_dir("d/") == ([], ["d/e/"])
    assert dict(store.list_sizes("d/")) == {"d/e/f": 5}
    assert store.contains([*names, "absent"]) == [True] * len(names) + [False]
    store.erase_prefix("d/")
    store.erase_values(names)
    assert list(store.list()) == []


def test_erasing_what_is_absent_does_nothing(store: Any) -> None:
    store.erase("absent")
    store.erase_values(["absent", "absent/below"])
    store.erase_prefix("absent/")
    store.set("a/b", b"1")
    store.set("ab", b"2")
    store.erase_values(["a/absent", "a/b", "b"])
    assert list(store.list()) == ["ab"]
    # A prefix is not a key.
    store.erase_prefix("ab/")
    assert store.get("ab") == b"2"
    store.erase_prefix("")
    assert list(store.list()) == []


def test_listed_versions(opened: Callable[..., Any]) -> None:
    store = opened()
    for key in ("a/b", "a/c/d", "e"):
        store.set(key, key.encode())
    versions = dict(store.list_versions("a/"))
    assert sorted(versions) == ["a/b", "a/c/d"]
    assert None not in versions.values()
    assert dict(opened().list_versions("a/")) == versions
    store.set("a/b", b"longer than before")
    changed = dict(store.list_versions("a/"))
    assert changed["a/b"] != versions["a/b"]
    assert changed["a/c/d"] == versions["a/c/d"]


def test_listing_by_pages(
    opened: Callable[..., Any], proxy: FaultProxy, server: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzarr.stores.remote_store.PAGE_KEYS", servers.GCS_PAGE)
    store = opened()
    names = [f"k/{i % 4}/{i:04}" for i in range(350)]
    in_threads(lambda i: [store.set(name, b"") for name in names[i::8]])
    first = len(proxy.seen)
    # The second request fails once; S3's pages have 1000 keys, Azure's 5000.
    failing = first + (server.scheme in ("gs", "http"))
    proxy.fault_of = lambda number, seen: "status 500" if number == failing else None
    assert sorted(store.list_prefix("k/")) == sorted(names)
    assert len(proxy.seen) > failing + 1
    proxy.fault_of = lambda number, seen: None
    assert sorted(store.list_prefix("k/1/")) == names[1::4]
    assert store.list_dir("k/1/") == (names[1::4], [])
    assert store.list_dir("k/") == ([], ["k/0/", "k/1/", "k/2/", "k/3/"])
    store.erase_prefix("k/")
    assert list(store.list()) == []


def test_large_values(store: Any, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gzarr.stores.remote_store.MULTIPART_BYTES", 1 << 20)
    monkeypatch.setattr("gzarr.stores.remote_store.PART_BYTES", 5 << 20)
    value = np.random.default_rng(0).bytes((11 << 20) + 3)
    store.set("key", b"old")
    first = len(proxy.seen)
    # A part fails for good.
    proxy.fault_of = lambda number, seen: "status 403" if number > first + 1 and seen.method == "PUT" else None
    if not store._takes_parts:
        proxy.fault_of = lambda number, seen: "status 403"
    with pytest.raises(StoreError, match=r"cannot write 'key': HTTP status 403"):
        store.set("key", value)
    proxy.fault_of = lambda number, seen: None
    assert store.get("key") == b"old"
    assert list(store.list()) == ["key"]
    store.set("key", value)
    assert store.get("key") == value
    assert sum(seen.method == "PUT" for seen in proxy.seen[first:]) >= (4 if store._takes_parts else 2)


def test_creation_is_exclusive(store: Any, proxy: FaultProxy) -> None:
    made: list[int] = []
    in_threads(lambda i: made.append(i) if store.create("new/key", b"%d" % i) else None)
    (winner,) = made
    assert store.get("new/key") == b"%d" % winner
    # The server stores the value, and its answer is lost: the next attempt finds that the key exists.
    method = "COPY" if isinstance(store, gzarr.HttpStore) else "PUT"
    first = len(proxy.seen)

    def lose(number: int, seen: Seen) -> str | None:
        again = any(one.method == method and one.fault for one in proxy.seen[first:number])
        return "reset after" if seen.method == method and not again else None

    proxy.fault_of = lose
    assert store.create("another", b"mine")
    proxy.fault_of = lambda number, seen: None
    assert not store.create("another", b"mine")
    # No drafts are left.
    assert sorted(store.list()) == ["another", "new/key"]
    store.erase_values(["another", "new/key"])
    array = gzarr.create_array(store, path="a", data=[1, 2])
    for again in (
        lambda: gzarr.create_array(store, path="a", data=[3]),
        lambda: gzarr.open_array(store, path="a", mode="w-", shape=(1,), dtype="i4"),
    ):
        with pytest.raises(ArgumentError, match="already"):
            again()
    assert array[...].tolist() == [1, 2]


def test_read_only(opened: Callable[..., Any], proxy: FaultProxy) -> None:
    store = opened(read_only=True)
    for work in (
        lambda: store.set("k", b""),
        lambda: store.erase("k"),
        lambda: store.create("k", b""),
        lambda: store.erase_prefix(""),
    ):
        with pytest.raises(ReadOnlyError):
            work()
    assert not proxy.seen


def test_a_hierarchy(store: Any, opened: Callable[..., Any]) -> None:
    group = gzarr.create_group(store)
    group.create_array("x/a", data=[1, 2, 3])
    group.create_array("x/b", data=elements(), **SHARDED)
    assert sorted(name for name, _ in gzarr.open_group(opened()).walk()) == ["x", "x/a", "x/b"]
    group.move("x/a", "y")
    del group["x"]
    assert sorted(name for name, _ in gzarr.open_group(opened(read_only=True)).walk()) == ["y"]
    again = gzarr.create_array(store, path="y", data=[4, 5], overwrite=True)
    assert again[...].tolist() == [4, 5]
    assert gzarr.verify(store).problems == 0


# -- requests


def test_requests_are_counted(store: Any, opened: Callable[..., Any], proxy: FaultProxy, server: Remote) -> None:
    data = elements()
    gzarr.create_array(store, path="chunked", data=data, **CHUNKED)
    gzarr.create_array(store, path="sharded", data=data, **SHARDED)
    gzarr.consolidate_metadata(store)

    def requests(work: Callable[[], Any]) -> int:
        return len(requests_of(proxy, work)[0])

    def node(path: str, **arguments: Any) -> Any:
        return gzarr.open(opened(**arguments), path=path)

    # A store that can list has to be asked only if that matters.
    assert requests(lambda: node("chunked")) == 1
    assert requests(lambda: gzarr.open_array(opened(), path="sharded", mode="r+")) == 1
    chunked, sharded = node("chunked"), node("sharded")
    assert requests(lambda: chunked[...]) == 16
    assert requests(lambda: chunked[0, 0]) == 1
    assert requests(lambda: sharded[0, 0]) == INDEX[server.scheme] + 1
    assert requests(lambda: sharded[11, 3]) == 1
    # Half of two shards, one of which has a known index; then whole shards.
    assert requests(lambda: sharded[:30]) == INDEX[server.scheme] + 2
    assert requests(lambda: sharded[...]) == 4
    group = node("", read_only=True)
    assert requests(lambda: [array.shape for array in group.array_values()]) == 0


# -- what is absent, and what is refused


#: A web server has none: what is absent is absent.
WITH_BUCKETS = pytest.mark.parametrize("server", ["s3", "azure", "gcs"], indirect=True)


@WITH_BUCKETS
def test_a_bucket_that_does_not_exist_is_an_error(opened: Callable[..., Any]) -> None:
    store = opened(bucket="no-such-bucket")
    for work in (
        lambda: store.get("key"),
        lambda: store.get_partial_values([("key", ByteRange(-4))]),
        lambda: store.contains(["key"]),
        lambda: list(store.list()),
        lambda: store.list_dir(""),
        lambda: store.set("key", b"value"),
        lambda: store.create("key", b"value"),
        lambda: store.erase("key"),
        lambda: gzarr.open(store),
    ):
        with pytest.raises(StoreError, match=r"://no-such-bucket/.*no such bucket or container"):
            work()


@WITH_BUCKETS
def test_a_bucket_that_is_gone_is_never_fill_values(server: Remote, opened: Callable[..., Any]) -> None:
    server.change_bucket("short-lived", "PUT")
    store = opened(bucket="short-lived")
    array = gzarr.create_array(store, path="a", shape=(4, 4), dtype="i4", chunks=(2, 2), fill_value=7)
    sharded = gzarr.create_array(store, path="b", shape=(4, 4), dtype="i4", chunks=(1, 1), shards=(2, 2), fill_value=7)
    assert (array[...] == 7).all()
    assert (sharded[...] == 7).all()
    store.erase_prefix("")
    server.change_bucket("short-lived", "DELETE")
    fresh = opened(bucket="short-lived")
    with pytest.raises(ChunkError, match="no such bucket or container"):
        array[...]
    with pytest.raises(GzarrError, match="no such bucket or container"):
        sharded[...]
    with pytest.raises(StoreError, match="no such bucket or container"):
        fresh.get_partial_values([("key", ByteRange(-4))])


@pytest.mark.parametrize("status", [400, 401, 403, 405, 410, 501])
def test_a_refusal_is_an_error_at_once(proxy: FaultProxy, store: Any, status: int) -> None:
    array = gzarr.create_array(store, data=elements(), **CHUNKED)
    # The server is known to take signed URLs.
    array[:30, :25]
    proxy.fault_of = lambda number, seen: f"status {status}"
    with proxy.counting() as seen, pytest.raises(ChunkError, match=rf"HTTP status {status}.*1 attempt in "):
        array[:30, :25]
    assert len(seen) == 1
    with pytest.raises(StoreError, match=f"cannot write.*HTTP status {status}"):
        store.set("key", b"value")
    with pytest.raises(StoreError, match=f"cannot erase.*HTTP status {status}"):
        store.erase("key")


def test_secrets_are_not_shown(server: Remote, proxy: FaultProxy, store: Any) -> None:
    shown = [repr(store), str(gzarr.create_array(store, data=elements(), **CHUNKED))]
    for fault in ("status 403", "status 400", "cut headers"):
        proxy.fault_of = lambda number, seen, fault=fault: fault
        quick = server.store(proxy.url, "secrets", timeout=0.5)
        for work in (
            lambda: quick.get("key"),  # noqa: B023
            lambda: quick.set("key", b""),  # noqa: B023
            lambda: list(quick.list()),  # noqa: B023
            lambda: quick.erase("key"),  # noqa: B023
        ):
            with pytest.raises(StoreError) as caught:
                work()
            shown.append("".join(traceback.format_exception(caught.value)))
    if server.secrets:
        with pytest.raises(ArgumentError) as refused:
            server.store(proxy.url, "a", no_such_option=server.secrets[0])
        shown.append(str(refused.value))
    assert not any(secret in text for text in shown for secret in server.secrets)


# -- a shard that is replaced during the read


@pytest.mark.parametrize("known", [False, True], ids=["index read", "index kept"])
def test_a_shard_that_is_replaced(proxy: FaultProxy, store: Any, known: bool) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **SHARDED)
    other = gzarr.open_array(store, mode="r+")
    if known:
        np.testing.assert_array_equal(array[...], data)
    once = threading.Event()

    def replace(number: int, seen: Seen) -> None:
        # Before the first conditional request for a part of the first shard is sent.
        if seen.method == "GET" and "if-match" in seen.headers and not once.is_set():
            once.set()
            other[...] = data + 1

    proxy.fault_of = replace
    found = array[:40, :50]
    assert once.is_set()
    np.testing.assert_array_equal(found, data[:40, :50] + 1)


# -- faults


@pytest.mark.parametrize("fault", EACH_FAULT)
def test_one_fault(proxy: FaultProxy, opened: Callable[..., Any], fault: str) -> None:
    data = elements()
    store = opened(**servers.WATCHFUL)
    array = gzarr.create_array(store, data=data, **SHARDED)
    once = threading.Event()

    def first(number: int, seen: Seen) -> str | None:
        if once.is_set():
            return None
        once.set()
        return fault

    proxy.fault_of = first

    def survives(work: Callable[[], object]) -> None:
        once.clear()
        try:
            work()
        except GzarrError:
            # An answer about a size, or a listing, contradicts nothing else.
            assert fault in ("short body", "long body")

    survives(lambda: np.testing.assert_array_equal(array[...], data))
    keys = ["c/0/0", "c/0/1", "c/1/0", "c/1/1"]
    survives(lambda: np.testing.assert_array_equal(sorted(store.list_prefix("c/")), keys))
    once.clear()
    array[...] = data + 1
    proxy.fault_of = lambda number, seen: None
    np.testing.assert_array_equal(array[...], data + 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_schedules_of_faults(server: Remote, root: str, seed: int) -> None:
    """Random schedules of faults: reads are right or an error of ours; writes leave the old or the new value."""
    numbers = random.Random(seed)
    old, new = elements(), elements()[::-1].copy()
    with FaultProxy(server.address, stall_s=0.7) as proxy:
        for round_ in range(8):
            layout = numbers.choice([CHUNKED, SHARDED])
            patient, quick = (
                server.store(proxy.url, f"{root}/{round_}", **options)
                for options in (
                    servers.PATIENT,
                    {"timeout": 3, "client_options": {"read_timeout": "300ms", "connect_timeout": "1s"}},
                )
            )
            proxy.fault_of = lambda number, seen: None
            array = gzarr.create_array(patient, data=old, **layout)
            share = numbers.choice([0.02, 0.1, 0.3])
            usable = [fault for fault in FAULTS if fault not in ("short body", "long body")]
            draws = random.Random(numbers.random())
            proxy.fault_of = lambda number, seen: (
                draws.choice(usable) if draws.random() < share else None  # noqa: B023
            )
            begin = time.monotonic()
            try:
                again = gzarr.open_array(quick, mode="r+")
                np.testing.assert_array_equal(again[...], old)
                again[...] = new
                whole = True
            except GzarrError:
                whole = False
            assert time.monotonic() - begin < 60
            proxy.fault_of = lambda number, seen: None
            found = array[...]
            if whole:
                np.testing.assert_array_equal(found, new)
            extent = layout.get("shards", layout["chunks"])
            for i in range(0, old.shape[0], extent[0]):
                for j in range(0, old.shape[1], extent[1]):
                    box = np.s_[i : i + extent[0], j : j + extent[1]]
                    assert (found[box] == old[box]).all() or (found[box] == new[box]).all()


# -- processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_reads_and_writes(store: Any) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **SHARDED)
    np.testing.assert_array_equal(array[...], data)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(30)
            np.testing.assert_array_equal(array[...], data)
            array[:60, :50] = 5
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    data[:60, :50] = 5
    np.testing.assert_array_equal(array[...], data)
