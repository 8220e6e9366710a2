"""Caches of fsspec: what is kept is read again, and nothing is written through them or known by them alone."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import io
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import fsspec
import numpy as np
import pytest
import zarr
from fsspec.implementations.cached import SimpleCacheFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from support.asynchronous_files import AsynchronousFiles
from support.web_server import running

import gzarr
from gzarr.errors import ChunkError, ReadOnlyError, StoreError
from gzarr.stores.base import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# fsspec's blockcache leaves its files open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

CACHES = ("simplecache", "filecache", "blockcache")
WHOLE = ("simplecache", "filecache")
DATA = np.arange(12, dtype="<i4")


class Cloud(AsynchronousFiles):
    """An object store, as s3fs has it."""

    protocol = "cloud"
    delay_s = 0.0
    #: Files that are being fetched, each time that one is.
    fetching: ClassVar[list[int]] = []
    _now = 0

    async def _get_file(self, path: str, to: str, **_: Any) -> None:
        data = await self._cat_file(path)
        self._now += 1
        self.fetching.append(self._now)
        # Half of a file may be seen by others.
        with Path(to).open("wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            await asyncio.sleep(self.delay_s)
            file.write(data[len(data) // 2 :])
        self._now -= 1

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return io.BytesIO(self._file(path))


@pytest.fixture
def cloud() -> Iterator[type[Cloud]]:
    fsspec.register_implementation("cloud", Cloud, clobber=True)
    Cloud.files.clear()
    yield Cloud
    Cloud.files.clear()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {name: {"cache_storage": str(tmp_path / "kept" / name)} for name in CACHES}


def chained(cache: str, url: str, options: dict[str, Any], **keywords: Any) -> Any:
    return gzarr.open(f"{cache}::{url}", device="cpu", storage_options={cache: options[cache]}, **keywords)


@contextlib.contextmanager
def served(folder: Path, status_of: Callable[[str], int] = lambda path: 0) -> Iterator[tuple[str, list[str]]]:
    """Serve the files of a directory; yield the URL and the paths that are asked for. A status replaces an answer."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            asked.append(self.path)
            path = folder / unquote(self.path.partition("?")[0]).lstrip("/")
            status = status_of(self.path) or (200 if path.is_file() else 404)
            data = path.read_bytes() if status == 200 else b""
            whole = len(data)
            first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            self.send_response(206 if first and status == 200 else status)
            if first and status == 200:
                data = data[int(first) : int(last) + 1 if last else None]
                self.send_header("Content-Range", f"bytes {first}-{int(first) + len(data) - 1}/{whole}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with running(Handler) as url:
        yield url, asked


# -- writing


@pytest.mark.parametrize("mode", ["r+", "a", "w"])
@pytest.mark.parametrize("cache", WHOLE)
def test_nothing_is_written_through_a_cache(
    cache: str, mode: str, cloud: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    """What it has kept would be read, and written back, after it was changed."""
    for url in ("cloud://b/x", f"file://{tmp_path}/x", "memory:///of/caches"):
        gzarr.create_array(f"fsspec+{url}", data=DATA, chunks=4, overwrite=True)
        with pytest.raises(ReadOnlyError, match=r"is a cache of fsspec, .*; nothing was changed") as caught:
            chained(cache, url, options, mode=mode)
        np.testing.assert_array_equal(chained(cache, url, options)[...], DATA)
        # The message says what to open.
        direct = str(caught.value).partition("to write, open '")[2].partition("'")[0]
        assert direct.endswith(url)
        gzarr.open_array(direct, mode="r+")[:4] = 0
        expected: Any = zarr.open_array(fsspec.get_mapper(url), mode="r")
        np.testing.assert_array_equal(expected[...], [0] * 4 + [*range(4, 12)])


@pytest.mark.parametrize("cache", CACHES)
def test_caches_anywhere_in_a_chain(cache: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    gzarr.create_array("memory:///deep/down/x", data=DATA, chunks=4, overwrite=True)

    class Own(DirFileSystem):  # type: ignore[misc]
        pass

    def kept(fs: Any) -> Any:
        return fsspec.filesystem(cache, fs=fs, cache_storage=str(tmp_path / cache), skip_instance_cache=True)

    for fs, path in [
        (kept(memory), "/deep/down/x"),
        (kept(DirFileSystem("/deep", memory)), "down/x"),
        (DirFileSystem("/deep", kept(memory)), "down/x"),
        (Own("/deep", kept(memory)), "down/x"),
        (kept(kept(memory)), "/deep/down/x"),
    ]:
        store = gzarr.FsspecStore(fs, path)
        assert store.read_only
        changes: list[tuple[str, tuple[Any, ...]]] = [
            ("set", ("c/0", b"")),
            ("erase", ("c/0",)),
            ("erase_prefix", ("c/",)),
            ("set_partial_values", ([("c/0", 0, b"1")],)),
        ]
        for method, arguments in changes:
            with pytest.raises(ReadOnlyError, match="to write, open 'memory:///deep/down/x'"):
                getattr(store, method)(*arguments)
        # fsspec's own blockcache cannot open files in memory.
        if cache != "blockcache":
            np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[...], DATA)
        assert sorted(store.list()) == ["c/0", "c/1", "c/2", "zarr.json"]


# -- reading


@pytest.mark.parametrize("cache", WHOLE)
def test_an_object_store_is_read_and_listed(cache: str, cloud: Any, options: dict[str, Any], tmp_path: Path) -> None:
    root = gzarr.create_group("fsspec+cloud://b/x")
    root.create_array("a", data=DATA, chunks=4)
    root.create_array("g/s", data=DATA, chunks=2, shards=6)
    group = chained(cache, "cloud://b/x", options)
    assert sorted(path for path, _ in group.members(max_depth=None)) == ["a", "g", "g/s"]
    assert (group["a"].nchunks_initialized, group["g/s"].nchunks_initialized) == (3, 6)
    gzarr.copy(group, tmp_path / "copied")
    copied: Any = zarr.open_group(tmp_path / "copied")
    for path in ("a", "g/s"):
        np.testing.assert_array_equal(group[path][...], DATA)
        np.testing.assert_array_equal(copied[path][...], DATA)
    # What was read is kept, the size of a shard included.
    Cloud.files.clear()
    for path in ("a", "g/s"):
        np.testing.assert_array_equal(group[path][...], DATA)


@pytest.mark.parametrize("cache", CACHES)
def test_a_web_server_is_read_as_without_a_cache(cache: str, options: dict[str, Any], tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path / "g")
    for name, value in (("A", 1), ("%41", 2), ("x", 7)):
        group.create_array(name, data=np.full(2, value, "i4"))
    with served(tmp_path) as (url, _):
        opened = chained(cache, f"{url}/g", options)
        assert [int(opened[name][0]) for name in ("A", "%41", "x")] == [1, 2, 7]
        with pytest.raises(StoreError, match="cannot list its keys, and the group '/' has no consolidated metadata"):
            list(opened.members())
        with pytest.raises(StoreError, match="no consolidated metadata"):
            gzarr.copy(opened, tmp_path / "copied")
        gzarr.copy(opened["x"], tmp_path / "x")
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "x")[...], [7, 7])
        with pytest.raises(gzarr.errors.ArgumentError, match="names one file"):
            chained(cache, f"{url}/g?token=1", options)


@pytest.mark.parametrize("cache", CACHES)
def test_what_was_read_is_not_asked_for_again(cache: str, options: dict[str, Any], tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "x", data=DATA, chunks=2, shards=6)
    with served(tmp_path) as (url, asked):
        array = chained(cache, f"{url}/x", options)
        np.testing.assert_array_equal(array[...], DATA)
        assert array[4] == 4
        before = [path for path in asked if "/c/" in path]
        np.testing.assert_array_equal(array[...], DATA)
        assert array[4] == 4
        again = [path for path in asked if "/c/" in path][len(before) :]
        # The other one asks for the size of a shard.
        assert before
        assert not again or cache == "blockcache"


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("status", [403, 500])
def test_a_failure_is_no_absent_chunk(cache: str, status: int, options: dict[str, Any], tmp_path: Path) -> None:
    """fsspec's caches find absent what they cannot look for."""
    a = gzarr.create_array(tmp_path / "x", data=DATA, chunks=4)
    (tmp_path / "x/c/1").unlink()
    with served(tmp_path, lambda path: status if "c/2" in path else 0) as (url, _):
        array = chained(cache, f"{url}/x", options)
        np.testing.assert_array_equal(array[:8], a[:8])
        with pytest.raises(ChunkError, match=f"{status}"):
            array[...]


@pytest.mark.parametrize("cache", WHOLE)
def test_the_size_of_what_is_kept(cache: str, cloud: Any, options: dict[str, Any]) -> None:
    """A file that was replaced meanwhile may be longer."""
    Cloud.files["b/k"] = b"0123456789"
    store: Any = gzarr.open_store(f"{cache}::cloud://b", storage_options={cache: options[cache]})
    assert store.get("k") == b"0123456789"
    Cloud.files["b/k"] = b"abcdefghijklmnopqrstuvwxyz"
    assert store.get_partial_values([("k", ByteRange(-3)), ("k", ByteRange(2, 3))]) == [b"789", b"234"]
    with pytest.raises(StoreError, match="too few"):
        store.get_partial_values([("k", ByteRange(-11))])


def test_threads_do_not_read_half_a_file(cloud: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = gzarr.open_store("simplecache::cloud://b", storage_options=options)
    Cloud.files["b/k"] = bytes(1000)
    monkeypatch.setattr(Cloud, "delay_s", 0.3)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(store.get("k")))) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert found == [1000] * 4


def test_files_are_fetched_side_by_side(cloud: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    gzarr.create_array("fsspec+cloud://b/x", data=DATA, chunks=2)
    array = chained("simplecache", "cloud://b/x", options)
    Cloud.fetching.clear()
    monkeypatch.setattr(Cloud, "delay_s", 0.2)
    np.testing.assert_array_equal(array[...], DATA)
    assert max(Cloud.fetching) > 1


def test_a_cache_with_a_listing_of_its_own(cloud: Any, tmp_path: Path) -> None:
    Cloud.files.update({"b/seen": b"1", "b/hidden": b"2"})

    class Own(SimpleCacheFileSystem):  # type: ignore[misc]
        cachable = False

        def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
            found = [entry for entry in self.fs.ls(path, detail=True) if "hidden" not in entry["name"]]
            return found if detail else [entry["name"] for entry in found]

    store = gzarr.FsspecStore(Own(fs=fsspec.filesystem("cloud"), cache_storage=str(tmp_path)), "b")
    assert [*store.list()] == ["seen"]
    assert store.list_dir("") == (["seen"], [])
