"""Stores over filesystems of fsspec: in memory, by HTTP and FTP from real servers, in archives, behind caches."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
import upath
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from support import servers
from support.fault_proxy import FaultProxy
from support.forks import in_child
from support.requests_of import requests_of

import gzarr
from gzarr.errors import ArgumentError, ChunkError, NodeNotFoundError, ReadOnlyError, StoreError, ValueSizeError
from gzarr.stores import ByteRange, as_store, fsspec_urls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.devices import TestedDevice

    Values = np.ndarray[Any, Any]

CHUNKED: dict[str, Any] = {"chunks": (30, 25)}
SHARDED: dict[str, Any] = {"chunks": (10, 10), "shards": (60, 50)}
#: No codec of the native loop.
SLOW: dict[str, Any] = {"chunks": (60, 50), "codecs": ["numcodecs.bz2"]}
KINDS = pytest.mark.parametrize("kind", [CHUNKED, SHARDED, SLOW], ids=["chunked", "sharded", "bz2"])
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
SECRET = servers.S3_SECRET


def elements() -> Values:
    return np.random.default_rng(5).integers(0, 100, (120, 100), dtype="i4")


@pytest.fixture
def memory() -> Iterator[str]:
    """A URL in fsspec's memory."""
    fs = fsspec.filesystem("memory")
    yield "memory://bucket/a.zarr"
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def website(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, tuple[str, int]]]:
    folder = tmp_path_factory.mktemp("www")
    with servers.listing_web_server(str(folder)) as address:
        yield folder, address


@pytest.fixture
def proxy(website: tuple[Path, tuple[str, int]]) -> Iterator[FaultProxy]:
    with FaultProxy(website[1], stall_s=2) as made:
        yield made


@pytest.fixture
def remote(website: tuple[Path, tuple[str, int]], request: pytest.FixtureRequest) -> gzarr.LocalStore:
    """The files behind a web server, to be written there."""
    return gzarr.LocalStore(website[0] / "".join(c if c.isalnum() else "-" for c in request.node.name))


def web(proxy: FaultProxy, remote: gzarr.LocalStore) -> str:
    """Return the URL of some files on the web server, for fsspec's asynchronous client."""
    return f"fsspec+{proxy.url}/{remote.root.name}"


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Storage options for an FTP server over ``tmp_path``."""
    with servers.ftp_server(str(tmp_path)) as (host, port):
        yield {"host": host, "port": port, "username": "user", "password": SECRET}


# -- what is opened


def test_forms(memory: str) -> None:
    data = elements()
    zarr.create_array(memory, data=data, chunks=(30, 25))
    fs = fsspec.filesystem("memory")
    forms = [
        memory,
        f"fsspec+{memory}",
        fs.get_mapper("bucket/a.zarr"),
        gzarr.FsspecStore(fs, "bucket/a.zarr"),
        gzarr.FsspecStore(DirFileSystem("bucket", fs), "a.zarr"),
        gzarr.FsspecStore(AsyncFileSystemWrapper(fs, asynchronous=True), "/bucket/a.zarr/"),
        upath.UPath(memory),
        zarr.storage.FsspecStore.from_url(memory),
        zarr.storage.StorePath(zarr.storage.FsspecStore.from_url("memory://bucket"), "a.zarr"),
        zarr.open_array(memory),
        "memory://bucket#a.zarr",
    ]
    for form in forms:
        array = gzarr.open_array(form)
        assert isinstance(array.store, gzarr.FsspecStore), form
        np.testing.assert_array_equal(array[...], data)


def test_local_files_are_read_as_such(tmp_path: Path) -> None:
    data = elements()
    path = str(tmp_path / "a.zarr")
    zarr.create_array(path, data=data, chunks=(30, 25))
    local = fsspec.filesystem("file")
    forms = [
        f"fsspec+file://{path}",
        f"local://{path}",
        local.get_mapper(path),
        DirFileSystem(str(tmp_path), local).get_mapper("a.zarr"),
        DirFileSystem(".", DirFileSystem(str(tmp_path), local)).get_mapper("a.zarr"),
        fsspec.FSMap(path, AsyncFileSystemWrapper(local, asynchronous=False)),
        upath.UPath(path),
        zarr.storage.FsspecStore.from_url(f"file://{path}"),
    ]
    for form in forms:
        store, node = as_store(form)
        assert (store, node) == (gzarr.LocalStore(path, read_only=True), "")
        assert not as_store(form, "r+")[0].read_only
    with pytest.raises(NodeNotFoundError, match="no directory"):
        as_store(f"fsspec+file://{path}/none")

    class Other(LocalFileSystem):
        pass

    array = gzarr.open_array(Other().get_mapper(path))
    assert isinstance(array.store, gzarr.FsspecStore)
    np.testing.assert_array_equal(array[...], data)


def test_archives_and_caches(tmp_path: Path) -> None:
    data = elements()
    path = str(tmp_path / "a.zip")
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.create_array(store, data=data, chunks=(10, 10), shards=(60, 50))
    array = gzarr.open_array(f"zip::file://{path}")
    np.testing.assert_array_equal(array[...], data)
    if hasattr(os, "fork"):
        # A child does not share the position in the file.
        def read() -> None:
            for _ in range(20):
                np.testing.assert_array_equal(array[...], data)

        with ThreadPoolExecutor(2) as pool:
            codes = [pool.submit(in_child, read) for _ in range(2)]
            read()
            assert [code.result() for code in codes] == [0, 0]
    zarr.create_array(str(tmp_path / "a.zarr"), data=data, chunks=(10, 10), shards=(60, 50))
    cached = gzarr.open_array(
        f"simplecache::file://{tmp_path / 'a.zarr'}",
        storage_options={"simplecache": {"cache_storage": str(tmp_path / "cache")}},
    )
    np.testing.assert_array_equal(cached[...], data)
    assert list((tmp_path / "cache").iterdir())


def test_what_is_a_chain() -> None:
    for url in ("simplecache::https://h/x", "zip://a::s3://b/x.zip", "zip::x.zip"):
        assert fsspec_urls.is_chain(url)
    for url in ("https://h/x", "http://[::1]:80/x.zip", "fsspec+http://[fe80::1]/x", "folder/a::b"):
        assert not fsspec_urls.is_chain(url)


@pytest.mark.parametrize("spell", ["zip://sub.zarr::{}", "zip::{}", "zip://::{}"])
def test_an_archive_at_the_end_of_a_chain(spell: str, tmp_path: Path) -> None:
    with gzarr.ZipStore(tmp_path / "x.zip", mode="w") as store:
        gzarr.create_group(store)
        gzarr.create_array(store, path="sub.zarr", data=np.arange(5))
    url = spell.format(f"simplecache::file://{tmp_path / 'x.zip'}")
    options = {"simplecache": {"cache_storage": str(tmp_path / "cache")}}
    path = "" if "sub" in spell else "sub.zarr"
    assert gzarr.open_array(url, path=path, storage_options=options, device="cpu")[...].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("nonsense://x", "URLs of the scheme 'nonsense' are not supported"),
        ("fsspec+nonsense://x", "fsspec takes neither"),
        ("fsspec+https://host/a?token=SECRET", "names one file"),
        (fsspec.filesystem("memory"), r"needs a path: pass gzarr\.FsspecStore\(fs, path\)"),
        ("fsspec+gdrive://x", "needs another package|takes neither"),
    ],
)
def test_what_cannot_be_opened(value: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match) as caught:
        gzarr.open(value)
    assert "SECRET" not in str(caught.value)


def test_wrong_arguments(memory: str) -> None:
    with pytest.raises(ArgumentError, match="filesystem of fsspec, not str"):
        gzarr.FsspecStore("memory://x")
    with pytest.raises(ArgumentError, match="must be text"):
        gzarr.FsspecStore(fsspec.filesystem("memory"), 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="positive number of seconds"):
        gzarr.FsspecStore(fsspec.filesystem("memory"), timeout=0)
    with pytest.raises(ArgumentError, match="classes of exceptions"):
        gzarr.FsspecStore(fsspec.filesystem("memory"), missing_exceptions=("KeyError",))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="storage_options= is for URLs"):
        as_store(fsspec.get_mapper(memory), storage_options={"a": 1})


WITHOUT = """
import sys
sys.modules["fsspec"] = None
import gzarr
for work in (lambda: gzarr.open("fsspec+memory://a"), lambda: gzarr.open("memory://a"), lambda: gzarr.FsspecStore(1)):
    try:
        work()
    except gzarr.ArgumentError as error:
        assert "gzarr[fsspec]" in str(error), error
    else:
        sys.exit(1)
"""


def test_without_fsspec() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=60)


# -- reading and writing


@KINDS
def test_round_trip(memory: str, kind: dict[str, Any], device: TestedDevice) -> None:
    data = elements()
    array = gzarr.create_array(memory, data=data, device="cpu", **kind)
    array[7:70, 3:60] = data[7:70, 3:60] = 3
    np.testing.assert_array_equal(device.read(device.open(memory)), data)
    np.testing.assert_array_equal(zarr.open_array(memory, mode="r")[...], data)
    np.testing.assert_array_equal(array.read(np.s_[5:90], budget_bytes=1000), data[5:90])
    array.resize((100, 130))
    assert not array[:, 100:].any()
    np.testing.assert_array_equal(gzarr.open_array(memory, device="cpu")[:, :100], data[:100])


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_an_asynchronous_filesystem(proxy: FaultProxy, remote: Any, kind: dict[str, Any], device: TestedDevice) -> None:
    data = elements()
    data[:60, :50] = 7
    gzarr.create_array(remote, data=data, fill_value=7, **kind)
    remote.erase("c/0/0")
    array = device.open(web(proxy, remote))
    assert isinstance(array.store, gzarr.FsspecStore)
    np.testing.assert_array_equal(device.read(array), data)
    with proxy.counting() as seen:
        array[70]
    assert len(seen) == 4


def test_requests_run_side_by_side(proxy: FaultProxy, remote: Any) -> None:
    data = elements()
    gzarr.create_array(remote, data=data, chunks=(10, 10), codecs=["bytes"])
    array = gzarr.open_array(web(proxy, remote))
    running, most, lock = 0, 0, threading.Lock()

    def wait(number: int, seen: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1

    proxy.fault_of = wait
    seen, added = requests_of(proxy, lambda: np.testing.assert_array_equal(array[...], data))
    assert most >= 16
    assert len(seen) == 120
    assert added["bytes_read"] == data.nbytes


def test_an_ftp_server(tmp_path: Path, ftp: dict[str, Any]) -> None:
    # One connection, synchronous, with directories.
    data = elements()
    array = gzarr.create_array("ftp:///a.zarr", data=data, storage_options=ftp, **SHARDED)
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(bool((array[...] == data).all()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "a.zarr"), mode="r")[...], data)
    store = array.store
    assert store.list_dir("c/") == ([], ["c/0/", "c/1/"])
    # A listing that was kept does not hide what others have written since.
    assert store.get("c/5/5") is None
    store._calls.fs.ls("/a.zarr/c/0")
    (tmp_path / "a.zarr" / "c" / "0" / "9").write_bytes(b"value")
    assert store.get_partial_values([("c/0/9", ByteRange(-3))]) == [b"lue"]
    store.erase_prefix("c/")
    assert store.list_dir("") == (["zarr.json"], [])
    assert SECRET not in repr(store)


@pytest.mark.parametrize("name", ["a?", "a*", "[a]b"])
def test_only_what_was_named_is_erased(tmp_path: Path, ftp: dict[str, Any], name: str) -> None:
    group = gzarr.create_group("ftp:///g.zarr", storage_options=ftp)
    for node in (name, "ab"):
        gzarr.create_array(group.store, path=node, data=np.ones(4), chunks=2)
    (tmp_path / "g.zarr" / name / "empty" / "deep").mkdir(parents=True)
    gzarr.create_array(group.store, path=name, data=np.zeros(4), overwrite=True)
    del group[name]
    assert not (tmp_path / "g.zarr" / name).exists()
    assert list(group) == ["ab"]
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "g.zarr" / "ab"), mode="r")[...], np.ones(4))


def test_what_others_store_meanwhile_is_not_erased(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, root = fsspec.filesystem("memory"), "/bucket/a.zarr"
    for folder in ("d/e", "d/empty"):
        fs.makedirs(f"{root}/{folder}")
    store: Any = gzarr.open_store(memory, read_only=False)
    store.set("d/e/f", b"value")
    real = fs.find

    def find(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        if not fs.exists(f"{root}/d/e/f"):
            fs.pipe_file(f"{root}/d/e/g", b"theirs")
        return found

    monkeypatch.setattr(fs, "find", find)
    store.erase_prefix("d/")
    assert store.get("d/e/g") == b"theirs"
    assert list(store.list()) == ["d/e/g"]
    assert not fs.exists(f"{root}/d/empty")


@pytest.mark.parametrize("place", ["memory", "http", "files"])
def test_ranges(place: str, memory: str, proxy: FaultProxy, remote: Any, tmp_path: Path) -> None:
    values = {"key": b"0123456789", "d/e": b"value", "empty": b""}
    fs = fsspec.filesystem("memory")
    if place == "memory":
        fs.pipe({f"/bucket/a.zarr/{key}": value for key, value in values.items()})
        store: Any = gzarr.open_store(memory)
    elif place == "http":
        for key, value in values.items():
            remote.set(key, value)
        store = gzarr.open_store(web(proxy, remote))
    else:
        for key, value in values.items():
            (tmp_path / key).parent.mkdir(exist_ok=True)
            (tmp_path / key).write_bytes(value)
        store = gzarr.FsspecStore(LocalFileSystem(), str(tmp_path))
    ranges = [
        ByteRange(2, 3),
        ByteRange(-4),
        ByteRange(7),
        ByteRange(0, 0),
        ByteRange(10, 0),
        ByteRange(),
        ByteRange(-10),
    ]
    found = store.get_partial_values([("key", wanted) for wanted in ranges])
    assert found == [b"234", b"6789", b"789", b"", b"", b"0123456789", b"0123456789"]
    assert store.get_partial_values([("absent", ByteRange(2, 3)), ("absent", ByteRange(-1))]) == [None, None]
    assert store.get("empty") == b""
    assert store.get_small_values(["empty"], 5) == [b""]
    assert store.get_partial_values([("empty", ByteRange(0, 0))]) == [b""]
    if place != "http":
        assert store.get("d") is None
    for wanted in (ByteRange(5, 6), ByteRange(11, 1), ByteRange(11, 0), ByteRange(-11), ByteRange(20), ByteRange(12)):
        with pytest.raises(StoreError, match=r"too few|too short|416"):
            store.get_partial_values([("key", wanted)])
    with pytest.raises(ValueSizeError, match="at most 9"):
        store.get_small_values(["key"], 9)
    assert store.get_small_values(["key", "absent"], 10) == [b"0123456789", None]


@pytest.mark.parametrize("place", ["memory", "http"])
def test_keys(place: str, memory: str, proxy: FaultProxy, remote: Any) -> None:
    names = ["a b", "ü", "a%20b", "a+b", "a#b", "a?b", "~t", "c0.0", "a&b=1", "'q\"", "d/e/f"]
    store: Any = gzarr.open_store(memory, read_only=False) if place == "memory" else remote
    for name in names:
        store.set(name, name.encode())
    if place == "http":
        store = gzarr.open_store(web(proxy, remote))
    assert [store.get(name) for name in names] == [name.encode() for name in names]
    if place == "memory":
        assert sorted(store.list()) == sorted(names)
        assert dict(store.list_sizes("d/")) == {"d/e/f": 5}
        assert store.list_dir("d/") == ([], ["d/e/"])
        store.erase_prefix("d/")
        store.erase_values([*names, "absent"])
        assert list(store.list()) == []


def test_an_empty_root(memory: str) -> None:
    fs = fsspec.filesystem("memory")
    store = gzarr.FsspecStore(fs)
    store.set("a/b", b"value")
    assert list(store.list()) == ["a/b"]
    assert store.list_dir("") == ([], ["a/"])
    store.erase_prefix("")
    assert list(store.list()) == []


def test_read_only(memory: str) -> None:
    store: Any = gzarr.open_store(memory)
    for work in (lambda: store.set("k", b""), lambda: store.erase("k"), lambda: store.erase_prefix("")):
        with pytest.raises(ReadOnlyError):
            work()
    assert gzarr.open_store(memory) != gzarr.open_store(memory, read_only=False)
    assert gzarr.open_store(memory) == gzarr.open_store(memory)


# -- failures


@pytest.mark.parametrize("fault", ["status 403", "status 500", "reset before", "cut body", "short body"])
def test_a_failure_is_never_fill_values(proxy: FaultProxy, remote: Any, fault: str) -> None:
    gzarr.create_array(remote, data=elements(), **SHARDED)
    array = gzarr.open_array(web(proxy, remote))
    proxy.fault_of = lambda number, seen: fault
    with pytest.raises(ChunkError):
        array[...]


def test_web_servers_are_not_listed(proxy: FaultProxy, remote: Any) -> None:
    gzarr.create_group(remote).create_array("a", data=elements())
    store: Any = gzarr.open_store(web(proxy, remote))
    for work in (lambda: list(store.list()), lambda: store.list_dir("a/"), lambda: list(gzarr.open(store).members())):
        with pytest.raises(StoreError, match="consolidated metadata"):
            work()
    gzarr.consolidate_metadata(remote)
    assert [name for name, _ in gzarr.open_group(store).members()] == ["a"]


def test_a_server_that_is_silent(proxy: FaultProxy, remote: Any) -> None:
    remote.set("key", b"value")
    fs = fsspec.filesystem("http")
    store = gzarr.FsspecStore(fs, web(proxy, remote).removeprefix("fsspec+"), timeout=0.5)
    assert store.get("key") == b"value"
    proxy.fault_of, proxy.stall_s = lambda number, seen: "stall", 30
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot read 'key': TimeoutError: no answer in 0\.5 s"):
        store.get("key")
    assert time.monotonic() - begin < 10


class Odd(MemoryFileSystem):
    """A filesystem whose calls fail, as far as the path says."""

    protocol = "odd"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if not path.endswith("/unreadable"):
            raise FileNotFoundError(path)
        return {"name": path, "type": "file", "size": 5}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        name = path.rpartition("/")[2]
        if name == "slow":
            time.sleep(30)
        if name == "bucket":
            raise FileNotFoundError("The specified bucket does not exist")
        if name == "secret":
            raise OSError(f"GET http://user:{SECRET}@host/x?sig={SECRET} with {SECRET}")
        if name == "denied":
            raise PermissionError("no")
        if name == "text":
            return "text"  # type: ignore[return-value]
        raise FileNotFoundError(path)


def test_failures_of_a_filesystem() -> None:
    store = gzarr.FsspecStore(Odd(token=SECRET), "root", timeout=1.5)
    assert store.get("absent") is None
    for key, match in [
        ("bucket", "bucket does not exist"),
        ("denied", "PermissionError: no"),
        # As FTP's does, for whatever it cannot read.
        ("unreadable", "the file exists, and is not read: FileNotFoundError"),
        ("secret", r"GET http://host/x with \*\*\*"),
        ("text", "TypeError"),
        # The only connection stays busy.
        ("slow", r"no answer in 1\.5 s"),
        ("absent", r"no answer in 1\.5 s"),
    ]:
        begin = time.monotonic()
        with pytest.raises(StoreError, match=f"cannot read '{key}'.*{match}") as caught:
            store.get(key)
        assert SECRET not in str(caught.value)
        assert time.monotonic() - begin < 10
    lenient = gzarr.FsspecStore(Odd(), "root", missing_exceptions=(FileNotFoundError, PermissionError))
    assert lenient.get("denied") is None


# -- processes


@FORKS
def test_a_forked_child_reads(proxy: FaultProxy, remote: Any, memory: str) -> None:
    data = elements()
    gzarr.create_array(remote, data=data, **SHARDED)
    gzarr.create_array(memory, data=data, **SHARDED)
    for url in (web(proxy, remote), memory):
        array = gzarr.open_array(url)
        np.testing.assert_array_equal(array[...], data)
        again = gzarr.open_array(url)
        assert in_child(lambda array=array: np.testing.assert_array_equal(array[...], data)) == 0
        # Its first read is in the child; a child of a child.
        assert in_child(lambda again=again: np.testing.assert_array_equal(again[...], data)) == 0
        assert (
            in_child(lambda array=array: os._exit(in_child(lambda: np.testing.assert_array_equal(array[0], data[0]))))
            == 0
        )
        np.testing.assert_array_equal(array[...], data)


@FORKS
def test_a_filesystem_that_a_child_cannot_make_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zarr.storage.ZipStore(path, mode="w") as made:
        zarr.create_array(made, data=elements(), chunks=(30, 25))
    with path.open("rb") as file:
        store = gzarr.FsspecStore(fsspec.filesystem("zip", fo=file))
        assert store.get("zarr.json")

        def read() -> None:
            with pytest.raises(StoreError, match="cannot be made anew in this forked process"):
                store.get("zarr.json")

        assert in_child(read) == 0


SPAWNED = """
import pickle, sys
import numpy as np
array = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(np.ascontiguousarray(array[...]).tobytes())
"""


def test_another_process(proxy: FaultProxy, remote: Any) -> None:
    data = elements()
    gzarr.create_array(remote, data=data, **SHARDED)
    array = gzarr.open_array(web(proxy, remote))
    done = subprocess.run(
        [sys.executable, "-c", SPAWNED], input=pickle.dumps(array), capture_output=True, timeout=100, check=False
    )
    assert done.stdout == data.tobytes(), done.stderr[-2000:]


def test_secrets_are_not_shown(proxy: FaultProxy, remote: Any) -> None:
    remote.set("key", b"value")
    url = web(proxy, remote).replace("//", f"//user:{SECRET}@")
    options = {"client_kwargs": {"headers": {"Authorization": SECRET}}}
    store: Any = gzarr.open_store(url.replace(f"user:{SECRET}@", ""), storage_options=options)
    assert store.get("key") == b"value"
    with_user: Any = gzarr.open_store(url)
    assert with_user.get("key") == b"value"
    proxy.fault_of = lambda number, seen: "status 500"
    for one in (store, with_user):
        assert SECRET not in repr(one)
        with pytest.raises(StoreError, match="500") as caught:
            one.get("key")
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
