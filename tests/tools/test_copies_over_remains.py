"""Copies and saved arrays where chunks of an array are left that has no documents any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError
from gzarr.stores.memory import MemoryStore


def source(zarr_format: Any) -> dict[str, bytes]:
    """Return a group with an array of which only the first chunk is stored, and one in a group."""
    store: dict[str, bytes] = {}
    root = gzarr.create_group(store, zarr_format=zarr_format)
    root.create_array("x", shape=(6,), chunks=(2,), dtype="i4")[0:2] = 1
    root.create_array("g/y", shape=(6,), chunks=(2,), dtype="i4", fill_value=5)[2:4] = 2
    return store


def remains(zarr_format: Any, path: str) -> dict[str, bytes]:
    """Return the chunks of an array, without its documents."""
    store: dict[str, bytes] = {}
    gzarr.create_array(store, path=path, data=np.full(6, 9, "i4"), chunks=(2,), zarr_format=zarr_format)
    documents = (".zarray", ".zgroup", ".json")
    return {key: value for key, value in store.items() if not key.endswith(documents)}


@pytest.mark.parametrize("path", ["x", "g/y"])
@pytest.mark.parametrize("dest_path", ["", "to"])
@pytest.mark.parametrize("zarr_format", [2, 3, "3-draft-2022"])
def test_they_do_not_become_part_of_a_copy_of_a_group(zarr_format: Any, dest_path: str, path: str) -> None:
    there = f"{dest_path}/{path}".lstrip("/")
    left = {**remains(zarr_format, there), "notes.txt": b"of somebody"}
    assert len(left) == 4
    dest = dict(left)
    with pytest.raises(
        ArgumentError, match=rf"chunks without an array at '/{there}' in .* resume=True .*overwrite=True"
    ):
        gzarr.copy(source(zarr_format), dest, dest_path=dest_path, progress=False)
    assert dest == left
    for options in ({"overwrite": True}, {"resume": True}):
        dest = dict(left)
        copied = gzarr.copy(source(zarr_format), dest, dest_path=dest_path, progress=False, read_back=True, **options)
        assert copied["x"][...].tolist() == [1, 1, 0, 0, 0, 0]
        assert copied["g/y"][...].tolist() == [5, 5, 2, 2, 5, 5]
        assert dest["notes.txt"] == b"of somebody"


def test_what_is_not_a_chunk_of_the_copy_stays() -> None:
    dest = {**remains(2, "x"), "x/notes": b"of somebody"}
    gzarr.copy(source(2), dest, path="x", dest_path="x", overwrite=True, progress=False)
    assert sorted(dest) == [".zgroup", "x/.zarray", "x/0", "x/notes"]


class ListingStore(MemoryStore):
    """A store that notes what is listed."""

    def __init__(self, values: Any = None) -> None:
        super().__init__(values)
        self.listed: list[str] = []

    def list_prefix(self, prefix: str) -> Any:
        self.listed.append(prefix)
        return super().list_prefix(prefix)


def test_an_empty_place_is_not_searched_for_each_array() -> None:
    dest = ListingStore()
    gzarr.copy(source(3), dest, progress=False)
    assert not [prefix for prefix in dest.listed if prefix.endswith("/c/")]
    dest = ListingStore({"notes.txt": b"of somebody"})
    gzarr.copy(source(3), dest, progress=False)
    assert [prefix for prefix in dest.listed if prefix.endswith("/c/")] == ["g/y/c/", "x/c/"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_saved_arrays_replace_them_if_asked_to(zarr_format: Any) -> None:
    dest = remains(zarr_format, "x")
    with pytest.raises(ArgumentError, match="would be a chunk of it; pass overwrite=True"):
        gzarr.save(dict(dest), x=np.zeros(6, "i4"), zarr_format=zarr_format)
    gzarr.save(dest, x=np.arange(3), y=np.arange(2), zarr_format=zarr_format, overwrite=True)
    assert {name: array.tolist() for name, array in gzarr.load(dest).items()} == {"x": [0, 1, 2], "y": [0, 1]}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "/a"], "two arrays are named 'a'"),
        (["a", "a/b"], "cannot be named 'a/b': 'a' is an array"),
        (["g/a/b/c", "g/a"], "cannot be named 'g/a/b/c': 'g/a' is an array"),
        ([""], "needs a name, not ''"),
        (["a", "__x"], "version 3 reserves '__x'"),
        (["g/__x/y"], "version 3 reserves '__x'"),
        (["x/" * 200 + "y"], "at most 256"),
    ],
    ids=["same", "below", "above", "none", "reserved", "reserved-group", "deep"],
)
def test_impossible_names_are_found_before_anything_is_erased(names: list[str], message: str) -> None:
    group = "/".join(["g"] * 100)
    store: dict[str, bytes] = {}
    gzarr.create_array(store, path=group, data=[1, 2])
    before = dict(store)
    with pytest.raises(ArgumentError, match=message):
        gzarr.save(store, named=dict.fromkeys(names, np.ones(2)), path=group, overwrite=True)
    assert store == before


def test_similar_names_are_possible() -> None:
    store: dict[str, bytes] = {}
    gzarr.save(store, named={"a": np.ones(1), "a-b": np.ones(1), "/ab/": np.ones(1), "g/a": np.ones(1)})
    gzarr.save(store, named={"__x": np.ones(1)}, zarr_format=2, overwrite=True)
    assert list(gzarr.load(store)) == ["__x"]


@pytest.mark.parametrize("path", ["__x", "g/__x/y"])
def test_names_that_the_format_of_the_copy_reserves(path: str) -> None:
    store: dict[str, bytes] = {}
    gzarr.create_group(store, zarr_format=2).create_array(path, data=np.arange(3))
    dest: dict[str, bytes] = {}
    with pytest.raises(ArgumentError, match=r"__x' cannot be copied to Zarr format 3: .*'__x'.* reserves"):
        gzarr.copy(store, dest, zarr_format=3, lossy=True, progress=False)
    assert not dest
    assert gzarr.copy(store, dest, progress=False)[path][...].tolist() == [0, 1, 2]


def test_images_and_matrices_are_made_over_them() -> None:
    store: dict[str, bytes] = {"i/0/c/0/1": b"of an array", **remains(3, "m/data")}
    options: dict[str, Any] = {"axes": "yx", "chunks": (4, 4), "overwrite": True}
    image = gzarr.ome.create(store, path="i", shape=(4, 8), dtype="u1", **options)
    assert not image.level(0)[...].any()
    assert gzarr.sparse.create(store, shape=(0, 3), path="m", overwrite=True).shape == (0, 3)
    assert not [key for key in store if "/c/" in key and not key.startswith("m/indptr/")]
