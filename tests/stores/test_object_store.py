"""Object stores, against a real S3 server behind a proxy that counts requests and, on demand, answers badly."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import servers
from support.fault_proxy import EACH_FAULT, FAULTS, FaultProxy, Seen
from support.requests_of import requests_of, wait_until_idle

import gzarr
from gzarr.errors import ArgumentError, ChunkError, GzarrError, StoreError
from gzarr.stores import curl_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

BUCKET = "bucket"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with servers.s3_server() as address:
        servers.make_bucket(address, BUCKET)
        yield address


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(server, stall_s=3) as made:
        yield made


def options(proxy: FaultProxy, **others: Any) -> dict[str, Any]:
    return servers.s3_options(proxy.url, **{**servers.PATIENT, **others})


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"s3://{BUCKET}/{name}"


@pytest.fixture
def store(proxy: FaultProxy, url: str) -> gzarr.ObjectStore:
    made = gzarr.open_store(url, read_only=False, storage_options=options(proxy))
    assert isinstance(made, gzarr.ObjectStore)
    return made


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
#: No codec of the native loop.
SLOW: dict[str, Any] = {"chunks": (60, 50), "codecs": ["numcodecs.bz2"]}


# -- requests


def test_requests_are_counted(proxy: FaultProxy, store: gzarr.ObjectStore, url: str) -> None:
    data = elements()
    gzarr.create_array(store, path="chunked", data=data, **CHUNKED)
    gzarr.create_array(store, path="sharded", data=data, **SHARDED)

    def requests(work: Any) -> list[Seen]:
        seen, added = requests_of(proxy, work)
        assert added["retries"] == 0
        return seen

    def opened(path: str, **arguments: Any) -> Any:
        return gzarr.open(url, path=path, storage_options=options(proxy), **arguments)

    assert len(requests(lambda: opened("chunked"))) == 1
    assert len(requests(lambda: opened("sharded", zarr_format=3))) == 1
    chunked = opened("chunked")
    assert len(requests(lambda: chunked[...])) == 16
    assert len(requests(lambda: chunked[0])) == 4
    assert len(requests(lambda: chunked[0, 0])) == 1
    # Two rows of inner chunks are one range of a shard; its index is read once.
    sharded = opened("sharded")
    assert len(requests(lambda: sharded[0, 0])) == 2
    assert len(requests(lambda: sharded[11, 3])) == 1
    assert len(requests(lambda: sharded[:20, :50])) == 1
    # Shards that are wanted as a whole are one request each.
    assert len(requests(lambda: opened("sharded")[...])) == 1 + 4
    assert len(requests(lambda: sharded[...])) == 4
    seen = requests(lambda: sharded[:, ::20])
    assert len(seen) == 4
    assert sum(one.range is not None for one in seen) == len(seen)
    # A large value: its size, and parts of 4 MiB.
    numbers = np.arange(5 << 20, dtype="u4")
    large = gzarr.create_array(store, path="large", data=numbers, chunks=numbers.shape, compressors=None)
    assert len(requests(lambda: np.testing.assert_array_equal(large[...], numbers))) == 1 + 5
    # Consolidated metadata: one request for all.
    gzarr.consolidate_metadata(store)
    group = opened("")
    assert len(requests(lambda: opened(""))) == 1
    assert len(requests(lambda: [array.shape for array in group.array_values()])) == 0


def test_bytes_that_are_read_in_vain_are_bounded(proxy: FaultProxy, store: gzarr.ObjectStore) -> None:
    # Chunks of 40,000 bytes: a gap of one of them costs more than a request.
    data = np.random.default_rng(0).integers(0, 2**31, (10, 100, 100), dtype="i4")
    array = gzarr.create_array(store, data=data, chunks=(1, 100, 100), shards=(10, 100, 100), codecs=["bytes"])
    array[0]
    _, added = requests_of(proxy, lambda: np.testing.assert_array_equal(array[::2], data[::2]))
    needed = data[::2].nbytes
    assert needed <= added["bytes_read"] <= 1.1 * needed


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED, SLOW], ids=["chunked", "sharded", "bz2"])
def test_round_trip(store: gzarr.ObjectStore, kind: dict[str, Any]) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **kind)
    np.testing.assert_array_equal(array[...], data)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    np.testing.assert_array_equal(array[...], data)
    np.testing.assert_array_equal(array.read(np.s_[5:90], budget_bytes=1000), data[5:90])
    array.resize((100, 130))
    np.testing.assert_array_equal(array[:, :100], data[:100])
    assert not array[:, 100:].any()
    again = gzarr.open_array(store)
    np.testing.assert_array_equal(again[...], array[...])
    with pytest.raises(ArgumentError, match="locks between processes"):
        array.write(np.s_[0, 0], 1, lock=True)


# -- what is absent, and what is refused


def test_an_error_that_stays_ends_after_the_time_out(proxy: FaultProxy, url: str) -> None:
    store = gzarr.open_store(url, storage_options=options(proxy, timeout=2))
    proxy.fault_of = lambda number, seen: "status 503"
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot read 'key': HTTP status 503.*\d attempts in [\d.]+ s") as caught:
        store.get("key")
    assert 0.5 < time.monotonic() - begin < 10
    assert url in str(caught.value)
    assert 2 <= len(proxy.seen) < 20


def test_no_server(proxy: FaultProxy, url: str) -> None:
    nowhere = servers.s3_options(f"http://127.0.0.1:{servers.free_port()}", timeout=1)
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"attempts in"):
        gzarr.open(url, storage_options=nowhere)
    assert time.monotonic() - begin < 5


def test_listing_by_pages(store: gzarr.ObjectStore, proxy: FaultProxy) -> None:
    names = [f"k/{i:04}" for i in range(1100)]
    threads = [
        threading.Thread(target=lambda part=part: [store.set(name, b"") for name in part])
        for part in (names[i::8] for i in range(8))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = len(proxy.seen)
    # The second page fails once.
    proxy.fault_of = lambda number, seen: "status 500" if number == first + 1 else None
    assert list(store.list_prefix("k/")) == names
    proxy.fault_of = lambda number, seen: None
    with proxy.counting() as seen:
        store.erase_prefix("k/")
    assert len(seen) <= 5
    assert list(store.list()) == []


# -- a shard that is replaced during the read


@pytest.mark.parametrize("known", [False, True], ids=["index read", "index kept"])
def test_a_shard_that_is_replaced(proxy: FaultProxy, store: gzarr.ObjectStore, url: str, known: bool) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **SHARDED)
    other = gzarr.open_array(store, mode="r+")
    if known:
        np.testing.assert_array_equal(array[...], data)
    once = threading.Event()

    def replace(number: int, seen: Seen) -> None:
        # Before the first range of chunks of the first shard is sent.
        if seen.range is not None and "if-match" in seen.headers and not once.is_set():
            once.set()
            other[...] = data + 1

    proxy.fault_of = replace
    # More than half of the shard, but not all of it.
    found = array[:40, :50]
    assert once.is_set()
    np.testing.assert_array_equal(found, data[:40, :50] + 1)


def test_a_shard_whose_kept_index_says_that_chunks_are_absent(proxy: FaultProxy, store: gzarr.ObjectStore) -> None:
    array = gzarr.create_array(store, shape=(60, 50), dtype="i4", fill_value=0, **SHARDED)
    array[:10, :10] = 1
    assert not array[20:30, 20:30].any()
    gzarr.open_array(store, mode="r+")[20:30, 20:30] = 2
    # No request for chunks would notice that the shard has changed.
    assert (array[20:30, 20:30] == 2).all()
    store.erase_prefix("c/")
    assert not array[20:30, 20:30].any()
    assert not array[:10, :10].any()


# -- faults


@pytest.mark.parametrize("plain", [True, False], ids=["libcurl", "obstore"])
@pytest.mark.parametrize("fault", EACH_FAULT)
@pytest.mark.parametrize("kind", [CHUNKED, SHARDED, SLOW], ids=["chunked", "sharded", "bz2"])
def test_one_fault(
    proxy: FaultProxy, url: str, fault: str, kind: dict[str, Any], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not plain:
        monkeypatch.setattr(curl_threads, "available", lambda: False)
    data = elements()
    store = gzarr.open_store(url, read_only=False, storage_options=options(proxy, **servers.WATCHFUL))
    array = gzarr.create_array(store, data=data, **kind)
    first = len(proxy.seen)
    proxy.fault_of = lambda number, seen: fault if number == first else None
    if fault in ("short body", "long body"):
        # The answer contradicts nothing that is known, but the chunk, or the shard's index, does not decode.
        with pytest.raises(ChunkError):
            array[...]
    else:
        np.testing.assert_array_equal(array[...], data)
    first = len(proxy.seen)
    array[...] = data + 1
    proxy.fault_of = lambda number, seen: None
    np.testing.assert_array_equal(array[...], data + 1)


def test_a_read_that_has_failed_sends_no_more_requests(proxy: FaultProxy, store: gzarr.ObjectStore, url: str) -> None:
    gzarr.create_array(store, data=elements(), **CHUNKED)
    array = gzarr.open_array(url, storage_options=options(proxy))
    # The server is known to take signed URLs.
    assert array[0, 0] == elements()[0, 0]
    first = len(proxy.seen)
    # One chunk cannot be read. The others are asked for again and again, after pauses of up to 5 s, for a minute.
    proxy.fault_of = lambda number, seen: "status 403" if number == first else "status 503"
    with pytest.raises(ChunkError, match="403"):
        array[...]
    wait_until_idle(15)
    assert len(proxy.seen) - first < 16 * 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_schedules_of_faults(server: tuple[str, int], seed: int) -> None:
    """200 random schedules of faults: reads are right or an error of ours; writes leave the old or the new value."""
    numbers = random.Random(seed)
    old, new = elements(), elements()[::-1].copy()
    with FaultProxy(server, stall_s=0.7) as proxy:
        root = f"s3://{BUCKET}/schedules-{seed}"
        quick = options(proxy, timeout=3, client_options={"read_timeout": "300ms"})
        patient = options(proxy)
        for round_ in range(25):
            kind = numbers.choice([CHUNKED, SHARDED, SLOW])
            proxy.fault_of = lambda number, seen: None
            array = gzarr.create_array(f"{root}/{round_}", data=old, storage_options=patient, **kind)
            share, lying = numbers.choice([0.02, 0.1, 0.4]), numbers.random() < 0.3
            usable = FAULTS if lying else [fault for fault in FAULTS if fault not in ("short body", "long body")]
            draws = random.Random(numbers.random())
            proxy.fault_of = lambda number, seen: (
                draws.choice(usable) if draws.random() < share else None  # noqa: B023
            )
            begin = time.monotonic()
            try:
                again = gzarr.open_array(f"{root}/{round_}", mode="r+", storage_options=quick)
                np.testing.assert_array_equal(again[...], old)
                np.testing.assert_array_equal(again[17:40, 20:], old[17:40, 20:])
                again[...] = new
                whole = True
            except GzarrError:
                whole = False
            assert time.monotonic() - begin < 60
            proxy.fault_of = lambda number, seen: None
            found = array[...]
            if whole:
                np.testing.assert_array_equal(found, new)
            assert ((found == old) | (found == new)).all()
            # Each stored value is the old one or the new one.
            extent = kind.get("shards", kind["chunks"])
            for i in range(0, old.shape[0], extent[0]):
                for j in range(0, old.shape[1], extent[1]):
                    box = np.s_[i : i + extent[0], j : j + extent[1]]
                    assert (found[box] == old[box]).all() or (found[box] == new[box]).all()


# -- processes


def read_in_child(array: gzarr.Array, data: Values) -> int:
    """Fork, read in the child, and return its exit code."""
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
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_a_forked_child_reads(store: gzarr.ObjectStore, kind: dict[str, Any]) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **kind)
    np.testing.assert_array_equal(array[...], data)
    assert read_in_child(array, data) == 0
    np.testing.assert_array_equal(array[...], data)
    # A child of a child.
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(60)
            np.testing.assert_array_equal(array[...], data)
            code = read_in_child(array, data)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    np.testing.assert_array_equal(array[...], data)


SPAWNED = """
import pickle, sys
import numpy as np
array = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(np.ascontiguousarray(array[...]).tobytes())
"""


def test_another_process(store: gzarr.ObjectStore) -> None:
    data = elements()
    array = gzarr.create_array(store, data=data, **SHARDED)
    done = subprocess.run(
        [sys.executable, "-c", SPAWNED], input=pickle.dumps(array), capture_output=True, timeout=100, check=False
    )
    assert done.stdout == data.tobytes(), done.stderr[-2000:]


INTERRUPTED = """
import os, signal, sys, threading, time
import gzarr
# A shell's background jobs ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
url, options = sys.argv[1], eval(sys.argv[2])
array = gzarr.open_array(url, storage_options=options)

def interrupt():
    global sent
    sys.stdin.readline()
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    array[...]
except KeyboardInterrupt:
    print(time.monotonic() - sent, flush=True)
"""


def test_an_interrupt_ends_a_read_at_once(proxy: FaultProxy, store: gzarr.ObjectStore, url: str) -> None:
    gzarr.create_array(store, data=elements(), **CHUNKED)
    patient = servers.s3_options(proxy.url, timeout=60)
    document = len(proxy.seen)
    proxy.stall_s = 20
    # The child's first request is for the metadata document.
    proxy.fault_of = lambda number, seen: None if number == document else "stall"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, url, repr(patient)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        end = time.monotonic() + 60
        while len(proxy.seen) < document + 2 and child.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        child.stdin.write("\n")
        child.stdin.flush()
        begin = time.monotonic()
        answer = child.stdout.readline()
        assert answer, child.stderr.read()
        assert float(answer) < 5
        # Requests in progress do not keep the process alive, nor make it crash.
        assert child.wait(15) == 0, child.stderr.read()
        assert time.monotonic() - begin < 15


# -- secrets and options


def test_secrets_are_not_shown(proxy: FaultProxy, url: str) -> None:
    store: Any = gzarr.open_store(url, read_only=False, storage_options=options(proxy, timeout=1))
    shown = [repr(store), str(gzarr.create_array(store, data=elements(), **CHUNKED))]
    for fault in ("status 403", "status 400", "reset before", "cut headers"):
        proxy.fault_of = lambda number, seen, fault=fault: fault
        for work in (lambda: store.get("key"), lambda: store.set("key", b""), lambda: list(store.list())):
            with pytest.raises(StoreError) as caught:
                work()
            shown.append("".join(traceback.format_exception(caught.value)))
    with pytest.raises(ArgumentError) as refused:
        gzarr.open_store(url, storage_options=options(proxy, no_such_option=servers.S3_SECRET))
    shown.append(str(refused.value))
    assert not any(servers.S3_SECRET in text for text in shown)


@pytest.mark.parametrize(
    ("url", "given", "message"),
    [
        ("s3://user:hidden@bucket/x", {}, "not in the URL"),
        ("s3:///x", {}, "names no bucket"),
        ("https://user:hidden@host/x", {}, "not in the URL"),
        ("https://host/x?sig=hidden", {}, "query"),
        ("https://host/x", {"region": "x"}, "and 'client_options', not 'region'"),
        ("s3://bucket/x", {"nonsense": 1}, "nonsense"),
        ("s3://bucket/x", {"timeout": 0}, "timeout"),
        ("s3://bucket/x", {"client_kwargs": {"verify": "hidden"}}, "client_kwargs.*endpoint_url and region_name"),
        ("s3://bucket/x", {"client_kwargs": 3}, "client_kwargs"),
        ("s3://bucket/x", {"config_kwargs": {"a": 1}}, "concurrency"),
        ("s3://bucket/x", {"use_ssl": False}, "http://"),
        ("s3://bucket/x", {"key": "hidden", "access_key_id": "other"}, "access_key_id.*twice"),
        ("gs://bucket/x", {"token": "google_default"}, "application default credentials"),
        ("az://container/x", {"connection_string": "hidden"}, "account_name and account_key"),
        ("s3://bucket/x", {"client_options": 3}, "client_options"),
        ("s3://bucket/a/../b", {}, r"\.\."),
        ("/a/directory", {"region": "x"}, "storage_options"),
        ("nonsense://x", None, "not supported"),
    ],
)
def test_bad_urls_and_options(url: str, given: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        gzarr.open(url, storage_options=given)
    assert "hidden" not in str(caught.value)


def test_no_credentials(proxy: FaultProxy, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    # The server of credentials that a machine in the cloud has.
    given = {
        "endpoint": proxy.url,
        "region": "us-east-1",
        "metadata_endpoint": f"http://127.0.0.1:{servers.free_port()}",
    }
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"AWS_ACCESS_KEY_ID.*skip_signature"):
        gzarr.open(url, storage_options=given)
    assert time.monotonic() - begin < 5
    with pytest.raises(gzarr.NodeNotFoundError):
        gzarr.open(url, storage_options={**given, "anon": True})


def test_options_of_s3fs_and_boto3(store: gzarr.ObjectStore, url: str, proxy: FaultProxy) -> None:
    gzarr.create_array(store, data=[1, 2, 3])
    ours = servers.s3_options(proxy.url)
    key, secret = ours["access_key_id"], ours["secret_access_key"]
    plain = {"client_options": {"allow_http": True}}
    for given in (
        {"key": key, "secret": secret, "client_kwargs": {"endpoint_url": proxy.url, "region_name": "us-east-1"}},
        {
            "aws_access_key_id": key,
            "aws_secret_access_key": secret,
            "endpoint_url": proxy.url,
            "region_name": "us-east-1",
        },
        {"key": key, "secret": secret, "token": None, "endpoint_url": proxy.url, "client_kwargs": {"region_name": "x"}},
    ):
        wanted = {name: value for name, value in given.items() if value is not None}
        assert gzarr.open_array(url, storage_options=plain | wanted)[...].tolist() == [1, 2, 3]


def test_fragment_names_a_node(store: gzarr.ObjectStore, url: str, proxy: FaultProxy) -> None:
    gzarr.create_array(store, path="a/b", data=[1, 2, 3])
    array = gzarr.open_array(f"{url}#a/b", storage_options=options(proxy))
    assert array.name == "/a/b"
    assert array[...].tolist() == [1, 2, 3]


def test_store_objects_of_obstore(proxy: FaultProxy, store: gzarr.ObjectStore, url: str) -> None:
    from obstore.store import S3Store

    gzarr.create_array(store, data=[1, 2, 3])
    config = servers.s3_options(proxy.url)
    made = S3Store(BUCKET, prefix=url.partition(f"{BUCKET}/")[2], client_options={"allow_http": True}, **config)
    array = gzarr.open(made)
    assert array[...].tolist() == [1, 2, 3]
    assert read_in_child(array, np.array([1, 2, 3])) == 0
