"""``gzarr bench PATH``: measure how fast the user's own arrays are read, compared with other installed libraries.

Rounds are interleaved and the median counts. All readers use the same number of threads, and their first results are
compared element by element. A peer that is not installed, or cannot read an array, is only mentioned.

The time of a read includes freeing its result. ``gzarr`` uses new memory for each result, as its peers do.
``gzarr recycled`` is the default of gzarr for large results: it reuses the memory of an earlier result. On a GPU, the
time of gzarr ends when the elements are in its memory, which comes from CuPy's pool; the peers read into host memory.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.host_copies import host_copy
from ..display import printable
from ..engines import result_memory
from ..errors import GzarrError
from ..progress import is_terminal, start_bar
from .locations import add_allow_pickle, add_location, opened
from .output import add_output, members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ..arrays.array import Array
    from ..metadata.model import ZarrFormat

    Selection = tuple[slice, ...]
    #: Its result is an array of NumPy; that of gzarr is one of CuPy if the array is on a GPU.
    Read = Callable[[], Any]

PEERS = ("zarr-python", "zarrs", "tensorstore")
_RECYCLED = "gzarr recycled"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass
class Measured:
    """Measurements of one array."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    decode_path: str
    selection: str
    nbytes: int
    rounds_ms: dict[str, list[float]] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)
    equal: dict[str, bool] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything, with the median and the throughput of each reader."""
        readers = {
            name: {"median_ms": statistics.median(ms), "gb_per_s": self.gb_per_s(name), "rounds_ms": ms}
            for name, ms in self.rounds_ms.items()
        }
        return {**self.__dict__, "rounds_ms": None, "readers": readers}

    def gb_per_s(self, reader: str) -> float:
        """Return decoded gigabytes (1e9 bytes) a second."""
        return self.nbytes / statistics.median(self.rounds_ms[reader]) / 1e6


def parse_size(text: str) -> int:
    """Return a number of bytes: ``2GiB``, ``500 MB``, ``1e6``.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is not a positive number of bytes.
    """
    compact = text.strip().lower().replace(" ", "").removesuffix("b")
    number = compact.rstrip("kmgti")
    try:
        size = int(float(number) * _UNITS[compact[len(number) :]])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; pass for example 500MB or 2GiB")
    return size


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr bench``."""
    add_location(parser, "an array or a group")
    parser.add_argument(
        "--limit",
        type=parse_size,
        default=2 * 2**30,
        metavar="SIZE",
        help="read only a leading part of arrays that are larger than this (default 2GiB)",
    )
    parser.add_argument(
        "--rounds", type=_positive, default=5, metavar="N", help="timed reads; their median is reported (default 5)"
    )
    parser.add_argument("--device", default="auto", help="device of the results: auto (default), cpu, cuda, cuda:N")
    parser.add_argument(
        "--peer",
        action="append",
        choices=[*PEERS, "none"],
        help="compare with this library only (repeatable), or with none (default: all that are installed)",
    )
    add_allow_pickle(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print; return the exit code.

    Parameters
    ----------
    args
        Arguments as defined by :func:`add_arguments`.

    Returns
    -------
    0; 1 if there are no arrays, if a node could not be read, or if a peer's elements differ from gzarr's.

    Raises
    ------
    GzarrError
        If the node cannot be opened.
    """
    from ..hierarchy.group import Group
    from ..stores.keys import join_path

    node = opened(args, device=args.device)
    arrays: list[Array] = []
    failed = False
    for path, found in members(node, None, args.parser) if isinstance(node, Group) else [("", node)]:
        if isinstance(found, GzarrError):
            _say_error(f"/{join_path(node.path, path)}", found)
            failed = True
        elif not isinstance(found, Group):
            arrays.append(found)
    if not arrays and not failed:
        print("gzarr: no arrays found", file=sys.stderr)
        return 1
    peers = [p for p in args.peer or PEERS if p != "none"]
    measured: list[Measured] = []
    with contextlib.ExitStack() as stack:
        bar = start_bar(stack, "measuring", len(arrays)) if is_terminal(sys.stderr) else None
        for done, array in enumerate(arrays):
            if bar is not None:
                bar(done, printable(array.name))
            try:
                measured.append(measure(array, limit_bytes=args.limit, rounds=args.rounds, peers=peers))
            except GzarrError as error:
                _say_error(array.name, error)
                failed = True
    failed = failed or not all(equal for m in measured for equal in m.equal.values())
    if args.json:
        print(json.dumps({"threads": _threads(), "arrays": [m.to_json() for m in measured]}, indent=1))
    else:
        print("\n\n".join(map(_text, measured)))
    return 1 if failed else 0


def _say_error(name: str, error: GzarrError) -> None:
    print(f"gzarr: error: {printable(f'{name}: {error}', 2000)}", file=sys.stderr)


def measure(array: Array, *, limit_bytes: int, rounds: int, peers: Sequence[str]) -> Measured:
    """Read a leading part of ``array`` with gzarr and with peers.

    Parameters
    ----------
    array
        Array to read.
    limit_bytes
        Limit of the result, in bytes.
    rounds
        Number of timed reads by each reader.
    peers
        Names from :data:`PEERS`.

    Raises
    ------
    GzarrError
        If gzarr cannot read it.
    """
    outer = array.shards or array.chunks
    selection = leading_part(array.shape, outer, array.dtype.itemsize, limit_bytes)
    shape = tuple(s.stop for s in selection)
    whole = shape == array.shape
    found = Measured(
        name=array.name,
        shape=array.shape,
        dtype=str(array.dtype),
        decode_path=str(array.decode_path),
        selection="everything" if whole else "[" + ", ".join(f":{n}" for n in shape) + "]",
        nbytes=math.prod(shape) * array.dtype.itemsize,
    )
    reads: dict[str, Read] = {"gzarr": lambda: _complete(array[selection])}
    expected = reads["gzarr"]()
    if not isinstance(expected, np.ndarray):
        expected = host_copy(expected)
    for name in peers:
        try:
            read = _peer(name, array, selection)
            if read is None:
                found.remarks[name] = "not installed"
                continue
            found.equal[name] = _same(read(), expected)
        except Exception as error:  # the limits of other libraries are not errors here
            lines = str(error).strip().splitlines() or [""]
            found.remarks[name] = f"{type(error).__name__}: {lines[0][:150]}"
        else:
            reads[name] = read
    del expected
    if array.device == "cpu" and result_memory.LARGE_BYTES <= found.nbytes <= result_memory.recycle_bytes():
        reads[_RECYCLED] = reads["gzarr"]
    stages: dict[str, float] = {}
    for _ in range(rounds):
        for name, read in reads.items():
            with contextlib.nullcontext() if name == _RECYCLED else _nothing_recycled():
                if name == _RECYCLED:
                    # Memory kept by another reader, or none: prime it with an untimed read.
                    read()
                _take_stages()
                start = time.perf_counter()
                read()
                found.rounds_ms.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
            if name == "gzarr":
                for stage, ms in _take_stages().items():
                    stages[stage] = stages.get(stage, 0.0) + ms
    result_memory.release()
    found.stages_ms = {k: v / rounds for k, v in stages.items() if k.endswith("_ms")}
    return found


def _complete(result: Any) -> Any:
    """Return the result of a read as an array that has its elements: reads to a GPU return before that."""
    # Those of arrays without dimensions are scalars, also of Python: texts.
    if not hasattr(result, "__cuda_array_interface__"):
        return np.asarray(result)
    result.device.synchronize()
    return result


@contextlib.contextmanager
def _nothing_recycled() -> Iterator[None]:
    """Use new memory for large results."""
    before = os.environ.get("GZARR_RECYCLE_BYTES")
    os.environ["GZARR_RECYCLE_BYTES"] = "0"
    # Freeing kept memory is not part of the next read.
    result_memory.release()
    try:
        yield
    finally:
        del os.environ["GZARR_RECYCLE_BYTES"]
        if before is not None:
            os.environ["GZARR_RECYCLE_BYTES"] = before


def leading_part(shape: tuple[int, ...], chunk_shape: tuple[int, ...], itemsize: int, limit_bytes: int) -> Selection:
    """Return the largest leading box of whole chunks within ``limit_bytes`` (at least one chunk's box).

    Parameters
    ----------
    shape, chunk_shape
        Shapes of the array and of its chunks (shards, in a sharded array), in elements.
    itemsize
        Bytes per element.
    limit_bytes
        Limit of the box, in bytes.
    """
    counts = list(shape)
    for d, chunk in enumerate(chunk_shape):
        size = math.prod(counts) * itemsize
        if size <= limit_bytes:
            break
        row = math.prod(counts[:d] + counts[d + 1 :]) * itemsize * chunk
        counts[d] = min(shape[d], max(limit_bytes // row, 1) * chunk)
    return tuple(slice(0, n) for n in counts)


def _threads() -> int:
    from ..engines.pool import thread_count

    return thread_count()


def _take_stages() -> dict[str, float]:
    """Return and reset the counters of the native loop, summed over threads; empty if it was not loaded."""
    native = sys.modules.get("gzarr.engines.cpu.native")
    return {} if native is None else dict(native.take_stats())


def _same(result: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    """Return whether all elements are equal, with NaN and NaT equal to themselves, in any byte order."""
    # zarr-python gives variable-length text in a type of NumPy's own.
    result, expected = (array.astype(object) if array.dtype.kind == "T" else array for array in (result, expected))
    if result.shape != expected.shape or result.dtype.newbyteorder("=") != expected.dtype.newbyteorder("="):
        return False
    if expected.dtype.hasobject or result.dtype.kind in "fcmM":
        return bool(np.all((result == expected) | ((result != result) & (expected != expected))))
    if expected.dtype.kind == "V":
        return bool(np.ascontiguousarray(result).tobytes() == np.ascontiguousarray(expected).tobytes())
    return bool(np.array_equal(result, expected))


def _peer(name: str, array: Array, selection: Selection) -> Read | None:
    """Return a function that reads the same elements with ``name``, or None if it is not installed.

    Raises
    ------
    Exception
        Any error of the peer, for an array that it cannot read.
    """
    from ..stores.base import LocalFiles

    root = array.store.file_root() if isinstance(array.store, LocalFiles) else None
    if root is None:
        raise ValueError("only local files are compared")
    location = f"{os.fsdecode(root)}/{array.path}".rstrip("/")
    try:
        if name == "tensorstore":
            return _tensorstore(location, array.metadata.zarr_format, selection)
        return _zarr_python(location, array.metadata.zarr_format, selection, rust=name == "zarrs")
    except ImportError:
        return None


def _zarr_python(location: str, zarr_format: ZarrFormat, selection: Selection, *, rust: bool) -> Read:
    zarr = importlib.import_module("zarr")
    if rust:
        importlib.import_module("zarrs")
    pipeline = "zarrs.ZarrsCodecPipeline" if rust else "zarr.core.codec_pipeline.BatchedCodecPipeline"
    settings = {"threading.max_workers": _threads(), "codec_pipeline.path": pipeline}
    with zarr.config.set(settings):
        opened = zarr.open_array(location, mode="r", zarr_format=zarr_format)

    def read() -> npt.NDArray[Any]:
        with zarr.config.set(settings):
            return np.asarray(opened[selection])

    return read


def _tensorstore(location: str, zarr_format: ZarrFormat, selection: Selection) -> Read:
    from ..metadata.formats import FORMATS

    ts = importlib.import_module("tensorstore")
    limit = {"limit": _threads()}
    context = {"data_copy_concurrency": limit, "file_io_concurrency": limit, "cache_pool": {"total_bytes_limit": 0}}
    # The driver depends on the kind of metadata document.
    names = FORMATS[zarr_format].document_names
    driver = "zarr3" if "zarr.json" in names else "n5" if "attributes.json" in names else "zarr"
    spec = {
        "driver": driver,
        "kvstore": {"driver": "file", "path": location + "/"},
        "recheck_cached_metadata": False,
        "recheck_cached_data": False,
    }
    opened = ts.open(spec, read=True, context=ts.Context(context)).result()
    if driver == "n5":
        # It has the axes as N5 has them.
        opened = opened.T
    return lambda: np.asarray(opened[selection].read().result())


def _text(m: Measured) -> str:
    """Return the measurements of one array as plain text."""
    lines = [
        f"{printable(m.name)}  {m.shape} {printable(m.dtype)}",
        f"  {printable(m.decode_path, 1000)}; {m.selection}, {m.nbytes / 2**20:,.1f} MiB, {_threads()} threads",
    ]
    ours = statistics.median(m.rounds_ms["gzarr"])
    for name, rounds in m.rounds_ms.items():
        ms = statistics.median(rounds)
        verdict = "" if name == "gzarr" else f"{ms / ours:6.2f} times gzarr's time; "
        if name in m.equal:
            verdict += "same elements" if m.equal[name] else "DIFFERENT ELEMENTS"
        lines.append(f"  {name:<12}{ms:10.2f} ms  {m.gb_per_s(name):7.2f} GB/s  {verdict}".rstrip())
    if m.stages_ms:
        stages = ", ".join(f"{stage.removesuffix('_ms')} {ms:.2f} ms" for stage, ms in m.stages_ms.items())
        lines.append(f"  gzarr's stages, thread time per read: {stages}")
    lines += [f"  {name:<12}-  {printable(remark)}" for name, remark in m.remarks.items()]
    return "\n".join(lines)
