"""``gzarr optimize SRC DST``: copy to chunks, shards and codecs that suit a GPU, after showing what will change.

:func:`gzarr.create_array` chooses the chunks, shards and codecs. For each array, now and after the copy, the forecast
shows the number of frames (units of decompression), where the router would decode a read of the whole array with the
assumed rates of a device, and the size in the store. For the copy, that size is estimated from a sample.

The copy has the format of the source, unless one is named. An array for which the forecast says that reads would be
slower or the store larger keeps its chunks, shards and codecs. Everything else that changes is listed, too.

OME-Zarr stays OME-Zarr, of the version that the format of the copy has. Images that have only one level are named, and
get others with ``--levels``. Chunks and shards that are given are not questioned. If they are given by names of axes,
arrays without these axes keep theirs.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ..arrays.array import Array
from ..arrays.host_copies import host_copy
from ..arrays.stored_chunks import stored_chunks
from ..codecs.chain import encode_chain
from ..codecs.choice import AUTO
from ..codecs.codec import ArrayRepresentation
from ..display import has_fixed_size, printable, readable_size
from ..engines import kernels, pool
from ..engines.cpu.threads import fill_chunk
from ..engines.cuda import router
from ..engines.cuda.device_program import device_program
from ..errors import ArgumentError, MetadataError
from ..ome.metadata.parse import parse
from ..ome.writing.building import DEFAULT_BUDGET_BYTES
from ..ome.writing.pyramid import Downsampling, Pyramid
from ..plan.decode_program import analyse
from ..stores.base import SizedStore, is_listable, lists_all
from ..stores.keys import join_path, normalize_path
from .copy import (
    add_where,
    chunk_shape,
    counted,
    execute,
    lines_of_other_values,
    options_of_dest,
    prepare,
    shard_shape,
    summary,
)
from .output import print_json, say
from .pyramid import execute as make_levels
from .pyramid import parse_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..metadata.model import ArrayMetadata
    from ..plan.decode_program import Decoding
    from ..tools.copy_array import ArrayCopy
    from ..tools.planned_copy import Copy

#: Stored chunks of each array that are encoded anew to estimate its size.
_SAMPLES: Final = 8
#: Limit of the decoded bytes of each of them.
_SAMPLE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class StorageProfile:
    """Storage of an array, and its consequences for reads to a GPU.

    Attributes
    ----------
    stored_as
        Description of chunks, shards and codecs.
    frames
        Number of compressed frames in the whole array, according to the metadata; 0 if nothing is compressed.
    frame_nbytes
        Decoded bytes of the largest frame; None if elements have no fixed size.
    decode
        ``"cuda"`` or ``"cpu"``: where the router would decode a read of the whole array.
    reason
        Reason of the router, one line.
    stored_nbytes
        Bytes in the store, estimated from a sample for a planned copy; None if unknown.
    seconds
        The router's estimate of the seconds to decode the whole array there; None if there is none.
    """

    stored_as: str
    frames: int
    frame_nbytes: int | None
    decode: str
    reason: str
    stored_nbytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Changes to one array by ``gzarr optimize``.

    Attributes
    ----------
    node, shape, dtype
        Path, shape and data type of the array.
    now, then
        Its storage before and after.
    zarr_format
        Formats before and after.
    changes
        What its documents will say otherwise, beside storage, in lines of text.
    kept
        Why it keeps its chunks, shards and codecs; None if they change.
    """

    node: str
    shape: tuple[int, ...]
    dtype: str
    now: StorageProfile
    then: StorageProfile
    zarr_format: tuple[Any, Any]
    changes: tuple[str, ...]
    kept: str | None = None

    @property
    def drawback(self) -> str | None:
        """Why the copy would be worse, or None."""
        now, then = self.now, self.then
        if now.stored_nbytes is not None and then.stored_nbytes is not None and then.stored_nbytes > now.stored_nbytes:
            return (
                f"{then.stored_as} would take about {readable_size(then.stored_nbytes)}, "
                f"not {readable_size(now.stored_nbytes)}"
            )
        if now.seconds is not None and (then.seconds is None or then.seconds > now.seconds):
            return f"{then.stored_as} would be decoded in {_duration(then.seconds)}, not in {_duration(now.seconds)}"
        return None


def _duration(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else f"about {seconds * 1e3:.3g} ms"


def forecast(array: ArrayCopy, changes: Sequence[str] = (), kept: str | None = None) -> Forecast:
    """Return the changes that the copy of an array will make.

    Parameters
    ----------
    array
        Planned copy, not yet started.
    changes, kept
        As in the result.

    Raises
    ------
    ChunkError, StoreError
        If chunks of the sample cannot be read, or the store fails.
    """
    source = array.source
    # The command copies nodes of a store, no views.
    assert isinstance(source, Array)
    stored = then = _stored_nbytes(source)
    if not array.copies_values:
        ratio = _encoded_share(array, source)
        decoded_share = _present_share(source)
        then = None if ratio is None else int(ratio * decoded_share * source.nbytes)
    return Forecast(
        node=source.name,
        shape=source.shape,
        dtype=str(source.dtype),
        now=_profile(source.metadata, stored),
        then=_profile(array.metadata, then),
        zarr_format=(source.zarr_format, array.metadata.zarr_format),
        changes=tuple(changes),
        kept=kept,
    )


def _decoding(metadata: ArrayMetadata) -> Decoding:
    return analyse(metadata.codecs, ArrayRepresentation(metadata.chunk_shape, metadata.dtype), kernels.available())


def _profile(metadata: ArrayMetadata, stored_nbytes: int | None) -> StorageProfile:
    decoding = _decoding(metadata)
    chunks = math.prod(metadata.grid_shape)
    if decoding.levels:
        chunks = math.prod(-(-n // length) for n, length in zip(metadata.shape, decoding.chunk.shape, strict=True))
    program = device_program(decoding)
    if program is None:
        route = router.only_on_cpu("no decoder for this chain on a device")
    else:
        nbytes = metadata.size * metadata.dtype.itemsize
        route = router.route(decoding, program.algorithm, chunks, nbytes, pool.thread_count(), "auto")
    frames = router.frames_of(decoding)
    compressed = program is None or program.algorithm is not None
    frame_nbytes = frames.nbytes if compressed else 0
    shards = f" in shards {metadata.chunk_shape}" if decoding.levels else ""
    codecs = " + ".join(codec.label for codec in decoding.codecs)
    return StorageProfile(
        stored_as=f"chunks {decoding.chunk.shape}{shards}, {codecs}",
        frames=chunks * frames.count if compressed else 0,
        frame_nbytes=frame_nbytes if has_fixed_size(metadata.dtype) else None,
        decode=route.decode,
        reason=route.reason,
        stored_nbytes=stored_nbytes,
        seconds=min((n for n in (route.gpu_seconds, route.cpu_seconds) if n is not None), default=None),
    )


def _stored_nbytes(array: Array) -> int | None:
    """Return the bytes of an array's chunks in the store, or None if the store does not report sizes."""
    if not (isinstance(array.store, SizedStore) and lists_all(array.store)):
        return None
    metadata = array.metadata
    chunks = {key for key, _ in stored_chunks(array.store, metadata, array.path)}
    return sum(n for key, n in array.store.list_sizes(metadata.key_prefix(array.path)) if key in chunks)


def _present_share(array: Array) -> float:
    """Return the share of the chunks that are stored, or 1 if the store cannot list its keys."""
    if not is_listable(array.store):
        return 1.0
    return _stored_count(array) / max(math.prod(array.metadata.grid_shape), 1)


def _stored_count(array: Array) -> int:
    """Return the number of stored chunks (shards, in a sharded array)."""
    return sum(1 for _ in stored_chunks(array.store, array.metadata, array.path))


def _encoded_share(array: ArrayCopy, source: Array) -> float | None:
    """Return encoded bytes per decoded byte of the copy, from a sample; None if there is no sample."""
    decoding = _decoding(array.metadata)
    chunk = decoding.chunk
    if chunk.nbytes > _SAMPLE_BYTES or not math.prod(chunk.shape):
        return None
    encoded = decoded = 0
    for begins in _sample(source):
        box = tuple(
            slice(begin // n * n, min((begin // n + 1) * n, size))
            for begin, n, size in zip(begins, chunk.shape, source.shape, strict=True)
        )
        data = array.source.read(box)
        data = host_copy(data) if hasattr(data, "get") else data
        whole: Any = fill_chunk(array.metadata.absent_value, chunk).copy()
        # With an ellipsis, the item of an array without dimensions is assigned, not the array.
        whole[(*(slice(n) for n in data.shape), ...)] = data
        encoded += len(memoryview(encode_chain(decoding.codecs, whole, chunk)).cast("B"))
        decoded += data.nbytes
    return encoded / decoded if decoded else None


def _sample(array: Array) -> Iterator[tuple[int, ...]]:
    """Yield the first element of some stored chunks, spread over the listing."""
    if not is_listable(array.store) or not array.size:
        return
    every = max(_stored_count(array) // _SAMPLES, 1)
    metadata = array.metadata
    for number, (_, coords) in enumerate(stored_chunks(array.store, metadata, array.path)):
        if number % every == 0 and number // every < _SAMPLES:
            yield tuple(begin for begin, _ in metadata.chunk_grid.extent(coords))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``gzarr optimize``."""
    add_where(parser)
    for option, read, what in (("--chunks", chunk_shape, "chunk"), ("--shards", shard_shape, "shard")):
        parser.add_argument(
            option,
            type=read,
            default=AUTO,
            metavar="SHAPE",
            help=f"{what} shape in elements, or lengths by axis such as z=16,y=64,x=64; auto (default)",
        )
    parser.add_argument(
        "--levels",
        type=parse_levels,
        default=None,
        metavar="N",
        help="levels of the copies of OME-Zarr images that have one only: a number, with level 0, or auto",
    )


def run(args: argparse.Namespace) -> int:
    """Print what will change, then copy.

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
    wanted = {"chunks": args.chunks, "shards": args.shards, "codecs": AUTO}
    # The beginning of a copy, whose arrays may have kept their chunks, is compared with what is planned in the end.
    anew = argparse.Namespace(**{**vars(args), "resume": False, "overwrite": True})
    planned = prepare(anew if args.resume else args, **wanted)
    forecasts = [forecast(array) for array in planned.arrays]
    worse = {one.node.lstrip("/"): one.drawback for one in forecasts if one.drawback is not None}
    # What the caller asks for is not questioned.
    if all(value == AUTO or isinstance(value, dict) for value in (args.chunks, args.shards)):
        worse = {path: text for path, text in worse.items() if path not in planned.by_name}
    else:
        worse = {}
    if worse or args.resume:
        try:
            planned = prepare(args, **wanted, kept_arrays=worse)
        except ArgumentError as error:
            if args.levels is None or not args.resume:
                raise
            raise ArgumentError(
                f"{error}; where only levels are missing, which cannot be resumed, gzarr pyramid --overwrite makes them"
            ) from error
    forecasts = [
        forecast(array, planned.differences.changes.get(array.source.name, ()), worse.get(array.source.path))
        for array in planned.arrays
    ]
    if args.json:
        print_json([asdict(one) for one in forecasts])
    else:
        print("\n\n".join([*map(_text, forecasts), *_other_changes(planned, forecasts)]))
    if not args.dry_run:
        execute(planned, args.dask)
        say(args, f"\n{summary(planned, args)}")
    # Images come before their labels, which get the same levels.
    single = [below for below, group in planned.groups_below() if _has_one_level(group.attributes)]
    if args.levels is None:
        if single:
            say(args, f"\n{counted(len(single), 'image')} of OME-Zarr with one level only; --levels auto adds others")
    elif not args.dry_run:
        for below in single:
            _add_levels(below, args)
        if single:
            # New nodes make it outdated.
            planned.consolidate()
    return 0


def _other_changes(planned: Copy, forecasts: Sequence[Forecast]) -> list[str]:
    """Return texts of what changes beside arrays: the format, groups, consolidated metadata; and other values."""
    lines = [f"Zarr format {one} becomes {other}" for one, other in [planned.differences.formats] if one != other]
    of_arrays = {one.node for one in forecasts}
    for node, changes in planned.differences.changes.items():
        if node not in of_arrays:
            lines += [f"{printable(node)}  {printable(change)}" for change in changes]
    lines += [f"{printable('/' + path)}  consolidated metadata is written anew" for path in planned.consolidated]
    lines += lines_of_other_values(planned)
    return ["\n".join(lines)] if lines else []


def _has_one_level(attributes: Any) -> bool:
    """Return whether a group is an image of OME-Zarr with one level."""
    try:
        images = parse(attributes).multiscales
    except MetadataError:
        return False
    return bool(images) and len(images[0].datasets) == 1


def _add_levels(path: str, args: argparse.Namespace) -> None:
    """Make the levels of an image of the copy, at a path below it."""
    node = join_path(normalize_path(args.dest_path), path)
    planned = Pyramid(
        args.dest,
        Downsampling(args.levels),
        path=node,
        device=args.device,
        budget_bytes=args.budget or DEFAULT_BUDGET_BYTES,
        storage_options=options_of_dest(args),
    )
    make_levels(planned)
    say(args, f"{printable(planned.group.name)}: {counted(len(planned.levels) + 1, 'level')}")


def _text(one: Forecast) -> str:
    lines = [f"{printable(one.node)}  {one.shape} {one.dtype}"]
    for name, profile in (("now", one.now), ("then", one.then)):
        stored = "size unknown" if profile.stored_nbytes is None else readable_size(profile.stored_nbytes)
        frames = "nothing is compressed"
        if profile.frames:
            frames = counted(profile.frames, "frame")
            if profile.frame_nbytes is not None:
                frames += f" of up to {readable_size(profile.frame_nbytes)}"
        lines.append(f"  {name:<6}{printable(profile.stored_as)}")
        lines.append(f"        {stored if name == 'now' else f'about {stored}'}; {frames}")
        where = "GPU" if profile.decode == "cuda" else "CPU"
        lines.append(f"        decoded on the {where}, with assumed rates: {profile.reason}")
    if one.kept is not None:
        lines.append(f"  chunks, shards and codecs are kept: {printable(one.kept)}")
    lines += [f"  {printable(change)}" for change in one.changes]
    return "\n".join(lines)
