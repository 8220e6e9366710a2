"""Numbers and short texts in codecs of objects, which take many times their bytes."""

from __future__ import annotations

import json
from typing import Any

import numcodecs
import numcodecs.abc
import numcodecs.registry
import numpy as np
import pytest

import gzarr

N = 40_000
NUMBERS = np.random.default_rng(0).random(N)
BYTES = np.full(N, b"q", "S1")
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "json2": (NUMBERS, {"id": "json2"}),
    "json2-wide": (NUMBERS, {"id": "json2", "encoding": "utf-32", "indent": 8}),
    "json2-bool": (NUMBERS > 0.5, {"id": "json2"}),
    "json2-small": (np.full(60_000, -100, "i1"), {"id": "json2"}),
    "json2-text": (np.full(N, "\U0001f642", "U1"), {"id": "json2", "encoding": "utf-32"}),
    "msgpack2": (NUMBERS[:20_000].repeat(5).astype("f4"), {"id": "msgpack2"}),
    "vlen-bytes": (BYTES, {"id": "vlen-bytes"}),
}


@pytest.mark.parametrize("compressor", [None, "zstd"])
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_read(name: str, zarr_format: Any, compressor: Any) -> None:
    if name == "msgpack2":
        pytest.importorskip("msgpack")
    data, codec = CASES[name]
    parts = {"filters": [codec]} if zarr_format == 2 else {"serializer": codec}
    store: dict[str, bytes] = {}
    array = gzarr.create_array(
        store, data=data, chunks=data.shape, compressors=compressor, zarr_format=zarr_format, device="cpu", **parts
    )
    np.testing.assert_array_equal(array[...], data)
    array[:3] = data[3:6]
    np.testing.assert_array_equal(array[:8], [*data[3:6], *data[3:8]])
    chunk = next(store[key] for key in store if key in ("0", "c/0"))
    theirs = numcodecs.get_codec(codec)
    encoded = chunk if compressor is None else numcodecs.Zstd().decode(chunk)
    np.testing.assert_array_equal(theirs.decode(encoded).astype(data.dtype)[:8], [*data[3:6], *data[3:8]])


def test_shards() -> None:
    options: dict[str, Any] = {"serializer": {"id": "json2"}, "compressors": None, "device": "cpu"}
    data = np.concatenate([NUMBERS, NUMBERS[::-1]])
    array = gzarr.create_array({}, data=data, chunks=N, shards=2 * N, **options)
    np.testing.assert_array_equal(array[...], data)


def test_raw_bytes_of_others() -> None:
    """As zarr-python 3.0.0 and 3.0.1 write them."""
    items = np.empty(N, object)
    items[:] = [b"q"] * N
    store: dict[str, bytes] = {}
    codecs = ["vlen-bytes", "zstd"]
    array = gzarr.create_array(store, shape=N, chunks=N, dtype="V1", fill_value=b"\0", codecs=codecs, device="cpu")
    store["c/0"] = numcodecs.Zstd().encode(numcodecs.VLenBytes().encode(items))
    assert array[...].tobytes() == b"q" * N


def test_pickles_of_others() -> None:
    data = np.zeros(2 * N, "u1")
    pickle = {"id": "pickle", "protocol": 0}
    document = {"zarr_format": 2, "shape": data.shape, "chunks": data.shape, "dtype": "|u1", "fill_value": 7}
    document.update({"order": "C", "compressor": None, "filters": [pickle]})
    store = {".zarray": json.dumps(document).encode(), "0": numcodecs.Pickle(0).encode(data)}
    np.testing.assert_array_equal(gzarr.open_array(store, allow_pickle=True, device="cpu")[...], data)


class Wasteful(numcodecs.abc.Codec):  # type: ignore[misc]
    """Gives four bytes for one, unless it is zero."""

    codec_id = "wasteful"

    def encode(self, buf: Any) -> bytes:
        data = bytes(memoryview(buf).cast("B"))
        return data * 4 if any(data) else data

    def decode(self, buf: Any, out: Any = None) -> bytes:
        data = bytes(memoryview(buf).cast("B"))
        return data[: len(data) // 4] if any(data) else data


@pytest.mark.parametrize("shards", [None, 2 * N])
def test_what_could_not_be_read_is_not_written(shards: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(numcodecs.registry.codec_registry, "wasteful", Wasteful)
    array = gzarr.create_array(
        {}, shape=2 * N, chunks=N, shards=shards, dtype="f8", compressors={"id": "wasteful"}, device="cpu"
    )
    with pytest.raises(gzarr.ChunkWriteError, match=r"wasteful: 1280000 bytes, .* up to 705536; .* smaller chunks"):
        array[:N] = NUMBERS
    assert not array[...].any()
