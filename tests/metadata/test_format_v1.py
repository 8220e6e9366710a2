"""Zarr v1: every compressor of zarr-python 1.1.0 in both orders, detection of the format, and malformed documents."""

from __future__ import annotations

import json
import pickle
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.golden_stores import attempt, damaged, unpack
from support.zarr_arrays import same

import gzarr
from gzarr import errors
from gzarr.metadata.v1 import parse as v1
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

GOLDEN = "v1/zarr-python-1.1.0.tar.xz"
META: dict[str, Any] = {
    "zarr_format": 1,
    "shape": [6, 5],
    "chunks": [4, 3],
    "dtype": "<i4",
    "compression": "zlib",
    "compression_opts": 1,
    "fill_value": 42,
    "order": "C",
}
FIRST_CHUNK = np.arange(12, dtype="<i4").reshape(4, 3)


def store(attrs: dict[str, Any] | None = None, **changes: Any) -> dict[str, bytes]:
    """Return a store with the first chunk of an array."""
    values = {"meta": json.dumps(META | changes).encode(), "0.0": zlib.compress(FIRST_CHUNK.tobytes())}
    return values | ({} if attrs is None else {"attrs": json.dumps(attrs).encode()})


class Counting(MemoryStore):
    """A store that counts requests."""

    calls = 0

    def get_small_values(self, keys: Any, max_nbytes: int) -> Any:
        self.calls += 1
        return super().get_small_values(keys, max_nbytes)

    def list_prefix(self, prefix: str) -> Any:
        self.calls += 1
        return super().list_prefix(prefix)


class TestGolden:
    """Compare with what zarr-python 1.1.0 itself read from its stores."""

    @pytest.mark.parametrize("name", sorted(unpack(GOLDEN)[0]))
    def test_reads(self, device: TestedDevice, name: str) -> None:
        stores, expected = unpack(GOLDEN)
        array = device.open(stores[name])
        assert array.zarr_format == 1
        same(device.read(array), expected[name])
        same(device.read(array, (slice(3, None),)), expected[name][3:])
        document = json.loads(stores[name]["meta"])
        assert array.metadata.document["meta"] == document or np.isnan(document["fill_value"])

    def test_only_blosc_stored_order_f(self) -> None:
        """The archive has arrays of order F with each compressor; with some, chunks are not in the stated order."""
        stores, _ = unpack(GOLDEN)
        for name in stores:
            if name.endswith("-F"):
                codecs = gzarr.open_array(stores[name], device="cpu").codecs
                assert json.loads(stores[name]["meta"])["order"] == "F"
                assert (codecs[0].label == "transpose(1, 0)") == ("blosc" in name or "default" in name), name

    def test_attributes(self) -> None:
        array = gzarr.open(unpack(GOLDEN)[0]["cube"], device="cpu")
        assert array.attrs["units"] == "m"
        assert array.metadata.dimension_names == ("d0", "d1", "d2")

    def test_directory(self, tmp_path: Path) -> None:
        stores, expected = unpack(GOLDEN)
        for name in ("default-F", "structured"):
            (tmp_path / name).mkdir()
            for key, value in stores[name].items():
                (tmp_path / name / key).write_bytes(value)
            array = gzarr.open(tmp_path / name, device="cpu")
            same(array[...], expected[name])
            assert array.nchunks_initialized == array.nchunks
            same(gzarr.open(tmp_path, path=name, device="cpu")[...], expected[name])
            same(pickle.loads(pickle.dumps(array))[...], expected[name])


class TestFinding:
    def test_costs_little(self) -> None:
        for arguments, most in (({}, 3), ({"zarr_format": 1}, 1)):
            counting = Counting(store())
            assert gzarr.open(counting, device="cpu", **arguments).shape == (6, 5)
            assert counting.calls == most
        counting = Counting(store())
        gzarr.open_array(counting, device="cpu")
        assert counting.calls == 2

    def test_below_a_path(self) -> None:
        values = {f"a/b/{key}": value for key, value in store({"k": 1}).items()}
        array = gzarr.open(values, path="a/b", device="cpu")
        assert (array.name, dict(array.attrs)) == ("/a/b", {"k": 1})
        same(array[:4, :3], FIRST_CHUNK)

    def test_attrs_may_be_absent(self) -> None:
        assert dict(gzarr.open(store(), device="cpu").attrs) == {}

    def test_newer_formats_win(self) -> None:
        zgroup = {".zgroup": b'{"zarr_format": 2}'}
        assert gzarr.open(store() | zgroup, device="cpu").zarr_format == 2
        assert gzarr.open(store() | zgroup, device="cpu", zarr_format=1).zarr_format == 1

    @pytest.mark.parametrize("data", [b"", b"\x89PNG", b'{"version": 1}', b"[1]"])
    def test_meta_of_another_program_is_no_array(self, data: bytes) -> None:
        with pytest.raises(errors.NodeNotFoundError, match=r"no zarr.json, .zarray, .zgroup or meta"):
            gzarr.open({"meta": data}, device="cpu")
        with pytest.raises(errors.MetadataError, match="'meta'"):
            gzarr.open({"meta": data}, device="cpu", zarr_format=1)

    def test_meta_may_be_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "meta").mkdir()
        with pytest.raises(errors.NodeNotFoundError):
            gzarr.open(tmp_path, device="cpu")

    @pytest.mark.parametrize("zarr_format", [2, "3-draft-2022", 3])
    def test_another_format_is_not_found(self, zarr_format: Any) -> None:
        with pytest.raises(errors.NodeNotFoundError, match=f"only documents of Zarr version {zarr_format} were"):
            gzarr.open(store(), device="cpu", zarr_format=zarr_format)

    def test_has_no_groups(self) -> None:
        with pytest.raises(errors.NodeTypeError):
            gzarr.open_group(store(), device="cpu")
        with pytest.raises(errors.NodeNotFoundError, match="there is no meta"):
            gzarr.open_group({".zgroup": b'{"zarr_format": 2}'}, device="cpu", zarr_format=1)


class TestDocuments:
    def test_reads(self) -> None:
        expected = np.full((6, 5), 42, "i4")
        expected[:4, :3] = FIRST_CHUNK
        same(gzarr.open(store(more={"any": "thing"}, filters=[{"id": "delta"}]), device="cpu")[...], expected)

    def test_null_fill_value_reads_as_zeros(self) -> None:
        array = gzarr.open(store(fill_value=None), device="cpu")
        assert array.fill_value is None
        assert not array[4:].any()

    @pytest.mark.parametrize("compression", ["none", None])
    def test_uncompressed(self, compression: Any) -> None:
        values = store(compression=compression, compression_opts=None) | {"0.0": FIRST_CHUNK.tobytes()}
        same(gzarr.open(values, device="cpu")[:4, :3], FIRST_CHUNK)

    @pytest.mark.parametrize("compression", ["blosc", "zlib", "gzip", "bz2", "lzma"])
    def test_options_may_be_null(self, compression: str) -> None:
        codecs = v1.parse_array(META | {"compression": compression, "compression_opts": None}).codecs
        assert codecs[-1].label.split("(")[0] == compression.replace("gzip", "zlib")

    def test_byte_strings_are_not_base64(self) -> None:
        """``"abcd"`` would be three bytes."""
        assert v1.parse_array(META | {"dtype": "|S6", "fill_value": "abcd"}).fill_value == b"abcd"

    @pytest.mark.parametrize(
        ("changes", "json_path", "text"),
        [
            ({"zarr_format": 2}, "$.zarr_format", "expected 1, got 2"),
            ({"shape": []}, "$.shape", "at least one dimension"),
            ({"shape": [6, -1]}, "$.shape[1]", "an integer from 0"),
            ({"chunks": [4]}, "$.chunks", "1 dimensions"),
            ({"dtype": "|O"}, "$.dtype", "Python objects"),
            ({"dtype": "i4"}, "$.dtype", "not a v2 type string"),
            ({"order": "A"}, "$.order", "'C' or 'F'"),
            ({"compression": "zstd"}, "$.compression", "'blosc'"),
            ({"compression": ["zlib"]}, "$.compression", "'blosc'"),
            ({"compression_opts": 10}, "$.compression_opts", "an integer from 0 to 9, got 10"),
            ({"compression": "bz2", "compression_opts": 0}, "$.compression_opts", "from 1 to 9"),
            ({"compression": "blosc"}, "$.compression_opts", "an object, got 1"),
            ({"compression": "blosc", "compression_opts": {"cname": "x"}}, "$.compression_opts.cname", "'lz4'"),
            ({"compression": "lzma", "compression_opts": {"format": 9}}, "$.compression_opts.format", "from 0 to 3"),
            ({"compression": "blosc", "compression_opts": {"id": "zlib"}}, "$.compression_opts.id", "not know"),
            ({"fill_value": "x"}, "$.fill_value", "not a fill value"),
            ({"dtype": "|S2", "fill_value": "abc"}, "$.fill_value", "at most 2 ASCII"),
        ],
        ids=str,
    )
    def test_errors_say_where(self, changes: dict[str, Any], json_path: str, text: str) -> None:
        with pytest.raises(errors.MetadataError, match=text) as caught:
            gzarr.open(store(**changes), device="cpu", zarr_format=1)
        assert (caught.value.key, caught.value.json_path) == ("meta", json_path)

    @pytest.mark.parametrize("name", sorted(META))
    def test_members_are_required(self, name: str) -> None:
        values = {key: value for key, value in META.items() if key != name}
        with pytest.raises(errors.MetadataError, match=f"lacks {name!r}"):
            gzarr.open({"meta": json.dumps(values).encode()}, device="cpu", zarr_format=1)

    @pytest.mark.parametrize(
        "document",
        [
            META | {"compression": "blosc", "compression_opts": {"cname": "lz4", "clevel": 5, "shuffle": 1}},
            META | {"compression": "lzma", "compression_opts": {"format": 3, "check": 0, "filters": [{"id": 33}]}},
            META | {"dtype": [["a", "<i4"], ["b", [["c", ">M8[ns]"]]]], "fill_value": None, "compression": "bz2"},
        ],
        ids=["blosc", "lzma", "structured"],
    )
    def test_damaged_documents_give_errors_of_ours(self, document: dict[str, Any]) -> None:
        outcomes = []
        for place, data in damaged(document):
            result = attempt(gzarr.open, {"meta": data}, device="cpu", zarr_format=1)
            outcomes.append(type(result) is gzarr.Array)
            if isinstance(result, errors.MetadataError):
                assert result.key == "meta", place
                assert len(str(result)) < 1000, place
                continue
            # What still opens means what it says.
            said = json.loads(data)
            assert list(result.shape) == said["shape"], place
            assert list(result.chunks) == said["chunks"], place
            assert (result.fill_value is None) == (said["fill_value"] is None), place
        assert 0 < sum(outcomes) < len(outcomes) // 4

    def test_damaged_attributes_give_errors_of_ours(self) -> None:
        for place, data in damaged({"a": [1, {"b": None}]}):
            result = attempt(gzarr.open, store() | {"attrs": data}, device="cpu")
            if isinstance(result, errors.MetadataError):
                assert result.key == "attrs", place
                continue
            # As text: NaN does not equal itself.
            assert json.dumps(dict(result.attrs)) == json.dumps(json.loads(data)), place
