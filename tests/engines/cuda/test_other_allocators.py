"""Reads and writes where CuPy takes memory from another place than its default pool."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.device_writes import on, on_host

import gzarr
from gzarr.engines.cuda import budget
from gzarr.engines.cuda.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

MIB = 1 << 20
VALUES = np.random.default_rng(0).integers(0, 50, (2048, 2048)).astype("f4")


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with on_host() as made:
        yield made


@contextmanager
def allocating(malloc: Callable[[int], Any]) -> Iterator[None]:
    import cupy

    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(malloc)
    try:
        yield
    finally:
        gzarr.release_memory()
        cupy.cuda.set_allocator(before)


def pool_of(kind: str, nbytes: int) -> tuple[Any, Callable[[int], Any]]:
    """Return a pool with a limit, and an allocator that takes memory from it."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    pool.set_limit(size=nbytes)
    # An allocator of another library does not show what it has.
    return pool, pool.malloc if kind == "pool" else lambda wanted: pool.malloc(wanted)


@pytest.fixture(params=["pool", "function"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("decode", ["cuda", "cpu"])
def test_a_read_below_the_limit_of_another_pool(device: WatchedDevice, kind: str, decode: Any) -> None:
    array = gzarr.create_array({}, data=VALUES, chunks=(256, 256), device="cuda")
    gzarr.release_memory()
    pool, malloc = pool_of(kind, VALUES.nbytes + 6 * MIB)
    with allocating(malloc):
        result = array.read(decode=decode)
        assert (result.get() == VALUES).all()
        del result
    # Nothing is kept for streams that are gone.
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_a_write_below_the_limit_of_another_pool(device: WatchedDevice, kind: str) -> None:
    array = gzarr.create_array({}, shape=VALUES.shape, dtype="f4", chunks=(256, 256), codecs="zstd", device="cuda")
    gzarr.release_memory()
    pool, malloc = pool_of(kind, VALUES.nbytes + 16 * MIB)
    with allocating(malloc):
        value = on(device, VALUES)
        device.counts.clear()
        array[...] = value
        del value
    # Else it would keep memory of the device for as long as it is there.
    pool.free_all_blocks()
    assert pool.total_bytes() == 0
    assert device.counts["encoded frames zstd"] >= 64
    assert (gzarr.open_array(array.store, device="cpu")[...] == VALUES).all()


def test_what_is_free_is_asked_of_the_current_pool(device: WatchedDevice) -> None:
    pool, malloc = pool_of("pool", 300_032)
    with allocating(malloc):
        held = device.allocate(100_352, device.current_stream())
        assert device.free_bytes() == 300_032 - 100_352
        del held
        # What it keeps can be had, and is given back with its stream.
        assert device.free_bytes() == 300_032
        device.free_cached(device.current_stream())
        assert pool.total_bytes() == 0


def test_a_limit_is_halved_down_to_a_floor(device: WatchedDevice) -> None:
    """Of what was held, whatever the device says; so a device without any room is an error soon."""
    limit = Budget(device, None)
    assert limit.limit(40 * MIB) == budget.UNASKED_BYTES
    found = []
    while limit.tighten():
        found.append(limit.limit(1 << 40) // MIB)
    assert found == [20, 10, 5, 2, 1]
    given = Budget(device, 40 * MIB)
    given.limit(40 * MIB)
    assert not given.tighten()
