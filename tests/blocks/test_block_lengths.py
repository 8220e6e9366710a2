"""Lengths of blocks by position and by names of axes, and what ``map_blocks`` takes as an array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.blocks import Output

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

    from gzarr.blocks import Block

SHAPE, CHUNKS, NAMES = (20, 30, 40), (5, 6, 8), ("z", "y", "x")
DATA = np.random.default_rng(1).integers(0, 1000, SHAPE).astype("u2")


def stored(**options: Any) -> gzarr.Array:
    options = {"chunks": CHUNKS, "dimension_names": NAMES, **options}
    return gzarr.create_array({}, data=DATA, device="cpu", **options)


def shapes_of(*inputs: Any, function: Any = None, **options: Any) -> set[tuple[int, ...]]:
    """Return the shapes of all blocks but the last ones along an axis."""
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}

    def told(*blocks: Any, block_info: Block) -> Any:
        seen[block_info.index] = block_info.shape
        return blocks[0] if function is None else function(blocks[0])

    gzarr.map_blocks(told, *inputs, **options)
    last = np.max(list(seen), axis=0)
    return {shape for index, shape in seen.items() if all((index < last) | (last == 0))}


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        (-1, SHAPE),
        (None, SHAPE),
        ((5, -1, None), (5, 30, 40)),
        ((-1, 6, 8), (20, 6, 8)),
        ({"z": 5, "x": 16, "y": -1}, (5, 30, 16)),
        ({"x": None, "y": 12, "z": 10}, (10, 12, 40)),
        ({"z": 5}, (5, 30, 40)),
        ({}, SHAPE),
        (("auto", 6, 8), (20, 6, 8)),
        ([np.int64(5), "auto", "auto"], (5, 30, 40)),
    ],
    ids=str,
)
def test_lengths(block: Any, shape: tuple[int, ...]) -> None:
    assert shapes_of(stored(), block=block) == {shape}


def test_axes_that_are_not_named_are_as_long_as_memory_allows() -> None:
    (shape,) = shapes_of(stored(), block={"z": 10}, budget_bytes=64 << 10, overlap=False)
    # Two parts of 2 bytes an element, an eighth of the budget.
    assert shape[0] == 10
    assert (8 << 10) / 8 < math.prod(shape) * 4 <= 8 << 10
    assert not any(length % chunk for length, chunk in zip(shape[1:], CHUNKS[1:], strict=True) if length < 30)


def test_names_are_those_of_the_output_or_of_any_input() -> None:
    plain = stored(dimension_names=None)
    assert shapes_of(plain, stored(), block={"z": 5}) == {(5, 30, 40)}
    row = gzarr.create_array({}, data=DATA[0, 0], chunks=8, dimension_names=["x"], device="cpu")
    assert shapes_of(plain, row, block={"x": 8}) == {(20, 30, 8)}
    top = {"function": lambda x: x.max(axis=0), "drop_axis": 0}
    assert shapes_of(stored(), block={"x": 8, "y": 12}, **top) == {(12, 8)}
    out = gzarr.create_array({}, shape=SHAPE, chunks=CHUNKS, dtype="u2", dimension_names=list("abc"), device="cpu")
    assert shapes_of(stored(), out=out, block={"a": 5, "y": 12, "c": -1}) == {(5, 12, 40)}
    assert shapes_of(stored(), out=Output({}, chunks=CHUNKS), block={"z": 10}) == {(10, 30, 40)}
    for wrong, known in (({"t": 5}, "the axes are z, y, x"), ({0: 5}, "the axes are z, y, x")):
        with pytest.raises(gzarr.ArgumentError, match=f"there is no axis .*{known}"):
            gzarr.map_blocks(np.negative, stored(), block=wrong)
    with pytest.raises(gzarr.ArgumentError, match="there is no axis 'z'; the axes are y, x"):
        gzarr.map_blocks(lambda x: x.max(axis=0), stored(), block={"z": 5}, drop_axis=0)
    with pytest.raises(gzarr.ArgumentError, match=r"along axis 0, blocks must be multiples of 5 elements, such as 10"):
        gzarr.map_blocks(np.negative, stored(), out={}, block={"z": 7})
    with pytest.raises(gzarr.ArgumentError, match="block must be lengths of at least 1"):
        gzarr.map_blocks(np.negative, stored(), block={"z": 0})


# -- what is taken as an array


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_all_kinds_of_inputs(tmp_path: Path, zarr_format: Any) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=CHUNKS, zarr_format=zarr_format, device="cpu")
    inputs = {
        "gzarr": gzarr.open_array(tmp_path / "a", device="cpu"),
        "path": tmp_path / "a",
        "string": str(tmp_path / "a"),
        "URL": (tmp_path / "a").as_uri(),
        "zarr-python": zarr.open_array(tmp_path / "a", mode="r"),
        "NumPy": DATA,
        "xarray": xr.DataArray(DATA, dims=NAMES),
        "variable": xr.Variable(NAMES, DATA),
    }
    for kind, given in inputs.items():
        found = gzarr.map_blocks(lambda x: x + 1, given, device="cpu", block=(5, -1, -1))
        np.testing.assert_array_equal(found, DATA + 1, err_msg=kind)
    total = gzarr.map_blocks(lambda *x: sum(x), *inputs.values(), out={}, dtype="u8", device="cpu")
    np.testing.assert_array_equal(total[...], DATA.astype("u8") * len(inputs))
    assert shapes_of(inputs["xarray"], block={"z": 5}) == shapes_of(inputs["variable"], block={"z": 5})


def test_they_are_opened_on_the_device_of_the_others(tmp_path: Path, device: TestedDevice) -> None:
    gzarr.create_array(tmp_path / "a", data=DATA, chunks=CHUNKS)

    def both(x: Any, y: Any) -> Any:
        return device.array(device.to_numpy(x) + device.to_numpy(y))

    found = gzarr.map_blocks(both, DATA, device.open(tmp_path / "a"))
    np.testing.assert_array_equal(device.to_numpy(found), 2 * DATA)
    found = gzarr.map_blocks(both, tmp_path / "a", DATA, device=device.name)
    np.testing.assert_array_equal(device.to_numpy(found), 2 * DATA)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_image_is_its_level_0(tmp_path: Path, version: Any) -> None:
    image = gzarr.ome.create(tmp_path / "a", data=DATA, axes="zyx", levels=2, version=version, chunks=CHUNKS)
    found = gzarr.map_blocks(np.negative, image, device="cpu")
    np.testing.assert_array_equal(found, np.negative(DATA))
    assert shapes_of(image, block={"z": 5, "x": 8}, device="cpu") == {(5, 30, 8)}


def test_coordinates_of_xarray_are_inputs() -> None:
    days = xr.date_range("2000-01-01", periods=9, freq="D")
    data = xr.DataArray(np.arange(9.0), dims="time", coords={"time": days})
    out = gzarr.map_blocks(lambda values, time: values + time.astype("i8") % 7, data, data.time, block=4)
    np.testing.assert_array_equal(out[...], data.values + days.values.astype("i8") % 7)
