"""PNG files, decoded by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest

from gzarr.display.png import png


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    with PIL.Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 33), (200, 1)])
@pytest.mark.parametrize("kind", ["noise", "flat", "ramp"])
def test_png(shape: tuple[int, int], kind: str) -> None:
    pixels = np.zeros((*shape, 3), "u1")
    if kind == "noise":
        pixels = np.random.default_rng(0).integers(0, 256, pixels.shape, dtype="u1")
    elif kind == "ramp":
        pixels = (pixels + np.arange(shape[0])[:, None, None]).astype("u1")
    data = png(pixels)
    np.testing.assert_array_equal(decoded(data), pixels)
    # Whatever filter is better for it.
    assert kind == "noise" or len(data) < 100 + pixels.size // 20
    # Of a view, too.
    np.testing.assert_array_equal(decoded(png(pixels[::-1, ::-1])), pixels[::-1, ::-1])
