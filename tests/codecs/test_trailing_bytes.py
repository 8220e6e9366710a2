"""Bytes after the streams of a chunk, which the standard library ignores, and so do numcodecs and zarr-python."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.registry import codec_from_v2

DATA = np.random.default_rng(0).integers(0, 50, 30_000, "u1")
RAW = DATA.tobytes()
SIZES = {"known": BytesRepresentation(len(RAW)), "unknown": BytesRepresentation(None)}
CONFIGS: dict[str, dict[str, Any]] = {
    "bz2": {"id": "bz2"},
    "xz": {"id": "lzma"},
    "lzma": {"id": "lzma", "format": 2},
    "zlib": {"id": "zlib"},
}
ENDS = {"text": b"garbage!" * 8, "pages": b"garbage!" * 2000, "magic": b"BZh9garbage!" * 3, "zeros": bytes(64)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", CONFIGS)
def test_against_numcodecs(name: str, end: str, size: str) -> None:
    theirs = numcodecs.get_codec(CONFIGS[name])
    data = theirs.encode(RAW) + ENDS[end]
    ours = codec_from_v2(CONFIGS[name], "$")
    assert bytes(ours.decode(data, SIZES[size])) == RAW
    if (name, end) != ("lzma", "zeros"):
        assert bytes(theirs.decode(data)) == RAW


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bz2", "xz"])
def test_after_several_streams(pack: Any) -> None:
    ours = codec_from_v2({"id": "bz2" if pack is bz2.compress else "lzma"}, "$")
    data = pack(RAW[:9000]) + pack(RAW[9000:]) + ENDS["text"]
    for size in SIZES.values():
        assert bytes(ours.decode(data, size)) == RAW
    with pytest.raises(ValueError, match=r"(bz2|lzma): Inv|lzma: Input format"):
        ours.decode(pack(RAW[:9000]) + ENDS["text"], SIZES["known"])
    with pytest.raises(ValueError, match="the data ends before the stream does"):
        ours.decode(pack(RAW[:9000]) + pack(RAW[9000:])[:-40], SIZES["known"])


def test_a_damaged_stream_is_no_end() -> None:
    """Also where no size tells: what it gave before would be lost."""
    large = np.random.default_rng(1).bytes(2_000_000)
    second = bytearray(bz2.compress(large))
    second[-1000] ^= 255
    with pytest.raises(ValueError, match="bz2: Invalid"):
        codec_from_v2({"id": "bz2"}, "$").decode(bz2.compress(RAW) + second, SIZES["unknown"])


@pytest.mark.parametrize("size", SIZES)
def test_zlib_has_one_stream(size: str) -> None:
    data = zlib.compress(RAW) * 2
    assert numcodecs.Zlib().decode(data) == RAW
    assert bytes(codec_from_v2({"id": "zlib"}, "$").decode(data, SIZES[size])) == RAW


@pytest.mark.parametrize(
    "compressor",
    [*CONFIGS.values(), {"id": "nvcomp_batch", "algorithm": "deflate", "options": {}}],
    ids=[*CONFIGS, "deflate"],
)
@pytest.mark.parametrize("filters", [None, [{"id": "adler32"}]], ids=["alone", "checksum"])
def test_chunks(filters: Any, compressor: dict[str, Any]) -> None:
    """The same in compiled code and in codecs of the host."""
    store: dict[str, bytes] = {}
    options: dict[str, Any] = {"filters": filters, "compressors": compressor, "zarr_format": 2, "device": "cpu"}
    array = gzarr.create_array(store, data=DATA, chunks=DATA.shape, **options)
    store["0"] = bytes(store["0"]) + ENDS["text"]
    np.testing.assert_array_equal(array[...], DATA)
