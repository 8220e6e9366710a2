"""Moves of nodes that an interrupt, a failure or a killed process ends: they can be tried again."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.dying_store import DyingStore
from support.forks import in_child

import gzarr
from gzarr.errors import ArgumentError
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(1, 5)


class Timeout(Exception):
    """What a program's handler of a signal raises."""


class Interrupted(MemoryStore):
    """Values in memory, until a handler of a signal raises when a given key is written."""

    fatal = ""
    error: type[BaseException] = KeyboardInterrupt

    def set(self, key: str, value: Any) -> None:
        if key == self.fatal:
            self.fatal = ""
            raise self.error
        super().set(key, value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, Timeout])
@pytest.mark.parametrize("fatal", ["y/c/0", "y/c/3", "y/zarr.json"])
def test_an_interrupted_move_leaves_nothing(fatal: str, error: type[BaseException]) -> None:
    store = Interrupted()
    group = gzarr.create_group(store, device="cpu")
    group.create_array("x", data=DATA, chunks=1)
    before = {key: store.get(key) for key in store.list()}
    store.fatal, store.error = fatal, error
    with pytest.raises(error):
        group.move("x", "y")
    assert {key: store.get(key) for key in store.list()} == before
    group.move("x", "y")
    np.testing.assert_array_equal(gzarr.load(store, path="y"), DATA)


class Unstaged(DyingStore):
    """A directory, of a class that may do more, in which nothing can be made aside."""

    def stage(self, prefix: str, *, replace: bool) -> None:
        return None


def _killed_move(root: Path, fatal: str, kind: type[DyingStore] = Unstaged) -> gzarr.Group:
    store = kind(root, fatal, root.with_name("marker"))
    assert in_child(lambda: gzarr.open_group(store, mode="r+", device="cpu").move("x", "y")) == -signal.SIGKILL
    return gzarr.open_group(root, mode="r+", device="cpu")


def test_what_a_killed_move_of_an_array_left_can_be_erased_as_the_message_says(tmp_path: Path) -> None:
    root = tmp_path / "a.zarr"
    gzarr.create_group(root).create_array("x", data=DATA, chunks=1)
    group = _killed_move(root, "y/c/2")
    with pytest.raises(ArgumentError, match="would become part of it") as raised:
        group.move("x", "y")
    found = re.search(r"with (group\.store\.erase_prefix\('y/'\)),", str(raised.value))
    assert found is not None
    eval(found[1], {"group": group})
    group.move("x", "y")
    np.testing.assert_array_equal(group["y"][...], DATA)


def test_what_a_killed_move_of_a_group_left_can_be_deleted_as_the_message_says(tmp_path: Path) -> None:
    root = tmp_path / "a.zarr"
    inner = gzarr.create_group(root).create_group("x")
    inner.create_array("a", data=DATA, chunks=1)
    inner.create_array("b", data=DATA, chunks=1)
    group = _killed_move(root, "y/zarr.json")
    with pytest.raises(ArgumentError, match=r"there is a group, .* at '/y' .* already; delete it first") as raised:
        group.move("x", "y")
    # A move cannot replace what is there.
    assert "overwrite" not in str(raised.value)
    del group["y"]
    group.move("x", "y")
    np.testing.assert_array_equal(group["y/b"][...], DATA)


def test_a_killed_move_aside_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    root = tmp_path / "a.zarr"
    gzarr.create_group(root).create_array("x", data=DATA, chunks=1)
    group = _killed_move(root, "y/c/2", DyingStore)
    assert list(group) == ["x"]
    group.move("x", "y")
    np.testing.assert_array_equal(group["y"][...], DATA)


def test_a_refusal_says_what_is_at_the_destination() -> None:
    group = gzarr.create_group({})
    for name in ("x", "array"):
        group.create_array(name, data=DATA)
    group.create_group("group")
    group.create_array("implicit/a", data=DATA)
    group.store.erase("implicit/zarr.json")
    group.create_group("broken")
    group.store.set("broken/zarr.json", b"{}")
    for name, what in (
        ("array", "an array"),
        ("group", "a group"),
        ("implicit", "a group, with nodes below it,"),
        ("broken", "a node that cannot be read .*"),
    ):
        with pytest.raises(ArgumentError, match=f"^there is {what} at '/{name}' in .* already; delete it first"):
            group.move("x", name)
    assert "x" in group
