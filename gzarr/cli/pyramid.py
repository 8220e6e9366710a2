"""``gzarr pyramid PATH``: add levels to an OME-Zarr image, or make an image of an array in a group."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ..display import printable
from ..errors import GzarrError
from ..progress import watch
from .bench import parse_size
from .locations import add_location, options_of
from .output import add_output, print_json, say

if TYPE_CHECKING:
    from ..ome.writing.pyramid import Pyramid


def parse_levels(text: str) -> int | str:
    """Parse a number of levels, or ``"auto"``, from the command line.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is neither, or there cannot be so many.
    """
    from ..ome.writing.plan import MOST_LEVELS

    if text == "auto":
        return text
    try:
        levels = int(text)
    except ValueError:
        levels = 0
    # Here, since `gzarr optimize` makes levels last.
    if not 1 <= levels <= MOST_LEVELS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of levels; pass an integer from 1 to {MOST_LEVELS}, such as 4, or auto"
        )
    return levels


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} are not distances; pass a number for each axis, such as 2,0.5,0.5"
        ) from None


def _factors(text: str) -> Any:
    """Return a factor for all axes of space, or one for each of some axes."""
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in text.split(",")]
        return {name: int(factor) for name, _, factor in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a factor, such as 2, nor factors of axes, such as z=1,y=2,x=2"
        ) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr pyramid``."""
    add_location(parser, "an OME-Zarr image, or an array in a group")
    parser.add_argument(
        "--levels",
        type=parse_levels,
        default="auto",
        metavar="N",
        help="number of levels with level 0; auto (default): until a level fits a chunk",
    )
    parser.add_argument(
        "--factors",
        type=_factors,
        default=None,
        metavar="FACTORS",
        help="factor of each level along axes of space, such as 2, or z=1,y=2,x=2 (default: 2, but 1 along axes whose "
        "spacing is far above the smallest)",
    )
    parser.add_argument(
        "--method",
        default=None,
        metavar="METHOD",
        help="mean (default), mode (default for labels), nearest, max or gaussian",
    )
    parser.add_argument("--axes", default=None, metavar="AXES", help="of an array: names of its axes, such as tczyx")
    parser.add_argument(
        "--scale",
        type=_numbers,
        default=None,
        metavar="SCALE",
        help="of an array: distances of its elements: 2,0.5,0.5",
    )
    parser.add_argument("--units", default=None, metavar="UNIT", help="of an array: unit of its axes of space")
    parser.add_argument("--overwrite", action="store_true", help="erase the levels that there are below level 0")
    parser.add_argument("--dry-run", action="store_true", help="show the levels, and write nothing")
    add_output(parser)
    parser.add_argument("--device", default="cpu", help="device that computes: cpu (default), cuda, cuda:N")
    parser.add_argument(
        "--budget", type=parse_size, default=None, metavar="SIZE", help="approximate memory limit (default 256MiB)"
    )


def run(args: argparse.Namespace) -> int:
    """Make the levels, and print their shapes.

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
        If levels cannot be made. The image then has level 0 only.
    """
    from ..ome.writing.building import DEFAULT_BUDGET_BYTES
    from ..ome.writing.pyramid import DescribedAxes, Downsampling, Pyramid

    planned = Pyramid(
        args.path,
        Downsampling(args.levels, args.factors, args.method),
        path=args.node,
        described=DescribedAxes(args.axes, args.scale, args.units),
        overwrite=args.overwrite,
        device=args.device,
        budget_bytes=args.budget or DEFAULT_BUDGET_BYTES,
        storage_options=options_of(args.storage_option),
    )
    if not args.dry_run:
        execute(planned)
    if args.json:
        levels = [{"shape": list(level.shape)} for level in planned.levels]
        print_json(
            {"node": planned.group.name, "method": planned.method, "added_levels": levels, "dry_run": args.dry_run}
        )
    nothing = ", nothing written" if args.dry_run else ""
    say(args, f"{printable(planned.group.name)}: {len(planned.levels) + 1} levels, {planned.method}{nothing}")
    for level in planned.levels:
        say(args, f"  {' × '.join(map(str, level.shape))}")
    return 0


def execute(planned: Pyramid) -> None:
    """Make the levels, with a progress bar on a terminal."""
    begun = False
    try:
        for _ in watch(planned.steps(), "downsampling", lambda: planned.total, nbytes=planned.nbytes):
            begun = True
    except (KeyboardInterrupt, GzarrError):
        if begun:
            print(
                "gzarr: the levels are not complete, and the image names level 0 only; run the same command with "
                "--overwrite to make them anew",
                file=sys.stderr,
            )
        raise
