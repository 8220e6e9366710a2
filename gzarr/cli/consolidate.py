"""``gzarr consolidate PATH``: write the consolidated metadata of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .locations import add_location, options_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr consolidate``."""
    add_location(parser, "a group")


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

    group = consolidate_metadata(args.path, path=args.node, storage_options=options_of(args.storage_option))
    print(f"{group.name}: {group.nmembers(None):,} nodes")
    return 0
