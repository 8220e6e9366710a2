"""Wrong arguments of images and plates are errors that say what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr import ome

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = np.zeros((8, 8), "u1")


def image() -> ome.Image:
    return ome.create({}, DATA, axes="yx", scale=(0.5, 0.5), units="micrometer")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ome.create({}, [[1, 2], [3]], axes="yx"), "data= cannot be made an array"),
        (lambda: ome.create({}, "a.zarr", axes="yx"), r"data= must be elements, not a path or URL, 'a\.zarr': open"),
        (lambda: ome.create({}, Path("a.zarr"), axes="yx"), "data= must be elements, not a path or URL"),
        (lambda: ome.create({}, image().group, axes="yx"), "data=: a Group is no array"),
        (lambda: ome.create({}, {"a": 1}, axes="yx"), "data=: a value of type dict is a mapping"),
        (lambda: ome.create_labels(image().group.store, "a", "a.zarr"), "data= must be elements, not a path or URL"),
        (lambda: image().append("a.zarr", axis="y"), "frames must be elements, not a path or URL"),
        (lambda: image().append(DATA, axis="y", labels={"a": "b"}), "labels 'a' must be elements, not a path or URL"),
        (lambda: ome.create_plate({}, rows="A", columns="1", acquisitions=5), "acquisitions must be a sequence"),
        (lambda: ome.create_plate({}, rows="A", columns="1", acquisitions=["a"]), "acquisitions must be a sequence"),
        (lambda: image().append(np.zeros((1, 8), "u1"), axis=5), "has the axes y, x, not 5"),
        (lambda: image().choose_level(pixels="a"), "pixels must be a number of elements, at least 1, not 'a'"),
        (lambda: image().read("auto", pixels=-5), "pixels must be a number of elements, at least 1, not -5"),
        (lambda: image().choose_level(pixels=0), "pixels must be a number of elements, at least 1, not 0"),
        (lambda: image().choose_level(pixels=float("nan")), "pixels must be a number of elements, .* not nan"),
        (lambda: image().read_um((1, 1), size=-1), "size= needs numbers of micrometres, at least 0, got -1"),
        (lambda: image().read_um((1, 1), {"y": 1, "x": -0.5}), "size= needs numbers of micrometres, at least 0"),
        (lambda: image().read_um((1, 1), float("nan")), "size= needs finite numbers, got nan"),
        (lambda: image().choose_level(resolution=-1), "resolution= needs numbers of micrometres, at least 0, got -1"),
        (lambda: image().choose_level(resolution={1: 2}), "has the axes y, x, not 1"),
        (lambda: image().update_metadata(scale={1: 2}), "has the axes y, x, not 1"),
        (lambda: gzarr.consolidate_metadata({}, zarr_format=5), "zarr_format must be"),
    ],
)  # fmt: skip
def test_what_is_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gzarr.ArgumentError, match=message):
        call()


def test_a_picture_without_a_path(tmp_path: Path) -> None:
    given: Any = f"{tmp_path}/\0"
    with pytest.raises(gzarr.StoreError, match="the picture cannot be written"):
        image().thumbnail(file=given)
