"""Levels and images where other libraries take arrays: a level is its elements, and an image says which to take."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import gzarr
from gzarr import ome

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(3 * 16 * 24, dtype="u2").reshape(3, 16, 24)


def image() -> ome.Image:
    return ome.create({}, DATA, axes="cyx", chunks=(1, 8, 8), levels=2)


def test_a_level_is_its_elements(tmp_path: Path) -> None:
    for level in image().levels:
        elements = level.array[...]
        assert (level.shape, level.dtype, level.ndim, level.size, len(level)) == (
            *(elements.shape, elements.dtype, elements.ndim, elements.size, len(elements)),
        )
        found = np.asarray(level)
        assert found.dtype == "u2"
        np.testing.assert_array_equal(found, elements)
        np.testing.assert_array_equal(np.asarray(level, "f4"), elements.astype("f4"))
        np.testing.assert_array_equal(level[1, 2:5, ::2], elements[1, 2:5, ::2])
        np.testing.assert_array_equal(list(level), elements)
        np.save(tmp_path / "x.npy", level)
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), elements)
        with pytest.raises(gzarr.ArgumentError, match="without copying"):
            level.__array__(copy=False)
    # As napari orders the levels of a pyramid.
    assert [level.size for level in image().levels] == [DATA.size, DATA.size // 4]


def test_an_image_says_what_to_take(tmp_path: Path) -> None:
    """NumPy would make an array of one object of it, and ``np.save`` a pickle."""
    given = image()
    uses: tuple[Any, ...] = (
        np.asarray,
        lambda one: np.array(one, "f4"),
        lambda one: np.asarray([one, one]),
        lambda one: np.save(tmp_path / "x.npy", one),
    )
    for use in uses:
        with pytest.raises(gzarr.ArgumentError, match=r"'/' in .*: an Image is no array; .* image\.level\(0\)"):
            use(given)
    for others in (torch.as_tensor, torch.tensor):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            others(given)
    np.testing.assert_array_equal(np.asarray(given.level(0)), DATA)
    assert gzarr.zeros_like(given).shape == DATA.shape


def test_an_image_is_an_object_like_others() -> None:
    image = gzarr.ome.create({}, np.zeros((4, 4), "u1"), axes="yx")
    assert len(inspect.getmembers(image)) > 50
    assert np.array([image, image], dtype=object).shape == (2,)
    assert image not in [np.int64(1), 2]
    assert np.int64(1) != image
    assert gzarr.zeros_like(image).shape == (4, 4)


def test_arrays_of_a_level_have_its_layout() -> None:
    image = gzarr.ome.create({}, np.zeros((2, 1, 8, 8), "u1"), axes="tcyx")
    level, array = image.levels[0], image.level(0)
    for made in (gzarr.array(level), gzarr.zeros_like(level)):
        assert made.chunks == array.chunks
        assert made.metadata.dimension_names == array.metadata.dimension_names
