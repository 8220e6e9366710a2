"""The default stream of a thread (``cupy.cuda.Stream.ptds``), which other threads of gzarr's have to wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from support import devices as tested

import gzarr
from gzarr.loader import Loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

DATA = np.arange(1 << 14, dtype="f4").reshape(64, 256)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with tested.on_host() as made:
        yield made


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function in another thread, whose default stream is current there."""
    found: list[Any] = []

    def run() -> None:
        with cupy.cuda.Stream.ptds:
            found.append(function())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (result,) = found
    return result


def test_another_thread_waits_for_it(device: WatchedDevice) -> None:
    with device, cupy.cuda.Stream.ptds:
        mine = device.current_stream()
        with device.held_back(mine) as gate:
            event = elsewhere(lambda: mine.record(device.event()))
            assert not event.done
            gate.open_after(0.05)
            elsewhere(mine.synchronize)
            assert gate.passed
        event.synchronize()


def test_it_waits_for_what_another_thread_says(device: WatchedDevice) -> None:
    with device, cupy.cuda.Stream.ptds:
        mine, other = device.current_stream(), device.stream()
        with device.held_back(other) as gate:
            event = other.record(device.event())
            elsewhere(lambda: mine.wait_event(event))
            after = mine.record(device.event())
            assert not after.done
            gate.open()
            after.synchronize()
            assert gate.passed
    del other


@pytest.mark.parametrize("dtype", [None, "f4"])
def test_new_arrays_of_map_blocks_are_of_a_stream_that_waits_for_it(dtype: Any, device: WatchedDevice) -> None:
    """The caller may drop them while its work still reads them: who has their memory next runs after that."""
    array = gzarr.create_array({}, data=DATA, chunks=(16, 256), device="cpu")._on_device(device.name)
    with device, cupy.cuda.Stream.ptds as own:
        result = gzarr.map_blocks(lambda block: block * 2, array, dtype=dtype)
        np.testing.assert_array_equal(result.get(stream=own), DATA * 2)
        address = result.data.ptr
        del result
        # CuPy's pool keeps memory for the stream that it was allocated on.
        with cupy.cuda.Stream.null:
            assert cupy.empty(DATA.shape, "f4").data.ptr == address


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_another_thread_may_end_the_batches(prefetch: int, device: WatchedDevice) -> None:
    device.cuda.host.seed(1, late_ms=2000)
    array = gzarr.create_array({}, data=DATA, chunks=(8, 256), device="cpu")._on_device(device.name)
    loader = Loader({"x": array}, batch_size=8, prefetch=prefetch, buffer_bytes=20_000, copy=False)
    found = []
    with device, cupy.cuda.Stream.ptds:
        mine = device.current_stream()
        for _ in range(10):
            batches = iter(loader)
            batch = next(batches)
            target = device.pinned(batch["x"].nbytes)
            device.copy_out(target, batch["x"], mine)
            found.append((batch.origins[:, 0], target))
            elsewhere(batches.close)
            batch.clear()
            del batch, batches
        mine.synchronize()
        for rows, target in found:
            np.testing.assert_array_equal(target.view("f4").reshape(-1, 256), DATA[rows])
