"""Memory limits of reads and writes: free memory is queried where it matters, and a full device is no obstacle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.device_writes import on, on_host
from support.zarr_arrays import LITTLE, codec

import gzarr
from gzarr.engines.cuda import budget, slots, wave_plan, write_engine
from gzarr.engines.cuda.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

VALUES = (np.arange(256 * 256) // 7 % 1000).astype("<u2").reshape(256, 256)
ZSTD = codec("zstd", level=1, checksum=False)
DECODES = ("cuda", "cpu")


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with on_host() as made:
        yield made


@pytest.fixture
def array(device: WatchedDevice, tmp_path: Path) -> gzarr.Array:
    gzarr.create_array(tmp_path / "a", data=VALUES, chunks=(32, 32), codecs=[LITTLE, ZSTD], device="cpu")
    return gzarr.open_array(tmp_path / "a", mode="r+", device="cuda")


def leave_free(device: WatchedDevice, nbytes: int) -> None:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    device.capacity += nbytes - device.free_bytes()
    device.counts.clear()


@pytest.mark.parametrize("decode", DECODES)
def test_small_reads_and_writes_do_not_ask(decode: Any, array: gzarr.Array, device: WatchedDevice) -> None:
    for selection in (slice(0, 3), ..., ([1, 200], slice(None))):
        array.oindex.read(selection, decode=decode)
    array[...] = on(device, VALUES)
    assert device.counts["free_bytes"] == 0


@pytest.mark.parametrize("decode", DECODES)
def test_large_ones_ask_once_and_take_a_quarter(
    decode: Any, array: gzarr.Array, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "UNASKED_BYTES", 1000)
    out = device.empty(array.shape, array.dtype, device.current_stream())
    leave_free(device, 1_000_000)
    device.reset_peak()
    array.read(out=out, decode=decode)
    assert device.counts["free_bytes"] == 1
    assert device.peak <= 250_000
    assert (out.get() == VALUES).all()
    slots.release()
    value = on(device, VALUES)
    leave_free(device, 2_000_000)
    device.reset_peak()
    array[...] = value
    assert device.counts["free_bytes"] == 1
    assert device.counts["encoded frames zstd"] == 64
    assert 0 < device.peak <= 500_000


@pytest.mark.parametrize("decode", DECODES)
def test_a_read_on_a_device_that_is_nearly_full(decode: Any, array: gzarr.Array, device: WatchedDevice) -> None:
    out = device.empty(array.shape, array.dtype, device.current_stream())
    leave_free(device, VALUES.nbytes - 1000)
    array.read(out=out, decode=decode)
    # After the first wave had no room.
    assert device.counts["free_bytes"] == 1
    assert (out.get() == VALUES).all()


@pytest.mark.parametrize("what", ["read", "write"])
def test_the_waves_before_are_freed_before_the_device_is_asked(
    what: str, array: gzarr.Array, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the wave that has no room refers to the functions that hold the others."""
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 20_000)
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 8)
    monkeypatch.setattr(write_engine, "WAVE_BYTES", 20_000)
    monkeypatch.setattr(budget, "LEAST_BYTES", 1000)
    value = on(device, VALUES)
    held = []
    asked = device.free_bytes

    def free_bytes() -> int:
        held.append(device.scratch)
        return asked()

    monkeypatch.setattr(device, "free_bytes", free_bytes)
    device.fail_allocation(3, "arena")
    if what == "read":
        assert (array.read(decode="cuda").get() == VALUES).all()
    else:
        array[...] = value
        assert (gzarr.open_array(array.store, device="cpu")[...] == VALUES).all()
    assert held == [0]


def test_a_write_on_a_device_that_is_nearly_full(array: gzarr.Array, device: WatchedDevice) -> None:
    value = on(device, VALUES[::-1].copy())
    leave_free(device, 400_000)
    array[...] = value
    assert device.counts["free_bytes"] == 1
    assert device.counts["encoded frames zstd"] > 0
    assert (gzarr.open_array(array.store, device="cpu")[...] == VALUES[::-1]).all()
    # What no wave has room for is the CPU's.
    value = on(device, VALUES)
    leave_free(device, 10_000)
    array[...] = value
    assert (gzarr.open_array(array.store, device="cpu")[...] == VALUES).all()


@pytest.mark.parametrize("decode", DECODES)
def test_a_full_device_has_no_room(decode: Any, array: gzarr.Array, device: WatchedDevice) -> None:
    out = device.empty(array.shape, array.dtype, device.current_stream())
    leave_free(device, 1000)
    with pytest.raises(MemoryError):
        array.read(out=out, decode=decode)
    # A caller's word is taken as it is.
    leave_free(device, VALUES.nbytes - 1000)
    with pytest.raises(MemoryError):
        array.read(out=out, decode=decode, budget_bytes=1 << 26)
    assert device.counts["free_bytes"] == 0


def test_no_room_for_another_reason_is_not_tried_again(device: WatchedDevice) -> None:
    assert not Budget(device, None).tighten(MemoryError())
    assert not Budget(device, 1000).tighten(MemoryError())
    leave_free(device, 1 << 20)
    default = Budget(device, None)
    assert default.limit(1000) == budget.UNASKED_BYTES
    assert default.tighten(MemoryError())
    assert default.limit(1000) == 1 << 18
    assert not default.tighten(MemoryError())
    assert Budget(device, None).limit(1 << 40) == 1 << 18
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(gzarr.ArgumentError, match="budget_bytes"):
            Budget(device, wrong)  # type: ignore[arg-type]


@pytest.fixture
def limited() -> Iterator[Callable[[int], None]]:
    """Limits what CuPy's pool may hold beyond what is in use, as ``CUPY_GPU_MEMORY_LIMIT`` does."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    yield lambda nbytes: pool.set_limit(size=pool.used_bytes() + nbytes)
    pool.set_limit(size=0)


def test_a_limit_of_cupy_is_what_is_free(device: WatchedDevice, limited: Callable[[int], None]) -> None:
    held = device.allocate(100_000, device.current_stream())
    free = device.free_bytes()
    limited(300_000)
    assert device.free_bytes() == 300_000
    more = device.allocate(50_176, device.current_stream())
    assert device.free_bytes() == 300_000 - 50_176
    # What the pool keeps can be had.
    del more
    assert device.free_bytes() == 300_000
    limited(1 << 40)
    assert device.free_bytes() == free
    del held


@pytest.mark.parametrize("decode", DECODES)
def test_a_read_below_a_limit_of_cupy(
    decode: Any, array: gzarr.Array, device: WatchedDevice, limited: Callable[[int], None]
) -> None:
    out = device.empty(array.shape, array.dtype, device.current_stream())
    limited(VALUES.nbytes - 1000)
    array.read(out=out, decode=decode)
    assert (out.get() == VALUES).all()


def test_a_write_below_a_limit_of_cupy(
    array: gzarr.Array, device: WatchedDevice, limited: Callable[[int], None]
) -> None:
    value = on(device, VALUES[::-1].copy())
    limited(400_000)
    array[...] = value
    assert device.counts["encoded frames zstd"] > 0
    assert (gzarr.open_array(array.store, device="cpu")[...] == VALUES[::-1]).all()
