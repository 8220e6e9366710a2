"""The codec ``nvcomp_batch``: chunks written by kvikio, on each device, and corrupt chunks."""

from __future__ import annotations

import contextlib
import ctypes
import json
import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import numcodecs
import numpy as np
import pytest
from gzarr_kernels.libraries import available
from support.nvcomp_encoders import gdeflate_frame

import gzarr
from gzarr.codecs import native
from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.nvcomp_batch import NvcompBatchCodec
from gzarr.codecs.registry import codec_from_v2, codec_from_v3

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.devices import TestedDevice

ALGORITHMS = ("lz4", "zstd", "snappy", "deflate", "gdeflate")
SHAPE, CHUNKS = (50, 30), (20, 30)


def frame(algorithm: str, data: bytes) -> bytes:
    """Encode with libraries other than gzarr."""
    encoders: dict[str, Callable[[bytes], Any]] = {
        "lz4": numcodecs.LZ4().encode,
        "zstd": numcodecs.Zstd(3).encode,
        "snappy": cramjam.snappy.compress_raw,
        "deflate": lambda data: zlib.compress(data, wbits=-15),
        "gdeflate": gdeflate_frame,
    }
    return bytes(encoders[algorithm](data))


def stored(algorithm: str, data: np.ndarray[Any, Any], spelling: str | None = None) -> dict[str, bytes]:
    """A version 2 array of two whole chunks and one cut by the array's edge."""
    document = {
        "zarr_format": 2, "shape": SHAPE, "chunks": CHUNKS, "dtype": data.dtype.str, "order": "C", "filters": None,
        "fill_value": 0, "compressor": {"id": "nvcomp_batch", "algorithm": spelling or algorithm, "options": {}},
    }  # fmt: skip
    padded = np.zeros((60, 30), data.dtype)
    padded[:50] = data
    chunks = {f"{i}.0": frame(algorithm, padded[20 * i : 20 * i + 20].tobytes()) for i in range(3)}
    return {".zarray": json.dumps(document).encode(), **chunks}


@pytest.fixture
def data() -> np.ndarray[Any, Any]:
    return (np.arange(1500).reshape(SHAPE) // 7).astype("<i4")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_reads(algorithm: str, data: np.ndarray[Any, Any], device: TestedDevice) -> None:
    a = device.open(stored(algorithm, data, algorithm.capitalize()))
    np.testing.assert_array_equal(device.read(a), data)
    np.testing.assert_array_equal(device.read(a, (slice(None, None, -3), slice(2, 9))), data[::-3, 2:9])
    if device.is_cuda:
        a.read(decode="cuda")
        assert algorithm != "gdeflate" or a.decode_path == "cuda: nvcomp_batch(gdeflate)"
        if device.watched is not None:
            assert device.watched.counts[f"frames {algorithm}"] >= 3
    else:
        native_loop = algorithm != "gdeflate" and "loop" in available()
        assert a.decode_path.startswith("cpu-native" if native_loop else "cpu-threads")
        assert algorithm in a.decode_path


@pytest.mark.damage
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_corrupt_chunks_are_named(algorithm: str, data: np.ndarray[Any, Any], device: TestedDevice) -> None:
    store = stored(algorithm, data)
    good = store["1.0"]
    for bad in (b"", good[: len(good) // 2], b"\xff" * len(good)):
        store["1.0"] = bad
        with pytest.raises(gzarr.ChunkDecodeError, match=r"chunk \(1, 0\).*1\.0") as caught:
            device.read(device.open(store))
        assert caught.value.chunk == (1, 0)
    store["1.0"] = good
    np.testing.assert_array_equal(device.read(device.open(store)), data)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_host_decoder(algorithm: str) -> None:
    plain = np.arange(3000, dtype="<u2").tobytes()
    codec = codec_from_v2({"id": "nvcomp_batch", "algorithm": algorithm}, "$.compressor")
    assert codec_from_v3(codec.to_json(), "$.codecs[0]") == codec
    assert codec.operations(BytesRepresentation(len(plain)))
    assert bytes(codec.decode(frame(algorithm, plain), BytesRepresentation(len(plain)))) == plain
    rng = np.random.default_rng(0)
    encoded = np.frombuffer(frame(algorithm, plain), np.uint8)
    for i in range(300):
        bad = encoded[: rng.integers(0, encoded.size)].copy() if i % 2 else encoded.copy()
        bad[rng.integers(0, max(bad.size, 1), min(bad.size, 5))] = rng.integers(0, 256)
        with contextlib.suppress(ValueError):
            assert len(codec.decode(bad, BytesRepresentation(len(plain)))) == len(plain)
    if algorithm in ("lz4", "zstd", "deflate"):
        again = codec.encode(plain, BytesRepresentation(len(plain)))
        assert bytes(codec.decode(again, BytesRepresentation(len(plain)))) == plain
    else:
        with pytest.raises(ValueError, match="host memory"):
            codec.encode(plain, BytesRepresentation(len(plain)))


def test_sizes_are_not_the_stream_s_to_say() -> None:
    codec = NvcompBatchCodec("snappy")
    huge = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    with pytest.raises(ValueError, match="states 4294967295 bytes"):
        codec.decode(huge, BytesRepresentation(1000))
    with pytest.raises(ValueError, match="expected 1000"):
        codec.decode(frame("snappy", bytes(999)), BytesRepresentation(1000))
    with pytest.raises(ValueError, match=r'device="cuda"'):
        NvcompBatchCodec("gdeflate").decode(b"\0" * 100, BytesRepresentation(65537))


def test_gdeflate_reads_nothing_behind_its_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library reads on where a stream does not end; what it may reach must be ours.
    from support.guarded_memory import Guarded

    held: list[Guarded] = []

    class Numpy:
        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def full(self, nbytes: int, value: int, dtype: Any) -> Any:
            held[:] = [Guarded(nbytes)]
            held[0].array[:] = value
            return held[0].array

    monkeypatch.setattr(native, "np", Numpy())
    decode = native.gdeflate()
    assert decode is not None
    rng = np.random.default_rng(1)
    for plain in (bytes(4096), rng.bytes(4096), np.arange(2048, dtype="<u2").tobytes()):
        encoded = np.frombuffer(gdeflate_frame(plain), np.uint8)
        assert bytes(decode(encoded, len(plain))) == plain
        for _ in range(300):
            bad = encoded[: rng.integers(0, encoded.size)].copy()
            bad[bad.size // 2 :] = rng.integers(0, 256)
            with contextlib.suppress(ValueError):
                decode(bad, len(plain))


@pytest.mark.parametrize(
    ("configuration", "where", "message"),
    [
        ({}, "$.compressor", "algorithm"),
        ({"algorithm": 3}, "$.compressor.algorithm", "a string"),
        ({"algorithm": "bitcomp"}, "$.compressor.algorithm", "not known"),
        ({"algorithm": "lz4", "options": 3}, "$.compressor.options", "object"),
        ({"algorithm": "lz4", "options": {"has_header": False}}, "$.compressor.options", "leading size"),
        ({"algorithm": "lz4", "level": 3}, "$.compressor", "level"),
    ],
)
def test_configurations(configuration: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(gzarr.MetadataError, match=message) as caught:
        codec_from_v2({"id": "nvcomp_batch", **configuration}, "$.compressor")
    assert caught.value.json_path.startswith(where)


def test_result_of_the_entry_is_the_size() -> None:
    from gzarr_kernels.snappy import decode

    encoded = np.frombuffer(frame("snappy", b"abc" * 50), np.uint8)
    target, produced = np.zeros(150, np.uint8), ctypes.c_int64(7)
    at = ctypes.addressof(produced)
    decode(encoded.ctypes.data, encoded.size, target.ctypes.data, 150, at)
    assert produced.value == 150
    assert target.tobytes() == b"abc" * 50
    decode(encoded.ctypes.data, encoded.size, target.ctypes.data, 149, at)
    assert produced.value == -1
