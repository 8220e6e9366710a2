"""Filesystems and mappings of fsspec of kinds that are not what their base says."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
import zarr
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.http import HTTPFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.mapping import FSMap
from support.asynchronous_files import AsynchronousFiles
from support.web_server import running

import gzarr
from gzarr.errors import ReadOnlyError, StoreError
from gzarr.stores.base import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = np.arange(12, dtype="<i4")


class Local(LocalFileSystem):  # type: ignore[misc]
    """Local files, which gzarr does not know as such."""

    cachable = False


class Folder(DirFileSystem):  # type: ignore[misc]
    """A directory with a method of its own."""

    cachable = False
    read = 0

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        self.read += 1
        return super().cat_file(path, *args, **options)


@pytest.fixture
def empty() -> Iterator[None]:
    AsynchronousFiles.files.clear()
    yield
    AsynchronousFiles.files.clear()


def worked_on(store: gzarr.FsspecStore) -> None:
    """Write, read, list and erase arrays in a store."""
    group = gzarr.create_group(store)
    group.create_array("a", data=DATA, chunks=4)
    group.create_array("g/s", data=DATA, chunks=2, shards=6)
    opened = gzarr.open_group(store, mode="r+")
    assert sorted(path for path, _ in opened.members(max_depth=None)) == ["a", "g", "g/s"]
    for path in ("a", "g/s"):
        array = opened[path]
        array[:6] = 0
        np.testing.assert_array_equal(gzarr.open_array(store, path=path, device="cpu")[...], [0] * 6 + [*range(6, 12)])
    assert store.get_partial_values([("a/zarr.json", ByteRange(0, 1)), ("none", ByteRange(-1))]) == [b"{", None]
    del opened["a"]
    assert not any(key.startswith("a/") for key in store.list())
    assert list(store.list_prefix("g/s/c/")) == ["g/s/c/1"]


@pytest.mark.parametrize("below", ["local", "asynchronous", "memory"])
def test_a_class_derived_from_that_of_a_directory(below: str, tmp_path: Path, empty: None) -> None:
    fs, path = {
        "local": (Local(), str(tmp_path)),
        "asynchronous": (AsynchronousFiles(), "root"),
        "memory": (fsspec.filesystem("memory"), f"/{tmp_path.name}"),
    }[below]
    folder = Folder(path, fs)
    worked_on(gzarr.FsspecStore(folder))
    if below != "asynchronous":
        assert folder.read


@pytest.mark.parametrize("kind", ["derived", "wrapped"])
def test_folders_that_cannot_be_listed(kind: str, tmp_path: Path) -> None:
    """fsspec's own walk passes over them."""

    class Closed(Local):
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            if path.endswith("/closed"):
                raise PermissionError(path)
            return super().ls(path, detail=detail, **options)

    (tmp_path / "closed").mkdir()
    store = gzarr.FsspecStore(
        Folder(str(tmp_path), Closed()) if kind == "derived" else Closed(), "" if kind == "derived" else str(tmp_path)
    )
    with pytest.raises(StoreError, match="PermissionError"):
        list(store.list())


def test_a_filesystem_of_pyarrow(tmp_path: Path) -> None:
    """It is the base of fsspec's for HDFS."""
    local = pytest.importorskip("pyarrow.fs").LocalFileSystem()
    store = gzarr.FsspecStore(ArrowFSWrapper(local), str(tmp_path))
    worked_on(store)
    store.set("k", b"0123")
    ranges = [ByteRange(0, 2), ByteRange(1, 2), ByteRange(-4), ByteRange(-1), ByteRange(), ByteRange(2)]
    assert store.get_partial_values([("k", one) for one in ranges]) == [b"01", b"12", b"0123", b"3", b"0123", b"23"]


def test_folders_that_two_threads_make(tmp_path: Path) -> None:
    """The one that fails does not take the folder, which the other has made meanwhile, for what it failed at."""
    both = threading.Barrier(2)
    failed: list[str] = []

    class Slow(Local):
        def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
            try:
                super().pipe_file(path, value, **options)
            except FileNotFoundError:
                failed.append(path)
                both.wait(10)
                raise

    store = gzarr.FsspecStore(Slow(), str(tmp_path))
    array = gzarr.create_array(store, shape=(4,), dtype="i4", chunks=2)
    # Once for the folder of the document, by one thread.
    failed.clear()
    array[...] = 7
    assert len(failed) == 2
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], [7] * 4)


class Sealed(FSMap):  # type: ignore[misc]
    """Values that are not stored as they are."""

    def __getitem__(self, key: str, default: Any = None) -> bytes:
        return bytes(byte ^ 0x55 for byte in super().__getitem__(key))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, bytes(byte ^ 0x55 for byte in bytes(value)))


def test_a_mapping_with_methods_of_its_own() -> None:
    fs: Any = fsspec.filesystem("memory")
    mapping = Sealed("/sealed", fs)
    mapping.clear()
    written = gzarr.create_array(mapping, data=DATA, chunks=4, zarr_format=2, compressors=None)
    assert mapping[".zarray"].startswith(b"{")
    assert not fs.cat("/sealed/.zarray").startswith(b"{")
    np.testing.assert_array_equal(np.frombuffer(mapping["1"], "<i4"), DATA[4:8])
    np.testing.assert_array_equal(gzarr.open_array(mapping, device="cpu")[...], DATA)
    with pytest.raises(gzarr.errors.ArgumentError, match="would overwrite"):
        gzarr.copy(written, FSMap("/sealed", fs), overwrite=True)
    # The class itself stands for files.
    store: Any = gzarr.open_store(FSMap("/sealed", fs))
    assert isinstance(store, gzarr.FsspecStore)


class LogIn(http.server.BaseHTTPRequestHandler):
    """Takes what it is sent for a request for a page."""

    changes = 0

    def do_GET(self) -> None:
        self.send_error(404)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        type(self).changes += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()

    do_DELETE = do_PUT

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize("path", ["fsspec+{}/x", "simplecache::{}/x", "directory", "generic"])
def test_nothing_is_written_by_the_client_of_web_servers(path: str) -> None:
    """It takes the success of any page for that of the change, and cannot erase."""
    with running(LogIn) as url:
        made: dict[str, Any] = {
            "directory": lambda: fsspec.FSMap("", Folder(f"{url}/x", fsspec.filesystem("http"))),
            "generic": lambda: fsspec.FSMap(f"{url}/x", fsspec.filesystem("generic")),
        }
        given = made[path]() if path in made else path.format(url)
        with pytest.raises(ReadOnlyError, match=f"to write, open '{url}/x'; nothing was changed"):
            gzarr.create_array(given, data=DATA)
        if path in made:
            store = gzarr.FsspecStore(given.fs, given.root)
            assert store.read_only
            with pytest.raises(ReadOnlyError, match="does not see whether a change was done"):
                store.set("k", b"")
            with pytest.raises(ReadOnlyError, match="does not see whether a change was done"):
                store.erase("k")
    assert not LogIn.changes


def test_a_client_of_web_servers_with_a_way_to_write() -> None:
    written: dict[str, bytes] = {}

    class Own(HTTPFileSystem):  # type: ignore[misc]
        cachable = False

        async def _pipe_file(self, path: str, value: bytes, *args: Any, **options: Any) -> None:
            written[path] = value

    gzarr.FsspecStore(Own(), "http://host/x").set("k", b"value")
    assert written == {"http://host/x/k": b"value"}
