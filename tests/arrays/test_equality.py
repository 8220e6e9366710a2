"""``==`` of arrays, views and groups: the same node of the same store, in whatever mode each was opened."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import obstore.store
import pytest
import zarr

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = np.arange(12).reshape(3, 4)
#: What makes a place that is then opened with both modes.
PLACES: dict[str, Callable[[Path], Any]] = {
    "directory": lambda path: path,
    "dict": lambda path: {},
    "fsspec": lambda path: fsspec.get_mapper(f"memory://{path}"),
    "obstore": lambda path: obstore.store.MemoryStore(),
    "zarr": lambda path: zarr.storage.MemoryStore(),
    "zip": lambda path: str(path.with_suffix(".zip")),
}


def made(place: Any) -> None:
    with gzarr.ZipStore(place, mode="w") if isinstance(place, str) else contextlib.nullcontext(place) as store:
        group = gzarr.create_group(store)
        for name in ("x", "y"):
            group.create_array(name, data=DATA, chunks=2)


@pytest.mark.parametrize("kind", PLACES)
def test_modes_do_not_matter(kind: str, tmp_path: Path) -> None:
    place, other = (PLACES[kind](tmp_path / name) for name in ("one", "other"))
    made(place)
    made(other)
    read: Any
    changed: Any
    read, changed = (gzarr.open_group(place, mode=mode, device="cpu") for mode in ("r", "r+"))
    assert (read.read_only, changed.read_only) == (True, False)
    assert read == changed
    assert hash(read) == hash(changed)
    assert read != gzarr.open_group(other, mode="r+", device="cpu")
    assert read["x"] == changed["x"]
    assert read["x"].view[1:] == changed["x"].view[1:]
    assert read["x"].view[1:] != changed["x"].view[:1]
    assert read["x"] != changed["y"]
    assert read["x"] != gzarr.open_array(other, path="x", mode="r+", device="cpu")


def test_how_a_store_is_used_does_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "a"
    gzarr.create_array(root, data=DATA)
    plain = gzarr.open_array(root, device="cpu")
    assert plain == gzarr.open_array(gzarr.LocalStore(root, durable=True), mode="r+", device="cpu")
    read, changed = (
        gzarr.open_array(gzarr.CachedStore(gzarr.LocalStore(root, read_only=yes), tmp_path / "cache", 1 << 20))
        for yes in (True, False)
    )
    assert read == changed


def test_addresses() -> None:
    metadata = gzarr.create_array({}, data=DATA, device="cpu").metadata

    def at(bucket: str, **options: Any) -> gzarr.Array:
        store = gzarr.open_store(f"s3://{bucket}/a", storage_options={"region": "eu-west-1"}, **options)
        return gzarr.Array(metadata, store, "", device="cpu")

    assert at("one") == at("one", read_only=False)
    assert at("one") != at("two", read_only=False)
