"""Documents of the 2022 drafts of Zarr v3: data types, fill values, codecs, extensions, and their errors."""

from __future__ import annotations

import json
import re
import warnings
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from support.draft_hierarchies import (
    ARRAY,
    CODEC,
    DATETIME,
    ENTRY,
    PROTOCOL,
    ROOT_ENTRY,
    SHARDED,
    VALUES,
    encode,
    hierarchy,
    written,
)
from support.golden_stores import attempt, damaged
from support.zarr_arrays import same

import gzarr
from gzarr import errors
from gzarr.metadata.layout import Layout
from gzarr.metadata.v3_draft import parse as v3_draft

if TYPE_CHECKING:
    from support.devices import TestedDevice


def parse(**changes: Any) -> Any:
    return v3_draft.parse_array(ARRAY | changes, Layout(), "a")


class TestArrays:
    @pytest.mark.parametrize(
        ("name", "dtype"),
        [
            *((t, t) for t in ("bool", "int8", "uint16", "int64", "float16", "float32", "complex64", "complex128")),
            *(("u1", "u1"), ("i1", "i1"), ("<i4", "i4"), (">f8", "f8"), ("|b1", "?"), ("r24", "V3"), ("|S5", "S5")),
        ],
    )
    def test_data_types(self, name: str, dtype: str) -> None:
        metadata = parse(data_type=name, fill_value=None)
        assert (metadata.dtype, metadata.data_type) == (np.dtype(dtype), name)

    @pytest.mark.parametrize(
        ("extension", "type_", "dtype"),
        [
            (DATETIME, "<M8[ns]", "M8[ns]"),
            ("https://purl.org/zarr/spec/protocol/extensions/datetime-dtypes/1.0", "<m8[s]", "m8[s]"),
            ("TODO: unicode array protocol URL", ">U3", "U3"),
            ("TODO: structured array protocol URL", [["x", "<i2"], ["y", "|u1"]], [("x", "i2"), ("y", "u1")]),
            ("TODO: structured array protocol URL", [["", "|V5"]], "V5"),
        ],
    )
    def test_data_types_of_extensions(self, extension: str, type_: Any, dtype: Any) -> None:
        data_type = {"extension": extension, "type": type_, "fallback": "r8"}
        assert parse(data_type=data_type, fill_value=None).dtype == np.dtype(dtype)

    def test_raw_bytes(self) -> None:
        """As zarr-python 2.12 to 2.18 write them: by the ``descr`` of NumPy's type, with its fill value in base64."""
        values = VALUES.view("V8")
        descr = json.loads(json.dumps(values.dtype.descr))
        data_type = {"extension": "TODO: structured array protocol URL", "type": descr, "fallback": None}
        array = gzarr.open(hierarchy(data_type=data_type, fill_value="AAAAAAAAAAE="), path="a", device="cpu")
        assert (array.dtype, array.fill_value) == (values.dtype, np.void(b"\0" * 7 + b"\1"))
        same(array[...], values)
        copied: dict[str, Any] = {}
        gzarr.copy(array, copied, zarr_format=3)
        same(gzarr.open_array(copied)[...], values)
        for other in ([["", "<i8"]], [["", "|V8", [1]]], [["", "|V4"], ["", "|V4"]]):
            with pytest.raises(errors.MetadataError, match="a field needs a name"):
                parse(data_type={**data_type, "type": other}, fill_value=None)

    @pytest.mark.parametrize(
        ("fallback", "read_as"),
        [("<i8", "int64"), (["decimal", {"extension": "y", "type": 1}, "float64"], "float64"), ("r64", "V8")],
    )
    def test_fallback_needs_consent(self, fallback: Any, read_as: str) -> None:
        data_type = {"extension": "http://example.org/money/1.0", "type": "euro", "fallback": fallback}
        store = hierarchy(data_type=data_type, fill_value=None)
        with pytest.raises(errors.UnsupportedError, match="allow_fallback=True") as caught:
            gzarr.open(store, path="a", device="cpu")
        assert (caught.value.key, caught.value.json_path) == ("meta/a.array.json", "$.data_type")
        for opener in (gzarr.open, gzarr.open_array):
            with pytest.warns(
                UserWarning, match=r"'euro' of 'http://example.org/money/1.0' is not known; elements are"
            ):
                array = opener(store, path="a", device="cpu", allow_fallback=True)
            same(array[...], VALUES.view(read_as))
        with pytest.warns(UserWarning, match="elements are"):
            same(gzarr.open_group(store, device="cpu", allow_fallback=True)["a"][...], VALUES.view(read_as))

    @pytest.mark.parametrize("fallback", [None, ..., [], "decimal"])
    def test_no_fallback(self, fallback: Any) -> None:
        data_type = {"extension": "http://example.org/money/1.0", "type": "euro"}
        if fallback is not ...:
            data_type["fallback"] = fallback
        with pytest.raises(errors.UnsupportedError, match="'euro'"):
            gzarr.open(hierarchy(data_type=data_type), path="a", device="cpu", allow_fallback=True)

    def test_a_known_type_needs_no_fallback(self) -> None:
        """The example of the text."""
        data_type = {"extension": DATETIME, "type": "<M8[ns]", "fallback": "<i8"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            array = gzarr.open(hierarchy(data_type=data_type, fill_value=None), path="a", device="cpu")
        same(array[...], VALUES.view("M8[ns]"))

    @pytest.mark.parametrize(
        ("data_type", "text", "expected"),
        [
            ("float64", None, None),
            ("float64", "+Infinity", np.float64("inf")),
            ("float32", "-Infinity", np.float32("-inf")),
            ("float16", "0x7e01", np.uint16(0x7E01).view("f2")),
            (">f4", "0x3fc00000", np.float32(1.5)),
            ("float16", "0b0011111000000000", np.float16(1.5)),
            ("uint8", "0xff", np.uint8(255)),
            ("int8", "0b11111110", np.int8(-2)),
            ("int16", "0x8000", np.int16(-(2**15))),
            ("<u4", 7, np.uint32(7)),
            ("complex64", ["+Infinity", "0xbf800000"], np.complex64(complex(np.inf, -1))),
            ("complex64", "0x3f80000040000000", np.complex64(1 + 2j)),
            ("r16", "0x01ff", np.void(b"\x01\xff")),
            ("r8", "Kg==", np.void(b"*")),
            ("bool", True, np.True_),
        ],
    )
    def test_fill_values(self, data_type: str, text: Any, expected: Any) -> None:
        found = parse(data_type=data_type, fill_value=text).fill_value
        if expected is None:
            assert found is None
        else:
            same(found, expected)

    @pytest.mark.parametrize(
        ("data_type", "text"), [("int16", "0xff"), ("float32", "0b01"), ("uint8", 256), ("bool", "0x01")]
    )
    def test_wrong_fill_values(self, data_type: str, text: Any) -> None:
        with pytest.raises(errors.MetadataError, match="not a fill value") as caught:
            parse(data_type=data_type, fill_value=text)
        assert caught.value.json_path == "$.fill_value"

    @pytest.mark.parametrize("layout", ["C", "F"])
    @pytest.mark.parametrize(
        ("codec", "configuration", "encoder"),
        [
            ("blosc", {"cname": "lz4", "clevel": 1, "shuffle": 1, "blocksize": 0}, numcodecs.Blosc("lz4", 1, 1).encode),
            ("gzip", {"level": 1}, numcodecs.GZip(1).encode),
            ("zlib", {"level": 1}, numcodecs.Zlib(1).encode),
            ("zstd", {"level": 1}, numcodecs.Zstd(1).encode),
            ("bz2", {}, numcodecs.BZ2(1).encode),
        ],
    )
    def test_codecs(self, device: TestedDevice, codec: str, layout: str, configuration: Any, encoder: Any) -> None:
        document = ARRAY | {"chunk_memory_layout": layout}
        chunks = written(document, encoder=encoder)
        named = {"type": CODEC.format(codec), "configuration": configuration}
        store = hierarchy(chunk_memory_layout=layout, codecs=[named]) | chunks
        same(device.read(device.open(store, path="a")), VALUES)
        compressor = {"codec": f"https://purl.org/zarr/spec/codec/{codec}/1.0", "configuration": configuration}
        store = hierarchy(chunk_memory_layout=layout, codecs=..., compressor=compressor) | chunks
        same(device.read(device.open(store, path="a")), VALUES)

    @pytest.mark.parametrize("endian", ["little", "big"])
    def test_endian(self, endian: str) -> None:
        codecs = [{"type": CODEC.format("endian"), "configuration": {"endian": endian}}, *ARRAY["codecs"]]
        values = VALUES.astype("<f8" if endian == "little" else ">f8")
        store = hierarchy(codecs=codecs) | written(ARRAY, values)
        same(gzarr.open(store, path="a", device="cpu")[...], VALUES)

    @pytest.mark.parametrize("codecs", [..., None, []])
    def test_codecs_are_optional(self, codecs: Any) -> None:
        store = hierarchy(codecs=codecs) | written(ARRAY, encoder=bytes)
        same(gzarr.open(store, path="a", device="cpu")[...], VALUES)

    def test_attributes_called_filters(self) -> None:
        """Only zarr-python's filters are codecs; others may mean something else, and the last drafts have none."""
        assert len(parse(attributes={"filters": [{"id": "delta", "dtype": "<f8"}]}).codecs) == 2
        root = Layout(root=True)
        document = {name: value for name, value in ARRAY.items() if name != "codecs"}
        for value in (["red", "green"], "UV", None, [], [{"name": "R"}]):
            assert len(v3_draft.parse_array(document | {"attributes": {"filters": value}}, root, "a").codecs) == 1
        delta = document | {"attributes": {"filters": [{"id": "delta", "dtype": "<f8"}]}}
        assert [c.label for c in v3_draft.parse_array(delta, root, "a").codecs] == ["bytes", "numcodecs.delta"]

    @pytest.mark.parametrize("attributes", [..., None, {}, []])
    def test_no_attributes(self, attributes: Any) -> None:
        """xtensor-zarr writes an empty array."""
        assert dict(gzarr.open(hierarchy(attributes=attributes), path="a", device="cpu").attrs) == {}

    def test_extensions(self) -> None:
        ignored = [{"extension": "http://example.org/foo", "must_understand": False, "configuration": {"foo": "bar"}}]
        required = [{"extension": "http://example.org/foo", "must_understand": True}]
        same(
            gzarr.open(hierarchy(ENTRY | {"extensions": ignored}, extensions=ignored), path="a", device="cpu")[...],
            VALUES,
        )
        for store, key in (
            (hierarchy(ENTRY | {"extensions": required}), "zarr.json"),
            (hierarchy(extensions=required), "meta/a.array.json"),
        ):
            with pytest.raises(errors.UnsupportedError, match=r"'http://example.org/foo' is not known") as caught:
                gzarr.open(store, path="a", device="cpu")
            assert (caught.value.key, caught.value.json_path) == (key, "$.extensions[0]")


class TestErrors:
    @pytest.mark.parametrize(
        ("changes", "json_path", "text"),
        [
            ({"shape": "x"}, "$.shape", "array of integers"),
            ({"data_type": "string"}, "$.data_type", "'string' is not known"),
            ({"data_type": "<f3"}, "$.data_type", "no data type"),
            ({"data_type": 3}, "$.data_type", "a name or an object"),
            ({"data_type": {"type": "x"}}, "$.data_type.extension", 'needs an "extension"'),
            ({"data_type": {"extension": "x", "type": 1, "fallback": 5}}, "$.data_type.fallback", "one data type or"),
            ({"chunk_grid": {"type": "rectilinear"}}, "$.chunk_grid.type", "only 'regular' is"),
            ({"chunk_grid": {"type": "regular"}}, "$.chunk_grid", "lacks 'chunk_shape'"),
            ({"chunk_grid": {"type": "regular", "chunk_shape": [4, 0]}}, "$.chunk_grid.chunk_shape[1]", "from 1"),
            ({"chunk_grid": ARRAY["chunk_grid"] | {"separator": "-"}}, "$.chunk_grid.separator", "'/' or '.'"),
            ({"chunk_memory_layout": "A"}, "$.chunk_memory_layout", "'C' or 'F'"),
            ({"codecs": [{"type": CODEC.format("lz5")}]}, "$.codecs[0].type", "is not known"),
            ({"codecs": [{"type": "http://example.org/gzip/1.0"}]}, "$.codecs[0].type", "is not known"),
            (
                {"codecs": [{"type": CODEC.format("gzip"), "configuration": {"level": 99}}]},
                "$.codecs[0].configuration.level",
                "from -1 to 9",
            ),
            (
                {"codecs": [*ARRAY["codecs"], {"type": CODEC.format("endian"), "configuration": {"endian": "big"}}]},
                "$.codecs[1]",
                "must be the first",
            ),
            ({"compressor": {"codec": CODEC.format("gzip")}}, "$.compressor", "either 'compressor' or 'codecs'"),
            ({"attributes": 5}, "$.attributes", "expected an object"),
            ({"dimension_names": ["x"]}, "$.dimension_names", "unknown member"),
            ({"extensions": [{"extension": "x"}]}, "$.extensions[0].must_understand", "true or false"),
            ({"storage_transformers": [{"extension": "x", "type": "y"}]}, "$.storage_transformers[0]", "'indexed' is"),
            (
                {
                    "storage_transformers": [
                        SHARDED["storage_transformers"][0] | {"configuration": {"chunks_per_shard": [0, 1]}}
                    ]
                },
                "$.storage_transformers[0].configuration.chunks_per_shard",
                "from 1 to",
            ),
        ],
        ids=str,
    )
    def test_arrays(self, changes: dict[str, Any], json_path: str, text: str) -> None:
        with pytest.raises(errors.MetadataError, match=re.escape(text)) as caught:
            gzarr.open(hierarchy(**changes), path="a", device="cpu")
        assert (caught.value.key, caught.value.json_path) == ("meta/a.array.json", json_path)

    @pytest.mark.parametrize("name", ["shape", "data_type", "chunk_grid", "chunk_memory_layout", "fill_value"])
    def test_members_are_required(self, name: str) -> None:
        with pytest.raises(errors.MetadataError, match=f"lacks {name!r}"):
            gzarr.open(hierarchy(**{name: ...}), path="a", device="cpu")

    @pytest.mark.parametrize(
        ("changes", "json_path"),
        [
            ({"metadata_encoding": {"type": "yaml"}}, "$.metadata_encoding"),
            ({"metadata_encoding": {"extension": "x", "type": "json"}}, "$.metadata_encoding"),
            ({"metadata_encoding": "application/cbor"}, "$.metadata_encoding"),
            (
                {"metadata_encoding": {"type": "json", "metadata_key_suffix": "/../x"}},
                "$.metadata_encoding.metadata_key_suffix",
            ),
            (
                {"metadata_encoding": PROTOCOL, "metadata_key_suffix": 5, "zarr_format": PROTOCOL},
                "$.metadata_key_suffix",
            ),
            ({"extensions": {}}, "$.extensions"),
        ],
        ids=str,
    )
    def test_entry_points(self, changes: dict[str, Any], json_path: str) -> None:
        for path in ("", "a", "b/c"):
            with pytest.raises(errors.MetadataError) as caught:
                gzarr.open(hierarchy(ENTRY | changes), path=path, device="cpu")
            assert (caught.value.key, caught.value.json_path) == ("zarr.json", json_path)

    def test_groups(self) -> None:
        store = {"zarr.json": encode(ENTRY), "meta/group.json": b'{"attributes": {}, "members": []}'}
        with pytest.raises(errors.UnsupportedError, match="unknown member 'members'"):
            gzarr.open(store, device="cpu")


class TestDamaged:
    """Any damaged document gives only gzarr's errors; documents that still open keep their meaning."""

    FILTERED = ARRAY | {
        "attributes": {"filters": [{"id": "delta", "dtype": "<f8", "astype": "<f8"}]},
        "compressor": {"codec": CODEC.format("blosc"), "configuration": {"cname": "lz4", "clevel": 5, "shuffle": 1}},
        "data_type": {"extension": DATETIME, "type": "<M8[ns]", "fallback": ["<i8", "r64"]},
        "fill_value": "0x0000000000000000",
        "dimension_separator": "/",
    }

    @pytest.mark.filterwarnings("ignore::UserWarning")
    @pytest.mark.parametrize(
        ("entry", "key", "document"),
        [
            (ENTRY, "meta/a.array.json", SHARDED),
            (ROOT_ENTRY, "meta/root/a.array.json", {k: v for k, v in FILTERED.items() if k != "codecs"}),
        ],
        ids=["sharded", "filtered"],
    )
    @pytest.mark.parametrize("allow_fallback", [False, True])
    def test_arrays(self, entry: Any, key: str, document: dict[str, Any], allow_fallback: bool) -> None:
        store = {"zarr.json": encode(entry), key: encode(document)}
        assert gzarr.open(store, path="a", device="cpu").shape == (6, 5)
        outcomes = []
        for place, data in damaged(document):
            result = attempt(gzarr.open, store | {key: data}, path="a", device="cpu", allow_fallback=allow_fallback)
            outcomes.append(type(result) is gzarr.Array)
            if isinstance(result, errors.MetadataError):
                assert result.key == key, place
                assert result.json_path.startswith("$"), place
                assert len(str(result)) < 1500, place
                continue
            said = json.loads(data)
            assert list(result.shape) == said["shape"], place
            assert list(result.chunks) == said["chunk_grid"]["chunk_shape"], place
            # As text: NaN does not equal itself.
            assert json.dumps(dict(result.attrs)) == json.dumps(said.get("attributes") or {}), place
            assert (result.shards is None) == (not said.get("storage_transformers")), place
        assert 0 < sum(outcomes) < len(outcomes) // 2

    @pytest.mark.parametrize("entry", [ENTRY, ROOT_ENTRY], ids=["plain", "root"])
    def test_entry_points_and_groups(self, entry: dict[str, Any]) -> None:
        extended = entry | {"extensions": [{"extension": "http://example.org", "must_understand": False}]}
        group = {"attributes": {"a": [1, {"b": None}]}, "extensions": []}
        for key in ("meta/group.json", "meta/root.group.json"):
            store = {"zarr.json": encode(extended), key: encode(group)}
            for changed, document in (("zarr.json", extended), (key, group)):
                for place, data in damaged(document):
                    result = attempt(gzarr.open, store | {changed: data}, device="cpu")
                    if isinstance(result, errors.MetadataError):
                        assert result.key == changed, place
                    else:
                        assert isinstance(result, gzarr.Group), place
