"""Memory of the device in host memory: kinds, ends, alignment, poison, and what CuPy's pool has given out."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

SEEDS = range(12)
ILLEGAL_ADDRESS = 700


def stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def test_pageable_memory_is_read_at_the_call(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    host, target, on = np.empty(64, "u1"), cupy.zeros(64, "u1"), stream()
    cupy.cuda.Device().synchronize()
    for seed in SEEDS:
        cuda.seed(seed)
        host[:] = 1
        runtime.memcpyAsync(target.data.ptr, host.ctypes.data, 64, runtime.memcpyHostToDevice, on.ptr)
        host[:] = 2
        on.synchronize()
        assert (target.get() == 1).all()
        # To pageable memory, the call returns when it is done.
        runtime.memcpyAsync(host.ctypes.data, target.data.ptr, 64, runtime.memcpyDeviceToHost, on.ptr)
        assert (host == 1).all()


def test_fresh_memory_is_garbage_and_freed_memory_is_gone(cuda: Any) -> None:
    from cupy.cuda import runtime

    address, host = runtime.malloc(1000), np.zeros(1000, "u1")
    assert address % 256 == 0
    assert address % 512
    runtime.memcpy(host.ctypes.data, address, 1000, runtime.memcpyDeviceToHost)
    assert (host == 0xA5).all()
    runtime.free(address)
    for call in (
        lambda: runtime.memcpy(host.ctypes.data, address, 1000, runtime.memcpyDeviceToHost),
        lambda: runtime.memset(address, 0, 10),
        lambda: runtime.free(address),
    ):
        with pytest.raises(runtime.CUDARuntimeError, match="Invalid"):
            call()


def test_freeing_waits(cuda: Any, kernels: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    for seed in SEEDS:
        cuda.seed(seed)
        address, host, on = runtime.malloc(100), runtime.hostAlloc(100, 0), stream()
        kernels.launch("fill", on, address, 100, 3)
        runtime.memcpyAsync(host, address, 100, runtime.memcpyDeviceToHost, on.ptr)
        if seed % 2:
            runtime.freeHost(host)
            runtime.free(address)
        else:
            runtime.free(address)
            runtime.freeHost(host)
    cupy.cuda.Device().synchronize()
    assert not cuda.notes()


@pytest.mark.parametrize("how", ["target", "source", "swapped", "past"])
def test_copies_are_checked(cuda: Any, pinned: Any, how: str) -> None:
    import cupy
    from cupy.cuda import runtime

    device, host = cupy.zeros(64, "u1"), pinned(64)
    to, source, nbytes = device.data.ptr, host.ctypes.data, 64
    if how == "target":
        to = host.ctypes.data
    if how == "source":
        source = device.data.ptr
    if how == "swapped":
        to, source = source, to
    if how == "past":
        nbytes = 65
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalid"):
        runtime.memcpyAsync(to, source, nbytes, runtime.memcpyHostToDevice, stream().ptr)
    assert cuda.notes()


def test_rows_are_copied(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    host, device = np.arange(60, dtype="u1").reshape(6, 10), cupy.zeros((6, 16), "u1")
    runtime.memcpy2D(device.data.ptr, 16, host.ctypes.data, 10, 10, 6, runtime.memcpyHostToDevice)
    assert (device.get()[:, :10] == host).all()
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.memcpy2D(device.data.ptr, 16, host.ctypes.data, 10, 10, 7, runtime.memcpyHostToDevice)


def test_memory_freed_before_a_copy_runs_is_a_fault(cuda: Any) -> None:
    """CUDA's own functions wait; CuPy's pool does not."""
    import cupy
    from cupy.cuda import runtime

    late, on = 0, stream()
    for seed in SEEDS:
        cuda.reset(seed)
        memory = cupy.zeros(100, "u1")
        cupy.cuda.Device().synchronize()
        runtime.memsetAsync(memory.data.ptr, 1, 100, on.ptr)
        del memory
        # CuPy's current stream has nothing to do: the pool may give the block out again at once.
        with suppress(runtime.CUDARuntimeError):
            on.synchronize()
        late += cuda.lost() == ILLEGAL_ADDRESS and "given back" in "".join(cuda.notes())
    cuda.reset()
    assert late >= 10


def test_a_block_used_again_in_order_is_right(cuda: Any, kernels: Any) -> None:
    """Memory goes back to the pool while work on it is pending, which is right in the order of one stream."""
    import cupy

    for seed in SEEDS:
        cuda.seed(seed)
        with stream() as on:
            result = cupy.empty(1000, "u1")
            address = 0
            for value in range(1, 20):
                scratch = cupy.empty(1000, "u1")
                assert address in (0, scratch.data.ptr)
                address = scratch.data.ptr
                kernels.fill(scratch, value, on)
                kernels.double_into(result, scratch, on)
                del scratch
            assert (result.get() == 38).all()
    assert not cuda.notes()


def test_a_block_used_again_by_another_stream_shows(cuda: Any, kernels: Any) -> None:
    """Given back while its work is pending, and taken by the same stream, but used in another."""
    import cupy

    other, wrong = stream(), 0
    with stream() as on:
        for seed in SEEDS:
            cuda.reset(seed)
            first = cupy.empty(1000, "u1")
            kernels.fill(first, 1, on)
            del first
            second = cupy.empty(1000, "u1")
            kernels.fill(second, 9, other)
            other.synchronize()
            on.synchronize()
            wrong += not (second.get() == 9).all()
            del second
    assert wrong >= 10


def test_a_block_that_nothing_uses_any_more_may_be_used_by_any_stream(cuda: Any, kernels: Any) -> None:
    import cupy

    other = stream()
    with stream() as on:
        for seed in SEEDS:
            cuda.seed(seed)
            first = cupy.empty(1000, "u1")
            kernels.fill(first, 1, on)
            on.synchronize()
            del first
            second = cupy.empty(1000, "u1")
            kernels.fill(second, 9, other)
            other.synchronize()
            assert (second.get() == 9).all()
    assert not cuda.notes()


def test_blocks_come_back_as_poison(cuda: Any, kernels: Any) -> None:
    import cupy

    first = cupy.zeros(1000, "u1")
    address = first.data.ptr
    del first
    second = cupy.empty(1000, "u1")
    assert second.data.ptr == address
    assert (second.get() == 0x5A).all()


def test_a_kernel_sees_what_the_pool_has_given_out(cuda: Any, kernels: Any) -> None:
    """Not the 512 bytes that the pool rounds up to, nor the larger block that it cuts."""
    import cupy
    from cupy.cuda import runtime

    large = cupy.zeros(4096, "u1")
    del large
    small = cupy.zeros(100, "u1")
    on = stream()
    kernels.launch("fill", on, small.data.ptr, 100, 1)
    on.synchronize()
    kernels.launch("fill", on, small.data.ptr, 101, 1)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        on.synchronize()
    assert "101 bytes" in "".join(cuda.notes())
    cuda.reset()


def test_a_write_behind_an_allocation_is_found(cuda: Any, kernels: Any) -> None:
    from cupy.cuda import runtime

    address, on = runtime.malloc(1000), stream()
    kernels.launch("past_the_end", on, address + 1000)
    on.synchronize()
    assert "outside of an allocation of 1000 bytes" in "".join(cuda.notes())
    runtime.free(address)


def test_kinds_of_pointers(cuda: Any, pinned: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    device, host, pageable = cupy.zeros(10, "u1"), pinned(10), np.zeros(10, "u1")
    found = [runtime.pointerGetAttributes(p) for p in (device.data.ptr, host.ctypes.data + 9, pageable.ctypes.data)]
    assert [a.type for a in found] == [runtime.memoryTypeDevice, runtime.memoryTypeHost, runtime.memoryTypeUnregistered]
    assert [a.device for a in found] == [0, 0, -2]
    assert found[0].devicePointer == device.data.ptr
    runtime.hostRegister(pageable.ctypes.data, 10, 0)
    assert runtime.pointerGetAttributes(pageable.ctypes.data).type == runtime.memoryTypeHost
    with pytest.raises(runtime.CUDARuntimeError, match="AlreadyRegistered"):
        runtime.hostRegister(pageable.ctypes.data + 5, 1, 0)
    runtime.hostUnregister(pageable.ctypes.data)
    with pytest.raises(runtime.CUDARuntimeError, match="NotRegistered"):
        runtime.hostUnregister(pageable.ctypes.data)


def test_capacity(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    cupy.get_default_memory_pool().free_all_blocks()
    held = cuda.held()
    cuda.set_capacity(held + (1 << 20))
    assert runtime.memGetInfo() == (1 << 20, held + (1 << 20))
    first = cupy.empty(1 << 19, "u1")
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty((1 << 19) + 1, "u1")
    assert cuda.held() == held + (1 << 19)
    del first
    gc.collect()


def test_leaks_are_counted(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    before = cuda.live()
    assert not cuda.live() - before
    made = (
        runtime.streamCreateWithFlags(1),
        runtime.eventCreateWithFlags(2),
        runtime.malloc(10),
        runtime.hostAlloc(10, 0),
    )
    array = cupy.empty(700, "u1")
    left = cuda.live() - before
    assert (left.streams, left.events, left.pinned, left.pool, left.pool_bytes) == (1, 1, 1, 1, 700)
    assert left.device >= 1
    assert left
    del array
    releases = runtime.streamDestroy, runtime.eventDestroy, runtime.free, runtime.freeHost
    for release, handle in zip(releases, made, strict=True):
        release(handle)
    cupy.get_default_memory_pool().free_all_blocks()
    assert not cuda.live() - before
