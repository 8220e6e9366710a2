"""What changes under dask arrays and standing workers: references, values in memory, archives; judged by zarr-python.

Workers are a thread here, to which dask and gzarr pickle what they do, as to another process.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dask.array as da
import fsspec
import icechunk
import numpy as np
import pytest
import zarr
from fsspec.implementations.dirfs import DirFileSystem
from zarr.experimental.cache_store import CacheStore
from zarr.storage import FsspecStore, LocalStore, LoggingStore, MemoryStore

import gzarr
from gzarr.integrations.dask_tasks import TaskSource
from gzarr.stores import why_not_shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def worker() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def total(x: Any, worker: Executor) -> int:
    """Return the sum of a dask array, computed by a worker."""
    return int(x.sum().compute(scheduler="processes", pool=worker))


def double(block: Any) -> Any:
    return block * 2


def write_references(folder: Path, value: int) -> str:
    """Write a document of references to a file of equal values, always the same document; return its URL."""
    file = folder / f"{value}.bin"
    np.full(12, value, "<i4").tofile(file)
    array = {"zarr_format": 2, "shape": [12], "chunks": [4], "dtype": "<i4", "fill_value": 0, "order": "C"}
    document = json.dumps({**array, "compressor": None, "filters": None})
    references = {".zarray": document, **{str(i): [str(file), i * 16, 16] for i in range(3)}}
    (folder / "references.json").write_text(json.dumps({"version": 1, "refs": references}))
    return f"reference::{folder}/references.json"


@pytest.mark.parametrize("name", [None, False, "mine"])
def test_workers_read_references_as_they_are_now(tmp_path: Path, worker: Executor, name: Any) -> None:
    for value in (1, 5):
        url = write_references(tmp_path, value)
        judge = zarr.open_array(fsspec.get_mapper("reference://", fo=str(tmp_path / "references.json")), mode="r")
        expected = np.asarray(judge[...])
        assert expected.sum() == 12 * value
        a = gzarr.open_array(url, device="cpu")
        assert total(gzarr.to_dask(a, name=name), worker) == expected.sum()
        copied = tmp_path / "copy"
        gzarr.copy(url, copied, client=worker, overwrite=True)
        np.testing.assert_array_equal(zarr.open_array(copied, mode="r")[...], expected)
        doubled = gzarr.create_array(tmp_path / "doubled", 12, "i4", chunks=4, device="cpu", overwrite=True)
        gzarr.map_blocks(double, a, out=doubled, client=worker)
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "doubled", mode="r")[...], expected * 2)


def test_an_array_that_has_not_changed_is_opened_once() -> None:
    store = gzarr.MemoryStore()
    gzarr.create_array(store, data=np.arange(12), chunks=4, device="cpu")

    def arrived(**options: Any) -> Any:
        return pickle.loads(pickle.dumps(source_of(gzarr.open_array(store, device="cpu").to_dask({}, **options))))

    found = arrived()
    assert found.array is arrived().array
    # As from a scheduler, which passes on what it has not opened.
    assert found.array is pickle.loads(pickle.dumps(arrived())).array
    assert found.array is not arrived(name=False).array
    gzarr.open_array(store, mode="r+", device="cpu")[0] = 5
    assert found.array is not arrived().array


@pytest.mark.parametrize("kind", ["memory", "view", "zarr-python's memory", "wrapped", "archive", "Icechunk"])
def test_workers_see_writes_to_what_is_sent(kind: str, tmp_path: Path, worker: Executor) -> None:
    stores = {
        "memory": dict,
        "view": dict,
        "zarr-python's memory": MemoryStore,
        "wrapped": lambda: LoggingStore(MemoryStore(), log_level="ERROR"),
        "archive": lambda: gzarr.ZipStore(tmp_path / "a.zip", mode="w"),
        "Icechunk": lambda: forked(tmp_path),
    }
    a = gzarr.create_array(stores[kind](), (8, 6), "i4", chunks=(2, 3), device="cpu", overwrite=True)
    judge = zarr.create_array(MemoryStore(), shape=(8, 6), chunks=(2, 3), dtype="i4")
    a[...] = judge[...] = 1
    x = gzarr.to_dask(a.view[::-1, :4] if kind == "view" else a)
    judged = da.from_zarr(judge)[::-1, : x.shape[1]]
    assert total(x, worker) == total(judged, worker) == 8 * x.shape[1]
    a[...] = judge[...] = 2
    assert total(x, worker) == total(judged, worker) == 2 * 8 * x.shape[1] == int(x.sum().compute(scheduler="sync"))


def forked(folder: Path) -> Any:
    """Return a store of Icechunk that can be written, and pickled."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)))
    return repository.writable_session("main").fork().store


def test_workers_do_not_write_to_icechunk(tmp_path: Path) -> None:
    a = gzarr.create_array(forked(tmp_path), (12,), "i4", chunks=(4,), device="cpu")
    x = da.full(12, 5, chunks=4, dtype="i4")
    with pytest.raises(gzarr.ArgumentError, match="become part of its session"):
        gzarr.store(x, a, scheduler="processes")
    gzarr.store(x, a, scheduler="threads")
    assert a[...].sum() == 60


def source_of(x: Any) -> Any:
    """Return what the first task of a dask array reads from."""
    task = next(iter(x.dask.layers[x.name].values()))
    return next(one.value for one in task.args if isinstance(getattr(one, "value", None), TaskSource))


#: Reads from what is pickled on standard input.
READ = """
import gzarr, pickle, sys
source = pickle.load(sys.stdin.buffer)
try:
    print(source[()].sum())
except gzarr.ArgumentError as error:
    print(error)
"""


def test_other_processes_lack_files_in_memory(tmp_path: Path) -> None:
    a = gzarr.create_array("memory://lacked", (8, 6), "i4", chunks=(2, 3), device="cpu", overwrite=True)
    a[...] = 1
    x = gzarr.to_dask(a)
    with ThreadPoolExecutor(1) as pool:
        assert total(x, pool) == 48
        options = {"scheduler": "processes", "pool": pool}
        assert gzarr.from_dask(x, tmp_path / "a", compute_options=options)[...].sum() == 48
    command = [sys.executable, "-c", READ]
    told = subprocess.run(command, input=pickle.dumps(source_of(x)), capture_output=True, check=True).stdout.decode()
    assert re.search(r"memory:.*cannot be read by other processes: its files are in the memory of the process", told)


def test_tasks_tell_that_they_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = gzarr.create_array("memory://told", (8, 6), "i4", chunks=(2, 3), device="cpu", overwrite=True)
    sent = pickle.dumps(gzarr.to_dask(a))
    # As in another process of the same number, in another container.
    monkeypatch.setattr("gzarr.stores.sharing._BEGUN", "another")
    # An error while it is unpickled would end a worker of dask.distributed.
    arrived = pickle.loads(sent)
    with pytest.raises(gzarr.ArgumentError, match="cannot be read by other processes"):
        arrived.sum().compute(scheduler="threads")
    with pytest.raises(gzarr.ArgumentError, match="cannot be read by other processes"):
        gzarr.from_dask(arrived, tmp_path / "a")


def test_which_stores_are_in_memory(tmp_path: Path) -> None:
    gzarr.create_array("memory://which", data=np.arange(3), device="cpu", overwrite=True)
    fs = fsspec.filesystem("memory")
    here: list[Any] = [
        {},
        gzarr.CachedStore(gzarr.MemoryStore(), tmp_path / "cache", 1 << 20, name="a"),
        MemoryStore(),
        LoggingStore(LoggingStore(MemoryStore(), log_level="ERROR"), log_level="ERROR"),
        CacheStore(MemoryStore(), cache_store=MemoryStore()),
        "memory://which",
        "simplecache::memory://which",
        fs.get_mapper("/which"),
        gzarr.FsspecStore(fs, "/which", url="mine"),
        DirFileSystem("/which", fs).get_mapper(""),
        FsspecStore.from_url("memory://which"),
        LoggingStore(FsspecStore.from_url("memory://which"), log_level="ERROR"),
        CacheStore(FsspecStore.from_url("memory://which"), cache_store=MemoryStore()),
    ]
    assert [store for store in here if "memory of this" not in (why_not_shared(gzarr.open_store(store)) or "")] == []
    elsewhere: list[Any] = [
        tmp_path,
        f"fsspec+file://{tmp_path}",
        gzarr.CachedStore(gzarr.LocalStore(tmp_path), tmp_path / "cache", 1 << 20),
        LocalStore(tmp_path),
        LoggingStore(LocalStore(tmp_path), log_level="ERROR"),
        LoggingStore(FsspecStore.from_url(f"file://{tmp_path}"), log_level="ERROR"),
        CacheStore(LocalStore(tmp_path), cache_store=MemoryStore()),
        write_references(tmp_path, 1),
    ]
    assert [store for store in elsewhere if why_not_shared(gzarr.open_store(store)) is not None] == []
