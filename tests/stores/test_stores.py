"""Stores: the whole interface of both, absence versus failure, links, escapes, atomic writes."""

from __future__ import annotations

import dbm.dumb
import errno
import os
import pickle
import shelve
import signal
import socket
import sys
import threading
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.errors import ArgumentError, NodeNotFoundError, ReadOnlyError, StoreError
from gzarr.stores import (
    ByteRange,
    ListableStore,
    LocalFiles,
    LocalStore,
    MemoryStore,
    ReadableStore,
    SizedStore,
    VersionedStore,
    WritableStore,
    as_store,
)
from gzarr.stores.base import GatheringStore


@pytest.fixture(params=["local", "local-no-links", "memory", "memory-mapping"])
def store(request, tmp_path):
    if request.param == "local":
        return LocalStore(tmp_path / "root")
    if request.param == "local-no-links":
        return LocalStore(tmp_path / "root", follow_symlinks=False)
    return MemoryStore() if request.param == "memory" else MemoryStore(UserDict())


@pytest.fixture(params=[True, False], ids=["follow", "refuse"])
def follow(request):
    return request.param


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def fill(store, keys):
    for key in keys:
        store.set(key, key.encode())


class TestInterface:
    def test_protocols(self, store):
        for protocol in (ReadableStore, ListableStore, WritableStore, GatheringStore, SizedStore, VersionedStore):
            assert isinstance(store, protocol)
        assert isinstance(store, LocalFiles) == isinstance(store, LocalStore)

    def test_set_get_erase(self, store):
        assert store.get("a/b") is None
        store.set("a/b", b"one")
        assert store.get("a/b") == b"one"
        store.set("a/b", bytearray(b"longer than before"))
        assert store.get("a/b") == b"longer than before"
        store.set("a/b", memoryview(b"x"))
        assert store.get("a/b") == b"x"
        assert store.get("a") is None
        assert store.get("a/b/c") is None
        store.set("empty", b"")
        assert store.get("empty") == b""
        store.erase("a/b")
        assert store.get("a/b") is None
        assert list(store.list()) == ["empty"]
        store.erase("a/b")
        store.erase("empty/below")
        store.erase_values(["empty", "none"])
        assert list(store.list()) == []
        assert store.list_dir("") == ([], [])

    def test_any_buffer(self, store):
        numbers = np.arange(6, dtype="i2").reshape(2, 3)
        for value in (numbers, memoryview(numbers), bytearray(numbers), numbers[:0]):
            store.set("k", value)
            assert store.get("k") == bytes(value)
        store.set_parts("k", [b"ab", numbers, b"", bytearray(b"c")])
        assert store.get("k") == b"ab" + numbers.tobytes() + b"c"
        for value in ("text", 3, None, numbers.T, numbers[:, ::2], np.array(["2000"], "M8[D]"), [1, 2]):
            with pytest.raises(ArgumentError, match="value for 'k' must be"):
                store.set("k", value)
            with pytest.raises(ArgumentError, match="value for 'k' must be"):
                store.set_parts("k", [b"new", value])
        assert store.get("k") == b"ab" + numbers.tobytes() + b"c"

    @pytest.mark.parametrize(
        ("byte_range", "expected"),
        [
            (ByteRange(), b"0123456789"),
            (ByteRange(3), b"3456789"),
            (ByteRange(3, 4), b"3456"),
            (ByteRange(0, 10), b"0123456789"),
            (ByteRange(10), b""),
            (ByteRange(10, 0), b""),
            (ByteRange(4, 0), b""),
            (ByteRange(-3), b"789"),
            (ByteRange(-10), b"0123456789"),
        ],
    )
    def test_partial_read(self, store, byte_range, expected):
        store.set("k", b"0123456789")
        assert store.get_partial_values([("k", byte_range), ("absent", byte_range), ("k", ByteRange(1, 1))]) == [
            expected,
            None,
            b"1",
        ]

    @pytest.mark.parametrize("byte_range", [ByteRange(11), ByteRange(0, 11), ByteRange(-11), ByteRange(5, 1 << 62)])
    def test_partial_read_outside_the_value(self, store, byte_range):
        store.set("k", b"0123456789")
        with pytest.raises(StoreError, match=r"'k' has 10 bytes") as info:
            store.get_partial_values([("k", byte_range)])
        assert info.value.key == "k"

    @pytest.mark.parametrize("byte_range", [ByteRange(-1, 1), ByteRange(0, -1)])
    def test_malformed_range(self, store, byte_range):
        with pytest.raises(ArgumentError):
            store.get_partial_values([("absent", byte_range)])

    def test_small_values(self, store):
        fill(store, ["a", "bcd"])
        assert store.get_small_values(["bcd", "none", "a"], 3) == [b"bcd", None, b"a"]
        with pytest.raises(StoreError, match="'bcd' has 3 bytes; at most 2"):
            store.get_small_values(["a", "bcd"], 2)

    def test_version(self, store):
        assert store.version("a/k") is None
        store.set("a/k", b"one value")
        first = store.version("a/k")
        assert first is not None
        assert store.version("a/k") == first
        assert hash(store.version("a/k")) == hash(first)
        store.set("a/k", b"two value")
        assert store.version("a/k") not in (None, first)
        assert store.version("a") is None
        with pytest.raises(ArgumentError):
            store.version("../k")

    def test_partial_write(self, store):
        store.set("k", b"0123456789")
        store.set_partial_values([("k", 2, b"AB"), ("k", 9, b"XYZ"), ("new", 2, b"z")])
        assert store.get("k") == b"01AB45678XYZ"
        assert store.get("new") == b"\0\0z"
        with pytest.raises(ArgumentError):
            store.set_partial_values([("k", -1, b"A")])

    def test_listings(self, store):
        keys = ["a.b", "a/b/c", "a/b.c", "a-", "zarr.json", "a/b/d", "b/x", "ab/y"]
        fill(store, keys)
        assert list(store.list()) == sorted(keys)
        assert list(store.list_prefix("a/")) == ["a/b.c", "a/b/c", "a/b/d"]
        assert list(store.list_prefix("a/b/")) == ["a/b/c", "a/b/d"]
        assert list(store.list_prefix("none/")) == []
        assert list(store.list_sizes("a/")) == [("a/b.c", 5), ("a/b/c", 5), ("a/b/d", 5)]
        assert store.list_dir("") == (["a-", "a.b", "zarr.json"], ["a/", "ab/", "b/"])
        assert store.list_dir("a/") == (["a/b.c"], ["a/b/"])
        assert store.list_dir("zarr.json/") == ([], [])
        store.erase_prefix("a/b/")
        assert list(store.list_prefix("a/")) == ["a/b.c"]
        store.erase_prefix("none/")
        store.erase_prefix("b/")
        assert store.list_dir("") == (["a-", "a.b", "zarr.json"], ["a/", "ab/"])
        store.erase_prefix("")
        assert list(store.list()) == []

    @pytest.mark.parametrize(
        "key",
        ["", "/", "/etc/passwd", "a//b", "a/", "..", "../x", "a/../../x", "a/./b", ".", "a\0b", "\ud800", 3, b"a"],
    )
    def test_bad_keys(self, store, key):
        for call in (
            store.get,
            store.erase,
            lambda k: store.set(k, b""),
            lambda k: store.get_partial_values([(k, ByteRange())]),
            lambda k: store.get_small_values([k], 10),
            lambda k: store.erase_values([k]),
            lambda k: store.set_partial_values([(k, 0, b"")]),
        ):
            with pytest.raises(ArgumentError):
                call(key)

    @pytest.mark.parametrize("prefix", ["a", "/", "../", "a/../", "a//", "./", "a\0/", None])
    def test_bad_prefixes(self, store, prefix):
        for call in (store.list_dir, store.erase_prefix, lambda p: list(store.list_prefix(p))):
            with pytest.raises(ArgumentError):
                call(prefix)

    def test_read_only(self, store):
        store.set("k", b"v")
        store.read_only = True
        for call in (
            lambda: store.set("k", b""),
            lambda: store.set("../k", None),
            lambda: store.set_parts("k", [b""]),
            lambda: store.erase("k"),
            lambda: store.erase_values(["k"]),
            lambda: store.erase_prefix(""),
            lambda: store.set_partial_values([("k", 0, b"")]),
        ):
            with pytest.raises(ReadOnlyError):
                call()
        assert store.get("k") == b"v"

    def test_threads(self, store):
        def work(i):
            for j in range(20):
                store.set(f"d{i}/k", bytes([j]) * 1000)
                store.set("shared/k", bytes([i]) * 1000)
                value = store.get("shared/k")
                assert value is None or value == value[:1] * 1000
                store.erase(f"d{i}/k")
                assert all(key.endswith("k") for key in store.list())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


segments = st.sampled_from(["a", "b", "a.b", "0", "c", "zarr.json", "é\\ü"])
paths = st.lists(segments, min_size=1, max_size=3).map("/".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["set", "erase", "erase_prefix"]), paths), max_size=12))
def test_local_and_memory_agree(tmp_path_factory, steps):
    root = tmp_path_factory.mktemp("agree")
    stores = [LocalStore(root / "1"), LocalStore(root / "2", follow_symlinks=False), MemoryStore()]
    for verb, key in steps:
        if verb == "set":
            taken = list(stores[2].list())
            # A directory tree cannot have a key below a key.
            if any(k.startswith(key + "/") or key.startswith(k + "/") for k in taken):
                continue
        for store in stores:
            if verb == "set":
                store.set(key, key.encode())
            elif verb == "erase":
                store.erase(key)
            else:
                store.erase_prefix(key + "/")
    expected = stores[2]
    for store in stores[:2]:
        assert list(store.list()) == list(expected.list())
        for prefix in ["", "a/", "a/b/", "c/"]:
            assert store.list_dir(prefix) == expected.list_dir(prefix)
            assert list(store.list_sizes(prefix)) == list(expected.list_sizes(prefix))


class TestLocal:
    def test_directory_is_no_value(self, tmp_path, follow):
        store = LocalStore(tmp_path, follow_symlinks=follow)
        (tmp_path / "zarr.json").mkdir()
        assert store.get("zarr.json") is None
        with pytest.raises(StoreError):
            store.set("zarr.json", b"")
        store.erase("zarr.json")
        assert (tmp_path / "zarr.json").is_dir()
        assert names(tmp_path) == ["zarr.json"]

    def test_key_below_a_key(self, tmp_path, follow):
        store = LocalStore(tmp_path, follow_symlinks=follow)
        store.set("a", b"1")
        with pytest.raises(StoreError, match="'a/b'"):
            store.set("a/b", b"2")
        assert store.get("a") == b"1"

    def test_absent_root(self, tmp_path, follow):
        store = LocalStore(tmp_path / "none", follow_symlinks=follow)
        assert store.get("k") is None
        assert list(store.list()) == []
        assert store.list_dir("") == ([], [])
        store.erase("k")
        store.erase_prefix("k/")
        assert not (tmp_path / "none").exists()

    def test_failure_is_not_absence(self, tmp_path, follow):
        (tmp_path / "loop").symlink_to("loop")
        store = LocalStore(tmp_path, follow_symlinks=follow)
        for call in (
            lambda: store.get("loop"),
            lambda: store.get("loop/k"),
            lambda: store.version("loop/k"),
            lambda: store.get_partial_values([("loop", ByteRange())]),
            lambda: store.get("x" * 1000),
            lambda: list(store.list()),
            lambda: store.list_dir(""),
            lambda: store.list_dir("loop/"),
            lambda: store.set("loop/k", b""),
        ):
            with pytest.raises(StoreError) as info:
                call()
            assert str(tmp_path) in str(info.value)
            assert info.value.key is not None

    @pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
    def test_system_errors(self, tmp_path, monkeypatch, follow, code):
        store = LocalStore(tmp_path, follow_symlinks=follow)
        store.set("k", b"old")

        def refuse(*args, **kwargs):
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(StoreError, match=os.strerror(code)) as info:
                store.get("k")
        assert info.value.errno == code
        assert info.value.key == "k"
        assert isinstance(info.value.__cause__, OSError)
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", refuse)
            with pytest.raises(StoreError, match=os.strerror(code)):
                store.get("k")
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", refuse)
            with pytest.raises(StoreError, match=os.strerror(code)):
                store.list_dir("")
            with pytest.raises(StoreError, match=os.strerror(code)):
                list(store.list())

    def test_permission_denied(self, tmp_path):
        (tmp_path / "k").write_bytes(b"secret")
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "k").write_bytes(b"secret")
        (tmp_path / "k").chmod(0)
        (tmp_path / "d").chmod(0)
        for parent in [tmp_path, *tmp_path.parents][:3]:
            parent.chmod(0o755)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            answers = []
            try:
                if os.geteuid() == 0:
                    os.setuid(65534)
                store = LocalStore(tmp_path)
                for call in (lambda: store.get("k"), lambda: store.get("d/k"), lambda: store.list_dir("d/")):
                    try:
                        answers.append(repr(call()))
                    except StoreError as exc:
                        answers.append(f"StoreError {exc.errno}")
            finally:
                os.write(write, "\n".join(answers).encode())
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(write)
        (tmp_path / "d").chmod(0o755)
        with os.fdopen(read) as answers:
            assert answers.read().split("\n") == [f"StoreError {errno.EACCES}"] * 3

    def test_short_read(self, tmp_path, monkeypatch):
        store = LocalStore(tmp_path)
        store.set("k", b"0123456789")
        real = os.read
        # A file system may give less at a time; that alone is no fault.
        monkeypatch.setattr(os, "read", lambda fd, n: real(fd, min(n, 3)))
        assert store.get("k") == b"0123456789"
        monkeypatch.setattr(os, "read", lambda fd, n: b"")
        with pytest.raises(StoreError, match="short read of 'k': 0 of 10 bytes"):
            store.get("k")
        with pytest.raises(StoreError, match="short read"):
            store.get_partial_values([("k", ByteRange(-4))])

    def test_special_files_do_not_hang(self, tmp_path, follow):
        os.mkfifo(tmp_path / "pipe")
        store = LocalStore(tmp_path, follow_symlinks=follow)
        signal.alarm(10)
        try:
            with pytest.raises(StoreError, match="neither a file nor a directory"):
                store.get("pipe")
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(tmp_path / "socket"))
                with pytest.raises(StoreError):
                    store.get("socket")
                assert list(store.list()) == []
        finally:
            signal.alarm(0)

    def test_huge_sparse_document(self, tmp_path):
        with (tmp_path / "zarr.json").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(StoreError, match="at most 1000"):
            LocalStore(tmp_path).get_small_values(["zarr.json"], 1000)
        assert LocalStore(tmp_path).get_partial_values([("zarr.json", ByteRange(-4))]) == [b"\0\0\0\0"]

    def test_failed_write_leaves_the_old_value(self, tmp_path, monkeypatch, follow):
        store = LocalStore(tmp_path, follow_symlinks=follow)
        store.set("a/k", b"old")
        seen = []

        def fail(fd, data):
            seen.append((list(store.list()), store.list_dir("a/"), store.get("a/k"), len(names(tmp_path / "a"))))
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail)
            with pytest.raises(StoreError, match="cannot write 'a/k': no space"):
                store.set("a/k", b"new")
        # While it was written there was a temporary file, and no listing showed it.
        assert seen == [(["a/k"], (["a/k"], []), b"old", 2)]
        assert names(tmp_path / "a") == ["k"]
        assert store.get("a/k") == b"old"
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *args, **kwargs: fail(0, b""))
            with pytest.raises(StoreError):
                store.set("a/k", b"new")
        assert names(tmp_path / "a") == ["k"]

    def test_temporary_names_are_not_keys(self, tmp_path):
        store = LocalStore(tmp_path)
        with pytest.raises(ArgumentError, match="unfinished"):
            store.set(".gzarr-temporary-1", b"")
        with pytest.raises(ArgumentError, match="unfinished"):
            store.set("a/.gzarr-locks", b"")
        for key in (".gzarr-temporary-1", "a/.gzarr-locks"):
            (tmp_path / key).parent.mkdir(exist_ok=True)
            (tmp_path / key).write_bytes(b"x")
            assert store.get(key) is None
            assert store.get_partial_values([(key, ByteRange())]) == [None]
        assert list(store.list()) == []
        store.set(".gzarr", b"")  # no such name
        assert list(store.list()) == [".gzarr"]

    def test_pickle_and_equality(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        store = LocalStore("x", read_only=True, follow_symlinks=False)
        assert store.root == tmp_path / "x"
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(store, protocol)) == store
        copy = pickle.loads(pickle.dumps(store))
        assert hash(copy) == hash(store)
        assert (copy.read_only, copy.follow_symlinks) == (True, False)
        assert store != LocalStore("x")
        assert store != LocalStore("y", read_only=True, follow_symlinks=False)
        assert store != "x"

    def test_file_root(self, tmp_path):
        assert LocalStore(tmp_path).file_root() == os.fsencode(tmp_path)
        assert LocalStore(tmp_path, follow_symlinks=False).file_root() is None

    @pytest.mark.parametrize("root", ["", "a\0b", b"bytes", 3, None])
    def test_bad_root(self, root):
        with pytest.raises(ArgumentError):
            LocalStore(root)

    def test_undecodable_name(self, tmp_path):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"v")
        store = LocalStore(tmp_path)
        (key,) = store.list()
        assert store.get(key) == b"v"


def test_a_current_directory_that_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(
        StoreError, match=r"'x\.zarr' is relative to the current directory, which no longer exists"
    ) as e:
        as_store("x.zarr", "r")
    assert e.value.errno == errno.ENOENT
    assert LocalStore(tmp_path / "x.zarr").root == tmp_path / "x.zarr"


def test_of_several_that_create_one_key_one_succeeds(tmp_path, monkeypatch):
    for follow in (True, False):
        store = LocalStore(tmp_path / str(follow), follow_symlinks=follow)
        assert store.create("a/b", b"first")
        assert not store.create("a/b", b"second")
        assert store.get("a/b") == b"first"
        with pytest.raises(StoreError, match="cannot write 'a/b/c'"):
            store.create("a/b/c", b"below a value")
        with pytest.raises(StoreError, match="cannot write 'a'"):
            store.create("a", b"in place of a directory")
        assert [path.name for path in store.root.rglob("*")] == ["a", "b"]

    def only_one_name(*args, **options):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", only_one_name)
    assert store.create("a/c", b"third")
    assert store.get("a/c") == b"third"


class TestLinks:
    @pytest.fixture
    def root(self, tmp_path):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "k").write_bytes(b"outside")
        root = tmp_path / "root"
        (root / "d").mkdir(parents=True)
        (root / "d" / "k").write_bytes(b"inside")
        (root / "file").symlink_to("d/k")
        (root / "dir").symlink_to(tmp_path / "outside")
        (root / "dangling").symlink_to("nowhere")
        return root

    def test_followed(self, root):
        store = LocalStore(root)
        assert store.get("file") == b"inside"
        assert store.get("dir/k") == b"outside"
        with pytest.raises(StoreError, match="'dangling' is not absent"):
            store.get("dangling")
        assert list(store.list()) == ["d/k", "dangling", "dir/k", "file"]
        sizes = dict(store.list_sizes(""))
        assert (sizes["d/k"], sizes["dir/k"], sizes["file"]) == (6, 7, 6)
        assert store.list_dir("") == (["dangling", "file"], ["d/", "dir/"])

    def test_refused(self, root, tmp_path):
        store = LocalStore(root, follow_symlinks=False)
        assert store.get("d/k") == b"inside"
        assert store.list_dir("d/") == (["d/k"], [])
        for call in (
            lambda: store.get("file"),
            lambda: store.get("dir/k"),
            lambda: store.get("dangling"),
            lambda: store.get_partial_values([("dir/k", ByteRange())]),
            lambda: store.get_small_values(["dir/k"], 10),
            lambda: store.list_dir(""),
            lambda: store.list_dir("dir/"),
            lambda: list(store.list()),
            lambda: list(store.list_prefix("dir/")),
            lambda: store.set("file", b""),
            lambda: store.set("dir/k", b""),
            lambda: store.set("dir/new/k", b""),
            lambda: store.erase("file"),
            lambda: store.erase("dir/k"),
            lambda: store.erase_prefix("dir/"),
        ):
            with pytest.raises(StoreError, match="symbolic link"):
                call()
        assert (tmp_path / "outside" / "k").read_bytes() == b"outside"
        assert names(tmp_path / "outside") == ["k"]

    def test_root_may_be_a_link(self, root, tmp_path):
        (tmp_path / "alias").symlink_to(root)
        assert LocalStore(tmp_path / "alias", follow_symlinks=False).get("d/k") == b"inside"

    def test_erase_never_follows(self, root, tmp_path):
        store = LocalStore(root)
        store.erase_prefix("dir/")
        assert not (root / "dir").is_symlink()
        (root / "d" / "out").symlink_to(tmp_path / "outside")
        store.erase_prefix("")
        assert (tmp_path / "outside" / "k").read_bytes() == b"outside"

    def test_endless_listing(self, root):
        (root / "d" / "up").symlink_to(root)
        with pytest.raises(StoreError, match="directory above it"):
            list(LocalStore(root).list())

    def test_swapped_in_while_reading(self, root, tmp_path):
        """A directory that keeps changing into a link out of the store and back never gives values from outside."""
        store = LocalStore(root, follow_symlinks=False)
        (root / "flip").symlink_to(tmp_path / "outside")
        stop = threading.Event()

        def flip():
            while not stop.is_set():
                (root / "flip").rename(root / "parked")
                (root / "d").rename(root / "flip")
                (root / "flip").rename(root / "d")
                (root / "parked").rename(root / "flip")

        thread = threading.Thread(target=flip)
        thread.start()
        try:
            for _ in range(2000):
                try:
                    value = store.get("flip/k")
                except StoreError:
                    continue
                assert value in (None, b"inside")
        finally:
            stop.set()
            thread.join()


class TestMemory:
    def test_uses_the_mapping_given(self):
        mapping = {"a": b"1", "b": bytearray(b"2"), "c": memoryview(b"34").cast("H")}
        store = MemoryStore(mapping)
        assert store.get("b") == b"2"
        assert store.get("c") == b"34"
        store.set("d", b"3")
        assert mapping["d"] == b"3"
        value = bytearray(b"x")
        store.set("e", value)
        value[0] = 0
        assert store.get("e") == b"x"

    def test_pickle_and_equality(self):
        store = MemoryStore({"a": b"1"})
        assert store == MemoryStore(store.mapping)
        assert store != MemoryStore(store.mapping, read_only=True)
        copy = pickle.loads(pickle.dumps(store))
        assert copy.mapping == store.mapping
        # Two stores with equal values are two stores.
        assert copy != store
        copy.set("b", b"2")
        assert store.get("b") is None

    def test_parts_of_buffers(self):
        numbers = np.arange(6, dtype="u1")
        parts = {"a": memoryview(b"abcdef")[2:4], "b": numbers[1:3], "c": memoryview(b"abcd").cast("H")[1:]}
        parts |= {"d": memoryview(b"abc")[:0], "e": numbers[:0], "f": np.zeros((2, 0), ">f8")}
        expected = [np.asarray(part).tobytes() for part in parts.values()]
        store = MemoryStore(parts)
        assert [store.get(key) for key in parts] == expected
        assert store.get_small_values(list(parts), 2) == expected
        assert store.get_partial_values([(key, ByteRange()) for key in parts]) == expected
        assert dict(store.list_sizes("")) == {key: len(value) for key, value in zip(parts, expected, strict=True)}
        whole = b"abc"
        assert MemoryStore({"k": memoryview(whole)}).get("k") is whole

    def test_not_bytes(self):
        with pytest.raises(StoreError, match="'k' is a int"):
            MemoryStore({"k": 3}).get("k")
        for value in (memoryview(b"abcd")[::2], np.zeros(3, "M8[s]")):
            with pytest.raises(StoreError, match="not contiguous bytes"):
                MemoryStore({"k": value}).get("k")
        with pytest.raises(ArgumentError):
            MemoryStore([])

    def test_failing_mapping(self):
        class Refusing(dict):
            def __getitem__(self, key):
                raise TimeoutError("slow")

            def __iter__(self):
                raise TimeoutError("slow")

        store = MemoryStore(Refusing())
        with pytest.raises(StoreError, match="TimeoutError: slow"):
            store.get("k")
        with pytest.raises(StoreError, match="TimeoutError: slow"):
            list(store.list())

    def test_concurrent_partial_writes_lose_nothing(self):
        store = MemoryStore({"k": bytes(64)})
        previous = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: store.set_partial_values([("k", i, bytes([i]))]), range(64)))
        finally:
            sys.setswitchinterval(previous)
        assert store.get("k") == bytes(range(64))


class TestAsStore:
    def test_paths(self, tmp_path):
        for given_path in (
            str(tmp_path),
            tmp_path,
            f"file://{tmp_path}",
            f"file://localhost{tmp_path}",
            f"FILE:{tmp_path}",
        ):
            store, path = as_store(given_path)
            assert isinstance(store, LocalStore)
            assert (store.root, store.read_only, path) == (tmp_path, True, "")
        spaced = tmp_path / "a b%20"
        spaced.mkdir()
        assert as_store(spaced.as_uri())[0].root == spaced
        hashed = tmp_path / "a#b"
        hashed.mkdir()
        for name in ("", "#", "#raster%20data/0"):
            store, path = as_store(f"{hashed.as_uri()}{name}")
            assert (store.root, path) == (hashed, name[1:].replace("%20", " "))
            assert as_store(str(hashed))[0].root == hashed

    def test_objects(self):
        mapping = {"k": b"v"}
        store, _ = as_store(mapping)
        assert store.mapping is mapping
        assert as_store(store)[0] is store

    @pytest.mark.parametrize("url", ["nonsense://x", "x3://bucket/key"])
    def test_remote(self, url):
        with pytest.raises(ArgumentError, match="are not supported"):
            as_store(url)

    @pytest.mark.parametrize("value", ["", 3, None, b"/tmp", ["a"], "file://host/x", "file:///x?y"])
    def test_wrong(self, value):
        with pytest.raises(ArgumentError):
            as_store(value)

    def test_missing(self, tmp_path):
        with pytest.raises(NodeNotFoundError, match="nearest existing parent") as info:
            as_store(tmp_path / "a" / "b")
        assert str(tmp_path / "a" / "b") in str(info.value)
        assert not (tmp_path / "a").exists()
        with pytest.raises(NodeNotFoundError):
            as_store(tmp_path / "a", "r+")
        file = tmp_path / "file.zarr"
        file.write_bytes(b"")
        for mode in ("r", "a", "w"):
            with pytest.raises(NodeNotFoundError, match="is a file, not a directory") as info:
                as_store(file / "b" / "x.zarr", mode)
            assert repr(str(file)) in str(info.value)

    @pytest.mark.parametrize("mode", ["a", "w", "w-"])
    def test_made_by_the_first_value(self, tmp_path, mode):
        store, _ = as_store(tmp_path / "a" / "b", mode)
        assert names(tmp_path) == []
        assert store.get("k") is None
        store.set("k", b"v")
        assert (tmp_path / "a" / "b" / "k").read_bytes() == b"v"
        (tmp_path / "f.txt").write_bytes(b"")
        for path in ("f.txt", "f.txt/below"):
            with pytest.raises(NodeNotFoundError, match=r"is a file|no directory"):
                as_store(tmp_path / path, mode)

    @pytest.mark.parametrize("mode", ["", "x", None, "rw"])
    def test_mode_unknown(self, tmp_path, mode):
        for given_store in (tmp_path, {}, MemoryStore()):
            with pytest.raises(ArgumentError, match="mode must be"):
                as_store(given_store, mode)

    def test_no_directory(self, tmp_path):
        (tmp_path / "f.txt").write_bytes(b"")
        (tmp_path / "dangling").symlink_to("nowhere")
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(NodeNotFoundError, match="is a file"):
            as_store(tmp_path / "f.txt")
        with pytest.raises(NodeNotFoundError, match=r"f.txt' is a file, not a directory"):
            as_store(tmp_path / "f.txt" / "below")
        with pytest.raises(NodeNotFoundError, match="symbolic link"):
            as_store(tmp_path / "dangling")
        with pytest.raises(StoreError, match="cannot examine"):
            as_store(tmp_path / "loop")


def test_shards_in_a_mapping_that_makes_bytes_anew(tmp_path):
    data = np.arange(64, dtype="u2").reshape(8, 8)
    # Other kinds of files are for one thread: Python 3.13 makes those of SQLite.
    with shelve.Shelf(dbm.dumb.open(str(tmp_path / "a"), "n")) as mapping:
        array = gzarr.create_array(mapping, data=data, chunks=(2, 2), shards=(4, 4), device="cpu")
        np.testing.assert_array_equal(array[0:3, 0:3], data[0:3, 0:3])
        array[1:3, 1:3] = 7
        data[1:3, 1:3] = 7
        np.testing.assert_array_equal(array[...], data)
