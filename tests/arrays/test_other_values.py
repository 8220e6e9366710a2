"""Images of gzarr.ome and sparse matrices, given where arrays are expected: an error says what to pass instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse

import gzarr
import gzarr.ome
import gzarr.sparse
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = np.arange(64, dtype="u2").reshape(8, 8)


WAYS: dict[str, Callable[[Any], Any]] = {
    "array": gzarr.array,
    "with dtype": lambda value: gzarr.create_array({}, data=value, dtype="u2"),
    "with dtype=str": lambda value: gzarr.create_array({}, data=value, dtype=str),
    "in a group": lambda value: gzarr.create_group({}).__setitem__("x", value),
    "save": lambda value: gzarr.save({}, value),
    "save by name": lambda value: gzarr.save({}, a=value, b=DATA),
    "assignment": lambda value: gzarr.zeros((8, 8), dtype="u2").__setitem__(..., value),
    "append": lambda value: gzarr.zeros((0, 8), dtype="u2").append(value),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_image_is_no_array(way: str) -> None:
    image = gzarr.ome.create({}, DATA, axes="yx")
    with pytest.raises(ArgumentError, match=r"an Image is no array; .* image\.level\(0\)"):
        WAYS[way](image)
    with pytest.raises(ArgumentError, match=r"an Image is no array"):
        WAYS[way]([image, image])


@pytest.mark.parametrize("way", WAYS)
def test_what_holds_images_is_no_array(way: str) -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create_plate(store, rows="A", columns="1")
    gzarr.ome.create_field(store, "A", 1, DATA, axes="yx")
    gzarr.ome.create_labels(store, "nuclei", DATA, path="A/1/0")
    plate = gzarr.ome.open(store)
    well = plate["A/1"]
    labels = well[0].labels
    for given, kind, example in (
        (plate, "Plate", r"plate\['A/1'\]\[0\]\.level\(0\)"),
        (well, "Well", r"well\[0\]\.level\(0\)"),
        (labels, "Labels", r"labels\['nuclei'\]\.level\(0\)"),
    ):
        with pytest.raises(ArgumentError, match=f"a {kind} is no array; .* {example}"):
            WAYS[way](given)
        with pytest.raises(ArgumentError, match=f"a {kind} is no array"):
            WAYS[way]([given])
    for array in (plate["A/1"][0].level(0), well[0].level(0), labels["nuclei"].level(0), well[0].levels[0]):
        np.testing.assert_array_equal(gzarr.array(array)[...], DATA)


@pytest.mark.parametrize("way", WAYS)
def test_a_sparse_matrix_is_no_array(way: str) -> None:
    theirs = scipy.sparse.csr_array(DATA)
    for value in (theirs, scipy.sparse.csr_matrix(DATA), gzarr.sparse.create({}, theirs)):
        with pytest.raises(ArgumentError, match=r"is sparse, and no array; .* toarray\(\) or to_dense\(\)"):
            WAYS[way](value)


def test_what_the_message_says_works() -> None:
    image = gzarr.ome.create({}, DATA, axes="yx")
    np.testing.assert_array_equal(gzarr.array(image.level(0))[...], DATA)
    theirs = scipy.sparse.csr_array(DATA)
    ours = gzarr.sparse.create({}, theirs)
    for dense in (theirs.toarray(), ours.to_dense()):
        np.testing.assert_array_equal(gzarr.array(dense)[...], DATA)
    for value in (image, theirs, ours):
        like = gzarr.zeros_like(value)
        assert (like.shape, like.dtype) == (DATA.shape, DATA.dtype)


class Quantity:
    """What gzarr asks of a quantity of pint: dask's methods are there, without a graph, and raise an error."""

    def __init__(self, magnitude: Any) -> None:
        self.magnitude = np.asarray(magnitude)
        self.shape, self.dtype = self.magnitude.shape, self.magnitude.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.magnitude, dtype)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return NotImplemented

    def __getitem__(self, key: Any) -> Quantity:
        return Quantity(self.magnitude[key])

    def __dask_graph__(self) -> Any:
        return None

    @property
    def compute(self) -> Any:
        def only_with_dask() -> Any:
            raise AttributeError("only implemented for objects of dask array")

        return only_with_dask


def test_a_quantity_is_its_magnitude() -> None:
    lengths = Quantity(np.arange(4.0))
    a = gzarr.array(lengths, device="cpu")
    np.testing.assert_array_equal(a[...], lengths.magnitude)
    a[1:] = Quantity([5.0, 6.0, 7.0])
    assert a[...].tolist() == [0, 5, 6, 7]
