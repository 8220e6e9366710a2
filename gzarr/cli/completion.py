"""``gzarr completion SHELL``: print a script by which a shell completes commands and options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..installing import COMMANDS

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr completion``."""
    parser.add_argument(
        "shell",
        choices=["bash", "zsh", "tcsh"],
        help='the shell; in bash, eval "$(gzarr completion bash)" in ~/.bashrc',
    )


def run(args: argparse.Namespace) -> int:
    """Print the script.

    Parameters
    ----------
    args
        Arguments as defined by :func:`add_arguments`.

    Returns
    -------
    0.

    Raises
    ------
    ArgumentError
        If shtab, which writes it, is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise ArgumentError(f"this needs the package shtab: {COMMANDS['completion']} ({error})") from error
    from .main import make_parser

    script: str = shtab.complete(make_parser(whole=True), args.shell)
    print(script)
    return 0
