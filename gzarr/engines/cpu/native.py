"""The native path of the CPU engine: a read becomes a job, and a few threads run the compiled loop over it.

No Python runs per chunk: ``gzarr_kernels.read.work`` opens, reads, decodes and places without the GIL. Stores other
than local files hand over encoded bytes in batches.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from gzarr_kernels import status as s
from gzarr_kernels.slots import context as c
from gzarr_kernels.slots import geometry as g

from ...errors import ChunkError
from ...plan.keys import ChunkKeys, file_prefix
from ...stores.base import LocalFiles, RemoteValues
from .. import failures, kernels, pool, result_memory, spans, stack
from ..fetching import fetch_each
from ..kernels import address
from ..monitor import spent
from . import threads
from .job_slots import ReadSlots, piece_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ...plan.planner import Plan, Points
    from ...stores.base import ReadableStore
    from ..request import ReadRequest, Sources
    from .native_program import NativeProgram

    IntArray = npt.NDArray[np.int64]

#: Ways of values to the compiled loop.
Way: TypeAlias = Literal["compiled loop, files", "compiled loop, requests", "compiled loop, batches"]
#: Byte ranges of a file with smaller gaps than this are read in one request.
GAP_BYTES = 4096
#: Most bytes of such a request (a larger chunk has a request to itself).
SPAN_BYTES = 1 << 20
#: A read of at most this many chunks and bytes runs in the caller's thread alone: starting a helper would cost more.
FEW_CHUNKS = 8
FEW_BYTES = 256 << 10
#: Most chunks and decoded bytes of a batch, which one thread fetches from a store other than local files.
BATCH_CHUNKS = 64
BATCH_BYTES = 8 << 20
#: Larger outputs do not stay in the caches anyway, so rows are written past the caches.
STREAM_BYTES = 16 << 20


def read(request: ReadRequest, program: NativeProgram) -> None:
    """Read every chunk of ``request.plan`` into ``request.outputs``.

    Raises
    ------
    ChunkError
        As for :func:`gzarr.engines.cpu.threads.read`.
    """
    n = len(request.plan)
    if not n:
        return
    work = kernels.load()
    job = _Job(request, program)
    if n <= FEW_CHUNKS and n * program.chunk_nbytes <= FEW_BYTES:
        workers = 1
    else:
        workers = min(pool.thread_count(), n)
    way = way_from(request.store)
    if way == "compiled loop, requests":
        _run_remote(request, job, work, workers)
    elif way == "compiled loop, batches":
        _run_batches(request, program, job, work, workers)
    else:
        if workers > 1:
            job.share_first_touch()
        kernels.run(work, job.address, job.shared, job.turns, workers, request.monitor)
    job.check(request)


def way_from(store: ReadableStore) -> Way:
    """Return how values of a store come to the compiled loop: it reads files itself, or is given encoded bytes."""
    if isinstance(store, LocalFiles) and store.file_root() is not None:
        return "compiled loop, files"
    return "compiled loop, requests" if isinstance(store, RemoteValues) else "compiled loop, batches"


def _run_remote(request: ReadRequest, job: _Job, work: Any, workers: int) -> None:
    """Decode chunks as they arrive from a remote store."""

    def decode(rows: IntArray, values: Sequence[Any]) -> bool:
        return job.decode(rows, values, work)

    fetch_each(request, np.arange(len(request.plan)), workers, decode, request.budget_bytes)


def _run_batches(request: ReadRequest, program: NativeProgram, job: _Job, work: Any, workers: int) -> None:
    """Fetch and decode in batches, one per thread at a time: memory is bounded, and fetching overlaps decoding."""
    n = len(request.plan)
    most = max(1, min(BATCH_CHUNKS, BATCH_BYTES // max(program.chunk_nbytes, 1), -(-n // workers)))
    # Adjacent ranges of one key in a batch are one request.
    rows = np.lexsort((request.sources.offset, request.sources.key_index))

    def read_batch(i: int) -> object:
        batch = rows[i * most : (i + 1) * most]
        return None if job.decode(batch, fetch(request, batch), work) else pool.STOP

    pool.each(read_batch, -(-n // most), workers)


def fetch(request: ReadRequest, rows: IntArray) -> list[Any]:
    """Return the encoded bytes of some chunks, None for absent ones; raise an error that names the chunk."""
    try:
        with spent(request.monitor, "store"):
            where = request.store, request.sources, rows.tolist(), request.most_encoded
            return list(threads.fetch(*where, request.monitor))
    except ChunkError:
        raise
    # Third-party stores may raise anything.
    except Exception as error:
        if len(rows) > 1:
            # One at a time, to find the chunk that fails.
            return [value for i in range(len(rows)) for value in fetch(request, rows[i : i + 1])]
        raise failures.store_failure(request, int(rows[0]), error) from error


class _Job:
    """The job of a read; keeps all memory alive to which compiled code has addresses."""

    def __init__(self, request: ReadRequest, program: NativeProgram) -> None:
        plan, sources = request.plan, request.sources
        n, k = plan.chunks.shape
        self._outputs = request.outputs
        self._monitor = request.monitor
        self.status = np.zeros((n, 2), np.int64)
        self.shared = np.zeros(3, np.int64)
        self._slots = slots = ReadSlots()
        self.address = slots.address
        self.turns = n
        rows: IntArray | None = None
        root = request.store.file_root() if isinstance(request.store, LocalFiles) else None
        self.in_memory = root is None
        if root is None:
            self.where = np.zeros(n, np.int64)
            self.nbytes = np.zeros(n, np.int64)
            slots.set_memory(self.where, self.nbytes)
        elif isinstance(sources.keys, ChunkKeys) and sources.keys.chunks is plan.chunks:
            encoding = sources.keys.encoding
            prefix = np.frombuffer(file_prefix(root, sources.keys.prefix, encoding, k), np.uint8)
            slots.set_files(prefix, plan.chunks, k, ord(encoding.separator))
        else:
            self.turns, rows = self._set_ranges(sources, root)
        slots.set_rows(self.turns, self.shared, rows)
        slots.set_program(program.words, program.operations, program.chunk_nbytes)
        field_offset = 0
        if request.field is not None:
            fields = request.chunk.dtype.fields
            assert fields is not None
            field_offset = fields[request.field][1]
        fill = address(program.fill) + field_offset if request.missing == "fill" else 0
        slots.set_read(self.status, request.most_encoded, fill, program.zeros)
        slots.set_pieces(plan.piece_offsets, self._geometry(request, program, field_offset))
        # The program owns the fill value.
        self._program = program

    def decode(self, rows: IntArray, values: Sequence[Any], work: Any) -> bool:
        """Decode and place a batch of chunks, given their encoded bytes; return False if one of them failed."""
        buffers = [None if value is None else np.frombuffer(value, np.uint8) for value in values]
        self.where[rows] = [0 if buffer is None else address(buffer) for buffer in buffers]
        self.nbytes[rows] = [-1 if buffer is None else buffer.size for buffer in buffers]
        shared = np.zeros(3, np.int64)
        slots = self._slots.copy()
        slots.set_rows(len(rows), shared, rows)
        worker = kernels.take_worker()
        try:
            with spent(self._monitor, "decoder"):
                work(slots.address, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker)
        return not shared[1]

    def share_first_touch(self) -> None:
        """Have the workers make the pages of a new result ready before they read."""
        # Of several pieces of memory, one is as good as another: the others get their pages as they are written.
        self._slots.set_first_touch(*result_memory.take_untouched(stack.held_in(self._outputs)[0]))

    def _set_ranges(self, sources: Sources, root: bytes) -> tuple[int, IntArray]:
        """Cut byte ranges into spans: neighbours in a file are one request; return number and rows of the spans."""
        n = len(sources.offset)
        cut = spans.join(sources, np.arange(n), gap_bytes=GAP_BYTES, most_bytes=SPAN_BYTES)
        keys = sources.keys.all() if isinstance(sources.keys, ChunkKeys) else sources.keys
        folder = os.fsdecode(root)
        paths = np.frombuffer(os.fsencode("".join([f"{folder}/{key}\0" for key in keys])), np.uint8)
        self._slots.set_ranges(
            paths=paths,
            path_offsets=np.append(0, np.flatnonzero(paths == 0) + 1),
            span_rows=cut.bounds,
            span_file=cut.key_index,
            span_offset=cut.offset,
            span_nbytes=cut.nbytes,
            offset=sources.offset,
            nbytes=sources.nbytes,
        )
        return len(cut), cut.rows

    def _geometry(self, request: ReadRequest, program: NativeProgram, field_offset: int) -> IntArray:
        plan = request.plan
        outputs = request.outputs
        start, count, target, step = piece_columns(plan)
        k = len(step)
        first = outputs[0]
        points = None
        bases: Sequence[int] | IntArray
        strides: Sequence[int] | IntArray
        if plan.points is not None:
            points = _point_addresses(plan.points, program, first)
            bases, strides = [address(first)], [0] * k
        elif len(outputs) == 1:
            bases, strides = [address(first)], list(first.strides) or [0]
        else:
            bases, strides = stack.addresses(outputs, address), stack.strides(outputs, k).ravel()
        tables = [0] * (2 * k)
        for d, table in enumerate(plan.tables):
            if table is not None:
                tables[d] = self._slots.keep(table.source)
                tables[k + d] = self._slots.keep(table.target)
        # One allocation for all three.
        numbers = np.array([*bases, *strides, *tables], np.int64)
        return self._slots.geometry(
            k=k,
            itemsize=first.dtype.itemsize,
            swap=program.swap,
            field_offset=field_offset,
            start=start,
            count=count,
            target=target,
            output=plan.output,
            step=step,
            chunk_shape=program.shape,
            chunk_strides=program.strides,
            order=program.order,
            bases=numbers[: len(bases)],
            strides=numbers[len(bases) : -2 * k],
            tables=numbers[-2 * k :],
            points=points,
            dense_rows=_dense_rows(plan, program, first.dtype.itemsize, strides),
            stream=stack.nbytes(outputs) > STREAM_BYTES,
            conversion=program.conversion,
        )

    def check(self, request: ReadRequest) -> None:
        """Raise the error of the first chunk that failed."""
        codes = self.status[:, 0]
        if not codes.any():
            return
        bad = codes != s.OK
        if request.missing == "fill":
            absent = codes == s.ABSENT
            bad &= ~absent
            if request.monitor is not None and absent.any():
                request.monitor.absent = True
        if bad.any():
            row = int(np.argmax(bad))
            kind, reason = failures.chunk_failure(request, row, int(codes[row]), int(self.status[row, 1]))
            raise request.failure(kind, row, reason)


def _dense_rows(plan: Plan, program: NativeProgram, itemsize: int, strides: Sequence[int] | IntArray) -> int:
    """Return which rows are contiguous in the chunk and in the outputs: a value of the geometry's ``DENSE_ROWS``."""
    k = plan.chunks.shape[1]
    if not k or plan.points is not None or itemsize != program.itemsize or program.conversion:
        return 0
    d = int(program.order[-1])
    if plan.tables[d] is not None or plan.step[d] != 1:
        return 0
    if program.strides[d] != itemsize or program.swap not in (0, itemsize):
        return 0
    inner = strides[d::k]
    dense = (inner == itemsize).all() if isinstance(inner, np.ndarray) else all(s == itemsize for s in inner)
    return g.ANY_ROWS if dense else g.SINGLE_ELEMENTS


def _point_addresses(points: Points, program: NativeProgram, output: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return, for each point, its byte offset in the chunk and the address of its element in the output."""
    k = points.source.shape[1]
    source = points.source @ program.strides if k else np.zeros(len(points.target), np.int64)
    if output.flags.c_contiguous:
        target = points.target * output.dtype.itemsize
    else:
        index = np.unravel_index(points.target, output.shape)
        target = np.zeros(len(points.target), np.int64)
        for i, stride in zip(index, output.strides, strict=True):
            target += i * stride
    return source, target + address(output)


def take_stats() -> dict[str, float]:
    """Return and reset the native loop's counters of this process, summed over threads, without reads under way.

    Returns
    -------
    ``read_ms``, ``decode_ms``, ``place_ms`` (milliseconds of thread time), ``encoded_bytes``, ``chunks``.
    """
    totals = np.zeros(5, np.int64)
    for worker in kernels.idle_workers():
        totals += worker.context[c.READ_NS : c.CHUNKS + 1]
        worker.context[c.READ_NS : c.CHUNKS + 1] = 0
    read_ns, decode_ns, place_ns, encoded, chunks = totals.tolist()
    return {
        "read_ms": read_ns / 1e6,
        "decode_ms": decode_ns / 1e6,
        "place_ms": place_ns / 1e6,
        "encoded_bytes": encoded,
        "chunks": chunks,
    }
