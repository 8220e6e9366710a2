"""Reading selections into results: planning, locating the chunks, running an engine."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..codecs.codec import ArrayRepresentation
from ..display import printable
from ..engines import kernels, monitor
from ..engines.access.access import LoopWay, ReadRequest
from ..engines.access.choose import access_to
from ..engines.access.locate import Locator
from ..engines.cpu.engine import CpuEngine
from ..engines.cpu.small_reads import CHUNKS_BYTES, MOST_CHUNKS, MOST_SMALL_CHUNKS, SMALL_BYTES
from ..engines.stack import Stack
from ..metadata.chunk_grid import ChunkGrid
from ..plan.decode_program import analyse, converting, planned_grid
from ..plan.keys import distinct_rows
from ..plan.planner import box_chunks, by_shape, count_chunks, plan, plan_chunks, plan_windows, some_chunks
from ..progress import reads_are_shown, watch
from .outputs import HOST, DeviceResults
from .read_options import NO_OPTIONS, DeviceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from ..engines.access.access import Access, Missing, Verify
    from ..engines.access.sources import Sources
    from ..engines.cpu.small_reads import SmallReads
    from ..engines.cuda.engine import CudaEngine
    from ..engines.monitor import Monitor
    from ..metadata.model import ArrayMetadata
    from ..plan.decode_program import Decoding
    from ..plan.planner import Plan
    from ..plan.selection import Selection
    from ..stores.base import ReadableStore
    from .outputs import Results


#: Ways that a read can take.
Way: TypeAlias = Literal["small reads", "host threads", "packed values", "device"] | LoopWay
#: Number of chunk shapes of a rectilinear grid for which readers and writers are kept.
KEEP_SHAPES = 64
#: Parts of a read that shows its progress, and fewest chunks of a part: threads wait for each other at its end.
SHOWN_STEPS = 50
FEWEST_CHUNKS = 64


class Reader:
    """Reader of one array.

    Parameters
    ----------
    metadata
        Metadata of the array.
    store
        Store that holds the chunks.
    path
        Path of the array, without leading slash.
    device
        ``"cpu"`` or ``"cuda:N"``. Any reader can also read to host memory.
    """

    __slots__ = (
        "_access",
        "_converting",
        "_cuda",
        "_decoding",
        "_device",
        "_engine",
        "_fill_value",
        "_grid",
        "_locator",
        "_metadata",
        "_name",
        "_path",
        "_prefix",
        "_quick",
        "_shapes",
        "_store",
    )

    def __init__(self, metadata: ArrayMetadata, store: ReadableStore, path: str, device: str) -> None:
        self._device = device
        self._metadata = metadata
        self._store = store
        self._path = path
        self._name = f"/{path}"
        self._prefix = metadata.key_prefix(path)
        self._fill_value = metadata.absent_value
        self._access: Access | None = None
        self._locator: Locator | None = None
        self._decoding: Decoding | None = None
        self._grid: ChunkGrid | None = None
        self._engine: CpuEngine | None = None
        self._cuda: CudaEngine | None = None
        # The fast path for small reads, if there is one; shape and bytes of a chunk.
        self._quick: tuple[SmallReads | None, tuple[int, ...], int] | None = None
        # One reader for each chunk shape of a rectilinear grid, least recently used first.
        self._shapes: OrderedDict[tuple[int, ...], Reader] = OrderedDict()
        self._converting: dict[np.dtype[Any], Reader | None] = {}

    @property
    def decoding(self) -> Decoding:
        """Codec chain, analysed on first use."""
        if self._decoding is None:
            grid = self._metadata.chunk_grid
            whole = ArrayRepresentation(grid.chunk_shape, self._metadata.dtype)
            self._decoding = analyse(self._metadata.codecs, whole, kernels.available(), grid)
        return self._decoding

    def converting(self, dtype: np.dtype[Any]) -> Reader | None:
        """Return the reader that converts elements as it places them, or None if they must be converted afterwards.

        Parameters
        ----------
        dtype
            Data type of the results, in native byte order.
        """
        # Several threads may do this at once; at worst, a reader is made twice.
        if dtype not in self._converting:
            decoding = converting(self.decoding, dtype, kernels.available())
            reader = None
            if decoding is not None:
                reader = Reader(self._metadata, self._store, self._path, self._device)
                reader._decoding, reader._access = decoding, self._the_access
                # Without a value, absent chunks are zeros.
                with np.errstate(all="ignore"):
                    reader._fill_value = (
                        self._fill_value
                        if self._fill_value is None
                        else np.asarray(self._fill_value, self._metadata.dtype).astype(dtype)[()]
                    )
            self._converting[dtype] = reader
        return self._converting[dtype]

    @property
    def planned_grid(self) -> ChunkGrid:
        """The grid that reads are planned over: of chunks, or of the inner chunks of shards."""
        if self._grid is None:
            self._grid = planned_grid(self._metadata.chunk_grid, self.decoding.levels)
        return self._grid

    def fill(
        self,
        selections: Sequence[Selection],
        results: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results = HOST,
        whole: Any = None,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read each selection into its result.

        Parameters
        ----------
        selections
            One or more selections of boxes, or one selection of points.
        results
            One array for each selection, of its result's shape, with any strides, and with the dtype of the array (of
            the field).
        field
            Name of a field of a structured dtype, or None.
        missing
            Meaning of an absent chunk.
        memory
            Memory of ``results``.
        whole
            Array that all ``results`` are views of; may be omitted for a single result.
        options
            Options of a read to a device.

        Raises
        ------
        ChunkError
            For the first chunk that fails; the results are then partially filled.
        """
        simple = memory is HOST and len(selections) == 1 and field is None
        if simple and monitor.current() is None and self._fill_quickly(selections[0], results[0], missing):
            return
        views, copies, whole = _placeable(selections, results, memory, results[0] if whole is None else whole)
        self._run_parts(plan(selections, self.planned_grid), views, field, missing, memory, whole, options)
        for own, result in copies:
            memory.copy(result, own)

    def fill_chunks(
        self,
        coords: Sequence[tuple[int, ...]],
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        whole: Any = None,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read whole chunks of :attr:`planned_grid`, cut at the array's end, each into its result.

        Parameters
        ----------
        coords
            Their coordinates, each once.
        results, missing, memory, whole, options
            As for :meth:`fill`.

        Raises
        ------
        GzarrError
            As for :meth:`fill`.
        """
        if memory is HOST and self._fill_chunks_quickly(coords, results, missing):
            return
        the_plan = plan_chunks(coords, [result.shape for result in results], self.planned_grid)
        self._run_parts(the_plan, results, None, missing, memory, results[0] if whole is None else whole, options)

    def fill_windows(
        self,
        starts: npt.NDArray[np.int64],
        step: tuple[int, ...],
        rows: npt.NDArray[np.int64] | None,
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read many windows of one shape.

        Parameters
        ----------
        starts
            int64 ``(w, k)``, first element of each window; every window is inside the array.
        step
            Distance between elements of a window along each dimension, at least 1.
        rows
            int64 ``(w,)``, place of each window along the first axes of ``results``; None for 0 to w − 1.
        results
            Arrays of the windows, with any strides and the dtype of the array; one array on a device.
        missing, memory, options
            As for :meth:`fill`.

        Raises
        ------
        GzarrError
            As for :meth:`fill`.
        """
        shape = results[0].shape[1:]
        the_plan = plan_windows(starts, shape, step, self.planned_grid)
        if rows is not None:
            the_plan = replace(the_plan, output=rows[the_plan.output])
        self.fill_planned(the_plan, results, missing, memory, options)

    def fill_planned(
        self,
        the_plan: Plan,
        results: Sequence[Any],
        missing: Missing,
        memory: Results = HOST,
        options: DeviceOptions = NO_OPTIONS,
    ) -> None:
        """Read what a plan of windows says, over :attr:`planned_grid`.

        Parameters
        ----------
        the_plan
            The plan, or some chunks of it; its outputs are places along the first axes of ``results``.
        results, missing, memory, options
            As for :meth:`fill_windows`.

        Raises
        ------
        GzarrError
            As for :meth:`fill_windows`.
        """
        self._run_parts(the_plan, Stack(results), None, missing, memory, results[0], options)

    def _run_parts(
        self,
        the_plan: Plan,
        views: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results,
        whole: Any,
        options: DeviceOptions,
    ) -> None:
        """Run an engine over a plan, for chunks of one shape after the other."""
        grid = self.planned_grid
        parts = [part for part in by_shape(the_plan, grid) if len(part)]
        for part in self._shown(parts) if reads_are_shown() else parts:
            reader = self if grid.is_regular else self._of_shape(part.chunk_shape)
            reader._run(part, views, field, missing, memory, whole, options)

    def _shown(self, parts: Sequence[Plan]) -> Iterator[Plan]:
        """Yield a plan in smaller parts, between which a progress bar moves."""
        smaller = [some_chunks(part, rows) for part in parts for rows in self._split(part)]
        each = math.prod(self.planned_grid.chunk_shape) * self._metadata.dtype.itemsize
        chunks = sum(map(len, smaller))
        return watch(smaller, f"reading {printable(self._name, 30)}", chunks, count=len, nbytes=each * chunks)

    def _split(self, part: Plan) -> list[npt.NDArray[np.int64]]:
        """Return the rows of a plan in groups, each with chunks of as few shards as possible."""
        order = np.arange(len(part))
        if self.decoding.levels:
            _, shards = distinct_rows(self._metadata.chunk_grid.chunk_of(self.planned_grid.begins(part.chunks)))
            order = np.argsort(shards, kind="stable")
        count = min(SHOWN_STEPS, -(-len(part) // FEWEST_CHUNKS))
        return [np.sort(rows) for rows in np.array_split(order, count)]

    def _run(
        self,
        the_plan: Plan,
        views: Sequence[Any],
        field: str | None,
        missing: Missing,
        memory: Results,
        whole: Any,
        options: DeviceOptions,
    ) -> None:
        """Run an engine over a plan of chunks of one shape."""
        watching = monitor.current()
        if watching is not None:
            watching.count(len(the_plan), int(the_plan.piece_offsets[-1]))

        def read(request: ReadRequest) -> None:
            if isinstance(memory, DeviceResults):
                self._the_cuda_engine.read(
                    request, whole, memory.stream, options.budget_bytes, options.decode, options.verify
                )
            else:
                self._the_engine.read(request)

        budget_bytes = options.budget_bytes if memory is HOST else None
        self._find(the_plan, views, field, missing, budget_bytes, watching, read, at_once=memory is HOST)

    def ask(self, chunks: npt.NDArray[np.int64], ask: Callable[[ReadRequest], None]) -> None:
        """Find chunks that will be read to host memory, in a remote store.

        Parameters
        ----------
        chunks
            int64 ``(n, k)``, their coordinates in :attr:`planned_grid`, each once.
        ask
            Function that is called with reads of all of them, without outputs.

        Raises
        ------
        ChunkError
            If the index of a shard cannot be read.
        """
        grid = self.planned_grid
        shapes = np.ones_like(chunks)
        for part in by_shape(plan_chunks(chunks, shapes, grid), grid):  # type: ignore[arg-type]
            reader = self if grid.is_regular else self._of_shape(part.chunk_shape)
            reader._find(part, (), None, "fill", None, None, ask, at_once=True)

    def _find(
        self,
        the_plan: Plan,
        views: Sequence[Any],
        field: str | None,
        missing: Missing,
        budget_bytes: int | None,
        watching: Monitor | None,
        read: Callable[[ReadRequest], None],
        *,
        at_once: bool,
    ) -> None:
        """Call a function with reads of the chunks of a plan, of one shape, once it is known where they are.

        Parameters
        ----------
        the_plan, views, field, missing, budget_bytes, watching
            As in :class:`ReadRequest`.
        read
            The function.
        at_once
            Whether shards in a remote store may be fetched as a whole.
        """
        decoding, access = self.decoding, self._the_access

        def run(part: Plan, sources: Sources) -> None:
            request = ReadRequest(
                node=self._name,
                access=access,
                codecs=decoding.codecs,
                chunk=decoding.chunk,
                plan=part,
                sources=sources,
                outputs=views,
                field=field,
                fill_value=self._fill_value,
                missing=missing,
                most_encoded=decoding.most_encoded,
                budget_bytes=budget_bytes,
                monitor=watching,
            )
            access.read(request, read)

        if self._locator is None:
            metadata = self._metadata
            where = metadata.chunk_key_encoding, self._prefix, self._name, metadata.shape
            self._locator = Locator(access, decoding, *where)
        self._locator.read(the_plan, run, at_once=at_once)

    def _of_shape(self, chunk_shape: tuple[int, ...]) -> Reader:
        """Return the reader of the chunks of a rectilinear grid that have a given shape."""
        reader = self._shapes.get(chunk_shape)
        if reader is None:
            metadata = replace(self._metadata, chunk_grid=ChunkGrid.regular(self._metadata.shape, chunk_shape))
            reader = Reader(metadata, self._store, self._path, self._device)
            if self.decoding.chunk.dtype != metadata.dtype:
                # ``converting`` has found that elements of this data type are converted in place.
                reader = reader.converting(self.decoding.chunk.dtype)
                assert reader is not None
        # Several threads may do this at once; at worst, a reader is made twice.
        self._shapes[chunk_shape] = reader
        while len(self._shapes) > KEEP_SHAPES:
            with contextlib.suppress(KeyError):
                self._shapes.popitem(last=False)
        return reader

    def path(self, device: str, verify: Verify = "none") -> str:
        """Return a description of how chunks read to a device (this reader's, or ``"cpu"``) will be decoded."""
        if device == "cpu":
            return self.decoding.path
        metadata = self._metadata
        chunks = math.prod(self.planned_grid.grid_shape)
        return self._the_cuda_engine.path(
            chunks, metadata.size * metadata.dtype.itemsize, self._the_access.holder, verify
        )

    def _fill_quickly(self, selection: Selection, result: npt.NDArray[Any], missing: Missing) -> bool:
        """Try to read a box of few small chunks by the fast path; return whether it was read."""
        small_reads, shape, nbytes = self._quick or self._find_quick()
        if small_reads is None:
            return False
        rows = box_chunks(selection, shape, MOST_SMALL_CHUNKS)
        if rows is None or len(rows) * nbytes > SMALL_BYTES:
            return False
        view = result if selection.index is selection.block is None else selection.view(result)
        return view is not None and small_reads.read(rows, selection.step, view, fill=missing == "fill")

    def _find_quick(self) -> tuple[SmallReads | None, tuple[int, ...], int]:
        """Find the fast path for small reads."""
        chunk = self.decoding.chunk
        fits = chunk.nbytes <= SMALL_BYTES and self.planned_grid.is_regular
        self._quick = self._the_engine.small_reads() if fits else None, chunk.shape, chunk.nbytes
        return self._quick

    def explain(self, selection: Selection, field: str | None, *, on_host: bool) -> tuple[Way, int, int, int]:
        """Return what a read of a selection will do; see :func:`gzarr.explain`.

        Returns
        -------
        The way, the number of chunks and of stored values, and the decoded bytes.
        """
        way = self._way(selection, field, on_host=on_host)
        if selection.points is not None:
            chunks = plan([selection], self.planned_grid).chunks
            return way, len(chunks), *self._stored(chunks)
        return way, *self._count(selection)

    def _count(self, selection: Selection) -> tuple[int, int, int]:
        """Return how many chunks, and stored values, a selection without points touches, and their decoded bytes.

        They are not planned: whoever wants to know what a read would do may not have the memory for it.
        """
        chunks, elements = count_chunks(selection, self.planned_grid)
        values = count_chunks(selection, self._metadata.chunk_grid)[0] if self.decoding.levels else chunks
        return chunks, values, elements * self._metadata.dtype.itemsize

    def _stored(self, chunks: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Return in how many stored values some chunks are, and their decoded bytes."""
        grid, values = self.planned_grid, len(chunks)
        if self.decoding.levels and values:
            values = len(distinct_rows(self._metadata.chunk_grid.chunk_of(grid.begins(chunks)))[0])
        return values, int(np.prod(grid.lengths(chunks), axis=1).sum()) * self._metadata.dtype.itemsize

    def _way(self, selection: Selection, field: str | None, *, on_host: bool) -> Way:
        if not on_host:
            return "device"
        small_reads, shape, nbytes = self._quick or self._find_quick()
        if small_reads is not None and field is None and monitor.current() is None:
            rows = box_chunks(selection, shape, MOST_SMALL_CHUNKS)
            if rows is not None and len(rows) * nbytes <= SMALL_BYTES and small_reads.knows(rows):
                return "small reads"
        if self.decoding.program is None:
            return "host threads"
        return "packed values" if self._the_access.packed else self._the_access.way

    def _fill_chunks_quickly(self, coords: Sequence[tuple[int, ...]], results: Sequence[Any], missing: Missing) -> bool:
        """Try to read a few chunks by the fast path; return whether they were read."""
        nbytes = len(coords) * self.decoding.chunk.nbytes
        if len(coords) > MOST_CHUNKS or nbytes > CHUNKS_BYTES or not self.planned_grid.is_regular or reads_are_shown():
            return False
        small_reads, watching = self._the_engine.small_reads(), monitor.current()
        if small_reads is None:
            return False
        if watching is not None:
            watching.check()
        if not small_reads.read_chunks(coords, results, watching, fill=missing == "fill"):
            return False
        if watching is not None:
            watching.count(len(coords), len(coords))
        return True

    @property
    def _the_access(self) -> Access:
        if self._access is None:
            self._access = access_to(self._store)
        return self._access

    @property
    def _the_engine(self) -> CpuEngine:
        if self._engine is None:
            metadata = self._metadata
            self._engine = CpuEngine(
                self.decoding,
                self._fill_value,
                self._the_access,
                self._prefix,
                metadata.chunk_key_encoding,
            )
        return self._engine

    @property
    def _the_cuda_engine(self) -> CudaEngine:
        if self._cuda is None:
            from ..engines.cuda.devices import get_device
            from ..engines.cuda.engine import CudaEngine

            self._cuda = CudaEngine(get_device(self._device), self.decoding, self._the_engine)
        return self._cuda


def _placeable(
    selections: Sequence[Selection], results: Sequence[Any], memory: Results, whole: Any
) -> tuple[list[Any], list[tuple[Any, Any]], Any]:
    """Return arrays that an engine can write to.

    Returns
    -------
    views
        One view for each selection, with the dimensions of the array; C-contiguous for points on a device.
    copies
        Pairs of a temporary array and the result to copy it to.
    whole
        Array that all views are views of, for a device.
    """
    on_host = memory is HOST
    views = [selection.view(result) for selection, result in zip(selections, results, strict=True)]
    unfit = [
        view is None or not (on_host or selection.points is None or view.flags.c_contiguous)
        for selection, view in zip(selections, views, strict=True)
    ]
    if not any(unfit):
        return views, [], whole
    copies = []
    if not on_host and len(results) > 1:
        # The device writes to one allocation.
        ends = list(itertools.accumulate(result.size for result in results))
        whole = memory.empty((ends[-1],), results[0].dtype)
        owns = [whole[end - r.size : end].reshape(r.shape) for end, r in zip(ends, results, strict=True)]
        unfit = [True] * len(results)
    else:
        owns = [memory.empty(r.shape, r.dtype) if bad else r for r, bad in zip(results, unfit, strict=True)]
        whole = owns[0]
    for i, bad in enumerate(unfit):
        if bad:
            views[i] = selections[i].view(owns[i])
            copies.append((owns[i], results[i]))
    return views, copies, whole
