"""Reads and writes where CuPy takes memory from another place than its default pool."""

from __future__ import annotations

import ctypes
import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.device_writes import on, on_host

import gzarr
from gzarr.engines.cuda import budget
from gzarr.engines.cuda.budget import Budget
from gzarr.engines.cuda.own_streams import knows_streams

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
        for pool in (getattr(malloc, "__self__", None), cupy.get_default_memory_pool()):
            if isinstance(pool, cupy.cuda.MemoryPool):
                pool.free_all_blocks()


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
    while limit.tighten(MemoryError()):
        found.append(limit.limit(1 << 40) // MIB)
    assert found == [20, 10, 5, 2, 1]
    given = Budget(device, 40 * MIB)
    given.limit(40 * MIB)
    assert not given.tighten(MemoryError())


# -- allocators that know no streams


class OfOneStream:
    """An allocator of a library that has all its work on one stream, the default one, as PyTorch's is used by thinc.

    Parameters
    ----------
    device
        The device.

    Attributes
    ----------
    given
        Sizes of all it has given.
    """

    def __init__(self, device: WatchedDevice) -> None:
        self._device = device
        self._free: list[Any] = []
        self.given: list[int] = []

    def malloc(self, nbytes: int) -> Any:
        """Return a block that was freed, or a new one; it is zeros when the default stream has got there."""
        import cupy

        size = 4 * MIB * -(-nbytes // (4 * MIB))
        fitting = [memory for memory in self._free if memory.size == size]
        memory = fitting[-1] if fitting else cupy.cuda.Memory(size)
        if fitting:
            self._free.remove(memory)
        self.given.append(nbytes)
        self._device.cuda.enqueue(cupy.cuda.Stream.null, functools.partial(self._fill, memory.ptr, nbytes))
        block = _block_type()()
        block.ptr, block.size, block.device_id = memory.ptr, nbytes, memory.device_id
        block.owner = _Owner(memory, self._free)
        return cupy.cuda.MemoryPointer(block, 0)

    @staticmethod
    def _fill(address: int, nbytes: int) -> None:
        time.sleep(0.02)
        ctypes.memset(address, 0, nbytes)


@functools.cache
def _block_type() -> Any:
    import cupy

    return type("Block", (cupy.cuda.memory.BaseMemory,), {})


class _Owner:
    def __init__(self, memory: Any, free: list[Any]) -> None:
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        self._free.append(self._memory)


def _plain(device: WatchedDevice) -> Any:
    return OfOneStream(device).malloc


def _pooled(device: WatchedDevice) -> Any:
    import cupy

    # ``use_pytorch_for_gpu_memory`` of thinc.
    return cupy.cuda.MemoryPool(OfOneStream(device).malloc).malloc


@pytest.mark.parametrize("decode", ["cuda", "cpu"])
@pytest.mark.parametrize("allocator", [_plain, _pooled])
def test_reads_and_writes_with_an_allocator_that_knows_no_streams(
    device: WatchedDevice, allocator: Any, decode: Any
) -> None:
    values = VALUES[:512, :512]
    array = gzarr.create_array({}, data=values, chunks=(128, 512), codecs="zstd", device="cuda")
    with allocating(allocator(device)):
        for _ in range(2):
            result = array.read(decode=decode)
            assert (result.get() == values).all()
        array[...] = result * 2
        del result
        for batch in gzarr.Loader(array, batch_size=256, shuffle=False, transform=lambda batch: batch["data"] + 1):
            assert (batch.get() % 2 == 1).all()
        del batch
    assert (gzarr.open_array(array.store, device="cpu")[...] == 2 * values).all()


def test_memory_that_the_caller_s_stream_still_uses_is_left_alone(device: WatchedDevice) -> None:
    import cupy

    array = gzarr.create_array({}, data=VALUES[:512, :512], chunks=(128, 512), codecs="zstd", device="cuda")
    out = cupy.empty((512, 512), "f4")
    own = OfOneStream(device)
    with allocating(own.malloc):
        used = cupy.full(1 << 18, 7, "i4")
        address, given = used.data.ptr, len(own.given)
        seen: list[Any] = []

        def kernel() -> None:
            time.sleep(0.1)
            seen.extend(np.unique(np.frombuffer((ctypes.c_int32 * (1 << 18)).from_address(address), "i4")))

        device.cuda.enqueue(cupy.cuda.Stream.null, kernel)
        # Right in CuPy and its allocator: what takes the memory next comes later on this stream.
        del used
        array.read(out=out, decode="cuda")
        assert (out.get() == VALUES[:512, :512]).all()
        assert seen == [7]
        assert len(own.given) == given


def test_which_allocators_know_streams() -> None:
    from cupy.cuda import memory

    # They are looked at, and never called.
    def of_torch(nbytes: int) -> Any:
        pytest.fail(f"asked for {nbytes} bytes")

    def of_rmm(nbytes: int) -> Any:
        pytest.fail(f"asked for {nbytes} bytes")

    of_rmm.__module__ = "rmm.allocators.cupy"
    pools = [memory.MemoryPool(), memory.MemoryPool(memory.malloc_managed), memory.MemoryPool(of_rmm)]
    right = [memory._malloc, memory.malloc_managed, memory.malloc_async, of_rmm, *(pool.malloc for pool in pools)]
    right.append(memory.MemoryPool(pools[0].malloc).malloc)
    assert [knows_streams(each) for each in right] == [True] * len(right)
    others = [of_torch, memory.MemoryPool(of_torch).malloc, memory.PythonFunctionAllocator(None, None).malloc]
    others.append(memory.MemoryPool(memory.MemoryPool(of_torch).malloc).malloc)
    assert [knows_streams(each) for each in others] == [False] * len(others)
    # One that was looked at before, and again.
    assert knows_streams(right[0])
    assert knows_streams(right[0])
