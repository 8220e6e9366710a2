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
from support.xarray_datasets import ENGINE, check

import gzarr
from gzarr.integrations.xarray_encoding import DimensionNamesError, StoredCodec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:Consolidated metadata is currently not part",
    "ignore:.*does not have a Zarr V3 specification",
    "ignore:Numcodecs",
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

    def test_codecs_have_what_configures_them(self) -> None:
        codec = StoredCodec({"name": "gzip", "configuration": {"level": 3}})
        assert codec.level == 3
        with pytest.raises(AttributeError, match="'gzip' has no 'clevel'"):
            codec.clevel
        assert codec == zarr.codecs.GzipCodec(level=3)
        assert codec != zarr.codecs.GzipCodec(level=4)
        assert codec != "gzip"
        assert StoredCodec({"name": "crc32c"}) == zarr.codecs.Crc32cCodec()
