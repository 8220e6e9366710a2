"""Page-locked batches, which a device copies later than they are given out."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices as tested
from support.forks import in_child

import gzarr
from gzarr.engines.cuda import devices
from gzarr.loader import Loader, Rows, Windows
from gzarr.loader.pinned import PinnedResults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

# Small buffers, to have many blocks.
pytestmark = pytest.mark.filterwarnings("ignore:shuffling is coarse")

DATA = np.arange(600 * 64, dtype="i4").reshape(600, 64)


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with tested.on_host() as made:
        # Operations are held back for seconds unless somebody waits for them.
        made.cuda.host.seed(1, late_ms=2000)
        yield made


def steps() -> dict[str, gzarr.Array]:
    """Return rows of 256 bytes, and one number for each."""
    return {
        "x": gzarr.create_array(gzarr.MemoryStore(), data=DATA, chunks=(8, 64), device="cpu"),
        "y": gzarr.create_array(gzarr.MemoryStore(), data=DATA[:, 0].copy(), chunks=50, device="cpu"),
    }


def begun() -> PinnedResults:
    """Return page-locked memory for copies on CuPy's current stream."""
    made = PinnedResults()
    made.begin(None)
    return made


def copied(device: WatchedDevice, array: Any, stream: Any) -> Any:
    """Enqueue a copy of an array to the device, from page-locked memory."""
    from cupy.cuda import runtime

    for last in (0, array.nbytes - 1):
        assert runtime.pointerGetAttributes(array.ctypes.data + last).type == runtime.memoryTypeHost
    memory = device.allocate(array.nbytes, stream)
    device.copy_in(memory, array.reshape(-1).view("u1"), stream)
    return memory


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("sampler", [Rows(), Windows(0, {"x": (0, 3)})], ids=["rows", "windows"])
def test_memory_is_not_used_again_before_its_copies(device: WatchedDevice, sampler: Any, prefetch: int) -> None:
    loader = Loader(
        steps(), sampler, batch_size=8, prefetch=prefetch, buffer_bytes=20_000, drop_last=False, pin_memory=True
    )
    with device:
        for _ in range(2):
            results, addresses = [], set()
            for batch in loader:
                arrays = batch["x"] if isinstance(sampler, Windows) else batch
                addresses.add(arrays["x"].ctypes.data)
                stream = device.current_stream()
                # They run when something waits for them.
                copies = [copied(device, arrays[name], stream) for name in "xy"]
                results.append((batch.origins[:, 0].tolist(), copies, [arrays[name].shape for name in "xy"]))
                del batch, arrays
            device.current_stream().synchronize()
            # Most batches have the memory of others.
            assert len(addresses) < len(results) / 2
            count = 0
            for origins, memories, shapes in results:
                x, y = (
                    device.to_host(memory, device.current_stream()).view("i4").reshape(shape)
                    for memory, shape in zip(memories, shapes, strict=True)
                )
                for i, origin in enumerate(origins):
                    wanted = DATA[origin : origin + 4] if x.ndim == 3 else DATA[origin]
                    assert np.array_equal(x[i], wanted)
                    assert np.array_equal(y[i], wanted[..., 0])
                    count += 1
            assert count == loader.explain().samples


@pytest.mark.usefixtures("device")
def test_batches_may_be_kept() -> None:
    loader = Loader(steps(), batch_size=8, buffer_bytes=20_000, pin_memory=True)
    kept = [(batch.origins[:, 0], batch["x"]) for batch in loader]
    assert len(kept) == 75
    for origins, found in kept:
        assert np.array_equal(found, DATA[origins])


def test_the_next_epoch_uses_the_memory_again(device: WatchedDevice) -> None:
    loader = Loader(steps(), batch_size=8, prefetch=0, buffer_bytes=0, pin_memory=True)
    before = {batch["x"].ctypes.data for batch in loader}
    assert {batch["x"].ctypes.data for batch in loader} <= before
    with device:
        assert copied(device, next(iter(loader))["y"], device.current_stream()) is not None


@pytest.mark.usefixtures("device")
def test_another_process_has_its_own_memory() -> None:
    loader = Loader(steps(), batch_size=8, pin_memory=True)
    # Its threads end with it, and not when it is collected.
    with contextlib.closing(iter(loader)) as batches:
        next(batches)
        mine = loader._pinned
        assert mine is not None
        assert mine._kept
        assert not pickle.loads(pickle.dumps(mine))._kept


@pytest.mark.usefixtures("device")
def test_text_is_given_out_as_it_is() -> None:
    texts = gzarr.create_array(gzarr.MemoryStore(), shape=20, dtype="string", chunks=4, device="cpu")
    texts[...] = np.array([f"step {i}" for i in range(20)], object)
    found = [text for batch in Loader(texts, batch_size=4, pin_memory=True) for text in batch["data"].tolist()]
    assert sorted(found) == sorted(f"step {i}" for i in range(20))


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "missing_parts", lambda: ["CuPy is not installed (pip install …)"])
    with pytest.raises(
        gzarr.DeviceError,
        match=r"pin_memory=True is for copies to a CUDA device, and none .*CuPy.*; or leave pin_memory out",
    ):
        Loader(steps(), pin_memory=True)


@pytest.mark.usefixtures("device")
def test_batches_on_a_device_are_not_in_host_memory() -> None:
    array = gzarr.create_array(gzarr.MemoryStore(), data=DATA, device="cuda")
    with pytest.raises(gzarr.ArgumentError, match="pin_memory=True is for batches in host memory"):
        Loader(array, pin_memory=True)


def test_a_stream_that_is_refused_costs_no_memory(device: WatchedDevice) -> None:
    results = begun()
    array = results.empty((1 << 20,), np.dtype("u1"))
    address = array.ctypes.data
    del array
    for _ in range(2):
        with pytest.raises(gzarr.ArgumentError, match="stream"):
            results.copied_on("no stream")
    results.copied_on(None)
    assert results.empty((1 << 20,), np.dtype("u1")).ctypes.data == address


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_leaves_it_to_its_parent(device: WatchedDevice) -> None:
    dropped = begun()
    # Also what is left of results that are gone.
    orphan = dropped.empty((16,), np.dtype("u1"))
    del dropped
    results = begun()
    waits, batch = (results.empty((1 << 21,), np.dtype("u1")) for _ in range(2))
    del waits
    results.copied_on(None)
    kept = {"results": results, "batch": batch, "orphan": orphan}
    del results, batch, orphan

    def drop() -> None:
        told: list[Any] = []
        sys.unraisablehook = told.append
        with pytest.raises(gzarr.DeviceError):
            kept["results"].empty((1 << 21,), np.dtype("u1"))
        for name in list(kept):
            del kept[name]
            gc.collect()
        assert not told, told

    assert in_child(drop) == 0
    assert kept["results"].empty((1 << 21,), np.dtype("u1")).size == 1 << 21
