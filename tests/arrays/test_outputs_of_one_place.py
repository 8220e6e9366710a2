"""``out=`` arrays that have one place in memory for several elements."""

from __future__ import annotations

import contextlib
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
            assert distinct, (shape, strides, dtype)
    assert refused > 200


@pytest.mark.parametrize(("shape", "strides"), [((2, 2), (6, 4)), ((2, 2, 2), (12, 8, 4))])
def test_elements_that_share_memory_in_other_ways(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    array = gzarr.create_array({}, data=np.ones(shape, "i4"), device="cpu")
    out = np.ndarray(shape, "i4", np.zeros(100, "i4").data, 0, strides)
    with pytest.raises(gzarr.OutputError, match="share memory, like windows that overlap"):
        array.read(out=out)
    np.testing.assert_array_equal(out, 0)


def test_a_large_output_is_checked_at_once() -> None:
    # Steps that fit between each other, of arrays that NumPy would look at for long.
    for shape, strides in (
        ((10**6,) * 3, (4, 12, 20)),
        ((10**3,) * 6, (7 * 4, 11 * 4, 13 * 4, 17 * 4, 19 * 4, 23 * 4)),
    ):
        out = np.lib.stride_tricks.as_strided(np.zeros(1, "i4"), shape, strides)
        with contextlib.suppress(gzarr.OutputError):
            check_elements(out)


def test_outputs_of_several_results_that_share_memory() -> None:
    array = gzarr.create_array({}, data=DATA, chunks=(8, 8), device="cpu")
    rows = [np.s_[2], np.s_[5], np.s_[7]]
    memory = np.zeros(64, "f4")
    for wrong in ([memory[:16], memory[20:36], memory[:16]], [memory[:16], memory[40:56], memory[15:31]]):
        with pytest.raises(gzarr.OutputError, match=r"out\[0\] and out\[2\] share memory"):
            array.read_many(rows, out=wrong)
        with pytest.raises(gzarr.OutputError, match=r"out\[0\] and out\[2\] share memory"):
            array.read_windows([(2, 0), (5, 0), (7, 0)], (1, 16), out=[one.reshape(1, 1, 16) for one in wrong])
    none = memory[8:8]
    with pytest.raises(gzarr.OutputError, match=r"out\[0\] and out\[2\] share memory"):
        array.read_many([np.s_[2], np.s_[5, :0], np.s_[7]], out=[memory[:16], none, memory[15:31]])
    np.testing.assert_array_equal(memory, 0)
    columns = np.zeros((16, 3), "f4")
    array.read_many(rows, out=[columns[:, 2], columns[:, 0], columns[::-1, 1]])
    np.testing.assert_array_equal(columns, np.stack([DATA[5], DATA[7][::-1], DATA[2]], axis=1))


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
