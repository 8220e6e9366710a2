"""Uncompressed chunks larger than one request: all kinds of boxes, against NumPy and zarr-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.engines.cpu import native

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = {
    "slabs of planes": ((40, 130, 140), (32, 128, 130), "<u2"),
    "planes larger than a slab": ((5, 700, 600), (4, 640, 512), ">f4"),
    "rows larger than a slab": ((3, 300_000), (2, 250_000), "<u2"),
    "one row": ((700_000,), (650_000,), "<f8"),
    "many dimensions": ((3, 8, 5, 6, 90, 40), (2, 7, 5, 4, 80, 33), "|u1"),
    "elements": ((30, 40, 500), (25, 40, 400), [("a", "<i2"), ("b", "<f8")]),
}
RANDOM = np.random.default_rng(11)


def _data(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    raw = RANDOM.integers(0, 120, (*shape, kind.itemsize), dtype="u1")
    return raw.view(kind).reshape(shape)


def _selections(shape: tuple[int, ...]) -> list[Any]:
    """Return boxes with arbitrary ends and steps, including thin ones."""
    found: list[Any] = [..., (..., 3), (..., slice(1, None, 3)), (shape[0] // 2,), slice(1, None, 2)]
    for _ in range(8):
        ends = [sorted(RANDOM.integers(0, n + 1, 2).tolist()) for n in shape]
        found.append(tuple(slice(a, max(b, a + 1), int(RANDOM.integers(1, 4))) for a, b in ends))
    if len(shape) > 1:
        found += [(slice(None), shape[1] // 3), (slice(None), slice(2, 5)), (slice(None), slice(None, None, 7))]
    return found


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_box(name: str, order: Any, tmp_path: Path) -> None:
    shape, chunks, dtype = SHAPES[name]
    data = _data(shape, dtype)
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=shape,
        chunks=chunks,
        dtype=data.dtype,
        compressors=None,
        zarr_format=2,
        order=order,
        fill_value=None,
    )
    array[...] = data
    read = gzarr.open_array(tmp_path / "a", device="cpu")
    for selection in _selections(shape):
        np.testing.assert_array_equal(read[selection], data[selection], err_msg=str(selection))
    # Into rows that are not next to each other, and in another order.
    out = np.zeros((*reversed(shape), 2), read.dtype)[..., 1].transpose()
    read.read(..., out=out)
    np.testing.assert_array_equal(out, data)
    if data.dtype.names:
        np.testing.assert_array_equal(read["b"][1:], data["b"][1:])
    index = [np.sort(RANDOM.integers(0, n, min(n, 9))) for n in shape]
    np.testing.assert_array_equal(read.oindex[tuple(index)], data[np.ix_(*index)])
    points = tuple(RANDOM.integers(0, n, 50) for n in shape)
    np.testing.assert_array_equal(read.vindex[points], data[points])


def test_only_what_is_wanted_is_read(tmp_path: Path) -> None:
    data = _data((64, 512, 512), "<u2")
    zarr.create_array(str(tmp_path / "a"), data=data, chunks=data.shape, compressors=None)
    array = gzarr.open_array(tmp_path / "a", device="cpu")

    def read(selection: Any) -> float:
        native.take_stats()
        np.testing.assert_array_equal(array[selection], data[selection])
        return native.take_stats()["encoded_bytes"]

    assert read(...) == data.nbytes
    assert read((slice(None), 7)) == 64 * 512 * 2
    assert read((slice(None), slice(6, 8))) == 64 * 2 * 512 * 2
    assert read((slice(3, 60, 8), slice(6, 8), slice(0, 1))) == 8 * (512 * 2 + 2)
    # A column is in every row: what lies between is read along.
    assert read((slice(0, 5), slice(None), 0)) <= 5 * 512 * 512 * 2


@pytest.mark.parametrize("cut", [1, 3_000_000])
def test_a_file_that_is_cut_short(cut: int, tmp_path: Path) -> None:
    data = _data((64, 256, 128), "<u2")
    zarr.create_array(str(tmp_path / "a"), data=data, chunks=(63, 256, 128), compressors=None)
    file = tmp_path / "a" / "c" / "0" / "0" / "0"
    file.write_bytes(file.read_bytes()[:-cut])
    array = gzarr.open_array(tmp_path / "a", device="cpu")
    with pytest.raises(gzarr.ChunkError, match=r"c/0/0/0"):
        array[...]
    np.testing.assert_array_equal(array[63:], data[63:])
