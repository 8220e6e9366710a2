"""Codecs of imagecodecs get no more room than a chunk has, and need none before they say so."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs import buffers, numcodecs_adapter
from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.numcodecs_adapter import _INTO_A_BUFFER, _OF_BYTES, is_known
from gzarr.codecs.registry import codec_from_v2

imagecodecs = pytest.importorskip("imagecodecs.numcodecs")
NUMBERS = np.random.default_rng(0)
GRAY = NUMBERS.integers(0, 256, (40, 48)).astype("u1")
COLORS = NUMBERS.integers(0, 256, (40, 48, 3)).astype("u1")
#: Of 1000 × 1000 pixels.
LARGE = np.zeros((1000, 1000), np.uint8)
LARGE_COLORS = np.zeros((1000, 1000, 3), np.uint8)
FORMATS = [
    *("apng", "avif", "bmp", "gif", "htj2k", "jpeg", "jpeg2k", "jpegls", "jpegxl", "jpegxr", "lerc", "ljpeg", "png"),
    *("qoi", "spng", "tiff", "webp", "zfp"),
]


def _encoder(name: str, **parameters: Any) -> Any:
    if not is_known(f"imagecodecs_{name}"):
        pytest.skip(f"imagecodecs has no {name} here")
    return numcodecs.get_codec({"id": f"imagecodecs_{name}", **parameters})


def _refused(name: str, data: bytes, match: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"numcodecs\.imagecodecs_{name}: {match}"):
            codec_from_v2({"id": f"imagecodecs_{name}"}, "$").decode(data, BytesRepresentation(96))
        assert tracemalloc.get_traced_memory()[1] < 500_000 + 3 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FORMATS)
def test_images(name: str) -> None:
    encoder = _encoder(name)
    image, large = (COLORS, LARGE_COLORS) if name in ("qoi", "webp") else (GRAY, LARGE)
    image, large = (image.astype("f4"), large.astype("f4")) if name == "zfp" else (image, large)
    data = bytes(encoder.encode(image))
    expected = np.ascontiguousarray(encoder.decode(data)).tobytes()
    codec = codec_from_v2({"id": f"imagecodecs_{name}"}, "$")
    assert codec.decode(data, BytesRepresentation(len(expected))).tobytes() == expected
    with pytest.raises(ValueError, match=f"decoded to {len(expected)} bytes, expected {len(expected) + 5}"):
        codec.decode(data, BytesRepresentation(len(expected) + 5))
    _refused(name, bytes(encoder.encode(large)), "cannot be decoded to at most 96 bytes")


@pytest.mark.parametrize("name", ["avif", "gif", "jpeg2k", "ljpeg", "qoi"])
def test_headers_of_decoders_that_look_late(name: str) -> None:
    large = LARGE_COLORS if name == "qoi" else LARGE
    stated = rf"the header states an image of at least {large.size} bytes, expected 96"
    _refused(name, bytes(_encoder(name).encode(large)), f"cannot be decoded to at most 96 bytes: {stated}")


def test_headers_of_animations() -> None:
    _encoder("webp")
    frame = imagecodecs.imagecodecs.webp_encode(LARGE_COLORS, lossless=True)[12:]
    size = (999).to_bytes(3, "little")
    anmf = bytes(6) + size * 2 + bytes(4) + frame
    chunks = b"VP8X" + (10).to_bytes(4, "little") + b"\2\0\0\0" + size * 2 + b"ANIM\6\0\0\0" + bytes(6)
    chunks += (b"ANMF" + len(anmf).to_bytes(4, "little") + anmf) * 3
    data = b"RIFF" + (4 + len(chunks)).to_bytes(4, "little") + b"WEBP" + chunks
    one = BytesRepresentation(LARGE_COLORS.size)
    # Without it, newer versions of imagecodecs decode all.
    decoded = codec_from_v2({"id": "imagecodecs_webp", "index": 0}, "$").decode(data, one)
    assert decoded.size == LARGE_COLORS.size
    assert not decoded.any()
    _refused("webp", data, f"cannot .* the header states an image of at least {LARGE_COLORS.size} bytes")
    with pytest.raises(ValueError, match=f"the header states an image of at least {3 * LARGE_COLORS.size} bytes"):
        codec_from_v2({"id": "imagecodecs_webp", "index": None}, "$").decode(data, one)


@pytest.mark.parametrize("compression", ["zstd", "zlib"])
def test_compressed_lerc(compression: str) -> None:
    encode = imagecodecs.imagecodecs.zstd_encode if compression == "zstd" else zlib.compress
    codec = codec_from_v2({"id": "imagecodecs_lerc"}, "$")
    data = encode(bytes(_encoder("lerc").encode(GRAY)))
    np.testing.assert_array_equal(codec.decode(data, BytesRepresentation(GRAY.size)).reshape(GRAY.shape), GRAY)
    _refused("lerc", encode(b"Lerc2 " + bytes(4_000_000)), "cannot be decoded to at most 96 bytes")


@pytest.mark.parametrize("name", sorted(name.removeprefix("imagecodecs_") for name in _OF_BYTES & _INTO_A_BUFFER))
@pytest.mark.parametrize("nbytes", [97, 4_000_000])
def test_bytes(name: str, nbytes: int) -> None:
    _refused(
        name,
        bytes(_encoder(name).encode(bytes(nbytes))),
        "(cannot be decoded to at most|decoded to more than the expected) ",
    )


def test_bytes_of_any_length() -> None:
    codec = codec_from_v2({"id": "imagecodecs_zlib"}, "$")
    data = zlib.compress(bytes(5000))
    assert codec.decode(data, BytesRepresentation(None)).tobytes() == bytes(5000)
    assert codec.decode(data, BytesRepresentation(None, 5000)).tobytes() == bytes(5000)
    with pytest.raises(ValueError, match="cannot be decoded to at most 4990 bytes"):
        codec.decode(data, BytesRepresentation(None, 4990))


@pytest.mark.parametrize("name", ["zstd", "lz4", "zlib", "brotli", "bz2"])
@pytest.mark.parametrize("texts", [["short"] * 1000, ["long " * 1_000_000]], ids=["short", "long"])
def test_buffers_for_unknown_sizes_are_small_at_first(
    name: str, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def empty(nbytes: int, label: str) -> Any:
        sizes.append(nbytes)
        return buffers.empty(nbytes, label)

    monkeypatch.setattr(numcodecs_adapter, "empty", empty)
    store = {
        ".zarray": json.dumps(
            {
                "zarr_format": 2,
                "shape": [len(texts)],
                "chunks": [len(texts)],
                "dtype": "|O",
                "filters": [{"id": "vlen-utf8"}],
                "compressor": {"id": f"imagecodecs_{name}"},
                "order": "C",
                "fill_value": "",
            }
        ).encode()
    }
    array = gzarr.open_array(store, mode="r+", device="cpu")
    array[...] = texts
    assert array[...].tolist() == texts
    assert max(sizes) <= 16 * sum(map(len, texts)) + (1 << 17)
