"""Short-lived copies to a device: their page-locked memory is used again, and never before it has been copied from."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices
from support.sparse_groups import dense, stored

import gzarr
from gzarr.arrays.outputs import DeviceResults
from gzarr.blocks.memory import BlockMemory
from gzarr.engines.cuda import uploads
from gzarr.engines.cuda.uploads import BLOCK_BYTES, MAX_BLOCKS, uploaded
from gzarr.loader import Patches
from gzarr.loader.merge_memory import merge_memory
from gzarr.windows import recoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

VOLUME = np.random.default_rng(5).random((24, 24, 24)).astype("f4")
TURNED = np.array([[0.9, 0.1, 0], [-0.1, 0.9, 0], [0, 0, 1.0]])


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with devices.on_host() as made, made:
        yield made


def kept(device: WatchedDevice) -> int:
    return len(uploads._kept.get(device.name, []))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1000, dtype="i2").reshape(10, 100)[::-1, ::3],
        np.array(2.5),
        np.empty((0, 3), "u1"),
        np.array([True, False]),
        np.arange(BLOCK_BYTES // 4 + 1, dtype="u4"),
        np.arange(3 * BLOCK_BYTES // 8, dtype="f8").reshape(3, -1).T,
    ],
    ids=["strides", "no dimensions", "nothing", "bools", "a little more than a block", "three blocks, transposed"],
)
def test_what_is_copied(values: np.ndarray[Any, Any], device: WatchedDevice) -> None:
    result = uploaded(device, values, device.current_stream())
    assert (result.shape, result.dtype) == (values.shape, values.dtype)
    np.testing.assert_array_equal(result.get(), values)


def test_memory_is_used_again_when_it_has_been_copied_from(device: WatchedDevice) -> None:
    """The stream runs late: what is copied is what was given, although all of it went through the same blocks."""
    stream = device.current_stream()
    values = np.zeros(BLOCK_BYTES // 2, "u1")
    results = []
    with device.held_back(stream) as gate:
        for i in range(MAX_BLOCKS):
            values[:] = i
            results.append(uploaded(device, values, stream))
        assert kept(device) == MAX_BLOCKS
        assert not gate.passed
        # All are in use: the host waits for the oldest.
        gate.open_after(0.05)
        for i in range(MAX_BLOCKS, 3 * MAX_BLOCKS):
            values[:] = i
            results.append(uploaded(device, values, stream))
            assert gate.passed
    assert kept(device) == MAX_BLOCKS
    assert [sorted(set(result.get().tolist())) for result in results] == [[i] for i in range(3 * MAX_BLOCKS)]


def test_one_stream_does_not_wait_for_another(device: WatchedDevice) -> None:
    stream, other = device.current_stream(), device.stream()
    with device.held_back(stream) as gate:
        late = uploaded(device, np.arange(9), stream)
        for i in range(3):
            result = uploaded(device, np.full(9, i), other)
            other.synchronize()
            assert set(result.get(stream=other.cupy).tolist()) == {i}
        assert kept(device) == 2
        assert not gate.passed
    np.testing.assert_array_equal(late.get(), np.arange(9))


@pytest.mark.parametrize("call", ["copy", "record"])
def test_a_copy_that_fails_loses_no_memory(call: str, device: WatchedDevice) -> None:
    stream = device.current_stream()
    uploaded(device, np.arange(9), stream)
    stream.synchronize()
    device.cuda.host.fail(call, code=400)
    with pytest.raises(gzarr.DeviceError):
        uploaded(device, np.arange(9), stream)
    # CUDA's error refers to what raised it, in circles.
    gc.collect()
    assert kept(device) == 1
    np.testing.assert_array_equal(uploaded(device, np.arange(9), stream).get(), np.arange(9))


def test_memory_is_released(device: WatchedDevice) -> None:
    result = uploaded(device, np.arange(9), device.current_stream())
    assert device.held > 0
    gzarr.release_memory()
    assert device.held == 0
    np.testing.assert_array_equal(result.get(), np.arange(9))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_none_of_it(device: WatchedDevice) -> None:
    uploaded(device, np.arange(9), device.current_stream())
    with uploads._lock:
        child = os.fork()
        if not child:
            os._exit(int(bool(uploads._kept) or not uploads._lock.acquire(timeout=5)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept(device) == 1


def _sparse(device: WatchedDevice) -> Callable[[int], Any]:
    matrix = gzarr.sparse.open(stored(dense((90, 40))), path="X", device="cuda")
    return lambda i: matrix.to_dense(np.arange(i, i + 30), np.arange(0, 40, 3)).get()


def _pose(device: WatchedDevice) -> Callable[[int], Any]:
    array = gzarr.create_array(gzarr.MemoryStore(), data=VOLUME, chunks=(12, 12, 12), device="cuda")
    options: Any = {"shape": (9, 9, 9), "interpolation": "cubic"}
    return lambda i: gzarr.read_affine(array, TURNED, offset=(i, 3, 1), **options).get()


def _poses(device: WatchedDevice) -> Callable[[int], Any]:
    array = gzarr.create_array(gzarr.MemoryStore(), data=VOLUME, chunks=(12, 12, 12), device="cuda")
    loader = gzarr.Loader(array, Patches((8, 8, 8), jitter=True, rotate=True), batch_size=8, seed=1)
    return lambda i: list(loader)


def _constant_box(device: WatchedDevice) -> Callable[[int], Any]:
    memory = BlockMemory(device.name)
    target = memory.empty((5, 4), np.dtype("f4"))

    def run(i: int) -> None:
        memory._fill(target[1:3], i)
        memory.finish()

    return run


def _merged(device: WatchedDevice) -> Callable[[int], Any]:
    memory = merge_memory(device.name)

    def run(i: int) -> None:
        with memory.using() as place:
            place.copied(VOLUME)
        memory.close()

    return run


def _recoded(device: WatchedDevice) -> Callable[[int], Any]:
    memory = DeviceResults(device, device.current_stream())
    return lambda i: recoded._in(memory, VOLUME).get()


@pytest.mark.parametrize("prepared", [_sparse, _pose, _poses, _constant_box, _merged, _recoded])
def test_nothing_is_allocated_once_that_was_done(
    prepared: Callable[[WatchedDevice], Callable[[int], Any]], device: WatchedDevice
) -> None:
    """To free page-locked memory would wait for everything on the device."""
    run = prepared(device)
    for i in range(3):
        run(i)
    before = device.cuda.host.counts()
    for i in range(10):
        run(i)
    after = device.cuda.host.counts()
    # A loader that is ahead by more batches than before may need another block. None is freed.
    assert after["cudaHostAlloc"] - before["cudaHostAlloc"] <= (3 if prepared is _poses else 0)
    assert after["cudaFreeHost"] == before["cudaFreeHost"]
