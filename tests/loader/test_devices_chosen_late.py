"""Page-locked batches where a process chooses its device after the loader was made, as ranks do."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from support import devices as tested

import gzarr
from gzarr.loader import Loader
from gzarr.plugins import integration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DATA = np.arange(600 * 64, dtype="i4").reshape(600, 64)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    """The first of two devices, the thread's; operations are held back for seconds unless somebody waits for them."""
    with tested.on_host() as made:
        made.cuda.host.seed(1, late_ms=2000)
        yield made
        cupy.cuda.Device(0).use()


@pytest.fixture
def array(tmp_path: Path, device: WatchedDevice) -> gzarr.Array:
    return gzarr.create_array(tmp_path / "a.zarr", data=DATA, chunks=(8, 64), device="cpu")


def loader_of(array: gzarr.Array, **options: Any) -> Loader:
    return Loader({"x": array}, batch_size=8, buffer_bytes=20_000, pin_memory=True, **options)


def copied(batch: Any) -> tuple[list[int], Any, Any]:
    """Enqueue a copy of a batch to the current device, on its current stream, as ``tensor.to("cuda")`` does."""
    array = np.asarray(batch["x"])
    stream = cupy.cuda.get_current_stream()
    target = cupy.empty(array.shape, array.dtype)
    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(target.data.ptr, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream.ptr)
    return batch.origins[:, 0].tolist(), target, stream


def check(copies: list[tuple[list[int], Any, Any]]) -> None:
    assert len(copies) == len(DATA) // 8
    for rows, target, stream in copies:
        with target.device:
            np.testing.assert_array_equal(target.get(stream=stream), DATA[rows])


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("way", ["as it is", "pickled"])
def test_copies_to_the_current_device_are_waited_for(
    way: str, prefetch: int, array: gzarr.Array, device: WatchedDevice
) -> None:
    loader = loader_of(array, prefetch=prefetch)
    given = pickle.dumps(loader)
    cupy.cuda.Device(1).use()
    host = device.cuda.host
    host.forget_contexts()
    if way == "pickled":
        loader = pickle.loads(given)
    copies = []
    for batch in loader:
        copies.append(copied(batch))
        del batch
    check(copies)
    # A rank takes no memory of the first rank's GPU.
    assert host.has_context(1)
    assert not host.has_context(0)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("what", ["devices", "streams"])
def test_each_batch_may_be_copied_to_another_device_or_on_another_stream(
    what: str, prefetch: int, array: gzarr.Array
) -> None:
    """A loop gives a batch up after the next one was asked for, so only after the current stream has changed."""
    ordinals = [0, 1, 1] if what == "devices" else [0, 0, 0]
    streams = []
    for ordinal in ordinals:
        with cupy.cuda.Device(ordinal):
            streams.append(cupy.cuda.Stream(non_blocking=True))
    copies = []
    try:
        for i, batch in enumerate(loader_of(array, prefetch=prefetch)):
            cupy.cuda.Device(ordinals[i % 3]).use()
            streams[i % 3].use()
            copies.append(copied(batch))
        check(copies)
    finally:
        for ordinal in ordinals:
            with cupy.cuda.Device(ordinal):
                cupy.cuda.Stream.null.use()


def test_with_tensors_it_is_the_device_of_pytorch(
    array: gzarr.Array, device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    with cupy.cuda.Device(1):
        stream = cupy.cuda.Stream(non_blocking=True)

    class OfTorch:
        """PyTorch's current stream, on the device that ``torch.cuda.set_device`` has chosen."""

        device_index, cuda_stream = 1, stream.ptr

    asked = []

    def current(name: str) -> OfTorch:
        asked.append(name)
        return OfTorch()

    monkeypatch.setattr(integration("torch"), "current_stream", current)
    copies = []
    for batch in loader_of(array, like="torch"):
        with cupy.cuda.Device(1), stream:
            copies.append(copied(batch))
        del batch
    check(copies)
    # Of PyTorch's devices, too, the current one.
    assert set(asked) == {"cuda"}
