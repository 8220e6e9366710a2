"""A device that is not the thread's: what its reads hand over, the streams they take, contexts of other devices."""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from support import devices as tested
from support.cuda_on_host.dlpack import imported

import gzarr
from gzarr.engines.cuda import devices, slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

DATA = np.arange(1 << 14, dtype="f4").reshape(64, 256)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    """The second of two devices; the first one is the thread's."""
    with tested.on_host():
        yield devices.get_device("cuda:1")  # type: ignore[misc]


@pytest.fixture
def array(device: WatchedDevice) -> gzarr.Array:
    made = gzarr.create_array({}, data=DATA, chunks=(8, 256), device="cpu")
    return gzarr.open_array(made.store, device=device.name)


# -- handing results to other libraries


def _as_dlpack(array: gzarr.Array, stream: int, patch: pytest.MonkeyPatch) -> Any:
    return taken(array, stream)


def _to_jax(array: gzarr.Array, stream: int, patch: pytest.MonkeyPatch) -> Any:
    jax = pytest.importorskip("jax")
    patch.setattr(jax.dlpack, "from_dlpack", lambda result: taken(result, stream))
    return array.to_jax()


def _to_torch(array: gzarr.Array, stream: int, patch: pytest.MonkeyPatch) -> Any:
    torch = pytest.importorskip("torch")
    # A read on CuPy's current stream, as that of indexers is.
    patch.setattr(torch.cuda, "is_available", lambda: False)
    patch.setattr(torch, "from_dlpack", lambda result: taken(result, stream))
    return array.to_torch()


def taken(exporter: Any, stream: int) -> np.ndarray[Any, Any]:
    """Return what another library sees that works on a stream."""
    tensor = imported(exporter, stream)
    found = tensor.read(stream)
    tensor.release()
    return found


@pytest.mark.parametrize("export", [_as_dlpack, _to_jax, _to_torch])
def test_another_library_waits_for_the_stream_that_was_read_on(
    export: Any, array: gzarr.Array, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cupy.cuda.Device().id == 0
    with ExitStack() as stack:
        with device:
            consumer = device.stream()
            gate = stack.enter_context(device.held_back(device.current_stream()))
        gate.open_after(0.1)
        np.testing.assert_array_equal(export(array, consumer.ptr, monkeypatch), DATA)
        assert gate.passed
    assert cupy.cuda.Device().id == 0


# -- streams that nothing on the device can wait for


class Foreign:
    """Another library's stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream.ptr


def _external(stream: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cupy.cuda.ExternalStream(stream.ptr)


SPELLINGS = {"cupy": lambda s: s, "object": Foreign, "address": lambda s: s.ptr, "external": _external}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_stream_of_another_device_is_refused_before_anything_is_held(
    spelling: str, array: gzarr.Array, device: WatchedDevice
) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    unusable = len(slots._unusable)
    device.reset_peak()
    for _ in range(3):
        with pytest.raises(gzarr.ArgumentError, match="stream belongs to cuda:0; the array is on cuda:1"):
            array.read(stream=SPELLINGS[spelling](stream), decode="cuda")
    assert device.peak == device.held
    assert len(slots._unusable) == unusable
    # Those of the device are taken, whatever the thread's.
    with device:
        own = cupy.cuda.Stream(non_blocking=True)
    result = array.read(stream=SPELLINGS[spelling](own), decode="cuda")
    own.synchronize()
    with device:
        np.testing.assert_array_equal(result.get(), DATA)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_stream_that_is_being_captured_is_refused(spelling: str, array: gzarr.Array, device: WatchedDevice) -> None:
    with device:
        stream = cupy.cuda.Stream(non_blocking=True)
        runtime = cupy.cuda.runtime
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeRelaxed)
        unusable = len(slots._unusable)
        with pytest.raises(gzarr.ArgumentError, match="captured into a CUDA graph"):
            array.read(stream=SPELLINGS[spelling](stream), decode="cuda")
        with stream, pytest.raises(gzarr.ArgumentError, match="captured into a CUDA graph"):
            array[...]
        # The capture is none the worse for it.
        runtime.streamEndCapture(stream.ptr)
        # One that has failed is not over.
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeRelaxed)
        with pytest.raises(runtime.CUDARuntimeError, match="CaptureUnsupported"):
            stream.synchronize()
        with pytest.raises(gzarr.ArgumentError, match="captured into a CUDA graph"):
            array.read(stream=SPELLINGS[spelling](stream), decode="cuda")
        with pytest.raises(runtime.CUDARuntimeError, match="CaptureInvalidated"):
            runtime.streamEndCapture(stream.ptr)
        assert len(slots._unusable) == unusable
        np.testing.assert_array_equal(array.read(stream=SPELLINGS[spelling](stream)).get(stream=stream), DATA)


# -- contexts of other devices


@pytest.fixture
def only(device: WatchedDevice) -> Iterator[WatchedDevice]:
    """The second device, as the only one that the program uses."""
    host = device.cuda.host
    cupy.cuda.Device(1).use()
    host.forget_contexts()
    yield device
    host.forget_contexts()
    cupy.cuda.Device(0).use()


def test_threads_of_gzarr_make_no_context_on_another_device(array: gzarr.Array, only: WatchedDevice) -> None:
    assert len(list(gzarr.Loader(array, batch_size=16))) == 4
    mapped = gzarr.map_blocks(lambda block: block, array, out={})
    np.testing.assert_array_equal(gzarr.open_array(mapped.store, device="cpu")[...], DATA)
    host = only.cuda.host
    assert host.has_context(1)
    assert not host.has_context(0)


def test_an_event_is_destroyed_in_the_context_that_it_was_made_in(only: WatchedDevice) -> None:
    """As in a loader's thread that drops the event of a batch before it has done anything else."""
    with only:
        events = [only.event()]
    before = only.cuda.host.counts()["cudaEventDestroy"]
    thread = threading.Thread(target=events.clear, name="gzarr-loader-of-a-test")
    thread.start()
    thread.join()
    assert only.cuda.host.counts()["cudaEventDestroy"] == before + 1
    assert not only.cuda.host.has_context(0)


def test_all_works_though_the_first_device_is_another_process_s(array: gzarr.Array, only: WatchedDevice) -> None:
    host = only.cuda.host
    host.occupy(0)
    assert len(list(gzarr.Loader(array, batch_size=16))) == 4
    found: list[Any] = []

    def read() -> None:
        # A thread of the caller's, which has no context yet: its device is the first one.
        result = array.read(decode="cuda")
        with only:
            found.append(result.get())

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], DATA)
    assert not host.has_context(0)
