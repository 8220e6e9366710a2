"""Damaged and cut images are errors at once, where the decoders of imagecodecs hang, or take them for whole."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.registry import codec_from_v2

imagecodecs = pytest.importorskip("imagecodecs")
GRAY = (np.arange(48 * 64).reshape(48, 64) % 251).astype("u1")


def _decode(name: str, data: bytes, **configuration: Any) -> bytes:
    codec = codec_from_v2({"id": f"imagecodecs_{name}", **configuration}, "$")
    return bytes(codec.decode(data, BytesRepresentation(GRAY.nbytes)))


def test_tiles_of_htj2k() -> None:
    for options in ({}, {"tile": (16, 16)}, {"tile": (30, 20), "tilepart": 1}, {"tlm": True}):
        data = bytes(imagecodecs.htj2k_encode(GRAY, **options))
        assert _decode("htj2k", data) == GRAY.tobytes()
        for cut in (len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1):
            with pytest.raises(ValueError, match="it ends before the image does"):
                _decode("htj2k", data[:cut])
        # Zeros are no markers, each of which would be looked at.
        for rest in (b"\xff\xd9", bytes(1000) + b"\xff\xd9"):
            with pytest.raises(ValueError, match="it ends before the image does"):
                _decode("htj2k", data[: len(data) // 2] + rest)
    with pytest.raises(ValueError, match="it ends before the image does"):
        _decode("htj2k", data[: data.index(b"\xff\x90")] + bytes(1000) + b"\xff\xd9")


# Edges, sizes of tiles and their first corner; steps of the component; number of components.
@pytest.mark.parametrize(("at", "value"), [(8, 0), (12, 0), (16, 255), (20, 255), (24, 0), (32, 255), (43, 0), (40, 9)])
def test_sizes_of_htj2k(at: int, value: int) -> None:
    data = bytearray(imagecodecs.htj2k_encode(GRAY))
    nbytes = 1 if at >= 40 else 4
    data[at : at + nbytes] = bytes([value]) + bytes(nbytes - 1)
    with pytest.raises(ValueError, match="in its header do not fit each other"):
        _decode("htj2k", bytes(data))


def test_cut_jpegls() -> None:
    data = bytes(imagecodecs.jpegls_encode(GRAY))
    assert _decode("jpegls", data) == GRAY.tobytes()
    with pytest.raises(ValueError, match="it ends before the image does"):
        _decode("jpegls", data[: len(data) // 2])


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "f2", "i4", ">i4", "f4", "u8", "f8", ">f8"])
def test_pcodec_is_decoded_by_its_package(dtype: str) -> None:
    pytest.importorskip("pcodec")
    array = GRAY.reshape(-1).view("u1")[: 48 * 64].astype(dtype)
    array = array[: GRAY.nbytes // array.itemsize]
    data = bytes(imagecodecs.pcodec_encode(array))
    configuration = {"shape": list(array.shape), "dtype": array.dtype.str}
    assert _decode("pcodec", data, **configuration) == array.tobytes()
    for at in range(4, len(data)):
        damaged = bytearray(data)
        damaged[at] = 255
        # Other elements, or an error; imagecodecs would end the process.
        with contextlib.suppress(ValueError):
            assert len(_decode("pcodec", bytes(damaged), **configuration)) == GRAY.nbytes
    with pytest.raises(ValueError, match="imagecodecs_pcodec"):
        _decode("pcodec", data[:-3], **configuration)


def test_a_number_of_numbers_that_pcodec_takes_no_memory_for() -> None:
    pytest.importorskip("pcodec")
    y, x = np.mgrid[:48, :64]
    image = np.stack([(y * 4) % 256, (x * 3) % 256, (x + y) % 256], -1).astype("u1")
    damaged = bytearray(imagecodecs.pcodec_encode(image))
    damaged[6] = 255
    codec = codec_from_v2({"id": "imagecodecs_pcodec", "shape": list(image.shape), "dtype": "|u1"}, "$")
    with pytest.raises(ValueError, match="imagecodecs_pcodec"):
        codec.decode(bytes(damaged), BytesRepresentation(image.nbytes))
