"""N5's attributes.json: what is understood, and the errors for what is not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.n5_files import write_array, write_group

import gzarr
from gzarr.codecs.lz4 import Lz4Codec
from gzarr.codecs.lz4_java import Lz4JavaCodec
from gzarr.documents.departures import collect
from gzarr.metadata.n5 import parse
from gzarr.metadata.to_documents import array_documents, group_documents

DATASET: dict[str, Any] = {
    "dimensions": [30, 20, 10],
    "blockSize": [8, 4, 2],
    "dataType": "uint16",
    "compression": {"type": "gzip"},
}


def stored(document: Any, path: str = "") -> dict[str, bytes]:
    return {f"{path}/attributes.json" if path else "attributes.json": json.dumps(document).encode()}


def opened(**changes: Any) -> gzarr.Array:
    document = {name: value for name, value in {**DATASET, **changes}.items() if value is not ...}
    return gzarr.open_array(stored(document))


def test_a_dataset() -> None:
    array = opened(n5="4.0.0", resolution=[1, 2, 3], compressionType="raw", dimensions=[30, 20, 10])
    assert (array.shape, array.chunks, array.dtype) == ((10, 20, 30), (2, 4, 8), np.dtype("u2"))
    assert dict(array.attrs) == {"resolution": [1, 2, 3]}
    assert (array.zarr_format, array.fill_value, array.dimension_names, array.shards) == ("n5", 0, None, None)
    assert [codec.label for codec in array.compressors] == ["gzip"]
    assert (array.filters, array.serializer.label) == ((), "bytes(big)")
    assert array.decode_path == "cpu-threads: transpose(2, 1, 0) + n5_default(gzip)"


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int64", "float32", "float64"])
def test_data_types(dtype: str) -> None:
    assert opened(dataType=dtype).dtype == np.dtype(dtype)
    with collect() as departures:
        opened(dataType=dtype)
    assert departures == []


@pytest.mark.parametrize("dtype", ["bool", "complex64", "float16"])
def test_data_types_of_zarr_python_are_departures(dtype: str) -> None:
    with collect() as departures:
        array = opened(dataType=dtype)
    assert array.dtype == np.dtype(dtype)
    assert len(departures) == 1
    assert "zarr-python" in departures[0]


@pytest.mark.parametrize(
    ("compression", "expected"),
    [
        ({"type": "raw"}, []),
        ({"type": "gzip", "level": -1, "useZlib": False}, [{"name": "gzip", "configuration": {"level": 6}}]),
        ({"type": "gzip", "level": 2, "useZlib": True}, [{"name": "numcodecs.zlib", "configuration": {"level": 2}}]),
        ({"type": "bzip2"}, [{"name": "numcodecs.bz2", "configuration": {"level": 9}}]),
        ({"type": "zstd", "id": "zstd"}, [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}]),
        ({"type": "lz4", "blockSize": 65536}, [{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]),
        (
            {"type": "blosc", "cname": "lz4hc", "clevel": 6, "shuffle": 2, "blocksize": 64, "nthreads": 4},
            [
                {
                    "name": "blosc",
                    "configuration": {
                        "cname": "lz4hc",
                        "clevel": 6,
                        "shuffle": "bitshuffle",
                        "typesize": 2,
                        "blocksize": 64,
                    },
                }
            ],
        ),
    ],
)
def test_compressors_by_their_names_in_zarr(compression: dict[str, Any], expected: list[Any]) -> None:
    assert [codec.to_json() for codec in opened(compression=compression).compressors] == expected
    if len(compression) == 1:
        old = opened(compression=..., compressionType=compression["type"])
        assert [codec.to_json() for codec in old.compressors] == expected


def test_two_framings_of_lz4() -> None:
    """That of zarr-python 2 is told by the parameter of numcodecs' codec."""
    for compression, kind in (
        ({"type": "lz4", "blockSize": 1}, Lz4JavaCodec),
        ({"type": "lz4"}, Lz4JavaCodec),
        ({"type": "lz4", "id": "lz4", "acceleration": 1}, Lz4Codec),
    ):
        (_, outer) = opened(compression=compression).metadata.codecs
        assert isinstance(outer.codecs[-1], kind)


@pytest.mark.parametrize(
    ("changes", "error", "place", "text"),
    [
        ({"dimensions": []}, gzarr.MetadataError, "$.dimensions", "at least one dimension"),
        ({"dimensions": [1, -1, 2]}, gzarr.MetadataError, "$.dimensions[1]", "expected an integer"),
        ({"dimensions": "3"}, gzarr.MetadataError, "$.dimensions", "expected an array"),
        ({"dimensions": [1] * 40}, gzarr.MetadataError, "$.dimensions", "at most 32"),
        ({"blockSize": [1, 2]}, gzarr.MetadataError, "$.blockSize", "2 dimensions"),
        ({"blockSize": [8, 0, 2]}, gzarr.MetadataError, "$.blockSize[1]", "from 1"),
        ({"blockSize": [2**31, 1, 1]}, gzarr.MetadataError, "$.blockSize[0]", r"2\*\*31 - 1"),
        ({"blockSize": [2**30, 2**30, 2]}, gzarr.MetadataError, "$.blockSize", "the limit"),
        ({"dataType": "varlength"}, gzarr.UnsupportedError, "$.dataType", "not one of N5"),
        ({"dataType": 3}, gzarr.MetadataError, "$.dataType", "the name of a data type"),
        ({"dataType": "string"}, gzarr.UnsupportedError, "$.dataType", "'string' have variable length .varlength."),
        ({"dataType": "object"}, gzarr.UnsupportedError, "$.dataType", "'object' have variable length"),
        ({"isLabelMultiset": True}, gzarr.UnsupportedError, "$.isLabelMultiset", "label multisets .*varlength"),
        ({"compression": ...}, gzarr.MetadataError, "$", "lacks 'compressionType'"),
        ({"compression": "gzip"}, gzarr.MetadataError, "$.compression", "needs an object"),
        ({"compression": {}}, gzarr.MetadataError, "$.compression", "lacks 'type'"),
        ({"compression": {"type": "jpeg"}}, gzarr.UnsupportedError, "$.compression.type", "'jpeg' is not known"),
        ({"compression": {"type": "gzip", "level": 12}}, gzarr.MetadataError, "$.compression.level", "from -1 to 9"),
        (
            {"compression": {"type": "gzip", "useZlib": 1}},
            gzarr.MetadataError,
            "$.compression.useZlib",
            "true or false",
        ),
        ({"compression": {"type": "bzip2", "blockSize": 0}}, gzarr.MetadataError, "$.compression.blockSize", "1 to 9"),
        ({"compression": {"type": "blosc", "cname": "x"}}, gzarr.MetadataError, "$.compression.cname", "one of"),
        ({"compression": ..., "compressionType": "x"}, gzarr.UnsupportedError, "$.compressionType.type", "'x'"),
        ({"n5": "5.0.0"}, gzarr.UnsupportedError, "$.n5", "'5.0.0' of N5 is not known .* 1 to 4"),
        ({"n5": "0.1"}, gzarr.UnsupportedError, "$.n5", "not known"),
        ({"n5": 4}, gzarr.MetadataError, "$.n5", "expected a version"),
        ({"n5": "newest"}, gzarr.MetadataError, "$.n5", "expected a version"),
    ],
)
def test_errors_name_their_place(
    changes: dict[str, Any], error: type[gzarr.MetadataError], place: str, text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        opened(**changes)
    assert (caught.value.json_path, caught.value.key) == (place, "attributes.json")


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "2.5.1-SNAPSHOT", "3.1", "4.0.0-alpha-10"])
def test_versions(version: str) -> None:
    assert opened(n5=version).shape == (10, 20, 30)
    assert gzarr.open_group(stored({"n5": version, "a": 1})).attrs == {"a": 1}


def test_blocks_are_as_large_as_the_dataset_if_nothing_says_otherwise() -> None:
    with collect() as departures:
        array = opened(blockSize=...)
    assert array.chunks == array.shape
    assert len(departures) == 1


def test_names_of_axes() -> None:
    """NumPy's order in the attributes of xarray and of cellmap; N5's in those of ImageJ."""
    transform = {"axes": ["z", "y", "x"], "scale": [4, 2, 1], "translate": [0, 0, 0], "units": ["nm"] * 3}
    assert opened(_ARRAY_DIMENSIONS=["a", "b", "c"], axes=["x", "y", "z"]).dimension_names == ("a", "b", "c")
    assert opened(transform=transform).dimension_names == ("z", "y", "x")
    assert opened(transform={**transform, "order": "F"}).dimension_names == ("x", "y", "z")
    assert opened(axes=["x", "y", "t"]).dimension_names == ("t", "y", "x")
    for wrong in (["x"], ["x", "x", "y"], ["x", "y", 3], "xyz", [["x"], "y", "z"]):
        assert opened(axes=wrong, transform={"axes": wrong}).dimension_names is None


def test_what_is_no_dataset_is_a_group() -> None:
    """BigDataViewer gives the data type to the group of all resolutions."""
    attributes = {"downsamplingFactors": [[1, 1, 1], [2, 2, 1]], "dataType": "uint16"}
    group = gzarr.open_group(stored(attributes))
    assert dict(group.attrs) == attributes
    assert gzarr.open_group(stored({"dimensions": [1]})).attrs == {"dimensions": [1]}


def test_a_document_that_is_no_object_is_an_error() -> None:
    for value in (b"", b"[1]", b"{", b'{"dimensions": 1, "dimensions": 2}'):
        with pytest.raises(gzarr.MetadataError, match=r"attributes\.json"):
            gzarr.open({"attributes.json": value})


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "level", "axes"]), inner),
    max_leaves=8,
)


@given(
    changes=st.dictionaries(
        st.sampled_from([*DATASET, "n5", "compressionType", "transform", "axes", "isLabelMultiset"]),
        _values,
        min_size=1,
    )
)
def test_damaged_documents_give_arrays_or_our_errors(changes: dict[str, Any]) -> None:
    error: gzarr.MetadataError | None = None
    try:
        gzarr.open(stored({**DATASET, **changes}))
    except gzarr.MetadataError as caught:
        error = caught
    assert error is None or error.key == "attributes.json"


def test_documents_are_not_written() -> None:
    array = opened()
    with pytest.raises(gzarr.ArgumentError, match="N5 is read, not written"):
        array_documents(array.metadata, "a")
    with pytest.raises(gzarr.ArgumentError, match="N5 is read, not written"):
        group_documents(parse.parse_group({"n5": "4.0.0"}), "a")
    for create in (gzarr.create_array, gzarr.open_array):
        options: dict[str, Any] = {} if create is gzarr.create_array else {"mode": "w"}
        with pytest.raises(gzarr.ArgumentError, match="N5 is read, not written"):
            create({}, shape=3, dtype="u1", zarr_format="n5", **options)
    with pytest.raises(gzarr.ArgumentError, match="N5 is read, not written"):
        gzarr.create_group({}, zarr_format="n5")
    with pytest.raises(gzarr.ArgumentError, match="N5 is read, not written"):
        gzarr.copy(array, {}, zarr_format="n5")
    with pytest.raises(gzarr.ArgumentError, match='1, 2, "3-draft-2022", 3, "n5" or None'):
        gzarr.open({}, zarr_format="n6")


def test_opened_for_changes() -> None:
    store: dict[str, bytes] = {}
    write_group(store, "", n5="2.0.0")
    write_array(store, "a", np.arange(4, dtype="u1"), (2,))
    before = dict(store)
    for mode in ("r+", "a"):
        for path in ("", "a"):
            with pytest.raises(gzarr.ReadOnlyError, match=r"N5 is read, not written.*gzarr\.copy"):
                gzarr.open(store, path=path, mode=mode)
    with pytest.raises(gzarr.ReadOnlyError, match="N5 is read"):
        gzarr.open_array(store, path="a", mode="r+")
    with pytest.raises(gzarr.ReadOnlyError, match="N5 is read"):
        gzarr.require_group(store)
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.open_array(store, path="a")[0] = 1
    with pytest.raises(gzarr.ReadOnlyError):
        gzarr.open_group(store).attrs["x"] = 1
    with pytest.raises(gzarr.ArgumentError, match="'/' is one of N5: N5 is read, not written"):
        gzarr.create_group(store, path="b")
    with pytest.raises(gzarr.ArgumentError, match="'/' is one of N5: N5 is read, not written"):
        gzarr.create_array(store, path="a", shape=3, dtype="u1")
    assert store == before
