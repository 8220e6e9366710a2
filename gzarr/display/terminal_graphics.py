"""Pictures in terminals: by the protocol of kitty, as sixels, or in half blocks of Unicode.

Sources: https://sw.kovidgoyal.net/kitty/graphics-protocol/ and https://vt100.net/docs/vt3xx-gp/chapter14.html.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .png import png

if TYPE_CHECKING:
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

#: Most characters of data in one command of kitty's.
_PART: Final = 4096
#: Most colours of a picture of sixels.
_SIXEL_COLORS: Final = 255
#: From dark to bright, where there are no colours.
_SHADES: Final = " .:-=+*#%@"


def kitty(pixels: Pixels) -> str:
    """Return a picture, u1 ``(y, x, 3)``, as commands of kitty's protocol, with a line break after it."""
    data = base64.b64encode(png(pixels)).decode()
    parts = [data[i : i + _PART] for i in range(0, len(data), _PART)]
    commands = []
    for i, part in enumerate(parts):
        keys = f"a=T,f=100,q=2,m={int(i + 1 < len(parts))}" if i == 0 else f"m={int(i + 1 < len(parts))}"
        commands.append(f"\x1b_G{keys};{part}\x1b\\")
    return "".join(commands) + "\n"


def sixel(pixels: Pixels) -> str:
    """Return a picture, u1 ``(y, x, 3)``, as sixels of at most 255 colours, with a line break after it."""
    colors, indexes = _reduced(pixels)
    height, width = indexes.shape
    lines = [f'\x1bP0;1;0q"1;1;{width};{height}']
    lines += [f"#{i};2;{r};{g};{b}" for i, (r, g, b) in enumerate((np.rint(colors * (100 / 255))).astype(int).tolist())]
    weights = (1 << np.arange(6, dtype=np.int64))[:, None]
    for top in range(0, height, 6):
        band = indexes[top : top + 6]
        rows = []
        for color in np.unique(band).tolist():
            bits = ((band == color) * weights[: len(band)]).sum(axis=0)
            rows.append(f"#{color}{_runs(bits + 63)}")
        lines.append("$".join(rows) + "-")
    return "".join(lines) + "\x1b\\\n"


def _runs(codes: npt.NDArray[np.int64]) -> str:
    """Return characters, those that follow each other as their number and one of them."""
    edges = np.flatnonzero(np.diff(codes)) + 1
    begins = np.concatenate([[0], edges])
    lengths = np.diff(np.concatenate([begins, [len(codes)]]))
    return "".join(
        f"!{n}{chr(code)}" if n > 3 else chr(code) * n
        for code, n in zip(codes[begins].tolist(), lengths.tolist(), strict=True)
    )


def _reduced(pixels: Pixels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return at most 255 colours, and the one of them for each pixel.

    Colours that agree in the first bits, as many as there are colours enough for, are one: their mean.
    """
    flat = pixels.reshape(-1, 3).astype(np.int64)
    for bits in range(8, 0, -1):
        shift = 8 - bits
        keys = ((flat >> shift) * np.array([1 << 16, 1 << 8, 1])).sum(axis=1)
        found, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        if len(found) <= _SIXEL_COLORS:
            break
    sums = np.stack([np.bincount(inverse, flat[:, i]) for i in range(3)], axis=1)
    return sums / counts[:, None], inverse.reshape(pixels.shape[:2])


def half_blocks(pixels: Pixels, *, colors: int) -> str:
    """Return a picture, u1 ``(y, x, 3)``, as lines of characters that each show two pixels above each other.

    Parameters
    ----------
    pixels
        The picture, as wide as there are columns.
    colors
        How many colours the terminal has: ``1 << 24``, 256, or 0 for shades of characters, one for two pixels.
    """
    if len(pixels) % 2:
        pixels = np.concatenate([pixels, np.zeros_like(pixels[:1])])
    pairs = list(zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True))
    if not colors:
        return "".join("".join(map(_shade, above, below)).rstrip() + "\n" for above, below in pairs)
    write = _exact if colors > 256 else _of_256
    lines = []
    for above, below in pairs:
        last: Any = None
        line = []
        for top, bottom in zip(above, below, strict=True):
            now = write(top), write(bottom)
            if now != last:
                line.append(f"\x1b[38;{now[0]};48;{now[1]}m")
                last = now
            line.append("\u2580")
        lines.append("".join(line) + "\x1b[0m\n")
    return "".join(lines)


def _exact(color: list[int]) -> str:
    return "2;{};{};{}".format(*color)


def _of_256(color: list[int]) -> str:
    """Return the nearest of the colours that all terminals with 256 of them have: a cube of 6³, and greys."""
    red, green, blue = color
    if max(color) - min(color) < 8:
        grey = (red + green + blue) // 3
        if 8 <= grey <= 238:
            return f"5;{232 + min(23, (grey - 8 + 5) // 10)}"
    cube = [0 if value < 48 else 1 if value < 115 else (value - 35) // 40 for value in color]
    return f"5;{16 + 36 * cube[0] + 6 * cube[1] + cube[2]}"


def _shade(above: list[int], below: list[int]) -> str:
    bright = sum(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (above, below)) / 510
    return _SHADES[min(len(_SHADES) - 1, int(bright * len(_SHADES)))]
