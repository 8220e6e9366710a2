"""Engines decide by the capabilities of a store, not by its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.stores import locks
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

CAPABILITIES = ("file_root", "directory", "file_writer", "contains")


def foreign(root: Path, *without: str) -> Any:
    """Make a store of another class, with the methods of :class:`LocalStore` except for some."""
    inner, calls = LocalStore(root), []

    def recorded(name: str) -> Any:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            calls.append(name)
            return getattr(inner, name)(*args, **options)

        return call

    public = [name for name in dir(LocalStore) if not name.startswith("_") and name not in without]
    methods = {name: recorded(name) for name in public if callable(getattr(LocalStore, name))}
    # Protocols look at the class, so what a store can do must be found there.
    return type("Foreign", (), methods | {"calls": calls, "read_only": False, "root": inner.root})()


@pytest.mark.parametrize("without", [(), CAPABILITIES])
def test_files_are_written_by_the_engine_if_the_store_says_how(tmp_path: Path, without: tuple[str, ...]) -> None:
    store = foreign(tmp_path, *without)
    array = gzarr.create_array(store, shape=40, dtype="i4", chunks=10, device="cpu")
    store.calls.clear()
    array[...] = np.arange(40)
    stored = sum(name.startswith("set") for name in store.calls)
    assert ("file_writer" in store.calls, stored) == ((False, 4) if without else (True, 0))
    np.testing.assert_array_equal(gzarr.open_array(tmp_path, device="cpu")[...], np.arange(40))


def test_a_class_that_may_do_more_when_it_is_set_is_set(tmp_path: Path) -> None:
    class Derived(LocalStore):
        pass

    assert LocalStore(tmp_path).file_writer() is not None
    assert LocalStore(tmp_path, follow_symlinks=False).file_writer() is None
    assert Derived(tmp_path).file_writer() is None


@pytest.mark.parametrize("value", [b"1234", bytearray(b"1234")])
def test_what_a_store_contains(tmp_path: Path, value: Any) -> None:
    local = LocalStore(tmp_path)
    local.set("a/b", value)
    for store in (local, MemoryStore({"a/b": value})):
        assert store.contains(["a", "a/b", "c", "a/b"]) == [False, True, False, True]
        with pytest.raises(gzarr.ArgumentError):
            store.contains(["../a"])


def test_one_directory_has_one_lock(tmp_path: Path) -> None:
    """Whatever the class of a store, and whether it follows links or not, its files are the same."""
    stores = (LocalStore(tmp_path), LocalStore(tmp_path, follow_symlinks=False), foreign(tmp_path))
    assert len({locks._root(store) for store in stores}) == 1


def _number(root: bytes | None, key: str) -> int:
    (number,) = locks._numbers(root, [key])
    return number


def test_one_file_has_one_lock(tmp_path: Path) -> None:
    """Nested stores, links to stores and links inside of them lead to the same files."""
    (tmp_path / "real" / "a" / "c" / "0").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "b").symlink_to("a")
    (tmp_path / "real" / "a" / "c" / "1").symlink_to("0")
    ways = [
        (tmp_path / "real", "a/c/0/7"),
        (tmp_path / "real" / "a", "c/0/7"),
        (tmp_path / "link", "a/c/0/7"),
        (tmp_path / "link" / "b", "c/0/7"),
        (tmp_path, "link/b/c/1/7"),
        (tmp_path / "real" / ".." / "link", "b/c/0/7"),
    ]
    assert len({_number(locks._root(LocalStore(root)), key) for root, key in ways}) == 1
    nodes = [(tmp_path / "real", "a"), (tmp_path / "real" / "b", ""), (tmp_path, "link/a")]
    assert len({_number(locks._root(LocalStore(root)), f"{path}/") for root, path in nodes}) == 1
    others = {_number(locks._root(LocalStore(tmp_path / "real")), f"a/c/0/{i}") for i in range(50)}
    assert len(others) > 10
    assert _number(None, "a/c/0") != _number(None, "a/c/1")
    assert locks._real(b"/") == locks._real(b"//") == b"/"


def test_folders_that_come_later_have_the_lock_of_their_files(tmp_path: Path) -> None:
    """What is not there is not remembered."""
    root = locks._root(LocalStore(tmp_path))
    _number(root, "link/c/0/7")
    (tmp_path / "real" / "c" / "1").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert _number(root, "link/c/1/7") == _number(root, "real/c/1/7")
    assert _number(root, "link/c/0/7") == _number(root, "real/c/0/7")
