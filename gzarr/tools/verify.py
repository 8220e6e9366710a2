"""Verification of hierarchies: every stored chunk is decoded, and the search continues after a problem.

Chunks are decoded completely, even beyond the array's end. They are read in batches, by the same engine as other reads;
the chunks of a batch that fails are read one by one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from ..arrays.array import Array
from ..arrays.read_options import check_missing
from ..arrays.stored_chunks import are_stored, grid_points, stored_chunks
from ..codecs.codec import ArrayRepresentation
from ..engines import kernels
from ..engines.pool import thread_count
from ..errors import ChunkError, MetadataError, MissingChunkError, SelectionError, StoreError
from ..flags import check_flags
from ..metadata.model import ArrayMetadata
from ..plan.decode_program import analyse
from ..progress import watch
from ..stores import io_threads
from ..stores.base import ByteRange, is_listable
from ..stores.keys import join_path
from .located import locate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..engines.access.access import Missing
    from ..stores.base import ReadableStore
    from ..stores.resolve import StoreLike
    from .located import Located

    Coords = tuple[int, ...]
    Box = tuple[slice, ...]

#: Limit of the decoded bytes held at a time; a single chunk may have more.
BATCH_BYTES: Final = 64 << 20
_BATCH_CHUNKS: Final = 1024
#: Chunks that a store that cannot list is asked for at a time.
_ASKED: Final = 256
#: Limit of the absent chunks of an array that are listed one by one: its shape may imply 2**90.
MAX_ABSENT: Final = 100_000
_MASK_BITS: Final = 9
_MAX_LENGTH: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem found by :func:`verify`.

    Attributes
    ----------
    kind
        ``"chunk"``: a stored chunk or the index of a shard cannot be read. ``"missing"``: a chunk is not stored; if
        there is no key, the reason tells how many more are missing. ``"metadata"``: a document of a node is invalid.
        ``"store"``: the keys of a group or an array cannot be listed.
    node
        Path of the node, with a leading slash.
    key
        Key in the store; None if unknown.
    chunk
        Grid coordinates of the chunk (of the inner chunk, in a sharded array); None for other problems, including
        those of a whole shard.
    reason
        One-line description for users.
    """

    kind: Literal["chunk", "missing", "metadata", "store"]
    node: str
    key: str | None
    chunk: tuple[int, ...] | None
    reason: str

    def __str__(self) -> str:
        where = "" if self.chunk is None else f", chunk {self.chunk}"
        key = "" if self.key is None else f", key {self.key!r}"
        return f"{self.node}{where}{key}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object."""
        return asdict(self)


class Verification:
    """Verification of a node and everything below it, which runs during iteration; see :func:`verify`.

    Attributes
    ----------
    arrays, groups
        Numbers of arrays and groups checked so far.
    chunks
        Number of stored chunks (shards, in a sharded array) decoded so far, including corrupt ones.
    unchecked
        How many of these have no checksum in any codec. Damage to them is found only if they cannot be decoded: what
        decodes to other elements is not.
    problems
        Number of problems found so far, without absent chunks.
    """

    def __init__(self, root: Located, *, missing: Missing, progress: bool) -> None:
        self._reader = root.reader
        self._root = root
        self._missing = missing
        self._progress = progress
        self.arrays: int = 0
        self.groups: int = 0
        self.chunks: int = 0
        self.unchecked: int = 0
        self.problems: int = 0

    def __iter__(self) -> Iterator[Problem]:
        steps = self.steps()
        for problems in watch(steps, "verifying batches of chunks") if self._progress else steps:
            yield from problems

    def steps(self) -> Iterator[list[Problem]]:
        """Yield the problems of each batch of chunks: usually none."""
        for problems in self._steps():
            self.problems += sum(problem.kind != "missing" for problem in problems)
            yield problems

    def _steps(self) -> Iterator[list[Problem]]:
        left = [(self._root.path, self._root.entry)]
        while left:
            path, entry = left.pop()
            metadata = entry.metadata
            if isinstance(metadata, MetadataError):
                yield [Problem("metadata", f"/{path}", metadata.key, None, f"{metadata.json_path}: {metadata.message}")]
            elif isinstance(metadata, ArrayMetadata):
                yield from self._array(self._reader.store, metadata, path)
            else:
                self.groups += 1
                try:
                    children = entry.children
                    if children is None:
                        children = self._reader.children(path, metadata.children_format)
                except StoreError as error:
                    yield [Problem("store", f"/{path}", error.key, None, f"the group cannot be listed: {error}")]
                else:
                    # Reversed, since the last entry is taken first.
                    left += [(join_path(path, name), child) for name, child in reversed([*children.items()])]

    def _array(self, store: ReadableStore, metadata: ArrayMetadata, path: str) -> Iterator[list[Problem]]:
        self.arrays += 1
        array = _CheckedChunks(store, metadata, path, missing=self._missing)
        batches = array.batches()
        is_checked = any(codec.has_checksum for codec in metadata.codecs)
        while True:
            try:
                some = next(batches, None)
            except StoreError as error:
                yield [Problem("store", array.name, error.key, None, f"its chunks cannot be listed: {error}")]
                return
            if some is None:
                break
            problems = array.check(some)
            self.chunks += len(some)
            self.unchecked += 0 if is_checked else len(some)
            yield problems
        for problem in array.absent():
            yield [problem]


class _CheckedChunks:
    """The chunks of one array."""

    def __init__(self, store: ReadableStore, metadata: ArrayMetadata, path: str, *, missing: Missing) -> None:
        self.name = f"/{path}"
        self._store = store
        self._path = path
        self._metadata = metadata
        # The parts of chunks beyond the array's end are decoded, too.
        grid = metadata.chunk_grid
        self._grid = grid.resized(grid.covered_shape)
        self._whole = Array(replace(metadata, chunk_grid=self._grid), store, path, device="cpu")
        whole = ArrayRepresentation(metadata.chunk_shape, metadata.dtype)
        decoding = analyse(metadata.codecs, whole, kernels.available(), grid)
        self._levels = decoding.levels
        self._unit = decoding.chunk.shape
        self._missing = missing
        self._seen = _Seen(metadata.grid_shape) if missing == "error" else None
        nbytes = max(math.prod(metadata.chunk_shape) * metadata.dtype.itemsize, 1)
        self._batch = max(min(BATCH_BYTES // nbytes, _BATCH_CHUNKS), 1)
        if metadata.dtype.hasobject:
            # Nobody knows how long texts are.
            self._batch = min(self._batch, thread_count())

    def batches(self) -> Iterator[list[tuple[str, Coords]]]:
        """Yield keys and coordinates of the stored chunks (shards), as many at a time as are decoded together."""
        if is_listable(self._store):
            stored = stored_chunks(self._store, self._metadata, self._path)
            while some := list(itertools.islice(stored, self._batch)):
                yield some
            return
        grid = ((self._key(coords), coords) for coords in grid_points(self._metadata.grid_shape))
        while asked := list(itertools.islice(grid, _ASKED)):
            found = list(itertools.compress(asked, self._are_stored([key for key, _ in asked])))
            # Also none, so that whoever looks on sees progress: a grid may have 2 ** 90 chunks.
            for begin in range(0, len(found) or 1, self._batch):
                yield found[begin : begin + self._batch]

    def _are_stored(self, keys: Sequence[str]) -> Sequence[bool]:
        """Return whether each key has a value; True if the store does not tell, for reading it will say why."""
        try:
            return are_stored(self._store, keys)
        except StoreError:
            if len(keys) == 1:
                return [True]
            # Side by side: each may fail only after a long wait.
            found = io_threads.call_all([partial(self._are_stored, [key]) for key in keys])
            return [stored for (stored,) in found]

    def absent(self) -> Iterator[Problem]:
        """Yield a problem for each absent chunk (shard)."""
        if self._seen is None:
            return
        what = "shard" if self._levels else "chunk"
        absent = (coords for coords in grid_points(self._metadata.grid_shape) if coords not in self._seen)
        for coords in itertools.islice(absent, MAX_ABSENT):
            chunk = None if self._levels else coords
            yield Problem("missing", self.name, self._key(coords), chunk, f"the store has no such {what}")
        more = math.prod(self._metadata.grid_shape) - self._seen.count - MAX_ABSENT
        if more > 0:
            yield Problem("missing", self.name, None, None, f"the store has no {what} at {more:,} more places")

    def _key(self, coords: Coords) -> str:
        return self._metadata.key_prefix(self._path) + self._metadata.chunk_key_encoding.encode(coords)

    def check(self, stored: Sequence[tuple[str, Coords]]) -> list[Problem]:
        """Decode some chunks (shards); return their problems."""
        if self._seen is not None:
            for _, coords in stored:
                self._seen.add(coords)
        problems: list[Problem] = []
        boxes = [(key, coords, box) for key, coords in stored for box in self._boxes(coords)]
        if self._reads([box for _, _, box in boxes]) is None:
            return problems
        lost: set[str] = set()
        for key, coords, box in boxes:
            if key in lost or (found := self._reads([box])) is None:
                continue
            if self._levels and (reason := self._index_reason(key, coords)) is not None:
                problems.append(Problem("chunk", self.name, key, None, reason))
                lost.add(key)
            elif self._levels:
                problems += [replace(p, key=key) for unit in self._units(box) if (p := self._reads([unit])) is not None]
            else:
                problems.append(replace(found, key=key, chunk=coords))
        return problems

    def _reads(self, boxes: list[Box]) -> Problem | None:
        """Read some boxes; return the first problem, or None."""
        try:
            if len(boxes) == 1:
                self._whole.read(boxes[0], missing=self._missing)
            else:
                self._whole.read_many(boxes, missing=self._missing)
        except MissingChunkError as error:
            return Problem("missing", self.name, error.key, error.chunk, "the store has no such chunk")
        except ChunkError as error:
            return Problem("chunk", self.name, error.key, error.chunk, error.reason)
        except SelectionError as error:
            # In an array that ends within a chunk of 2**63 elements, boxes can only be read one by one.
            return Problem("chunk", self.name, None, None, str(error))
        except MemoryError:
            return Problem("chunk", self.name, None, None, "there is not enough memory to decode it")
        return None

    def _boxes(self, coords: Coords) -> Iterator[Box]:
        """Yield the boxes in which a chunk of the grid is read: a shard in as many whole inner chunks as fit."""
        metadata = self._metadata
        extent = self._grid.extent(coords)
        begins, ends = [begin for begin, _ in extent], [end for _, end in extent]
        if not self._levels:
            yield tuple(map(slice, begins, ends))
            return
        # Inner chunks outside the array are ignored.
        ends = [
            min(end, -(-size // unit) * unit) for end, size, unit in zip(ends, metadata.shape, self._unit, strict=True)
        ]
        counts = [-(-(end - begin) // unit) for begin, end, unit in zip(begins, ends, self._unit, strict=True)]
        left = max(BATCH_BYTES // max(math.prod(self._unit) * metadata.dtype.itemsize, 1), 1)
        steps = [0] * len(counts)
        for d in reversed(range(len(counts))):
            steps[d] = max(min(counts[d], left), 1)
            left //= steps[d]
        lengths = [step * unit for step, unit in zip(steps, self._unit, strict=True)]
        yield from _tiles(begins, ends, lengths)

    def _units(self, box: Box) -> Iterator[Box]:
        return _tiles([s.start for s in box], [s.stop for s in box], self._unit)

    def _index_reason(self, key: str, coords: Coords) -> str | None:
        """Return the reason why the index of a shard cannot be read, or None if it can."""
        level = self._levels[0]
        shape = level.stored_shape_of(coords)
        nbytes = level.codec.index_nbytes(shape)
        at_start = level.codec.index_location == "start"
        try:
            index = self._store.get_partial_values([(key, ByteRange(0, nbytes) if at_start else ByteRange(-nbytes))])[0]
            if index is not None:
                level.codec.decode_index(index, shape, shard_nbytes=None)
        # Third-party stores and codecs may raise anything.
        except Exception as cause:
            return f"the index of the shard cannot be read: {cause}"
        return None


class _Seen:
    """Set of coordinates in a grid of any size, as a sparse bitmap."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._masks: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Number of coordinates."""
        return sum(mask.bit_count() for mask in self._masks.values())

    def add(self, coords: Coords) -> None:
        mask, bit = self._place(coords)
        self._masks[mask] = self._masks.get(mask, 0) | bit

    def __contains__(self, coords: Coords) -> bool:
        mask, bit = self._place(coords)
        return bool(self._masks.get(mask, 0) & bit)

    def _place(self, coords: Coords) -> tuple[int, int]:
        number = 0
        for i, n in zip(coords, self._shape, strict=True):
            number = number * n + i
        return number >> _MASK_BITS, 1 << (number & ((1 << _MASK_BITS) - 1))


def _tiles(begins: Sequence[int], ends: Sequence[int], lengths: Sequence[int]) -> Iterator[Box]:
    ranges = [range(begin, end, n) for begin, end, n in zip(begins, ends, lengths, strict=True)]
    for starts in itertools.product(*ranges):
        yield tuple(slice(start, min(start + n, end)) for start, n, end in zip(starts, lengths, ends, strict=True))


def verify(
    store: StoreLike,
    *,
    path: str = "",
    missing: Missing = "fill",
    allow_pickle: bool = False,
    progress: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Verification:
    """Decode every stored chunk of an array, or of all arrays in a hierarchy, on the CPU, and report problems.

    Checksums, sizes, shard indexes and metadata documents are checked as in a read; chunks without a checksum are
    counted, because damage that leaves them decodable is not found. Consolidated metadata is not checked, and only used
    where a store cannot list its keys: there, it tells what is below a group, and each chunk is asked for before it is
    read. Values that are part of no node are not looked at. At most 64 MiB of decoded chunks are held at a time, or one
    larger chunk; of strings, which may be of any length, one for each thread.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`.
    path
        Path of the node in the store.
    missing
        Meaning of absent chunks: ``"fill"`` (the fill value, not a problem) or ``"error"``, which reports them: the
        first 100,000 of each array one by one, then the number of the others.
    allow_pickle
        Whether codecs that run pickled code are allowed. Only for trusted data.
    progress
        Whether iteration shows, on a terminal or in a notebook, how many batches of chunks are done.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.

    Returns
    -------
    Iterable that yields a :class:`Problem` for each problem as it is found, and counts the checked nodes and chunks.

    Raises
    ------
    NodeNotFoundError, MetadataError, StoreError
        If the node itself cannot be opened.

    Examples
    --------
    >>> import gzarr
    >>> store = {}
    >>> gzarr.save(store, [1, 2, 3])
    >>> list(gzarr.verify(store))
    []
    >>> store["c/0"] = b"garbage"
    >>> [problem.key for problem in gzarr.verify(store)]
    ['c/0']
    """
    check_missing(missing)
    check_flags(allow_pickle=allow_pickle, progress=progress)
    root = locate(store, path=path, allow_pickle=allow_pickle, use_consolidated=False, storage_options=storage_options)
    if isinstance(root.entry.metadata, MetadataError):
        raise root.entry.metadata
    return Verification(root, missing=missing, progress=progress)
