"""Zip archives in local files: archives of every writer are read, also while they are replaced."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import zip_archives
from support.zip_archives import CHUNKED, SHARDED, WRITERS, elements

import gzarr
from gzarr.engines.access import locate
from gzarr.errors import ArgumentError, ChunkError, GzarrError, NodeNotFoundError, StoreError
from gzarr.stores import ByteRange, LocalStore, as_store

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice


def values_of(path: Path) -> dict[str, bytes]:
    """Return the entries of an archive by the standard library, each name once."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        return {name: archive.read(name) for name in names}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.zarr.zip"


# -- reading


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("writer", WRITERS)
def test_archives_of_every_writer(writer: str, zarr_format: int, path: Path, device: TestedDevice) -> None:
    WRITERS[writer](path, zarr_format)
    data = elements()
    names = zip_archives.names(zarr_format)
    group = gzarr.open_group(path, device="cpu", use_consolidated=False)
    assert {found for found, _ in group.walk()} == {*names}
    assert {found for found, _ in gzarr.open_consolidated(path).members()} == {*names}
    for name in names:
        array = device.open(path, path=name)
        for selection in (np.s_[0, 0], np.s_[...], np.s_[31:95, 7:80:3], np.s_[::-2, [1, 99, 4]]):
            np.testing.assert_array_equal(device.read(array, selection), data[selection])
        np.testing.assert_array_equal(device.to_numpy(array.read_many([np.s_[:9, :9], np.s_[50:59, 9:18]])),
                                      np.stack([data[:9, :9], data[50:59, 9:18]]))  # fmt: skip
    assert list(gzarr.verify(path)) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_values_are_those_of_the_standard_library(writer: str, path: Path) -> None:
    WRITERS[writer](path)
    with zipfile.ZipFile(path) as archive:
        expected = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    store = gzarr.ZipStore(path)
    keys = sorted(expected)
    assert list(store.list()) == keys
    assert dict(store.list_sizes("")) == {key: len(value) for key, value in expected.items()}
    assert store.get_small_values([*keys, "absent"], 1 << 20) == [*(expected[key] for key in keys), None]
    assert [store.get(key) for key in keys] == [expected[key] for key in keys]
    assert store.contains(["zarr.json", "absent", "raw"]) == [True, False, False]
    ranges = [ByteRange(1, 3), ByteRange(2), ByteRange(-3), ByteRange(0, 0), ByteRange()]
    long = {key: value for key, value in expected.items() if len(value) > 4}
    parts = [value[1:4] + value[2:] + value[-3:] + value for value in long.values()]
    wanted = [(key, part) for key in long for part in ranges]
    found = [b"" if part is None else part for part in store.get_partial_values(wanted)]
    assert [b"".join(found[i : i + 5]) for i in range(0, len(found), 5)] == parts
    with pytest.raises(StoreError, match="at most 2 are read"):
        store.get_small_values(["zarr.json"], 2)
    with pytest.raises(StoreError, match="too few for the range"):
        store.get_partial_values([("zarr.json", ByteRange(1 << 40, 3))])
    assert store.list_dir("") == (["zarr.json"], ["chunked/", "raw/", "sharded/"])
    assert store.list_dir("sharded/c/") == ([], ["sharded/c/0/", "sharded/c/1/"])
    assert list(store.list_prefix("sharded/c/1/")) == ["sharded/c/1/0", "sharded/c/1/1"]


def test_stored_entries_are_read_by_engines_themselves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zip_archives.by_zarr(path)
    arrays = [gzarr.open_array(path, path=name, device="cpu") for name in ("chunked", "raw", "sharded")]
    asked: list[str] = []
    monkeypatch.setattr(gzarr.ZipStore, "get_small_values", lambda self, keys, most: asked.extend(keys))
    for array in arrays:
        np.testing.assert_array_equal(array[...], elements())
    assert asked == []


@pytest.mark.parametrize("codecs", [["numcodecs.bz2"], ["bytes", "crc32c"]])
def test_codecs_that_need_threads(path: Path, codecs: list[str], device: TestedDevice) -> None:
    with gzarr.ZipStore(path, mode="w") as store:
        gzarr.create_array(store, data=elements(), codecs=codecs, **SHARDED)
    array = device.open(path)
    np.testing.assert_array_equal(device.read(array), elements())


def test_absent_chunks(path: Path, device: TestedDevice) -> None:
    zip_archives.by_gzarr(path)
    for name in ("chunked", "sharded"):
        key = f"{name}/c/1/1"
        with gzarr.ZipStore(path, mode="a") as store:
            store.erase(key)
            store.erase("absent")
        expected = elements()
        expected[slice(30, 60) if name == "chunked" else slice(60, 120), slice(25, 50) if name == "chunked" else
                 slice(50, 100)] = 0  # fmt: skip
        array = device.open(path, path=name)
        np.testing.assert_array_equal(device.read(array), expected)
        with pytest.raises(gzarr.MissingChunkError, match=key):
            array.read(missing="error")


def test_indexes_of_many_shards(path: Path, device: TestedDevice) -> None:
    """The indexes of many shards are read together; each fault is that of one shard."""
    data = elements()
    for location in ("start", "end"):
        index: Any = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        inner = {"chunk_shape": [5, 5], "codecs": index[:1], "index_codecs": index, "index_location": location}
        codecs: Any = [{"name": "sharding_indexed", "configuration": inner}]
        with gzarr.ZipStore(path, mode="w") as store:
            gzarr.create_array(store, data=data, chunks=(20, 20), codecs=codecs)
        array = device.open(path)
        np.testing.assert_array_equal(device.read(array), data)
        with gzarr.ZipStore(path, mode="a") as store:
            store.erase("c/0/0")
        expected = data.copy()
        expected[:20, :20] = 0
        np.testing.assert_array_equal(device.read(array), expected)
        value = bytearray(gzarr.ZipStore(path).get("c/3/1") or b"")
        value[3 if location == "start" else -30] ^= 1
        for damaged, message in ((value, "crc32c checksum"), (value[:50], "fewer than its index")):
            with gzarr.ZipStore(path, mode="a") as store:
                store.set("c/3/1", damaged)
            with pytest.raises(ChunkError, match=message) as info:
                device.read(array)
            assert info.value.key == "c/3/1"


@pytest.mark.parametrize(
    "spell",
    [
        "{}",
        "zip://{}",
        "zip::{}",
        "file://{}",
        "zip::file://{}",
        "zip://{}#sharded",
        "zip://sharded::{}",
        "zip:///sharded/::file://{}",
        "file://{}#sharded",
    ],
)
def test_names_of_archives(spell: str, path: Path) -> None:
    zip_archives.by_gzarr(path)
    url = spell.format(path)
    inside = "sharded" if "sharded" in url else ""
    assert as_store(url)[1] == inside
    opened = gzarr.open(url, path="" if inside else "sharded", device="cpu")
    np.testing.assert_array_equal(opened[...], elements())


def test_what_is_no_archive(tmp_path: Path) -> None:
    folder = tmp_path / "folder.zip"
    folder.mkdir()
    assert isinstance(as_store(tmp_path / "new.zip", "a")[0], gzarr.ZipStore)
    assert isinstance(as_store(folder)[0], LocalStore)
    with pytest.raises(NodeNotFoundError, match="does not exist"):
        gzarr.open(tmp_path / "none.zip")
    with pytest.raises(ArgumentError, match="is a directory"):
        gzarr.ZipStore(folder)
    (tmp_path / "text.zip").write_bytes(b"no archive")
    for mode in ("r", "r+", "a"):
        with pytest.raises(StoreError, match="does not end as a zip file does"):
            gzarr.ZipStore(tmp_path / "text.zip", mode=mode)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="storage_options"):
        gzarr.open(tmp_path / "text.zip", storage_options={})
    with pytest.raises(ArgumentError, match="mode must be"):
        gzarr.ZipStore(tmp_path / "text.zip", mode="rw")  # type: ignore[arg-type]
    for wrong in (3, "", "a\0b", b"x.zip"):
        with pytest.raises(ArgumentError, match="ZipStore needs a"):
            gzarr.ZipStore(wrong)  # type: ignore[arg-type]


# -- changes during reads, and processes


@pytest.mark.parametrize("kind", [CHUNKED, SHARDED], ids=["chunked", "sharded"])
def test_an_archive_that_is_replaced_during_reads(path: Path, kind: dict[str, Any]) -> None:
    """A read gives the elements of the old archive or of a new one in each chunk, never something else."""
    sizes = [1, 50, 3000]
    rng = np.random.default_rng(0)
    values = [np.full((120, 100), i, "i4") + rng.integers(0, 2, (120, 100), dtype="i4") * 100 for i in range(3)]

    def replace(i: int) -> None:
        new = path.with_name(f"new{i}")
        with gzarr.ZipStore(new, mode="w") as store:
            # So that everything lies elsewhere.
            store.set("filler", bytes(sizes[i]))
            gzarr.create_array(store, path="a", data=values[i], codecs=["bytes"], **kind)
        new.replace(path)

    replace(0)
    array = gzarr.open_array(path, path="a", device="cpu")
    stopped = threading.Event()

    def turn() -> None:
        i = 0
        while not stopped.wait(0.002):
            i = (i + 1) % 3
            replace(i)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        end, read = time.monotonic() + 1.5, 0
        while time.monotonic() < end:
            found = array[...]
            assert set(np.unique(found % 100)) <= {0, 1, 2}
            read += 1
            for row in range(0, 120, 60):
                for column in range(0, 100, 50):
                    part = np.s_[row : row + 30, column : column + 25] if kind is CHUNKED else \
                        np.s_[row : row + 60, column : column + 50]  # fmt: skip
                    i = found[part].flat[0] % 100
                    np.testing.assert_array_equal(found[part], values[i][part])
    finally:
        stopped.set()
        thread.join()
    assert read > 3


def test_an_archive_that_is_erased_is_an_error(path: Path, device: TestedDevice) -> None:
    zip_archives.by_gzarr(path)
    arrays = [device.open(path, path=name) for name in zip_archives.NAMES]
    path.unlink()
    for array in arrays:
        with pytest.raises(GzarrError, match=r"does not exist|meanwhile"):
            device.read(array)
    gzarr.ZipStore(path, mode="w").close()
    for array in arrays:
        # This one says itself that no chunk is in it.
        assert not device.read(array).any()


def test_a_read_that_is_disturbed_each_time_gives_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zip_archives.by_gzarr(path)
    array = gzarr.open_array(path, path="raw", device="cpu")
    monkeypatch.setattr(gzarr.ZipStore, "is_current", lambda self, version: False)
    with pytest.raises(ChunkError, match=f"replaced during each of {locate.MOST_ATTEMPTS} reads"):
        array[...]


def read_in_child(array: Any, store: Any, queue: Any) -> None:
    try:
        total = int(array[...].sum())
        try:
            store.set("k", b"")
        except GzarrError as error:
            queue.put((total, type(error).__name__))
        else:
            queue.put((total, "written"))
    except BaseException as error:
        queue.put(repr(error))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("committed", [True, False])
def test_other_processes(path: Path, method: Any, committed: bool) -> None:
    store = gzarr.ZipStore(path, mode="w")
    array = gzarr.create_array(store, data=elements(), **SHARDED)
    if committed:
        store.flush()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=read_in_child, args=(array, store, queue))
    process.start()
    assert queue.get(timeout=60) == (int(elements().sum()), "StoreError" if method == "fork" else "ReadOnlyError")
    process.join()
    store.set("l", b"1")
    store.close()
    assert set(values_of(path)) > {"l", "zarr.json"}
    copy = pickle.loads(pickle.dumps(gzarr.ZipStore(path)))
    assert copy == gzarr.ZipStore(path)
    assert copy.get("l") == b"1"
    assert os.fspath(copy.path) == os.path.realpath(path)
