"""Elements beyond the shape, left by a killed change of shape or by another program, never come back."""

from __future__ import annotations

import os
import signal
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.counting_store import CountingStore

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (5,)},
    "one": {"chunks": (100,)},
    "shards": {"chunks": (5,), "shards": (10,)},
    "version 2": {"chunks": (5,), "zarr_format": 2},
}


def killed_at(name: str, work: Callable[[], object]) -> None:
    """Run ``work`` in a child that is killed when it calls a function of the module that changes shapes."""
    import gzarr.arrays.resize as module

    pid = os.fork()
    if pid == 0:
        setattr(module, name, lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL))
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def expected(kept: int, size: int, value: int = 7) -> Any:
    return np.where(np.arange(size) < kept, value, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_after_a_killed_shrink(layout: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x"
    gzarr.create_array(path, data=np.full(20, 7, "i4"), fill_value=0, **layout)
    killed_at("clear_outside", lambda: gzarr.open_array(path, mode="r+").resize(7))
    a = gzarr.open_array(path, mode="r+")
    assert a.shape == (7,)
    for size in (8, 12, 20, 40):
        a.resize(size)
        np.testing.assert_array_equal(a[...], expected(7, size))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_after_a_killed_append(layout: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x"
    gzarr.create_array(path, data=np.full(7, 7, "i4"), fill_value=0, **layout)
    killed_at("change_array", lambda: gzarr.open_array(path, mode="r+").append(np.full(20, 9, "i4")))
    a = gzarr.open_array(path, mode="r+")
    a.append(np.full(1, 7, "i4"))
    np.testing.assert_array_equal(a[...], 7)
    a.append(np.full(4, 7, "i4"))
    np.testing.assert_array_equal(a[...], 7)
    a.resize(30)
    np.testing.assert_array_equal(a[...], expected(12, 30))


@pytest.mark.parametrize("shape", [(9, 9), (6, 13), (13, 13), (9, 7), (40, 5)])
def test_chunks_of_another_writer(shape: tuple[int, int]) -> None:
    values: dict[str, Any] = {}
    theirs = zarr.create_array(
        zarr.storage.MemoryStore(values), shape=(12, 12), chunks=(4, 4), dtype="i4", fill_value=3
    )
    theirs[...] = np.arange(144).reshape(12, 12)
    # Chunks are left whole by writers that only change the document.
    document = values["zarr.json"].to_bytes()
    values["zarr.json"] = type(values["zarr.json"]).from_bytes(document.replace(b"12,\n    12", b"6,\n    6"))
    store = {key: value.to_bytes() for key, value in values.items()}
    a = gzarr.open_array(store, mode="r+")
    assert a.shape == (6, 6)
    a.resize(shape)
    want = np.full(shape, 3, "i4")
    rows, columns = min(6, shape[0]), min(6, shape[1])
    want[:rows, :columns] = np.arange(144).reshape(12, 12)[:rows, :columns]
    np.testing.assert_array_equal(a[...], want)
    np.testing.assert_array_equal(zarr.open_array(store=dict_store(store), mode="r")[...], want)


def dict_store(values: dict[str, bytes]) -> Any:
    import asyncio

    store = zarr.storage.MemoryStore()
    prototype = zarr.core.buffer.default_buffer_prototype()

    async def put() -> None:
        for key, value in values.items():
            await store.set(key, prototype.buffer.from_bytes(value))

    asyncio.run(put())
    return store


class Written(CountingStore):
    """Counts values that are changed, too."""

    changed = 0

    def set_parts(self, key: str, parts: Any) -> None:
        self.changed += 1
        super().set_parts(key, parts)

    def erase(self, key: str) -> None:
        self.changed += 1
        super().erase(key)


@pytest.mark.parametrize("size", [0, 5, 10])
def test_growth_costs_nothing_where_nothing_is_left(size: int) -> None:
    store = Written()
    a = gzarr.create_array(store, data=np.full(size, 7, "i4"), chunks=5, shape=(size,), dtype="i4")
    asked, changed = len(store.asked), store.changed
    a.resize(10_000_000)
    assert [request for request in store.asked[asked:] if request.key != "zarr.json"] == []
    assert store.changed == changed + 1
    a.append(np.full(5, 8, "i4"))
    np.testing.assert_array_equal(a[-5:], 8)


def test_a_cut_chunk_is_read_and_not_written() -> None:
    store = Written()
    a = gzarr.create_array(store, data=np.full(7, 7, "i4"), chunks=5)
    asked, changed = len(store.asked), store.changed
    a.resize(30)
    assert [request.key for request in store.asked[asked:] if request.key != "zarr.json"] == ["c/1"]
    assert store.changed == changed + 1


def test_elements_that_are_kept_on_purpose() -> None:
    a = gzarr.create_array({}, data=np.full(20, 7, "i4"), chunks=5)
    a.resize(7, erase=False)
    a.resize(20, erase=False)
    np.testing.assert_array_equal(a[...], 7)


@pytest.mark.parametrize(("dtype", "codec", "empty"), [(str, "vlen-utf8", ""), (bytes, "vlen-bytes", b"")])
def test_absent_texts_of_version_2(dtype: Any, codec: str, empty: Any) -> None:
    import json

    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=4, chunks=2, dtype=object, codecs=[codec], zarr_format=2)
    document = json.loads(store[".zarray"])
    store[".zarray"] = json.dumps({**document, "fill_value": None}).encode()
    a = gzarr.open_array(store, mode="r+")
    a[0] = "a" if dtype is str else b"a"
    found = a[...].tolist()
    assert found[1:] == [empty] * 3
    assert all(type(item) is dtype for item in found)
    a.resize(6)
    assert a[...].tolist()[1:] == [empty] * 5


def test_a_long_axis_costs_nothing() -> None:
    rows = 2_000_000
    a = gzarr.create_array({}, shape=(rows, 3), chunks=(1, 3), dtype="u1")
    tracemalloc.start()
    try:
        a.resize((rows + 1, 3))
        a.resize((rows, 3))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000
