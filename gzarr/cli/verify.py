"""``gzarr verify PATH``: decode every stored chunk of a hierarchy, and list problems.

With ``--json``, one JSON document is printed: ``ok``; ``arrays``, ``groups`` and ``chunks``, the numbers of those
checked; ``unchecked``, how many of these chunks have no checksum; and ``problems``, a list of
:class:`gzarr.tools.verify.Problem` as objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..progress import watch
from .copy import counted
from .locations import add_allow_pickle, add_location, options_of
from .output import add_output, in_options, print_json, say
from .streams import is_read

if TYPE_CHECKING:
    import argparse

    from ..tools.verify import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr verify``."""
    add_location(parser, "an array or a group")
    parser.add_argument(
        "--missing",
        choices=["fill", "error"],
        default="fill",
        help="meaning of absent chunks: the fill value (fill, default), or a problem to be listed (error)",
    )
    add_allow_pickle(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Verify, and print the problems.

    Parameters
    ----------
    args
        Arguments as defined by :func:`add_arguments`.

    Returns
    -------
    0; 1 if there are problems.

    Raises
    ------
    GzarrError
        If the node itself cannot be opened.
    """
    from ..display import printable
    from ..tools.verify import verify

    verification = verify(
        args.path,
        path=args.node,
        missing=args.missing,
        allow_pickle=args.allow_pickle,
        storage_options=options_of(args.storage_option),
    )
    found: list[dict[str, Any]] = []
    count = 0
    for problems in watch(verification.steps(), "decoding chunks"):
        for found_problem in problems:
            count += 1
            problem = replace(found_problem, reason=in_options(found_problem.reason, args.parser))
            if args.json:
                found.append(problem.to_json())
            else:
                print(printable(_line(problem), 2000), flush=True)
                if not is_read():
                    # Nobody is told of others, and the exit code is known.
                    return 1
    if args.json:
        names = ("arrays", "groups", "chunks", "unchecked")
        counts = {name: getattr(verification, name) for name in names}
        print_json({"ok": not count, **counts, "problems": found})
    else:
        if verification.unchecked:
            unchecked = counted(verification.unchecked, "stored chunk")
            say(args, f"{unchecked} without a checksum: damage that can still be decoded is not found there")
        what = f"{counted(verification.chunks, 'stored chunk')} of {counted(verification.arrays, 'array')}"
        say(args, f"{what}: {counted(count, 'problem') if count else 'no problems'}")
    return 1 if count else 0


def _line(problem: Problem) -> str:
    return f"{problem.kind}: {problem}"
