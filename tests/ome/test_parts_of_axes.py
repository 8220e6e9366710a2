"""What a read of an image takes of an axis: something of that axis alone, so that no other axis moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import SelectionError

DATA = np.arange(2 * 3 * 8 * 8, dtype="u2").reshape(2, 3, 8, 8)


@pytest.fixture
def image() -> Any:
    return gzarr.ome.create(
        {}, DATA, axes="tcyx", units={"y": "micrometer", "x": "micrometer"}, levels=2, factors=2, progress=False
    )


@pytest.mark.parametrize(
    "wrong", [None, ..., np.ones((8, 8), bool), np.array([[0, 1]])], ids=["None", "...", "mask", "2-D"]
)
def test_what_is_of_no_axis_is_refused(image: Any, wrong: Any) -> None:
    message = "'t' takes an integer, a slice or a list of integers, not"
    calls: list[Any] = [
        lambda: image.read("auto", pixels=10**6, t=wrong, c=0),
        lambda: image.choose_level(pixels=1, t=wrong),
        lambda: image.read_um((2, 2), 2, t=wrong, c=1),
        lambda: image.read(t=wrong, c=0),
    ]
    for call in calls:
        with pytest.raises(SelectionError, match=message):
            call()


@pytest.mark.parametrize("wrong", [slice(None, None, 0), slice("a"), slice(0.5, None)], ids=repr)
def test_slices_that_select_nothing(image: Any, wrong: Any) -> None:
    calls: list[Any] = [
        lambda: image.read(y=wrong),
        lambda: image.read("auto", pixels=10, y=wrong),
        lambda: image.choose_level(pixels=10, t=wrong),
        lambda: image.render(c=wrong),
    ]
    for call in calls:
        with pytest.raises(SelectionError, match="selects nothing"):
            call()
    volume = gzarr.ome.create({}, DATA[0], axes="zyx", levels=1, progress=False)
    with pytest.raises(SelectionError, match="selects nothing"):
        volume.render(z=wrong)
