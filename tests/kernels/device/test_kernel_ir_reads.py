"""Whole reads and writes, and the kernels that run in them, as IR compiled for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import device_writes as w
from support import devices
from support import zarr_arrays as z

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

SHAPE, CHUNKS = (37, 21, 6), (10, 8, 6)
pytestmark = pytest.mark.slow

SELECTIONS: list[Any] = [..., (slice(31, 2, -3), slice(1, 20, 2)), (5, slice(None), 2)]


@pytest.fixture
def device() -> Iterator[devices.TestedDevice]:
    with devices.use("on host") as tested:
        yield tested


def launched(device: WatchedDevice | None) -> set[str]:
    assert device is not None
    return {what.split()[1] for what in device.counts if what.startswith("launch ")}


def check_reads(path: Path, device: devices.TestedDevice, data: np.ndarray[Any, Any], **options: Any) -> set[str]:
    """Compare reads with those of NumPy and of the CPU engine; return the kernels that ran."""
    array = gzarr.open_array(path, device=device.name)
    z.same(gzarr.open_array(path, device="cpu")[...], data)
    for selection in SELECTIONS:
        z.same(device.read(array, selection, decode="cuda", **options), data[selection], selection)
    rows, columns = np.array([3, 36, 3, 0, 12]), np.array([20, 0, 7, 7, 8])
    z.same(device.read(array.oindex, (rows, slice(2, 9), slice(None, None, -1))), data[rows, 2:9, ::-1])
    z.same(device.read(array.vindex, (rows, columns, 1)), data[rows, columns, 1])
    return launched(device.watched)


def blosc(cname: str, shuffle: int, clevel: int = 5) -> dict[str, Any]:
    return {"id": "blosc", "cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": 0}


COMPRESSORS: dict[str, tuple[Any, set[str]]] = {
    "raw": (None, set()),
    "zstd": ({"id": "zstd", "level": 1}, set()),
    "gzip": ({"id": "gzip", "level": 1}, {"checksums"}),
    "zlib": ({"id": "zlib", "level": 1}, {"checksums"}),
    "blosc-planes": (blosc("lz4", 1), set()),
    "blosc-bits": (blosc("zstd", 2), {"bit_planes_to_byte_planes"}),
    "blosc-stored": (blosc("lz4", 1, 0), set()),
}


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize(("dtype", "order"), [("|u1", "C"), (">u2", "F"), ("<f4", "C"), (">f8", "C"), ("<c16", "F")])
def test_reads_of_v2(name: str, dtype: str, order: str, tmp_path: Path, device: devices.TestedDevice) -> None:
    compressor, kernels = COMPRESSORS[name]
    data = z.sample(SHAPE, dtype)
    fill = [0.0, 0.0] if "c" in dtype else 0
    z.write(tmp_path / "a", z.v2(SHAPE, CHUNKS, dtype, compressor, order=order, fill=fill), data)
    (tmp_path / "a" / "1.1.0").unlink()
    data[10:20, 8:16] = 0
    assert check_reads(tmp_path / "a", device, data) >= {"assemble", *kernels}


FILTERS: list[tuple[str, str, list[Any]]] = [
    ("accumulate", "<i4", [{"id": "delta", "dtype": "<i4", "astype": "<i2"}]),
    (
        "assemble_converted",
        ">f8",
        [{"id": "fixedscaleoffset", "offset": -1.5, "scale": 10, "dtype": ">f8", "astype": "<i4"}],
    ),
    (
        "convert",
        "<i4",
        [{"id": "delta", "dtype": "<i4"}, {"id": "astype", "encode_dtype": "<i2", "decode_dtype": "<i4"}],
    ),
    ("unpack_bits", "|b1", [{"id": "packbits"}]),
]


@pytest.mark.parametrize(("kernel", "dtype", "filters"), FILTERS, ids=[kernel for kernel, *_ in FILTERS])
def test_reads_through_filters(
    kernel: str, dtype: str, filters: Any, tmp_path: Path, device: devices.TestedDevice
) -> None:
    data = z.sample(SHAPE, "<i2").astype(dtype)
    z.write(tmp_path / "a", z.v2(SHAPE, CHUNKS, dtype, blosc("lz4", 1), filters), data)
    assert kernel in check_reads(tmp_path / "a", device, gzarr.open_array(tmp_path / "a", device="cpu")[...])


SWAPPED = z.codec("transpose", order=[2, 0, 1])
CHAINS: dict[str, list[Any]] = {
    "zstd-crc": [z.LITTLE, z.codec("zstd", level=1, checksum=False), z.CRC32C],
    "transposed": [SWAPPED, z.BIG, z.blosc3("zstd", "bitshuffle", 4)],
    "shards": [z.shard([5, 8, 3], [z.BIG, z.blosc3("lz4", "shuffle", 4), z.CRC32C])],
    "raw-shards": [z.shard([5, 4, 2], [SWAPPED, z.LITTLE], "start")],
}


@pytest.mark.parametrize("budget", [None, 400_000])
@pytest.mark.parametrize("name", CHAINS)
def test_reads_of_v3(name: str, budget: int | None, tmp_path: Path, device: devices.TestedDevice) -> None:
    """In one wave and in several."""
    data = z.sample(SHAPE, "f4")
    z.write(tmp_path / "a", z.v3(SHAPE, CHUNKS, "float32", CHAINS[name]), data)
    options = {} if budget is None else {"budget_bytes": budget}
    assert "assemble" in check_reads(tmp_path / "a", device, data, **options)


def test_windows_into_one_output(tmp_path: Path, device: devices.TestedDevice) -> None:
    data = z.sample(SHAPE, "u2")
    z.write(tmp_path / "a", z.v2(SHAPE, CHUNKS, "<u2", blosc("lz4", 1)), data)
    array = gzarr.open_array(tmp_path / "a", device=device.name)
    out = device.array(np.full(SHAPE, 9, "u2"))
    device.read(array, (slice(2, 30), slice(None, None, 2)), out=out[5:33, 11:0:-1], decode="cuda")
    expected = np.full(SHAPE, 9, "u2")
    expected[5:33, 11:0:-1] = data[2:30, ::2]
    z.same(device.to_numpy(out), expected)


# -- writes


@pytest.mark.parametrize("name", ["raw", "zstd", "gzip", "zlib", "blosc-lz4-1", "blosc-zstd-2", "blosc-stored"])
@pytest.mark.parametrize(("dtype", "order"), [("|u1", "C"), (">f4", "F"), ("<c16", "C")])
def test_writes(dtype: str, name: str, order: str, tmp_path: Path, device: devices.TestedDevice) -> None:
    data = w.data_of(dtype)
    array = w.make(tmp_path, dtype=dtype, zarr_format=2, order=order, compressors=w.COMPRESSORS[name], fill_value=0)
    array.write(..., device.array(data))
    array.write((slice(3, 30, 4), 7), device.array(data[:7, 3]))
    data[3:30:4, 7] = data[:7, 3]
    w.check(tmp_path, data, name)
    assert "gather" in launched(device.watched)


def test_writes_of_shards(tmp_path: Path, device: devices.TestedDevice) -> None:
    data = w.data_of("f4")
    data[:9, :5] = 1.5
    array = w.make(
        tmp_path,
        dtype="f4",
        fill_value=1.5,
        chunks=(4, 5, 7),
        shards=(16, 10, 21),
        compressors=[zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"), zarr.codecs.Crc32cCodec()],
    )
    array.write(..., device.array(data))
    w.check(tmp_path, data)
    ran = launched(device.watched)
    assert ran >= {"gather", "plain_to_byte_planes", "put_numbers", "put_checksums", "copy_frames"}
