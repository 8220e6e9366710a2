"""Reads and writes as in programs of GPU users: streams, memory limits, other libraries, other readers.

Each test runs on every device of this pytest run: by default the CPU and the simulated device; with ``GZARR_TEST_GPU=1
pytest -m gpu`` a real one.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import zarr_arrays as z
from support.files_past_host import FilesPastHost
from support.volumes import CHUNKS, COMPRESSORS, SHAPE, volume, written

import gzarr
from gzarr.engines.cuda import devices, kvikio_files, slots, write_engine
from gzarr.engines.cuda.host_decoding import HostStaging

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

# -- streams, threads, memory


def test_two_streams_of_the_caller(tmp_path: Path, device: TestedDevice) -> None:
    """Reads on two streams run at once; each is done when its own stream is."""
    datas = [volume(seed=1), volume(seed=2)]
    arrays = [device.open(written(tmp_path / str(i), "zstd", data)) for i, data in enumerate(datas)]
    with ExitStack() as stack:
        streams: list[Any] = [None, None]
        if device.is_cuda:
            current = stack.enter_context(devices.get_device(device.name))
            streams = [current.stream(), current.stream()]
        for turn in range(4):
            outs = []
            for array, stream in zip(arrays, streams, strict=True):
                with nullcontext() if stream is None else stream:
                    out = device.empty(SHAPE, "u4")
                    outs.append(array.read(out=out, stream=stream, decode=("cuda", "cpu")[turn % 2]))
            for out, stream, data in reversed(list(zip(outs, streams, datas, strict=True))):
                if stream is not None:
                    stream.synchronize()
                z.same(device.to_numpy(out), data, turn)


def test_many_threads_read_at_once(tmp_path: Path, device: TestedDevice) -> None:
    data = volume()
    arrays = [device.open(written(tmp_path / name, name, data)) for name in ("zstd", "blosc-lz4-1", "gzip")]

    def read(i: int) -> None:
        where = (slice(i, None), slice(None, None, 1 + i % 3))
        z.same(device.read(arrays[i % 3], where), data[where], i)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(read, range(30)))


def test_memory_stays_within_the_budget(tmp_path: Path, device: TestedDevice) -> None:
    data = volume("<u2", (256, 256), seed=6)
    z.write(tmp_path / "a", z.v2(data.shape, (32, 32), "<u2", COMPRESSORS["zstd"]), data)
    array = device.open(tmp_path / "a")
    for decode in ("cuda", "cpu"):
        for budget in (300_000, 2_000_000):
            slots.release()
            out = device.empty(data.shape, "u2")
            with ExitStack() as stack:
                held = _held(device, stack)
                array.read(out=out, budget_bytes=budget, decode=decode)
                z.same(device.to_numpy(out), data, (decode, budget))
                if device.is_cuda:
                    assert 0 < held() <= budget
    slots.release()
    if device.is_cuda:
        with pytest.raises(gzarr.ArgumentError, match="too small"):
            array.read(budget_bytes=100, decode="cuda")


def _held(device: TestedDevice, stack: ExitStack) -> Callable[[], int]:
    """Return a function for the most device and page-locked bytes that a read has held, besides its result."""
    if device.watched is not None:
        simulated = device.watched
        simulated.reset_peak()
        return lambda: simulated.peak
    if not device.is_cuda:
        return lambda: 0
    cupy: Any = importlib.import_module("cupy")
    pool = cupy.cuda.MemoryPool()
    current = stack.enter_context(devices.get_device(device.name))
    pinned: list[int] = []
    make = current.pinned

    def counted(nbytes: int) -> Any:
        pinned.append(nbytes)
        return make(nbytes)

    stack.enter_context(pytest.MonkeyPatch.context()).setattr(current, "pinned", counted)
    stack.enter_context(cupy.cuda.using_allocator(pool.malloc))
    # Blocks that went back to the pool are still its own: this is the most that there were at once, or more.
    return lambda: pool.total_bytes() + sum(pinned)


# -- reads past host memory


def _direct_files(device: TestedDevice) -> tuple[Any, str]:
    """Return the reader of files to a device that bypasses host memory, and what it lacks ("": nothing).

    Without GPUDirect Storage, kvikio itself goes through host memory, so its calls are tested anyway.
    """
    if device.watched is not None:
        return FilesPastHost(device.watched), ""
    try:
        return kvikio_files.KvikioFiles(), kvikio_files.obstacle()
    except Exception as error:  # of kvikio, of cuFile, or for there is none
        return None, f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", ["chunks", "shards"])
def test_past_host_memory_and_through_it(
    name: str,
    tmp_path: Path,
    device: TestedDevice,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    data = volume("<f4", (520, 400))
    codecs = [z.BIG] if name == "chunks" else [z.shard([130, 200], [z.LITTLE])]
    z.write(tmp_path / "a", z.v3(data.shape, (130 if name == "chunks" else 260, 200), "float32", codecs), data)
    array = device.open(tmp_path / "a")
    if not device.is_cuda:
        z.same(device.read(array), data)
        return
    current = devices.get_device(device.name)
    files, lacks = _direct_files(device)
    record_property("GPUDirect Storage", lacks or "on")
    if lacks:
        # Shown at the end of the run.
        warnings.warn(f"nothing was read past host memory: {lacks}", stacklevel=1)
    left: list[int] = []
    host = HostStaging.stage
    monkeypatch.setattr(
        HostStaging, "stage", lambda self, rows, *rest: left.append(len(rows)) or host(self, rows, *rest)
    )
    for source in (files, None):
        monkeypatch.setattr(current, "direct_files", lambda source=source: source)
        for budget in (None, 1_500_000):
            for selection in (..., (slice(3, None, 5), slice(None, None, -1))):
                result = array.read(selection, decode="cuda", budget_bytes=budget)
                z.same(device.to_numpy(result), data[selection], (source, budget, selection))
    # What kvikio cannot read is decoded by the host, which must not hide that.
    assert not left


# -- other libraries

LIBRARIES = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is not None]


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_libraries_take_results_without_a_copy(library: str, tmp_path: Path, device: TestedDevice) -> None:
    data = volume("<f4")
    array = device.open(written(tmp_path / "a", "blosc-zstd-2", data))
    result = array.read(decode="cuda")
    device.to_numpy(result)
    if library == "torch":
        torch: Any = importlib.import_module("torch")
        tensors = [torch.from_dlpack(result)]
        if device.is_cuda and device.watched is None:
            assert result.__cuda_array_interface__["data"][0] == tensors[0].data_ptr()
            tensors.append(torch.as_tensor(result, device=device.name))
        for tensor in tensors:
            assert tensor.data_ptr() == _address(result)
            z.same(tensor.cpu().numpy(), data)
        # What one of them writes, the other sees.
        tensors[0][0, 0, 0] = -1
        if device.is_cuda and device.watched is None:
            torch.cuda.synchronize()
        assert device.to_numpy(result)[0, 0, 0] == -1
    else:
        jax: Any = importlib.import_module("jax")
        z.same(np.asarray(jax.dlpack.from_dlpack(result)), data)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name == "torch"])
def test_reads_into_a_tensor(library: str, tmp_path: Path, device: TestedDevice) -> None:
    data = volume("<i4")
    array = device.open(written(tmp_path / "a", "lz4", data))
    torch: Any = importlib.import_module(library)
    if device.watched is not None:
        # Only its own memory is a simulated device's.
        out = device.empty(SHAPE, "i4")
        tensor = torch.from_dlpack(out)
    else:
        tensor = torch.zeros(SHAPE, dtype=torch.int32, device=device.name)
        out = importlib.import_module("cupy").from_dlpack(tensor) if device.is_cuda else tensor.numpy()
    device.to_numpy(array.read(out=out, decode="cuda"))
    z.same(tensor.cpu().numpy(), data)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_of_other_libraries_are_read_and_written(
    library: str, dtype: str, tmp_path: Path, device: TestedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise JAX takes most of the memory for itself.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    other: Any = importlib.import_module(library)
    on_gpu = device.is_cuda and device.watched is None
    if on_gpu and not (other.cuda.is_available() if library == "torch" else other.default_backend() == "gpu"):
        pytest.skip(f"{library} has no CUDA here")
    if library == "torch" and not on_gpu:
        # A GPU beside the simulated device is not meant.
        monkeypatch.setattr(other.cuda, "is_available", lambda: False)
    gzarr.create_array(tmp_path / "a", data=volume("<f4").astype(dtype), chunks=CHUNKS, codecs="zstd", device="cpu")
    expected = gzarr.open_array(tmp_path / "a", device="cpu")[...].view(f"u{2 if dtype == 'bfloat16' else 4}")
    array = device.open(tmp_path / "a", mode="r+")
    with ExitStack() as stack:
        if library == "torch" and on_gpu:
            # The read and what follows it are on this stream.
            stack.enter_context(other.cuda.stream(other.cuda.Stream(device.name)))
        for turn in range(3):
            found = (array.to_torch if library == "torch" else array.to_jax)(decode=("cuda", "cpu")[turn % 2])
            turned = found.flip(0) if library == "torch" else found[::-1]
            if library == "torch":
                assert str(found.device) == (device.name if on_gpu else "cpu")
                host = turned.view(other.int16 if dtype == "bfloat16" else other.int32).cpu().numpy()
            else:
                assert {one.platform for one in found.devices()} == {"gpu" if on_gpu else "cpu"}
                host = np.asarray(turned)
            z.same(host.view(expected.dtype), expected[::-1], turn)
            array[...] = turned
            expected = expected[::-1]
    z.same(gzarr.open_array(tmp_path / "a", device="cpu")[...].view(expected.dtype), expected)


def _address(result: Any) -> int:
    return int(result.data.ptr if hasattr(result.data, "ptr") else result.ctypes.data)


# -- writing


def _blank(path: Path, document: dict[str, Any], device: TestedDevice) -> gzarr.Array:
    """Return a new array without chunks, to be written from a device."""
    path.mkdir(parents=True)
    (path / ("zarr.json" if document["zarr_format"] == 3 else ".zarray")).write_text(json.dumps(document))
    return gzarr.open_array(path, mode="r+", device=device.name)


def _left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect in a list the number of chunks that each write of a device leaves to the CPU."""
    found: list[int] = []
    write = write_engine.write

    def counted(*arguments: Any) -> Any:
        rows = write(*arguments)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(write_engine, "write", counted)
    return found


def _mixed() -> np.ndarray[Any, Any]:
    """Return smooth elements beside noise, so that some streams shrink and others do not."""
    data = volume()
    data[:16] = np.random.default_rng(8).integers(0, 2**32, data[:16].shape, dtype="u4")
    return data


@pytest.mark.parametrize("compressor", [c for c in COMPRESSORS if "zlib-" not in c and "hc" not in c])
def test_what_is_written_is_read_by_others(
    compressor: str, tmp_path: Path, device: TestedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, left = _mixed(), _left(monkeypatch)
    array = _blank(tmp_path / "a", z.v2(SHAPE, CHUNKS, "<u4", COMPRESSORS[compressor]), device)
    array.write(..., device.array(data))
    assert left == ([0] if device.is_cuda else [])
    z.same(np.asarray(zarr.open_array(str(tmp_path / "a"), mode="r")[...]), data)
    z.same(gzarr.open_array(tmp_path / "a", device="cpu")[...], data)
    z.same(device.to_numpy(array.read(decode="cuda")), data)
    # In part: chunks in the middle are encoded on the device, those at the edges are changed on the host.
    array.write((slice(3, None), slice(None, -1)), device.array(data[3:, 1:]))
    data[3:, :-1] = data[3:, 1:].copy()
    z.same(np.asarray(zarr.open_array(str(tmp_path / "a"), mode="r")[...]), data)


@pytest.mark.parametrize("algorithm", ["zstd", "lz4", "snappy", "deflate", "gdeflate"])
def test_frames_of_nvcomp_are_written_and_read(
    algorithm: str, tmp_path: Path, device: TestedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not device.is_cuda and algorithm in ("snappy", "gdeflate"):
        # There is no encoder for host memory.
        array = _blank(
            tmp_path / "a", z.v2(SHAPE, CHUNKS, "<u4", {"id": "nvcomp_batch", "algorithm": algorithm}), device
        )
        with pytest.raises(gzarr.ChunkWriteError, match="cannot be encoded in host memory"):
            array.write(..., 5)
        return
    data, left = _mixed(), _left(monkeypatch)
    array = _blank(tmp_path / "a", z.v2(SHAPE, CHUNKS, "<u4", {"id": "nvcomp_batch", "algorithm": algorithm}), device)
    array.write(..., device.array(data))
    assert left == ([0] if device.is_cuda else [])
    z.same(gzarr.open_array(tmp_path / "a", device="cpu")[...], data)
    z.same(device.to_numpy(array.read(decode="cuda")), data)


@pytest.mark.parametrize("location", ["start", "end"])
def test_shards_are_written_whole(
    location: str, tmp_path: Path, device: TestedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, left = volume("<f4", (70, 66)), _left(monkeypatch)
    data[:20] = 0
    turned = z.codec("transpose", order=[1, 0])
    inner = [turned, z.BIG, z.codec("zstd", level=1, checksum=False), z.CRC32C]
    document = z.v3(data.shape, (20, 32), "float32", [z.shard([10, 8], inner, location)])
    array = _blank(tmp_path / "a", document, device)
    for turn in range(3):
        with ExitStack() as stack:
            stream = None
            if device.is_cuda:
                stream = stack.enter_context(stack.enter_context(devices.get_device(device.name)).stream())
            array.write(..., device.array(data + np.float32(turn) * (data != 0)), stream=stream)
    data += np.float32(2) * (data != 0)
    assert left == ([0] * 3 if device.is_cuda else [])
    z.same(np.asarray(zarr.open_array(str(tmp_path / "a"), mode="r")[...]), data)
    z.same(device.to_numpy(array.read(decode="cuda")), data)
    assert not (tmp_path / "a" / "c" / "0").exists()


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name == "torch"])
def test_tensors_are_written(library: str, tmp_path: Path, device: TestedDevice) -> None:
    torch: Any = importlib.import_module(library)
    on = "cpu" if device.watched is not None or not device.is_cuda else device.name
    tensor = torch.arange(SHAPE[0], device=on, dtype=torch.int32).reshape(-1, 1, 1).expand(SHAPE)
    array = _blank(tmp_path / "a", z.v2(SHAPE, CHUNKS, "<i4", COMPRESSORS["zstd"], fill=-1), device)
    array.write(..., tensor)
    z.same(gzarr.open_array(tmp_path / "a", device="cpu")[...], tensor.cpu().numpy())
