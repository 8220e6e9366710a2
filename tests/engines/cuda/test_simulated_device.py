"""The simulated device itself: that it runs late, overwrites freed memory, decodes, and detects errors."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gzarr_kernels.device import copies
from support.simulated_device import GARBAGE, RELEASED, DeviceArray, SimulatedDevice
from support.simulated_faults import SimulatedFault

from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES = np.dtype(np.uint8)
#: Page-locked memory that copies of the running test read when they run.
KEPT: list[Any] = []


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with SimulatedDevice(eager=False) as device:
        yield device
        device.finish()
        KEPT.clear()


def on(device: SimulatedDevice, stream: Any, data: bytes) -> DeviceArray:
    """Enqueue a copy of some bytes to the device."""
    source = device.pinned(len(data))
    source[:] = np.frombuffer(data, np.uint8)
    KEPT.append(source)
    target = device.allocate(len(data), stream)
    device.copy_in(target, source, stream)
    return target


def back(device: SimulatedDevice, memory: DeviceArray, stream: Any) -> bytes:
    host = device.pinned(memory.nbytes)
    device.copy_out(host, memory, stream)
    stream.synchronize()
    return host.tobytes()


# -- streams


def test_nothing_runs_before_somebody_waits(device: SimulatedDevice) -> None:
    stream, event = device.stream(), device.event()
    target = on(device, stream, b"first")
    stream.record(event)
    assert (target == GARBAGE).all()
    # Page-locked memory is read when the copy runs.
    KEPT[0][:] = np.frombuffer(b"later", np.uint8)
    behind = on(device, stream, b"behind")
    event.synchronize()
    assert target.tobytes() == b"later"
    assert (behind == GARBAGE).all()
    assert stream.pending == 1


def test_waiting_for_an_event_runs_what_it_depends_on_and_no_more(device: SimulatedDevice) -> None:
    first, second, third = device.stream(), device.stream(), device.stream()
    target = on(device, first, b"abc")
    decoded = first.record(device.event())
    unrelated = on(device, third, b"xyz")
    late = on(device, first, b"late")
    second.wait_event(decoded)
    host = device.pinned(3)
    device.copy_out(host, target, second)
    second.synchronize()
    assert host.tobytes() == b"abc"
    assert (unrelated == GARBAGE).all()
    assert (late == GARBAGE).all()


def test_a_forgotten_dependency_gives_wrong_data(device: SimulatedDevice) -> None:
    first, second = device.stream(), device.stream()
    target = on(device, first, b"abc")
    assert back(device, target, second) != b"abc"
    assert back(device, target, first) == b"abc"


def test_an_event_is_waited_for_as_it_was_last_recorded_before(device: SimulatedDevice) -> None:
    first, second = device.stream(), device.stream()
    event = device.event()
    second.wait_event(event)
    early = on(device, first, b"early")
    first.record(event)
    second.wait_event(event)
    late = on(device, first, b"late")
    first.record(event)
    second.synchronize()
    assert early.tobytes() == b"early"
    assert (late == GARBAGE).all()
    event.synchronize()
    assert late.tobytes() == b"late"


def test_streams_that_wait_for_each_other(device: SimulatedDevice) -> None:
    streams = [device.stream(), device.stream()]
    memory = device.allocate(1, streams[0])
    for i in range(20):
        mine, other = streams[i % 2], streams[1 - i % 2]
        mine.wait_event(other.record(device.event()))
        source = device.pinned(1)
        source[:] = i
        device.copy_in(memory, source, mine)
    streams[1].synchronize()
    assert memory.tobytes() == bytes([19])


def test_an_eager_default_stream() -> None:
    with SimulatedDevice(eager=True) as device:
        own, default = device.stream(), device.current_stream()
        target = on(device, own, b"abc")
        event = own.record(device.event())
        late = on(device, own, b"late")
        result = device.empty((3,), BYTES, default)
        default.wait_event(event)
        device.copy_array(result, target, default)
        assert np.asarray(result).tobytes() == b"abc"
        assert (late == GARBAGE).all()
        device.finish()
        assert late.tobytes() == b"late"


def test_the_current_stream_is_a_thread_s(device: SimulatedDevice) -> None:
    stream = device.stream()
    found: list[Any] = []
    with stream:
        assert device.as_stream(None) is stream
        thread = threading.Thread(target=lambda: found.append(device.current_stream()))
        thread.start()
        thread.join()
    assert device.current_stream() is found[0] is not stream
    assert device.as_stream(stream) is stream
    with pytest.raises(ArgumentError, match="stream"):
        device.as_stream("fast")


def test_many_threads_at_once(device: SimulatedDevice) -> None:
    wrong: list[int] = []

    def work(i: int) -> None:
        with device:
            for _ in range(20):
                stream = device.stream()
                data = bytes([i]) * 1000
                target = on(device, stream, data)
                if back(device, target, stream) != data:
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert device.counts["copy_in"] == 80


# -- memory


def test_new_memory_is_garbage_and_aligned_to_what_is_promised(device: SimulatedDevice) -> None:
    stream = device.stream()
    for nbytes in (0, 1, 100, 4097):
        memory, result = device.allocate(nbytes, stream), device.empty((nbytes,), BYTES, stream)
        for array, alignment in ((memory, 256), (result, 256), (device.pinned(nbytes), 64)):
            assert array.size == nbytes
            assert (array == GARBAGE).all()
            assert array.ctypes.data % alignment == 0
            assert array.ctypes.data % (2 * alignment)


def test_memory_is_overwritten_in_order_with_its_stream(device: SimulatedDevice) -> None:
    own, callers = device.stream(), device.stream()
    memory = on(device, own, b"abc")
    copied = device.event()
    result = device.empty((3,), BYTES, callers)
    callers.wait_event(own.record(device.event()))
    device.copy_array(result, memory, callers)
    own.wait_event(callers.record(copied))
    del memory
    own.synchronize()
    assert result.get().tobytes() == b"abc"


def test_memory_that_is_let_go_of_too_early_shows(device: SimulatedDevice) -> None:
    own, callers = device.stream(), device.stream()
    memory = on(device, own, b"abc")
    result = device.empty((3,), BYTES, callers)
    callers.wait_event(own.record(device.event()))
    device.copy_array(result, memory, callers)
    # A view keeps it.
    part = memory[1:]
    del memory
    own.synchronize()
    assert part.tobytes() == b"bc"
    del part
    own.synchronize()
    callers.synchronize()
    assert (result == RELEASED).all()


def test_page_locked_memory_that_is_let_go_of_too_early_shows(device: SimulatedDevice) -> None:
    stream = device.stream()
    target = on(device, stream, b"abc")
    KEPT.clear()
    stream.synchronize()
    assert (target == RELEASED).all()


def test_results_stay_while_they_are_looked_at(device: SimulatedDevice) -> None:
    stream = device.current_stream()
    result = device.empty((2, 3), np.dtype(np.int16), stream)
    view = np.asarray(result)
    view[...] = 7
    del result
    device.finish()
    assert (view == 7).all()


def test_memory_is_counted(device: SimulatedDevice) -> None:
    stream = device.stream()
    before = device.free_bytes()
    memory, pinned = device.allocate(1000, stream), device.pinned(500)
    result = device.empty((10, 10), np.dtype(np.float32), stream)
    assert (device.held, device.peak, device.free_bytes()) == (1500, 1500, before - 1400)
    del memory
    device.allocate(10, stream)
    assert device.free_bytes() == before - 400
    del pinned, result
    device.finish()
    device.reset_peak()
    assert (device.held, device.peak, device.free_bytes()) == (0, 0, before)
    with pytest.raises(MemoryError):
        device.allocate(before + 1, stream)


def test_allocations_that_are_told_to_fail(device: SimulatedDevice) -> None:
    stream = device.stream()
    device.fail_allocation(2)
    device.pinned(1)
    with pytest.raises(MemoryError):
        device.allocate(1, stream)
    device.fail_allocation(1, "result")
    device.allocate(1, stream)
    device.pinned(1)
    with pytest.raises(MemoryError):
        device.empty((1,), BYTES, stream)
    device.empty((1,), BYTES, stream)


@pytest.mark.parametrize("where", [-1, 100])
def test_what_is_written_outside_shows(where: int) -> None:
    with SimulatedDevice() as device:
        memory = device.allocate(100, device.stream())
        ctypes.memset(device.address(memory) + where, 1, 1)
        with pytest.raises(SimulatedFault, match="outside"):
            device.finish()


# -- arrays


def test_arrays_are_like_cupy_s(device: SimulatedDevice) -> None:
    result = device.empty((3, 4), np.dtype(np.int32), device.current_stream())
    result.view(np.ndarray)[...] = np.arange(12).reshape(3, 4)
    for part in (result, result[1:], result[::-1, ::2], result.T, result[1, 2], result[()], result[..., 0]):
        assert device.is_array(part)
        assert type(part.get()) is np.ndarray
    assert result[1, 2].shape == ()
    np.testing.assert_array_equal(result[::-1, ::2].get(), np.arange(12).reshape(3, 4)[::-1, ::2])
    assert not device.is_array(np.zeros(3))
    assert not SimulatedDevice(1).is_array(result)
    for dtype in ("S3", ">i4", "M8[s]", "O", "i4,f4"):
        with pytest.raises(TypeError, match="CuPy"):
            device.empty((1,), np.dtype(dtype), device.current_stream())


@pytest.mark.parametrize("part", [np.s_[:], np.s_[::-1], np.s_[1:3, ::-2], np.s_[2, 1:], np.s_[:, 1], np.s_[1, 1]])
def test_flat_is_the_memory_from_the_lowest_to_the_highest_byte(part: Any, device: SimulatedDevice) -> None:
    whole = device.empty((4, 6), np.dtype(np.uint16), device.current_stream())
    whole.view(np.ndarray)[...] = np.arange(24).reshape(4, 6)
    array = whole[part]
    memory, first = device.flat(array)
    assert device.is_array(memory)
    assert (memory.dtype, memory.ndim) == (BYTES, 1)
    elements = device.shaped(memory[first : first + 2], np.dtype(np.uint16), (1,))
    assert elements[0] == array[(0,) * array.ndim]
    assert memory.size == 2 * (int(array.get().max()) - int(array.get().min()) + 1)
    # It is the same memory, which lives as long.
    address = device.address(whole)
    del whole, array
    device.finish()
    assert address <= device.address(memory) < address + 48
    assert elements.get() != RELEASED * 257


def test_memory_as_an_array(device: SimulatedDevice) -> None:
    stream = device.stream()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    memory = on(device, stream, values.tobytes())
    stream.synchronize()
    np.testing.assert_array_equal(device.shaped(memory, values.dtype, (3, 4)).get(), values)


# -- kernels


def copy_job(device: SimulatedDevice, stream: Any, data: bytes) -> DeviceArray:
    """Return an arena with a header at 0, and ``data`` at byte 128, which a launch copies to byte 256."""
    columns = np.zeros(64, np.int64)
    columns[[copies.FRAMES, copies.SOURCE, copies.TARGET, copies.NBYTES]] = 1, 8, 9, 10
    columns[8:11] = 128, 256, len(data)
    memory = on(device, stream, columns[:16].tobytes() + data.ljust(256, b"."))
    return memory


def test_a_kernel_runs_when_it_is_waited_for(device: SimulatedDevice) -> None:
    stream = device.stream()
    arena = copy_job(device, stream, b"some bytes")
    base = device.address(arena)
    device.launch(copies.copy_frames, 1, copies.THREADS, stream, base, base, 0)
    assert (arena == GARBAGE).all()
    assert back(device, arena[256:266], stream) == b"some bytes"
    assert device.counts["launch copy_frames"] == 1


def test_what_a_kernel_does_not_take(device: SimulatedDevice) -> None:
    stream = device.stream()
    arena = copy_job(device, stream, b"")
    base = device.address(arena)
    for wrong in (
        device.pinned(8).ctypes.data,
        base + 4,
        base + arena.nbytes + 8,
        0,
        arena,
        np.int64(base),
        None,
    ):
        with pytest.raises(SimulatedFault):
            device.launch(copies.copy_frames, 1, 1, stream, base, wrong, 0)
    with pytest.raises(SimulatedFault):
        device.launch(copies.copy_frames, 1, 1, stream, base, base, 1.5)
    with pytest.raises(ValueError, match="argument"):
        device.launch(copies.copy_frames, 1, 1, stream, base, base)
    for blocks, threads in ((0, 1), (1, 0), (1, 1025), (1 << 31, 1)):
        with pytest.raises(SimulatedFault, match="launch"):
            device.launch(copies.copy_frames, blocks, threads, stream, base, base, 0)


def test_what_a_copy_does_not_take(device: SimulatedDevice) -> None:
    stream = device.stream()
    memory, pinned = device.allocate(8, stream), device.pinned(8)
    pairs: list[tuple[Any, Any]] = [
        (memory, np.zeros(8, np.uint8)),
        (memory, memory),
        (pinned, pinned),
        (memory[:4], pinned),
        (memory[::2], pinned[:4]),
        (memory[:4], pinned[::2]),
    ]
    for target, source in pairs:
        with pytest.raises(SimulatedFault):
            device.copy_in(target, source, stream)
    with pytest.raises(SimulatedFault):
        device.copy_array(memory[:4], memory, stream)
    assert not stream.pending


def test_the_thread_s_device() -> None:
    device = SimulatedDevice()
    stream = device.current_stream()
    with pytest.raises(SimulatedFault, match="current device"):
        device.allocate(1, stream)
    with device:
        with device:
            memory = device.allocate(1, stream)
        device.copy_array(memory, memory, stream)
    with pytest.raises(SimulatedFault, match="current device"):
        device.copy_array(memory, memory, stream)
    device.finish()
