"""Writers on other machines that pause: what they make is kept, or they are told that it is gone."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import StoreError
from gzarr.hierarchy import new_nodes
from gzarr.stores import LocalStore, leftovers, removal, temporary_names
from gzarr.stores.temporary_names import TEMPORARY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="directories are not made aside there")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all other writers for those of other machines."""
    monkeypatch.setattr(temporary_names, "_writer", (os.getpid(), f"{TEMPORARY}{'0' * 12}-1-1-"))
    monkeypatch.setattr(leftovers, "_scanned", set())


def age(root: Path, hours: float) -> None:
    then = time.time() - 3600 * hours
    for path in (root, *root.rglob("*")):
        os.utime(path, (then, then))


def test_a_directory_is_as_old_as_its_newest_change(tmp_path: Path, elsewhere: None) -> None:
    for name, of_newest in (("live", 2), ("dead", 25)):
        stage = tmp_path / f"{TEMPORARY}{'f' * 12}-1-1-{name}"
        for folder in ("c/0", "c/1/2", "c/3"):
            (stage / folder).mkdir(parents=True)
            (stage / folder / "0").write_bytes(b"value")
        age(stage, 30)
        then = time.time() - 3600 * of_newest
        os.utime(stage / "c" / "1" / "2", (then, then))
    LocalStore(tmp_path).set("key", b"")
    (left,) = tmp_path.glob(f"{TEMPORARY}*")
    assert left.name.endswith("live")
    assert len(list(left.rglob("0"))) == 4


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("below", ["", "x"], ids=["alone", "in a group"])
def test_what_was_made_aside_and_removed_is_not_put_in_place(
    overwrite: bool, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "g"
    old = np.arange(40)
    if below:
        gzarr.create_group(root)
    if overwrite:
        gzarr.create_array(root, path=below, data=old, chunks=10)
    real = new_nodes.set_documents

    def set_documents(store: LocalStore, documents: Any) -> None:
        # Writing the documents makes the directory anew, without the chunks.
        shutil.rmtree(store.root)
        real(store, documents)

    monkeypatch.setattr(new_nodes, "set_documents", set_documents)
    with pytest.raises(StoreError, match=r"another program has removed what was written.*write it again"):
        gzarr.create_array(root, path=below, data=old + 1, chunks=10, overwrite=overwrite)
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))
    if overwrite:
        np.testing.assert_array_equal(gzarr.open_array(root, path=below, device="cpu")[...], old)
    else:
        assert not (root / "zarr.json").exists() or list(gzarr.open_group(root, device="cpu")) == []


def test_a_leftover_is_gone_in_one_step(tmp_path: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = tmp_path / f"{TEMPORARY}{'f' * 12}-1-1-0"
    (stage / "c").mkdir(parents=True)
    age(stage, 25)
    real, seen = removal.remove_below, []

    def remove_below(*arguments: object, **named: object) -> None:
        seen.append(stage.exists())
        real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(removal, "remove_below", remove_below)
    LocalStore(tmp_path).set("key", b"")
    assert seen == [False]
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
