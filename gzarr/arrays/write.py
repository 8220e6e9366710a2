"""Writing values to selections: planning, finding chunks that must be read first, running an engine."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..codecs.codec import ArrayRepresentation
from ..codecs.sharding import ShardingIndexed
from ..distinct import distinct
from ..engines import kernels
from ..engines.access.choose import access_to
from ..engines.access.shard import Shard, forget_written
from ..engines.cpu import effort, native_write, write_threads
from ..engines.cpu.small_writes import SMALL_BYTES, small_writes_of
from ..engines.write_request import WriteRequest
from ..errors import ArgumentError, ChunkWriteError, GzarrError
from ..metadata.formats import FORMATS
from ..nodes.change import reader_of
from ..plan.decode_program import Decoding, analyse, most_taken, planned_grid
from ..plan.encode_program import EncodingProgram, analyse_encoding
from ..plan.keys import ChunkKeys, distinct_rows
from ..plan.planner import box_chunks, by_shape, plan
from ..stores import locks
from .read import KEEP_SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..engines.access.access import Access
    from ..engines.cpu.small_writes import SmallWrites
    from ..metadata.chunk_grid import BoolArray, ChunkGrid
    from ..metadata.model import ArrayMetadata
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from ..stores.base import Store
    from .outputs import DeviceResults


class _Chain(NamedTuple):
    """The codec chain of chunks of one shape, analysed for writing."""

    decoding: Decoding
    #: Program of the native loop; None if host threads encode.
    program: EncodingProgram | None
    #: Layout of the shards; None if chunks are stored values.
    shard: Shard | None


class Writer:
    """Writer of one array.

    Parameters
    ----------
    metadata
        Metadata of the array.
    store
        Store that holds the chunks.
    path
        Path of the array, without leading slash.
    write_empty_chunks
        Whether chunks that hold only the fill value are stored; None if they are where the document states none
        (``null``, before version 3), so that it says nothing of absent chunks.

    Attributes
    ----------
    keeps_outside
        Whether elements outside the shape were left in the store on purpose: chunks that the shape cuts are then
        changed, and not replaced.
    """

    __slots__ = (
        "_access",
        "_chains",
        "_name",
        "_path",
        "_prefix",
        "_small_writes",
        "_small_writes_known",
        "_store",
        "keeps_outside",
        "metadata",
        "write_empty_chunks",
    )

    def __init__(
        self, metadata: ArrayMetadata, store: Store, path: str, *, write_empty_chunks: bool | None = None
    ) -> None:
        self.metadata: ArrayMetadata = metadata
        if write_empty_chunks is None:
            write_empty_chunks = metadata.fill_value is None and FORMATS[metadata.zarr_format].features.undefined_fill
        self.write_empty_chunks: bool = write_empty_chunks
        self.keeps_outside: bool = False
        self._store = store
        # Chosen when something is written: opening an array asks the store for documents only.
        self._access: Access | None = None
        self._path = path
        self._name = f"/{path}"
        self._prefix = metadata.key_prefix(path)
        # One chain for each chunk shape (a rectilinear grid has several), least recently used first.
        self._chains: OrderedDict[tuple[int, ...], _Chain] = OrderedDict()
        self._small_writes: SmallWrites | None = None
        self._small_writes_known = False

    def with_metadata(self, metadata: ArrayMetadata) -> Writer:
        """Return a writer of the array with other metadata, usually with another shape and the same codecs."""
        writer = Writer(metadata, self._store, self._path, write_empty_chunks=self.write_empty_chunks)
        writer.keeps_outside = self.keeps_outside
        if (metadata.codecs, metadata.dtype) == (self.metadata.codecs, self.metadata.dtype):
            writer._chains = self._chains
        return writer

    @property
    def _the_access(self) -> Access:
        if self._access is None:
            self._access = access_to(self._store)
        return self._access

    def _chain(self, chunk_shape: tuple[int, ...]) -> _Chain:
        """Return the codec chain of chunks (shards) of a given shape, analysed once."""
        chain = self._chains.get(chunk_shape)
        if chain is None:
            decoding = _decoding(self.metadata, chunk_shape)
            program = analyse_encoding(decoding.codecs, decoding.chunk, native_write.available())
            shards = [Shard.of(level, level.stored_shape) for level in decoding.levels]
            chain = _Chain(decoding, program, shards[0] if shards else None)
        elif self.metadata.chunk_grid.is_regular:
            return chain
        # Several threads may do this at once; at worst, a chain is analysed twice.
        self._chains.pop(chunk_shape, None)
        self._chains[chunk_shape] = chain
        while len(self._chains) > KEEP_SHAPES:
            with contextlib.suppress(KeyError):
                self._chains.popitem(last=False)
        return chain

    def write(
        self,
        selections: Sequence[Selection],
        values: Sequence[npt.NDArray[Any]],
        field: str | None = None,
        *,
        aligned: bool = False,
        lock: bool = False,
        memory: DeviceResults | None = None,
        budget_bytes: int | None = None,
    ) -> None:
        """Write each value to its selection; where selections overlap, the last one wins.

        Parameters
        ----------
        selections
            One or more selections of boxes, or one selection of points.
        values
            One array for each selection, of its result's shape and with the dtype of the array (of the field).
        field
            Name of a field of a structured dtype, or None.
        aligned
            Whether to refuse partial changes of stored values.
        lock
            Whether to exclude writers in other processes, by file locks.
        memory
            Device of the values, and the stream on which they can be read; None for host memory.
        budget_bytes
            Most bytes of device and page-locked memory to encode them in; None for the default.

        Raises
        ------
        ArgumentError
            If a stored value would be partially changed, with ``aligned``; nothing was written.
        ChunkError
            For the first chunk that fails; each stored value is then either the old one or the new one.
        """
        simple = memory is None and len(selections) == 1 and field is None and not lock
        if simple and self._write_quickly(selections[0], values[0]):
            return
        views = []
        for selection, value in zip(selections, values, strict=True):
            view = selection.view(value)
            if view is None:
                # The axes of an index array can always be joined in a contiguous copy.
                view = selection.view(_contiguous(value, memory))
            views.append(view)
        requests = list(self._requests(selections, tuple(views), field, lock=lock))
        if aligned:
            for request, _ in requests:
                self._check_aligned(request)
        for request, chain in requests:
            self._run(request, chain, memory, budget_bytes, lock=lock)

    def _write_quickly(self, selection: Selection, value: npt.NDArray[Any]) -> bool:
        """Try to write a box of few whole chunks by the fast path; return whether it was written."""
        grid = self.metadata.chunk_grid
        if not grid.is_regular or (self._small_writes_known and self._small_writes is None):
            return False
        rows = box_chunks(selection, grid.chunk_shape)
        if rows is None or any(step != 1 for step in selection.step):
            return False
        chain = self._chain(grid.chunk_shape)
        nbytes = chain.decoding.chunk.nbytes
        # The way to search may be chosen for a larger write.
        if len(rows) * nbytes > SMALL_BYTES or not effort.is_small(len(rows), nbytes):
            return False
        small_writes = self._the_small_writes(chain)
        view = selection.view(value)
        if small_writes is None or view is None:
            return False
        try:
            return small_writes.write(rows, view)
        except MemoryError:
            # The normal path may do with less, or reports it.
            return False

    def _the_small_writes(self, chain: _Chain) -> SmallWrites | None:
        if not self._small_writes_known:
            if chain.program is not None and not chain.decoding.levels:
                self._small_writes = small_writes_of(
                    chain.program,
                    chain.decoding.chunk,
                    self.metadata.absent_value,
                    self._the_access,
                    self._prefix,
                    self.metadata.chunk_key_encoding,
                    write_empty_chunks=self.write_empty_chunks,
                )
            self._small_writes_known = True
        return self._small_writes

    def _requests(
        self, selections: Sequence[Selection], views: tuple[Any, ...], field: str | None, *, lock: bool = False
    ) -> Iterator[tuple[WriteRequest, _Chain]]:
        metadata = self.metadata
        chain = self._chain(metadata.chunk_shape)
        decoding = chain.decoding
        grid = planned_grid(metadata.chunk_grid, decoding.levels)
        for part in by_shape(plan(selections, grid), grid):
            if not len(part):
                continue
            if not grid.is_regular:
                chain = self._chain(part.chunk_shape)
                decoding = chain.decoding
            values, value_of = part.chunks, np.arange(len(part))
            if decoding.levels:
                level = decoding.levels[0]
                values, value_of = distinct_rows(level.locate(part.chunks, level.inner_shape)[0])
            request = WriteRequest(
                node=self._name,
                access=self._the_access,
                shard=chain.shard,
                codecs=decoding.codecs,
                chunk=decoding.chunk,
                shape=metadata.shape,
                plan=part,
                keys=ChunkKeys(metadata.chunk_key_encoding, self._prefix, values),
                value_of=value_of,
                inputs=views,
                field=field,
                fill_value=metadata.absent_value,
                whole=np.zeros(len(part), np.bool_) if field is not None else _whole(part, grid),
                beyond=metadata.chunk_grid.are_cut(values),
                is_current=_never if lock or self.keeps_outside else self._is_current,
                write_empty_chunks=self.write_empty_chunks,
                most_encoded=decoding.most_encoded,
                level_is_free=metadata.level_is_free,
            )
            yield request, chain

    def _is_current(self) -> bool:
        """Return whether the array still has the shape known here, and nobody is changing it."""
        # In this order: an append changes the metadata last, and then releases the node.
        if locks.node_is_held(self._store, self._path):
            return False
        try:
            entry = reader_of(self._store).node(self._path, self.metadata.zarr_format)
        except GzarrError:
            return False
        return entry is not None and getattr(entry.metadata, "shape", None) == self.metadata.shape

    def _joined(self, request: WriteRequest) -> BoolArray:
        """Return which chunks are completely covered, within the array's bounds, by several pieces together."""
        the_plan = request.plan
        joined = np.zeros(len(the_plan), np.bool_)
        if the_plan.points is not None or any(table is not None for table in the_plan.tables):
            return joined
        grid = planned_grid(self.metadata.chunk_grid, () if request.shard is None else (request.shard.level,))
        for i in np.flatnonzero(np.diff(the_plan.piece_offsets) > 1).tolist():
            inside = [end - begin for begin, end in grid.extent(the_plan.chunks[i].tolist())]
            covered = np.zeros(inside, np.bool_)
            for piece in range(*the_plan.piece_offsets[i : i + 2].tolist()):
                first, count = the_plan.start[piece], the_plan.count[piece]
                covered[tuple(map(slice, first, first + (count - 1) * the_plan.step + 1, the_plan.step))] = True
            joined[i] = covered.all()
        return joined

    def _check_aligned(self, request: WriteRequest) -> None:
        partial = ~write_threads.complete_values(request)
        if partial.any() and request.field is None:
            partial = ~write_threads.complete_values(replace(request, whole=request.whole | self._joined(request)))
        if partial.any():
            value = int(np.argmax(partial))
            raise ArgumentError(
                f"{self._name}: the region covers {request.keys[value]!r} in part, which aligned=True forbids; "
                f"regions have to begin and end at multiples of {self.metadata.chunk_shape}, or at the array's end"
            )

    def _run(
        self,
        request: WriteRequest,
        chain: _Chain,
        memory: DeviceResults | None,
        budget_bytes: int | None,
        *,
        lock: bool,
    ) -> None:
        with contextlib.ExitStack() as stack:
            if request.shard is not None or any(isinstance(codec, ShardingIndexed) for codec in request.codecs):
                stack.callback(forget_written, request.access.versions, request.keys)
            if lock:
                stack.enter_context(locks.between_processes(self._store, request.keys.all(), self._prefix))
            if memory is None:
                _write(request, chain)
                return
            # Device code is loaded only if there is a device.
            from ..engines.cuda import write_engine

            rows = write_engine.write(memory.device, request, memory.stream, budget_bytes)
            for part in write_engine.on_host(memory.device, request, rows, memory.stream):
                _write(part, chain)


def _whole(the_plan: Plan, grid: ChunkGrid) -> BoolArray:
    """Return which chunks are covered as far as they lie within the array, by one of their pieces."""
    n = len(the_plan)
    if the_plan.points is not None or any(table is not None for table in the_plan.tables):
        return np.zeros(n, np.bool_)
    covers = np.ones(len(the_plan.start), np.bool_)
    chunk_of = np.repeat(np.arange(n), np.diff(the_plan.piece_offsets))
    for d, axis in enumerate(grid.axes):
        # All chunks of a plan have one shape.
        inside = np.minimum(the_plan.chunk_shape[d], axis.size - axis.begins(the_plan.chunks[:, d]))[chunk_of]
        covers &= (the_plan.start[:, d] == 0) & (the_plan.count[:, d] == inside)
        covers &= (the_plan.step[d] == 1) | (inside == 1)
    whole = np.zeros(n, np.bool_)
    whole[chunk_of[covers]] = True
    return whole


def _never() -> bool:
    """Return False: other processes may be appending, or what is beyond the array is to stay."""
    return False


def _contiguous(value: Any, memory: DeviceResults | None) -> Any:
    """Return a C-contiguous copy of an array, in host memory or on a device."""
    if memory is None:
        return np.ascontiguousarray(value)
    copy = memory.empty(value.shape, value.dtype)
    memory.copy(copy, value)
    return copy


def _write(request: WriteRequest, chain: _Chain) -> None:
    """Write stored values by the native loop where it can, and the others by host threads."""
    try:
        _write_on_host(request, chain)
    except MemoryError as cause:
        # A few bytes of metadata can cause this: they may imply a shard index of terabytes.
        chunk = tuple(request.plan.chunks[0].tolist())
        reason = f"there is not enough memory to write such chunks, or shards ({str(cause) or 'out of memory'})"
        raise ChunkWriteError(reason, node=request.node, chunk=chunk, key=request.keys[0]) from cause


def _write_on_host(request: WriteRequest, chain: _Chain) -> None:
    decoding, program, _ = chain
    if program is None:
        write_threads.write(request)
        return
    complete = write_threads.complete_values(request)
    # Partly changed values, if the native loop can read and decode their old content too.
    changed = ~complete if native_write.can_change(request, program, decoding) else np.zeros_like(complete)
    # Host threads take the locks of their values themselves.
    values = np.flatnonzero(complete | changed)
    with locks.hold(request.store, request.keys.some(values)):
        covered = np.flatnonzero(complete)
        complete[covered] = ~write_threads.kept_in_part(request, covered)
        rows, some = (np.flatnonzero(which[request.value_of]) for which in (complete, changed))
        left = native_write.write(request, program, rows, some, decoding)
    rest = distinct(left, np.flatnonzero(~(complete | changed)[request.value_of]))
    if len(rest):
        write_threads.write(request, rest, already=len(complete) - len(distinct(request.value_of[rest])))


def _decoding(metadata: ArrayMetadata, chunk_shape: tuple[int, ...]) -> Decoding:
    """Analyse the codec chain for writing: each stored value is a chunk, or a shard of chunks."""
    whole = ArrayRepresentation(chunk_shape, metadata.dtype)
    decoding = analyse(metadata.codecs, whole, kernels.available())
    if len(decoding.levels) <= 1 and metadata.chunk_grid.is_regular:
        return decoding
    # Nested shards, and shards of different shapes, are decoded and encoded as a whole.
    most = most_taken(metadata.codecs, whole)
    return replace(decoding, levels=(), codecs=metadata.codecs, chunk=whole, program=None, most_encoded=most)
