"""The engine for xarray: names of dimensions of many writers, and what it has read, written by ``to_zarr``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs
import zarr.codecs.numcodecs as codecs
from support import devices
from support.xarray_datasets import ENGINE, check
from xarray.backends.zarr import ZarrStore

import gzarr
from gzarr.integrations.xarray_encoding import DimensionNamesError, StoredCodec
from gzarr.integrations.xarray_store import GzarrStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part",
    "ignore:.*does not have a Zarr V3 specification",
    "ignore:Numcodecs",
    "ignore:saving variable None with floating point data as an integer",
)


class TestDimensions:
    """Names of dimensions, where several writers put them."""

    def store(self, **changes: Any) -> dict[str, bytes]:
        """Return a store of version 2 with members of ``.zarray`` or ``.zattrs``."""
        zarray = {
            "zarr_format": 2, "shape": [2, 3], "chunks": [2, 3], "dtype": "<i4", "fill_value": 5, "order": "C",
            "filters": None, "compressor": None, **changes.get("zarray", {}),
        }  # fmt: skip
        documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": zarray, "a/.zattrs": changes.get("zattrs", {})}
        documents[".zattrs"] = {"_NCProperties": "x", "title": "t"}
        return {key: json.dumps(document).encode() for key, document in documents.items()}

    @pytest.mark.parametrize(
        "changes",
        [
            {"zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"]}},
            {"zarray": {"_NCZARR_ARRAY": {"dimrefs": ["/y", "/g/x"], "storage": "chunked"}}},
            {"zattrs": {"_NCZARR_ARRAY": {"dimrefs": ["/y", "/g/x"]}}},
            {"zattrs": {"_nczarr_array": {"dimension_references": ["/y", "/x"]}, "_nczarr_attr": {"types": {}}}},
            {"zattrs": {"_ARRAY_DIMENSIONS": ["y", "x"], "_nczarr_array": {"dimrefs": ["/p", "/q"]}}},
        ],
        ids=str,
    )
    def test_of_version_2(self, changes: Any) -> None:
        found = xr.open_dataset(self.store(**changes), engine=ENGINE, consolidated=False, mask_and_scale=False)
        assert found.a.dims == ("y", "x")
        assert found.a.attrs == {"_FillValue": 5}
        assert found.attrs == {"title": "t"}
        assert (found.a.values == 5).all()

    def test_of_version_3(self) -> None:
        store: dict[str, bytes] = {}
        group = gzarr.create_group(store)
        group.create_array("a", data=np.ones((2, 3)), dimension_names=("y", "x"), attributes={"_ARRAY_DIMENSIONS": 1})
        # As GDAL and others write what was of version 2.
        group.create_array("b", data=np.ones(3), attributes={"_ARRAY_DIMENSIONS": ["x"], "c": 1})
        group.create_array("scalar", data=np.ones(()))
        found = xr.open_dataset(store, engine=ENGINE, consolidated=False)
        assert found.a.dims == ("y", "x")
        assert found.b.dims == ("x",)
        assert found.b.attrs == {"c": 1}
        assert found.scalar.dims == ()

    def test_of_version_3_hide_no_attributes(self, tmp_path: Path) -> None:
        attributes = {"_ncells": 7, "_NCO": "4.9", "_ARRAY_DIMENSIONS": []}
        group = gzarr.create_group(tmp_path / "a.zarr", attributes=attributes)
        group.create_array("a", data=np.ones(3), dimension_names=("x",), attributes=attributes)
        group.create_array("scalar", data=np.ones(()), attributes=attributes)
        found, expected = (
            xr.open_dataset(tmp_path / "a.zarr", engine=engine, consolidated=False) for engine in (ENGINE, "zarr")
        )
        check(found[["a", "scalar"]], expected[["a", "scalar"]])
        assert found.a.attrs == found.scalar.attrs == attributes

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"zattrs": {"_ARRAY_DIMENSIONS": ["y"]}},
            {"zattrs": {"_ARRAY_DIMENSIONS": "yx"}},
            {"zarray": {"_NCZARR_ARRAY": {"dimrefs": "/y"}}},
            {"zarray": {"_NCZARR_ARRAY": 3}},
            {"zattrs": {"_nczarr_array": {"dimrefs": ["/y", "/x", "/z"]}}},
        ],
        ids=str,
    )
    def test_that_are_missing(self, changes: Any) -> None:
        store = self.store(**changes)
        with pytest.raises(
            DimensionNamesError, match=r"required for xarray to determine .* drop_variables='a'"
        ) as caught:
            xr.open_dataset(store, engine=ENGINE, consolidated=False)
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, gzarr.MetadataError)
        assert list(xr.open_dataset(store, engine=ENGINE, consolidated=False, drop_variables="a")) == []

    def test_arrays_that_cannot_be_opened_can_be_dropped(self) -> None:
        store = self.store(zarray={"compressor": {"id": "unheard of"}})
        with pytest.raises(gzarr.UnsupportedError, match="unheard of"):
            xr.open_dataset(store, engine=ENGINE, consolidated=False)
        assert list(xr.open_dataset(store, engine=ENGINE, consolidated=False, drop_variables=["a"])) == []


def big_endian(path: Path, zarr_format: Any) -> Path:
    """Write numbers in big-endian byte order, which are decoded in all ways; return the path."""
    n = np.arange(6)
    floats, days = np.where(n == 2, np.nan, n), "days since 2001-01-01"
    variables: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
        "plain": (n.astype(">i4"), {}, {}),
        "floats": (n.astype(">f8"), {"units": "K"}, {}),
        "complex": (n.astype(">c8"), {}, {}),
        "scaled": (n * 0.5, {}, {"dtype": ">i2", "scale_factor": 0.5, "_FillValue": -1}),
        "scaled_floats": (n.astype(">f8"), {"scale_factor": 0.5}, {}),
        "offset": (n + 100.0, {}, {"dtype": ">i4", "add_offset": 100.0}),
        "masked": (floats, {}, {"dtype": ">f4", "_FillValue": np.float32(1e20)}),
        "masked_integers": (floats, {}, {"dtype": ">i2", "_FillValue": -9}),
        "missing": (n.astype(">i2"), {"missing_value": np.int16(2)}, {}),
        "missing_floats": (n.astype(">f4"), {"missing_value": np.float32(2)}, {"_FillValue": None}),
        "not_a_number": (floats, {}, {"dtype": ">f8", "_FillValue": np.nan}),
        "unsigned": (n.astype(">i2"), {"_Unsigned": "true"}, {}),
        "unsigned_filled": ((n - 1).astype(">i2"), {"_Unsigned": "true", "_FillValue": np.int16(-1)}, {}),
        "signed": (n.astype(">u2"), {"_Unsigned": "false"}, {}),
        "flag": (n.astype(">i2"), {"dtype": "bool"}, {}),
        "lag": (n.astype("m8[h]").astype("m8[ns]"), {}, {"dtype": ">i8", "units": "hours"}),
        "x": (n.astype(">f4"), {}, {}),
        "time": (np.datetime64("2001-02-03", "ns") + n.astype("m8[D]"), {}, {"dtype": ">i4", "units": days}),
    }  # fmt: skip
    dataset = xr.Dataset(
        {name: ("time" if name == "time" else "x", values, attrs) for name, (values, attrs, _) in variables.items()}
    )
    encoding = {name: encoding for name, (_, _, encoding) in variables.items()}
    dataset.to_zarr(path, zarr_format=zarr_format, encoding=encoding, consolidated=True)
    return path


class TestByteOrder:
    """Of version 2, which :meth:`xarray.Dataset.to_zarr` keeps where xarray does."""

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize(
        "options",
        [{}, {"decode_cf": False}, {"mask_and_scale": False}, {"decode_times": False}, {"chunks": {}}],
        ids=str,
    )
    def test_is_as_with_the_engine_zarr(self, tmp_path: Path, zarr_format: Any, options: Any) -> None:
        path = big_endian(tmp_path / "a.zarr", zarr_format)
        found, expected = (xr.open_dataset(path, engine=engine, **options) for engine in (ENGINE, "zarr"))
        check(found, expected)
        for name, variable in expected.variables.items():
            assert found[name].variable.values.dtype == variable.values.dtype, name
        files = []
        for to, dataset in (("b.zarr", found), ("c.zarr", expected)):
            # xarray itself does not write what has a missing value only.
            dataset = dataset.drop_vars("missing_floats")
            dataset.to_zarr(tmp_path / to, zarr_format=zarr_format, consolidated=True)
            kept = [one for one in (tmp_path / to).rglob("*") if one.is_file()]
            files.append({str(one.relative_to(tmp_path / to)): one.read_bytes() for one in kept})
        assert files[0] == files[1]

    def test_of_variables_before_decoding(self, tmp_path: Path) -> None:
        path = big_endian(tmp_path / "a.zarr", 2)
        variables = GzarrStore.open(path).get_variables()
        for name, expected in ZarrStore.open_group(str(path)).get_variables().items():
            assert variables[name].dtype == variables[name].values.dtype == expected.values.dtype, name
            np.testing.assert_array_equal(variables[name].values, expected.values)

    def test_is_native_on_a_device(self, tmp_path: Path) -> None:
        path = big_endian(tmp_path / "a.zarr", 2)
        expected = xr.open_dataset(path, engine="zarr")
        with devices.use(devices.KINDS[1]):
            found = xr.open_dataset(path, engine=ENGINE, device="cuda")
            for name, variable in expected.variables.items():
                on_host = found[name].variable.as_numpy()
                assert found[name].dtype == on_host.dtype == variable.dtype, name
                np.testing.assert_array_equal(on_host.values, variable.values)


class TestWriting:
    """By ``to_zarr``, with the encodings that gzarr has read."""

    CODECS: ClassVar[dict[int, Any]] = {
        2: {"compressors": (numcodecs.Zstd(level=7),), "filters": (numcodecs.Delta("<f8"),)},
        3: {
            "compressors": (zarr.codecs.BloscCodec(cname="zstd", clevel=7, shuffle="bitshuffle", typesize=8),),
            "serializer": zarr.codecs.BytesCodec(endian="big"),
            "filters": (zarr.codecs.TransposeCodec(order=(1, 0)),),
            "shards": (4, 6),
        },
    }

    @pytest.mark.parametrize("zarr_format", [2, 3])
    @pytest.mark.parametrize("by_gzarr", [False, True])
    def test_codecs_are_kept(self, tmp_path: Path, zarr_format: Any, by_gzarr: bool) -> None:
        dataset = xr.Dataset({"a": (("y", "x"), np.arange(48.0).reshape(4, 12))})
        encoding = {"chunks": (2, 3), **self.CODECS[zarr_format]}
        dataset.to_zarr(tmp_path / "a.zarr", zarr_format=zarr_format, encoding={"a": encoding}, consolidated=True)
        found = xr.open_dataset(tmp_path / "a.zarr", engine=ENGINE)
        for name, value in encoding.items():
            assert found.a.encoding[name] == value, name
        if by_gzarr:
            from gzarr.integrations.zarr import enable

            with enable(strict=True):
                found.to_zarr(tmp_path / "b.zarr", zarr_format=zarr_format, consolidated=True)
        else:
            found.to_zarr(tmp_path / "b.zarr", zarr_format=zarr_format, consolidated=True)
        again = xr.open_dataset(tmp_path / "b.zarr", engine=ENGINE)
        check(again, xr.open_dataset(tmp_path / "b.zarr", engine="zarr"))
        one, other = (zarr.open_array(tmp_path / name, path="a", mode="r") for name in ("a.zarr", "b.zarr"))
        assert str(one.metadata.to_dict()) == str(other.metadata.to_dict())
        xr.testing.assert_identical(again.drop_encoding(), dataset)

    NUMCODECS: ClassVar[dict[str, Any]] = {
        "filters": [
            codecs.BitRound(keepbits=8), codecs.Delta(dtype="f4"), codecs.AsType(encode_dtype="f8", decode_dtype="f4"),
            codecs.FixedScaleOffset(offset=0, scale=10, dtype="f4", astype="i2"), codecs.Quantize(digits=2, dtype="f4"),
        ],
        "compressors": [
            codecs.Blosc(cname="zstd"), codecs.Zstd(level=3), codecs.GZip(level=2), codecs.Zlib(level=2),
            codecs.BZ2(level=1), codecs.LZMA(), codecs.LZ4(), codecs.CRC32(), codecs.CRC32C(), codecs.Adler32(),
            codecs.Fletcher32(), codecs.JenkinsLookup3(), codecs.Shuffle(elementsize=4),
        ],
    }  # fmt: skip

    @pytest.mark.parametrize("layout", [{"chunks": (3, 3)}, {"chunks": (3, 3), "shards": (6, 6)}], ids=str)
    @pytest.mark.parametrize(
        "encoding",
        [{kind: [codec]} for kind, some in NUMCODECS.items() for codec in some],
        ids=lambda encoding: next(iter(encoding.values()))[0].codec_name,
    )
    def test_codecs_of_numcodecs_are_as_they_are_spelled(self, tmp_path: Path, encoding: Any, layout: Any) -> None:
        dataset = xr.Dataset({"a": (("y", "x"), np.arange(36, dtype="f4").reshape(6, 6))})
        dataset.to_zarr(tmp_path / "a.zarr", zarr_format=3, encoding={"a": {**encoding, **layout}})
        found, expected = (xr.open_dataset(tmp_path / "a.zarr", engine=engine) for engine in (ENGINE, "zarr"))
        for name in ("filters", "serializer", "compressors"):
            assert found.a.encoding[name] == expected.a.encoding[name], name
        found.to_zarr(tmp_path / "b.zarr", zarr_format=3)
        one, other = (json.loads((tmp_path / name / "a" / "zarr.json").read_text()) for name in ("a.zarr", "b.zarr"))
        assert one == other

    def test_codecs_of_numcodecs_beside_others(self) -> None:
        chain = ["numcodecs.crc32", {"name": "numcodecs.gzip"}, {"name": "unknown", "must_understand": False}]
        store: dict[str, bytes] = {}
        gzarr.create_array(store, path="a", data=np.arange(4), codecs=["bytes"], dimension_names=("x",))
        document = json.loads(store["a/zarr.json"])
        for codecs_after, names in (
            (chain[:2], ["numcodecs.crc32", "numcodecs.gzip"]),
            (chain[::2], ["numcodecs.crc32"]),
        ):
            changed = {**document, "codecs": [*document["codecs"], *codecs_after]}
            store["a/zarr.json"] = json.dumps(changed).encode()
            found = xr.open_dataset(store, engine=ENGINE, consolidated=False)
            assert [codec["name"] for codec in found.a.encoding["compressors"]] == names

    def test_codecs_have_what_configures_them(self) -> None:
        codec = StoredCodec({"name": "gzip", "configuration": {"level": 3}})
        assert codec.level == 3
        with pytest.raises(AttributeError, match="'gzip' has no 'clevel'"):
            codec.clevel
        assert codec == zarr.codecs.GzipCodec(level=3)
        assert codec != zarr.codecs.GzipCodec(level=4)
        assert codec != "gzip"
        assert StoredCodec({"name": "crc32c"}) == zarr.codecs.Crc32cCodec()
