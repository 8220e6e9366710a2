"""What engines do with a store hangs on what it can do, not on what class it is."""

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


class Foreign:
    """A store of some other class, which has what a :class:`LocalStore` has but for some methods."""

    def __init__(self, root: Path, *without: str) -> None:
        self.inner = LocalStore(root)
        self.without = without
        self.calls: list[str] = []
        self.read_only = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.without:
            raise AttributeError(name)
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            return found(*args, **options)

        return call


@pytest.mark.parametrize("without", [(), CAPABILITIES])
def test_files_are_written_by_the_engine_if_the_store_says_how(tmp_path: Path, without: tuple[str, ...]) -> None:
    store = Foreign(tmp_path, *without)
    array = gzarr.create_array(store, shape=40, dtype="i4", chunks=10, device="cpu")  # type: ignore[arg-type]
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
    """Whether a store follows links or not, and whatever class it is of, its files are the same ones."""
    stores = (LocalStore(tmp_path), LocalStore(tmp_path, follow_symlinks=False), Foreign(tmp_path))
    assert len({locks._root(store) for store in stores}) == 1
