"""From elements to colours: channels with windows and colours, labels with a palette, and smaller pictures.

All functions take NumPy or CuPy arrays, and what they return is on the same device.
"""

from __future__ import annotations

import colorsys
import math
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.host_copies import host_copy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Rgb = tuple[int, int, int]

#: Percentiles of elements that a channel without a window is shown between.
PERCENTILES: Final = (1.0, 99.9)
#: Steps of the hue from a label to the next one: about the golden ratio, so that neighbours differ; odd, so that 256
#: labels have 256 hues.
_STEP: Final = 159
#: What documents have in place of six digits: those of style sheets, and an alpha after them.
_HEX: Final = re.compile("#?([0-9A-Fa-f]{6})(?:[0-9A-Fa-f]{2})?")
_WHITE: Final = (255, 255, 255)
_TWO: Final = ((255, 0, 255), (0, 255, 0))
_SEVERAL: Final = ((0, 0, 255), (0, 255, 0), (255, 0, 0), (0, 255, 255), (255, 0, 255), (255, 255, 0))


def default_colors(count: int) -> tuple[Rgb, ...]:
    """Return the colours of channels whose document has none: white for one, and so on."""
    if count == 1:
        return (_WHITE,)
    return _TWO if count == 2 else tuple(_SEVERAL[i % len(_SEVERAL)] for i in range(count))


def digits_of(color: str | None) -> str | None:
    """Return the six hexadecimal digits of a colour in a document, without ``#`` and alpha; None if it has none."""
    match = None if color is None else _HEX.fullmatch(color)
    return None if match is None else match[1]


def rgb_of(digits: str) -> Rgb:
    """Return the numbers of six hexadecimal digits."""
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def on_device_of(like: Any, values: npt.NDArray[Any]) -> Any:
    """Return values as an array of the kind of another one."""
    return values if isinstance(like, np.ndarray) else np.asarray(values, like=like)


def on_host(array: Any) -> npt.NDArray[Any]:
    """Return an array in host memory."""
    found: npt.NDArray[Any] = array if isinstance(array, np.ndarray) else host_copy(array)
    return found


def apart(low: float, high: float, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the ends of a window, 1 apart where they would be the same: viewers divide by the difference.

    They are within the range of a type, so that elements which all have its largest value are shown as bright.
    """
    if high > low:
        return low, high
    # Above the very largest float there is none, which JSON could say.
    most = 1.0 if dtype.kind == "b" else float(np.iinfo(dtype).max) if dtype.kind in "iu" else sys.float_info.max
    # 1 is nothing beside the largest floats.
    above = max(low + 1, math.nextafter(low, math.inf))
    return (low, above) if above <= most else (min(most - 1, math.nextafter(most, -math.inf)), most)


def window_of(plane: Any, dtype: np.dtype[Any] | None = None) -> tuple[float, float]:
    """Return the window of a channel whose document has none: two percentiles of its elements, ``(y, x)``.

    Infinite ones, and what is no number, are left out. ``dtype`` is the type of the image, if these are means of it.
    """
    if plane.dtype.kind == "b":
        return 0.0, 1.0
    values = on_host(plane).astype(np.float64).ravel()
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    least, most = float(values.min()), float(values.max())
    # Percentiles are made of differences, and that of the ends of the range of floats is beyond it.
    unit = 1.0 if math.isfinite(most - least) else 2.0
    low, high = (float(value) * unit for value in np.percentile(values if unit == 1 else values / unit, PERCENTILES))
    # Few bright elements on an empty ground.
    return (low, high) if high > low else apart(low, most, plane.dtype if dtype is None else dtype)


def shown(plane: Any, window: tuple[float, float]) -> Any:
    """Return how bright elements are shown: f8 from 0 to 1, ``(y, x)``."""
    low, high = window
    values = plane.astype(np.float64)
    if high == low:
        return (values > low).astype(np.float64)
    if not math.isfinite(high - low):
        # Both ends of the range of floats: their difference is beyond it.
        values, low, high = values / 2, low / 2, high / 2
    return np.clip((values - low) / (high - low), 0, 1)


def composed(
    planes: Sequence[Any], windows: Sequence[tuple[float, float]], colors: Sequence[Rgb], inverted: Sequence[bool]
) -> Any:
    """Return a picture of channels: the sum of their colours, cut at white.

    Parameters
    ----------
    planes
        Elements of each channel, ``(y, x)``.
    windows
        The values of each that are shown as black, and in its full colour.
    colors
        Red, green and blue of each.
    inverted
        Whether a channel is shown the other way round.

    What is no number is black, whichever way a channel is shown.

    Returns
    -------
    Red, green and blue, u1 ``(y, x, 3)``, rounded to the nearest integer, halves to even.
    """
    total: Any = 0
    for plane, window, color, inverse in zip(planes, windows, colors, inverted, strict=True):
        bright = shown(plane, window)
        if inverse:
            bright = 1 - bright
        if plane.dtype.kind == "f":
            bright = np.where(np.isnan(plane), 0.0, bright)
        total = total + bright[:, :, None] * on_device_of(plane, np.array(color, np.float64))
    return np.rint(np.minimum(total, 255)).astype(np.uint8)


def palette() -> npt.NDArray[np.uint8]:
    """Return the colours of labels: those of the labels n with ``n * 159 % 256`` from 0 to 255, u1 ``(256, 3)``."""
    hues = [colorsys.hsv_to_rgb(i / 256, 0.6 if i % 2 else 0.9, 1.0 if i % 3 else 0.8) for i in range(256)]
    colors: npt.NDArray[np.uint8] = np.rint(np.array(hues) * 255).astype(np.uint8)
    return colors


def painted(labels: Any, colors: Mapping[int, tuple[int, int, int, int]]) -> Any:
    """Return a picture of labels.

    Parameters
    ----------
    labels
        Integers or booleans, ``(y, x)``.
    colors
        Red, green, blue and alpha, over black, of some labels. Others are coloured by :func:`palette`, and 0 is black.

    Returns
    -------
    Red, green and blue, u1 ``(y, x, 3)``.
    """
    if labels.dtype.kind == "b":
        labels = labels.astype(np.uint8)
    # The last byte, of negative labels, too.
    last = (labels.astype(np.uint64) & np.uint64(255)).astype(np.int64)
    picture = on_device_of(labels, palette())[last * _STEP % 256]
    picture = np.where((labels == 0)[:, :, None], np.uint8(0), picture)
    own = {value: rgba for value, rgba in colors.items() if _is_in(value, labels.dtype)}
    if own:
        values = sorted(own)
        known = on_device_of(labels, np.array(values, labels.dtype))
        alpha = np.array([own[value] for value in values], np.float64)
        over_black = np.rint(alpha[:, :3] * alpha[:, 3:] / 255).astype(np.uint8)
        at = np.minimum(np.searchsorted(known, labels), len(values) - 1)
        picture = np.where((known[at] == labels)[:, :, None], on_device_of(labels, over_black)[at], picture)
    return picture


def _is_in(value: int, dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return int(info.min) <= value <= int(info.max)


def smaller(pixels: npt.NDArray[np.uint8], size: int, *, mixed: bool = True) -> npt.NDArray[np.uint8]:
    """Return a picture whose longer side has ``size`` pixels, or the same one if it is not larger.

    Parameters
    ----------
    pixels
        Picture in host memory, u1 ``(y, x, 3)``.
    size
        Length of the longer side.
    mixed
        Whether a pixel is the mean of those that it covers, and of parts of these; otherwise it is the one in the
        middle, as suits labels.
    """
    height, width, _ = pixels.shape
    longest = max(height, width)
    if longest <= size:
        return pixels
    rows, columns = (max(1, round(n * size / longest)) for n in (height, width))
    if not mixed:
        y, x = (((np.arange(m) + 0.5) * n / m).astype(np.int64) for m, n in ((rows, height), (columns, width)))
        return np.ascontiguousarray(pixels[y][:, x])
    down = np.tensordot(_covers(rows, height), pixels.astype(np.float64), (1, 0))
    both = np.tensordot(down, _covers(columns, width), (1, 1)).transpose(0, 2, 1)
    picture: npt.NDArray[np.uint8] = np.rint(np.clip(both, 0, 255)).astype(np.uint8)
    return picture


def _covers(count: int, length: int) -> npt.NDArray[np.float64]:
    """Return which share of each pixel of an axis a pixel of the shorter axis is made of: ``(count, length)``."""
    edges = np.arange(count + 1) * (length / count)
    begin, end = edges[:-1, None], edges[1:, None]
    at = np.arange(length)[None]
    share = np.clip(np.minimum(end, at + 1) - np.maximum(begin, at), 0, 1)
    shares: npt.NDArray[np.float64] = share / share.sum(1, keepdims=True)
    return shares
