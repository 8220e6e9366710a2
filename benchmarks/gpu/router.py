"""Question about the router: its constants on this machine; see ``gpu.questions``."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from gzarr.engines.cuda.device_protocol import Device

#: Waves of one small chunk each, which decodes in no time.
WAVES = 200
CHUNK_NBYTES = 4096


def router_rates(device: Device, seconds: float) -> dict[str, Any]:
    """The router's constants by its own measurement on this machine, beside its assumptions.

    ``wave_seconds`` is the fixed cost of a wave in a read: its ``launch_seconds``.
    """
    from gzarr.engines.cuda import calibration, router

    deadline = time.monotonic() + seconds
    return {
        "measured": _plain(calibration.measure(device, frames=calibration.SMALL_FRAMES)),
        "assumed": _plain(router.default_rates()),
        "wave_seconds": _wave_seconds(device, deadline),
    }


def _plain(rates: Any) -> dict[str, Any]:
    values = {field.name: getattr(rates, field.name) for field in dataclasses.fields(rates)}
    return {name: dict(value) if hasattr(value, "items") else value for name, value in values.items()}


def _wave_seconds(device: Device, deadline: float) -> float:
    """Return the least time of a wave of one chunk, in a read of many such waves."""
    import gzarr
    from gzarr.engines.cuda import wave_plan

    little = {"name": "bytes", "configuration": {"endian": "little"}}
    zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
    store = gzarr.MemoryStore()
    values = np.zeros(WAVES * CHUNK_NBYTES, np.uint8)
    gzarr.create_array(store, data=values, chunks=CHUNK_NBYTES, codecs=[little, zstd], device="cpu")
    array = gzarr.open_array(store, device=device.name)
    best = float("inf")
    with mock.patch.multiple(wave_plan, WAVE_BYTES=1, WAVE_FRAMES=1):
        # The first one compiles.
        for i in range(10):
            begin = time.perf_counter()
            array.read(decode="cuda")
            if i:
                best = min(best, (time.perf_counter() - begin) / WAVES)
            if i and time.monotonic() > deadline:
                break
    return best
