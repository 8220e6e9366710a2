"""Faults on demand, and errors of use: of the device in host memory."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest


def stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def test_the_nth_allocation_fails(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    cuda.fail("allocate_device", 2)
    kept = runtime.malloc(10)
    with pytest.raises(runtime.CUDARuntimeError, match="out of memory"):
        runtime.malloc(10)
    assert not cuda.faults_left()
    runtime.free(runtime.malloc(10))
    runtime.free(kept)
    cuda.fail("allocate_pinned")
    with pytest.raises(runtime.CUDARuntimeError, match="out of memory"):
        runtime.hostAlloc(10, 0)
    # CuPy's pool frees what it keeps, and tries again; so it fails twice, then collects, and fails once more.
    cuda.fail("allocate", times=-1)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(12345, "u1")


@pytest.mark.parametrize("how", ["lose", "lose later"])
@pytest.mark.parametrize("call", ["launch", "fill", "copy", "cudaMemsetAsync", "enqueue"])
def test_a_lost_device_stays_lost(cuda: Any, kernels: Any, how: Any, call: str) -> None:
    import cupy
    from cupy.cuda import driver, runtime

    memory, on = cupy.empty(10, "u1"), stream()
    cuda.fail(call, 1, code=719, how=how)
    errors = runtime.CUDARuntimeError, driver.CUDADriverError

    def work() -> None:
        kernels.fill(memory, 1, on)
        runtime.memcpyAsync(memory.data.ptr, memory.data.ptr, 5, runtime.memcpyDeviceToDevice, on.ptr)
        runtime.memsetAsync(memory.data.ptr, 1, 5, on.ptr)
        on.synchronize()

    with pytest.raises(errors, match="unspecified launch failure"):
        work()
    assert cuda.lost() == 719
    for again in (
        lambda: runtime.malloc(10),
        on.synchronize,
        lambda: kernels.fill(memory, 1, on),
        runtime.deviceSynchronize,
        lambda: runtime.memGetInfo(),
    ):
        with pytest.raises(errors, match="unspecified launch failure"):
            again()
    with cupy.cuda.Device(1):
        runtime.memGetInfo()
    cuda.reset()
    on.synchronize()


def test_an_operation_may_hang(cuda: Any, kernels: Any) -> None:
    import cupy

    memory, on = cupy.empty(10, "u1"), stream()
    cuda.fail("fill", how="hang", seconds=0.3)
    begin = time.monotonic()
    kernels.fill(memory, 1, on)
    assert time.monotonic() - begin < 0.25
    on.synchronize()
    assert time.monotonic() - begin >= 0.3


def test_a_thread_without_a_context_cannot_launch(cuda: Any, kernels: Any) -> None:
    import cupy
    from cupy.cuda import driver

    memory, seen = cupy.empty(10, "u1"), []

    def work() -> None:
        try:
            kernels.fill(memory, 1, cupy.cuda.Stream.null)
        except driver.CUDADriverError as error:
            seen.append(error.status)
        cupy.cuda.Device(0).use()
        kernels.fill(memory, 1, cupy.cuda.Stream.null)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [201]


@pytest.mark.parametrize("limits", [{"block": 1025}, {"block": 0}, {"grid": 0}])
def test_launches_have_limits(cuda: Any, kernels: Any, limits: dict[str, int]) -> None:
    import cupy
    from cupy.cuda import driver

    memory = cupy.empty(10, "u1")
    with pytest.raises(driver.CUDADriverError, match="cudaErrorInvalidValue"):
        kernels.launch("fill", stream(), memory.data.ptr, 10, 1, **limits)


def test_a_kernel_that_is_not_there(cuda: Any, kernels: Any) -> None:
    from cupy.cuda import driver

    with pytest.raises(driver.CUDADriverError, match="cudaErrorSymbolNotFound"):
        driver.moduleGetFunction(driver.moduleLoadData(b"fill\0"), "double_into")


def test_functions_that_are_missing_say_so(cuda: Any) -> None:
    from cupy.cuda import runtime

    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorNotSupported"):
        runtime.mallocManaged(10)
    assert cuda.notes() == ["801 cudaMallocManaged is not part of the CUDA runtime in host memory"]


def test_calls_are_counted(cuda: Any, kernels: Any, pinned: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    memory, host, on = cupy.empty(10, "u1"), pinned(10), stream()
    cuda.clear_counts()
    kernels.fill(memory, 1, on)
    kernels.fill(memory, 2, on)
    runtime.memcpyAsync(host.ctypes.data, memory.data.ptr, 10, runtime.memcpyDeviceToHost, on.ptr)
    on.synchronize()
    counts = cuda.counts()
    assert counts["launch fill"] == counts["cuLaunchKernel"] == 2
    assert (counts["copy_out"], counts["copy_out_bytes"], counts["copy_in"]) == (1, 10, 0)
    assert cuda.synchronizations() == counts["cudaStreamSynchronize"] == 1


def test_no_device(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    cuda.visible(0)
    for call in (runtime.getDeviceCount, lambda: runtime.malloc(10), lambda: cupy.cuda.Device(0).use()):
        with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorNoDevice"):
            call()
    cuda.visible(1)
    assert runtime.getDeviceCount() == 1
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidDevice"):
        cupy.cuda.Device(1).use()
