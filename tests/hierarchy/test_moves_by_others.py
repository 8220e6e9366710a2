"""Moves while another process changes the same nodes: one gets a place, nothing is mixed, and the others are told.

A rival runs in the middle of a move, in the same thread, which the locks of threads let pass like another process.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, NodeNotFoundError, StoreError
from gzarr.nodes import moving
from gzarr.stores import LocalStore, MemoryStore, local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE, TWO = np.full(40, 1), np.full(40, 2)
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")


class Logged(LocalStore):
    """A directory of another class, whose nodes are copied aside."""


class Unstaged(Logged):
    """The same, without a place aside."""

    def stage(self, prefix: str, *, replace: bool) -> None:
        return None


def new_group(store: Any, zarr_format: Any = 3) -> gzarr.Group:
    group = gzarr.create_group(store, zarr_format=zarr_format, device="cpu")
    for name, data in (("a", ONE), ("b", TWO)):
        group.create_array(name, data=data, chunks=10, attributes={"of": name})
    return group


def run_between(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Run ``work`` once after both places were looked at, and before anything is moved."""
    original, left = moving.write_parents, [work]

    def write_parents(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return original(*arguments, **named)

    monkeypatch.setattr(moving, "write_parents", write_parents)


def rename(group: gzarr.Group) -> None:
    # As another process, or another program, does; a move in this one would be refused, for the place is claimed.
    root = group.store.root  # type: ignore[attr-defined]
    (root / "b").rename(root / "z")


RIVALS: dict[str, Callable[[gzarr.Group], object]] = {
    "rename": rename,
    "create": lambda group: group.create_array("z", data=TWO, chunks=10),
    "group": lambda group: group.create_group("z"),
}


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("kind", [LocalStore, Logged, Unstaged])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_place_that_another_process_has_taken(
    zarr_format: Any, kind: type[LocalStore], rival: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = new_group(kind(tmp_path), zarr_format)
    run_between(monkeypatch, lambda: RIVALS[rival](group))
    with pytest.raises(ArgumentError, match=r"there is an? .* at '/z' in .* already"):
        group.move("a", "z")
    assert group["a"][...].tolist() == ONE.tolist()
    if rival != "group":
        assert group["z"][...].tolist() == TWO.tolist()
    assert sorted(group) == (["a", "z"] if rival == "rename" else ["a", "b", "z"])
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set(group)


def test_a_place_that_is_taken_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told to erase what others have just made."""
    group, original, left = new_group(tmp_path), moving.inspect_location, [rename]

    def inspect(*arguments: Any) -> Any:
        found = original(*arguments)
        if left:
            left.pop()(group)
        return found

    monkeypatch.setattr(moving, "inspect_location", inspect)
    with pytest.raises(ArgumentError, match=r"there is an array at '/z' in .* already"):
        group.move("a", "z")
    assert group["z"][...].tolist() == TWO.tolist()


@pytest.mark.parametrize("kind", [LocalStore, Logged, Unstaged])
def test_a_node_that_another_process_has_moved(
    kind: type[LocalStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = new_group(kind(tmp_path))
    run_between(monkeypatch, lambda: group.move("a", "y"))
    with pytest.raises(NodeNotFoundError, match="'/a'"):
        group.move("a", "z")
    assert sorted(group) == ["b", "y"]
    assert group["y"][...].tolist() == ONE.tolist()


class Hooked(MemoryStore):
    """Values in memory, with work to do when a given key is read."""

    key, work = "", staticmethod(lambda: None)

    def get(self, key: str) -> bytes | None:
        if key == self.key:
            self.key = ""
            self.work()
        return super().get(key)


KEYS = [(2, "g/a/1"), (2, "g/a/.zarray"), (2, "g/.zgroup"), (3, "g/a/c/1"), (3, "g/a/zarr.json"), (3, "g/zarr.json")]


@pytest.mark.parametrize(("zarr_format", "key"), KEYS)
def test_documents_that_vanish_while_they_are_copied(
    zarr_format: Any, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Hooked()
    group = gzarr.create_group(store, zarr_format=zarr_format, device="cpu")
    group.create_group("g").create_array("a", data=ONE, chunks=10)
    store.work = lambda: gzarr.open_group(store, mode="r+", device="cpu").move("g", "y")
    run_between(monkeypatch, lambda: setattr(store, "key", key))
    with pytest.raises(NodeNotFoundError, match="erased or moved by another process"):
        group.move("g", "z")
    assert sorted(group) == ["y"]
    assert group["y/a"][...].tolist() == ONE.tolist()
    assert not list(store.list_prefix("z/"))


def test_a_place_that_is_taken_at_the_last_moment() -> None:
    store = Hooked()
    group = new_group(store)
    store.key, store.work = "a/zarr.json", lambda: group.create_group("z")
    with pytest.raises(ArgumentError, match=r"there is a group.* at '/z' .* already"):
        group.move("a", "z")
    assert isinstance(group["z"], gzarr.Group)
    assert group["a"][...].tolist() == ONE.tolist()


# Elsewhere links cannot be refused.
@pytest.mark.parametrize("follow", [True, False] if os.name == "posix" else [True])
@pytest.mark.parametrize("durable", [True, False])
def test_a_directory_is_renamed(durable: bool, follow: bool, tmp_path: Path) -> None:
    group = gzarr.create_group(LocalStore(tmp_path, durable=durable, follow_symlinks=follow), device="cpu")
    group.create_array("g/a", data=ONE, chunks=10)
    (tmp_path / "y/empty").mkdir(parents=True)
    before = (tmp_path / "g/a/c/0").stat().st_ino
    group.move("g/a", "new/x")
    assert (tmp_path / "new/x/c/0").stat().st_ino == before
    # An empty directory below the place is none that a rename replaces.
    group.move("new", "y")
    assert group["y/x"][...].tolist() == ONE.tolist()
    assert sorted(group) == ["g", "y"]


@needs_links
@pytest.mark.parametrize("what", ["chunk", "folder", "node", "place"])
def test_what_links_lead_to_is_copied(what: str, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    group = new_group(root)
    elsewhere.mkdir()
    if what == "place":
        (root / "z").symlink_to("../elsewhere")
        group.move("a", "z")
        assert group["z"][...].tolist() == ONE.tolist()
        assert (elsewhere / "zarr.json").exists()
        return
    place = {"chunk": "a/c/0", "folder": "a/c", "node": "a"}[what]
    (root / place).rename(elsewhere / "it")
    (root / place).symlink_to(os.path.relpath(elsewhere / "it", (root / place).parent))
    group.move("a", "far/away/z")
    assert group["far/away/z"][...].tolist() == ONE.tolist()
    # What was behind the link belongs to others.
    assert (elsewhere / "it").exists()
    assert sorted(group) == ["b", "far"]


@needs_links
def test_a_link_does_not_lead_a_move_into_its_source(tmp_path: Path) -> None:
    group = gzarr.create_group(tmp_path, device="cpu")
    group.create_array("g/a", data=ONE, chunks=10)
    (tmp_path / "link").symlink_to("g")
    with pytest.raises(ArgumentError, match="cannot be moved into itself"):
        group.move("g", "link/b")
    assert group["g/a"][...].tolist() == ONE.tolist()


def test_names_that_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is moved by then."""

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    group = new_group(LocalStore(tmp_path, durable=True))
    monkeypatch.setattr(local, "sync_directory", fail)
    with pytest.raises(StoreError, match="cannot flush the new name of 'a/': Input/output error"):
        group.move("a", "z")
    monkeypatch.undo()
    assert sorted(group) == ["b", "z"]
    assert group["z"][...].tolist() == ONE.tolist()
