"""Errors of CUDA on the real device: CuPy and its exceptions are real, functions that call the driver are replaced."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import cupy
import numpy as np
import pytest
from support import devices

import gzarr
from gzarr.engines.cuda.cupy_device import CupyDevice
from gzarr.engines.cuda.cupy_errors import OUT_OF_MEMORY
from gzarr.engines.cuda.cupy_streams import CupyEvent, CupyStream
from gzarr.engines.cuda.loss import LASTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ILLEGAL_ADDRESS, INVALID_VALUE = 700, 1
RuntimeFailure = cupy.cuda.runtime.CUDARuntimeError


class DriverFailure(cupy.cuda.driver.CUDADriverError):  # type: ignore[misc]
    """An error without CuPy's constructor, which asks the driver for the name of the error."""

    def __init__(self, status: int) -> None:
        RuntimeError.__init__(self, f"CUDA_ERROR_{status}")
        self.status = status


class Failing:
    """Any object of CuPy, whose calls fail on demand."""

    ptr = 77

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: BaseException | None = None

    def call(self, name: str, *_: Any) -> Any:
        self.calls.append(name)
        if self.error is not None:
            raise self.error
        return 3

    def status(self, name: str) -> int:
        """Return the status of a function that returns its runtime errors rather than raising them."""
        self.calls.append(name)
        if isinstance(self.error, RuntimeFailure):
            return self.error.status
        if self.error is not None:
            raise self.error
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self.call(name)

    def __enter__(self) -> Failing:
        self.call("enter")
        return self

    def __exit__(self, *exc: object) -> None:
        self.calls.append("exit")


@pytest.fixture
def device() -> Iterator[CupyDevice]:
    with mock.patch.object(cupy.cuda.runtime, "getDeviceCount", return_value=2):
        yield CupyDevice(1)


def calls_of(device: CupyDevice, raw: Failing) -> dict[str, Callable[[], Any]]:
    """Return all calls of a device, its streams and its events."""
    stream, event = CupyStream(raw, device._errors), CupyEvent(raw, device._errors)
    array = SimpleNamespace(data=raw, nbytes=8, get=raw.get, astype=raw.astype)
    host = np.zeros(8, np.uint8)

    def calls(name: str) -> Callable[..., Any]:
        return lambda *_, **__: raw.call(name)

    def within(function: Callable[[], Any]) -> Callable[[], Any]:
        names = ("Stream", "Event", "PinnedMemory", "get_current_stream")
        cuda = {name: mock.Mock(side_effect=calls(name)) for name in names}
        cuda["get_allocator"] = mock.Mock(return_value=None)
        runtime = {name: calls(name) for name in ("memcpyAsync", "setDevice")}
        runtime["memGetInfo"] = lambda: (raw.call("memGetInfo"), 0)

        def run() -> Any:
            # CuPy's event says of every failure that it is not done.
            runtime["eventQuery"] = lambda _: raw.status("done")
            with (
                mock.patch.multiple(cupy.cuda, Device=mock.Mock(return_value=raw), **cuda),
                mock.patch.multiple(cupy.cuda.runtime, **runtime),
                mock.patch.multiple(cupy.cuda.driver, launchKernel=calls("launchKernel")),
                mock.patch.multiple(cupy, empty=calls("empty"), get_default_memory_pool=mock.Mock(return_value=raw)),
            ):
                return function()

        return run

    device._functions["kernel", 0] = 5
    device.__dict__.pop("_launch_kernel", None)
    found: dict[str, Callable[[], Any]] = {
        "record": lambda: stream.record(event),
        "wait_event": lambda: stream.wait_event(event),
        "synchronize": stream.synchronize,
        "event.synchronize": event.synchronize,
        "event.done": lambda: event.done,
        "with stream": stream.__enter__,
        "with device": device.__enter__,
        "stream": device.stream,
        "event": device.event,
        "current_stream": device.current_stream,
        "as_stream": lambda: device.as_stream(None),
        "empty": lambda: device.empty((3,), np.dtype("u1"), stream),
        "allocate": lambda: device.allocate(3, stream),
        "pinned": lambda: device.pinned(3),
        "copy_in": lambda: device.copy_in(array, host, stream),
        "copy_out": lambda: device.copy_out(host, array, stream),
        "copy_array": lambda: device.copy_array({}, 1, stream),
        "converted": lambda: device.converted(array, np.dtype("u1"), stream),
        "to_host": lambda: device.to_host(array, stream),
        "launch": lambda: device.launch("kernel", 1, 1, stream, 1, 2),
        "free_cached": lambda: device.free_cached(stream),
        "free_bytes": device.free_bytes,
    }
    return {name: within(function) for name, function in found.items()}


NAMES = sorted(calls_of(mock.MagicMock(), Failing()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("failure", [RuntimeFailure, DriverFailure], ids=["runtime", "driver"])
def test_every_call_raises_errors_of_ours(name: str, failure: Any, device: CupyDevice) -> None:
    raw = Failing()
    calls = calls_of(device, raw)
    raw.error = failure(INVALID_VALUE)
    with pytest.raises(gzarr.DeviceError, match=r"^CUDA failed: cudaErrorInvalidValue|^CUDA failed: CUDA_ERROR_1"):
        calls[name]()
    assert device.lost is None
    raw.error = failure(ILLEGAL_ADDRESS)
    with pytest.raises(
        gzarr.DeviceError, match=r"^cuda:1 was lost: (cudaErrorIllegalAddress: |CUDA_ERROR_700)"
    ) as caught:
        calls[name]()
    assert isinstance(caught.value.__cause__, failure)
    assert device.lost is not None
    # From then on CUDA is not even called, whatever it would say.
    raw.error = None
    raw.calls.clear()
    for other in NAMES:
        with pytest.raises(gzarr.DeviceError) as again:
            calls[other]()
        assert str(again.value) == str(caught.value)
    assert not raw.calls


def test_without_failures_all_calls_are_made(device: CupyDevice) -> None:
    raw = Failing()
    for name, call in calls_of(device, raw).items():
        raw.calls.clear()
        if name not in ("stream", "event", "current_stream", "as_stream", "pinned"):
            call()
            assert raw.calls, name


def test_the_thread_s_device_is_restored_and_errors_stay(device: CupyDevice) -> None:
    raw = mock.MagicMock()
    with (
        mock.patch.object(cupy.cuda, "Device", return_value=raw),
        mock.patch.object(cupy.cuda.runtime, "setDevice"),
    ):
        # Another error is on its way, which is not to be hidden.
        raw.__exit__.side_effect = RuntimeFailure(INVALID_VALUE)
        with pytest.raises(KeyError, match="mine"), device:
            raise KeyError("mine")
        with pytest.raises(gzarr.DeviceError, match=r"^CUDA failed"), device:
            pass
        raw.__exit__.side_effect = RuntimeFailure(ILLEGAL_ADDRESS)
        with pytest.raises(KeyError, match="mine"), device:
            raise KeyError("mine")
        assert device.lost is not None
        assert raw.__exit__.call_count == 3
        raw.__enter__.reset_mock()
        with pytest.raises(gzarr.DeviceError, match="was lost"), device:
            pass
        raw.__enter__.assert_not_called()


def test_no_room_is_no_loss(device: CupyDevice) -> None:
    with pytest.raises(MemoryError, match="out of memory"), device._errors:
        raise cupy.cuda.memory.OutOfMemoryError(10, 5)
    assert device.lost is None


@pytest.mark.parametrize("code", sorted(LASTING))
def test_errors_that_last(code: int, device: CupyDevice) -> None:
    with pytest.raises(gzarr.DeviceError, match="was lost"), device._errors:
        raise RuntimeFailure(code)


def test_errors_that_last_are_those_of_cuda_s_header() -> None:
    spec = importlib.util.find_spec("nvidia.cu13")
    assert spec is not None
    headers = [Path(folder) / "include" / "driver_types.h" for folder in spec.submodule_search_locations or ()]
    text = headers[0].read_text()
    text = text[text.index("enum __device_builtin__ cudaError") :]
    text = text[: text.index("};")]
    said = {
        int(code)
        for comment, code in re.findall(r"/\*\*(.*?)\*/\s*\w+\s*=\s*(\d+)", text, re.DOTALL)
        if "must be terminated" in " ".join(comment.replace("*", " ").split())
    }
    assert {700, 716, 719} <= said
    # Besides, errors of memory and NVLink, and the one that nobody knows.
    assert LASTING - said == {214, 220, 999}
    assert said <= LASTING


# -- CuPy's own kernels


WITHOUT_NVRTC = """
import support.cuda_on_host.first
import cupy
import numpy as np
from cuda.pathfinder import DynamicLibNotFoundError
from support.cuda_on_host.cupy_kernels import without_nvrtc

import gzarr
from gzarr.engines.cuda.devices import get_device

data = np.arange(1 << 14, dtype="f4").reshape(128, 128)
store = gzarr.create_array({}, data=data, chunks=(32, 32), device="cpu").store
array = gzarr.open_array(store, mode="r+", device="cuda")
values = cupy.empty(data.shape, data.dtype)
values.set(data)
with get_device("cuda:0") as device:
    stream = device.current_stream()


def on_the_stream(function):
    with stream:
        return function()


def missing():
    raise DynamicLibNotFoundError("libcublas.so")


with without_nvrtc():
    for use in (
        lambda: array.__setitem__(slice(5, 100), values[5:100]),
        lambda: array.__setitem__((slice(None), 7), values[:, 7]),
        lambda: array.read(np.s_[:, :100], out=cupy.empty(data.shape, "f4")[:, :100], decode="cpu"),
        lambda: array.read(dtype="f2"),
        lambda: on_the_stream(lambda: values.astype("i2")),
        lambda: on_the_stream(missing),
    ):
        try:
            use()
        except Exception as error:
            print(type(error).__name__, error)
        else:
            print("nothing failed")
    # Most reads need none of CuPy's kernels.
    for decode in ("cpu", "cuda"):
        assert (array.read(np.s_[100:], decode=decode).get()[:28] == data[100:]).all()
"""


def test_without_its_compiler_all_that_needs_it_says_what_to_install() -> None:
    """In a process in which CuPy has compiled nothing."""
    if devices.LACKS:
        pytest.skip(devices.LACKS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", WITHOUT_NVRTC], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    *ours, theirs = run.stdout.splitlines()
    assert len(ours) == 5, run.stdout
    for line in ours:
        assert re.match(r"DeviceError .*libnvrtc.*: No such file; pip install 'gzarr\[cuda13\]' ", line), line
    # Another library, which a function of the caller's needs.
    assert theirs == "DynamicLibNotFoundError libcublas.so"


# -- streams


def test_a_caller_s_stream_is_the_caller_s(device: CupyDevice) -> None:
    null = cupy.cuda.Stream.null
    found = device.as_stream(null)
    assert found.cupy is null
    assert found.ptr == null.ptr
    assert device.as_stream(found) is found


def test_a_stream_of_another_device_is_refused(device: CupyDevice) -> None:
    stream = cupy.cuda.Stream.__new__(cupy.cuda.Stream)
    stream.ptr, stream._foreign_stream_ref = 77, stream
    same = {name: mock.Mock(return_value=5) for name in ("ctxGetCurrent", "streamGetCtx")}
    with (
        mock.patch.multiple(cupy.cuda.runtime, streamIsCapturing=mock.Mock(return_value=False)),
        mock.patch.multiple(cupy.cuda.driver, **same),
    ):
        for ordinal, fits in ((1, True), (-1, True), (0, False)):
            stream.device_id = ordinal
            if fits:
                assert device.as_stream(stream).ptr == 77
            else:
                with pytest.raises(gzarr.ArgumentError, match="belongs to cuda:0; the array is on cuda:1"):
                    device.as_stream(stream)


@pytest.mark.parametrize("failure", [RuntimeFailure, DriverFailure], ids=["runtime", "driver"])
def test_no_room_for_what_is_not_of_the_pool(failure: Any, device: CupyDevice) -> None:
    with (
        mock.patch.object(cupy.cuda, "PinnedMemory", side_effect=failure(OUT_OF_MEMORY)),
        pytest.raises(MemoryError, match="out of memory"),
    ):
        device.pinned(100)
    assert device.lost is None


def test_several_threads_may_be_the_first(device: CupyDevice) -> None:
    device._start()
    # The second has asked before the first was done.
    device._start()
    with mock.patch.object(os, "getpid", return_value=-5), pytest.raises(gzarr.DeviceError, match="forked"):
        device._start()


def test_a_device_that_cannot_be_entered_is_left(device: CupyDevice) -> None:
    raw = Failing()
    with (
        mock.patch.object(cupy.cuda, "Device", return_value=raw),
        mock.patch.object(cupy.cuda.runtime, "setDevice", side_effect=RuntimeFailure(INVALID_VALUE)),
        pytest.raises(gzarr.DeviceError),
    ):
        device.__enter__()
    assert raw.calls == ["enter", "exit"]


WITHOUT_A_DEVICE = """
import cupy
import gzarr
from gzarr.engines.cuda.cupy_device import CupyDevice

device = CupyDevice(0)
stream = device.as_stream(cupy.cuda.Stream.null)
for call in (stream.synchronize, stream.__enter__, device.event, device.__enter__):
    try:
        call()
    except gzarr.DeviceError as error:
        print(error)
"""


def test_real_calls_of_cupy_fail_as_ours() -> None:
    """This runs in a process that sees no GPU, even if there is one."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-c", WITHOUT_A_DEVICE]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == 4, run.stderr
    assert all(line.startswith("CUDA failed: cudaError") for line in lines[:3])
    assert lines[3].startswith("cuda:0 cannot be used: cudaError")
