"""``out=`` arrays that have one place in memory for several elements."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from support import devices

import gzarr

DATA = np.arange(20 * 16, dtype="f4").reshape(20, 16)


def strided(shape: tuple[int, ...], strides: tuple[int, ...], on_device: bool) -> Any:
    if not on_device:
        return np.lib.stride_tricks.as_strided(np.zeros(400, "f4"), shape, strides)
    import cupy

    return cupy.lib.stride_tricks.as_strided(cupy.zeros(400, "f4"), shape, strides)


@pytest.mark.parametrize("kind", ["cpu", "on-host"])
def test_refused_unless_it_makes_no_difference(kind: str) -> None:
    with nullcontext() if kind == "cpu" else devices.on_host():
        on_device = kind != "cpu"
        array = gzarr.create_array({}, data=DATA, chunks=(8, 8), device="cuda" if on_device else "cpu")
        for strides, axis in (((0, 4), 0), ((4, 0), 1)):
            out = strided((20, 16), strides, on_device)
            with pytest.raises(gzarr.OutputError, match=f"one place in memory for all elements along axis {axis}"):
                array.read(out=out)
            with pytest.raises(gzarr.OutputError, match=f"one place in memory for all elements along axis {axis}"):
                gzarr.map_blocks(lambda x: x, array, out=out)
            del out
        for selection, strides in ((np.s_[3:4], (0, 4)), (np.s_[3:3], (0, 0)), (np.s_[:], (4, 80))):
            out = strided(DATA[selection].shape, strides, on_device)
            array.read(selection, out=out)
            found = out.get() if on_device else out
            np.testing.assert_array_equal(found, DATA[selection])
            del out


def test_blocks_are_not_written_to_an_array_that_is_read_only() -> None:
    array = gzarr.create_array({}, data=DATA, chunks=(8, 8), device="cpu")
    called: list[None] = []
    with pytest.raises(gzarr.OutputError, match="out= is read-only"):
        gzarr.map_blocks(lambda x: called.append(None) or x, array, out=np.broadcast_to(np.float32(0), DATA.shape))
    assert not called
