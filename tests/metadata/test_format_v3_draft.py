"""The drafts of Zarr v3 of 2022: stores of zarr-python 2.18, locations of nodes and chunks, and shards."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.draft_hierarchies import (
    ARRAY,
    CORE,
    ENTRY,
    PROTOCOL,
    ROOT_ENTRY,
    SHARDED,
    SHARDING,
    VALUES,
    chunks_of,
    encode,
    hierarchy,
    written,
)
from support.golden_stores import unpack
from support.zarr_arrays import same

import gzarr
from gzarr import errors
from gzarr.metadata.layout import Layout
from gzarr.metadata.v3_draft import parse as v3_draft
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

GOLDEN = "v3_draft/zarr-python-2.18.7.tar.xz"


class Counting(MemoryStore):
    """A store that counts requests."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.calls: list[str] = []

    def get_small_values(self, keys: Any, max_nbytes: int) -> Any:
        self.calls.append("get")
        return super().get_small_values(keys, max_nbytes)

    def list_prefix(self, prefix: str) -> Any:
        self.calls.append("list")
        return super().list_prefix(prefix)

    def list_dir(self, prefix: str) -> Any:
        self.calls.append("list_dir")
        return super().list_dir(prefix)


class TestGolden:
    """Compare with what zarr-python 2.18.7 itself read from its stores of experimental version 3."""

    @pytest.mark.parametrize("path", sorted(unpack(GOLDEN)[1]))
    def test_reads(self, device: TestedDevice, path: str) -> None:
        stores, expected = unpack(GOLDEN)
        if path == "root-array":
            array = device.open(stores[path])
        else:
            array = device.open(stores["hierarchy"], path=path)
        assert array.zarr_format == "3-draft-2022"
        wanted = expected[path].astype(object) if path == "types/words" else expected[path]
        same(device.read(array), wanted)
        if array.ndim:
            same(device.read(array, (slice(1, None, 2),)), wanted[1::2])
            assert array.metadata.dimension_names in (tuple(f"d{i}" for i in range(array.ndim)), None)

    def test_hierarchy(self, tmp_path: Path) -> None:
        stores, expected = unpack(GOLDEN)
        for key, value in stores["hierarchy"].items():
            (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / key).write_bytes(value)
        root = gzarr.open_group(tmp_path, device="cpu")
        assert (root.zarr_format, root.implicit, dict(root.attrs)) == ("3-draft-2022", False, {"title": "golden"})
        assert {path for path, node in root.members(None) if isinstance(node, gzarr.Array)} == set(expected) - {
            "root-array"
        }
        # zarr-python makes a group of where it keeps consolidated metadata.
        assert list(root) == ["codecs", "consolidated", "dots", "filtered", "scalar", "sharded", "types"]
        assert (root["codecs"].implicit, root["types"].implicit) == (True, False)
        assert dict(root["types"].attrs) == {"kind": "group"}
        for group in (root, pickle.loads(pickle.dumps(root))):
            same(group["sharded/C"][...], expected["sharded/C"])
            same(group["codecs"]["gzip"]["F"][...], expected["codecs/gzip/F"])
        again = pickle.loads(pickle.dumps(root["sharded"]))
        assert again.implicit
        assert list(again.array_keys()) == ["C", "F", "dots", "line", "scalar"]
        assert "sharded/C" in root
        assert "codecs/gzip" in root
        assert "nothing" not in root
        assert root["sharded/C"].nchunks_initialized == root["sharded/C"].nchunks
        assert root["sharded/C"].shards == (15, 8)
        assert "sharded [implicit]" in str(root.tree())

    def test_documents_are_kept(self) -> None:
        stores, _ = unpack(GOLDEN)
        for path in ("filtered", "sharded/F", "types/records"):
            document = gzarr.open_array(stores["hierarchy"], path=path, device="cpu").metadata.document
            assert document["array"] == json.loads(stores["hierarchy"][f"meta/root/{path}.array.json"])
            assert document["zarr.json"] == json.loads(stores["hierarchy"]["zarr.json"])


class TestLayouts:
    def test_reads_what_the_text_says(self, device: TestedDevice) -> None:
        same(device.read(device.open(hierarchy(), path="a")), VALUES)

    @pytest.mark.parametrize(
        ("entry", "array_key", "chunk_prefix"),
        [
            (ENTRY, "meta/x/a.array.json", "data/x/a/"),
            (
                ENTRY | {"metadata_encoding": {"type": "json", "metadata_key_suffix": ".txt"}},
                "meta/x/a.array.txt",
                "data/x/a/",
            ),
            (ENTRY | {"metadata_encoding": {"type": "json", "metadata_key_suffix": ""}}, "meta/x/a.array", "data/x/a/"),
            (ENTRY | {"metadata_encoding": {"type": "json"}}, "meta/x/a.array.json", "data/x/a/"),
            (ROOT_ENTRY, "meta/root/x/a.array.json", "data/root/x/a/"),
            (ROOT_ENTRY | {"metadata_key_suffix": ".j"}, "meta/root/x/a.array.j", "data/root/x/a/"),
            (
                ROOT_ENTRY | {"zarr_format": CORE, "metadata_encoding": "json"},
                "meta/root/x/a.array.json",
                "data/root/x/a/",
            ),
            (
                {"zarr_format": PROTOCOL, "metadata_encoding": "application/json", "extensions": []},
                "meta/root/x/a.array",
                "data/root/x/a/",
            ),
        ],
    )
    def test_keys(self, entry: dict[str, Any], array_key: str, chunk_prefix: str) -> None:
        store = {"zarr.json": encode(entry), array_key: encode(ARRAY), **written(ARRAY, prefix=chunk_prefix)}
        root = gzarr.open(store, device="cpu")
        assert root.implicit
        assert [path for path, _ in root.members(None)] == ["x", "x/a"]
        same(root["x/a"][...], VALUES)
        same(gzarr.open(store, path="x/a", device="cpu")[...], VALUES)
        assert root["x/a"].nchunks_initialized == 4

    @pytest.mark.parametrize(
        ("entry", "key", "chunk_prefix"),
        [(ENTRY, "meta/array.json", "data/"), (ROOT_ENTRY, "meta/root.array.json", "data/root/")],
    )
    def test_root_array(self, entry: dict[str, Any], key: str, chunk_prefix: str) -> None:
        store = {"zarr.json": encode(entry), key: encode(ARRAY), **written(ARRAY, prefix=chunk_prefix)}
        same(gzarr.open(store, device="cpu")[...], VALUES)
        same(gzarr.open_array(store, device="cpu", zarr_format="3-draft-2022")[...], VALUES)

    @pytest.mark.parametrize(("entry", "where"), [(ENTRY, "meta/"), (ROOT_ENTRY, "meta/root.")])
    def test_root_group(self, entry: dict[str, Any], where: str) -> None:
        group = encode({"attributes": {"spam": "ham"}})
        root = gzarr.open({"zarr.json": encode(entry), f"{where}group.json": group}, device="cpu")
        assert (dict(root.attrs), root.implicit, list(root)) == ({"spam": "ham"}, False, [])

    @pytest.mark.parametrize(
        ("entry", "keys", "chunk"), [(ENTRY, "meta/s", "data/s/c"), (ROOT_ENTRY, "meta/root/s", "data/root/s/c0")]
    )
    def test_no_dimensions(self, entry: dict[str, Any], keys: str, chunk: str) -> None:
        document = ARRAY | {"shape": [], "chunk_grid": {"type": "regular", "chunk_shape": []}, "codecs": []}
        store = {"zarr.json": encode(entry), f"{keys}.array.json": encode(document), chunk: np.float64(2.5).tobytes()}
        array = gzarr.open(store, path="s", device="cpu")
        assert (array[()], array.nchunks_initialized) == (2.5, 1)

    def test_below_a_path_of_the_store(self) -> None:
        store = {f"deep/down/{key}": value for key, value in hierarchy().items()}
        for path in ("deep/down/a", "deep/down"):
            node = gzarr.open(store, path=path, device="cpu")
            same((node if path.endswith("a") else node["a"])[...], VALUES)
        same(gzarr.open(store, path="deep/down/a", zarr_format="3-draft-2022", device="cpu")[...], VALUES)
        assert [path for path, _ in gzarr.open(store, device="cpu").members(None)] == [
            "deep",
            "deep/down",
            "deep/down/a",
        ]

    def test_array_wins_over_group(self) -> None:
        store = hierarchy() | {"meta/a.group.json": b'{"attributes": {}}', "meta/a/b.group.json": b'{"attributes": {}}'}
        assert isinstance(gzarr.open(store, path="a", device="cpu"), gzarr.Array)
        ((name, node),) = gzarr.open(store, device="cpu").members()
        assert (name, type(node)) == ("a", gzarr.Array)

    def test_separator(self) -> None:
        grid = ARRAY["chunk_grid"] | {"separator": "."}
        store = hierarchy(chunk_grid=grid) | written(ARRAY | {"chunk_grid": grid})
        array = gzarr.open(store, path="a", device="cpu")
        same(array[...], VALUES)
        assert (array.nchunks_initialized, array.metadata.chunk_key_encoding.encode((1, 23, 45))) == (4, "c1.23.45")

    def test_names_with_the_words_of_keys(self) -> None:
        store = {"zarr.json": encode(ENTRY)}
        for name in ("array", "x.group", "root", "group.json"):
            store[f"meta/{name}.array.json"] = encode(ARRAY)
            store |= written(ARRAY, prefix=f"data/{name}/")
        root = gzarr.open(store, device="cpu")
        assert list(root) == ["array", "group.json", "root", "x.group"]
        for _, node in root.members():
            same(node[...], VALUES)

    def test_requests(self) -> None:
        store = Counting(hierarchy() | {"meta/b/c.group.json": b'{"attributes": {}}'})
        root = gzarr.open(store, device="cpu")
        assert store.calls == ["get", "get"]
        for use, calls in (
            (lambda: root["a"], ["get"]),
            (lambda: root["b/c"], ["get"]),
            (lambda: root["b"], ["get", "list_dir"]),
            (lambda: root.members(), ["list_dir", "get"]),
        ):
            store.calls.clear()
            use()
            assert store.calls == calls
        store.calls.clear()
        gzarr.open_array(store, path="a", device="cpu")
        assert store.calls == ["get"] * 3
        store.calls.clear()
        gzarr.open_array(store, path="a", device="cpu", zarr_format="3-draft-2022")
        assert store.calls == ["get"] * 2

    def test_a_broken_child_does_not_close_its_group(self) -> None:
        store = hierarchy() | {"meta/bad.array.json": b"{", "meta/worse.array.json": b'{"shape": 5}'}
        root = gzarr.open(store, device="cpu")
        entries = dict(root.walk())
        assert list(entries) == ["a", "bad", "worse"]
        assert all(isinstance(entries[name], errors.MetadataError) for name in ("bad", "worse"))
        with pytest.raises(errors.MetadataError, match=r"'meta/bad.array.json'"):
            root["bad"]

    @pytest.mark.parametrize("zarr_format", [1, 2])
    def test_another_format_is_not_found(self, zarr_format: Any) -> None:
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(hierarchy(), device="cpu", zarr_format=zarr_format)

    def test_version_3_names_the_entry_point(self) -> None:
        with pytest.raises(errors.MetadataError, match=re.escape(f"expected 3, got '{CORE}'")):
            gzarr.open(hierarchy(), device="cpu", zarr_format=3)

    @pytest.mark.parametrize("path", ["", "a", "b/c"])
    def test_not_found(self, path: str) -> None:
        store = {"zarr.json": b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": "purl.org"}}'}
        with pytest.raises(errors.NodeNotFoundError, match="entry point of a hierarchy"):
            gzarr.open(store, path=path, device="cpu", zarr_format="3-draft-2022")
        if path:
            with pytest.raises(errors.NodeNotFoundError, match=f"at '/z{path}'.* nor a document of a 2022 draft"):
                gzarr.open(hierarchy(), path=f"z{path}", device="cpu")


class TestSharding:
    def parse(self, **changes: Any) -> Any:
        return v3_draft.parse_array(ARRAY | changes, Layout(), "a")

    def shards(self, values: Any, per_shard: tuple[int, ...], **changes: Any) -> dict[str, bytes]:
        """Return shards according to the text: chunks in any order, a gap, an index at the end; no chunk (1, 1)."""
        document = SHARDED | changes
        inner = written(document, values, prefix="")
        shards: dict[str, list[Any]] = {}
        for key, data in inner.items():
            coords = tuple(map(int, key[1:].split("/")))
            shard = "c" + "/".join(str(i // n) for i, n in zip(coords, per_shard, strict=True))
            place = tuple(i % n for i, n in zip(coords, per_shard, strict=True))
            if coords != (1, 1):
                shards.setdefault(shard, []).append((place, data))
        result = {}
        for shard, chunks in shards.items():
            index = np.full((*per_shard, 2), 2**64 - 1, "<u8")
            content = b"gap"
            for place, data in reversed(chunks):
                index[place] = len(content), len(data)
                content += data
            result[f"data/a/{shard}"] = content + index.tobytes()
        return result

    @pytest.mark.parametrize("layout", ["C", "F"])
    @pytest.mark.parametrize("per_shard", [(2, 1), (1, 2), (2, 2), (5, 4)])
    def test_reads(self, device: TestedDevice, per_shard: tuple[int, ...], layout: str) -> None:
        transformer = SHARDED["storage_transformers"][0] | {"configuration": {"chunks_per_shard": list(per_shard)}}
        store = hierarchy(storage_transformers=[transformer], chunk_memory_layout=layout)
        store = {key: value for key, value in store.items() if not key.startswith("data/")}
        store |= self.shards(VALUES, per_shard, chunk_memory_layout=layout)
        array = device.open(store, path="a")
        expected = VALUES.copy()
        expected[4:, 3:] = np.nan
        same(device.read(array), expected)
        same(device.read(array, (slice(2, 5), slice(1, 4))), expected[2:5, 1:4])
        assert (array.chunks, array.shards) == ((4, 3), (4 * per_shard[0], 3 * per_shard[1]))

    @pytest.mark.parametrize(
        "uri",
        [
            SHARDING,
            "https://purl.org/zarr/spec/extensions/storage_transformers/sharding/1.0",
            "https://purl.org/zarr/spec/storage_transformers/sharding/1.0",
        ],
    )
    def test_names(self, uri: str) -> None:
        transformer = SHARDED["storage_transformers"][0] | {"extension": uri}
        assert self.parse(storage_transformers=[transformer]).chunk_shape == (8, 3)

    def test_stacked(self) -> None:
        """The second transformer packs the values of the first: shards of shards."""
        metadata = self.parse(storage_transformers=[SHARDED["storage_transformers"][0]] * 2)
        (outer,) = metadata.codecs
        (inner,) = outer.codecs
        assert (metadata.chunk_shape, outer.chunk_shape, inner.chunk_shape) == ((16, 3), (8, 3), (4, 3))
        chunks = [gzip.compress(chunk.tobytes()) for _, chunk in chunks_of(VALUES[:, :3], (4, 3))]
        index = np.array([[0, len(chunks[0])], [len(chunks[0]), len(chunks[1])]], "<u8")
        shard = b"".join(chunks) + index.tobytes()
        outer_index = np.array([[0, len(shard)], [2**64 - 1] * 2], "<u8")
        store = hierarchy(storage_transformers=[SHARDED["storage_transformers"][0]] * 2)
        store |= {"data/a/c0/0": shard + outer_index.tobytes()}
        same(gzarr.open(store, path="a", device="cpu")[:, :3], VALUES[:, :3])

    def test_a_damaged_index_is_an_error(self) -> None:
        store = hierarchy(storage_transformers=SHARDED["storage_transformers"])
        store |= {"data/a/c0/0": b"x" * 16 + np.array([[0, 17], [0, 2**63]], "<u8").tobytes()}
        with pytest.raises(errors.ChunkDecodeError):
            gzarr.open(store, path="a", device="cpu")[...]
