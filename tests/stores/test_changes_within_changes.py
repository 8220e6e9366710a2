"""Changes that a function, or a handler of a signal, makes in the middle of another change of the same thread."""

from __future__ import annotations

import json
import threading
import zlib
from collections import UserDict
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import pytest
from obstore.store import MemoryStore as ObjectMemory
from zarr.storage import MemoryStore as ZarrMemory

import gzarr
from gzarr.errors import StoreError
from gzarr.stores import CachedStore, locks
from gzarr.stores.locks import begin, between_processes, has_begun, hold, hold_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 30.0
PLACES: dict[str, Callable[[Path], Any]] = {
    "dict": lambda _: {},
    "mapping": lambda _: UserDict(),
    "directory": str,
    "fsspec": lambda path: f"memory://{path.name}",
    "mapper": lambda path: fsspec.get_mapper(f"memory://{path.name}-mapper"),
    "zarr": lambda _: ZarrMemory(),
    "obstore": lambda _: ObjectMemory(),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a moment only, where another thread may wait for this one."""
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.01)


def thread_of(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def finish(thread: threading.Thread) -> None:
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for ever"


# -- the same node -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_store_is_known_by_what_it_holds(place: str, tmp_path: Path) -> None:
    """Each call of ``open_group`` may make another object for it."""
    where = PLACES[place](tmp_path)
    group = gzarr.create_group(where, device="cpu", attributes={"a": 0})
    group.create_array("log", data=[1], chunks=4)

    def function(found: dict[str, Any]) -> dict[str, Any]:
        other = gzarr.open_group(where, mode="r+", device="cpu")
        # Another node.
        other["log"].attrs["y"] = 1
        with pytest.raises(StoreError, match=r"the documents of '/' in .* this thread is just changing it"):
            other.attrs["x"] = 1
        return {**found, "y": 2}

    group.attrs.change(function)
    assert dict(gzarr.open_group(where).attrs) == {"a": 0, "y": 2}
    with begin(group.store, "log", "shape"):
        array = gzarr.open_array(where, path="log", mode="r+", device="cpu")
        with pytest.raises(StoreError, match=r"the shape of '/log' in .* this thread is just changing it"):
            array.append([2])
        assert has_begun(CachedStore(array.store, tmp_path / "cache", 1 << 20, name="x"), "log", "shape")
        assert not has_begun(array.store, "log", "documents")
    array.append([2])
    assert array[...].tolist() == [1, 2]


def test_other_stores_are_changed_meanwhile() -> None:
    one, other = ({} for _ in range(2))
    groups = [gzarr.create_group(where) for where in (one, other)]

    def function(found: dict[str, Any]) -> dict[str, Any]:
        groups[1].attrs["x"] = 1
        return {"y": 2}

    groups[0].attrs.change(function)
    assert [dict(gzarr.open_group(where).attrs) for where in (one, other)] == [{"y": 2}, {"x": 1}]


# -- nodes that another thread is changing -----------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("place", ["dict", "directory"])
@pytest.mark.parametrize("work", ["create", "append", "erase"])
def test_who_could_wait_for_ever_is_refused(
    place: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread has the node, and waits for the documents of the groups above, which this thread has."""
    group = gzarr.create_group(PLACES[place](tmp_path), device="cpu")
    log = group.create_array("log", data=[0], chunks=4)
    works: dict[str, Callable[[], object]] = {
        "create": lambda: group.create_group("log", overwrite=True),
        "append": lambda: log.append([1]),
        "erase": lambda: group.__delitem__("log"),
    }
    has_node = threading.Event()
    hold_documents = gzarr.arrays.resize.hold_documents

    def holding(*args: Any, **options: Any) -> Any:
        has_node.set()
        return hold_documents(*args, **options)

    monkeypatch.setattr(gzarr.arrays.resize, "hold_documents", holding)
    threads = []

    def function(found: dict[str, Any]) -> dict[str, Any]:
        threads.append(thread_of(lambda: log.append([5])))
        assert has_node.wait(SECONDS)
        works[work]()
        return {"y": 2}

    with pytest.raises(StoreError, match=r"'/log.* another thread is changing this, and may wait for this thread"):
        group.attrs.change(function)
    finish(threads[0])
    assert dict(group.attrs) == {}
    assert log[...].tolist() == [0, 5]
    # Everything is free again.
    group.attrs["z"] = 1
    finish(thread_of(lambda: log.append([6])))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("documents", [False, True])
def test_locks_of_values_are_asked_for_in_order(documents: bool) -> None:
    store = gzarr.MemoryStore()
    keys = sorted((f"k{i}" for i in range(9)), key=lambda key: min(locks._numbers(None, [key])))
    first, last = keys[0], keys[-1]
    has_first = threading.Event()

    def other() -> None:
        with hold(store, [first], documents=documents):
            has_first.set()
            with hold(store, [last], documents=documents):
                pass

    with hold(store, [last], documents=documents):
        thread = thread_of(other)
        assert has_first.wait(SECONDS)
        with (
            pytest.raises(StoreError, match="another thread is changing this"),
            hold(store, [first], documents=documents),
        ):
            pytest.fail("held by two threads")
    finish(thread)
    with hold(store, keys, documents=documents):
        pass


@pytest.mark.usefixtures("impatient")
def test_documents_are_asked_for_before_chunks() -> None:
    store = gzarr.MemoryStore()
    has_documents = threading.Event()

    def other() -> None:
        with hold(store, ["documents"], documents=True):
            has_documents.set()
            with hold(store, ["c/0"]):
                pass

    with hold(store, ["c/0"]):
        thread = thread_of(other)
        assert has_documents.wait(SECONDS)
        with (
            pytest.raises(StoreError, match=r"the documents of '/' in .* another thread"),
            hold(store, ["documents"], documents=True),
        ):
            pytest.fail("held by two threads")
    finish(thread)


def test_a_thread_in_order_waits_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)
    store = gzarr.MemoryStore()
    asks, done = threading.Event(), []
    take = locks._hold_or_find

    def taking(mine: Any) -> Any:
        found = take(mine)
        if found is not None:
            asks.set()
        return found

    monkeypatch.setattr(locks, "_hold_or_find", taking)

    def other() -> None:
        with hold_node(store, "a"), hold(store, ["a/documents"], documents=True):
            done.append(1)

    with hold_node(store, "a"):
        thread = thread_of(other)
        assert asks.wait(SECONDS)
        assert not done
    finish(thread)
    assert done == [1]


def test_the_lock_of_a_node_between_processes_comes_before_that_of_documents(tmp_path: Path) -> None:
    """Another process that appends has the one, and waits for the other."""
    group = gzarr.create_group(tmp_path, device="cpu")
    log = group.create_array("log", data=[0], chunks=4)

    def function(found: dict[str, Any]) -> dict[str, Any]:
        log.append([1], lock=True)
        return {"y": 2}

    with pytest.raises(StoreError, match=r"'/log' in .* another process may be changing this with lock=True"):
        group.attrs.change(function, lock=True)
    assert dict(group.attrs) == {}
    group.attrs.change(function)
    with between_processes(group.store, (), "log/"):
        group.attrs.change(lambda found: {**found, "z": 3}, lock=True)
    assert dict(group.attrs) == {"y": 2, "z": 3}
    assert log[...].tolist() == [0, 1]


# -- moves within NCZarr -----------------------------------------------------------------------------------------------


def number(path: str) -> int:
    return zlib.crc32((f"{path}/documents" if path else "documents").encode()) % 256


def names_of_one_number() -> tuple[str, str]:
    """Return an array and a group that share a lock, which comes before that of the root."""
    for i in range(2000):
        for j in range(300):
            if number(f"n/v{i}") == number(f"q{j}") < number("") and number(f"n/v{i}") not in map(number, "nm"):
                return f"v{i}", f"q{j}"
    raise AssertionError("there are none")


@pytest.mark.usefixtures("impatient")
def test_a_move_within_nczarr_asks_for_no_more_locks() -> None:
    array, other = names_of_one_number()
    has_lock, begun = threading.Event(), threading.Event()

    class Values(UserDict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            super().__setitem__(key, value)
            if begun.is_set() and not threads:
                # It has the lock that an array that is moved would have, and waits for that of the root.
                threads.append(thread_of(change))
                assert has_lock.wait(SECONDS)

    class Lock:
        """The lock of both, which says that it is taken."""

        def __getattr__(self, name: str) -> Any:
            return getattr(lock, name)

        def acquire(self, *args: Any, **options: Any) -> bool:
            taken = lock.acquire(*args, **options)
            has_lock.set()
            return taken

    def change() -> None:
        gzarr.open_group(values, path=other, mode="r+", zarr_format=2).attrs["z"] = 1

    values, threads = Values(), list[threading.Thread]()
    root = gzarr.create_group(values, zarr_format=2, device="cpu")
    root.create_group("m")
    root.create_array(f"m/{array}", data=np.arange(3))
    root.create_group(other)

    members = {"dims": {}, "vars": [], "groups": ["m"]}
    documents = {
        "": {"_nczarr_superblock": {"version": "2.0.0"}, "_nczarr_group": members},
        "m/": {"_nczarr_group": {"dims": {"x": 3}, "vars": [array], "groups": []}},
        f"m/{array}/": {"_nczarr_array": {"dimrefs": ["/m/x"], "storage": "chunked"}},
    }
    for prefix, document in documents.items():
        values[f"{prefix}.zattrs"] = json.dumps(document).encode()
    root = gzarr.open_group(values, mode="r+", zarr_format=2, device="cpu")
    place, lock = number(other), locks._document_locks[number(other)]
    locks._document_locks[place] = Lock()
    begun.set()
    try:
        root.move("m", "n")
    finally:
        locks._document_locks[place] = lock
    finish(threads[0])
    assert gzarr.open_array(values, path=f"n/{array}", zarr_format=2).attrs["_nczarr_array"]["dimrefs"] == ["/n/x"]
    assert gzarr.open_group(values, path=other, zarr_format=2).attrs["z"] == 1
