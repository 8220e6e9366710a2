"""Changes in Icechunk, which takes no chunk without its array, nor outside its shape; judged by zarr-python."""

from __future__ import annotations

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pytest
import scipy.sparse
import xarray as xr
import zarr
from zarr.storage import WrapperStore

import gzarr
import gzarr.ome
import gzarr.sparse
from gzarr.errors import ArgumentError, ChunkWriteError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

STORAGES: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (100,)},
    "shards": {"chunks": (10,), "shards": (100,)},
    # More chunks than are addressed by key.
    "many": {"chunks": (1,), "codecs": [{"name": "bytes"}]},
}
each_storage = pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES)
#: Whether the array is committed before it changes: Icechunk does not treat such chunks as it does new ones.
committed = pytest.mark.parametrize("commit", [False, True], ids=["new", "committed"])


class Work:
    """A repository, and the present session."""

    def __init__(self, *, commit: bool = True) -> None:
        self.repository = icechunk.Repository.create(icechunk.in_memory_storage())
        self.session = self.repository.writable_session("main")
        self.commits = commit

    @property
    def store(self) -> Any:
        return self.session.store

    def commit(self) -> None:
        if self.commits:
            self.session.commit("changes")
            self.session = self.repository.writable_session("main")

    def check(self, path: str, expected: Any) -> None:
        """Compare an array, as zarr-python reads it, in the session and after a commit."""
        np.testing.assert_array_equal(zarr.open_array(self.store, path=path, mode="r")[...], expected)
        if self.session.has_uncommitted_changes:
            self.session.commit("checked")
        store = self.repository.readonly_session("main").store
        np.testing.assert_array_equal(zarr.open_array(store, path=path, mode="r")[...], expected)
        self.session = self.repository.writable_session("main")

    def array(self, path: str) -> gzarr.Array:
        return gzarr.open_array(self.store, path=path, mode="r+")


@committed
@each_storage
def test_append(storage: dict[str, Any], commit: bool) -> None:
    work = Work(commit=commit)
    gzarr.create_array(work.store, path="a", data=np.arange(1050), **storage)
    work.commit()
    array = work.array("a")
    assert array.append(np.arange(500)) == (1550,)
    assert array.append(np.arange(0)) == (1550,)
    np.testing.assert_array_equal(array[1050:], np.arange(500))
    work.check("a", np.concatenate([np.arange(1050), np.arange(500)]))


@committed
@each_storage
def test_resize(storage: dict[str, Any], commit: bool) -> None:
    work = Work(commit=commit)
    gzarr.create_array(work.store, path="a", data=np.arange(1, 2001), fill_value=7, **storage)
    work.commit()
    array = work.array("a")
    array.resize((120,))
    assert array.shape == (120,)
    work.commit()
    array = work.array("a")
    array.resize((1900,))
    expected = np.full(1900, 7)
    expected[:120] = np.arange(1, 121)
    np.testing.assert_array_equal(array[...], expected)
    work.check("a", expected)


@committed
def test_resize_of_several_dimensions(commit: bool) -> None:
    work = Work(commit=commit)
    data = np.arange(1, 1201).reshape(30, 40)
    gzarr.create_array(work.store, path="a", data=data, chunks=(7, 9))
    work.commit()
    array = work.array("a")
    array.resize((10, 60))
    array.resize((30, 40))
    expected = np.zeros_like(data)
    expected[:10] = data[:10]
    work.check("a", expected)


@pytest.mark.parametrize("how", ["resize", "append"])
def test_what_was_left_outside_is_not_there_again(how: str) -> None:
    work = Work()
    gzarr.create_array(work.store, path="a", data=np.arange(1, 1001), chunks=(100,))
    work.commit()
    # Icechunk keeps committed chunks until the shape is committed.
    store = gzarr.ZarrStore(work.store)
    document = json.loads(store.get("a/zarr.json") or b"")
    store.set("a/zarr.json", json.dumps({**document, "shape": [120]}).encode())
    array = work.array("a")
    expected = np.zeros(1000, int)
    expected[:120] = np.arange(1, 121)
    if how == "append":
        array.append(np.zeros(330, int))
    array.resize((1000,))
    work.check("a", expected)


def test_erase_is_needed() -> None:
    work = Work()
    array = gzarr.create_array(work.store, path="a", data=np.arange(10), chunks=(2,))
    with pytest.raises(ArgumentError, match="erase=False is not possible"):
        array.resize(4, erase=False)
    array.resize(12, erase=False)
    work.check("a", [*range(10), 0, 0])


class Failing(WrapperStore[Any]):
    """A store that fails to write some keys."""

    fails = "?"

    async def set(self, key: str, value: Any) -> None:
        if key.endswith(self.fails):
            raise OSError("no space")
        await super().set(key, value)


def test_append_fails() -> None:
    work = Work()
    gzarr.create_array(work.store, path="a", data=np.arange(1, 251), chunks=(100,))
    work.commit()
    store = Failing(work.store)
    array = gzarr.open_array(store, path="a", mode="r+")
    store.fails = "c/4"
    with pytest.raises(ChunkWriteError, match="no space"):
        array.append(np.full(500, 9))
    assert array.shape == (250,)
    np.testing.assert_array_equal(array[...], np.arange(1, 251))
    array.resize((750,))
    work.check("a", [*range(1, 251), *[0] * 500])


def test_creation_fails() -> None:
    work = Work()
    store = Failing(work.store)
    store.fails = "c/1"
    group = gzarr.create_group(store)
    with pytest.raises(ChunkWriteError, match="no space"):
        group.create_array("a", data=np.arange(4), chunks=(2,))
    assert list(zarr.open_group(work.store, mode="r")) == []
    store.fails = "?"
    group.create_array("a", data=np.arange(4), chunks=(2,))
    work.check("a", np.arange(4))


@committed
def test_move(commit: bool) -> None:
    work = Work(commit=commit)
    group = gzarr.create_group(work.store, attributes={"of": "root"})
    group.create_array("a", data=np.arange(1050), chunks=(1,))
    group.create_group("g", attributes={"of": "g"})
    group.create_array("g/deep/b", data=np.arange(60).reshape(6, 10), chunks=(2, 5), shards=(4, 10))
    group.create_array("g/empty", shape=(3,), dtype="i4")
    work.commit()
    group = gzarr.open_group(work.store, mode="r+")
    group.move("a", "b")
    group.move("g", "h/k")
    found = zarr.open_group(work.store, mode="r")
    assert sorted(found) == ["b", "h"]
    assert found["h/k"].attrs["of"] == "g"
    assert found["h/k/empty"].shape == (3,)
    work.check("b", np.arange(1050))
    work.check("h/k/deep/b", np.arange(60).reshape(6, 10))


def test_copy(tmp_path: Path) -> None:
    source = tmp_path / "src.zarr"
    gzarr.save(source, x=np.arange(10), y=np.arange(6.0).reshape(2, 3))
    group = gzarr.open_group(source, mode="r+")
    group.create_array("g/s", data=np.arange(100), chunks=(5,), shards=(20,))
    layouts: list[dict[str, Any]] = [{}, {"codecs": []}]
    for options in layouts:
        work = Work()
        gzarr.copy(source, work.store, read_back=True, **options)
        for path in ("x", "y", "g/s"):
            work.check(path, zarr.open_array(source, path=path, mode="r")[...])
    gzarr.copy(source, work.store, dest_path="in/a", path="x")
    work.check("in/a", np.arange(10))
    # From Icechunk, values as they are and decoded.
    layouts = [{}, {"chunks": (4,)}]
    for number, options in enumerate(layouts):
        back = tmp_path / f"back{number}.zarr"
        gzarr.copy(work.store, back, path="g/s", shards=None, **options)
        np.testing.assert_array_equal(zarr.open_array(back, mode="r")[...], np.arange(100))
        gzarr.copy(work.store, tmp_path / f"whole{number}.zarr", path="g")
        np.testing.assert_array_equal(zarr.open_array(tmp_path / f"whole{number}.zarr/s", mode="r")[...], range(100))


def test_copy_is_resumed() -> None:
    source: dict[str, bytes] = {}
    gzarr.create_array(source, data=np.arange(1, 1001), chunks=(100,))
    work = Work()
    store = Failing(work.store)
    store.fails = "c/7"
    with pytest.raises(StoreError, match="no space"):
        gzarr.copy(source, store, dest_path="a")
    store.fails = "?"
    work.commit()
    with pytest.raises(ArgumentError, match="resume=True"):
        gzarr.copy(source, work.store, dest_path="a")
    work.array("a")[300:400] = 5
    gzarr.copy(source, work.store, dest_path="a", resume=True, read_back=True)
    work.check("a", np.arange(1, 1001))
    gzarr.copy({**source}, work.store, dest_path="a", overwrite=True, chunks=(30,))
    work.check("a", np.arange(1, 1001))


def test_copy_by_other_processes() -> None:
    source: dict[str, bytes] = {}
    gzarr.create_array(source, data=np.arange(10))
    work = Work()
    fork = work.session.fork() if hasattr(work.session, "fork") else None
    with ThreadPoolExecutor(1) as executor:
        for store in (work.store, None if fork is None else fork.store):
            if store is not None:
                with pytest.raises(ArgumentError, match="become part of its session; omit client="):
                    gzarr.copy(source, store, dest_path="a", client=executor)
        assert list(gzarr.ZarrStore(work.store).list()) == []
        if fork is not None:
            pickle.dumps(fork.store)


def test_keys_of_chunks_are_listed() -> None:
    work = Work()
    gzarr.create_array(work.store, path="g/a", data=np.ones((3, 4)), chunks=(1, 2))
    gzarr.create_array(work.store, path="c/x", data=np.ones(3))
    store = gzarr.ZarrStore(work.store)
    chunks = [f"g/a/c/{i}/{j}" for i in range(3) for j in range(2)]
    for prefix in ("", "g/", "g/a/", "g/a/c/", "g/a/c/1/", "g/a/c/1/0/", "c/", "c/x/", "c/x/c/", "nope/", "c/y/"):
        expected = [*chunks, "g/a/zarr.json", "g/zarr.json", "zarr.json", "c/zarr.json", "c/x/zarr.json", "c/x/c/0"]
        assert sorted(store.list_prefix(prefix)) == sorted(key for key in expected if key.startswith(prefix)), prefix
    verification = gzarr.verify(work.store)
    assert list(verification) == []
    assert verification.chunks == 7


def test_absent_keys_are_erased() -> None:
    work = Work()
    gzarr.create_array(work.store, path="a", data=np.arange(10), chunks=(5,))
    store = gzarr.ZarrStore(work.store)
    for key in ("a/c/7", "a/c/0/0", "b/c/0", "b/zarr.json", "b/other"):
        store.erase(key)
        assert store.get(key) is None
    store.erase_prefix("b/")
    work.check("a", np.arange(10))


def test_a_scalar() -> None:
    work = Work()
    array = gzarr.create_array(work.store, path="a", data=np.array(5))
    assert array[...] == 5
    work.check("a", 5)


@pytest.mark.parametrize("zarr_format", [1, 2, "3-draft-2022"])
def test_other_formats_are_refused(zarr_format: Any) -> None:
    work = Work()
    with pytest.raises(ArgumentError, match="Icechunk holds Zarr version 3 only"):
        gzarr.create_array(work.store, path="a", data=np.arange(10), zarr_format=zarr_format)
    assert list(gzarr.ZarrStore(work.store).list()) == []
    source: dict[str, bytes] = {}
    gzarr.save(source, x=np.arange(3), zarr_format=2)
    with pytest.raises(ArgumentError, match="Icechunk holds Zarr version 3 only"):
        gzarr.copy(source, work.store)
    gzarr.copy(source, work.store, zarr_format=3)
    work.check("x", np.arange(3))


@pytest.mark.parametrize("encoding", ["v2", {"name": "default", "separator": "."}])
def test_other_keys_of_chunks_are_no_silent_loss(encoding: Any) -> None:
    work = Work()
    with pytest.raises(ChunkWriteError, match=r"invalid zarr key format `a/.*`; chunks in Icechunk have the keys of"):
        gzarr.create_array(work.store, path="a", data=np.arange(10), chunk_key_encoding=encoding)
    assert "a/zarr.json" not in gzarr.ZarrStore(work.store).list()


def test_messages_have_no_trace() -> None:
    store = gzarr.ZarrStore(Work().store)
    store.set("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    with pytest.raises(StoreError) as caught:
        store.set("a/zarr.json", b'{"zarr_format": 3, "node_type": "neither"}')
    text = str(caught.value)
    assert re.search(r"cannot write 'a/zarr.json': (Icechunk|InvalidInput)Error: bad metadata", text)
    assert not any(words in text for words in ("context", ".rs", "x bad", "|"))


def test_sparse_rows() -> None:
    work = Work()
    rows = scipy.sparse.random(50, 30, 0.1, format="csr", random_state=0)
    gzarr.sparse.create(work.store, rows, path="m")
    work.commit()
    matrix = gzarr.sparse.open(work.store, path="m", mode="r+")
    matrix.append(rows[:20])
    expected = scipy.sparse.vstack([rows, rows[:20]], format="csr")
    for name in ("data", "indices", "indptr"):
        work.check(f"m/{name}", getattr(expected, name))


def test_frames_of_an_image() -> None:
    work = Work()
    frames = np.random.default_rng(0).integers(0, 255, (3, 64, 64), dtype="u1")
    gzarr.ome.create(work.store, frames, path="i", axes="tyx", chunks=(2, 32, 32))
    work.commit()
    image = gzarr.ome.open(work.store, path="i", mode="r+")
    assert isinstance(image, gzarr.ome.Image)
    image.append(frames[:2])
    work.check("i/0", np.concatenate([frames, frames[:2]]))


def test_xarray_appends_to_what_gzarr_wrote() -> None:
    work = Work()
    dataset = xr.Dataset({"v": (("t", "x"), np.arange(12.0).reshape(3, 4))}, {"t": range(3)})
    dataset.to_zarr(work.store, consolidated=False, encoding={"v": {"chunks": (2, 4)}})
    work.commit()
    work.array("v").append(np.ones((2, 4)))
    work.array("t").append(np.arange(3, 5))
    later = dataset.assign_coords(t=np.arange(5, 8))
    later.to_zarr(work.store, consolidated=False, append_dim="t", safe_chunks=False)
    (dataset[["v"]] * 2).drop_vars("t").to_zarr(
        work.store, consolidated=False, region={"t": slice(1, 4), "x": slice(None)}, safe_chunks=False
    )
    with xr.open_dataset(work.store, engine="gzarr", device="cpu") as read:
        assert read.t.values.tolist() == list(range(8))
        np.testing.assert_array_equal(read.v[1:4], dataset.v * 2)
    expected = np.concatenate([dataset.v[:1], dataset.v * 2, np.ones((1, 4)), dataset.v])
    work.check("v", expected)
