"""Arrays of other libraries in a device's memory, by DLPack: results that they take, and values that they hand over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import devices
from support.cuda_on_host import dlpack

import gzarr

DATA = np.random.default_rng(3).integers(-99, 99, (40, 50)).astype("i4")


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("decode", ["cuda", "cpu"])
def test_results_are_taken_on_any_stream(version: Any, decode: Any) -> None:
    """The consumer's stream waits for the read, not the host."""
    store: dict[str, bytes] = {}
    gzarr.create_array(store, data=DATA, chunks=(20, 25), codecs="zstd", device="cpu")
    with devices.on_host() as device:
        array = gzarr.open_array(store, device="cuda")
        with device:
            read_on, taken_on = device.stream(), device.stream()
        with read_on:
            result = array.read(decode=decode)
            for stream in (taken_on.ptr, dlpack.LEGACY):
                taken = dlpack.imported(result, stream, max_version=version)
                np.testing.assert_array_equal(taken.read(stream), DATA)
                assert taken.pointer == result.data.ptr
                taken.release()
        del result, taken, read_on, taken_on


@pytest.mark.parametrize("newest", [(0, 8), (1, 0)])
def test_values_are_waited_for(newest: tuple[int, int]) -> None:
    """They are made on a stream of the other library's, which runs late."""
    import cupy

    with devices.on_host() as device:
        array = gzarr.create_array({}, DATA.shape, "i4", chunks=(20, 25), codecs="zstd", device="cuda")
        pinned = device.pinned(DATA.nbytes)
        pinned[:] = DATA.T.copy().reshape(-1).view("u1")
        with device:
            late = device.stream()
            values = cupy.zeros(DATA.T.shape, "i4")
            late.wait_event(device.current_stream().record(device.event()))
            device.copy_in(values, pinned.view("i4").reshape(DATA.T.shape), late)
        offered = dlpack.Offered(values.T, late.ptr, newest=newest)
        device.counts.clear()
        array[...] = offered
        assert device.counts["copy_out"]
        np.testing.assert_array_equal(gzarr.open_array(array.store, device="cpu")[...], DATA)
        array[:20] = dlpack.Offered(values.T[20:], late.ptr, newest=newest)
        np.testing.assert_array_equal(array[...].get(), np.concatenate([DATA[20:], DATA[20:]]))
        assert offered.exported == offered.deleted == 1
        del late, values, pinned, offered
