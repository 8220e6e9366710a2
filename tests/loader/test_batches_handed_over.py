"""Batches whose transform or handing over fails: no batch is lost, and no late work writes over another one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices

import gzarr
from gzarr import Loader
from gzarr.engines.cuda import handing_over
from gzarr.loader import Windows
from gzarr.loader.memory import memory_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

DATA = np.arange(96 * 64, dtype="f4").reshape(96, 64)
#: ``cudaErrorMemoryAllocation``.
OUT_OF_MEMORY = 2


@pytest.fixture
def on_host() -> Iterator[WatchedDevice]:
    with devices.on_host() as made:
        yield made


def stored() -> gzarr.Array:
    return gzarr.create_array({}, data=DATA, chunks=(16, 64), device="cuda")


def rows(batches: Any, name: str = "data") -> list[list[float]]:
    """Return the rows that batches have, in order, after checking their elements."""
    found = []
    for batch in batches:
        values = batch[name].get()
        first = values[:, 0] / 64
        np.testing.assert_array_equal(values, DATA[first.astype(int)])
        found.append(first.tolist())
    return found


WHOLE = [list(range(begin, begin + 16)) for begin in range(0, 96, 16)]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_transform_that_fails_has_changed_its_batch_before_others_use_the_memory(
    on_host: WatchedDevice, prefetch: int, copy: bool
) -> None:
    array = stored()

    def failing(batch: Any) -> Any:
        batch["data"] *= -1
        raise ValueError("no label")

    for _ in range(3):
        batches = iter(Loader(array, batch_size=16, transform=failing, prefetch=prefetch, copy=copy))
        with pytest.raises(ValueError, match="no label"):
            next(batches)
        batches.close()
        assert rows(Loader(array, batch_size=16, shuffle=False, prefetch=prefetch)) == WHOLE


def test_arrays_that_a_transform_takes_out_are_changed_before_others_use_the_memory(on_host: WatchedDevice) -> None:
    """The loader's other thread allocates at any moment: here, as soon as the array is gone."""
    memory: Any = memory_of("cuda:0")
    source = on_host.empty((16, 64), np.dtype("f4"), memory.stream)
    source.set(DATA[:16], stream=memory.stream.cupy)
    others = []

    def new() -> Any:
        made = memory.results.empty((16, 64), np.dtype("f4"))
        memory.results.copy(made, source)
        return made

    def taking(batch: Any) -> Any:
        taken = batch.pop("x")
        taken *= -1
        del taken
        others.append(new())
        with on_host:
            memory.stream.record(on_host.event()).synchronize()
        return batch

    with on_host.held_back(memory._finishing):
        memory.transformed(taking, {"x": new()}, memory.mark())
    np.testing.assert_array_equal(others[0].get(stream=memory.stream.cupy), DATA[:16])
    memory.close()


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("transform", [None, lambda batch: batch], ids=["as-read", "transformed"])
def test_events_that_cannot_be_made(on_host: WatchedDevice, transform: Any, nth: int) -> None:
    """Whatever fails, the next epoch is right."""
    array = stored()
    sampler = Windows(0, {"data": (0, 0)}, static={"static": gzarr.create_array({}, data=DATA[0], device="cuda")})
    loader = Loader({"data": array}, sampler, batch_size=16, shuffle=False, transform=transform)
    on_host.cuda.host.fail("cudaEventCreateWithFlags", nth, code=OUT_OF_MEMORY, how="fail")
    with contextlib.suppress(MemoryError):
        for _ in loader:
            pass
    on_host.cuda.host.clear_faults()
    assert rows(Loader(array, batch_size=16, shuffle=False)) == WHOLE


@pytest.mark.parametrize("fails", ["cudaEventCreateWithFlags", "both"])
def test_what_streams_cannot_wait_for_the_host_does(on_host: WatchedDevice, fails: str) -> None:
    unusable = len(handing_over._unusable)
    with on_host as device:
        own, consumer = device.stream(), device.stream()
        source = device.empty((64,), np.dtype("f4"), own)
        own.synchronize()
        host = on_host.cuda.host
        host.fail("cudaEventCreateWithFlags", code=OUT_OF_MEMORY, how="fail")
        if fails == "both":
            host.fail("cudaStreamSynchronize", code=1, how="fail")
            with pytest.raises(gzarr.DeviceError):
                handing_over.hand_over(device, {"x": source}, (own,), consumer)
        else:
            copy = handing_over.hand_over(device, {"x": source}, (own,), consumer)["x"]
            assert on_host.bytes_now(copy) == on_host.bytes_now(source)
        host.clear_faults()
        consumer.synchronize()
    assert len(handing_over._unusable) - unusable == (fails == "both")
    del handing_over._unusable[unusable:]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("copy", [True, False])
def test_a_stream_that_is_being_captured_loses_no_batch(on_host: WatchedDevice, copy: bool, prefetch: int) -> None:
    import cupy

    runtime = cupy.cuda.runtime
    loader = Loader(stored(), batch_size=16, shuffle=False, prefetch=prefetch, copy=copy)
    batches = iter(loader)
    found = rows([next(batches)])
    state = loader.state_dict()
    with on_host, cupy.cuda.Stream(non_blocking=True) as stream:
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeRelaxed)
        for _ in range(2):
            with pytest.raises(gzarr.ArgumentError, match="captured into a CUDA graph"):
                next(batches)
        # The capture is none the worse for it.
        runtime.streamEndCapture(stream.ptr)
    assert loader.state_dict() == state
    assert loader.stats().batches == 1
    assert found + rows(batches) == WHOLE


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_lack_of_memory_loses_no_batch(
    on_host: WatchedDevice, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = stored()
    loader = Loader({"x": array, "y": array}, batch_size=16, shuffle=False, prefetch=prefetch)
    batches = iter(loader)
    found = rows([next(batches)], "y")
    state = loader.state_dict()
    copied, calls = handing_over._copied, []

    def counted(device: Any, value: Any, *others: Any) -> Any:
        calls.append(value)
        if value is calls[0].get("y"):
            raise MemoryError("no room for the second array")
        return copied(device, value, *others)

    with monkeypatch.context() as patched:
        patched.setattr(handing_over, "_copied", counted)
        with pytest.raises(MemoryError):
            next(batches)
    del calls[:]
    assert loader.state_dict() == state
    assert found + rows(batches, "y") == WHOLE


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("error", [MemoryError, gzarr.ArgumentError])
def test_what_cannot_be_converted_is_no_batch_that_was_given_out(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], prefetch: int
) -> None:
    """After a lack of memory, the batch comes again. What no library can hold has its error, as a damaged batch has."""
    pytest.importorskip("torch")
    array = gzarr.create_array({}, data=DATA, chunks=(16, 64), device="cpu")
    loader = Loader(array, batch_size=16, shuffle=False, prefetch=prefetch, like="torch")
    batches = iter(loader)
    found = [int(next(batches)["data"][0, 0]) // 64]
    state = loader.state_dict()

    def refused(value: Any) -> Any:
        raise error("refused")

    with monkeypatch.context() as patched:
        patched.setattr(batches, "_convert", refused)
        with pytest.raises(error, match="refused"):
            next(batches)
    assert loader.stats().batches == 1
    kept = error is MemoryError
    assert (loader.state_dict() == state) == kept
    found += [int(batch["data"][0, 0]) // 64 for batch in batches]
    assert found == ([0, 16, 32, 48, 64, 80] if kept else [0, 32, 48, 64, 80])
