"""Creations that fail or meet others: each writer erases what is its own, and only that; a node has one maker.

A rival runs in the middle of a creation: in the same thread, which locks let pass like another process, or in one.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.forks import in_child

import gzarr
from gzarr.errors import ArgumentError, StoreError
from gzarr.nodes import change
from gzarr.stores import LocalStore, MemoryStore, locks
from gzarr.tools import consolidate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fork")
OLD, NEW = np.arange(1, 9), np.full(8, 1.5)


class Hooked(LocalStore):
    """A directory, with work to do once before a key that ends so is written or erased, in it or aside."""

    end, work = "", staticmethod(lambda: None)

    def _meet(self, key: str) -> None:
        if self.end and key.endswith(self.end):
            self.end = ""
            self.work()

    def set(self, key: str, value: Any) -> None:
        self._meet(key)
        super().set(key, value)

    def set_parts(self, key: str, parts: Any) -> None:
        self._meet(key)
        super().set_parts(key, parts)

    def create(self, key: str, value: Any) -> bool:
        self._meet(key)
        return super().create(key, value)

    def erase_prefix(self, prefix: str) -> None:
        super().erase_prefix(prefix)
        self._meet(prefix)


class Unstaged(Hooked):
    """The same, without a place aside."""

    def stage(self, prefix: str, *, replace: bool) -> None:
        return None


def fail() -> None:
    raise StoreError("made up")


def content(root: Path) -> dict[str, bytes | None]:
    store = LocalStore(root)
    return {key: store.get(key) for key in store.list()}


# -- failures


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("what", ["array", "group"])
def test_what_fails_to_replace_a_node_leaves_it(what: str, zarr_format: Any, tmp_path: Path) -> None:
    store = Hooked(tmp_path)
    group = gzarr.create_group(store, zarr_format=zarr_format)
    group.create_array("a/b", data=OLD)
    before = content(tmp_path)
    replaces: dict[str, Callable[[gzarr.Group], object]] = {
        "array": lambda group: group.create_array("a", shape=3, dtype="i4", overwrite=True),
        "group": lambda group: group.create_group("a", overwrite=True),
    }
    store.end, store.work = {2: {"array": ".zarray", "group": ".zgroup"}[what], 3: "zarr.json"}[zarr_format], fail
    with pytest.raises(StoreError, match="made up"):
        replaces[what](group)
    assert content(tmp_path) == before
    assert not list(tmp_path.rglob(".gzarr-temporary-*"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreError])
def test_a_failed_creation_leaves_the_chunks_of_a_rival(error: type[BaseException], tmp_path: Path) -> None:
    store = Unstaged(tmp_path)
    gzarr.create_group(store)

    def create_and_fail() -> None:
        gzarr.create_array(tmp_path, path="a", data=OLD, chunks=2)
        raise error

    # As for another process where nothing is claimed.
    store.end, store.work = "a/c/0", create_and_fail
    with pytest.raises((error, gzarr.GzarrError)):
        gzarr.create_array(store, path="a", data=OLD, chunks=2)
    assert gzarr.load(tmp_path, path="a").tolist() == OLD.tolist()


def test_documents_that_fail_leave_no_attributes(tmp_path: Path) -> None:
    store = Hooked(tmp_path)
    group = gzarr.create_group(store, zarr_format=2)
    store.end, store.work = ".zarray", fail
    with pytest.raises(StoreError, match="made up"):
        group.create_array("a", shape=3, dtype="i4", attributes={"units": "K"})
    assert list(content(tmp_path)) == [".zgroup"]


# -- what erased nodes have left


@pytest.mark.parametrize("made", ["array", "data", "overwrite", "group", "a group above", "consolidated"])
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_attributes_that_an_erased_node_has_left(kind: str, made: str, tmp_path: Path) -> None:
    store = LocalStore(tmp_path) if kind == "directory" else MemoryStore()
    root = gzarr.create_group(store, zarr_format=2, device="cpu")
    store.set("a/.zattrs", b'{"units": "K"}')
    if made == "array":
        root.create_array("a", shape=3, dtype="i4")
    elif made == "data":
        root.create_array("a", data=OLD)
    elif made == "overwrite":
        root.create_array("a", data=OLD, overwrite=True)
    elif made == "group":
        root.create_group("a")
    elif made == "a group above":
        root.create_array("a/b", data=OLD)
    else:
        store.set("a/.zmetadata", b'{"zarr_consolidated_format": 1, "metadata": {".zattrs": {"units": "K"}}}')
        root.create_group("a")
    assert dict(gzarr.open(store, path="a", device="cpu").attrs) == {}


# -- rivals


@pytest.mark.parametrize("kind", [Hooked, Unstaged])
def test_what_replaces_a_node_has_no_chunks_of_a_rival(kind: type[Hooked], tmp_path: Path) -> None:
    store = kind(tmp_path)
    gzarr.create_group(store).create_array("a", data=OLD)
    rival = lambda: gzarr.create_array(tmp_path, path="a", data=NEW, overwrite=True)  # noqa: E731
    store.end, store.work = ("a/" if kind is Unstaged else "a/zarr.json"), rival
    if kind is Unstaged:
        with pytest.raises(ArgumentError, match="which another writer was creating at the same time; try again"):
            gzarr.create_array(store, path="a", shape=8, dtype="i8", overwrite=True)
        assert gzarr.load(tmp_path, path="a").tolist() == NEW.tolist()
    else:
        gzarr.create_array(store, path="a", shape=8, dtype="i8", overwrite=True)
        assert gzarr.load(tmp_path, path="a").tolist() == [0] * 8


@pytest.mark.parametrize("end", ["b/c/1", "b/zarr.json"])
@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_move_leaves_what_a_rival_has_made(error: Any, end: str, tmp_path: Path) -> None:
    store = Unstaged(tmp_path)
    group = gzarr.create_group(store)
    group.create_array("a", data=OLD, chunks=2)

    def create() -> None:
        LocalStore(tmp_path).set("b/c/3", b"the rival's")
        LocalStore(tmp_path).set("b/zarr.json", (tmp_path / "zarr.json").read_bytes())
        if error is not None:
            raise error

    store.end, store.work = end, create
    with pytest.raises(error or ArgumentError):
        group.move("a", "b")
    assert group["a"][...].tolist() == OLD.tolist()
    assert (tmp_path / "b" / "zarr.json").read_bytes() == (tmp_path / "zarr.json").read_bytes()
    if end == "b/c/1":
        # Those that the move has copied by then are its own.
        assert sorted(path.name for path in (tmp_path / "b" / "c").iterdir()) == ["3"]


def test_a_move_writes_the_document_that_makes_the_node_last(tmp_path: Path) -> None:
    store = Unstaged(tmp_path)
    group = gzarr.create_group(store, zarr_format=2)
    group.create_array("a", data=OLD, attributes={"units": "K"})
    seen: list[str] = []
    store.end, store.work = "b/.zarray", lambda: seen.extend(path.name for path in (tmp_path / "b").iterdir())
    group.move("a", "b")
    assert sorted(seen) == [".zattrs", "0"]


def _race(tmp_path: Path, rival: Callable[[gzarr.Group], object]) -> int:
    """Create an array of version 2, with attributes, while another process has written those of its node."""
    store = Hooked(tmp_path)
    gzarr.create_group(store, zarr_format=2)
    context = multiprocessing.get_context("fork")
    started, done = context.Event(), context.Event()

    def slowly() -> None:
        own = Hooked(tmp_path)

        def pause() -> None:
            started.set()
            done.wait(0.5)

        own.end, own.work = "a/.zarray", pause
        gzarr.open_group(own, mode="r+").create_array("a", shape=3, dtype="i4", attributes={"who": "first"})

    process = context.Process(target=slowly)
    process.start()
    assert started.wait(30)

    def work() -> None:
        try:
            rival(gzarr.open_group(tmp_path, mode="r+"))
        except ArgumentError:
            os._exit(3)
        finally:
            done.set()

    code = in_child(work)
    process.join(30)
    assert process.exitcode == 0
    return code


RIVALS: dict[str, Callable[[gzarr.Group], object]] = {
    "array": lambda group: group.create_array("a", shape=3, dtype="i4", attributes={"who": "second"}),
    "data": lambda group: group.create_array("a", data=OLD, attributes={"who": "second"}),
    "group": lambda group: group.create_group("a"),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_of_two_processes_that_create_a_node_one_makes_all_of_it(rival: str, tmp_path: Path) -> None:
    assert _race(tmp_path, RIVALS[rival]) == 3
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".zarray", ".zattrs"]
    assert dict(gzarr.open_array(tmp_path, path="a").attrs) == {"who": "first"}
    assert not list(tmp_path.glob(".gzarr-temporary-*"))


def test_a_process_waits_for_who_is_creating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The other one may take longer than usual on a busy machine.
    monkeypatch.setattr(locks, "_PATIENCE_S", 25.0)
    assert _race(tmp_path, lambda group: group.require_array("a", shape=3, dtype="i4")) == 0


# -- handlers of signals


def _meanwhile(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, work: Callable[[], object], after: int) -> None:
    """Call ``work`` once after a function has returned for the given time, as a handler of a signal does."""
    original, left = getattr(module, name), [work] * after

    def function(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if left:
            left.pop()
            if not left:
                work()
        return result

    monkeypatch.setattr(module, name, function)


@pytest.mark.parametrize("what", ["removed", "written"])
def test_a_handler_cannot_change_a_group_whose_consolidated_metadata_change(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = gzarr.create_group(tmp_path)
    array = group.create_array("a", shape=3, dtype="i4")
    gzarr.consolidate_metadata(tmp_path)
    refused: list[str] = []

    def handle() -> None:
        try:
            group.attrs["stopped"] = True
        except StoreError as error:
            refused.append(str(error))
        if what == "removed":
            # Of nodes below, attributes may change: the same metadata are removed.
            array.attrs["handled"] = 1

    if what == "removed":
        # The second look follows the locks.
        _meanwhile(monkeypatch, change, "_without_indexes", handle, 2)
        group.create_array("b", shape=3, dtype="i4")
    else:
        _meanwhile(monkeypatch, consolidate, "_consolidated", handle, 1)
        gzarr.consolidate_metadata(tmp_path)
    (message,) = refused
    assert "let a handler set a flag for the program" in message
    found = gzarr.open_group(tmp_path)
    assert (dict(found.attrs), found.consolidated) == ({}, what == "written")
    assert dict(array.attrs) == ({"handled": 1} if what == "removed" else {})
