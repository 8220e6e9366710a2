"""``out=`` arrays that have one place in memory for several elements."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from support import devices

import gzarr
from gzarr.arrays.outputs import check_elements

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


def distinct_places(out: Any) -> bool:
    """Return whether no byte of an array is in two elements; each byte is looked at."""
    at = np.zeros(1, np.int64)
    for n, stride in zip((*out.shape, out.itemsize), (*out.strides, 1), strict=True):
        at = np.add.outer(at, np.arange(n) * stride).ravel()
    return len(np.unique(at)) == len(at)


def test_places_that_overlap_along_two_axes() -> None:
    rng = random.Random(0)
    base, refused = np.zeros(4096, "u1"), 0
    for _ in range(1500):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        strides = tuple(rng.choice((1, -1)) * rng.choice((1, 2, 4, 6, 8, 12, 16, 20, 40, 100)) for _ in shape)
        dtype = rng.choice(("u1", "f4"))
        whole = np.ndarray(shape, dtype, base.data, 2048, strides)
        distinct = distinct_places(whole)
        try:
            check_elements(whole)
        except gzarr.OutputError:
            refused += 1
            assert not distinct, (shape, strides, dtype)
        else:
            # Nothing is said of what only three axes, or elements that are cut, have in common.
            assert distinct or len(shape) > 2 or dtype == "f4", (shape, strides, dtype)
    assert refused > 200


@pytest.mark.parametrize(("strides", "axes"), [((4, 4), "0 and 1"), ((16, 4), "0 and 1"), ((-4, 4), "0 and 1")])
def test_windows_that_overlap(strides: tuple[int, int], axes: str) -> None:
    array = gzarr.create_array({}, data=DATA, chunks=(8, 8), device="cpu")
    out = np.ndarray((20, 16), "f4", np.zeros(400, "f4").data, 19 * 4 if strides[0] < 0 else 0, strides)
    with pytest.raises(gzarr.OutputError, match=f"one place in memory for several elements along axes {axes}"):
        array.read(out=out)
    np.testing.assert_array_equal(out, 0)


def test_blocks_are_not_written_to_an_array_that_is_read_only() -> None:
    array = gzarr.create_array({}, data=DATA, chunks=(8, 8), device="cpu")
    called: list[None] = []
    with pytest.raises(gzarr.OutputError, match="out= is read-only"):
        gzarr.map_blocks(lambda x: called.append(None) or x, array, out=np.broadcast_to(np.float32(0), DATA.shape))
    assert not called
