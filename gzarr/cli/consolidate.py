"""``gzarr consolidate PATH``: write the consolidated metadata of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr consolidate``."""
    parser.add_argument("path", metavar="PATH", help="directory or file:// URL of a group")
    parser.add_argument("--path", dest="node", metavar="NODE", default="", help="path of the group within PATH")


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
    from ..tools.consolidate import consolidate_metadata

    group = consolidate_metadata(args.path, path=args.node)
    print(f"{group.name}: {group.nmembers(None):,} nodes")
    return 0
