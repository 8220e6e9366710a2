"""Documents of arrays and groups of every version: parsed, written and parsed again, they have the same meaning."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.draft_hierarchies import ARRAY, ENTRY, ROOT_ENTRY, SHARDED, encode
from support.golden_stores import GOLDEN, unpack

from gzarr.errors import ArgumentError, MetadataError
from gzarr.metadata import layout as v3_draft
from gzarr.metadata.chunk_grid import ChunkGrid, RectilinearAxis, RegularAxis
from gzarr.metadata.model import ArrayMetadata, GroupMetadata
from gzarr.metadata.to_documents import (
    array_documents,
    group_documents,
    group_with_attributes,
    plain,
    resized,
    with_attributes,
)
from gzarr.nodes.change import reader_of
from gzarr.nodes.entries import Entry
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gzarr.metadata.layout import Layout
    from gzarr.metadata.model import NodeMetadata

# Those of images have their own kind of expected results, and N5 is not written.
ARCHIVES = sorted(
    name for path in GOLDEN.rglob("*.tar.xz") if not (name := str(path.relative_to(GOLDEN))).startswith(("ome", "n5"))
)


def parsed(documents: dict[str, bytes], path: str, like: NodeMetadata) -> Any:
    reader = dataclasses.replace(reader_of(MemoryStore(dict(documents))), use_consolidated=None)
    entry = reader.node(path, like.zarr_format)
    assert isinstance(entry, Entry)
    return entry.metadata


def same_value(a: Any, b: Any) -> bool:
    if isinstance(a, np.generic) and isinstance(b, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (a == b or a is b)


def said(metadata: NodeMetadata) -> dict[str, Any]:
    """Return a node's metadata without the text that it was parsed from."""
    values = {f.name: getattr(metadata, f.name) for f in dataclasses.fields(metadata) if f.name != "document"}
    if "consolidated" in values:
        values["consolidated"] = None if values["consolidated"] is None else sorted(values["consolidated"])
    values["attributes"] = json.dumps(values["attributes"], sort_keys=True)
    return values


def check_same(ours: NodeMetadata, theirs: NodeMetadata) -> None:
    a, b = said(ours), said(theirs)
    if isinstance(ours, ArrayMetadata):
        assert same_value(a.pop("fill_value"), b.pop("fill_value"))
    assert a == b


def nodes(archive: str) -> Iterator[tuple[str, NodeMetadata, dict[str, bytes]]]:
    """Yield every node of the stores of an archive, with its path and the keys of its store."""
    for keys in unpack(archive)[0].values():
        reader = reader_of(MemoryStore(dict(keys)))
        pending = [("", reader.node("", None))]
        while pending:
            path, entry = pending.pop()
            assert entry is not None
            if isinstance(entry.metadata, MetadataError):  # of a codec that is not known; reading is not tested here
                continue
            yield path, entry.metadata, keys
            if isinstance(entry.metadata, GroupMetadata):
                below = reader.children(path, entry.metadata.children_format)
                pending += [(f"{path}/{name}" if path else name, entry) for name, entry in below.items()]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_what_others_wrote_is_written_as_it_was(archive: str) -> None:
    count = 0
    for path, metadata, keys in nodes(archive):
        if isinstance(metadata, GroupMetadata) and metadata.implicit:
            continue
        count += 1
        if isinstance(metadata, ArrayMetadata):
            documents = array_documents(metadata, path)
        else:
            documents = group_documents(metadata, path, layout_of(keys, path))
        for key, value in documents.items():
            ours, theirs = json.loads(value), json.loads(keys[key])
            # What is for the reader of a store as a whole is not the node's.
            theirs.pop("consolidated_metadata", None)
            assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True), key
        check_same(parsed(documents, path, metadata), metadata)
    assert count


def layout_of(keys: dict[str, bytes], path: str) -> Layout | None:
    return reader_of(MemoryStore(dict(keys))).layout(path)


@pytest.mark.parametrize("archive", ARCHIVES)
def test_from_the_model_alone(archive: str) -> None:
    """Documents made without the parsed ones describe the same array."""
    count = 0
    for path, metadata, _ in nodes(archive):
        if not isinstance(metadata, ArrayMetadata):
            continue
        count += 1
        kept = {k: v for k, v in metadata.document.items() if k == v3_draft.ENTRY_POINT}
        documents = array_documents(dataclasses.replace(metadata, document=kept), path)
        ours, theirs = said(parsed(documents, path, metadata)), said(metadata)
        for values in (ours, theirs):
            # Version 3 has several names for a type; codecs may name defaults that a document left out.
            del values["data_type"], values["codecs"]
            values["fill_value"] = repr(values["fill_value"])
        assert ours == theirs, path
    assert count


def v3_array(**changes: Any) -> dict[str, Any]:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [5, 7],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": "NaN",
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    return {**document, **changes}


def read(documents: dict[str, Any], path: str = "") -> Any:
    keys = {name: encode(value) for name, value in documents.items()}
    entry = reader_of(MemoryStore(keys)).node(path, None)
    assert entry is not None
    return entry.metadata


def array(**changes: Any) -> ArrayMetadata:
    metadata = read({"zarr.json": v3_array(**changes)})
    assert isinstance(metadata, ArrayMetadata)
    return metadata


class TestResized:
    def test_members_that_need_not_be_understood_stay(self) -> None:
        extra = {"must_understand": False, "colour": "red"}
        metadata = resized(array(extra=extra, attributes={"a": 1}), (9, 1))
        document = json.loads(array_documents(metadata, "x")["x/zarr.json"])
        assert document == v3_array(extra=extra, attributes={"a": 1}, shape=[9, 1])
        assert metadata.shape == (9, 1)
        check_same(parsed(array_documents(metadata, "x"), "x", metadata), metadata)

    def test_rectilinear_grids_get_more_chunks(self) -> None:
        grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[2, [1, 3]], 3]}}
        metadata = resized(array(chunk_grid=grid), (7, 4))
        document = json.loads(array_documents(metadata, "")["zarr.json"])
        assert document["chunk_grid"]["configuration"]["chunk_shapes"] == [[2, [1, 5]], 3]
        check_same(parsed(array_documents(metadata, ""), "", metadata), metadata)
        # Chunks that are there stay, however they are written.
        smaller = resized(metadata, (1, 4))
        assert smaller.grid_shape[0] == 6
        assert smaller.document["chunk_grid"] == document["chunk_grid"]

    @pytest.mark.parametrize("shape", [(1,), (1, 2, 3), (-1, 2), (1.5, 2), "ab", None, (2**63, 1), (True,)])
    def test_wrong_shapes(self, shape: Any) -> None:
        with pytest.raises(ArgumentError):
            resized(array(), shape)

    @pytest.mark.parametrize("entry", [ENTRY, ROOT_ENTRY])
    @pytest.mark.parametrize("document", [ARRAY, SHARDED])
    def test_drafts(self, entry: dict[str, Any], document: dict[str, Any]) -> None:
        where = "h/meta/root/a.array.json" if entry is ROOT_ENTRY else "h/meta/a.array.json"
        metadata = read({"h/zarr.json": entry, where: document}, "h/a")
        changed = with_attributes(resized(metadata, (60, 5)), {"units": "s"})
        documents = array_documents(changed, "h/a")
        assert sorted(documents) == sorted(["h/zarr.json", where])
        assert json.loads(documents["h/zarr.json"]) == entry
        assert json.loads(documents[where]) == document | {"shape": [60, 5], "attributes": {"units": "s"}}
        check_same(parsed(documents, "h/a", changed), changed)


class TestWithoutDocument:
    def test_rectilinear(self) -> None:
        grid = ChunkGrid((RectilinearAxis(7, np.array([1, 2, 2, 2])), RegularAxis(7, 3)))
        metadata = dataclasses.replace(array(), document={}, chunk_grid=grid)
        documents = array_documents(metadata, "")
        written = json.loads(documents["zarr.json"])["chunk_grid"]
        assert written["configuration"]["chunk_shapes"] == [[1, [2, 3]], 3]
        check_same(parsed(documents, "", metadata), metadata)

    @pytest.mark.parametrize("zarr_format", [1, 2, v3_draft.FORMAT])
    def test_what_older_formats_have_no_words_for(self, zarr_format: Any) -> None:
        grid = ChunkGrid((RectilinearAxis(5, np.array([1, 2, 2])), RegularAxis(7, 3)))
        metadata = dataclasses.replace(
            array(), document={}, chunk_grid=grid, zarr_format=zarr_format, data_type="<f4", chunk_prefix="data/a/"
        )
        with pytest.raises(ArgumentError, match="rectilinear"):
            array_documents(metadata, "a")

    def test_nested_shards_in_a_draft(self) -> None:
        document = SHARDED | {"storage_transformers": [*SHARDED["storage_transformers"]] * 2}
        metadata = read({"zarr.json": ENTRY, "meta/a.array.json": document}, "a")
        fresh = dataclasses.replace(metadata, document={v3_draft.ENTRY_POINT: ENTRY})
        again = parsed(array_documents(fresh, "a"), "a", metadata)
        assert (again.chunk_shape, again.codecs) == (metadata.chunk_shape, metadata.codecs)


class TestGroups:
    @pytest.mark.parametrize("zarr_format", [2, 3, v3_draft.FORMAT])
    def test_new(self, zarr_format: Any) -> None:
        metadata = GroupMetadata(attributes={"a": [1, {"b": None}]}, zarr_format=zarr_format)
        documents = group_documents(metadata, "x/y")
        again = parsed(documents, "x/y", metadata)
        check_same(again, metadata)
        changed = group_with_attributes(again, {})
        assert parsed(group_documents(changed, "x/y"), "x/y", metadata).attributes == {}

    def test_version_1_has_none(self) -> None:
        with pytest.raises(ArgumentError, match="version 1"):
            group_documents(GroupMetadata(zarr_format=1), "x")


class TestAttributes:
    def test_what_numpy_has_becomes_plain(self) -> None:
        given = {"a": np.float32(0.5), "b": np.arange(3), "c": (1, np.True_), "d": {"e": np.str_("x")}}
        assert plain(given) == {"a": 0.5, "b": [0, 1, 2], "c": [1, True], "d": {"e": "x"}}

    @pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, {"a": b"x"}, {"a": {2: 3}}, {"a": 1j}, [1], "a", None])
    def test_what_is_not_json(self, value: Any) -> None:
        with pytest.raises(ArgumentError):
            plain(value)

    def test_too_deep(self) -> None:
        value: Any = 1
        for _ in range(200):
            value = [value]
        with pytest.raises(ArgumentError, match="deep"):
            plain({"a": value})
