"""Filesystems of fsspec that list nothing: what needs no listing works, and all else is an error that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.cached import SimpleCacheFileSystem

import gzarr
from gzarr.errors import NodeNotFoundError, StoreError
from gzarr.stores.base import ByteRange, is_listable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Unlisted(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Files by their paths."""

    protocol = "unlisted"
    cachable = False
    denied = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.files: dict[str, bytes] = {}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][start:end]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        if self.denied:
            raise PermissionError("no")
        self.files[path] = bytes(value)

    def rm_file(self, path: str) -> None:
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(path)


class Refusing(Unlisted):
    """The same, with a method."""

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        raise NotImplementedError


class Asynchronous(AsyncFileSystem):  # type: ignore[misc]
    """The same, asynchronous."""

    protocol = "unlisted"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.inner = Unlisted()

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.inner.cat_file(path, start, end)

    async def _pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        self.inner.pipe_file(path, value)

    async def _rm_file(self, path: str, **_: Any) -> None:
        self.inner.rm_file(path)


@pytest.mark.parametrize("kind", [Unlisted, Refusing, Asynchronous])
def test_values(kind: Any) -> None:
    store = gzarr.FsspecStore(kind(), "root")
    store.set("d/x", b"0123")
    assert store.get_small_values(["d/x", "d/y"], 10) == [b"0123", None]
    ranges = [("d/x", ByteRange(-3)), ("d/y", ByteRange(-3)), ("d/x", ByteRange(1, 2)), ("d/x", ByteRange(2))]
    assert store.get_partial_values(ranges) == [b"123", None, b"12", b"23"]
    with pytest.raises(StoreError, match="too short"):
        store.get_partial_values([("d/x", ByteRange(-5))])
    lists: list[Callable[[], Any]] = [
        lambda: list(store.list_prefix("d/")),
        lambda: list(store.list_sizes("d/")),
        lambda: store.list_dir("d/"),
        lambda: store.erase_prefix("d/"),
    ]
    for work in lists:
        with pytest.raises(StoreError, match=r"cannot list 'd/': its filesystem \(unlisted\) has no listing"):
            work()
    store.erase_values(["d/x", "d/y"])
    assert store.get("d/x") is None


@pytest.mark.parametrize("kind", [Unlisted, Asynchronous])
def test_nodes(kind: Any) -> None:
    store = gzarr.FsspecStore(kind(), "root")
    data = np.arange(40, dtype="i4")
    group = gzarr.create_group(store)
    for path, options in (("a", {}), ("g/b", {"shards": (20,)})):
        group.create_array(path, data=data, chunks=(5,), **options)
        a = gzarr.open_array(store, path=path, mode="r+", device="cpu")
        a[3:9] = 7
        a.resize((30,))
        expected = data[:30].copy()
        expected[3:9] = 7
        np.testing.assert_array_equal(gzarr.open_array(store, path=path, device="cpu")[...], expected)
    with pytest.raises(NodeNotFoundError):
        gzarr.open(store, path="none")
    with pytest.raises(StoreError, match="cannot list its keys, and the group '/' has no consolidated metadata"):
        list(gzarr.open_group(store).members())


def test_a_write_that_is_refused() -> None:
    fs = Unlisted()
    fs.denied = True
    with pytest.raises(StoreError, match="cannot write 'd/x': PermissionError"):
        gzarr.FsspecStore(fs, "root").set("d/x", b"")


def test_web_servers_count_as_such() -> None:
    pytest.importorskip("aiohttp")
    assert not is_listable(gzarr.FsspecStore(fsspec.filesystem("http"), "http://host/x"))


def test_what_lists(tmp_path: Path) -> None:
    """A cache has the listing of what is behind it, which need not be asked."""
    memory = fsspec.filesystem("memory")
    for fs in (memory, SimpleCacheFileSystem(fs=memory, cache_storage=str(tmp_path))):
        assert is_listable(gzarr.FsspecStore(fs, "bucket"), ask=False)
