"""Copying the chunks of one array: region by region, or value by value if stored values stay the same.

The cost depends on the stored chunks, not on the shape: an array of 2**62 elements may have a single chunk. If the
source can be listed, absent chunks are neither read nor written, since they hold the fill value on both sides, and the
bounds of regions are computed, not listed.
"""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from ..arrays.array import Array
from ..arrays.element_size import element_nbytes
from ..arrays.objects import object_type_of
from ..arrays.stored_chunks import are_stored, grid_points, stored_chunks
from ..arrays.write import Writer
from ..cached import cached_property
from ..codecs.again import kept_by, stores_the_same
from ..codecs.codec import ArrayRepresentation
from ..codecs.sharding import ShardingIndexed
from ..dtypes.properties import is_in_cupy
from ..engines import pool
from ..engines.access.access import Access
from ..engines.cpu.threads import fill_chunk
from ..errors import (
    ArgumentError,
    ChunkDecodeError,
    ChunkError,
    ChunkReadError,
    ChunkWriteError,
    MissingChunkError,
    StoreError,
    ValueSizeError,
)  # fmt: skip
from ..metadata.model import ArrayMetadata
from ..metadata.to_documents import array_documents
from ..nodes.change import documents_first, reader_of, write_array
from ..plan.decode_program import most_taken
from ..plan.selection import parse_basic
from ..stores.base import is_listable
from .comparing import identical
from .processes import in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from ..arrays.view import ArrayView
    from ..stores.base import ReadableStore, Store
    from .copy_options import CopyOptions

    Coords = tuple[int, ...]
    Box = tuple[slice, ...]
    # Begin and end along one dimension, in elements.
    Extent = tuple[int, int]

_log = logging.getLogger(__name__)
_Store = TypeVar("_Store")

#: The elements of a region may take 1 / this of the budget. The rest is for comparing and encoding them.
_REGION_SHARE: Final = 4
#: What codecs of objects make of them that absent chunks, which have the fill value, may not have.
MADE: Final[Mapping[str, type]] = {"vlen-array": np.ndarray, "categorize": str}
ABSENT_OBJECTS: Final = (
    "elements of absent chunks are no rows or categories, and would become some in chunks of another shape or codec"
)
#: Stored values copied in one step without decoding them.
_VALUES: Final = 64
_DIFFERENT: Final = "the data read back is not the data written"
_AT_FAULT: Final = "the target's codecs may be lossy, or the store or its medium is at fault"


class StoredArray(NamedTuple, Generic[_Store]):
    """Metadata, store and path of an array."""

    metadata: ArrayMetadata
    store: _Store
    path: str


class ArrayCopy:
    """The copy of one array.

    Parameters
    ----------
    source, target
        The source, and the copy.
    options
        How the copy is made.
    writes_absent
        Whether absent chunks of the source are stored in the copy, whose fill value has another meaning.
    part
        The part of the source that is copied, as for :attr:`gzarr.Array.view`; None for all of it.
    if_different
        Why elements that are encoded may be different, and what to do then, for the error's message: these are read
        back then, even if ``options`` do not ask for all. None if there is no reason.

    Attributes
    ----------
    source, target
        The arrays. The documents of the target may not exist yet.
    has_documents
        Whether the documents of the target exist, from an earlier copy.
    written, kept
        Numbers of regions (stored values, if these are not decoded) written so far, and found equal so far.
    """

    def __init__(
        self,
        source: StoredArray[ReadableStore],
        target: StoredArray[Store],
        options: CopyOptions,
        *,
        writes_absent: bool,
        part: Any = None,
        if_different: str | None = None,
    ) -> None:
        source_metadata, metadata = source.metadata, target.metadata
        device = options.device if is_in_cupy(metadata.dtype) else "cpu"
        if source_metadata.absent_value is None and metadata.dtype.hasobject:
            # Without a fill value, absent objects read as zeros, which are not objects: use the copy's fill value.
            source_metadata = replace(source_metadata, fill_value=metadata.fill_value)
        whole = Array(source_metadata, source.store, source.path, device=device)
        self.source: Array | ArrayView = whole if part is None else whole.view[part]
        self.target: Array = Array(
            # Where nothing is said of absent chunks, other readers may take them for anything.
            metadata,
            target.store,
            target.path,
            device=device,
            mode="r+",
            write_empty_chunks=writes_absent or metadata.fill_value is None,
        )
        self._writes_absent = writes_absent
        self.metadata: ArrayMetadata = metadata
        self.path: str = target.path
        self.has_documents = False
        self.written: int = 0
        self.kept: int = 0
        self._store = target.store
        self._resume = options.resume
        self._read_back = options.read_back
        self._if_different = if_different
        self._same_objects = metadata.dtype.hasobject and _maker(source_metadata) == _maker(metadata)
        self._as_is = part is None and _same_values(source_metadata, metadata)
        self._lossy = options.lossy
        self._value_bytes = options.budget_bytes // (_REGION_SHARE * pool.thread_count())
        #: Most bytes of stored values of the source, by the shape of the chunk.
        self._limits: dict[Coords, int] = {}
        #: Whether the source tells which chunks it has.
        self._lists = part is None and is_listable(source.store)
        lengths = metadata.chunk_shape
        if not self._as_is:
            lengths = region_shape(self.source, self.target, options.budget_bytes // _REGION_SHARE)
        self._chunks = metadata.chunk_grid.axes
        self._regions = [axis.merged(length) for axis, length in zip(self._chunks, lengths, strict=True)]

    @property
    def copies_values(self) -> bool:
        """Whether stored values are copied without decoding them."""
        return self._as_is

    @property
    def total(self) -> int:
        """Upper limit of the number of steps."""
        if self._as_is:
            return math.prod(self.source.metadata.grid_shape)
        return math.prod(regions.count for regions in self._regions)

    def is_described_by(self, present: ArrayMetadata) -> bool:
        """Return whether existing metadata is that of this copy."""
        return array_documents(present, self.path) == array_documents(self.metadata, self.path)

    def steps(self, executor: Executor | None = None) -> Iterator[int]:
        """Copy the chunks, then the documents, unless these come first; yield the number of steps after each part.

        Parameters
        ----------
        executor
            What reads and writes chunks, in other processes; None for this one.
        """
        _log.info("copying %r, %d parts at most", self.source.name, self.total)
        if self._resume:
            self._erase_outside()
        first = documents_first(self._store)
        if first and not self.has_documents:
            write_array(self._store, self.path, self.metadata)
        parts = self._value_parts() if self._as_is else self._boxes()
        outcomes: Iterator[list[str]]
        outcomes = map(self.work_on, parts) if executor is None else in_processes(executor, self, parts)
        for some in outcomes:
            self.written += some.count("written")
            self.kept += some.count("kept")
            yield len(some)
        if self._as_is and self._resume and not self._writes_absent:
            yield from self._erase_absent()
        if not first and not self.has_documents:
            write_array(self._store, self.path, self.metadata)
        if self._read_back:
            self._read_back_rest()

    def _erase_outside(self) -> None:
        """Erase stored chunks outside the grid of the copy."""
        grid = self.metadata.grid_shape
        found = stored_chunks(self._store, self.metadata, self.path, outside=True)
        outside = (key for key, coords in found if any(i >= n for i, n in zip(coords, grid, strict=True)))
        while some := list(itertools.islice(outside, _VALUES)):
            self._store.erase_values(some)

    def work_on(self, part: Any) -> list[str]:
        """Copy a region, or some stored values; return what became of each: "written", "kept" or "absent"."""
        return _in_threads(self._copy_value, part) if self._as_is else [self._copy_region(part)]

    # -- by region

    def _boxes(self) -> Iterator[Box]:
        """Yield the regions in which the source or the unfinished copy has chunks, trimmed to these chunks."""
        if self._writes_absent or not self._lists:
            for region in grid_points([regions.count for regions in self._regions]):
                yield tuple(slice(*regions.extent(i)) for i, regions in zip(region, self._regions, strict=True))
            return
        touched: dict[Coords, Sequence[Extent]] = {}
        for array in (self.source, self.target) if self._resume else (self.source,):
            self._touch(array, touched)
        for region in sorted(touched):
            yield tuple(map(self._whole_chunks, range(len(region)), region, touched[region]))

    def _touch(self, array: Array | ArrayView, touched: dict[Coords, Sequence[Extent]]) -> None:
        """Record the regions that the stored chunks of an array touch, with the extent of these chunks."""
        for _, coords in stored_chunks(array.store, array.metadata, array.path):
            extents = array.metadata.chunk_grid.extent(coords)
            ranges = [regions.touching(*extent) for extent, regions in zip(extents, self._regions, strict=True)]
            for region in itertools.product(*ranges):
                before = touched.get(region, extents)
                touched[region] = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(before, extents, strict=True)]

    def _whole_chunks(self, d: int, i: int, extent: Extent) -> slice:
        """Return the extent of the target's chunks that overlap ``extent`` in region ``i``, along dimension ``d``."""
        begin, end = self._regions[d].extent(i)
        chunks = self._chunks[d].touching(max(extent[0], begin), min(extent[1], end))
        return slice(self._chunks[d].extent(chunks[0])[0], self._chunks[d].extent(chunks[-1])[1])

    def _copy_region(self, box: Box) -> str:
        data = self._read(box)
        if self._resume and self._is_there(box, data):
            return "kept"
        self._write(box, data)
        if self._read_back or self._if_different is not None:
            self._compare(box, data)
        return "written"

    def _write(self, box: Box, data: Any) -> None:
        if not self._same_objects:
            self.target.write(box, data)
            return
        # Not checked: the codec has decoded them itself. Some may be what gzarr does not write, such as NaN in JSON.
        metadata = self.metadata
        found = object_type_of(metadata)
        kind = MADE.get(found.codec or "", object) if found is not None and not self._lossy else object
        if not all(isinstance(element, kind) for element in data.ravel().tolist()):
            raise ArgumentError(
                f"{self.source.name} cannot be copied without loss: {ABSENT_OBJECTS}; kept chunks and codecs keep "
                "them, and lossy=True copies it nevertheless"
            )
        writer = Writer(metadata, self._store, self.path, write_empty_chunks=self.target.write_empty_chunks)
        writer.write([parse_basic(box, metadata.shape)], [data])

    def _compare(self, box: Box, data: Any) -> None:
        """Raise if the copy has other elements in a region."""
        try:
            is_same = identical(self.target.read(box, missing=self._missing), data)
        except MissingChunkError:
            is_same = False
        if not is_same:
            first = tuple(chunks.touching(s.start, s.stop)[0] for chunks, s in zip(self._chunks, box, strict=True))
            raise self._differs(first, f"the elements of {_text(box)} differ; {self._if_different or _AT_FAULT}")

    @property
    def _missing(self) -> Literal["fill", "error"]:
        """Meaning of absent chunks in regions of the copy that were written."""
        return "error" if self._writes_absent else "fill"

    def _read(self, box: Box) -> Any:
        try:
            return self.source.read(box)
        except ChunkError as error:
            reason = f"in the source, {self.source.store!r}: {error.reason}"
            raise type(error)(reason, node=error.node, chunk=error.chunk, key=error.key) from error

    def _is_there(self, box: Box, data: Any) -> bool:
        try:
            return identical(self.target.read(box, missing=self._missing), data)
        except (ChunkDecodeError, MissingChunkError):
            return False

    def _differs(self, chunk: Coords, what: str) -> ChunkWriteError:
        return ChunkWriteError(
            f"{_DIFFERENT}: {what}",
            node=self.target.name,
            chunk=chunk,
            key=self._key(self.target, chunk),
        )

    def _documents_differ(self, what: str) -> StoreError:
        return StoreError(f"{_DIFFERENT}: {self.target.name} in {self._store!r}: {what}", key=None)

    # -- by value

    @staticmethod
    def _key(array: Array | ArrayView, coords: Coords) -> str:
        return array.metadata.key_prefix(array.path) + array.metadata.chunk_key_encoding.encode(coords)

    def _value_parts(self) -> Iterator[list[Coords]]:
        """Yield the coordinates of the stored values of the source, some at a time."""
        source = self.source
        found: Iterator[Coords] = grid_points(source.metadata.grid_shape)
        if is_listable(source.store) and not self._writes_absent:
            found = (coords for _, coords in stored_chunks(source.store, source.metadata, source.path))
        while some := list(itertools.islice(found, _VALUES)):
            yield some

    def _copy_value(self, coords: Coords) -> str:
        try:
            value = Access(self.source.store).whole(self._key(self.source, coords), self._most_stored(coords))
        except ValueSizeError:
            if not self._keeps_elements:
                raise self._too_large(coords) from None
            # A shard with large gaps, which are left out, or what cannot be read: that is reported as for any read.
            return self._copy_region(self._box(coords))
        if value is None:
            return self._copy_region(self._box(coords)) if self._writes_absent else "absent"
        key = self._key(self.target, coords)
        if self._resume and self._has_value(key, value):
            return "kept"
        self._store.set(key, value)
        if self._read_back and not self._has_value(key, value):
            raise self._differs(coords, f"its bytes differ; {_AT_FAULT}")
        return "written"

    @cached_property
    def _keeps_elements(self) -> bool:
        """Whether elements stay when they are encoded again, or the chunks of the source are not shards."""
        metadata = self.source.metadata
        if not any(isinstance(codec, ShardingIndexed) for codec in metadata.codecs):
            return True
        shard = ArrayRepresentation(metadata.chunk_shape, metadata.dtype)
        return kept_by(metadata.codecs, shard, metadata.absent_value).elements == "all"

    def _too_large(self, coords: Coords) -> ChunkReadError:
        reason = (
            f"in the source, {self.source.store!r}: it has more than {self._most_stored(coords)} bytes, so there are "
            "large gaps between its inner chunks, or it is damaged; a larger budget_bytes copies it as it is"
        )
        return ChunkReadError(reason, node=self.source.name, chunk=coords, key=self._key(self.source, coords))

    def _most_stored(self, coords: Coords) -> int:
        """Return the most bytes of a stored value of the source that is copied as it is."""
        metadata = self.source.metadata
        shape = metadata.chunk_grid.shape_of(coords)
        most = self._limits.get(shape)
        if most is None:
            # Also what no encoder makes, such as damaged chunks, as far as there is memory.
            most = max(most_taken(metadata.codecs, ArrayRepresentation(shape, metadata.dtype)), self._value_bytes)
            if metadata.chunk_grid.is_regular:
                self._limits[shape] = most
        return most

    def _has_value(self, key: str, value: bytes) -> bool:
        """Return whether the copy has a value; a larger one is not read."""
        try:
            return bool(Access(self._store).whole(key, len(value)) == value)
        except ValueSizeError:
            return False

    def _box(self, coords: Coords) -> Box:
        """Return the elements of a chunk of the copy that are inside the array."""
        extents = self.metadata.chunk_grid.extent(coords)
        return tuple(
            slice(begin, min(end, size)) for (begin, end), size in zip(extents, self.metadata.shape, strict=True)
        )

    # -- what was not written

    def _read_back_rest(self) -> None:
        """Compare what no region has compared: the documents, stored chunks beside those written, and absent chunks."""
        entry = reader_of(self._store).node(self.path, self.metadata.zarr_format)
        present = None if entry is None else entry.metadata
        if not isinstance(present, ArrayMetadata) or not self.is_described_by(present):
            raise self._documents_differ("its documents differ")
        if not self._writes_absent and self._lists and is_listable(self._store):
            self._compare_others()

    def _compare_others(self) -> None:
        source, target = self.source, self.target
        touched: dict[Coords, Sequence[Extent]] = {}
        values: set[Coords] = set()
        if self._as_is:
            values.update(coords for _, coords in stored_chunks(source.store, source.metadata, source.path))
        else:
            self._touch(source, touched)
        found = 0
        for _, coords in stored_chunks(self._store, self.metadata, self.path):
            found += 1
            if coords not in values and not self._is_in_boxes(coords, touched):
                box = self._box(coords)
                self._compare(box, self._read(box))
        if found < math.prod(self.metadata.grid_shape):
            one, other = (
                fill_chunk(array.metadata.absent_element, ArrayRepresentation((), array.dtype))
                for array in (source, target)
            )
            if not identical(one, other):
                raise self._documents_differ("absent chunks have other elements")

    def _is_in_boxes(self, coords: Coords, touched: dict[Coords, Sequence[Extent]]) -> bool:
        """Return whether a chunk of the copy is in what was written of its region."""
        begins = [begin for begin, _ in self.metadata.chunk_grid.extent(coords)]
        region = tuple(regions.touching(n, n + 1)[0] for n, regions in zip(begins, self._regions, strict=True))
        if region not in touched:
            return False
        box = map(self._whole_chunks, range(len(region)), region, touched[region])
        return all(s.start <= n < s.stop for n, s in zip(begins, box, strict=True))

    def _erase_absent(self) -> Iterator[int]:
        """Erase chunks of the unfinished copy that the source lacks."""
        found = stored_chunks(self._store, self.metadata, self.path)
        while some := list(itertools.islice(found, _VALUES)):
            there = are_stored(self.source.store, [self._key(self.source, coords) for _, coords in some])
            self._store.erase_values([key for (key, _), is_there in zip(some, there, strict=True) if not is_there])
            yield 0


def _in_threads(work: Callable[[Coords], str], some: Sequence[Coords]) -> list[str]:
    """Call ``work`` for each chunk in threads; return the results in no particular order."""
    outcomes: list[str] = []
    pool.each(lambda i: outcomes.append(work(some[i])), len(some), pool.thread_count())
    return outcomes


def region_shape(source: Array | ArrayView, target: Array, budget_bytes: int) -> tuple[int, ...]:
    """Return the shape of a region, in elements: whole chunks (shards) of the target.

    Parameters
    ----------
    source, target
        Arrays to copy from and to.
    budget_bytes
        Limit of the bytes of elements in a region; a single chunk (shard) of the target may have more, and so may
        strings that are longer than those of a few chunks of the source.
    """
    shape, blocks = target.shape, target.metadata.chunk_shape
    if all(n <= block for n, block in zip(shape, blocks, strict=True)):
        return blocks
    itemsize = element_nbytes(source)
    most = [max(-(-n // block), 1) * block for n, block in zip(shape, blocks, strict=True)]
    region = list(blocks)

    def growth(d: int) -> int:
        """Return the factor by which the region may grow along a dimension."""
        nbytes = itemsize * math.prod(min(length, max(n, 1)) for length, n in zip(region, shape, strict=True))
        return max(budget_bytes // nbytes, 1)

    # If regions also end with chunks of the source, these are decoded only once.
    for d in reversed(range(len(shape))):
        region[d] = min(blocks[d] * min(math.lcm(blocks[d], source.chunks[d]) // blocks[d], growth(d)), most[d])
    for d in reversed(range(len(shape))):
        region[d] = min(region[d] * growth(d), most[d])
    return tuple(region)


def _same_values(source: ArrayMetadata, target: ArrayMetadata) -> bool:
    """Return whether the stored chunks of two arrays of the same elements are the same."""
    if (source.dtype, source.chunk_grid) != (target.dtype, target.chunk_grid):
        return False
    return stores_the_same(source.codecs, target.codecs, ArrayRepresentation(source.chunk_shape, source.dtype))


def _maker(metadata: ArrayMetadata) -> tuple[str | None, Mapping[str, Any]] | None:
    """Return the codec that makes bytes of an array's Python objects, with its parameters; None if there is none."""
    found = object_type_of(metadata)
    return None if found is None else (found.codec, found.configuration)


def _text(box: Box) -> str:
    return "[" + ", ".join(f"{s.start}:{s.stop}" for s in box) + "]"
