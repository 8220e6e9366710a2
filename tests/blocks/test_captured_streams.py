"""``map_blocks`` and ``label`` while CuPy's current stream is being captured: refused, with the capture as it was."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices

import gzarr
from gzarr.blocks.labelling import label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.watched_device import WatchedDevice

DATA = np.arange(64 * 64, dtype="f4").reshape(64, 64)


@pytest.fixture
def on_host() -> Iterator[WatchedDevice]:
    with devices.on_host() as made:
        yield made


@contextmanager
def captured(device: WatchedDevice) -> Iterator[None]:
    import cupy

    runtime = cupy.cuda.runtime
    with device, cupy.cuda.Stream(non_blocking=True) as stream:
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeRelaxed)
        try:
            yield
        finally:
            # It raises if the capture was ended.
            runtime.streamEndCapture(stream.ptr)


CALLS: dict[str, Callable[[gzarr.Array], Any]] = {
    "new": lambda array: gzarr.map_blocks(lambda x: x + 1, array, block=(16, 64)),
    "out": lambda array: gzarr.map_blocks(lambda x: x + 1, array, block=(16, 64), out={}),
    "reduce": lambda array: gzarr.map_blocks(lambda x: x.sum(), array, block=(16, 64), reduce=lambda x, y: x + y),
    "label": lambda array: label(array, function=lambda x: x > 3, block=(16, 64)),
}


@pytest.mark.parametrize("call", CALLS)
def test_refused(on_host: WatchedDevice, call: str) -> None:
    array = gzarr.create_array({}, data=DATA, chunks=(16, 64), device="cuda")
    with captured(on_host), pytest.raises(gzarr.ArgumentError, match="captured into a CUDA graph"):
        CALLS[call](array)


def test_an_output_is_there_once_something_waits_for_it(on_host: WatchedDevice) -> None:
    """Without an event, the next block tries again."""
    from gzarr.blocks.outputs import NewOutput

    output = NewOutput((4, 4), None, "cuda:0")
    on_host.cuda.host.fail("cudaEventCreateWithFlags", code=2, how="fail")
    with pytest.raises(MemoryError):
        output.array((4, 4), np.dtype("f4"))
    on_host.cuda.host.clear_faults()
    assert output.array((4, 4), np.dtype("f4")).shape == (4, 4)
    assert output._before is not None
