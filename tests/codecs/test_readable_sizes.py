"""What is written can be read: the limit of what decoders yield is one of encoders, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import buffers
from gzarr.codecs.codec import ArrayRepresentation, BytesRepresentation

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT = 1 << 14
SMALL = np.full(10, "small", object)
LARGE = np.full(10, "x" * 2000, object)


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "UNKNOWN_LIMIT_BYTES", _LIMIT)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"zarr_format": 2},
        {"codecs": None},
        {"codecs": "gzip"},
        {"shards": 20},
        {"zarr_format": 2, "dtype": object, "filters": [{"id": "json2"}]},
    ],
)
@pytest.mark.parametrize("part", [slice(None), slice(0, 9)])
def test_a_chunk_of_strings_that_could_not_be_read_is_not_written(
    tmp_path: Path, layout: dict[str, Any], part: slice
) -> None:
    array = gzarr.create_array(tmp_path / "a", **{"shape": 10, "dtype": str, "chunks": 10, **layout})
    array[...] = SMALL
    with pytest.raises(gzarr.ChunkWriteError, match="smaller chunks"):
        array[part] = LARGE[part]
    again = gzarr.open_array(tmp_path / "a", mode="r+")
    assert again[...].tolist() == SMALL.tolist()
    again[:2] = LARGE[:2]
    assert again[...].tolist() == [*LARGE[:2], *SMALL[2:]]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nothing_is_created_of_data_that_could_not_be_read(tmp_path: Path, zarr_format: Any) -> None:
    with pytest.raises(gzarr.ChunkWriteError, match="smaller chunks"):
        gzarr.create_array(tmp_path / "a", data=LARGE, chunks=10, zarr_format=zarr_format)
    assert not (tmp_path / "a").exists()


def test_bytes_of_any_length() -> None:
    array = gzarr.create_array({}, shape=2, dtype=bytes, chunks=2)
    array[0] = bytes(_LIMIT - 100)
    with pytest.raises(gzarr.ChunkWriteError, match="smaller chunks"):
        array[1] = bytes(100)
    assert array[...].tolist() == [bytes(_LIMIT - 100), b""]


def test_strings_that_grow_when_they_are_compressed() -> None:
    text = np.random.default_rng(0).bytes(_LIMIT - 12)
    array = gzarr.create_array({}, shape=1, dtype=bytes, codecs="zstd")
    with pytest.raises(gzarr.ChunkWriteError, match=r"zstd: .* smaller chunks"):
        array[0] = text
    assert array[0] == b""


def test_compressed_shards_of_strings_have_the_limit_of_a_chunk(tmp_path: Path) -> None:
    inner = {"name": "sharding_indexed", "configuration": {"chunk_shape": [5], "codecs": [{"name": "vlen-utf8"}]}}
    inner["configuration"]["index_codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    array = gzarr.create_array(tmp_path / "a", shape=10, dtype=str, chunks=10, codecs=[inner, "gzip"])
    array[...] = SMALL
    assert array.metadata.codecs[0].encoded(ArrayRepresentation((10,), np.dtype(object))) == BytesRepresentation(None)
    with pytest.raises(gzarr.ChunkWriteError, match="smaller chunks"):
        array[...] = LARGE
    assert gzarr.open_array(tmp_path / "a")[...].tolist() == SMALL.tolist()


@pytest.mark.parametrize("codecs", ["zstd", "gzip", ["zstd", "gzip"], "blosc"])
def test_numbers_have_no_other_limit_than_the_size_of_their_chunk(tmp_path: Path, codecs: Any) -> None:
    data = np.random.default_rng(0).integers(0, 256, 2 * _LIMIT, np.uint8)
    for store in (tmp_path / "a", {}):
        gzarr.create_array(store, data=data, chunks=data.size, codecs=codecs)
        np.testing.assert_array_equal(gzarr.open_array(store)[...], data)
