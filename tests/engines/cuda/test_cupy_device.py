"""Calls of CuPy and the driver by the real device, as far as they need no GPU."""

from __future__ import annotations

import ctypes
import gc
import warnings
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import cupy
import pytest
from support import devices
from support.cuda_on_host.dlpack import Offered

import gzarr
from gzarr.engines.cuda import machine_code, streams
from gzarr.engines.cuda.cupy_device import CupyDevice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice


@pytest.fixture
def device() -> CupyDevice:
    return CupyDevice(1)


@pytest.fixture
def on_host() -> Iterator[WatchedDevice]:
    with devices.on_host() as made, made:
        yield made


# -- launches


class Driver:
    """The driver's functions for launches; records launches, and copies the arguments like the driver."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.launched: list[tuple[Any, ...]] = []

    def load(self, image: bytes) -> int:
        self.loaded.append(image)
        return len(self.loaded)

    def find(self, module: int, name: str) -> int:
        assert self.loaded[module - 1] == f"image of {name}".encode()
        return 100 + module

    def launch(self, function: int, *rest: int) -> None:
        *grid, stream, addresses, extra = rest
        assert extra == 0
        count = 3 if function == 101 else 6
        pointers = (ctypes.c_void_p * count).from_address(addresses)
        values = [ctypes.c_int64.from_address(pointer or 0).value for pointer in pointers]
        self.launched.append((function, tuple(grid), stream, values))


@pytest.fixture
def driver(device: CupyDevice) -> Iterator[Driver]:
    found = Driver()
    made = lambda kernel, word, capability: SimpleNamespace(  # noqa: E731
        image=f"image of {kernel}{word}sm{capability}".encode(), entry=f"{kernel}{word}sm{capability}"
    )
    with (
        mock.patch.multiple(
            cupy.cuda.driver, moduleLoadData=found.load, moduleGetFunction=found.find, launchKernel=found.launch
        ),
        mock.patch.object(cupy.cuda, "Device", return_value=SimpleNamespace(compute_capability="103")),
        mock.patch.object(machine_code, "load", side_effect=made) as loading,
    ):
        yield found
    for call in loading.call_args_list:
        assert call.args[2] == (10, 3)


def test_a_launch_passes_the_address_of_each_argument(device: CupyDevice, driver: Driver) -> None:
    stream = SimpleNamespace(ptr=77)
    with warnings.catch_warnings():
        # Of few blocks too, which numba-cuda warns of.
        warnings.simplefilter("error")
        device.launch("first", 5, 256, stream, 1 << 40, (1 << 63) - 1, -3)
        device.launch("second", 6, 128, stream, *range(1, 7), word=4)
        device.launch("first", 7, 32, stream, 1, 2, 3)
    assert driver.launched == [
        (101, (5, 1, 1, 256, 1, 1, 0), 77, [1 << 40, (1 << 63) - 1, -3]),
        (102, (6, 1, 1, 128, 1, 1, 0), 77, [1, 2, 3, 4, 5, 6]),
        (101, (7, 1, 1, 32, 1, 1, 0), 77, [1, 2, 3]),
    ]
    # Each kernel is compiled and loaded once for each size of words.
    assert len(driver.loaded) == 2


# -- page-locked memory


def test_page_locked_memory_is_as_large_as_asked_and_goes_back_at_once(on_host: WatchedDevice) -> None:
    host = on_host.cuda.host
    before = host.held(None)
    sizes = [76 << 20, 1, 0, 4097]
    arrays = [on_host.pinned(nbytes) for nbytes in sizes]
    assert [array.nbytes for array in arrays] == sizes
    assert host.held(None) - before == sum(max(nbytes, 1) for nbytes in sizes)
    part = arrays[0][10:20]
    part[:] = 3
    arrays.clear()
    gc.collect()
    # A view keeps its memory.
    assert host.held(None) - before == 76 << 20
    del part
    gc.collect()
    assert host.held(None) == before


# -- streams


class Foreign:
    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


class OfTorch:
    def __init__(self, address: int) -> None:
        self.cuda_stream = address


class Wrong:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 9, 1234


def test_streams_of_others(on_host: WatchedDevice) -> None:
    made = [on_host.stream() for _ in range(3)]
    first, second, third = (stream.ptr for stream in made)
    with warnings.catch_warnings():
        # Of CuPy's: ExternalStream is deprecated.
        warnings.simplefilter("error")
        assert on_host.as_stream(Foreign(first)).ptr == first
        assert on_host.as_stream(OfTorch(second)).ptr == second
        assert on_host.as_stream(third).ptr == third
        assert on_host.as_stream(0).ptr == 0
    for wrong in (True, -1, "0", Wrong(), 1.5, 2**63, 2**64, Foreign(2**63), OfTorch(2**64)):
        with pytest.raises(gzarr.ArgumentError, match="stream"):
            on_host.as_stream(wrong)


@pytest.mark.parametrize("address", [0, 1, 2])
def test_default_streams_of_another_device_are_refused(address: int, on_host: WatchedDevice) -> None:
    """Their addresses are those of this device's, and PyTorch's streams say whose they are."""
    stream: Any = OfTorch(address)
    stream.device_index = 1
    with pytest.raises(gzarr.ArgumentError, match="stream belongs to cuda:1; the array is on cuda:0"):
        on_host.as_stream(stream)
    stream.device_index = 0
    assert on_host.as_stream(stream).ptr == on_host.as_stream(address).ptr


def _external(address: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cupy.cuda.ExternalStream(address)


@pytest.mark.parametrize(
    "made", [Foreign, OfTorch, int, _external, lambda address: cupy.cuda.Stream.from_external(Foreign(address))]
)
def test_memory_of_a_pool_of_cuda_s_finds_its_stream_when_it_is_freed(made: Any, on_host: WatchedDevice) -> None:
    """CuPy's ``MemoryAsync`` refers to its stream's object weakly, and is freed on the current one if that is gone."""
    stream = on_host.stream()
    array = gzarr.open_array(gzarr.create_array({}, data=range(1000), device="cpu").store, device="cuda")
    allocated: list[tuple[int, Any]] = []
    default = cupy.cuda.get_allocator()

    def malloc(nbytes: int) -> Any:
        current = cupy.cuda.get_current_stream()
        allocated.append((current.ptr, weakref.ref(current)))
        return default(nbytes)

    cupy.cuda.set_allocator(malloc)
    try:
        result = array.read(stream=made(stream.ptr))
    finally:
        cupy.cuda.set_allocator(default)
    gc.collect()
    of_the_stream = [kept() for address, kept in allocated if address == stream.ptr]
    assert of_the_stream
    assert all(kept is not None for kept in of_the_stream)
    assert result.get(stream=stream.cupy).tolist() == list(range(1000))


class Plain:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


def test_streams_that_no_memory_refers_to_are_not_kept_for_ever() -> None:
    streams.release()
    before = set(streams._foreign)
    objects = [Plain(address) for address in range(200)]
    memories = [weakref.ref(streams.kept("made up", each)) for each in objects[:10]]
    for each in objects[10:]:
        assert streams.kept("made up", each) is each
        assert len(streams._foreign) <= streams.MAX_FOREIGN
    assert [streams.kept("made up", Plain(address)) for address in range(10)] == [each() for each in memories]
    memories.clear()
    gzarr.release_memory()
    assert set(streams._foreign) == before


def test_streams_of_other_libraries_are_not_kept_alive(on_host: WatchedDevice) -> None:
    """They may be destroyed with their objects."""

    class Foreign:
        def __init__(self, address: int) -> None:
            self.address = address

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self.address

    own = on_host.stream()
    with on_host:
        foreign = Foreign(own.cupy.ptr)
        gone = weakref.ref(foreign)
        found = on_host.as_stream(foreign)
        del foreign
        assert found.cupy.ptr == own.cupy.ptr
        assert gone() is None


def test_recording_an_event_returns_it(on_host: WatchedDevice) -> None:
    """A loader waits for what ``record`` returns; CuPy's own method would return CuPy's event, or a new one."""
    stream, other, event = on_host.stream(), on_host.stream(), on_host.event()
    with on_host.held_back(stream) as gate:
        assert stream.record(event) is event
        other.wait_event(stream.record(event))
        assert not event.done
        gate.open()
        other.synchronize()
    assert gate.passed
    assert event.done


# -- arrays


def test_managed_memory_of_other_libraries_is_memory_of_the_device(on_host: WatchedDevice) -> None:
    array = gzarr.create_array({}, shape=(100,), dtype="f4", device="cuda")
    values = cupy.arange(100, dtype="f4")
    stream = on_host.current_stream()
    found = on_host.as_array(Offered(values, managed=True), stream)
    assert found.data.ptr == values.data.ptr
    array[...] = Offered(values, managed=True)
    assert array[...].get().tolist() == list(range(100))


# -- what the names of CuPy are


def test_cupy_has_what_is_called() -> None:
    for names, module in (
        (("launchKernel", "moduleLoadData", "moduleGetFunction", "CUDADriverError"), cupy.cuda.driver),
        (("memcpyAsync", "memGetInfo", "setDevice", "getDeviceCount", "CUDARuntimeError"), cupy.cuda.runtime),
        (("PinnedMemory", "PinnedMemoryPointer", "Stream", "ExternalStream", "Event", "MemoryPointer"), cupy.cuda),
        (("done", "synchronize"), cupy.cuda.Event),
        (("record", "wait_event", "synchronize", "from_external", "__cuda_stream__"), cupy.cuda.Stream),
    ):
        for name in names:
            assert hasattr(module, name), name


# -- machine code on disk


def test_machine_code_is_compiled_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr_kernels.device import compiler

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # As in an installation without compiled kernels.
    monkeypatch.setattr("gzarr_kernels.device.ptx.programs", dict)
    kernel: Any = SimpleNamespace(py_func=test_streams_of_others)
    made = [compiler.MachineCode(bytes([i]) * 5 + b"\nmore", f"entry {i}") for i in range(9)]
    with mock.patch.object(compiler, "compiled", side_effect=made) as compiled:
        assert machine_code.load(kernel, 2, (9, 0)) == made[0]
        assert machine_code.load(kernel, 2, (9, 0)) == made[0]
        # Another size of words, another GPU.
        assert machine_code.load(kernel, 4, (9, 0)) == made[1]
        assert machine_code.load(kernel, 2, (8, 0)) == made[2]
        assert compiled.call_count == 3
        files = sorted((tmp_path / "gzarr" / "kernels").iterdir())
        assert len(files) == 3
        # What is damaged, cut short, or about other sources is compiled again.
        for i, damage in enumerate((lambda b: b[:-1], lambda b: b"{}\n" + b, lambda b: b"", lambda b: b"[]\n"), 3):
            for file in files:
                if file.name.startswith("test_streams_of_others-2-sm_90"):
                    file.write_bytes(damage(file.read_bytes()))
            assert machine_code.load(kernel, 2, (9, 0)) == made[i]
        monkeypatch.setattr("gzarr_kernels.device.target.FINGERPRINT", "another")
        assert machine_code.load(kernel, 2, (9, 0)) == made[7]
        # Where no file can be written, each process compiles.
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
        assert machine_code.load(kernel, 2, (9, 0)) == made[8]


def test_what_is_missing_to_compile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr_kernels.device import compiler

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # As in an installation without compiled kernels.
    monkeypatch.setattr("gzarr_kernels.device.ptx.programs", dict)
    kernel: Any = SimpleNamespace(py_func=test_streams_of_others)
    for error in (OSError("libnvvm.so\nis not there"), RuntimeError("no nvrtc"), AttributeError("row_stack")):
        with (
            mock.patch.object(compiler, "compiled", side_effect=error),
            pytest.raises(gzarr.DeviceError, match=r"cannot compile a kernel: \w.*numba-cuda\[cu13\].*CUDA_HOME"),
        ):
            machine_code.load(kernel, 1, (9, 0))
