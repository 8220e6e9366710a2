"""Command line: ``gzarr info``, ``tree``, ``bench``, ``doctor``, and the commands in modules of their own.

Exit codes: 0 success; 1 a problem with the data, the store or the device (one line on stderr, or the report of
``doctor`` or ``verify``); 2 wrong usage; 130 interrupted. :mod:`gzarr.cli.output` has what all commands say alike.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from .. import __version__
from ..errors import ArgumentError, GzarrError, NodeNotFoundError, UnsupportedError
from ..progress import watch
from . import output, streams
from .locations import add_allow_pickle, add_location, find_places, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _typeshed import SupportsWrite

    from ..arrays.array import Array
    from ..hierarchy.group import Group

    T = TypeVar("T")

# Each is a module of this package.
_MORE_COMMANDS = {
    "verify": "decode every stored chunk, and list corrupt and missing chunks",
    "copy": "copy an array or a hierarchy, optionally to another format, chunk shape or codec chain",
    "optimize": "copy to chunks, shards and codecs that suit a GPU, after showing what will change",
    "consolidate": "write the consolidated metadata of a group",
    "pyramid": "add levels to an OME-Zarr image, or make an image of an array in a group",
    "view": "show a picture of an OME-Zarr image, labels, a plate or a well",
    "completion": "print a script by which a shell completes commands and options",
}


# Options whose values may begin with -1.
_SHAPES = ("--chunks", "--shards")


class _Parser(argparse.ArgumentParser):
    """Parser that adds its arguments on first use, so that a command does not load the modules of the others."""

    add_later: Callable[[argparse.ArgumentParser], None] | None = None

    def add_now(self) -> None:
        """Add deferred arguments."""
        if self.add_later is not None:
            add, self.add_later = self.add_later, None
            add(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add deferred arguments, then parse."""
        self.add_now()
        return super().parse_known_args(args, namespace)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print help, the version or an error; argparse would pass over a stdout that takes nothing (a full disk)."""
        if message and file is not None and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def _add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    from . import bench

    bench.add_arguments(parser)


def _bench(args: argparse.Namespace) -> int:
    from . import bench

    code: int = bench.run(args)
    return code


def _doctor(args: argparse.Namespace) -> int:
    from . import doctor

    return doctor.run(args.device, as_json=args.json)


def _of_module(name: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]:
    """Return functions that add the arguments of a command and run it; its module is loaded on first use."""

    def add(parser: argparse.ArgumentParser) -> None:
        import_module(f"gzarr.cli.{name}").add_arguments(parser)

    def run(args: argparse.Namespace) -> int:
        code: int = import_module(f"gzarr.cli.{name}").run(args)
        return code

    return add, run


def _level(text: str) -> int:
    try:
        level = int(text)
    except ValueError:
        level = -1
    if level < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a level; pass 0 for the children only, or a larger integer")
    return level


def make_parser(*, whole: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands; unless it is ``whole``, options of modules of their own come when needed."""
    parser = _Parser(prog="gzarr", description="Inspect, check, copy and benchmark Zarr arrays and hierarchies.")
    parser.add_argument("--version", action="version", version=f"gzarr {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    info = commands.add_parser("info", help="show the properties of an array or a group, and its size in the store")
    tree = commands.add_parser("tree", help="show a hierarchy as a tree")
    for command in (info, tree):
        add_location(command, "an array or a group")
        add_allow_pickle(command)
        output.add_output(command)
    tree.add_argument(
        "--level", type=_level, metavar="N", help="deepest level to show: 0 for the children only (default: all)"
    )
    info.add_argument(
        "--full",
        action="store_true",
        help="count all chunks of an array in a remote store, however long that takes",
    )
    info.add_argument(
        "--strict",
        action="store_true",
        help="list departures from the specification that are tolerated; exit code 1 if there are any",
    )
    info.set_defaults(run=_info, parser=info)
    tree.set_defaults(run=_tree, parser=tree)

    bench = commands.add_parser("bench", help="measure how fast arrays are read, compared with other libraries")
    bench.add_later = _add_bench_arguments
    bench.set_defaults(run=_bench, parser=bench)

    doctor = commands.add_parser("doctor", help="check this machine for reading to a GPU, and test every codec")
    doctor.add_argument(
        "--device", default="auto", metavar="DEVICE", help="device to test: auto (default), cpu, cuda or cuda:N"
    )
    output.add_output(doctor)
    doctor.set_defaults(run=_doctor)

    for name, summary in _MORE_COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.add_later, run = _of_module(name)
        command.set_defaults(run=run, parser=command)
    for command in commands.choices.values() if whole else ():
        command.add_now()
    return parser


def _joined(argv: Sequence[str]) -> list[str]:
    """Return arguments in which shapes that begin with -1 belong to their option: they look like options, too."""
    found: list[str] = []
    for text in argv:
        if found and found[-1] in _SHAPES and text.startswith("-1"):
            found[-1] += f"={text}"
        else:
            found.append(text)
    return found


def _parsed(argv: Sequence[str] | None) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    """Return the arguments, and the parser of their command; an error in a command's is said with its usage."""
    parser = make_parser()
    args, unknown = parser.parse_known_args(_joined(sys.argv[1:] if argv is None else argv))
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    command: argparse.ArgumentParser = commands.choices[args.command]
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args, command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    argv
        Arguments without the program name; None for the process's own.

    Raises
    ------
    SystemExit
        By the parser: with 2 for wrong usage, with 0 for ``--help`` and ``--version``.
    """
    _open_streams()
    code = 0
    with streams.for_any_reader():
        try:
            try:
                code = _answer(argv)
            finally:
                # Also after --help, which raises SystemExit.
                sys.stdout.flush()
        except OSError as exc:
            if exc.filename is not None:
                # It is not about the output, which has no name.
                raise
            _drop_output()
            return _fail(f"cannot write the output: {exc.strerror or exc}", code or 1)
    return code


def _answer(argv: Sequence[str] | None) -> int:
    """Run a command, and say its errors; return the exit code."""
    command = argparse.ArgumentParser()
    try:
        args, command = _parsed(argv)
        with output.logged(args):
            find_places(args)
            code: int = args.run(args)
    except KeyboardInterrupt:
        print("gzarr: interrupted", file=sys.stderr)
        return 130
    except GzarrError as exc:
        return _fail(output.in_options(str(exc), command), 2 if isinstance(exc, ArgumentError) else 1)
    except MemoryError:
        return _fail("not enough memory", 1)
    return code


def _open_streams() -> None:
    """Give this process streams that can be written: Python has none for one that was closed (``>&-``)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors != "backslashreplace":
        # Names in a store may contain bytes that cannot be encoded as text; better escaped than an error.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Drop what stdout does not take, so that flushing it at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        streams.lead_nowhere(sys.stdout.fileno())


def _fail(what: object, code: int) -> int:
    from ..display import printable

    print(f"gzarr: error: {printable(what, 2000)}", file=sys.stderr)
    return code


def _tree(args: argparse.Namespace) -> int:
    from ..display import Tree, array_repr
    from ..hierarchy.group import Group
    from . import ome, terminal

    node = opened(args)
    if args.json:
        from . import documents

        output.print_json(documents.tree(node, args.level, args.parser))
    elif isinstance(node, Group):
        root = f"{node.name}{ome.note(node)}"
        terminal.show_tree(Tree(root, output.members(node, args.level, args.parser), ome.note))
    else:
        print(array_repr(node))
    return 0


def _info(args: argparse.Namespace) -> int:
    from ..hierarchy.group import Group

    node = opened(args)
    departures, unsupported = _departures(node, args) if args.strict else (None, [])
    if args.json:
        from . import documents

        document = documents.node(node, args.parser, full=args.full)
        if departures is not None:
            document["departures"] = [{"node": path, "departure": text} for path, text in departures]
            document["unsupported"] = [{"node": path, "reason": text} for path, text in unsupported]
        output.print_json(document)
    else:
        if isinstance(node, Group):
            _print_group(node, args.parser)
        else:
            _print_array(node, full=args.full)
        if departures is not None:
            _print_departures(departures, unsupported)
    return 1 if departures else 0


def _departures(node: Array | Group, args: argparse.Namespace) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return what departs from the specification in a node and everything below it: the path, and what it is.

    Returns
    -------
    departures
        Departures that are tolerated, and what is malformed.
    unsupported
        What gzarr does not read, though it may be as specified.
    """
    from ..documents.departures import collect
    from ..hierarchy.open import Group, open
    from ..stores.base import is_listable
    from ..stores.keys import join_path
    from ..stores.zip_reader import ZipReader
    from ..tools.located import locate
    from . import ome

    paths, groups = [node.path], set[str]()
    if isinstance(node, Group):
        own = locate(node.store, path=node.path, use_consolidated=False).node()
        assert isinstance(own, Group)
        below = {join_path(node.path, path): found for path, found in own.walk()}
        paths += below
        groups = {node.path, *(path for path, found in below.items() if isinstance(found, Group))}
    found_all, unsupported = [], []
    if isinstance(node.store, ZipReader):
        found_all += [("/", f"OME: {rule}") for rule in node.store.broken_rules()]
    for path in watch(paths, "reading metadata"):
        with collect() as tolerated:
            try:
                found = open(
                    node.store, path=path, use_consolidated=False, device="cpu", allow_pickle=args.allow_pickle
                )
                tolerated += ome.broken_rules(found)
            except UnsupportedError as error:
                unsupported.append((f"/{path}", output.in_options(str(error), args.parser)))
            except NodeNotFoundError as error:
                # Where nothing can be listed, consolidated metadata names groups that have no document.
                if is_listable(node.store) or path not in groups:
                    tolerated.append(str(error))
            except GzarrError as error:
                tolerated.append(str(error))
        found_all += [(f"/{path}", text) for text in tolerated]
    return found_all, unsupported


def _print_departures(departures: Sequence[tuple[str, str]], unsupported: Sequence[tuple[str, str]]) -> None:
    from ..display import printable

    print("\nDepartures from the specification:" if departures else "\nNo departures from the specification.")
    for path, text in departures:
        print(f"  {printable(f'{path} {text}', 400)}")
    if unsupported:
        print("\nNot read, though it need not depart from the specification:")
    for path, text in unsupported:
        print(f"  {printable(f'{path} {text}', 400)}")


def _print_group(group: Group, parser: argparse.ArgumentParser) -> None:
    from ..display import Info, Tree
    from . import ome, terminal

    terminal.show_info(Info([*group.info.rows, *ome.rows(group)]))
    terminal.show_tree(Tree(group.name, output.members(group, 0, parser), ome.note), root=False)


def _print_array(array: Array, *, full: bool) -> None:
    from ..arrays.storage import storage_rows
    from ..display import Info, array_info
    from . import terminal

    terminal.show_info(Info([*array_info(array).rows, *storage_rows(array, full=full)]))
