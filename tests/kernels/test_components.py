"""Components and regions of one block, compared with SciPy, scikit-image and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import skimage.measure

from gzarr.blocks.components import Components, united
from gzarr.blocks.regions import regions_of, renamed

SHAPES = [(1,), (50,), (37, 41), (1, 9), (13, 17, 19), (5, 6, 7, 9), (3, 4, 3, 4, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("density", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_components_of_masks_are_those_of_scipy(shape: tuple[int, ...], density: float) -> None:
    mask = np.random.default_rng(0).random(shape) < density
    for connectivity in range(1, len(shape) + 1):
        expected, count = scipy.ndimage.label(mask, scipy.ndimage.generate_binary_structure(len(shape), connectivity))
        found = Components(mask, 0, by_value=False, connectivity=connectivity)
        assert found.count == count
        np.testing.assert_array_equal(found.paint(np.dtype("u4")), expected)
        firsts, values = found.describe()
        np.testing.assert_array_equal(expected.ravel()[firsts], np.arange(1, count + 1))
        assert all(label not in expected.ravel()[:first] for label, first in enumerate(firsts, 1))
        assert (values == 1).all()


@pytest.mark.parametrize("dtype", ["u1", "i2", ">i4", "u8"])
@pytest.mark.parametrize("shape", [(50,), (37, 41), (13, 17, 19)], ids=str)
def test_components_of_values_are_those_of_scikit_image(shape: tuple[int, ...], dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 3, shape).astype(dtype)
    for connectivity in range(1, len(shape) + 1):
        found = Components(values, 1, by_value=True, connectivity=connectivity)
        expected = skimage.measure.label(values, background=1, connectivity=connectivity)
        np.testing.assert_array_equal(found.paint(np.dtype("u8")), expected)
        box = tuple(slice(n // 3, n - 1) for n in shape)
        numbers = np.arange(found.count + 1, dtype="u8")[::-1].copy()
        np.testing.assert_array_equal(
            found.paint(np.dtype("u2"), box, numbers), np.where(expected, found.count - expected.astype(int), 0)[box]
        )


def test_more_runs_than_there_is_memory_for_at_first() -> None:
    mask = np.indices((400, 400)).sum(axis=0) % 2 == 0
    found = Components(mask, 0, by_value=False, connectivity=1)
    assert found.count == mask.sum() == 80_000


def test_negative_background_of_signed_integers() -> None:
    values = np.array([-1, 5, 5, -1, -7, 5], "i2")
    found = Components(values, -1, by_value=True, connectivity=1)
    assert found.paint(np.dtype("u4")).tolist() == [0, 1, 1, 0, 2, 3]


def test_members_are_united_through_others() -> None:
    assert united(6, np.array([[5, 3], [1, 3], [4, 4]])).tolist() == [0, 1, 2, 1, 4, 1]


@pytest.mark.parametrize("dtype", ["u1", "i4", "u8"])
def test_regions_are_those_of_numpy(dtype: str) -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 100, (11, 12, 13)).astype(dtype)
    image, mask = rng.normal(size=labels.shape).astype("f4"), rng.random(labels.shape) < 0.5
    found = regions_of(labels, 3, [image, mask])
    wanted = np.unique(labels[labels != 3])
    np.testing.assert_array_equal(found.labels, wanted)
    for i, label in enumerate(wanted):
        places = np.argwhere(labels == label)
        assert found.areas[i] == len(places)
        assert found.firsts[i] == np.flatnonzero(labels == label)[0]
        np.testing.assert_array_equal(found.sums[i], places.sum(axis=0))
        np.testing.assert_array_equal(found.boxes[i], np.stack([places.min(axis=0), places.max(axis=0) + 1], 1))
        total, rest, squares, least, most = found.images[0, i]
        own = image[labels == label].astype("f8")
        assert total + rest == math.fsum(own)
        np.testing.assert_allclose(squares, own.var() * len(own))
        assert (least, most) == (own.min(), own.max())
        assert found.images[1, i, 0] == mask[labels == label].sum()


def test_more_labels_than_there_is_memory_for_at_first() -> None:
    labels = np.random.default_rng(3).permutation(100_000).astype("u8").reshape(100, 1000) * np.uint64(1 << 44)
    found = regions_of(labels, 0)
    np.testing.assert_array_equal(found.labels, np.unique(labels)[1:])
    assert (found.areas == 1).all()


def test_labels_are_renamed_and_others_become_background() -> None:
    labels = np.array([[7, 7, 0], [9, 1 << 40, 8]], "u8")
    old, new = np.array([7, 9, 1 << 40], "u8"), np.array([1, 1 << 35, 3], "u8")
    assert renamed(labels, old, new, np.dtype("u8")).tolist() == [[1, 1, 0], [1 << 35, 3, 0]]
