"""Boxes of OME images in any pose: levels, spacing, translations."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import gzarr
import gzarr.ome

SCALE, FIRST = (2.0, 0.5, 0.5), (100.0, -7.0, 30.0)


def plane(places: Any) -> Any:
    """Return what the image shows at physical places ``(3, …)``: linear, so that levels and interpolation keep it."""
    z, y, x = places
    return 1000 + 3 * z + 5 * y - 7 * x


@pytest.fixture
def image() -> Any:
    index = np.indices((24, 64, 64))
    places = [scale * i + first for scale, i, first in zip(SCALE, index, FIRST, strict=True)]
    data = np.stack([plane(places), -plane(places)]).astype("f8")
    return gzarr.ome.create(
        {}, data, axes="czyx", scale=(1, *SCALE), translation=(0, *FIRST), chunks=(1, 8, 8, 8), levels=3, progress=False
    )


@pytest.mark.parametrize("level", ["auto", 0, 1, 2, -1, np.int64(1)])
def test_translations_are_those_of_centres(image: Any, level: Any) -> None:
    centre = (123.0, 9.0, 46.0)
    angle = 0.4
    turn = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
    matrix = turn * 0.75
    found = gzarr.read_affine(image, matrix, centre=centre, shape=(5, 6, 7), level=level)
    index = np.indices((5, 6, 7)).reshape(3, -1) - np.array([[2], [2.5], [3]])
    wanted = plane(matrix @ index + np.array(centre)[:, None]).reshape(5, 6, 7)
    np.testing.assert_allclose(found, [wanted, -wanted], rtol=1e-12)


def test_offset_is_the_first_element(image: Any) -> None:
    found = gzarr.read_affine(image, SCALE, offset=FIRST, shape=(24, 64, 64))
    np.testing.assert_array_equal(found, image.levels[0].array[...])


@pytest.mark.parametrize(
    ("spacing", "level"),
    [
        ((2, 0.5, 0.5), 0),
        ((1, 0.5, 0.5), 0),
        ((1.9, 1, 1), 0),
        ((2, 1, 1), 1),
        ((2, 1.99, 1.99), 1),
        ((4, 2, 2), 2),
        ((2, 2, 2), 2),
        ((0.1, 9, 9), 0),
    ],
)
def test_level(image: Any, spacing: tuple[float, ...], level: int) -> None:
    scales = [tuple(image.grid(i).scale[1:]) for i in range(3)]
    assert scales == [(2, 0.5, 0.5), (2, 1, 1), (2, 2, 2)]
    array = type(image.levels[level].array)
    with mock.patch.object(array, "read", autospec=True, side_effect=array.read) as read:
        gzarr.read_affine(image, spacing, centre=(123.3, 9.3, 46.3), shape=(3, 3, 3))
    assert read.call_args.args[0].name == image.levels[level].array.name


def test_axes_are_those_of_the_result(image: Any) -> None:
    """A row of the matrix is an axis of the image, so exchanged axes ask for another level than its columns say."""
    array = type(image.levels[0].array)
    exchanged = np.array([[0, 0, 2.0], [0.5, 0, 0], [0, 0.5, 0]])
    with mock.patch.object(array, "read", autospec=True, side_effect=array.read) as read:
        gzarr.read_affine(image, exchanged, centre=(123, 9, 46), shape=(3, 3, 3))
    assert read.call_args.args[0].name == image.levels[0].array.name


def test_refused(image: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="levels 0 to 2"):
        gzarr.read_affine(image, SCALE, level=3)
