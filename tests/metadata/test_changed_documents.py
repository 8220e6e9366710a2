"""Documents that change, or are written beside others: data and attributes stay what they were."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.documents import json as documents_json
from gzarr.documents.deferred import load_around

DRAFT: Any = "3-draft-2022"
VALUES = np.arange(1, 5, dtype="<i4")
NETCDF = {"_ARRAY_DIMENSIONS": ["x"]}
ENTRY = {
    "zarr_format": "https://purl.org/zarr/spec/core/3.0",
    "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"},
    "extensions": [],
}
ENTRY_OF_EARLY_DRAFT = {
    "zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0",
    "metadata_encoding": "https://purl.org/zarr/spec/protocol/core/3.0",
    "metadata_key_suffix": ".json",
    "extensions": [],
}
DELTA = [{"id": "delta", "dtype": "<i4", "astype": "<i4"}]


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def draft_array(**changes: Any) -> bytes:
    document = {
        "shape": [4], "data_type": "<i4", "chunk_grid": {"type": "regular", "chunk_shape": [4], "separator": "/"},
        "chunk_memory_layout": "C", "fill_value": 0, "extensions": [], "attributes": {},
    }  # fmt: skip
    return dumped(document | changes)


def elements(store: Any, path: str = "") -> list[int]:
    found: list[int] = gzarr.open_array(store, path=path, device="cpu")[:].tolist()
    return found


# -- drafts of version 3 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["data", "data/x", "data/data"])
def test_any_name_in_a_draft(path: str) -> None:
    store: dict[str, bytes] = {}
    group = gzarr.create_group(store, zarr_format=DRAFT, device="cpu")
    group.create_array(path, shape=(4,), chunks=(2,), dtype="i4")[:] = VALUES
    made = {"zarr.json", f"meta/{path}.array.json", f"data/{path}/c0", f"data/{path}/c1"}
    assert made <= set(store)
    assert [key for key in store if key.endswith("zarr.json")] == ["zarr.json"]
    assert elements(store, path) == VALUES.tolist()
    copied: dict[str, bytes] = {}
    gzarr.copy(gzarr.open_group(store), copied, zarr_format=DRAFT)
    assert elements(copied, path) == VALUES.tolist()


@pytest.mark.parametrize(
    ("entry", "path", "key"),
    [
        (ENTRY, "data", "meta/data.array.json"),
        (ENTRY, "data/x", "meta/data/x.array.json"),
        (ENTRY_OF_EARLY_DRAFT, "data/root/x", "meta/root/data/root/x.array.json"),
    ],
)
@pytest.mark.parametrize("base", ["", "inner/"])
def test_changes_of_any_name_in_a_draft(base: str, entry: dict[str, Any], path: str, key: str) -> None:
    store = {f"{base}zarr.json": dumped(entry), base + key: draft_array()}
    array = gzarr.open_array(store, path=base + path, mode="r+", device="cpu")
    array.attrs["k"] = 1
    array.resize((6,))
    assert set(store) == {f"{base}zarr.json", base + key}
    document = json.loads(store[base + key])
    assert (document["shape"], document["attributes"]) == ([6], {"k": 1})


class TestFiltersInAttributes:
    """Early drafts keep them there."""

    def store(self, attributes: dict[str, Any]) -> dict[str, bytes]:
        steps = np.diff(VALUES, prepend=VALUES.dtype.type(0)) if "filters" in attributes else VALUES
        return {
            "zarr.json": dumped(ENTRY_OF_EARLY_DRAFT),
            "meta/root/a.array.json": draft_array(attributes=attributes),
            "data/root/a/c0": steps.astype("<i4").tobytes(),
        }

    def test_stay(self) -> None:
        store = self.store({"filters": DELTA, "u": 1})
        attrs = gzarr.open_array(store, path="a", mode="r+", device="cpu").attrs
        for change in (attrs.clear, lambda: attrs.put({"filters": 5}), lambda: attrs.__delitem__("filters")):
            with pytest.raises(gzarr.errors.ArgumentError, match="keep that attribute as it is"):
                change()
        attrs.put({"filters": DELTA, "v": 2})
        assert json.loads(store["meta/root/a.array.json"])["attributes"] == {"filters": DELTA, "v": 2}
        assert elements(store, "a") == VALUES.tolist()

    def test_are_not_added(self) -> None:
        store = self.store({})
        attrs = gzarr.open_array(store, path="a", mode="r+", device="cpu").attrs
        with pytest.raises(gzarr.errors.ArgumentError, match="give that attribute another name"):
            attrs["filters"] = DELTA
        attrs["filters"] = "none"
        assert elements(store, "a") == VALUES.tolist()


# -- shuffles whose element size is open -------------------------------------------------------------------------------


def shuffled(attributes: dict[str, Any], elementsize: Any = 0) -> dict[str, bytes]:
    """Return what netCDF-C writes, or, without its attributes, what numcodecs does: no shuffle."""
    document = {
        "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "compressor": {"id": "zlib", "level": 1},
        "fill_value": 0, "order": "C", "filters": [{"id": "shuffle", "elementsize": elementsize}],
    }  # fmt: skip
    data = VALUES.view("u1").reshape(4, 4).T if attributes else VALUES
    return {".zarray": dumped(document), ".zattrs": dumped(attributes), "0": zlib.compress(data.tobytes())}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_consolidated_arrays_with_other_attributes(order: str) -> None:
    store = {".zgroup": dumped({"zarr_format": 2})}
    for name, attributes in (("a", NETCDF), ("b", {})):
        store |= {f"{name}/{key}": value for key, value in shuffled(attributes).items()}
    gzarr.consolidate_metadata(store)
    group: Any = gzarr.open_consolidated(store, device="cpu")
    assert [group[name][:].tolist() for name in order] == [VALUES.tolist()] * 2


@pytest.mark.parametrize(("before", "after", "size"), [(NETCDF, {"units": "K"}, 4), ({}, NETCDF, 1)])
def test_attributes_do_not_say_how_chunks_are_shuffled(
    before: dict[str, Any], after: dict[str, Any], size: int
) -> None:
    store = shuffled(before)
    array = gzarr.open_array(store, mode="r+", device="cpu")
    array.attrs["u"] = 1
    assert json.loads(store[".zarray"])["filters"] == [{"id": "shuffle", "elementsize": 0}]
    array.attrs.put(after)
    assert json.loads(store[".zarray"])["filters"] == [{"id": "shuffle", "elementsize": size}]
    assert elements(store) == VALUES.tolist()
    array[:] = VALUES[::-1]
    assert elements(store) == VALUES[::-1].tolist()


def test_attributes_do_not_say_which_bytes_are_not_shuffled() -> None:
    """netCDF-C's own shuffle leaves an incomplete element alone."""
    data = b"abcdefghijklmnopqrs"
    document = json.loads(shuffled({})[".zarray"]) | {"dtype": "|S1", "shape": [19], "chunks": [19], "fill_value": ""}
    stored = np.frombuffer(data[:16], "u1").reshape(2, 8).T.tobytes() + data[16:]
    store = {".zarray": dumped(document), ".zattrs": dumped(NETCDF), "0": zlib.compress(stored)}
    gzarr.open_array(store, mode="r+", device="cpu").attrs.clear()
    assert gzarr.open_array(store, device="cpu")[:].tobytes() == data


# -- fill values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, DRAFT])
def test_absent_chunks_without_a_fill_value(zarr_format: Any) -> None:
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32", "fill_value": None,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"_FillValue": -9},
    }  # fmt: skip
    source = {"a/zarr.json": dumped(document), "a/c/1": np.array([1, 2], "<i4").tobytes()}
    source["zarr.json"] = dumped({"zarr_format": 3, "node_type": "group"})
    copied: dict[str, bytes] = {}
    gzarr.copy(source, copied, zarr_format=zarr_format)
    assert elements(source, "a") == [0, 0, 1, 2]
    assert elements(copied, "a") == [0, 0, 1, 2]


# -- chunks of length 0 ------------------------------------------------------------------------------------------------

SHARDS = [
    {
        "extension": "https://purl.org/zarr/spec/extensions/storage-transformers/sharding/1.0",
        "type": "indexed",
        "configuration": {"chunks_per_shard": [2]},
    }
]


@pytest.mark.parametrize("changes", [{}, {"storage_transformers": SHARDS}], ids=["chunks", "shards"])
def test_empty_draft_array_grows(changes: dict[str, Any]) -> None:
    grid = {"type": "regular", "chunk_shape": [0], "separator": "/"}
    store = {"zarr.json": dumped(ENTRY), "meta/a.array.json": draft_array(shape=[0], chunk_grid=grid, **changes)}
    array = gzarr.open_array(store, path="a", mode="r+", device="cpu")
    array.resize((4,))
    array[:] = VALUES
    assert elements(store, "a") == VALUES.tolist()
    assert json.loads(store["meta/a.array.json"])["chunk_grid"] == grid | {"chunk_shape": [1]}


@pytest.mark.parametrize("lengths", [[0], [0, [2, 2]]], ids=["one", "two"])
def test_empty_rectilinear_array_grows(lengths: list[Any]) -> None:
    shape = [0, 4][: len(lengths)]
    document = {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int32", "fill_value": 0,
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": lengths}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }  # fmt: skip
    store = {"zarr.json": dumped(document)}
    array = gzarr.open_array(store, mode="r+", device="cpu")
    array.resize((4, *shape[1:]))
    array[...] = 7
    grown = gzarr.open_array(store, device="cpu")
    assert grown[...].tolist() == np.full((4, *shape[1:]), 7).tolist()
    assert json.loads(store["zarr.json"])["chunk_grid"]["configuration"]["chunk_shapes"] == [1, *lengths[1:]]


# -- long documents ----------------------------------------------------------------------------------------------------


def test_long_consolidated_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dumped({"metadata": {f"{i}/.zgroup": {"zarr_format": 2} for i in range(40)}})
    monkeypatch.setattr(documents_json, "MAX_DOCUMENT_BYTES", len(data))
    assert len(load_around(data, "k", ("metadata",))["metadata"]) == 40
    monkeypatch.setattr(documents_json, "MAX_DOCUMENT_BYTES", len(data) - 1)
    with pytest.raises(gzarr.errors.MetadataError, match="are not read as metadata"):
        load_around(data, "k", ("metadata",))
