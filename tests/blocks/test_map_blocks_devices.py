"""``map_blocks`` on each device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.blocks import Output

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

    from gzarr.blocks import Block

SHAPE, CHUNKS = (37, 29, 41), (8, 7, 9)
BOUNDARIES: list[Any] = ["symmetric", "reflect", "edge", "wrap", 7, -3]


def elements() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 1000, SHAPE).astype("i4")


def stored(data: np.ndarray[Any, Any]) -> gzarr.Array:
    return gzarr.create_array({}, data=data, chunks=CHUNKS, device="cpu")


def empty() -> gzarr.Array:
    return gzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="i4", device="cpu")


def test_devices(device: TestedDevice) -> None:
    data = elements()

    def double(x: Any) -> Any:
        return device.array(device.to_numpy(x) * 2)

    for boundary in BOUNDARIES:
        out = empty()
        gzarr.map_blocks(
            double, stored(data), out=out, halo=(2, 1, 0), boundary=boundary, block=(16, 14, 18), device=device.name
        )
        np.testing.assert_array_equal(device.to_numpy(out[...]), data * 2)
    same = gzarr.map_blocks(lambda x: x, stored(data), halo=(2, 1, 0), block=CHUNKS, device=device.name)
    np.testing.assert_array_equal(device.to_numpy(same), data)
    given = device.empty(SHAPE, "i4")
    with pytest.raises(gzarr.OutputError, match="out= of int32"):
        gzarr.map_blocks(lambda x: device.array(device.to_numpy(x) / 2), stored(data), out=given, device=device.name)
    in_memory = gzarr.map_blocks(double, stored(data), block=CHUNKS, device=device.name)
    np.testing.assert_array_equal(device.to_numpy(in_memory), data * 2)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_halos_on_devices(device: TestedDevice, boundary: Any) -> None:
    data, windows = elements(), {}

    def record(x: Any, block_info: Block) -> Any:
        windows[block_info.index] = device.to_numpy(x).copy()
        return x

    out = empty()
    gzarr.map_blocks(
        record, stored(data), out=out, halo=(2, 1, 0), boundary=boundary, block=(16, 14, 18), device=device.name
    )
    np.testing.assert_array_equal(device.to_numpy(out[...]), data)
    constant = {"mode": "constant", "constant_values": boundary}
    options: dict[str, Any] = {"mode": boundary} if isinstance(boundary, str) else constant
    whole = np.pad(data, ((2, 2), (1, 1), (0, 0)), **options)
    assert len(windows) == 3 * 3 * 3
    for (i, j, k), window in windows.items():
        part = whole[16 * i : 16 * i + 20, 14 * j : 14 * j + 16, 18 * k : 18 * k + 18]
        np.testing.assert_array_equal(window, part)


def test_outputs_of_their_own_on_devices(device: TestedDevice) -> None:
    data = elements()

    def three(x: Any) -> list[Any]:
        block = device.to_numpy(x)
        return [device.array(part) for part in (block, block[::2, ::2, ::2].copy(), block.max(axis=0))]

    whole = empty()
    outputs = [whole, Output({}, scale=0.5, dtype="u2"), Output(device.empty(SHAPE[1:], "i4"), drop_axis=0)]
    _, half, highest = gzarr.map_blocks(three, stored(data), out=outputs, device=device.name)
    np.testing.assert_array_equal(device.to_numpy(whole[...]), data)
    np.testing.assert_array_equal(device.to_numpy(half[...]), data[::2, ::2, ::2])
    np.testing.assert_array_equal(device.to_numpy(highest), data.max(axis=0))
    assert half.dtype == np.uint16


def test_created_outputs_have_the_data_type_of_the_results(device: TestedDevice, tmp_path: Path) -> None:
    data = elements()

    def halves(x: Any) -> Any:
        return device.array(device.to_numpy(x) / 2)

    out = gzarr.map_blocks(halves, stored(data), out=tmp_path / "a", block=CHUNKS, halo=1, device=device.name)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(device.to_numpy(out[...]), data / 2)

    def uneven(x: Any, block_info: Block) -> Any:
        return halves(x) if block_info.number != 4 else x

    with pytest.raises(gzarr.ArgumentError, match=r"of int32 for block .* and of float64 for the first"):
        gzarr.map_blocks(uneven, stored(data), out={}, block=CHUNKS, device=device.name)


def same(x: Any) -> Any:
    return x


def test_results_come_from_the_devices_of_others(device: TestedDevice, tmp_path: Path) -> None:
    """Whoever computes the first block gives its results in host memory."""
    data = elements()
    source = gzarr.create_array(tmp_path / "a", data=data, chunks=CHUNKS, device="cpu")
    with ThreadPoolExecutor(1) as others:
        out = gzarr.map_blocks(same, source, out=tmp_path / "b", block=CHUNKS, device=device.name, client=others)
    np.testing.assert_array_equal(device.to_numpy(out[...]), data)


def test_an_output_that_was_given_is_returned(device: TestedDevice, tmp_path: Path) -> None:
    """On the device that it was given with, whatever that of the blocks is."""
    data = elements()
    for out in (empty(), gzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="i4", device=device.name)):
        for name in ("cpu", device.name):
            found = gzarr.map_blocks(same, stored(data), out=out, device=name)
            assert found is out
            one, other = gzarr.map_blocks(lambda x: (x, x), stored(data), out=[out, None], device=name)
            assert one is out
            np.testing.assert_array_equal(device.to_numpy(other), data)
        found = gzarr.map_blocks(same, stored(data), out=Output(out), device=device.name)
        assert found is out
        np.testing.assert_array_equal(device.to_numpy(out[...]), data)
    made = gzarr.map_blocks(same, stored(data), out=tmp_path / "a", block=CHUNKS, device=device.name)
    assert made.device == device.name


def test_results_that_are_not_on_the_device(device: TestedDevice) -> None:
    data = elements()

    def to_host(x: Any) -> Any:
        return device.to_numpy(x)

    out = empty()
    gzarr.map_blocks(to_host, stored(data), out=out, block=CHUNKS, device=device.name)
    np.testing.assert_array_equal(out[...], data)
    options: dict[str, Any] = {"block": CHUNKS, "device": device.name}
    if not device.is_cuda:
        np.testing.assert_array_equal(gzarr.map_blocks(to_host, stored(data), **options), data)
        return
    for given, called in ((None, "the new array"), (device.empty(SHAPE, "i4"), "out=")):
        wanted = rf"{called} of int32 .* numpy.ndarray, which to_host returned: return an array of the device"
        with pytest.raises(gzarr.OutputError, match=wanted) as caught:
            gzarr.map_blocks(to_host, stored(data), out=given, **options)
        assert "block (" in "".join(caught.value.__notes__)


def test_memory_takes_results_of_the_same_kind(device: TestedDevice) -> None:
    data = elements()
    given = device.empty(SHAPE, "i2")
    for out in (given, Output(dtype="i2")):
        found = gzarr.map_blocks(same, stored(data), out=out, block=CHUNKS, device=device.name)
        assert found.dtype == np.int16
        np.testing.assert_array_equal(device.to_numpy(found), data)
    with pytest.raises(gzarr.OutputError, match=r"the new array of uint8 cannot take results of int32, of same"):
        gzarr.map_blocks(same, stored(data), dtype="u1", block=CHUNKS, device=device.name)


def test_memory_that_functions_use_again(device: TestedDevice) -> None:
    data = np.random.default_rng(3).normal(size=(12, 8))
    source = gzarr.create_array({}, data=data, chunks=4, device="cpu")
    buffers: dict[Any, Any] = {}

    def double(x: Any) -> Any:
        buffer = buffers.setdefault(x.shape, device.empty(x.shape, "f8"))
        buffer[...] = x * 2
        return buffer

    options: dict[str, Any] = {"block": 4, "overlap": False, "device": device.name}
    every = gzarr.map_blocks(lambda x: [double(x)], source, reduce=lambda a, b: a + b, **options)
    blocks = np.block([[device.to_numpy(every[2 * i + j]) for j in range(2)] for i in range(3)])
    np.testing.assert_array_equal(blocks, 2 * data)
    blended = gzarr.map_blocks(double, source, halo=2, blend="hann", **options)
    np.testing.assert_allclose(device.to_numpy(blended), 2 * data, rtol=1e-15)
