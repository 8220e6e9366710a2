"""Changes that go on after an interrupt or a time-out in stores of zarr-python, and behind I/O threads."""

from __future__ import annotations

import _thread
import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from support.asynchronous_files import AsynchronousFiles
from zarr.storage import MemoryStore, WrapperStore

import gzarr
from gzarr.errors import StoreError
from gzarr.stores.zarr_store import ZarrStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)


class Held:
    """The next change that is told, which does not end before it may."""

    def __init__(self) -> None:
        self.on = False
        self.begun, self.may, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> None:
        if self.on:
            self.on = False
            self.begun.set()
            assert self.may.wait(60)
            self.ended.set()


def interrupted(change: Callable[[], object], held: Held) -> None:
    """Do a change, in the main thread, that Ctrl-C ends once it is held."""

    def interrupt() -> None:
        assert held.begun.wait(30)
        _thread.interrupt_main(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    held.on = True
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            change()
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def comes_later(change: Callable[[], object], held: Held) -> None:
    """Do another change: it ends after the held one."""
    order: list[bool] = []

    def run() -> None:
        change()
        order.append(held.ended.is_set())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.3)
    held.may.set()
    thread.join()
    assert order == [True]


class Slow(WrapperStore[Any]):
    """A store of zarr-python whose changes may be held, in another thread, which nothing can cancel."""

    held: Held

    @property
    def set_sync(self) -> Any:
        """Not there, as before zarr-python 3.4: values are set in the event loop."""
        raise AttributeError

    async def set(self, key: str, value: Any) -> None:
        await asyncio.to_thread(self.held)
        await self._store.set(key, value)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self.held)
        await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        await asyncio.to_thread(self.held)
        await self._store.delete_dir(prefix)


class SlowMemory(MemoryStore):
    """A store whose values are set without an event loop."""

    held: Held

    def set_sync(self, key: str, value: Any) -> None:
        self.held()
        super().set_sync(key, value)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self.held)
        await super().delete(key)


def slow() -> Any:
    return type("Made", (Slow,), {"held": Held()})(MemoryStore())


def changed(store: ZarrStore, method: str, value: bytes) -> None:
    if method == "set":
        store.set("g/k", value)
    elif method == "erase":
        store.erase("g/k")
    else:
        store.erase_prefix("g/" if method == "erase_prefix" else "")


CHANGES = ("set", "erase", "erase_prefix", "erase all")


@pytest.mark.parametrize("then", CHANGES)
@pytest.mark.parametrize(
    ("how", "first"), [*(("interrupt", first) for first in CHANGES), ("time-out", "set"), ("time-out", "erase")]
)
def test_stores_of_zarr_python(how: str, first: str, then: str) -> None:
    inner = slow()
    store = ZarrStore(inner)
    store.set("g/k", b"before")
    if how == "interrupt":
        interrupted(lambda: changed(store, first, b"old"), inner.held)
    else:
        inner.held.on = True
        with pytest.raises(StoreError, match=r"no answer in 0\.2 s"):
            changed(ZarrStore(inner, timeout=0.2), first, b"old")
    # Another store of the same place.
    comes_later(lambda: changed(ZarrStore(WrapperStore(inner._store)), then, b"new"), inner.held)
    assert store.get("g/k") == (b"new" if then == "set" else None)


def test_other_values_do_not_wait() -> None:
    inner = slow()
    store = ZarrStore(inner)
    interrupted(lambda: store.set("g/k", b"old"), inner.held)
    store.set("g/l", b"new")
    store.erase_prefix("h/")
    assert not inner.held.ended.is_set()
    inner.held.may.set()


def test_a_write_that_waits_too_long_changes_nothing() -> None:
    inner = slow()
    inner.held.on = True
    short = ZarrStore(inner, timeout=0.2)
    for value in (b"old", b"between"):
        with pytest.raises(StoreError, match=r"cannot write 'k': no answer in 0\.2 s"):
            short.set("k", value)
    inner.held.may.set()
    store = ZarrStore(inner)
    store.set("k", b"new")
    assert store.get("k") == b"new"


class SlowFiles(LocalFileSystem):  # type: ignore[misc]
    cachable = False
    held: Held

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        self.held()
        super().pipe_file(path, value, **options)

    def rm_file(self, path: str) -> None:
        self.held()
        super().rm_file(path)


class SlowObjects(AsynchronousFiles):
    cachable = False
    held: Held

    async def _pipe_file(self, path: str, value: bytes, *args: Any, **options: Any) -> None:
        await asyncio.to_thread(self.held)
        await super()._pipe_file(path, value, *args, **options)

    async def _rm_file(self, path: str, **options: Any) -> None:
        await asyncio.to_thread(self.held)
        await super()._rm_file(path, **options)


@pytest.mark.parametrize("first", [1, 0])
@pytest.mark.parametrize("then", [2, 0])
@pytest.mark.parametrize("kind", ["zarr", "memory", "files", "objects"])
def test_elements(kind: str, first: int, then: int, tmp_path: Path) -> None:
    """The interrupt comes to the main thread, and others write."""
    held = Held()
    given: Any
    if kind == "zarr":
        given = slow()
        held = given.held
    elif kind == "memory":
        given = type("Made", (SlowMemory,), {"held": held})()
    else:
        base = SlowFiles if kind == "files" else SlowObjects
        given = gzarr.FsspecStore(type("Made", (base,), {"held": held})(), str(tmp_path))
    array = gzarr.create_array(given, shape=(4,), dtype="i4", chunks=(4,))
    array[...] = 5
    interrupted(lambda: array.__setitem__(..., first), held)
    comes_later(lambda: array.__setitem__(..., then), held)
    np.testing.assert_array_equal(array[...], [then] * 4)
