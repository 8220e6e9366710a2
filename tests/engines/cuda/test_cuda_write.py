"""Writing from CuPy's arrays: zarr-python, tensorstore and gzarr's CPU engine read what was stored."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import cramjam
import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from support import zarr_arrays as z
from support.cuda_on_host import host_codecs
from support.device_writes import CHUNKS, COMPRESSORS, SHAPE, check, data_of, encoded, make, on, on_host, writable

import gzarr
from gzarr.engines.cuda import write_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

#: The algorithm of nvCOMP behind a compressor, where its name does not say it.
ENCODER = {"raw": None, "gzip": "deflate", "zlib": "deflate", "blosc-stored": None}


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with on_host() as made:
        yield made


# -- formats


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("dtype", ["<u2", ">f4", "|u1", "<c16", "|b1"])
def test_formats(dtype: str, name: str, order: str, tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of(dtype)
    array = make(tmp_path, dtype=dtype, zarr_format=2, order=order, compressors=COMPRESSORS[name], fill_value=0)
    array.write(..., on(device, data))
    assert device.counts["launch gather"] == 1
    algorithm = ENCODER.get(name, name.removeprefix("blosc-").partition("-")[0])
    assert (device.counts[f"encoded frames {algorithm}"] >= 12) == (algorithm is not None)
    check(tmp_path, data, name)
    result = gzarr.open_array(tmp_path, device="cuda").read(decode="cuda")
    z.same(result.get(), data)


INNER = {
    "zstd": [zarr.codecs.ZstdCodec(level=1)],
    "blosc crc": [zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"), zarr.codecs.Crc32cCodec()],
    "raw crc crc": [zarr.codecs.Crc32cCodec(), zarr.codecs.Crc32cCodec()],
    "gzip": [zarr.codecs.GzipCodec(level=1)],
}


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("wave_bytes", [1 << 26, 3000])
def test_shards(
    name: str, location: str, wave_bytes: int, tmp_path: Path, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards in one wave and in several; some inner chunks, and one shard, have only fill values."""
    monkeypatch.setattr(write_engine, "WAVE_BYTES", wave_bytes)
    data = data_of("f4")
    data[:9, :5] = 1.5
    data[32:] = 1.5
    array = make(
        tmp_path,
        dtype="f4",
        fill_value=1.5,
        chunks=(4, 5, 7),
        shards=zarr.core.array.ShardsConfigParam(shape=(16, 10, 21), index_location=location),
        filters=zarr.codecs.TransposeCodec(order=(2, 0, 1)) if name == "gzip" else None,
        compressors=INNER[name],
    )
    array.write(..., on(device, data))
    assert device.counts["launch gather"] >= (1 if wave_bytes > 3000 else 30)
    assert (encoded(device) > 0) == (name != "raw crc crc")
    check(tmp_path, data)
    files = sorted(
        path.relative_to(tmp_path / "c").as_posix() for path in (tmp_path / "c").rglob("*") if path.is_file()
    )
    assert files == [f"{i}/{j}/0" for i in range(2) for j in range(4)]
    peer = tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}).result()
    z.same(peer.read().result(), data)
    # Everything becomes the fill value, so that nothing is left.
    array.write(..., on(device, np.full(SHAPE, 1.5, "f4")))
    assert not [path for path in tmp_path.rglob("c/*") if path.is_file()]
    check(tmp_path, np.full(SHAPE, 1.5, "f4"))


@pytest.mark.parametrize("algorithm", ["lz4", "zstd", "snappy", "deflate", "gdeflate"])
def test_frames_of_nvcomp(algorithm: str, tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2")
    document = z.v2(SHAPE, CHUNKS, "<u2", {"id": "nvcomp_batch", "algorithm": algorithm, "options": {}})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".zarray").write_text(json.dumps(document))
    array = writable(tmp_path / "a")
    array.write(..., on(device, data))
    assert device.counts[f"encoded frames {algorithm}"] == 12
    z.same(gzarr.open_array(tmp_path / "a", device="cpu")[...], data)


def test_a_shuffle_in_front_of_any_compressor(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("f8")
    for i, compressor in enumerate((numcodecs.Zstd(1), numcodecs.Blosc("zstd", 1, 2, 4096), None)):
        array = make(
            tmp_path / str(i),
            dtype="f8",
            zarr_format=2,
            fill_value=0,
            filters=[numcodecs.Shuffle(8)],
            compressors=compressor,
        )
        array.write(..., on(device, data))
        check(tmp_path / str(i), data)
    assert device.counts["launch plain_to_byte_planes"] == 3
    assert device.counts["launch plain_to_bit_planes"] == 1


def test_zero_dimensions_and_an_odd_edge(tmp_path: Path, device: WatchedDevice) -> None:
    array = make(tmp_path / "0", shape=(), chunks=(), dtype="f8", fill_value=0)
    array.write((), on(device, np.float64(2.5)))
    check(tmp_path / "0", np.array(2.5))
    assert encoded(device) == 1
    data = data_of("i8", (1, 19))
    array = make(tmp_path / "1", shape=(1, 19), chunks=(1, 7), dtype="i8")
    array.write(..., on(device, data))
    check(tmp_path / "1", data)


# -- Blosc containers


def container(path: Path) -> tuple[bytes, int, int, int]:
    """Return a container, its flags, typesize and block size."""
    data = path.read_bytes()
    version, _, flags, typesize, _, blocksize, nbytes = struct.unpack_from("<4B3I", data)
    assert version == 2
    assert nbytes == len(data)
    return data, flags, typesize, blocksize


@pytest.mark.parametrize("blocksize", [0, 1000, 40_000])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_blosc_containers(cname: str, shuffle: int, blocksize: int, tmp_path: Path, device: WatchedDevice) -> None:
    """Streams that shrink beside streams that do not, and a short last block."""
    n = 70_001
    noise = np.random.default_rng(2).integers(0, 2**16, n, dtype="u4")
    data = (np.arange(n, dtype="u4") // 100 << 16 | noise).astype("u4")
    data[30_000:] = 5
    array = make(
        tmp_path, shape=(n,), chunks=(n,), dtype="u4", zarr_format=2, fill_value=0,
        compressors=numcodecs.Blosc(cname, 5, shuffle, blocksize),
    )  # fmt: skip
    array.write(..., on(device, data))
    found, flags, typesize, block = container(tmp_path / "0")
    assert bytes(numcodecs.blosc.decompress(found)) == data.tobytes()
    assert flags & 0x02 == 0
    assert flags & 0x05 == {0: 0, 1: 1, 2: 4}[shuffle]
    assert flags >> 5 == {"lz4": 1, "zstd": 4}[cname]
    assert bool(flags & 0x10) == (cname == "zstd")
    assert typesize == 4
    assert block == (blocksize // 32 * 32 or (65536 if cname == "zstd" else 4 * 65536))
    check(tmp_path, data)


def test_what_blosc_does_not_shrink_is_stored_as_it_is(tmp_path: Path, device: WatchedDevice) -> None:
    data = np.frombuffer(np.random.default_rng(0).bytes(8 * 2000), "u8")
    array = make(
        tmp_path,
        shape=(2000,),
        chunks=(1000,),
        dtype="u8",
        zarr_format=2,
        compressors=numcodecs.Blosc("lz4", 5, 1),
        fill_value=0,
    )
    array.write(..., on(device, data))
    found, flags, _, _ = container(tmp_path / "1")
    assert flags & 0x02
    assert found[16:] == data[1000:].tobytes()
    check(tmp_path, data)


# -- what the device leaves to the CPU


WRITES: list[tuple[Any, Any]] = [
    (np.s_[2:19:5], np.arange(4 * 33 * 21).reshape(4, 33, 21)),
    (np.s_[::-1, 4, ::-2], np.arange(40 * 11).reshape(40, 11)),
    (np.s_[:, None, :, 0], np.arange(40 * 33).reshape(40, 1, 33)),
    (np.s_[5], np.arange(21)),
    (np.s_[16:32, 10:33], np.arange(21, dtype="u1")),
    (np.s_[7:39], np.arange(32 * 33 * 21).reshape(32, 33, 21)),
    (np.s_[3:3], np.zeros((0, 33, 21), "i4")),
    (np.s_[[1, 19, 1, 0]], np.arange(4).reshape(4, 1, 1)),
    (np.s_[..., ::-1], np.arange(40 * 33 * 21).reshape(SHAPE)[..., :1]),
]


@pytest.mark.parametrize("sharded", [False, True])
def test_writes_are_numpy_s(sharded: bool, tmp_path: Path, device: WatchedDevice) -> None:
    layout = {"chunks": (8, 5, 7), "shards": CHUNKS} if sharded else {}
    array = make(tmp_path, **layout)
    expected = np.full(SHAPE, 7, "i4")
    for selection, value in WRITES:
        value = np.asarray(value).astype("i4" if value.dtype.itemsize == 8 else value.dtype)
        array[selection] = on(device, value)
        expected[selection] = value
        check(tmp_path, expected, selection)
    points = ([3, 19, 3], [1, 12, 1], [0, 6, 0])
    array.vindex[points] = on(device, np.array([10, 11, 12], "i4"))
    expected[points] = [10, 11, 12]
    rows = [30, 0, 17]
    array.oindex[rows, :, 3] = on(device, np.arange(99, dtype="i4").reshape(3, 33))
    expected[rows, :, 3] = np.arange(99).reshape(3, 33)
    check(tmp_path, expected)
    assert encoded(device) > 0


def test_strided_values(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("f4", (21, 40, 66))
    value = on(device, data)
    array = make(tmp_path, dtype="f4", fill_value=0)
    for view in (value.transpose(1, 2, 0)[:, ::2], value.transpose(1, 2, 0)[::-1, 33:, ::-1]):
        array.write(..., view)
        check(tmp_path, view.get())
    assert device.counts["launch gather"] == 2


def test_many_windows_of_several_arrays(tmp_path: Path, device: WatchedDevice) -> None:
    array = make(tmp_path, fill_value=0)
    windows: list[Any] = [np.s_[0:16], np.s_[16:40, :20], np.s_[14:18], np.s_[32:40, 20:33]]
    values = [data_of("i4", shape, i) for i, shape in enumerate([(16, 33, 21), (24, 20, 21), (4, 33, 21), (8, 13, 21)])]
    array.write_many(windows, [on(device, value) for value in values])
    expected = np.zeros(SHAPE, "i4")
    for window, value in zip(windows, values, strict=True):
        expected[window] = value
    check(tmp_path, expected)
    # Only what lies in no more than one of them.
    assert device.counts["encoded frames zstd"] == 4


def test_frames_that_fail_are_encoded_on_the_host(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("i4")
    device.refuse = lambda algorithm, frame: frame in (1, 5)
    for i, layout in enumerate(({}, {"chunks": (8, 5, 7), "shards": CHUNKS})):
        array = make(tmp_path / str(i), **layout)
        array.write(..., on(device, data))
        check(tmp_path / str(i), data)


def test_frames_without_their_size_are_not_stored(
    tmp_path: Path, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_size(data: bytes) -> bytes:
        frame = bytes(numcodecs.Zstd(1).encode(data))
        # A window of 2 MiB instead of the size, which has two bytes here.
        assert frame[4] == 0x60
        return frame[:4] + b"\x00\x58" + frame[7:]

    data = data_of("i4")
    assert bytes(cramjam.zstd.decompress(without_size(data[:16, :10].tobytes()))) == data[:16, :10].tobytes()
    monkeypatch.setitem(host_codecs.ENCODERS, "zstd", without_size)
    array = make(tmp_path)
    array.write(..., on(device, data))
    assert device.counts["encoded frames zstd"] == 12
    for path in (tmp_path / "c").rglob("*"):
        assert path.is_dir() or path.read_bytes()[4] != 0
    check(tmp_path, data)


def test_chains_of_the_host(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("i4")
    chains: list[dict[str, Any]] = [
        {"compressors": zarr.codecs.ZstdCodec(level=1, checksum=True)},
        {"zarr_format": 2, "compressors": numcodecs.Blosc("zlib", 1, 1)},
        {"zarr_format": 2, "compressors": numcodecs.BZ2(1)},
        {"zarr_format": 2, "filters": [numcodecs.Delta("<i4")], "compressors": numcodecs.Zstd(1)},
        # More than a deflate frame of nvCOMP's holds.
        {"chunks": SHAPE, "compressors": zarr.codecs.GzipCodec(level=1)},
    ]
    for i, chain in enumerate(chains):
        array = make(tmp_path / str(i), **chain)
        array.write(..., on(device, data))
        check(tmp_path / str(i), data, chain)
    assert encoded(device) == 0


@pytest.mark.parametrize(
    "step",
    [
        z.codec("bitround", keepbits=2),
        z.codec("numcodecs.quantize", digits=1, dtype="<f4"),
        z.codec(
            "cast_value",
            data_type="float32",
            rounding="nearest-even",
            scalar_map={"encode": [[1.0, 2.0]], "decode": []},
        ),
    ],
    ids=lambda step: step["name"],
)
def test_what_changes_values_when_it_encodes(step: z.Json, tmp_path: Path, device: WatchedDevice) -> None:
    """Such a codec decodes to its input, but must not be left out."""
    data = np.random.default_rng(4).random((6, 10)).astype("f4")
    data[0, 0] = 1
    found = []
    for name in ("cpu", "device"):
        path = tmp_path / name
        path.mkdir()
        document = z.v3((6, 10), (4, 4), "float32", [step, z.LITTLE, z.codec("zstd", level=1, checksum=False)])
        (path / "zarr.json").write_text(json.dumps(document))
        writable(path).write(..., data if name == "cpu" else on(device, data))
        found.append(gzarr.open_array(path, device="cpu")[...])
    z.same(*found)
    assert (found[0] != data).any()


def test_conversions(tmp_path: Path, device: WatchedDevice) -> None:
    array = make(tmp_path)
    small = data_of("u1")
    array.write(..., on(device, small))
    assert device.counts["encoded frames zstd"] == 12
    check(tmp_path, small.astype("i4"))
    # Elements that have to be looked at are looked at on the host.
    large = np.arange(np.prod(SHAPE), dtype="i8").reshape(SHAPE)
    array.write(..., on(device, large))
    assert device.counts["encoded frames zstd"] == 12
    check(tmp_path, large.astype("i4"))
    with pytest.raises(gzarr.ArgumentError, match="cannot be stored"):
        array.write(..., on(device, large + 2**40))
    with pytest.raises(gzarr.ArgumentError, match="does not broadcast"):
        array.write(..., on(device, np.zeros(5, "i4")))
    check(tmp_path, large.astype("i4"))


# -- fill values


@pytest.mark.parametrize("fill", [0.0, float("nan"), -0.0])
def test_chunks_of_the_fill_value_are_erased(fill: float, tmp_path: Path, device: WatchedDevice) -> None:
    """The comparison is bitwise: another zero or another NaN is not the fill value."""
    other = np.array([0x7FF8000000000001], "u8").view("f8")[0] if np.isnan(fill) else -fill
    data = np.full((40, 10), fill)
    data[10:20] = other
    data[39, 9] = 1
    document = z.v3(
        (40, 10),
        (10, 10),
        "float64",
        [z.LITTLE, z.codec("zstd", level=1, checksum=False)],
        fill="NaN" if np.isnan(fill) else fill,
    )
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    array = writable(tmp_path)
    array.write(..., on(device, np.ones((40, 10))))
    array.write(..., on(device, data))
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["1", "3"]
    z.same(gzarr.open_array(tmp_path, device="cpu")[...], data)
    writable(tmp_path, write_empty_chunks=True).write(..., on(device, data))
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["0", "1", "2", "3"]
    z.same(gzarr.open_array(tmp_path, device="cpu")[...], data)
