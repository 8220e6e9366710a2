"""Arguments that say where nodes are: paths and URLs, and options of a URL's store."""

from __future__ import annotations

import argparse
import json
import os
import re
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.array import Array
    from ..hierarchy.group import Group

#: What is said about options wherever they are taken.
OPTION_HELP: Final = (
    "VALUE is JSON or else text; repeatable. Other users of this machine may see it, so set secrets as environment "
    "variables instead (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, ...)"
)
_URL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+(://|::)", re.IGNORECASE)


def add_location(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the arguments for an existing node.

    Parameters
    ----------
    parser
        Parser of a command.
    what
        Kind of node, such as ``"an array or a group"``.
    """
    parser.add_argument("path", metavar="PATH", help=f"directory or URL of {what}")
    parser.add_argument("--path", dest="node", metavar="NODE", default="", help="path of the node within PATH")
    add_options(parser, "--storage-option", "option of PATH's store, if PATH is a URL, such as region=eu-west-1")


def add_allow_pickle(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the codec that runs code."""
    parser.add_argument(
        "--allow-pickle",
        action="store_true",
        help="allow the codec pickle: reading its elements runs code that is in the data and can do whatever you can, "
        "so only for data whose writer you trust",
    )


def opened(args: argparse.Namespace, device: str = "auto") -> Array | Group:
    """Return the node for arguments of :func:`add_location` and :func:`add_allow_pickle`, open for reading.

    Raises
    ------
    GzarrError
        If it cannot be opened.
    """
    from ..tools.located import locate

    options = options_of(args.storage_option)
    return locate(args.path, path=args.node, allow_pickle=args.allow_pickle, storage_options=options).node(device)


def find_places(args: argparse.Namespace) -> None:
    """Replace ``~`` at the beginning of local paths, and take the node of ``PATH#NODE``, in parsed arguments.

    Raises
    ------
    ArgumentError
        If a node is named twice.
    """
    for name, node in (("path", "node"), ("source", "node"), ("dest", "dest_path")):
        path = getattr(args, name, None)
        if not isinstance(path, str) or is_url(path):
            continue
        # Not by pathlib, which would also rewrite "a//b".
        path = os.path.expanduser(path)  # noqa: PTH111
        # A name with "#" that is there means itself.
        begin, mark, below = path.rpartition("#")
        if mark and begin and not os.path.lexists(path):
            if getattr(args, node, ""):
                raise ArgumentError(f"{path!r} names a node, and so does --{node.replace('node', 'path')}; give one")
            path = begin
            setattr(args, node, below.strip("/"))
        setattr(args, name, path)


def add_options(parser: argparse.ArgumentParser, flag: str, what: str) -> None:
    """Add a flag for options of a store."""
    parser.add_argument(
        flag, action="append", type=_option, default=[], metavar="NAME=VALUE", help=f"{what}. {OPTION_HELP}"
    )


def options_of(*options: Sequence[tuple[str, Any]]) -> dict[str, Any] | None:
    """Return options as storage options, the last of a name; None if there are none."""
    return dict(option for some in options for option in some) or None


def is_url(path: str) -> bool:
    """Return whether a path is a URL that takes options."""
    return _URL.match(path) is not None


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        # The text may be a secret.
        raise argparse.ArgumentTypeError("an option is NAME=VALUE, such as region=eu-west-1 or skip_signature=true")
    try:
        return name.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return name.strip(), value
