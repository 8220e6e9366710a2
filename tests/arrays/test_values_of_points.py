"""Values for points that are no NumPy arrays; and values and indices that there is no memory for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

ROWS, COLUMNS = np.array([[0, 1], [2, 3]]), np.array([[3, 2], [1, 0]])
FLAT = np.array([5, 6, 7, 8], "i4")


class Indexed:
    """An array that is read by indexing it and has no other method, like variables of netCDF4."""

    def __init__(self, elements: Any) -> None:
        self._elements, self.shape, self.dtype = elements, elements.shape, elements.dtype

    def __getitem__(self, item: Any) -> Any:
        return self._elements[item]


class TooLarge:
    """An array that does not fit into memory."""

    shape, dtype, ndim = (4,), np.dtype("i4"), 1

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise MemoryError


def array() -> gzarr.Array:
    return gzarr.create_array({}, (4, 4), "i4", chunks=(3, 2), device="cpu")


@pytest.mark.parametrize("kind", ["numpy", "indexed", "zarr", "list", "hdf5"])
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_values_for_coordinates(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    values = FLAT.reshape(shape)
    expected = np.zeros((4, 4), "i4")
    expected[ROWS, COLUMNS] = FLAT.reshape(2, 2)
    found = array()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        kinds = {
            "numpy": values,
            "indexed": Indexed(values),
            "zarr": gzarr.array(values, device="cpu"),
            "list": values.tolist(),
            "hdf5": file.create_dataset("x", data=values),
        }
        found.set_coordinate_selection((ROWS, COLUMNS), kinds[kind])
    np.testing.assert_array_equal(found[...], expected)


def test_what_does_not_fit_into_memory_says_so() -> None:
    for write in (
        lambda: array().set_coordinate_selection((ROWS, COLUMNS), TooLarge()),
        lambda: array().write((), TooLarge()),
        lambda: gzarr.create_array({}, data=TooLarge(), device="cpu"),
    ):
        with pytest.raises(gzarr.ArgumentError, match="not enough memory for the elements of a value of type TooLarge"):
            write()
    for read in (lambda: array().oindex[TooLarge()], lambda: array().vindex[TooLarge(), 0]):
        with pytest.raises(gzarr.SelectionError, match=r"in host memory \(there is not enough: MemoryError\)"):
            read()


def test_conversions_that_do_not_fit_into_memory() -> None:
    # More than any machine addresses.
    found = gzarr.zeros(10**6, dtype="i1", device="cpu")
    with pytest.raises(gzarr.SelectionError, match=r"shape \(1000000,\), \|S2000000000, takes 2\d+ bytes.* in parts"):
        found.read(dtype="S2000000000")
