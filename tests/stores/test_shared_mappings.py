"""Mappings, and what stores keep, that other threads change in the middle of an operation."""

from __future__ import annotations

import threading
from collections import OrderedDict, UserDict, deque
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from gzarr import FsspecStore, MemoryStore
from gzarr.engines import kernels
from gzarr.errors import StoreError
from gzarr.guarded import Lock
from gzarr.loader.ahead import ReadAhead
from gzarr.stores import cache_file, memory

if TYPE_CHECKING:
    from collections.abc import Iterator


class Changing(UserDict[str, Any]):
    """A mapping that is changed during the first iterations over it."""

    def __init__(self, values: dict[str, Any], times: int) -> None:
        super().__init__(values)
        self.left = times

    def __iter__(self) -> Iterator[str]:
        for key in self.data:
            yield key
            if self.left:
                self.left -= 1
                self.data[f"new{self.left}"] = b"1"


def test_a_mapping_that_others_change_is_listed() -> None:
    store = MemoryStore(Changing({"a": b"1", "b/c": b"2"}, 3))
    assert list(store.list()) == ["a", "b/c", "new0", "new1", "new2"]
    assert store.list_dir("b/") == (["b/c"], [])


def test_a_mapping_that_never_rests_is_an_error() -> None:
    mapping = Changing({"a": b"1"}, -1)
    store = MemoryStore(mapping)
    with pytest.raises(StoreError, match="cannot list '': RuntimeError: dictionary changed size"):
        list(store.list())
    assert mapping.left == -101


def test_a_filesystem_in_memory_that_others_change_is_listed() -> None:
    fs = fsspec.filesystem("memory", skip_instance_cache=True)
    store = FsspecStore(fs, "changed")

    class Files(dict[str, Any]):
        """Files of which one goes after the names were listed, and then another."""

        left = 2

        def __iter__(self) -> Iterator[str]:
            names = list(super().__iter__())
            if self.left:
                self.left -= 1
                del self[f"/changed/a/gone{self.left}"]
            return iter(names)

        def items(self) -> Any:
            found = super().items()
            iterator = iter(found)
            if self.left:
                self.left -= 1
                del self[f"/changed/a/gone{self.left}"]
            return iterator

    for list_all in (False, True):
        for name in ("a/b", "a/gone0", "a/gone1"):
            store.set(name, b"1")
        fs.store = Files(fs.store)
        found = list(store.list()) if list_all else store.list_dir("a/")[0]
        assert found == ["a/b"]
        assert not fs.store.left


def test_a_value_has_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread makes it after this one has found none."""

    class Versions(dict[int, Any]):
        looked = False

        def get(self, key: int, default: Any = None) -> Any:
            found = super().get(key, default)
            if not self.looked:
                self.looked = True
                thread = threading.Thread(target=lambda: others.append(store.version("a")))
                thread.start()
                thread.join(20)
            return found

    others: list[Any] = []
    monkeypatch.setattr(memory, "_versions", Versions())
    store = MemoryStore({"a": b"value"})
    assert store.version("a") is others[0]


def test_known_records_are_counted_while_nobody_changes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember(name: str) -> None:
        file = cache_file.CacheFile.__new__(cache_file.CacheFile)
        file._path, file._nonce, file._records, file._end = name, b"12345678", [(0, 1, 2)] * 9, 99
        file._remember()

    class Known(OrderedDict[str, Any]):
        def values(self) -> Any:
            if not threads:
                threads.append(threading.Thread(target=remember, args=("other",)))
                threads[0].start()
                threads[0].join(0.1)
                seen.append(list(self))
            return super().values()

    threads: list[threading.Thread] = []
    seen: list[list[str]] = []
    known = Known()
    monkeypatch.setattr(cache_file, "_known", known)
    remember("own")
    threads[0].join(20)
    assert seen == [["own"]]
    assert list(known) == ["own", "other"]


class Deque(deque[Any]):
    """A deque that others change during each iteration, as they may, but not while it is copied."""

    def __iter__(self) -> Any:
        raise RuntimeError("deque mutated during iteration")

    def copy(self) -> Any:
        return deque(self[i] for i in range(len(self)))


def test_requests_end_while_others_are_begun() -> None:
    class Asking:
        closed = False

        def close(self) -> None:
            self.closed = True

    from queue import SimpleQueue

    ahead = ReadAhead.__new__(ReadAhead)
    asking = [Asking(), Asking()]
    ahead._asking = Deque((0, one) for one in asking)
    ahead._lock, ahead._events, ahead.stopped = Lock(), SimpleQueue(), False
    ahead.stop()
    assert ahead.stopped
    assert all(one.closed for one in asking)
    assert ahead._events.qsize() == 1


def test_idle_workers_are_listed_while_others_take_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_idle", Deque([1, 2]))
    assert kernels.idle_workers() == [1, 2]
