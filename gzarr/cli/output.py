"""What all commands say alike: JSON, more or less text, and messages of the library.

With ``--json``, a command prints one JSON document on stdout and nothing else there; docs/command-line.md has the keys,
which stay. ``-q`` leaves summaries out, ``-v`` adds what the library logs by :mod:`logging`, as ``gzarr.…``.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from ..errors import MetadataError
from ..progress import watch

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from ..hierarchy.group import Group


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of :mod:`gzarr.cli.output`."""
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of text")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument(
        "-v", "--verbose", action="count", default=0, help="say more on stderr: steps and retries; -vv: everything"
    )
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors and what was asked for only")


@contextlib.contextmanager
def logged(args: argparse.Namespace) -> Iterator[None]:
    """Show on stderr what is logged in a block of code, as the arguments of a command say."""
    if not getattr(args, "verbose", 0):
        yield
        return
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("gzarr")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if args.verbose == 1 else logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def print_json(document: Any) -> None:
    """Print a JSON document. Numbers that JSON lacks (NaN, infinities) are strings, as in documents of Zarr 3."""
    print(json.dumps(_plain(document), indent=1, allow_nan=False))


def in_options(text: str, parser: argparse.ArgumentParser) -> str:
    """Return a message of the library in which arguments that a command has as options are named as these.

    ``pass overwrite=True`` becomes ``pass --overwrite``, and ``chunks={'z': 16}`` ``--chunks z=16``. Calls that a
    message shows, and what is quoted, such as paths, stay as they are.
    """
    options: dict[str, str] = {}
    for action in parser._actions:
        for option in action.option_strings:
            # An option may be known by another name to its command than to the library.
            options |= dict.fromkeys((action.dest, option[2:].replace("-", "_")), option) if option[2:] else {}
    if not options:
        return text
    names = "|".join(map(re.escape, options))

    def named(match: re.Match[str]) -> str:
        name, value = match["name"], match["value"]
        if name is None:
            return match[0]
        given = re.sub(r"'(\w+)': ", r"\1=", value or "").strip("'\"{}")
        return options[name] if given in ("", "True") else f"{options[name]} {given}"

    value = r"'[^']*'|\"[^\"]*\"|\{[^{}]*\}|\w+"
    # As repr has it; an apostrophe belongs to a word.
    quoted = r"(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|\"(?:[^\"\\]|\\.)*\""
    return re.sub(rf"[\w.]+\([^()]*\)|{quoted}|(?<![^\s(])(?P<name>{names})=(?P<value>{value})?", named, text)


def members(group: Group, level: int | None, parser: argparse.ArgumentParser) -> Iterator[tuple[str, Any]]:
    """Yield the nodes below a group as :meth:`gzarr.Group.walk`; errors name the options of a command."""
    for path, found in watch(group.walk(level), "reading metadata"):
        node: Any = found
        if isinstance(found, MetadataError):
            node = type(found)(in_options(found.message, parser), json_path=found.json_path, key=found.key)
        yield path, node


def say(args: argparse.Namespace, text: str) -> None:
    """Print a line that is no result, unless that was switched off."""
    if not args.quiet and not args.json:
        print(text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
