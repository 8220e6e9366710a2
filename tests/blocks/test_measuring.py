"""Tables of objects, compared with scikit-image's of the whole array."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import skimage.measure

import gzarr
from gzarr.blocks import measure
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

LARGE = float(np.finfo("f8").max)
PROPERTIES = ["label", "area", "bbox", "centroid"]
OF_IMAGES = [f"intensity_{name}" for name in ("mean", "std", "min", "max")]


def scene(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return skimage.measure.label(np.random.default_rng(seed).random(shape) < 0.45).astype("u4")


def compare(table: Any, labels: np.ndarray, image: np.ndarray | None, spacing: Any) -> None:
    wanted = PROPERTIES + (OF_IMAGES if image is not None else [])
    expected = pd.DataFrame(skimage.measure.regionprops_table(labels, image, wanted, spacing=spacing))
    assert list(table.columns) == list(expected.columns)
    exact = [
        "label",
        *(name for name in table.columns if name.startswith(("bbox", "intensity_m")) and "mean" not in name),
    ]
    pd.testing.assert_frame_equal(table[exact], expected[exact], check_dtype=False, check_exact=True)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "spacing"), [((50, 61), (1.0, 1.0)), ((20, 31, 22), (2.0, 0.5, 0.25))], ids=str)
@pytest.mark.parametrize("block", [7, -1])
def test_the_table_is_that_of_scikit_image(shape: tuple[int, ...], spacing: tuple[float, ...], block: int) -> None:
    labels = scene(shape)
    rng = np.random.default_rng(1)
    compare(measure(labels, spacing=spacing, block=block, like="pandas"), labels, None, spacing)
    for image in (rng.integers(0, 60_000, shape, "u2"), rng.normal(1e6, 1, shape), rng.integers(-99, 99, shape, "i1")):
        table = measure(labels, image, spacing=spacing, block=block, like="pandas")
        compare(table, labels, image, spacing)
    channels = rng.integers(0, 255, (3, *shape), "u1")
    table = measure(labels, channels, spacing=spacing, block=block, like="pandas")
    compare(table, labels, np.moveaxis(channels, 0, -1), spacing)
    several = measure(labels, channels[0], channels[1:], spacing=spacing, block=block, like="pandas")
    pd.testing.assert_frame_equal(several, table)


def test_records_of_stored_arrays(tmp_path: Path) -> None:
    labels = scene((40, 40))
    gzarr.array(labels, chunks=16, store=tmp_path / "labels", device="cpu")
    gzarr.array(labels.astype("f4"), chunks=10, store=tmp_path / "image", device="cpu")
    table = measure(tmp_path / "labels", tmp_path / "image")
    assert table.dtype["label"] == np.uint32
    np.testing.assert_array_equal(table["label"], np.arange(1, labels.max() + 1))
    np.testing.assert_array_equal(table["intensity_mean"], table["label"])
    np.testing.assert_array_equal(table["intensity_std"], 0)


def test_labels_may_be_sparse_negative_and_large() -> None:
    labels = np.array([[-5, -5, 0, 1 << 60], [7, -5, 0, 1 << 60]])
    table = measure(labels, block=1, background=7)
    assert table["label"].tolist() == [-5, 0, 1 << 60]
    assert table["area"].tolist() == [3, 2, 2]


def test_nan_is_the_result_where_an_object_has_one() -> None:
    image = np.array([1.0, np.nan, 3.0, 4.0])
    table = measure(np.array([1, 1, 2, 2]), image, block=1)
    assert np.isnan([table[name][0] for name in OF_IMAGES]).all()
    assert [table[name][1] for name in OF_IMAGES] == [3.5, 0.5, 3, 4]


@pytest.mark.parametrize("block", [1, 2, -1])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "values", [[np.inf, 1, 2], [-np.inf, 1], [1, np.inf], [np.inf], [np.inf] * 3, [-np.inf, 2, np.inf],
               [np.inf, -np.inf], [np.inf, np.nan], [np.nan, 1, -np.inf]], ids=str
)  # fmt: skip
def test_infinite_elements_in_any_order(values: list[float], dtype: str, block: int) -> None:
    for order in itertools.permutations(values):
        labels, image = np.ones(len(order), "u1"), np.array(order, dtype)
        # Beside an object that has none.
        labels, image = np.append(labels, [2, 2]), np.append(image, np.array([1, 3], dtype))
        table = measure(labels, image, block=block)
        with np.errstate(invalid="ignore"):
            wanted = [getattr(image[:-2], name)() for name in ("mean", "std", "min", "max")]
        np.testing.assert_array_equal([table[name][0] for name in OF_IMAGES], wanted)
        assert [table[name][1] for name in OF_IMAGES] == [2, 1, 1, 3]


@pytest.mark.parametrize("block", [1, 2, 3, -1])
@pytest.mark.parametrize(
    "values",
    [[-LARGE, 1, 2, 3, 4], [LARGE, -LARGE, 5, -LARGE], [LARGE, -LARGE / 2, -LARGE / 2], [0, 1e200, 3],
     [5e307, *[-5e307] * 4]],
    ids=["fill value", "both ends", "halves", "squares", "four"],
)  # fmt: skip
def test_numbers_whose_differences_add_up_to_more_than_numbers_can_be(values: list[float], block: int) -> None:
    orders = list(itertools.permutations(values))
    images = np.array([(*order, 1.0, 3.0) for order in orders[:: max(len(orders) // 24, 1)]])
    labels = np.array([*[5] * len(values), 9, 9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = measure(
            np.broadcast_to(labels, images.shape).copy() + np.arange(len(images))[:, None] * 10, images, block=block
        )
    objects = images[:, :-2]
    with np.errstate(over="ignore"):
        means = np.ldexp(np.ldexp(objects, -64).sum(axis=1) / len(values), 64)
        np.testing.assert_allclose(table["intensity_mean"][::2], means, rtol=1e-15, atol=1e-15 * np.abs(values).max())
        np.testing.assert_array_equal(table["intensity_std"][::2], objects.std(axis=1))
    assert (table["intensity_std"][::2] == np.inf).all()
    assert [set(table[name][1::2].tolist()) for name in OF_IMAGES] == [{2.0}, {1.0}, {1.0}, {3.0}]


@pytest.mark.parametrize("block", [1000, 3000, -1])
def test_outliers_cost_no_digits(block: int) -> None:
    """The expected numbers are those of fractions, of which NumPy's are a few roundings off."""
    n = 6000
    whole = np.full(n, 100)
    whole[[0, -1]] = 10**15, -(10**15)
    first, last, large = np.ones(n), np.full(n, 0.1), np.full(n, 1e15)
    first[0], last[-1], large[::2] = 1e11, 1e11, 1e15 + 1
    images = [whole, first, last, large, np.where(np.arange(n) % 2, 1 << 62, (1 << 62) + 4096), np.full(n, 0.1)]
    table = measure(np.ones(n, "u1"), *images, block=block)
    for i, image in enumerate(images):
        elements = [Fraction(x) for x in image.tolist()]
        mean = sum(elements) / n
        np.testing.assert_allclose(table[f"intensity_mean-{i}"], float(mean), rtol=3e-16)
        squares = sum((x - mean) ** 2 for x in elements)
        np.testing.assert_allclose(table[f"intensity_std-{i}"], math.sqrt(squares / n), rtol=1e-13)


def test_large_numbers_that_are_alike() -> None:
    for block in (1, 2, -1):
        table = measure(np.ones(5, "u1"), np.full(5, LARGE), block=block)
        assert [table[name].tolist() for name in OF_IMAGES] == [[LARGE], [0], [LARGE], [LARGE]]


def test_squares_beyond_float64_cost_means_no_digits() -> None:
    for block in (1, 2, -1):
        table = measure(np.ones(3, "u1"), np.array([1e200, 3, -1e200]), block=block)
        assert [table[name].tolist() for name in OF_IMAGES] == [[1], [np.inf], [-1e200], [1e200]]


def test_nothing_is_a_table_without_rows() -> None:
    for labels in (np.zeros((3, 4), int), np.zeros((0, 4), int)):
        assert measure(labels, labels).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((np.ones(4),), {}, "labels are integers"),
        ((np.ones(4, int), np.ones(5)), {}, "images have the shape of the labels"),
        ((np.ones(4, int), np.ones(4, "c8")), {}, "images are of integers"),
        ((np.ones(4, int),), {"spacing": 0}, "spacing must be"),
        ((np.ones(4, int),), {"like": "polars"}, "like must be"),
        ((np.ones(4, "u1"),), {"background": -1}, "cannot be background"),
    ],
)
def test_wrong_arguments(arguments: Any, keywords: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure(*arguments, **keywords)
