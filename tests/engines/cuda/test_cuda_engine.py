"""The CUDA engine on the real CuPy over CUDA in host memory, against zarr-python, NumPy and the CPU engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
from gzarr_kernels.operations import ALGORITHMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import devices

import gzarr
from gzarr.engines.cuda import slots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

SHAPE, CHUNKS = (40, 33, 21), (16, 10, 21)
COMPRESSORS: dict[str, Any] = {
    "raw": None,
    "zstd": numcodecs.Zstd(1),
    "lz4": numcodecs.LZ4(),
    "gzip": numcodecs.GZip(1),
    "zlib": numcodecs.Zlib(1),
    "bz2": numcodecs.BZ2(1),
    **{
        f"blosc-{name}-{shuffle}": numcodecs.Blosc(name, 5, shuffle)
        for name in ("lz4", "lz4hc", "zstd", "zlib", "blosclz")
        for shuffle in (0, 1, 2)
    },
}
ON_DEVICE = {name for name in COMPRESSORS if name != "bz2" and "blosclz" not in name}


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host() as made:
        yield made


def data_of(dtype: Any, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    steps = np.random.default_rng(1).integers(-2, 3, shape)
    return (np.cumsum(steps, axis=-1) + 100).astype(dtype)


def create(path: Path, data: np.ndarray[Any, Any], **kwargs: Any) -> Any:
    array = zarr.create_array(path, shape=data.shape, dtype=kwargs.pop("dtype", data.dtype), **kwargs)
    array[...] = data
    return array


def same(result: Any, expected: np.ndarray[Any, Any]) -> None:
    import cupy

    assert isinstance(result, cupy.ndarray)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result.get(), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("dtype", ["<u2", ">f4", "|u1", "<c16", "|b1"])
def test_formats_and_selections(dtype: str, name: str, order: str, tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of(np.dtype(dtype).newbyteorder("="))
    create(tmp_path / "a", data, dtype=dtype, chunks=CHUNKS, zarr_format=2, order=order, compressors=COMPRESSORS[name])
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    assert a.device == "cuda:0"
    for decode in ("cuda", "cpu"):
        same(a.read(decode=decode), data)
        same(a.read((slice(3, 30), 5, slice(None, None, -2)), decode=decode), data[3:30, 5, ::-2])
        rows, columns = np.array([5, 1, 30, 5]), np.array([3, 3, 0])
        chosen = (rows, slice(2, 20), columns)
        same(a.oindex.read(chosen, decode=decode), data[np.ix_(rows, np.arange(2, 20), columns)])
        same(a.vindex.read((rows[:3], columns, columns), decode=decode), data[rows[:3], columns, columns])
        same(a.read((3, 4, 5), decode=decode), data[3, 4, 5, ...])
        same(a.read((slice(0, 0),), decode=decode), data[:0])
    assert a.decode_path.startswith("cuda")
    a.read(decode="cuda")
    assert (sum(n for what, n in device.counts.items() if what.startswith("launch assemble")) > 0) == (
        name in ON_DEVICE
    )
    decoded = sum(n for what, n in device.counts.items() if what.startswith("frames "))
    assert (decoded > 0) == (name in ON_DEVICE - {"raw"})


def test_rows_are_placed_by_one_launch_a_path(tmp_path: Path, device: WatchedDevice) -> None:
    def launched(data: np.ndarray[Any, Any], *selections: Any, **kwargs: Any) -> list[str]:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        create(path, data, **kwargs)
        if data.ndim == 3 and data.dtype == np.int32:
            (path / "c" / "0" / "0" / "0").unlink()
            data[:16, :16, :32] = 0
        a = gzarr.open_array(path, device="cuda")
        before = device.counts.copy()
        same(a.read(selections, decode="cuda"), data[selections])
        placing = ("assemble", "assemble_converted", "place_rows", "place_planes")
        return [name for name in placing for _ in range(device.counts[f"launch {name}"] - before[f"launch {name}"])]

    volume = data_of("u2", (64, 48, 64))
    blosc = zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")
    assert launched(volume, chunks=(32, 32, 32), compressors=blosc) == ["place_planes"]
    assert launched(volume, chunks=(32, 32, 32), compressors=None) == ["place_rows"]
    assert launched(volume, slice(3, 50), slice(7, 9), chunks=(32, 32, 32), compressors=blosc) == ["place_planes"]
    assert launched(volume, ..., slice(None, None, 2), chunks=(32, 32, 32), compressors=blosc) == ["assemble"]
    absent = data_of("i4", (32, 32, 64))
    assert launched(absent, chunks=(16, 16, 32), compressors=blosc) == ["place_rows", "place_planes"]
    image = data_of("u1", (100, 70, 3))
    assert launched(image, chunks=(32, 32, 3), compressors=zarr.codecs.ZstdCodec()) == ["place_rows"]


@pytest.mark.parametrize("compressor", [zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"), None])
def test_elements_are_converted_by_the_kernel_that_places_them(
    compressor: Any, tmp_path: Path, device: WatchedDevice
) -> None:
    data = data_of("u2", (64, 48, 64))
    create(tmp_path / "a", data, chunks=(32, 32, 32), compressors=compressor)
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    for dtype in ("f4", "f8", "i4", "u1"):
        for selection in (..., (slice(3, 50), 7, slice(None, None, -2))):
            before = device.counts.copy()
            same(a.read(selection, dtype=dtype, decode="cuda"), data[selection].astype(dtype))
            launched = {what for what in device.counts - before if what.startswith("launch ")}
            assert launched == {"launch assemble_converted"}, (dtype, selection)


def test_sharded_with_absent_chunks(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("f4", (64, 64))
    a = create(tmp_path / "a", data, chunks=(8, 8), shards=(32, 32), fill_value=9)
    del a
    (tmp_path / "a" / "c" / "1" / "1").unlink()
    data[32:, 32:] = 9
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    for decode in ("cuda", "cpu"):
        for budget in (None, 400_000):
            same(a.read(decode=decode, budget_bytes=budget), data)
            same(
                a.read((slice(1, 60, 3), slice(None, None, -1)), decode=decode, budget_bytes=budget), data[1:60:3, ::-1]
            )
    assert gzarr.open_array(tmp_path / "a", device="cuda", missing="error")[:32].shape == (32, 64)
    with pytest.raises(gzarr.MissingChunkError, match=r"chunk \(4, 4\)"):
        gzarr.open_array(tmp_path / "a", device="cuda", missing="error").read(decode="cuda")


def test_stores_that_are_not_local_files(device: WatchedDevice) -> None:
    data = data_of("i4", (50, 30))
    store: dict[str, Any] = {}
    memory = zarr.storage.MemoryStore()
    array = zarr.create_array(memory, shape=data.shape, dtype="i4", chunks=(7, 11))
    array[...] = data
    store.update({key: value.to_bytes() for key, value in memory._store_dict.items()})
    same(gzarr.open_array(store, device="cuda").read(decode="cuda"), data)


def test_read_many(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2", (60, 50))
    create(tmp_path / "a", data, chunks=(16, 16))
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    windows = [(slice(i, i + 20), slice(3, 40)) for i in range(0, 40, 7)]
    same(a.read_many(windows), np.stack([data[w] for w in windows]))
    ragged = [(slice(0, 10), slice(3, 5)), (slice(5, 60),), (3, slice(0, 9)), (slice(None, None, -2), [4, 1])]
    for result, window in zip(a.read_many(ragged), ragged, strict=True):
        same(result, data[window])


def test_out_and_the_callers_stream(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("f8", (40, 30))
    create(tmp_path / "a", data, chunks=(16, 16))
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    for decode in ("cuda", "cpu"):
        for turned in (False, True):
            with device:
                stream = device.stream()
                out = device.empty((30, 40) if turned else (40, 30), np.dtype("f8"), stream)
            out = out.T[::-1] if turned else out
            before = device.bytes_now(out.base if turned else out)
            with device.held_back(stream) as gate:
                assert a.read(out=out, stream=stream, decode=decode) is out
                assert not gate.passed, "the read waited for what the caller had enqueued"
                assert device.bytes_now(out.base if turned else out) == before
            stream.synchronize()
            same(out, data)
    with pytest.raises(gzarr.OutputError, match=r"cupy\.ndarray"):
        a.read(out=np.empty(data.shape))


@pytest.mark.parametrize("name", sorted(ON_DEVICE - {"raw"}))
def test_corrupt_chunks_are_named(name: str, tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u4")
    create(tmp_path / "a", data, chunks=CHUNKS, zarr_format=2, compressors=COMPRESSORS[name])
    path = tmp_path / "a" / "1.2.0"
    good = path.read_bytes()
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    host = gzarr.open_array(tmp_path / "a", device="cpu")
    failures = 0
    for bad in (good[: len(good) // 2], b"", good[:-1], good[:40] + bytes(200) + good[240:], good[::-1]):
        path.write_bytes(bad)
        outcomes = []
        for reader in (lambda: host[...], lambda: a.read(decode="cuda").get()):
            try:
                outcomes.append(reader().tobytes())
            except gzarr.ChunkDecodeError as error:
                outcomes.append((str(error), error.node, error.chunk, error.key))
        assert outcomes[0] == outcomes[1]
        if isinstance(outcomes[1], tuple):
            assert outcomes[1][1:] == ("/", (1, 2, 0), "1.2.0")
            failures += 1
    assert failures >= 2
    path.write_bytes(good)
    same(a.read(decode="cuda"), data)


def test_containers_that_the_device_does_not_take(tmp_path: Path, device: WatchedDevice) -> None:
    """Each container is valid, so the CPU decodes it within a read by the device."""
    data = data_of("u4")
    for name, others in {
        "zstd": [numcodecs.Zstd(1, checksum=True)],
        "gzip": [],
        "blosc-lz4-1": [numcodecs.Blosc("zstd", 5, 1), numcodecs.Blosc("lz4", 5, 2), numcodecs.Blosc("blosclz", 5, 1)],
    }.items():
        create(tmp_path / name, data, chunks=CHUNKS, zarr_format=2, compressors=COMPRESSORS[name])
        chunk = data[16:32, :10].tobytes()
        half = len(chunk) // 2
        encoded = [bytes(other.encode(np.frombuffer(chunk, "u4"))) for other in others]
        if name != "blosc-lz4-1":
            codec = COMPRESSORS[name]
            encoded.append(bytes(codec.encode(chunk[:half])) + bytes(codec.encode(chunk[half:])))
        for container in encoded:
            (tmp_path / name / "1.0.0").write_bytes(container)
            same(gzarr.open_array(tmp_path / name, device="cuda").read(decode="cuda"), data)


@pytest.mark.parametrize("name", ["lz4", "gzip", "zlib", "zstd", "blosc-lz4-1", "blosc-zlib-1", "blosc-zstd-2"])
@pytest.mark.parametrize(("side", "alignment"), [("input", 8), ("input", 64), ("output", 4), ("output", 16)])
def test_decoders_that_ask_for_more_alignment(
    side: str, alignment: int, name: str, tmp_path: Path, device: WatchedDevice
) -> None:
    """Whatever alignment a version of nvCOMP needs, frames are moved to match it, or left to the CPU."""
    data = data_of("u4")
    create(tmp_path / "a", data, chunks=CHUNKS, zarr_format=2, compressors=COMPRESSORS[name])
    decoders = [decoder for algorithm in ALGORITHMS if (decoder := device.decompressor(algorithm)) is not None]
    for decoder in decoders:
        setattr(decoder, f"{side}_alignment", alignment)
    # Slots of another size than in any read before: nothing fits by chance.
    for budget in (None, 1_000_000):
        same(gzarr.open_array(tmp_path / "a", device="cuda").read(decode="cuda", budget_bytes=budget), data)
    decoded = sum(n for what, n in device.counts.items() if what.startswith("frames "))
    # Only the streams of Blosc are written at any offset.
    assert decoded > 0 or (side == "output" and name.startswith("blosc"))


def test_memory_stays_within_the_budget(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2", (256, 256))
    create(tmp_path / "a", data, chunks=(32, 32), compressors=[zarr.codecs.ZstdCodec(level=1)])
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    for decode in ("cuda", "cpu"):
        for budget in (200_000, 1_000_000):
            device.reset_peak()
            same(a.read(decode=decode, budget_bytes=budget), data)
            assert 0 < device.peak <= budget
            slots.release()
    with pytest.raises(gzarr.ArgumentError, match="too small"):
        a.read(decode="cuda", budget_bytes=100)
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(gzarr.ArgumentError, match="budget_bytes"):
            a.read(budget_bytes=wrong)
    with pytest.raises(gzarr.ArgumentError, match="decode"):
        a.read(decode="tpu")


def test_many_threads_read_at_once(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2", (64, 64))
    create(tmp_path / "a", data, chunks=(16, 16), compressors=[zarr.codecs.ZstdCodec(level=1)])
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda i: (i, a.read(slice(i, None), decode="cuda")), range(12)):
            same(result[1], data[result[0] :])


def test_records_give_fields_and_say_what_a_gpu_cannot_hold(tmp_path: Path, device: WatchedDevice) -> None:
    dtype = np.dtype([("a", "<i2"), ("b", "<f8"), ("c", "S3")])
    data = np.zeros(12, dtype)
    data["a"], data["b"] = np.arange(12), np.arange(12) / 3
    zarr.create_array(tmp_path / "a", shape=12, chunks=5, dtype=dtype, zarr_format=2)[...] = data
    a = gzarr.open_array(tmp_path / "a", device="cuda")
    same(a["a"], data["a"])
    same(a["b", 2:11:2], data["b"][2:11:2])
    for selection in (..., "c"):
        with pytest.raises(gzarr.DeviceError, match='device="cpu"'):
            a[selection]
    with pytest.raises(gzarr.DeviceError, match=r"device='cpu'.*or cupy\.from_dlpack\(a\)"):
        np.asarray(a)
    assert gzarr.open_array(tmp_path / "a").device == "cpu"


def test_few_large_frames_are_decoded_by_the_cpu(tmp_path: Path, device: WatchedDevice) -> None:
    zarr.create_array(
        tmp_path / "few", shape=(8 << 22,), chunks=(1 << 22,), dtype="f4", compressors=zarr.codecs.ZstdCodec()
    )
    zarr.create_array(
        tmp_path / "many", shape=(1 << 34,), chunks=(1 << 14,), dtype="f4", compressors=zarr.codecs.ZstdCodec()
    )
    few, many = (gzarr.open_array(tmp_path / name, device="cuda") for name in ("few", "many"))
    assert few.decode_path.startswith("cuda, decoded on the host")
    assert many.decode_path == "cuda: zstd"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_random_arrays_and_selections(
    draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory, device: WatchedDevice
) -> None:
    ndim = draw.draw(st.integers(0, 4))
    shape = tuple(draw.draw(st.integers(0, 12)) for _ in range(ndim))
    chunks = tuple(draw.draw(st.integers(1, 8)) for _ in range(ndim))
    data = data_of(draw.draw(st.sampled_from(["i1", "u2", "f4", "c8", "c16"])), shape) if ndim else np.array(7, "f4")
    name = draw.draw(st.sampled_from(sorted(ON_DEVICE)))
    path = tmp_path_factory.mktemp("a") / "a"
    create(
        path, data, chunks=chunks, zarr_format=2, order=draw.draw(st.sampled_from("CF")), compressors=COMPRESSORS[name]
    )
    selection = tuple(
        draw.draw(
            st.one_of(
                st.slices(n), *([st.integers(-n, n - 1), st.just([0, n - 1, 0])] if n and d == 0 else [st.slices(n)])
            )
        )
        for d, n in enumerate(shape)
    )
    a = gzarr.open_array(path, device="cuda")
    same(a.read(selection, decode="cuda"), data[selection] if ndim else data)
