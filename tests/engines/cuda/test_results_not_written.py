"""Frames for which nvCOMP writes neither size nor status, in memory that holds those of frames that succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.device_writes import on, on_host

import gzarr
from gzarr.codecs.lz4 import Lz4Codec
from gzarr.codecs.zstd import ZstdCodec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

BEFORE = np.arange(64 * 1024, dtype="i4").reshape(64, 1024)
AFTER = BEFORE + 7
CHUNK_BYTES = 8 * 1024 * 4


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedDevice]:
    import cupy

    with on_host() as made:
        pinned = type(made).pinned

        def succeeded(self: WatchedDevice, nbytes: int) -> Any:
            """Return memory that holds the sizes of frames, or statuses of which each other one is of success."""
            memory = pinned(self, nbytes)
            memory[: nbytes // 8 * 8].view("i8")[:] = CHUNK_BYTES
            return memory

        monkeypatch.setattr(type(made), "pinned", succeeded)
        watched = cupy.cuda.get_allocator()
        # The watched pool poisons what comes back; a real one gives it out as it is.
        cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
        try:
            yield made
        finally:
            made.cuda.nvcomp.reset()
            gzarr.release_memory()
            cupy.cuda.set_allocator(watched)


def fail_silently(device: WatchedDevice) -> None:
    """Have two frames of each batch fail from now on."""
    device.cuda.nvcomp.silent = True
    device.refuse = lambda algorithm, frame: frame in (2, 5)


@pytest.mark.parametrize("compressor", ["zstd", "lz4"])
def test_frames_without_a_status_were_not_decoded(compressor: str, device: WatchedDevice) -> None:
    codec = {"zstd": ZstdCodec, "lz4": Lz4Codec}[compressor]()
    first, second = (
        gzarr.create_array({}, data=values, chunks=(8, 1024), compressors=codec, device="cpu")
        for values in (BEFORE, AFTER)
    )
    assert (gzarr.open_array(first.store, device="cuda").read(decode="cuda").get() == BEFORE).all()
    fail_silently(device)
    assert (gzarr.open_array(second.store, device="cuda").read(decode="cuda").get() == AFTER).all()
    assert device.counts[f"frames {compressor}"] == 16


def test_frames_without_a_status_were_not_encoded(device: WatchedDevice) -> None:
    array = gzarr.create_array(
        {}, shape=BEFORE.shape, dtype="i4", chunks=(8, 1024), compressors=Lz4Codec(), device="cuda"
    )
    array[...] = on(device, BEFORE)
    fail_silently(device)
    array[...] = on(device, AFTER)
    assert device.counts["encoded frames lz4"] == 16
    assert (gzarr.open_array(array.store, device="cpu")[...] == AFTER).all()
