"""Sizes that images state, for decoders of imagecodecs that make the whole image before they ask for a place for it.

Most decoders read the header, ask for a place, and fail if it is too small. Those here are given no data whose header
states more than is expected. Where a header may be anywhere in the data, all that look like one count.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from .buffers import compressed
from .codec import BytesRepresentation

if TYPE_CHECKING:
    from collections.abc import Callable

    from .buffers import Bytes

# AVIF and HEIF: the box of the width and height of an item.
_ISPE: Final = re.compile(rb"\0\0\0\x14ispe\0{4}(?P<width>.{4})(?P<height>.{4})", re.DOTALL)
# JPEG 2000: the markers SOC and SIZ. Both edges of the image are stated, and the number of components.
_SIZ: Final = re.compile(
    rb"\xff\x4f\xff\x51(?P<length>..)..(?P<right>.{4})(?P<bottom>.{4})(?P<left>.{4})(?P<top>.{4}).{16}(?P<components>..)",
    re.DOTALL,
)
# JPEG: the start of a frame. Compressed data have no such bytes.
_SOF: Final = re.compile(
    rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf](?P<length>..).(?P<height>..)(?P<width>..)(?P<components>.)", re.DOTALL
)
_QOI: Final = re.compile(rb"qoif(?P<width>.{4})(?P<height>.{4})(?P<components>.)", re.DOTALL)
# WebP: the canvas of animations.
_VP8X: Final = re.compile(rb"RIFF.{4}WEBPVP8X.{4}(?P<flags>.).{3}(?P<width>.{3})(?P<height>.{3})", re.DOTALL)
_ANIMATION: Final = 2
# Markers of JPEG 2000 and JPEG-LS: their first byte, the start of a part of a tile, and the end of the image.
_MARKER: Final = 0xFF
_SOT: Final = b"\xff\x90"
_EOC = _EOI = b"\xff\xd9"
_MOST_TILES: Final = 65535
_CUT: Final = "it ends before the image does"


def _numbers(match: re.Match[bytes]) -> dict[str, int]:
    return {name: int.from_bytes(group, "big") for name, group in match.groupdict().items()}


def _avif(data: bytes) -> int:
    return max((n["width"] * n["height"] for n in map(_numbers, _ISPE.finditer(data))), default=0)


def _jpeg2k(data: bytes) -> int:
    headers = [n for n in map(_numbers, _SIZ.finditer(data)) if n["length"] == 38 + 3 * n["components"]]
    return max(
        (max(n["right"] - n["left"], 0) * max(n["bottom"] - n["top"], 0) * n["components"] for n in headers), default=0
    )


def _htj2k(data: bytes) -> int:
    """Return the size of an image whose sizes fit each other and whose tiles are there to the end of the last one.

    Its decoder does not end where they do not fit, and takes what is missing for zeros.
    """
    match = _SIZ.match(data)
    if match is None:
        raise ValueError("it does not begin with the sizes of an image")
    right, bottom, left, top, *tile = (int.from_bytes(data[at : at + 4], "big") for at in range(8, 40, 4))
    width, height, tile_left, tile_top = tile
    n = _numbers(match)
    grid = (right, left, tile_left, width), (bottom, top, tile_top, height)
    if not all(corner <= start < min(end, corner + length) for end, start, corner, length in grid):
        raise ValueError("the sizes in its header do not fit each other")
    tiles = math.prod(-(-(end - corner) // length) for end, _, corner, length in grid)
    steps = data[43 : 42 + 3 * n["components"] : 3], data[44 : 42 + 3 * n["components"] : 3]
    if n["length"] != 38 + 3 * n["components"] or tiles > _MOST_TILES or not all(map(all, steps)):
        raise ValueError("the numbers of tiles and components in its header do not fit each other")
    place = 2
    while 0 < place < len(data) - 1 and data[place] == _MARKER and data[place : place + 2] != _EOC:
        # The length of a part of a tile, which includes its marker; 0 for all that is left.
        if data[place : place + 2] == _SOT:
            length = int.from_bytes(data[place + 6 : place + 10], "big")
            place = place + max(length, 12) if length else data.rfind(_EOC)
        else:
            place += 2 + max(int.from_bytes(data[place + 2 : place + 4], "big"), 2)
    if data[max(place, 0) : place + 2] != _EOC:
        raise ValueError(_CUT)
    return _jpeg2k(data)


def _jpegls(data: bytes) -> int:
    """Require the end of the image, without which the decoder takes seconds to say so."""
    if _EOI not in data:
        raise ValueError(_CUT)
    return 0


def _jpeg(data: bytes) -> int:
    headers = [n for n in map(_numbers, _SOF.finditer(data)) if n["length"] == 8 + 3 * n["components"]]
    return max((n["width"] * n["height"] * n["components"] for n in headers), default=0)


def _qoi(data: bytes) -> int:
    match = _QOI.match(data)
    if match is None:
        return 0
    n = _numbers(match)
    return n["width"] * n["height"] * n["components"]


def _webp(data: bytes) -> int:
    match = _VP8X.match(data)
    if match is None or not match["flags"][0] & _ANIMATION:
        return 0
    width, height = (1 + int.from_bytes(match[name], "little") for name in ("width", "height"))
    return 3 * width * height


def _gif(data: bytes) -> int:
    """Return the sum of all images, which are unpacked one by one."""

    def colors(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    total = 0
    try:
        place = 13 + colors(data[10])
        while data[place] in b"!,":
            if data[place] == ord(","):
                width, height = (int.from_bytes(data[place + i : place + i + 2], "little") for i in (5, 7))
                total += width * height
                place += 11 + colors(data[place + 9])
            else:
                place += 2
            while data[place]:
                place += 1 + data[place]
            place += 1
    except IndexError:
        # The decoder says what is wrong; it may unpack images that are cut first.
        pass
    return total


_READERS: Final[dict[str, Callable[[bytes], int]]] = {
    "imagecodecs_avif": _avif,
    "imagecodecs_gif": _gif,
    "imagecodecs_heif": _avif,
    "imagecodecs_htj2k": _htj2k,
    "imagecodecs_jpeg2k": _jpeg2k,
    "imagecodecs_jpegls": _jpegls,
    "imagecodecs_ljpeg": _jpeg,
    "imagecodecs_qoi": _qoi,
    "imagecodecs_ultrahdr": _jpeg,
    "imagecodecs_webp": _webp,
}


def _unpacked_lerc(data: bytes, limit: int) -> bytes:
    """Return LERC's blob, which may be compressed; its decoder would unpack it whatever the size."""
    # The blob is hardly larger than the image.
    bound = compressed(BytesRepresentation(limit)).limit_nbytes
    if data[:4] == b"\x28\xb5\x2f\xfd":
        from imagecodecs import zstd_decode

        return bytes(zstd_decode(data, out=bound))
    if data[:2] in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        from imagecodecs import zlib_decode

        return bytes(zlib_decode(data, out=bound))
    return data


def checked_image(name: str, data: Bytes, limit: int, *, all_images: bool) -> Bytes | bytes:
    """Check the size that an image states, if its decoder does not.

    Parameters
    ----------
    name
        The codec's ``id`` in numcodecs.
    data
        The encoded image.
    limit
        The largest number of bytes of the decoded image.
    all_images
        Whether the decoder may make all images of an animation, rather than one.

    Returns
    -------
    Bytes or bytes
        What to give the decoder.

    Raises
    ------
    ValueError
        If the image takes more, at a byte or more a sample, or it is one that its decoder would not end with.
    """
    encoded = data.tobytes()
    if name == "imagecodecs_lerc":
        return _unpacked_lerc(encoded, limit)
    stated = _READERS[name](encoded) if name in _READERS else 0
    if name == "imagecodecs_webp" and all_images:
        stated *= max(encoded.count(b"ANMF"), 1)
    if stated > limit:
        raise ValueError(f"the header states an image of at least {stated} bytes, expected {limit}")
    return data
