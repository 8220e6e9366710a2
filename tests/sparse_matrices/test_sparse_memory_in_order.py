"""Entries on a device that is not the thread's, in memory that CUDA frees in the order of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices as tested

import gzarr
from gzarr.arrays.outputs import DeviceResults
from gzarr.engines.cuda import devices
from gzarr.engines.cuda.cupy_device import CupyDevice
from gzarr.sparse.chosen import Columns
from gzarr.sparse.device import DeviceMemory
from gzarr.sparse.entries import DenseTarget, Entries
from gzarr.sparse.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

cupy = pytest.importorskip("cupy")

DENSE = np.where(np.random.default_rng(0).random((60, 40)) < 0.3, 1.5, 0).astype("f4")
COLUMNS = np.array([3, 1, 30, 7])
F4 = np.dtype("f4")


@pytest.fixture
def memory() -> Iterator[DeviceMemory]:
    """The second of two devices, with its default stream; the first one is the thread's."""
    # CuPy's memory of this kind cannot be watched.
    with tested.on_host() as watched, devices.use(CupyDevice):
        before = cupy.cuda.get_allocator()
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
        # Operations are held back for seconds unless somebody waits for them.
        watched.cuda.host.seed(1, late_ms=2000)
        try:
            with devices.get_device("cuda:1") as device:
                results = DeviceResults(device, device.current_stream())
            yield DeviceMemory(results)
        finally:
            gzarr.release_memory()
            cupy.cuda.set_allocator(before)


def _dense(memory: DeviceMemory, entries: Entries) -> Any:
    with memory._device:
        result = cupy.empty(DENSE.shape, F4)
    memory.densify(replace(entries, ascend=True), Wanted(F4), DenseTarget.of(result, memory.address))
    return result


def _columns(memory: DeviceMemory, entries: Entries) -> Any:
    wanted = Wanted(F4, Columns.of(COLUMNS, 40))
    return memory.taken(replace(entries, columns=wanted.columns), wanted)


WAYS: dict[str, tuple[Callable[[DeviceMemory, Entries], Any], Any]] = {
    "dense": (_dense, DENSE),
    "columns": (_columns, DENSE[:, COLUMNS][DENSE[:, COLUMNS] != 0]),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_kernel_reads_is_freed_after_it(way: str, memory: DeviceMemory) -> None:
    made, expected = WAYS[way]
    offsets = np.concatenate([[0], np.cumsum((DENSE != 0).sum(axis=1))])
    with memory._device:
        indices, values = cupy.asarray(np.nonzero(DENSE)[1].astype("i4")), cupy.asarray(DENSE[DENSE != 0])
    entries = Entries(offsets, indices, values)
    result = made(memory, entries)
    assert cupy.cuda.Device().id == 0
    with memory._device:
        found = result.values if isinstance(result, Entries) else result
        np.testing.assert_array_equal(found.get(), expected)
        # Of the default stream, as all that is made there.
        del found, result, entries, indices, values
