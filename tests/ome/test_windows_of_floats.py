"""Channels that are given by name are shown from the lowest to the highest value that is there, also of floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.ome import coloring
from gzarr.ome.metadata.model import Channel, Window

if TYPE_CHECKING:
    from support.devices import TestedDevice

STEPS = np.linspace(0, 1, 4096, dtype="f4").reshape(1, 64, 64)


def image_of(data: Any, **options: Any) -> Any:
    return gzarr.ome.create({}, data, axes="cyx", levels=1, **{"channels": ["a"], **options})


@pytest.mark.parametrize(("low", "high"), [(0, 0.01), (-0.5, 0.25), (100, 4000), (1e-9, 2e-9)])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_all_of_the_range(low: float, high: float, bad: float | None) -> None:
    data = np.float32(low) + STEPS * np.float32(high - low)
    expected = float(data.min()), float(data.max())
    if bad is not None:
        data[0, 20, 30] = bad
    image = image_of(data)
    window = image.channels[0].window
    assert (window.start, window.end) == expected
    # Viewers let the user choose between these.
    assert (window.min, window.max) == expected
    picture = image.render()[..., 0]
    assert (picture.min(), picture.max()) == (0, 255)
    assert 120 < np.median(picture) < 136


def test_values_that_are_all_alike() -> None:
    for value, end in ((0.25, 1.25), (-3, -2), (1e30, np.nextafter(1e30, np.inf))):
        window = image_of(np.full((1, 8, 8), value, "f8")).channels[0].window
        assert window == Window(value, end, value, end)
    window = image_of(np.full((1, 8, 8), 65535, "u2")).channels[0].window
    # Nothing of the type is above, and what is saturated is bright.
    assert window == Window(65534, 65535, 0, 65535)
    assert image_of(np.full((1, 8, 8), np.nan, "f4")).channels[0].window == Window(0, 1, 0, 1)


def test_integers_have_the_range_of_their_type() -> None:
    window = image_of((STEPS * 100).astype("u2")).channels[0].window
    assert window == Window(0, 100, 0, 65535)


def test_channels_that_are_named_later(device: TestedDevice) -> None:
    data = np.concatenate([STEPS * 0.01, 100 + STEPS * 50])
    data[0, 5, 5] = np.nan
    image = image_of(device.array(data), channels=None)
    assert image.level(0).device == device.name
    image.update_metadata(channels=["a", Channel("b", "00FF00", Window(0, 9, 0, 99))])
    expected = float(STEPS.max() * np.float32(0.01))
    assert image.channels[0].window == Window(0, expected, 0, expected)
    assert image.channels[1].window == Window(0, 9, 0, 99)
    image.update_metadata(channels=["c", "d"])
    assert [c.label for c in image.channels] == ["c", "d"]
    assert image.channels[1].window == Window(0, 9, 0, 99)


def test_few_bright_elements_without_a_window() -> None:
    """Between two percentiles that are alike, the brightest element decides, however low it is."""
    few = np.zeros((1, 50, 50), "f4")
    few[0, 10, 10] = 0.01
    assert image_of(few, channels=None).render()[10, 10].tolist() == [255] * 3
    assert coloring.window_of(few[0]) == (0.0, float(np.float32(0.01)))
    assert coloring.window_of(few[0] * 0) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_largest_floats(dtype: str) -> None:
    """JSON has no infinity, which is all that is above them."""
    largest = float(np.finfo(dtype).max)
    for value in (largest, -largest):
        window = image_of(np.full((1, 8, 8), value, dtype)).channels[0].window
        assert window.start < window.end
        assert value in (window.start, window.end)
        assert np.isfinite([window.start, window.end, window.min, window.max]).all()
    largest = float(np.finfo("f8").max)
    assert coloring.window_of(np.full((4, 4), largest)) == (np.nextafter(largest, 0), largest)


@pytest.mark.filterwarnings("error")
def test_all_that_floats_can_say() -> None:
    """The difference of the ends of the window is beyond the range of floats."""
    largest = float(np.finfo("f8").max)
    data = np.zeros((1, 8, 8))
    data[0, 0], data[0, 7] = -largest, largest
    image = image_of(data)
    assert image.channels[0].window == Window(-largest, largest, -largest, largest)
    assert image.render()[:, 0, 0].tolist() == [0, *[128] * 6, 255]
    low, high = coloring.window_of(np.array([[-largest, largest]]))
    assert -largest < low < high < largest
