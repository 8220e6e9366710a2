"""``gzarr copy SRC DST``: copy an array or a hierarchy, optionally to another format, chunk shape or codec chain."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..display import printable
from ..errors import GzarrError
from .bench import parse_size
from .locations import add_allow_pickle, add_options, is_url, options_of
from .output import add_output, print_json, say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..tools.planned_copy import Copy

_FORMATS = (1, 2, 3, "3-draft-2022")
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def chunk_shape(text: str) -> Any:
    """Return the argument ``chunks`` of :func:`gzarr.copy` for a text of the command line."""
    if text in ("auto", "keep"):
        return text
    if "=" in text:
        return _by_name(text)
    try:
        lengths = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        lengths = ()
    if not lengths or any(n < 1 and n != -1 for n in lengths):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape; pass lengths such as 64,64,64 (-1 for a whole dimension), lengths by the names "
            "of axes such as z=16,y=64,x=64, auto or keep"
        )
    return lengths[0] if len(lengths) == 1 else lengths


def _by_name(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, length = part.rpartition("=")
        name = name.strip()
        try:
            number = int(length)
        except ValueError:
            number = 0
        if not name or name in found or (number < 1 and number != -1):
            raise argparse.ArgumentTypeError(
                f"{text!r}: {part!r} does not give a length to an axis; pass for example c=1,z=16,y=64,x=64 (-1 for "
                "all of an axis), each name once"
            )
        found[name] = number
    return found


def _zarr_format(text: str) -> int | str:
    # "choices" refuses all others.
    return int(text) if text in ("1", "2", "3") else text


def shard_shape(text: str) -> Any:
    """Return the argument ``shards`` of :func:`gzarr.copy` for a text of the command line."""
    return None if text == "none" else chunk_shape(text)


def parse_codecs(text: str) -> Any:
    """Parse codecs from the command line.

    Parameters
    ----------
    text
        ``"auto"``, ``"keep"``, ``"none"``, one codec or a list of codecs in JSON, or names joined by ``+``, with their
        parameters: ``zstd:LEVEL``, ``gzip:LEVEL``, ``blosc:COMPRESSOR:LEVEL:SHUFFLE``, ``crc32c``.

    Returns
    -------
    The argument ``codecs`` of :func:`gzarr.create_array`, or ``"keep"``.

    Raises
    ------
    argparse.ArgumentTypeError
        If ``text`` is none of these.
    """
    if text in ("auto", "keep"):
        return text
    if text == "none":
        return []
    if text.lstrip().startswith(("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise argparse.ArgumentTypeError(f"{printable(repr(text))} is not JSON: {error}") from None
    return [_codec(part, text) for part in text.split("+")]


def _codec(part: str, text: str) -> dict[str, Any]:
    name, *rest = part.strip().split(":")
    configuration: dict[str, Any] = {}
    try:
        if name == "blosc":
            for value, key in zip(rest, ("cname", "clevel", "shuffle"), strict=False):
                configuration[key] = int(value) if key == "clevel" else value
            rest = rest[3:]
            if configuration.get("shuffle", "shuffle") not in _SHUFFLES:
                raise ValueError
        elif rest:
            configuration["level"] = int(rest.pop(0))
        if not name or rest:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: {part!r} is not a codec; pass for example zstd:3, blosc:lz4:5:shuffle, gzip:6+crc32c, auto, "
            "keep, none, or JSON"
        ) from None
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the arguments common to all commands that copy."""
    parser.add_argument("source", metavar="SRC", help="directory or URL of an array or a group")
    parser.add_argument("dest", metavar="DST", help="directory or URL to copy to; created if absent")
    parser.add_argument("--path", dest="node", metavar="NODE", default="", help="path of the node within SRC")
    parser.add_argument("--dest-path", metavar="NODE", default="", help="path of the copy within DST")
    add_options(parser, "--source-option", "option of SRC's store, if SRC is a URL, such as region=eu-west-1")
    add_options(parser, "--dest-option", "option of DST's store, if DST is a URL")
    add_options(parser, "--storage-option", "option of the stores of both, where they are URLs")
    parser.add_argument(
        "--zarr-format",
        type=_zarr_format,
        choices=_FORMATS,
        metavar="N",
        help="Zarr format of the copy: 1, 2, 3 or 3-draft-2022",
    )
    parser.add_argument("--device", default="cpu", help="device that decodes and encodes: cpu (default), cuda, cuda:N")
    parser.add_argument(
        "--budget", type=parse_size, default=None, metavar="SIZE", help="approximate memory limit (default 256MiB)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--overwrite", action="store_true", help="erase an existing node and everything below it first")
    what.add_argument(
        "--resume", action="store_true", help="continue an interrupted copy, after comparing existing data"
    )
    parser.add_argument(
        "--read-back", action="store_true", help="read everything back after writing, and compare it bit by bit"
    )
    parser.add_argument(
        "--lossy", action="store_true", help="copy also what some reader will see less of, and say what that is"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what will change, and write nothing")
    add_allow_pickle(parser)
    add_output(parser)
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="copy in the workers of a dask cluster, by the address of its scheduler, such as tcp://10.0.0.1:8786",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr copy``."""
    add_where(parser)
    parser.add_argument(
        "--chunks",
        type=chunk_shape,
        default="keep",
        metavar="SHAPE",
        help="chunk shape in elements, such as 64,64,64; lengths by axis, such as z=16,y=64,x=64; auto; or keep "
        "(default)",
    )
    parser.add_argument(
        "--shards",
        type=shard_shape,
        default="keep",
        metavar="SHAPE",
        help="shard shape in elements, or lengths by axis; auto, none or keep (default)",
    )
    parser.add_argument(
        "--codecs",
        type=parse_codecs,
        default="keep",
        metavar="CODECS",
        help="auto, keep (default), none, names such as zstd:3 or blosc:lz4:5:shuffle+crc32c, or JSON",
    )


def run(args: argparse.Namespace) -> int:
    """Copy, and print a summary.

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
        If the copy fails. An incomplete copy can be resumed.
    """
    planned = prepare(args, chunks=args.chunks, shards=args.shards, codecs=args.codecs)
    if not args.dry_run:
        execute(planned, args.dask)
    if args.json:
        print_json(document(planned, args))
        return 0
    if args.dry_run:
        for line in _planned_changes(planned):
            print(line)
    for node, lost in planned.differences.losses.items():
        for line in lost:
            print(f"{printable(node)}: {printable(line)}", file=sys.stderr)
    say(args, summary(planned, args))
    return 0


def document(planned: Copy, args: argparse.Namespace) -> dict[str, Any]:
    """Return a copy, planned or finished, as JSON; docs/command-line.md has the keys."""
    from .documents import storage

    return {
        "dry_run": args.dry_run,
        "zarr_format": list(planned.differences.formats),
        "groups": len(planned.groups),
        "arrays": [
            {
                "node": array.source.name,
                "shape": list(array.source.shape),
                "dtype": str(array.source.dtype),
                "from": storage(array.source.metadata),
                "to": storage(array.metadata),
            }
            for array in planned.arrays
        ],
        "changes": planned.differences.changes,
        "losses": planned.differences.losses,
        "consolidated": [f"/{path}" for path in planned.consolidated],
        "other_values": {} if planned.others is None else planned.others.counts,
        "parts_written": planned.written,
        # What is there already is compared only when it is copied.
        "parts_present": None if args.dry_run else planned.kept,
        "read_back": bool(args.read_back and not args.dry_run),
    }


def _planned_changes(planned: Copy) -> Iterator[str]:
    """Yield a line for each array, and for each thing that the copy says otherwise."""
    from .documents import storage

    before, after = planned.differences.formats
    if before != after:
        yield f"Zarr format {before} becomes {after}"
    for array in planned.arrays:
        now, then = storage(array.source.metadata), storage(array.metadata)
        line = f"{printable(array.source.name)}  {array.source.shape} {array.source.dtype}: {_text(now)}"
        yield line if now == then else f"{line} → {_text(then)}"
        for change in planned.differences.changes.get(array.source.name, ()):
            yield f"  {printable(change)}"
    of_arrays = {array.source.name for array in planned.arrays}
    for node, changes in planned.differences.changes.items():
        if node not in of_arrays:
            yield from (f"{printable(node)}  {printable(change)}" for change in changes)
    yield from lines_of_other_values(planned)


def lines_of_other_values(planned: Copy) -> Iterator[str]:
    """Yield a line for each key or prefix of values that are part of no node."""
    counts = {} if planned.others is None else planned.others.counts
    for key, count in counts.items():
        yield f"{printable(key)}  {counted(count, 'other value')}, copied as {'it is' if count == 1 else 'they are'}"


def _text(stored: dict[str, Any]) -> str:
    shards = "" if stored["shards"] is None else f", shards {stored['shards']}"
    return printable(f"chunks {stored['chunks']}{shards}, {' + '.join(stored['codecs'])}", 500)


def prepare(
    args: argparse.Namespace, *, chunks: Any, shards: Any, codecs: Any, kept_arrays: Collection[str] = ()
) -> Copy:
    """Return the planned copy for arguments of :func:`add_where`."""
    from ..tools.copy import prepare_copy
    from ..tools.copy_options import DEFAULT_BUDGET_BYTES, CopyOptions

    options = CopyOptions(
        zarr_format=args.zarr_format,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        device=args.device,
        overwrite=args.overwrite,
        resume=args.resume,
        read_back=args.read_back,
        lossy=args.lossy,
        budget_bytes=args.budget or DEFAULT_BUDGET_BYTES,
        allow_pickle=args.allow_pickle,
    )
    planned = prepare_copy(
        args.source,
        args.dest,
        options,
        path=args.node,
        dest_path=args.dest_path,
        source_options=options_of(args.storage_option if is_url(args.source) else (), args.source_option),
        dest_options=options_of_dest(args),
        kept_arrays=kept_arrays,
    )
    if args.dask is not None:
        # Also in a dry run, before the workers are asked for.
        planned.check_shared()
    return planned


def options_of_dest(args: argparse.Namespace) -> Any:
    """Return the options of the destination's store for arguments of :func:`add_where`."""
    return options_of(args.storage_option if is_url(args.dest) else (), args.dest_option)


def execute(planned: Copy, address: str | None = None) -> None:
    """Copy, with a progress bar on a terminal.

    Parameters
    ----------
    planned
        The copy.
    address
        Address of a scheduler of dask, whose workers copy; None for this process.
    """
    with contextlib.ExitStack() as stack:
        client = None if address is None else stack.enter_context(_connected(address))
        try:
            planned.run(client)
        except (KeyboardInterrupt, GzarrError):
            print("gzarr: the copy is not complete; run the same command with --resume to continue", file=sys.stderr)
            raise


def _connected(address: str) -> contextlib.AbstractContextManager[Any]:
    connection: contextlib.AbstractContextManager[Any] = plugins.integration("dask").connected(address)
    return connection


def summary(planned: Copy, args: argparse.Namespace) -> str:
    """Return a one-line summary of a copy, planned or finished."""
    arrays, groups = counted(len(planned.arrays), "array"), counted(len(planned.groups), "group")
    nodes = f"{arrays} and {groups}"
    if planned.others is not None:
        nodes = f"{arrays}, {groups} and {counted(planned.others.total, 'other value')}"
    if args.dry_run:
        return f"{nodes}: nothing written"
    present = f", {planned.kept:,} already present" if args.resume else ""
    checked = ", read back and compared" if args.read_back else ""
    return f"{nodes}: {counted(planned.written, 'part')} written{present}{checked}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as ``"2 arrays"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
