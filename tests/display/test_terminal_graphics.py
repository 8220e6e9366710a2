"""Pictures for terminals, read back by small decoders of kitty's protocol, of sixels and of half blocks."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import numpy as np
import PIL.Image
import pytest

from gzarr.display.terminal_graphics import half_blocks, kitty, sixel

Pixels = np.ndarray[Any, Any]


def noise(height: int, width: int) -> Pixels:
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype="u1")


def ramp(height: int, width: int) -> Pixels:
    values = np.arange(height * width).reshape(height, width) * 255 // (height * width)
    return np.repeat(values[:, :, None], 3, 2).astype("u1")


def of_sixels(text: str) -> Pixels:
    """Decode a picture of sixels; each pixel is set once."""
    match = re.fullmatch(r'\x1bP0;1;0q"1;1;(\d+);(\d+)\n?(.*)\x1b\\\n', text, re.DOTALL)
    assert match is not None
    width, height = int(match[1]), int(match[2])
    picture = np.full((-(-height // 6) * 6, width, 3), -1.0)
    palette: dict[int, list[float]] = {}
    color, x, top = 0, 0, 0
    for token in re.finditer(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)([?-~])|([?-~])|([$-])|(.)", match[3], re.DOTALL):
        number, red, green, blue, count, repeated, single, move, other = token.groups()
        assert other is None, repr(other)
        if number is not None:
            color = int(number)
            if red is not None:
                palette[color] = [int(part) * 2.55 for part in (red, green, blue)]
        elif move is not None:
            x = 0
            top += 6 if move == "-" else 0
        else:
            bits = ord(repeated or single) - 63
            run = int(count or 1)
            for bit in range(6):
                if bits >> bit & 1:
                    assert (picture[top + bit, x : x + run] == -1).all()
                    picture[top + bit, x : x + run] = palette[color]
            x += run
    assert len(palette) <= 256
    assert (picture[height:] == -1).all()
    assert (picture[:height] >= 0).all()
    return picture[:height]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (6, 4), (13, 30), (40, 25)])
def test_sixels(height: int, width: int) -> None:
    grey = ramp(height, width)
    # Sixels have a hundred steps.
    np.testing.assert_allclose(of_sixels(sixel(grey)), grey, atol=1.3)
    many = noise(height, width)
    found = of_sixels(sixel(many))
    # Of many colours, those alike are one.
    assert np.abs(found - many).max() <= (1.3 if height * width <= 255 else 64)
    flat = np.full((height, width, 3), [255, 0, 51], "u1")
    np.testing.assert_allclose(of_sixels(sixel(flat)), flat, atol=1.3)
    assert len(sixel(flat)) < 60 + 10 * height


@pytest.mark.parametrize(("height", "width"), [(1, 1), (70, 90)])
def test_kitty(height: int, width: int) -> None:
    pixels = noise(height, width)
    text = kitty(pixels)
    assert text.endswith("\x1b\\\n")
    commands = re.findall(r"\x1b_G([^;]*);([A-Za-z0-9+/=]*)\x1b\\", text)
    assert "".join(f"\x1b_G{keys};{data}\x1b\\" for keys, data in commands) + "\n" == text
    assert all(len(data) <= 4096 and len(data) % 4 == 0 for _, data in commands)
    keys = [dict(key.split("=") for key in given.split(",")) for given, _ in commands]
    assert keys[0].items() >= {"a": "T", "f": "100"}.items()
    assert [given["m"] for given in keys] == ["1"] * (len(keys) - 1) + ["0"]
    with PIL.Image.open(io.BytesIO(base64.b64decode("".join(data for _, data in commands)))) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)


def of_blocks(text: str) -> list[list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Return the colours of each character."""
    lines = []
    for line in text.splitlines():
        assert line.endswith("\x1b[0m")
        cells: list[Any] = []
        now: Any = None
        for colors, run in re.findall(r"\x1b\[38;([\d;]+m)(\u2580+)", line):
            first, _, second = colors[:-1].partition(";48;")
            now = tuple(tuple(map(int, part.split(";"))) for part in (first, second))
            cells += [now] * len(run)
        lines.append(cells)
    return lines


@pytest.mark.parametrize("height", [1, 2, 7])
def test_half_blocks(height: int) -> None:
    pixels = noise(height, 9)
    pixels[:, 4] = pixels[:, 3]
    lines = of_blocks(half_blocks(pixels, colors=1 << 24))
    assert [len(line) for line in lines] == [9] * -(-height // 2)
    for i, line in enumerate(lines):
        for x, (above, below) in enumerate(line):
            assert above == (2, *pixels[2 * i, x])
            assert below == (2, *(pixels[2 * i + 1, x] if 2 * i + 1 < height else (0, 0, 0)))


def test_half_blocks_of_256_colours() -> None:
    levels = [0, 95, 135, 175, 215, 255]
    cube = {
        16 + 36 * r + 6 * g + b: (levels[r], levels[g], levels[b]) for r in range(6) for g in range(6) for b in range(6)
    }
    known = {**cube, **{232 + i: (8 + 10 * i,) * 3 for i in range(24)}}
    pixels = np.concatenate([noise(30, 16), ramp(30, 16)])
    for i, line in enumerate(of_blocks(half_blocks(pixels, colors=256))):
        for x, found in enumerate(line):
            for half, (five, number) in enumerate(found):
                assert five == 5
                color = pixels[2 * i + half, x].astype(int)
                distance = np.abs(np.array(known[number]) - color).max()
                nearest = min(np.abs(np.array(one) - color).max() for one in cube.values())
                assert distance <= nearest + 12


def test_shades() -> None:
    text = half_blocks(np.repeat(ramp(1, 100), 4, 0), colors=0)
    first, second = text.splitlines()
    assert first == second
    assert first.lstrip()[0] == "."
    assert first[-1] == "@"
    assert "\x1b" not in text
