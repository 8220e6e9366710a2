"""Resources that reads keep for the next one. No read waits for a caller's stream; page-locked memory is returned."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support import devices

import gzarr
from gzarr.engines import kernels, result_memory
from gzarr.engines.cuda import slots
from gzarr.engines.cuda.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

DATA = (np.arange(64 * 64).reshape(64, 64) // 7).astype("u2")


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host() as made, made:
        yield made


@pytest.fixture
def array(tmp_path: Path, device: WatchedDevice) -> gzarr.Array:
    codec = zarr.codecs.ZstdCodec(level=1)
    zarr.create_array(tmp_path / "a", shape=DATA.shape, dtype="u2", chunks=(16, 16), compressors=codec)[...] = DATA
    return gzarr.open_array(tmp_path / "a", device="cuda")


def read(array: gzarr.Array, kind: str, decode: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    rows = np.array([3, 60, 3, 17])
    if kind == "box":
        return array.read((slice(5, 50), slice(None, None, 3)), decode=decode), DATA[5:50, ::3]
    if kind == "table":
        return array.oindex.read((rows, slice(None)), decode=decode), DATA[rows]
    return array.vindex.read((rows, rows), decode=decode), DATA[rows, rows]


@pytest.mark.parametrize("decode", ["cuda", "cpu"])
@pytest.mark.parametrize("kind", ["box", "table", "points"])
def test_a_read_does_not_wait_for_the_callers_stream(
    kind: str, decode: str, array: gzarr.Array, device: WatchedDevice
) -> None:
    """A read does not wait for work in the stream, not even of earlier reads; each takes a slot that is idle."""
    with device.held_back(device.current_stream()) as gate:
        results = [read(array, kind, decode) for _ in range(5)]
        assert not gate.passed
    for result, expected in reversed(results):
        np.testing.assert_array_equal(result.get(), expected)
    # From now on the slots are free: none is made.
    before = len(slots._idle[device.name])
    result, expected = read(array, kind, decode)
    np.testing.assert_array_equal(result.get(), expected)
    assert len(slots._idle[device.name]) == before


def test_a_read_of_more_waves_than_memory_waits_for_results(array: gzarr.Array, device: WatchedDevice) -> None:
    with device.held_back(device.current_stream()) as gate:
        gate.open_after(0.1)
        device.reset_peak()
        result = array.read(decode="cuda", budget_bytes=200_000)
        assert device.peak <= 200_000
        # The caller's stream had to run for it: the memory of the first wave is the second one's.
        assert gate.passed
    np.testing.assert_array_equal(result.get(), DATA)


def slot_of(device: WatchedDevice, nbytes: int) -> slots.Slot:
    with device:
        slot = slots.Slot(device)
        slot.staging(nbytes)
    return slot


def test_the_smallest_slot_that_has_the_memory_is_taken(device: WatchedDevice) -> None:
    small, middle, large = (slot_of(device, nbytes) for nbytes in (100, 1000, 10_000))
    for slot in (large, small, middle):
        slots.give_back(device, slot)
    with device:
        # Nobody frees and allocates page-locked memory again because reads of two sizes alternate.
        taken = [slots.take(device, nbytes) for nbytes in (50, 500, 20_000)]
    assert taken == [small, middle, large]
    assert [slot.nbytes for slot in taken] == [100, 1000, 10_000]
    slots.give_back(device, large)
    with device:
        assert slots.take(device, 50, (50, 0)) is large
    assert large.nbytes == 0


def test_gated_slots_are_left_until_their_gate_opens(device: WatchedDevice) -> None:
    stream, slot = device.current_stream(), slot_of(device, 100)
    with device.held_back(stream) as gate:
        slot.gate(stream)
        slots.give_back(device, slot)
        other = slots.take(device, 100)
        assert other is not slot
        gate.open()
        stream.synchronize()
        assert slots.take(device, 100) is slot


def test_slots_that_are_dropped_wait_for_nothing(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_IDLE_SLOTS", 2)
    stream = device.current_stream()
    held = [slot_of(device, 100) for _ in range(5)]
    with device.held_back(stream) as gate:
        for slot in held[:4]:
            slot.gate(stream)
        for slot in held[:4]:
            slots.give_back(device, slot)
        # All wait for the caller, and so are kept; to free page-locked memory would wait for it.
        assert slots._idle[device.name] == held[:4]
        assert not gate.passed
    stream.synchronize()
    slots.give_back(device, held[4])
    assert slots._idle[device.name] == held[3:]


def test_too_much_page_locked_memory_is_freed_although_that_waits(
    device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "MAX_IDLE_PINNED_BYTES", 250)
    stream = device.current_stream()
    held = [slot_of(device, 100) for _ in range(3)]
    with device.held_back(stream) as gate:
        for slot in held:
            slot.gate(stream)
        for slot in held[:2]:
            slots.give_back(device, slot)
        assert not gate.passed
        gate.open_after(0.1)
        slots.give_back(device, held[2])
    assert slots._idle[device.name] == held
    assert not any(slot.nbytes for slot in held)


def test_a_host_far_ahead_waits_for_the_oldest(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_IDLE_SLOTS", 2)
    stream = device.current_stream()
    made = []
    with device.held_back(stream) as gate:
        for _ in range(6):
            slot = slots.take(device, 100)
            slot.gate(stream)
            slots.give_back(device, slot)
            made.append(slot)
        assert not gate.passed
    assert made == made[:2] * 3


@pytest.mark.parametrize(("decode", "nbytes"), [("cuda", 500_000), ("cpu", 40_000)])
def test_a_host_far_ahead_holds_no_more_than_a_budget(
    decode: Any, nbytes: int, array: gzarr.Array, device: WatchedDevice
) -> None:
    """Waves of earlier reads count, whose results the stream has not written."""
    import cupy

    pool = cupy.get_default_memory_pool()
    results = [array.read(decode=decode, budget_bytes=nbytes)]
    gzarr.release_memory()
    before = pool.total_bytes()
    held = []
    with device.held_back(device.current_stream()) as gate:
        for i in range(12):
            results.append(array.read(decode=decode, budget_bytes=nbytes))
            held.append(pool.total_bytes() - before - (i + 1) * DATA.nbytes)
            # The first reads do not wait.
            if i == 1:
                assert not gate.passed
                gate.open_after(0.05)
    assert gate.passed
    assert held[1] > held[0]
    assert max(held) <= nbytes
    for result in results:
        np.testing.assert_array_equal(result.get(), DATA)


def test_memory_that_is_too_small_is_not_kept_beside_larger(device: WatchedDevice) -> None:
    stream, budget = device.current_stream(), Budget(device, 10_000)
    small = slot_of(device, 100)
    with device.held_back(stream) as gate:
        small.allocate(4000)
        small.gate(stream)
        slots.give_back(device, small)
        other = slots.take(device, 100, arena_bytes=6000, budget=budget)
        assert other is not small
        other.allocate(6000)
        other.gate(stream)
        slots.give_back(device, other)
        assert not gate.passed
        gate.open_after(0.05)
        # One that is large enough comes before the oldest, which may have to be freed.
        assert slots.take(device, 100, arena_bytes=5000, budget=budget) is other
        assert not gate.passed
        assert slots.take(device, 100, arena_bytes=7000, budget=budget) is small
        assert gate.passed
        assert small.device_bytes == 0


def test_idle_slots_keep_so_much_of_the_device(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_IDLE_DEVICE_BYTES", 10_000)
    held = [slot_of(device, 100) for _ in range(3)]
    for slot, nbytes in zip(held, (2000, 6000, 3000), strict=True):
        slot.allocate(nbytes)
        slots.give_back(device, slot)
    assert slots._idle[device.name] == held[1:]


def test_a_slot_whose_gate_fails_is_given_back_once_the_host_has_waited(device: WatchedDevice) -> None:
    """Else it would be lost with all its memory, as nothing frees that."""
    stream, slot = device.current_stream(), slot_of(device, 100)
    unusable = len(slots._unusable)
    with device.held_back(stream) as gate:
        gate.open_after(0.1)
        device.cuda.host.fail("record", code=400)
        slots.settle(device, slot, stream, device.allocate(100, slot.stream))
        assert gate.passed
    # CUDA's error refers to what raised it, in circles.
    gc.collect()
    assert len(slots._unusable) == unusable
    assert slots._idle[device.name] == [slot]
    assert slot.is_free()
    assert device.scratch == 0


def test_page_locked_memory_is_bounded_in_each_direction(device: WatchedDevice) -> None:
    slot = slot_of(device, 60)
    with device:
        slot.results(10)
        slots.give_back(device, slot)
        taken = slots.take(device, 70, (10, 60))
        assert taken is slot
        taken.staging(10)
        taken.results(60)
    assert taken.nbytes == 70


def test_indices_of_a_selection_count(array: gzarr.Array) -> None:
    points = np.zeros(50_000, np.int64)
    with pytest.raises(gzarr.ArgumentError, match=r"budget_bytes=400000 .* the selection's indices take \d{7}"):
        array.vindex.read((points, points), decode="cuda", budget_bytes=400_000)


def test_released_memory_is_given_back(array: gzarr.Array, device: WatchedDevice) -> None:
    result_memory.release()
    host = result_memory.empty((result_memory.LARGE_BYTES,), np.dtype(np.uint8))
    del host
    assert result_memory.kept_count()
    result = array.read(decode="cuda")
    assert device.held > 0
    gzarr.release_memory()
    assert device.held == 0
    assert not result_memory.kept_count()
    assert not kernels.idle_workers()
    np.testing.assert_array_equal(result.get(), DATA)
    # And all works as before.
    np.testing.assert_array_equal(array.read(decode="cuda").get(), DATA)
    np.testing.assert_array_equal(gzarr.open_array(array.store, device="cpu")[...], DATA)


def test_memory_is_released_before_anything_was_read() -> None:
    import subprocess

    script = "import sys, gzarr; gzarr.release_memory(); assert 'gzarr.engines.cuda.slots' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
