"""Folders with hierarchies of several formats, N5 and drafts among them: a change in one hides none of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(4, dtype="u1")
DATASET = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
DRAFT = "3-draft-2022"


def n5() -> dict[str, bytes]:
    return {
        "n/attributes.json": b'{"n5": "4.0.0"}',
        "n/a/attributes.json": json.dumps(DATASET).encode(),
        "n/a/0": b"\0\0\0\1\0\0\0\4" + VALUES.tobytes(),
    }


def folder(kind: str) -> dict[str, bytes]:
    """Return a folder with a hierarchy ``n``, in which there is an array ``a``."""
    if kind == "n5":
        return n5()
    values: dict[str, bytes] = {}
    zarr_format: Any = {"v2": 2, "v3": 3, "draft": DRAFT}[kind]
    gzarr.create_array(values, path="n/a", data=VALUES, zarr_format=zarr_format, device="cpu")
    if kind == "draft":
        return {f"n/{key}".replace("root/n/", "root/").replace("a/n/", "a/"): values[key] for key in values}
    return {key: value for key, value in values.items() if key.startswith("n/")}


def opened(values: Any) -> gzarr.Group:
    return gzarr.open_group(values, mode="r+", device="cpu")


@pytest.mark.parametrize("kind", ["n5", "v2", "draft"])
@pytest.mark.parametrize("how", ["group", "array", "of group"])
def test_new_nodes_hide_none(kind: str, how: str, tmp_path: Path) -> None:
    given = folder(kind)
    store = gzarr.LocalStore(tmp_path)
    for key, value in given.items():
        store.set(key, value)
    before = opened(store)["n"].members(None)
    if how == "of group" and kind != "v2":
        opened(store).create_array("new/x", data=VALUES)
    elif how == "array":
        gzarr.create_array(store, path="new/x", data=VALUES, zarr_format=3, device="cpu")
    else:
        gzarr.create_group(store, path="new/x", zarr_format=3)
    root = opened(store)
    assert root.implicit
    assert list(root) == ["n", "new"]
    assert not root["new"].implicit  # type: ignore[union-attr]
    assert [path for path, _ in root["n"].members(None)] == [path for path, _ in before]  # type: ignore[union-attr]
    assert root["n/a"][...].tolist() == VALUES.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["v3", "broken"])
def test_folders_of_one_format_become_groups(kind: str) -> None:
    """Files of other programs may have the names of documents of N5."""
    values = folder("v3") | ({"x/attributes.json": b"{"} if kind == "broken" else {})
    gzarr.create_group(values, path="new", zarr_format=3)
    assert not opened(values).implicit


@pytest.mark.parametrize("kind", ["n5", "mixed"])
def test_folders_get_no_document(kind: str) -> None:
    values = folder("v3") | {key.replace("n/", "m/", 1): value for key, value in folder("v2").items()}
    if kind == "n5":
        values = n5()
    before = dict(values)
    for change in (
        lambda: opened(values).attrs.update(k=1),
        lambda: gzarr.create_group(values, zarr_format=3),
        lambda: opened(values).attrs.put({"k": 1}),
    ):
        with pytest.raises(ArgumentError, match=r"nodes of other formats|a group, with nodes below it"):
            change()  # type: ignore[no-untyped-call]
    assert values == before


@pytest.mark.parametrize("source", ["n", "n/a"])
def test_n5_is_not_moved(source: str) -> None:
    values = n5()
    with pytest.raises(ArgumentError, match=f"'/{source}' in .*: N5 is read, not written"):
        opened(values).move(source, "x")
    assert values == n5()


def test_moves_of_nodes_stay_in_their_format() -> None:
    values = folder("v3") | {key.replace("n/", "m/", 1): value for key, value in folder("v2").items()}
    root = opened(values)
    root.move("m/a", "x")
    assert list(root) == ["m", "n", "x"]
    assert root["x"].metadata.zarr_format == 2
    with pytest.raises(ArgumentError, match=r"the group '/n' has Zarr format 3, .*; move it elsewhere, or copy it"):
        root.move("x", "n/x")
    root.move("n/a", "n/b")
    assert root["n/b"][...].tolist() == root["x"][...].tolist() == VALUES.tolist()  # type: ignore[union-attr]


def test_moves_stay_in_a_draft() -> None:
    values = folder("draft")
    before = dict(values)
    root = opened(values)
    for source, dest, message in (
        ("n/a", "x", "is in the hierarchy of a draft of version 3 at '/n', and '/x' is not; copy it"),
        ("n", "m", "is a hierarchy of a draft of version 3, which moves only with its folder"),
    ):
        with pytest.raises(ArgumentError, match=message):
            root.move(source, dest)
    assert values == before
    root.move("n/a", "n/b")
    assert "n/a" not in root
    assert root["n/b"][...].tolist() == VALUES.tolist()  # type: ignore[union-attr]
