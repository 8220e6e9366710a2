"""``gzarr view PATH``: a picture of an OME-Zarr image, of labels, a plate or a well, in the terminal or in a file."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, NodeTypeError
from ..progress import is_terminal
from .locations import add_location, options_of
from .output import add_output, print_json, say

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..ome import Image, Plate, Well

    Pixels = npt.NDArray[np.uint8]

#: Pixels of the longer side: in a file, and in a terminal that shows pixels.
_FILE_SIZE: Final = 1024
_TERMINAL_SIZE: Final = 512
_KINDS: Final = ("auto", "kitty", "sixel", "blocks")


def _z(text: str) -> Any:
    if text in ("max", "mean", "middle"):
        return text
    begin, colon, end = text.partition(":")
    try:
        return slice(_end(begin), _end(end)) if colon else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not max, mean, middle, a plane, or planes such as 3:8") from None


def _end(text: str) -> int | None:
    return int(text) if text else None


def _level(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a level; pass a number such as 0, or auto") from None


def _size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; pass a number of pixels, at least 1")
    return size


def _time(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an index; pass an integer such as 0") from None


def _channels(text: str) -> list[int | str]:
    try:
        return [int(part) if part.isdecimal() else part for part in text.split(",")]
    except ValueError:
        # Python reads thousands of digits as no number.
        raise argparse.ArgumentTypeError("a number is too long; pass numbers or names of channels") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr view``."""
    add_location(parser, "an OME-Zarr image, labels, a plate or a well")
    parser.add_argument("--out", metavar="FILE", help="write a PNG file instead of showing the picture")
    parser.add_argument(
        "--size", type=_size, metavar="N", help="pixels of the longer side (default: 1024 in a file, 512 in a terminal)"
    )
    parser.add_argument(
        "--channels",
        type=_channels,
        metavar="C,…",
        help="numbers or names of the channels (default: those that the image says are active)",
    )
    parser.add_argument(
        "--z",
        type=_z,
        default="max",
        metavar="Z",
        help="largest element along z (max, the default), mean, middle, a plane, or the largest of planes such as 3:8",
    )
    parser.add_argument("--time", type=_time, metavar="T", help="index along the axis of time")
    parser.add_argument(
        "--level", type=_level, default="auto", metavar="N", help="level to read (default: auto, which suits the size)"
    )
    parser.add_argument(
        "--graphics",
        choices=_KINDS,
        default="auto",
        help="how a terminal shows it: kitty, sixel, blocks of Unicode, or auto (default), which asks the terminal",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Show the picture, or write the file.

    Parameters
    ----------
    args
        Arguments as defined by :func:`add_arguments`.

    Returns
    -------
    0.

    Raises
    ------
    GzarrError
        If there is no picture.
    """
    from ..display.png import write_png
    from ..ome.picture_methods import check_name

    # What has no picture needs no file for it.
    node = _opened(args)
    check_name(args.out)
    shows = args.out is None and not args.json
    if shows and args.graphics == "auto" and not is_terminal(sys.stdout):
        raise ArgumentError("the output is not a terminal: pass --out FILE.png, or --graphics blocks for characters")
    graphics = _graphics(args.graphics) if shows else None
    columns, lines = shutil.get_terminal_size()
    size = args.size or (_FILE_SIZE if not shows else _TERMINAL_SIZE)
    if graphics == "blocks":
        # A line shows two pixels; the last line is the prompt's.
        size = max(1, min(size, max(columns, 2 * (lines - 1))))
    kind, name, pixels = _picture(node, args, size)
    if graphics == "blocks":
        pixels = _fitting(pixels, columns, 2 * max(1, lines - 1))
    if args.out is not None:
        write_png(pixels, args.out)
        say(args, f"{args.out}: {pixels.shape[1]} × {pixels.shape[0]}")
    if args.json:
        shape = [int(n) for n in pixels.shape[:2]]
        print_json({"node": name, "kind": kind, "shape": shape, "out": args.out})
    if graphics is not None:
        sys.stdout.write(_text(pixels, graphics))
    return 0


def _opened(args: argparse.Namespace) -> Image | Plate | Well:
    """Return the node that a picture is asked of."""
    from ..ome import Collection, Image, Plate, Scene, Well, open

    node = open(args.path, path=args.node, device="cpu", storage_options=options_of(args.storage_option))
    if isinstance(node, Collection):
        node = node[0]
    if not isinstance(node, Image | Plate | Well):
        names = ", ".join(map(repr, node)) or "none"
        if isinstance(node, Scene):
            raise NodeTypeError(f"this group is a scene of images ({names}); name one: {args.path}#NAME")
        raise NodeTypeError(f"this group lists labels ({names}); name one: {args.path}#labels/NAME")
    return node


def _picture(node: Image | Plate | Well, args: argparse.Namespace, size: int) -> tuple[str, str, Pixels]:
    """Return what a node is, its name, and its picture in host memory."""
    from ..ome import Image, Plate, Well
    from ..ome.metadata.model import Axis
    from ..ome.mosaics import plate_pixels, well_pixels
    from ..ome.rendering import Look, PlannedPicture

    others: tuple[tuple[str, Any], ...] = ()
    if args.time is not None:
        # Images of a plate are opened later, and have the names of the specification.
        axes = node.axis_details if isinstance(node, Image) else (Axis("t", "time"),)
        times = [axis.name for axis in axes if axis.type == "time"]
        if not times:
            raise ArgumentError(f"{node.group.name!r} has no axis of time; leave --time out")
        others = ((times[0], args.time),)
    look = Look(c=args.channels, z=args.z, level=args.level, size=size, others=others)
    if isinstance(node, Plate):
        return "plate", node.group.name, plate_pixels(node, look, 0)
    if isinstance(node, Well):
        return "well", node.group.name, well_pixels(node, look)
    kind = "labels" if node.image_label is not None else "image"
    return kind, node.group.name, PlannedPicture(node, look).small_pixels(size)


def _fitting(pixels: Pixels, columns: int, rows: int) -> Pixels:
    """Return a picture with at most this number of columns and rows of pixels."""
    from ..ome.coloring import smaller

    height, width, _ = pixels.shape
    factor = min(1.0, columns / width, rows / height)
    return smaller(pixels, max(1, int(max(height, width) * factor)))


def _graphics(wanted: str) -> str:
    if wanted != "auto":
        return wanted
    from .terminal_questions import graphics_of

    return graphics_of()


def _text(pixels: Pixels, graphics: str) -> str:
    from ..display import terminal_graphics as drawn

    if graphics == "kitty":
        return drawn.kitty(pixels)
    if graphics == "sixel":
        return drawn.sixel(pixels)
    return drawn.half_blocks(pixels, colors=_colors())


def _colors() -> int:
    """Return how many colours the terminal has, as far as its variables tell."""
    if os.environ.get("NO_COLOR"):
        return 0
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ.get("TERM", "")
    if term in ("", "dumb"):
        return 0
    return 1 << 24 if "direct" in term or "kitty" in term else 256
