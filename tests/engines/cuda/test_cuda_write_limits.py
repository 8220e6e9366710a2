"""Writing from a device: streams, memory limits, failing stores and devices, threads, and random writes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z
from support.device_writes import COMPRESSORS, SHAPE, check, data_of, encoded, make, on, on_host, writable

import gzarr
from gzarr.engines.cuda import slots, write_engine
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with on_host() as made:
        yield made


# -- streams, memory, failures


def test_a_value_is_read_on_its_stream(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("i4")
    array = make(tmp_path)
    selections: list[Any] = [..., np.s_[3:40]]
    for i, selection in enumerate(selections):
        stream, source = device.stream(), on(device, data + i)
        value = device.empty(SHAPE, np.dtype("i4"), stream)
        with device.held_back(stream) as gate:
            device.copy_array(value, source, stream)
            gate.open_after(0.05)
            array.write(selection, value[selection], stream=stream)
        expected = gzarr.open_array(tmp_path, device="cpu")[...]
        z.same(expected[selection], (data + i)[selection])


def request_of(array: gzarr.Array, value: Any) -> Any:
    from gzarr.arrays.write import Writer
    from gzarr.plan.selection import parse_basic

    store: Any = array.store
    writer = Writer(array.metadata, store, array.path)
    ((request, _),) = writer._requests([parse_basic(..., array.shape)], (value,), None)
    return request


@pytest.mark.parametrize("name", ["raw", "zstd", "blosc-lz4-1", "gzip"])
def test_memory_stays_within_the_budget(name: str, tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2", (256, 256))
    array = make(
        tmp_path,
        shape=(256, 256),
        chunks=(32, 32),
        dtype="u2",
        zarr_format=2,
        compressors=COMPRESSORS[name],
        fill_value=0,
    )
    value = on(device, data)
    for budget in (400_000, 3_000_000):
        slots.release()
        device.reset_peak()
        left = write_engine.write(device, request_of(array, value), device.current_stream(), budget)
        assert not len(left)
        assert 0 < device.peak <= budget
        check(tmp_path, data)
    slots.release()
    left = write_engine.write(device, request_of(array, value), device.current_stream(), 1000)
    assert left.tolist() == list(range(64))
    with pytest.raises(gzarr.ArgumentError, match="budget_bytes"):
        write_engine.write(device, request_of(array, value), device.current_stream(), 0)


def test_the_budget_of_an_array_s_write(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("u2", (256, 256))
    array = make(tmp_path, shape=(256, 256), chunks=(32, 32), dtype="u2", compressors=zarr.codecs.ZstdCodec(level=1))
    value = on(device, data)
    writes: list[Any] = [
        lambda budget: array.write(..., value, budget_bytes=budget),
        lambda budget: array.write_many([...], [value], budget_bytes=budget),
        lambda budget: array.blocks.write(..., value, budget_bytes=budget),
    ]
    for write in writes:
        for budget in (400_000, 3_000_000):
            slots.release()
            device.reset_peak()
            device.counts.clear()
            write(budget)
            assert encoded(device) == 64
            assert 0 < device.peak <= budget
            check(tmp_path, data)
    slots.release()
    device.counts.clear()
    array.write(..., value, budget_bytes=1000)
    assert not encoded(device)
    check(tmp_path, data)


class FailingStore(MemoryStore):
    """A store that refuses some keys."""

    refused = ""

    def set_parts(self, key: str, parts: Any) -> None:
        if key == self.refused:
            raise OSError("disk full")
        super().set_parts(key, parts)


@pytest.mark.parametrize("wave_bytes", [1 << 26, 1])
def test_a_store_that_fails_is_named(wave_bytes: int, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_engine, "WAVE_BYTES", wave_bytes)
    monkeypatch.setenv("GZARR_THREADS", "1")
    store = FailingStore()
    document = z.v3((8,), (2,), "int32", [z.LITTLE, z.codec("zstd", level=1, checksum=False)])
    store.set("zarr.json", json.dumps(document).encode())
    array = writable(store)
    array.write(..., on(device, np.arange(8, dtype="i4")))
    store.refused = "c/2"
    with pytest.raises(gzarr.ChunkWriteError, match="disk full; 2 of 4 stored values") as caught:
        array.write(..., on(device, np.arange(8, 16, dtype="i4")))
    assert (caught.value.chunk, caught.value.key) == ((2,), "c/2")
    assert array[...].get().tolist() == [8, 9, 10, 11, 4, 5, 6, 7]
    store.refused = ""
    array.write(..., on(device, np.arange(8, dtype="i4")))
    assert array[...].get().tolist() == list(range(8))


def test_no_room_on_the_device(tmp_path: Path, device: WatchedDevice) -> None:
    data = data_of("i4")
    array = make(tmp_path)
    value = on(device, data)
    for kind in ("arena", "pinned"):
        slots.release()
        device.fail_allocation(1, kind)
        with pytest.raises(MemoryError):
            array.write(..., value)
        array.write(..., value)
        check(tmp_path, data)


def test_writers_in_many_threads(tmp_path: Path, device: WatchedDevice) -> None:
    """Each thread writes a window of its own, and shares chunks with its neighbours."""
    data = data_of("i4")
    array = make(tmp_path, chunks=(8, 5, 7), shards=(16, 10, 21))
    values = [on(device, data[row : row + 5]) for row in range(0, 40, 5)]

    def write(i: int) -> None:
        with device:
            array[5 * i : 5 * i + 5] = values[i]
            array[16 * (i % 2) : 16 * (i % 2) + 16, 10:20] = parts[i % 2]

    parts = [on(device, data[:16, 10:20]), on(device, data[16:32, 10:20])]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(8)))
    check(tmp_path, data)
    assert encoded(device) > 0


# -- random writes


@st.composite
def writes(draw: st.DrawFn) -> Any:
    k = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 12)) for _ in range(k))
    inner = tuple(draw(st.integers(1, 5)) for _ in range(k))
    shards = tuple(c * draw(st.integers(1, 3)) for c in inner) if draw(st.booleans()) else None
    boxes = []
    for _ in range(draw(st.integers(1, 3))):
        box = []
        for size in shape:
            begin = draw(st.integers(0, size - 1))
            box.append(slice(begin, draw(st.integers(begin + 1, size))) if draw(st.booleans()) else slice(None))
        boxes.append(tuple(box))
    codec = draw(st.sampled_from(["zstd", "blosc", "raw", "gzip"]))
    return (
        shape,
        inner,
        shards,
        boxes,
        codec,
        draw(st.sampled_from(["u1", ">i2", "<f4", ">c16"])),
        draw(st.integers(1, 400)),
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=writes())
def test_random_writes(case: Any, tmp_path_factory: pytest.TempPathFactory, device: WatchedDevice) -> None:
    shape, inner, shards, boxes, codec, dtype, wave_bytes = case
    path = tmp_path_factory.mktemp("a")
    native = np.dtype(dtype).newbyteorder("=")
    chain: list[Any] = [z.BIG if dtype[0] == ">" else z.LITTLE]
    chain += {
        "zstd": [z.codec("zstd", level=1, checksum=False), z.CRC32C],
        "blosc": [z.blosc3("lz4", "bitshuffle", native.itemsize)],
        "raw": [],
        "gzip": [z.codec("gzip", level=1)],
    }[codec]
    if shards is not None:
        chain = [z.shard(list(inner), chain)]
    names = {"u1": "uint8", "i2": "int16", "f4": "float32", "c16": "complex128"}
    fill = [0, 0] if native.kind == "c" else 0
    document = z.v3(shape, shards or inner, names[native.str[1:]], chain, fill=fill)
    (path / "zarr.json").write_text(json.dumps(document))
    array = writable(path)
    expected = np.zeros(shape, native)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_engine, "WAVE_BYTES", wave_bytes)
        for seed, box in enumerate(boxes):
            value = data_of(native, expected[box].shape, seed)
            array.write(box, on(device, value))
            expected[box] = value
            z.same(gzarr.open_array(path, device="cpu")[...], expected, case)
    z.same(np.asarray(zarr.open_array(path, mode="r")[...]).astype(native), expected, case)
