"""Codecs of imagecodecs: those of bytes write, those of images are refused before anything is made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr

import gzarr
from gzarr.codecs.numcodecs_adapter import _OF_BYTES
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("imagecodecs.numcodecs")
NUMBERS = np.random.default_rng(0).integers(0, 2**16, (60, 70)).astype("u2")


@pytest.mark.parametrize("name", sorted(_OF_BYTES))
def test_codecs_of_bytes(name: str, tmp_path: Path) -> None:
    numbers = NUMBERS.copy()
    numbers[:30] = 7
    array = gzarr.create_array(
        tmp_path / "a", data=numbers, chunks=(30, 70), zarr_format=2, compressors={"id": name}, device="cpu"
    )
    np.testing.assert_array_equal(array[...], numbers)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a", mode="r")[...], numbers)
    np.testing.assert_array_equal(gzarr.copy(tmp_path / "a", tmp_path / "b", chunks=(13, 70))[...], numbers)


@pytest.mark.parametrize("codec", [{"id": "imagecodecs_png"}, {"name": "numcodecs.imagecodecs_png"}])
def test_codecs_of_images_are_refused(codec: Any) -> None:
    store: dict[str, Any] = {}
    with pytest.raises(ArgumentError, match=r"numcodecs\.imagecodecs_png is read-only"):
        gzarr.create_array(store, data=NUMBERS, zarr_format=2 if "id" in codec else 3, compressors=codec)
    assert not store


def test_copies_of_images() -> None:
    """Chunks of the same shape are copied as they are, also to another format."""
    import imagecodecs

    image = (NUMBERS >> 8).astype("u1")
    document = {
        "zarr_format": 2, "shape": [60, 70], "chunks": [60, 70], "dtype": "|u1", "order": "C", "fill_value": 0,
        "filters": None, "compressor": {"id": "imagecodecs_png"},
    }  # fmt: skip
    source = {".zarray": json.dumps(document).encode(), "0.0": imagecodecs.png_encode(image)}
    for zarr_format in (2, 3):
        np.testing.assert_array_equal(gzarr.copy(source, {}, zarr_format=zarr_format)[...], image)  # type: ignore[arg-type]
    copied: dict[str, Any] = {}
    for node in (source, gzarr.open_array(source).view[:30]):
        with pytest.raises(ArgumentError, match=r"is read-only; other codecs would do \(codecs='auto'\)"):
            gzarr.copy(node, copied, chunks=(30, 35))
        assert not copied
    np.testing.assert_array_equal(gzarr.copy(source, {}, chunks=(30, 35), codecs="auto")[...], image)


def test_json_of_numcodecs() -> None:
    """Its configuration has a tuple."""
    array = gzarr.create_array({}, shape=(2,), dtype=object, zarr_format=2, filters=[numcodecs.JSON()])
    array[...] = np.array([{"a": 1}, [2]], object)
    assert array[...].tolist() == [{"a": 1}, [2]]


def test_lzma_of_numcodecs() -> None:
    """Its filters may be a tuple."""
    codec = numcodecs.LZMA(filters=({"id": 3, "dist": 4}, {"id": 33, "preset": 1}))
    array = gzarr.create_array({}, data=NUMBERS, zarr_format=2, compressors=codec, device="cpu")
    np.testing.assert_array_equal(array[...], NUMBERS)
