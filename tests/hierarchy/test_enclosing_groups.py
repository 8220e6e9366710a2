"""Nodes that are opened by their own paths: consolidated metadata of the groups above are outdated by their changes."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

import gzarr
from gzarr.nodes import change
from gzarr.nodes.enclosing import enclosing_groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Version = Literal[2, 3]


def make(root: Path, zarr_format: Version) -> None:
    """Make the array ``g/a`` and the group ``g/b`` with an array."""
    options: Any = {"zarr_format": zarr_format}
    top = gzarr.create_group(root, attributes={"top": [1, 2]}, **options)
    top.create_array("g/a", data=np.arange(6, dtype="i4"), chunks=(3,))
    top.create_array("g/b/c", data=np.arange(4, dtype="i4"))
    gzarr.consolidate_metadata(root / "g")
    gzarr.consolidate_metadata(root)


def documents(root: Path) -> list[dict[str, Any]]:
    return [json.loads((root / below / "zarr.json").read_text()) for below in ("", "g")]


def have_index(root: Path, zarr_format: Version) -> list[bool]:
    """Return whether the group and the one below have consolidated metadata."""
    if zarr_format == 2:
        return [(root / below / ".zmetadata").exists() for below in ("", "g")]
    return ["consolidated_metadata" in document for document in documents(root)]


def opened(path: Any) -> gzarr.Array:
    return gzarr.open_array(path, mode="r+", device="cpu")


CHANGES: dict[str, Callable[[Path], Any]] = {
    "append": lambda g: opened(g / "a").append(np.arange(3, dtype="i4")),
    "resize": lambda g: opened(g / "a").resize(3),
    "update_attributes": lambda g: opened(g / "a").update_attributes({"x": 1}),
    "with lock": lambda g: opened(g / "a").update_attributes({"x": 1}, lock=True),
    "attributes of a group": lambda g: gzarr.open_group(g / "b", mode="r+").attrs.update(x=1),
    "overwritten": lambda g: gzarr.create_array(g / "a", shape=(2,), dtype="i4", overwrite=True, **like(g)),
    "overwritten with data": lambda g: gzarr.create_array(g / "a", data=[1], overwrite=True, **like(g)),
    "new array": lambda g: gzarr.create_array(g / "new", data=[1], **like(g)),
    "new group": lambda g: gzarr.create_group(g / "b/new", **like(g)),
    "copy": lambda g: gzarr.copy(g / "b", g / "new", progress=False),
    "delete": lambda g: gzarr.open_group(g / "b", mode="r+").__delitem__("c"),
    "move": lambda g: gzarr.open_group(g / "b", mode="r+").move("c", "d"),
    "child": lambda g: gzarr.open_group(g / "b", mode="r+").create_array("d", data=[1]),
    "cached": lambda g: opened(gzarr.CachedStore(gzarr.LocalStore(g / "a"), g.parents[1] / "cache", 1 << 20)).append(
        [1]
    ),
    "no links": lambda g: opened(gzarr.LocalStore(g / "a", follow_symlinks=False)).append([1]),
}


def like(g: Path) -> dict[str, Any]:
    return {"zarr_format": 2 if (g / ".zgroup").exists() else 3}


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_changes(change: str, zarr_format: Version, tmp_path: Path) -> None:
    root = tmp_path / "outside/x.zarr"
    make(root, zarr_format)
    before = documents(root) if zarr_format == 3 else []
    assert have_index(root, zarr_format) == [True, True]
    CHANGES[change](root / "g")
    assert have_index(root, zarr_format) == [False, False]
    for document in before:
        document.pop("consolidated_metadata", None)
    assert before == (documents(root) if zarr_format == 3 else [])


def test_what_is_no_change(tmp_path: Path) -> None:
    make(tmp_path, 3)
    a = opened(tmp_path / "g/a")
    a[2] = 7
    a.append(np.zeros(0, "i4"))
    a.attrs.update({})
    assert have_index(tmp_path, 3)[0]


def test_groups_one_follows_the_other(tmp_path: Path) -> None:
    """Beyond a directory without a node, and for links that are not followed, there is no group that has the node."""
    make(tmp_path, 3)

    def found(root: Path, **options: Any) -> tuple[Any, list[str]] | None:
        enclosing = enclosing_groups(gzarr.LocalStore(root, **options))
        return None if enclosing is None else (enclosing.store, enclosing.groups)

    whole = gzarr.LocalStore(tmp_path)
    assert found(tmp_path) is None
    assert found(tmp_path / "g") == (whole, [""])
    assert found(tmp_path / "g/b/c/not/there") is None
    assert found(tmp_path / "g/b/new") == (whole, ["g/b", "g", ""])
    (tmp_path / "plain").mkdir()
    assert found(tmp_path / "plain") == (whole, [""])
    assert found(tmp_path / "plain/a") is None
    assert found(tmp_path / "g/.gzarr-temporary-x") is None
    (tmp_path / "link").symlink_to("g/b")
    assert found(tmp_path / "link") == (whole, [""])
    assert found(tmp_path / "link/c") == (whole, ["link", ""])
    assert found(tmp_path / "link", follow_symlinks=False) is None
    assert found(tmp_path / "link/c", follow_symlinks=False) == (
        gzarr.LocalStore(tmp_path / "link", follow_symlinks=False),
        [""],
    )
    assert enclosing_groups(gzarr.MemoryStore()) is None


class Refusing(gzarr.LocalStore):
    """A directory whose own documents this user may not change."""

    number = errno.EACCES

    def set(self, key: str, value: Any) -> None:
        if key == "zarr.json" and self.root.name == "x.zarr":
            error = gzarr.StoreError(f"{self!r}: cannot write {key!r}: refused", key=key)
            error.errno = self.number
            raise error
        super().set(key, value)


def test_who_may_change_the_node_only_is_warned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "x.zarr"
    make(root, 3)
    a = gzarr.open_array(Refusing(root / "g/a"), mode="r+", device="cpu")
    with pytest.warns(UserWarning, match=r"may now be outdated.*refused; ask their owner"):
        a.append([7])
    assert gzarr.open_array(root / "g/a")[-1] == 7
    monkeypatch.setattr(Refusing, "number", errno.EIO)
    with pytest.raises(gzarr.StoreError, match="refused"):
        a.append([8])
    assert gzarr.open_array(root / "g/a").shape == (7,)


def test_no_change_of_a_group_above_is_lost(tmp_path: Path) -> None:
    make(tmp_path, 3)
    count, before, failed = 60, sys.getswitchinterval(), []

    def change_node() -> None:
        a = opened(tmp_path / "g/a")
        for i in range(count):
            gzarr.consolidate_metadata(tmp_path)
            a.attrs["x"] = i

    def change_group() -> None:
        top = gzarr.open_group(tmp_path, mode="r+")
        for i in range(3 * count):
            top.attrs[str(i)] = i

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(work,)) for work in (change_node, change_group)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
    attributes = dict(gzarr.open_group(tmp_path).attrs)
    assert attributes == {"top": [1, 2]} | {str(i): i for i in range(3 * count)}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["text", "list", "object", "array", "version", "pipe", "directory"])
def test_other_files_above_are_no_groups(tmp_path: Path, kind: str) -> None:
    above = tmp_path / "zarr.json"
    text = {
        "text": "no JSON",
        "list": "[1]",
        "object": '{"name": "x"}',
        "array": bytes(gzarr.array([1]).store.get("zarr.json")).decode(),
        "version": '{"zarr_format": 4, "node_type": "group", "consolidated_metadata": {}}',
    }
    if kind == "pipe":
        os.mkfifo(above)
    elif kind == "directory":
        above.mkdir()
    else:
        above.write_text(text[kind])
    gzarr.create_array(tmp_path / "a", data=np.arange(4), chunks=2)
    array = opened(tmp_path / "a")
    array.append([4, 5])
    array.attrs.change(lambda found: {**found, "x": 1}, lock=True)
    assert not any(tmp_path.glob(".*"))
    assert kind not in text or above.read_text() == text[kind]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidation_of_a_group_changes_no_node_above(tmp_path: Path, zarr_format: Version) -> None:
    make(tmp_path, zarr_format)
    gzarr.consolidate_metadata(tmp_path / "g")
    assert have_index(tmp_path, zarr_format) == [True, True]


def test_groups_above_are_looked_for_once_in_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 3)
    array = opened(tmp_path / "g/a")
    looks: list[Any] = []
    monkeypatch.setattr(change, "enclosing_groups", lambda store: looks.append(store) or enclosing_groups(store))
    array.attrs["x"] = 1
    assert len(looks) == 1
    assert have_index(tmp_path, 3) == [False, False]
    # What was known is forgotten with the change.
    gzarr.consolidate_metadata(tmp_path)
    array.attrs["x"] = 2
    assert len(looks) == 3
    assert have_index(tmp_path, 3) == [False, False]
