"""Waves: as many frames as promised, memory near what is stored, within the budget; staged by another thread."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices as tested
from support.zarr_arrays import LITTLE, codec

import gzarr
from gzarr.engines import pool
from gzarr.engines.cuda import staging, wave_plan
from gzarr.engines.cuda.budget import Budget
from gzarr.engines.cuda.device_program import DeviceProgram
from gzarr.engines.cuda.nvcomp import NvcompDecompressor
from gzarr.engines.cuda.staging import FrameFormat
from gzarr.engines.cuda.wave_plan import Expected, WavePlanner, Waves, expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CHAIN = [LITTLE, codec("zstd", level=1, checksum=False)]
RNG = np.random.default_rng(7)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with tested.on_host() as made:
        yield made


def planned(device: WatchedDevice, chunk: int, free: int, n: int = 100_000, stored: int = -1) -> Waves:
    """Return the waves of zstd chunks on a device with so much free memory, by the decoder's own scratch."""
    program = DeviceProgram(FrameFormat("zstd", "zstd", 0, chunk), 0, 0, (chunk,), bits=False)
    planner = WavePlanner(
        program, NvcompDecompressor("zstd"), 2 * chunk + 64 * KIB, np.ones(n, np.int64), 3, 1, direct=False
    )
    device.capacity = free
    return planner.plan(expected(program, 1, np.full(n, stored)), Budget(device, None))


@pytest.mark.parametrize("chunk", [16 * KIB, 64 * KIB, 128 * KIB])
def test_waves_have_the_promised_frames(chunk: int, device: WatchedDevice) -> None:
    waves = planned(device, chunk, 80 * GIB)
    assert waves.shape.chunks == max(wave_plan.WAVE_FRAMES, wave_plan.WAVE_BYTES // chunk)
    assert waves.flight == wave_plan.MAX_WAVES_IN_FLIGHT
    assert planned(device, chunk, 80 * GIB, n=10).shape.chunks == 10


def test_memory_is_near_what_is_stored(device: WatchedDevice) -> None:
    """Of what a wave holds: decoded chunks, encoded ones twice, and the decoder's scratch of three times as much."""
    for chunk, free in ((64 * KIB, 4 * GIB), (MIB, 4 * GIB)):
        shape = planned(device, chunk, free).shape
        decoded = shape.chunks * chunk
        assert shape.encoded <= 1.2 * decoded + 2 * chunk + 64 * KIB
        assert shape.nbytes - shape.scratch <= 3.7 * decoded
        # It was 11 times the decoded bytes for 64 KiB, and 9 times for 1 MiB.
        assert shape.nbytes <= 7.5 * decoded
        less = planned(device, chunk, free, stored=chunk // 4).shape
        assert less.chunks > shape.chunks
        assert less.encoded <= 0.4 * less.chunks * chunk + 2 * chunk + 64 * KIB


@pytest.mark.parametrize("free", [GIB, 4 * GIB, 16 * GIB, 80 * GIB])
@pytest.mark.parametrize("chunk", [4 * KIB, MIB, 8 * MIB])
def test_waves_stay_within_the_default(chunk: int, free: int, device: WatchedDevice) -> None:
    waves = planned(device, chunk, free)
    assert waves.shape.nbytes * waves.flight <= min(8 * GIB, free // 4)
    assert waves.shape.staging_bytes * waves.flight <= wave_plan.MAX_IDLE_PINNED_BYTES


def test_large_frames_come_in_more_than_before(device: WatchedDevice) -> None:
    # There were 37 of them; as many as page-locked memory allows now, and more if they compress.
    assert planned(device, MIB, 80 * GIB).shape.chunks >= 350
    assert planned(device, MIB, 80 * GIB, stored=MIB // 2).shape.chunks >= 500


def test_what_a_first_wave_held_never_takes_more_than_the_share_of_a_wave(device: WatchedDevice) -> None:
    program = DeviceProgram(FrameFormat("zstd", "zstd", 0, MIB), 0, 0, (MIB,), bits=False)
    planner = WavePlanner(
        program, NvcompDecompressor("zstd"), 3 * MIB, np.ones(9000, np.int64), 3, 1, direct=False, reserved=5 * MIB
    )
    device.capacity = GIB
    budget = Budget(device, 200 * MIB)
    before = planner.plan(expected(program, 1, np.full(9000, -1)), budget)
    for ratio, frames in ((0.01, 1), (0.5, 2), (1.5, 1), (2.9, 300)):
        after = planner.plan(Expected(ratio * MIB, frames), budget, before)
        assert after.flight == before.flight
        assert after.shape.nbytes * after.flight <= 195 * MIB


# -- reads


def array_of(path: Any, data: np.ndarray[Any, Any], chunk: int, **options: Any) -> gzarr.Array:
    gzarr.create_array(path, data=data, chunks=chunk, codecs=CHAIN, device="cpu", **options)
    return gzarr.open_array(path, device="cuda")


@pytest.mark.parametrize("wave_frames", [1, 7, 100, 5000])
def test_waves_of_few_and_of_many_frames(
    wave_frames: int, tmp_path: Path, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", wave_frames)
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 1)
    data = RNG.integers(0, 9, 300 * 64).astype("u1")
    array = array_of(tmp_path / "a", data, 64)
    assert (array.read(decode="cuda").get() == data).all()
    assert device.counts["frames zstd"] == 300
    assert device.counts["batches zstd"] == -(-300 // wave_frames)


@pytest.mark.parametrize("where", ["files", "memory", "shards"])
@pytest.mark.parametrize("budget", [None, 2_000_000])
def test_chunks_that_are_larger_than_the_first_ones(
    where: str, budget: int | None, tmp_path: Path, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a first wave that compressed well, the next ones do not fit: what is left over comes later."""
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 24)
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 1)
    data = RNG.integers(0, 256, 120 * 8192).astype("u1")
    data[: 24 * 8192] = 3
    path: Any = gzarr.MemoryStore() if where == "memory" else tmp_path / "a"
    array = array_of(path, data, 8192, **({"shards": 40 * 8192} if where == "shards" else {}))
    device.reset_peak()
    found = array.read(decode="cuda", budget_bytes=budget).get()
    assert (found == data).all()
    # None of them was left to the CPU.
    assert device.counts["frames zstd"] == 120
    assert budget is None or device.peak <= budget


@pytest.mark.parametrize("error", [OSError("no such luck"), KeyboardInterrupt(), MemoryError()])
def test_an_error_of_a_wave_that_is_staged_aside_reaches_the_caller(
    error: BaseException, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 4)
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 1)
    data = RNG.integers(0, 9, 40 * 64).astype("u1")
    array = array_of(gzarr.MemoryStore(), data, 64)
    stage = staging.Staging.stage
    calls = []

    def fail(self: Any, rows: Any, *more: Any) -> Any:
        calls.append(threading.get_ident())
        if 30 in rows:
            raise error
        return stage(self, rows, *more)

    monkeypatch.setattr(staging.Staging, "stage", fail)
    with pytest.raises(type(error)):
        array.read(decode="cuda")
    monkeypatch.undo()
    # The traceback has the frames of the read.
    error.__traceback__ = None
    gc.collect()
    # All memory is free again, and the next read is right.
    assert (array.read(decode="cuda").get() == data).all()
    gzarr.release_memory()
    assert device.held == 0


def test_a_chunk_that_fails_late_is_named(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 4)
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 1)
    store = gzarr.MemoryStore()
    array = array_of(store, RNG.integers(0, 9, 40 * 64).astype("u1"), 64)
    store.set("c/30", b"not zstd at all")
    with pytest.raises(gzarr.ChunkError, match=r"\(30,\)|c/30"):
        array.read(decode="cuda")


def test_the_router_reckons_with_the_waves_that_will_be(tmp_path: Path, device: WatchedDevice) -> None:
    shape = (40_000, MIB)
    gzarr.create_array(tmp_path / "a", shape=shape, chunks=(1, MIB), dtype="u1", codecs=CHAIN, device="cpu")
    engine = gzarr.open_array(tmp_path / "a", device="cuda")._reader._the_cuda_engine
    budget = Budget(device, None)
    chunks, flight = engine._waves(40_000, budget)
    program = engine._program
    assert program is not None
    planner = WavePlanner(
        program, engine._decoder, engine._decoding.most_encoded, np.ones(40_000, np.int64), 2, 1, direct=False
    )
    waves = planner.plan(expected(program, 1, np.full(40_000, -1)), budget)
    assert (chunks, flight) == (waves.shape.chunks, waves.flight)
    few = engine.route(40_000, 40_000 * MIB, budget=Budget(device, 30 * MIB))
    many = engine.route(40_000, 40_000 * MIB, budget=Budget(device, 4 * GIB))
    assert few.gpu_seconds is not None
    assert many.gpu_seconds is not None
    # Frames in flight decide how fast large frames are decoded.
    assert few.gpu_seconds > 5 * many.gpu_seconds
    assert engine._waves(3, None) == (3, 1)


# -- work aside


def test_a_task_is_done_once_by_whoever_is_free() -> None:
    done: list[int] = []
    for i in range(200):
        task = pool.Task(lambda i=i: done.append(i) or i)  # type: ignore[misc]
        assert task.result() == i
    assert done == list(range(200))


def test_a_task_that_is_closed_does_not_begin_or_is_over() -> None:
    for _ in range(200):
        state = []
        task = pool.Task(lambda state=state: state.append("in") or state.append("out"))  # type: ignore[misc]
        task.close()
        assert state in ([], ["in", "out"])
        before = list(state)
    assert state == before


def test_the_error_of_a_task_is_the_caller_s() -> None:
    def fail() -> None:
        raise KeyError("mine")

    for _ in range(50):
        with pytest.raises(KeyError, match="mine"):
            pool.Task(fail).result()


def test_arrays_of_any_number_of_chunks_are_routed(device: WatchedDevice) -> None:
    shape = (1 << 20, 1 << 20, 1 << 20)
    array = gzarr.create_array(gzarr.MemoryStore(), shape=shape, chunks=(64, 64, 64), dtype="u1", codecs=CHAIN)
    array = gzarr.open_array(array.store, device=device.name)
    tracemalloc.start()
    try:
        assert array.decode_path == "cuda: zstd"
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
