"""Documents that gzarr writes, by the validators of others: zarr-metadata, ome-zarr-models and yaozarrs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import ome_zarr_models
import pytest
import tensorstore
import yaozarrs
import zarr
import zarr_metadata

import gzarr
from gzarr.dtypes.number_types import NUMBER_TYPES

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = [row.names[0] for row in NUMBER_TYPES.rows]
#: No specification of version 2 has those of ml_dtypes; docs/policy.md says who reads them.
UNSPECIFIED = [row.names[0] for row in NUMBER_TYPES.rows if row.type_string is None]
GZARR_ONLY = [
    *("uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"),
    *("complex_bfloat16", "complex_float16"),
]
OTHERS = [str, bytes, "<U3", ">U3", "S4", "V5", "M8[s]", "m8[10us]", ">f8", [("a", "<i4"), ("b", "<f8")]]
LAYOUTS: dict[str, dict[str, Any]] = {
    "auto": {},
    "none": {"codecs": []},
    "gzip": {"codecs": ["gzip"]},
    "blosc": {"codecs": ["blosc"]},
    "zstd": {"codecs": ["zstd"]},
    "order": {"order": "F"},
    "separator": {"chunk_key_encoding": "/"},
    "names": {"dimension_names": ("y", "x"), "attributes": {"a": [1, None]}},
    "fill value": {"fill_value": 7},
}
ONLY_3: dict[str, dict[str, Any]] = {
    "shards": {"chunks": 2, "shards": 4},
    "crc32c": {"codecs": ["zstd", "crc32c"]},
    "some names": {"dimension_names": ("y", None)},
    "rectilinear": {"chunks": ([1, 3], [4])},
    "v2 keys": {"chunk_key_encoding": "v2"},
}


def documents(zarr_format: Any, dtype: Any = "f4", **arguments: Any) -> Any:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, shape=(4, 4), dtype=dtype, zarr_format=zarr_format, **arguments)
    if zarr_format == 3:
        return json.loads(store["zarr.json"])
    attributes = json.loads(store[".zattrs"]) if ".zattrs" in store else {}
    return {**json.loads(store[".zarray"]), "attributes": attributes}


def check(document: Any) -> None:
    kind = zarr_metadata.ZarrV3ArrayMetadata if document["zarr_format"] == 3 else zarr_metadata.ZarrV2ArrayMetadata
    assert kind(document).shape == (4, 4)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_metadata_takes_what_is_written(zarr_format: Any) -> None:
    for dtype in [*NUMBERS, *OTHERS]:
        if zarr_format == 3 or dtype not in UNSPECIFIED:
            check(documents(zarr_format, np.dtype(dtype) if isinstance(dtype, list) else dtype))
    for layout in {**LAYOUTS, **(ONLY_3 if zarr_format == 3 else {})}.values():
        check(documents(zarr_format, **layout))
    for value in (np.nan, np.inf, -np.inf, 1e300):
        check(documents(zarr_format, "f8", fill_value=value))
        check(documents(zarr_format, "c16", fill_value=complex(value, 0)))


def test_types_that_version_2_does_not_specify(tmp_path: Path) -> None:
    for name in UNSPECIFIED:
        with pytest.raises(zarr_metadata.MetadataValidationError, match="typestr"):
            check(documents(2, name))
        gzarr.create_array(tmp_path / name, shape=4, dtype=name, zarr_format=2, codecs=[])
        kvstore = {"driver": "file", "path": str(tmp_path / name)}
        try:
            tensorstore.open({"driver": "zarr", "kvstore": kvstore}).result()
        except ValueError:
            assert name in GZARR_ONLY
        else:
            assert name not in GZARR_ONLY


def test_aliases_are_written_as_the_registry_has_them(tmp_path: Path) -> None:
    for dtype in ("variable_length_utf8", {"name": "variable_length_utf8"}, "string", str):
        gzarr.create_array(tmp_path / "a", data=np.array(["a", "é"], object), dtype=dtype, overwrite=True)
        assert json.loads((tmp_path / "a/zarr.json").read_text())["data_type"] == "string"
        array = zarr.open_array(tmp_path / "a")
        assert np.asarray(array[...]).tolist() == ["a", "é"]
    document = json.loads((tmp_path / "a/zarr.json").read_text())
    (tmp_path / "a/zarr.json").write_text(json.dumps({**document, "data_type": "variable_length_utf8"}))
    assert gzarr.open_array(tmp_path / "a", device="cpu")[...].tolist() == ["a", "é"]


@pytest.mark.parametrize("name", ["raw_bytes", "null_terminated_bytes", "fixed_length_utf32"])
@pytest.mark.parametrize("given", [str, lambda name: {"name": name}])
def test_data_types_without_a_length(name: str, given: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match=rf"'{name}' lacks 'length_bytes' in its configuration.*such as"):
        documents(3, given(name))


@pytest.mark.parametrize("name", ["numpy.datetime64", "numpy.timedelta64"])
def test_times_without_a_unit(name: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=rf"'{name}' lacks 'unit' and 'scale_factor' in its configuration"):
        documents(3, name)
    with pytest.raises(gzarr.ArgumentError, match=rf"'{name}' lacks 'scale_factor'"):
        documents(3, {"name": name, "configuration": {"unit": "s"}})


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_validators_of_ome_zarr(version: Any, tmp_path: Path) -> None:
    data = np.arange(32 * 48, dtype="u2").reshape(1, 32, 48)
    gzarr.ome.create(tmp_path / "a", data, axes="cyx", version=version, levels=2)
    gzarr.ome.create_labels(tmp_path / "a", "cells", data % 3)
    other = 3 if version == "0.4" else 2
    gzarr.copy(tmp_path / "a", tmp_path / "b", zarr_format=other)  # type: ignore[arg-type]
    for path in (tmp_path / "a", tmp_path / "b"):
        yaozarrs.validate_zarr_store(str(path))
        yaozarrs.validate_zarr_store(str(path / "labels/cells"))
        group = zarr.open_group(path, mode="r")
        found = ome_zarr_models.open_ome_zarr(group)
        assert type(found).__name__ == "Image"
        assert len(found.datasets[0]) == 2
