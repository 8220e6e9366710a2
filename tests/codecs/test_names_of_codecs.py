"""Codecs given by name: by the ids of numcodecs before version 3, where they are the names in documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(20, dtype="f4")


@pytest.mark.parametrize("name", ["bz2", "crc32", "fletcher32", "lz4", "lzma", "packbits", "shuffle", "zlib"])
def test_ids_of_numcodecs(name: str, tmp_path: Path) -> None:
    data = DATA > 3 if name == "packbits" else DATA
    written = {}
    for spelled, codec in (("name", name), ("object", {"id": name})):
        array = gzarr.create_array(tmp_path / spelled, data=data, zarr_format=2, codecs=codec, device="cpu")
        np.testing.assert_array_equal(array[...], data)
        np.testing.assert_array_equal(zarr.open_array(tmp_path / spelled, mode="r")[...], data)
        written[spelled] = json.loads((tmp_path / spelled / ".zarray").read_text())
    assert written["name"] == written["object"]


def test_what_an_id_needs_is_asked_for() -> None:
    with pytest.raises(gzarr.ArgumentError, match="'delta' lacks 'dtype'"):
        gzarr.create_array({}, data=DATA, zarr_format=2, filters="delta", device="cpu")


def test_defaults_of_names_stay() -> None:
    store: dict[str, bytes] = {}
    for name in ("zstd", "gzip", "blosc"):
        gzarr.create_array(store, data=DATA, zarr_format=2, codecs=name, overwrite=True, device="cpu")
        found = json.loads(store[".zarray"])["compressor"]
        assert (found["id"], found.get("level", found.get("clevel"))) == (name, 3 if name == "zstd" else 5)


def test_copies_take_ids() -> None:
    source = gzarr.create_array({}, data=DATA, zarr_format=3, device="cpu")
    store: dict[str, Any] = {}
    gzarr.copy(source, store, zarr_format=2, codecs="zlib", device="cpu")
    assert json.loads(store[".zarray"])["compressor"]["id"] == "zlib"


@pytest.mark.parametrize("codec", ["zlib", {"name": "zlib", "configuration": {"level": 1}}], ids=["name", "object"])
def test_names_of_version_3_are_suggested(codec: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match=r"codecs\[0\]: 'zlib' is a codec of numcodecs.*'numcodecs.zlib'"):
        gzarr.create_array({}, data=DATA, zarr_format=3, codecs=codec, device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="'zlab' is not known"):
        gzarr.create_array({}, data=DATA, zarr_format=3, codecs="zlab", device="cpu")
