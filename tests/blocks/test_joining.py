"""Labels that blocks have of their own become those of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array
import numpy as np
import pytest
import scipy.ndimage

import gzarr
from gzarr.blocks import Output, join
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path


def blobs(shape: tuple[int, ...]) -> np.ndarray:
    return scipy.ndimage.gaussian_filter(np.random.default_rng(0).random(shape), 2) > 0.51


def test_without_overlap_labels_are_joined_across_faces(tmp_path: Path) -> None:
    mask = blobs((50, 60, 40))
    labels = gzarr.create_array(tmp_path / "labels", shape=mask.shape, dtype="i8", chunks=16, device="cpu")
    # Large and negative numbers, the same in all blocks.
    gzarr.map_blocks(lambda x: scipy.ndimage.label(x)[0] * np.int64(-(1 << 40)), mask, out=labels, block=16)
    expected, count = scipy.ndimage.label(mask)
    found, objects = join(labels, threshold=0, out=tmp_path / "joined")
    assert objects == count
    assert found.chunks == (16, 16, 16)
    np.testing.assert_array_equal(found[...], expected)


def test_overlapping_blocks_of_dask_are_joined(tmp_path: Path) -> None:
    mask = blobs((50, 60))
    tiles = dask.array.overlap.overlap(
        dask.array.from_array(mask, chunks=20), depth={0: 6, 1: 6}, boundary={0: 0, 1: 0}
    ).map_blocks(lambda x: scipy.ndimage.label(x)[0], dtype="i4")
    expected, count = scipy.ndimage.label(mask)
    labels = gzarr.array(tiles.compute(), chunks=32, store=tmp_path / "tiles", device="cpu")
    for arguments in ({}, {"block": 20}):
        found, objects = join(labels, overlap=6, threshold=0, **arguments)
        assert objects == count
        np.testing.assert_array_equal(found, expected)
    stored, _ = join(labels, overlap=6, threshold=0, out=Output({}, chunks=10))
    np.testing.assert_array_equal(stored[...], expected)


@pytest.mark.parametrize(
    ("measure", "threshold", "joined"),
    [("iou", 0.5, False), ("iou", 0.3, True), ("smaller", 0.5, True), ("smaller", 0.99, True), ("iou", 1 / 3, False)],
)
def test_the_threshold_is_of_what_both_blocks_have(measure: Any, threshold: float, joined: bool) -> None:
    # Six elements on one side and two on the other: IoU 1 / 3, and all of the smaller one.
    labels = np.zeros((10, 8), "u2")
    labels[2:8, :4] = 5
    labels[3:5, 4:] = 5
    found, count = join(labels, block=(10, 4), measure=measure, threshold=threshold)
    assert count == (1 if joined else 2)
    assert (found[2:8, :4] == 1).all()
    assert (found[3:5, 4:] == count).all()


def test_one_half_joins_no_two_instances_through_a_third() -> None:
    labels = np.zeros((20, 8), "u1")
    labels[1:9, :4], labels[11:19, :4], labels[1:19, 4:] = 1, 2, 1
    _, count = join(labels, block=(20, 4))
    assert count == 3


def test_labels_of_the_halo_only_are_no_objects() -> None:
    # Blocks of four elements with two more on both sides; the object 9 lies beyond the first block.
    labels = np.array([0, 0, 1, 0, 0, 0, 9, 9, 0, 0, 4, 4, 0, 0, 0, 0], "u4")
    found, count = join(labels, overlap=2, block=4)
    assert count == 2
    assert found.tolist() == [1, 0, 0, 0, 2, 2, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overlap": -1}, "overlap must be"),
        ({"block": (3, 0)}, "block must be"),
        ({"overlap": 3, "block": 4}, "are not blocks"),
        ({"overlap": 6}, "are not blocks with an overlap"),
        ({"threshold": "much"}, "threshold must be"),
        ({"measure": None}, "measure must be"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        join(np.ones((11, 11), "u1"), **arguments)
    with pytest.raises(ArgumentError, match="join takes labels"):
        join(np.ones(3))
