"""Two devices in host memory: what belongs to the other one is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.fixture
def both(cuda: Any) -> Any:
    """A stream and an array on each device."""
    import cupy

    made = []
    for device in (0, 1):
        with cupy.cuda.Device(device):
            made.append((cupy.cuda.Stream(non_blocking=True), cupy.zeros(100, "u1")))
            cupy.cuda.Device().synchronize()
    yield made
    made.clear()


def test_devices_differ(cuda: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    assert runtime.getDeviceCount() == 2
    found = [runtime.getDeviceProperties(i) for i in (0, 1)]
    assert found[0]["uuid"] != found[1]["uuid"]
    assert cupy.cuda.Device(0).pci_bus_id != cupy.cuda.Device(1).pci_bus_id
    assert runtime.deviceGetByPCIBusId(cupy.cuda.Device(1).pci_bus_id) == 1
    assert {p["multiProcessorCount"] for p in found} == {132}
    assert {cupy.cuda.Device(i).compute_capability for i in (0, 1)} == {"90"}
    assert found[0]["maxThreadsPerBlock"] == 1024
    assert found[0]["sharedMemPerBlockOptin"] == 232448
    assert not runtime.deviceCanAccessPeer(0, 1)
    with pytest.raises(runtime.CUDARuntimeError, match="PeerAccessUnsupported"):
        runtime.deviceEnablePeerAccess(1)


def test_memory_is_of_a_device(cuda: Any, both: Any) -> None:
    from cupy.cuda import runtime

    assert [runtime.pointerGetAttributes(array.data.ptr).device for _, array in both] == [0, 1]
    assert [array.device.id for _, array in both] == [0, 1]
    held = cuda.held(0), cuda.held(1)
    runtime.free(runtime.malloc(10))
    assert held == (cuda.held(0), cuda.held(1))
    assert min(held) > 0


def test_a_copy_on_a_stream_of_the_other_device(cuda: Any, both: Any) -> None:
    from cupy.cuda import runtime

    host = np.ones(100, "u1")
    (_, _), (stream, _) = both
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        runtime.memcpyAsync(both[0][1].data.ptr, host.ctypes.data, 100, runtime.memcpyHostToDevice, stream.ptr)
    assert "a stream of device 1 for memory of device 0" in cuda.notes()[0]


def test_a_copy_between_devices(cuda: Any, both: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    (stream, first), (_, second) = both
    runtime.memsetAsync(first.data.ptr, 5, 100, stream.ptr)
    runtime.memcpyPeerAsync(second.data.ptr, 1, first.data.ptr, 0, 100, stream.ptr)
    stream.synchronize()
    with cupy.cuda.Device(1):
        assert (second.get() == 5).all()
    with pytest.raises(runtime.CUDARuntimeError):
        runtime.memcpyPeerAsync(second.data.ptr, 0, first.data.ptr, 0, 100, stream.ptr)


def test_launches_and_events_of_the_other_device(cuda: Any, kernels: Any, both: Any) -> None:
    import cupy
    from cupy.cuda import driver, runtime

    (_, first), (stream, second) = both
    with pytest.raises(driver.CUDADriverError, match="InvalidResourceHandle"):
        kernels.fill(first, 1, stream)
    with cupy.cuda.Device(1), pytest.raises(driver.CUDADriverError, match="InvalidResourceHandle"):
        kernels.fill(second, 1, stream)
    done = runtime.eventCreateWithFlags(2)
    with pytest.raises(runtime.CUDARuntimeError, match="InvalidResourceHandle"):
        runtime.eventRecord(done, stream.ptr)
    runtime.eventDestroy(done)


def test_a_kernel_that_uses_memory_of_the_other_device(cuda: Any, kernels: Any, both: Any) -> None:
    from cupy.cuda import runtime

    (stream, _), (_, second) = both
    kernels.fill(second, 1, stream)
    with pytest.raises(runtime.CUDARuntimeError, match="IllegalAddress"):
        stream.synchronize()
    cuda.reset()


def test_streams_of_two_devices_may_wait_for_each_other(cuda: Any, both: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    (stream, first), (other, second) = both
    for seed in range(8):
        cuda.seed(seed)
        done = cupy.cuda.Event(disable_timing=True)
        runtime.memsetAsync(first.data.ptr, seed, 100, stream.ptr)
        stream.record(done)
        other.wait_event(done)
        runtime.memcpyPeerAsync(second.data.ptr, 1, first.data.ptr, 0, 100, other.ptr)
        other.synchronize()
        with cupy.cuda.Device(1):
            assert (second.get() == seed).all()


def test_waiting_for_a_device_is_for_that_one(cuda: Any, both: Any) -> None:
    import cupy
    from cupy.cuda import runtime

    (_, _), (other, second) = both
    right = 0
    for seed in range(12):
        cuda.seed(seed)
        done = 600
        runtime.memsetAsync(second.data.ptr, seed, 100, other.ptr)
        cupy.cuda.Device(0).synchronize()
        done = runtime.streamQuery(other.ptr)
        right += done == 0
        with cupy.cuda.Device(1):
            cupy.cuda.Device().synchronize()
        assert runtime.streamQuery(other.ptr) == 0
    assert right <= 2
