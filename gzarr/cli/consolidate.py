"""``gzarr consolidate PATH``: write the consolidated metadata of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..display import printable
from .locations import add_location, options_of
from .output import add_output, print_json, say

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr consolidate``."""
    add_location(parser, "a group")
    parser.add_argument("--dry-run", action="store_true", help="say how many nodes there are, and write nothing")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Write the consolidated metadata, and print the number of nodes.

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
        If there is no such group, a node below it cannot be read, or the metadata cannot be written.
    """
    from ..tools.consolidate import check_consolidation, consolidate_metadata

    options = options_of(args.storage_option)
    if args.dry_run:
        name, nodes = check_consolidation(args.path, path=args.node, storage_options=options)
    else:
        group = consolidate_metadata(args.path, path=args.node, storage_options=options)
        name, nodes = group.name, group.nmembers(None)
    if args.json:
        print_json({"node": name, "nodes": nodes, "dry_run": args.dry_run})
    say(args, f"{printable(name)}: {nodes:,} nodes{', nothing written' if args.dry_run else ''}")
    return 0
