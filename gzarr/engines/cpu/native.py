"""The native path of the CPU engine: a read becomes a job of columns, and a few threads run the compiled loop over it.

No Python runs a chunk: files are opened, read, decoded and placed by ``gzarr_kernels.read.work``, without the GIL.
Stores that are not local files hand over encoded bytes, a batch at a time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ChunkError
from ...plan.keys import ChunkKeys, file_prefix
from ...stores.base import LocalFiles
from .. import failures, kernels, pool, result_memory
from ..kernels import address
from . import threads
from .small_reads import OPEN_FLAGS, SmallReads

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...metadata.model import ChunkKeyEncoding
    from ...stores.base import ReadableStore
    from ..request import ReadRequest
    from .native_program import NativeProgram

    IntArray = npt.NDArray[np.int64]

#: Byte ranges of a file nearer than this are read in one request …
GAP_BYTES = 4096
#: … of at most this size (a larger chunk is a request of its own).
SPAN_BYTES = 1 << 20
#: A read of fewer chunks and bytes than these runs in the caller's thread alone: starting a helper costs more.
FEW_CHUNKS = 8
FEW_BYTES = 256 << 10
#: What a store that is not local files hands over at a time, to each thread.
BATCH_CHUNKS = 64
BATCH_BYTES = 8 << 20
#: Outputs larger than this do not stay in the caches anyhow, so rows are written past them.
STREAM_BYTES = 16 << 20


def small_reads_of(
    program: NativeProgram, store: ReadableStore, prefix: str, encoding: ChunkKeyEncoding, ndim: int, most_encoded: int
) -> SmallReads | None:
    """Return the short way for small reads of an array, or None if there is none (no local files, zero dimensions)."""
    root = store.file_root() if isinstance(store, LocalFiles) else None
    if root is None or not ndim:
        return None
    return SmallReads(program, file_prefix(root, prefix, encoding, ndim), encoding, ndim, most_encoded)


def read(request: ReadRequest, program: NativeProgram) -> None:
    """Read every chunk of ``request.plan`` into ``request.outputs``; raises as :func:`gzarr.engines.threads.read`."""
    n = len(request.plan)
    if not n:
        return
    work = kernels.load()
    job = _Job(request, program)
    if n <= FEW_CHUNKS and n * program.chunk_nbytes <= FEW_BYTES:
        workers = 1
    else:
        workers = min(pool.thread_count(), n)
    if job.in_memory:
        _run_batches(request, program, job, work, workers)
    else:
        if workers > 1:
            job.share_first_touch(request)
        kernels.run(work, job.address, job.shared, job.turns, workers)
    job.check(request)


def _run_batches(request: ReadRequest, program: NativeProgram, job: _Job, work: Any, workers: int) -> None:
    """Fetch and decode, a batch at a time in each thread: what is held is bounded, and fetching overlaps decoding."""
    n = len(request.plan)
    most = max(1, min(BATCH_CHUNKS, BATCH_BYTES // max(program.chunk_nbytes, 1), -(-n // workers)))
    # Ranges of one key next to each other in a batch are one request.
    rows = np.lexsort((request.sources.offset, request.sources.key_index))

    def read_batch(i: int) -> object:
        batch = rows[i * most : (i + 1) * most]
        values = fetch(request, batch)
        buffers = [None if v is None else np.frombuffer(v, np.uint8) for v in values]
        job.where[batch] = [0 if b is None else address(b) for b in buffers]
        job.nbytes[batch] = [-1 if b is None else b.size for b in buffers]
        part = job.part(batch)
        worker = kernels.take_worker()
        try:
            work(part.address, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker)
        return pool.STOP if part.failed else None

    pool.each(read_batch, -(-n // most), workers)


def fetch(request: ReadRequest, rows: IntArray) -> list[Any]:
    """Fetch the encoded bytes of some chunks; None for absent ones. A failure names the chunk."""
    try:
        return list(threads.fetch(request.store, request.sources, rows.tolist(), request.most_encoded))
    except ChunkError:
        raise
    # Stores of others raise what they like.
    except Exception as error:
        if len(rows) > 1:
            # One at a time, to name the chunk that fails.
            return [value for i in range(len(rows)) for value in fetch(request, rows[i : i + 1])]
        raise failures.store_failure(request, int(rows[0]), error) from error


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A job over some rows of another."""

    job: IntArray
    shared: IntArray
    rows: IntArray

    @property
    def address(self) -> int:
        return address(self.job)

    @property
    def failed(self) -> bool:
        return bool(self.shared[1])


class _Job:
    """The job's columns; everything that compiled code has an address of is kept alive here."""

    def __init__(self, request: ReadRequest, program: NativeProgram) -> None:
        from gzarr_kernels import geometry as g
        from gzarr_kernels import read as r

        plan, sources = request.plan, request.sources
        n, k = plan.chunks.shape
        self._keep: list[Any] = [plan, sources, program, request.outputs]
        self.status = np.zeros((n, 2), np.int64)
        self.shared = np.zeros(3, np.int64)
        self.job = job = np.zeros(r.JOB_SIZE, np.int64)
        self.in_memory = False
        job[r.SHARED] = address(self.shared)
        job[r.SPANS] = n
        job[r.PROGRAM] = address(program.words)
        job[r.OPERATIONS] = program.operations
        job[r.CHUNK_NBYTES] = program.chunk_nbytes
        job[r.MOST_ENCODED] = request.most_encoded
        job[r.PIECE_OFFSETS] = self._address(plan.piece_offsets)
        job[r.GEOMETRY] = self._geometry(request, program)
        job[r.STATUS] = address(self.status)
        # The geometry has found where in an element the field is.
        field_offset = int(self.geometry[g.FIELD_OFFSET])
        job[r.FILL] = address(program.fill) + field_offset if request.missing == "fill" else 0
        job[r.ZERO_STRIDES] = address(program.zeros)
        job[r.OPEN_FLAGS] = OPEN_FLAGS
        root = request.store.file_root() if isinstance(request.store, LocalFiles) else None
        if root is None:
            self.in_memory = True
            self.where = np.zeros(n, np.int64)
            self.nbytes = np.zeros(n, np.int64)
            job[r.MODE] = r.MODE_MEMORY
            job[r.WHERE] = address(self.where)
            job[r.NBYTES] = address(self.nbytes)
        elif isinstance(sources.keys, ChunkKeys) and sources.keys.chunks is plan.chunks:
            encoding = sources.keys.encoding
            prefix = file_prefix(root, sources.keys.prefix, encoding, k)
            path = np.frombuffer(prefix, np.uint8)
            job[r.MODE] = r.MODE_FILES
            job[r.PATHS] = self._address(path)
            job[r.PREFIX_NBYTES] = len(prefix)
            job[r.GRID] = self._address(plan.chunks)
            job[r.COORDINATES] = k
            job[r.SEPARATOR] = ord(encoding.separator)
        else:
            self._ranges(request, root)
        self.address = address(job)
        self.turns = int(job[r.SPANS])

    def _address(self, array: npt.NDArray[Any]) -> int:
        """Return the address of an array that compiled code reads whole; keep it alive."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self._keep.append(array)
        return address(array)

    def part(self, rows: IntArray) -> _Part:
        """Return a job over some of the chunks (in memory)."""
        from gzarr_kernels import read as r

        part = _Part(self.job.copy(), np.zeros(3, np.int64), np.ascontiguousarray(rows))
        part.job[r.SHARED] = address(part.shared)
        part.job[r.SPANS] = len(rows)
        part.job[r.CHUNK_ROWS] = address(part.rows)
        return part

    def share_first_touch(self, request: ReadRequest) -> None:
        """Have the workers make the pages of a new result ready before they read."""
        from gzarr_kernels import read as r

        # Outputs are all in one piece of memory, but for windows of different shapes.
        self.job[r.NEW], self.job[r.NEW_NBYTES] = result_memory.take_untouched(request.outputs[0])

    def _ranges(self, request: ReadRequest, root: bytes) -> None:
        """Cut byte ranges into spans: neighbours in one file are one request."""
        from gzarr_kernels import read as r

        sources = request.sources
        n = len(sources.offset)
        rows = np.lexsort((sources.offset, sources.key_index))
        file = sources.key_index[rows]
        begin = sources.offset[rows]
        size = np.maximum(sources.nbytes[rows], 0)
        end = begin + size
        # A span ends where the file changes, where the gap is wide, and where it would grow too large.
        cut = np.ones(n, np.bool_)
        cut[1:] = (file[1:] != file[:-1]) | (begin[1:] - end[:-1] > GAP_BYTES) | (begin[1:] < end[:-1])
        starts = np.flatnonzero(cut)
        base = begin[starts][np.cumsum(cut) - 1]
        bucket = (end - base - 1) // SPAN_BYTES
        cut[1:] |= bucket[1:] != bucket[:-1]
        starts = np.flatnonzero(cut)
        stops = np.append(starts[1:], n)
        self._keep += [rows]
        job = self.job
        job[r.MODE] = r.MODE_RANGES
        job[r.SPANS] = len(starts)
        job[r.SPAN_ROWS] = self._address(np.append(starts, n))
        job[r.CHUNK_ROWS] = self._address(rows)
        job[r.SPAN_FILE] = self._address(file[starts])
        job[r.SPAN_OFFSET] = self._address(begin[starts])
        job[r.SPAN_NBYTES] = self._address(end[stops - 1] - begin[starts])
        job[r.WHERE] = self._address(sources.offset)
        job[r.NBYTES] = self._address(sources.nbytes)
        keys = sources.keys.all() if isinstance(sources.keys, ChunkKeys) else sources.keys
        folder = os.fsdecode(root)
        paths = np.frombuffer(os.fsencode("".join([f"{folder}/{key}\0" for key in keys])), np.uint8)
        job[r.PATHS] = self._address(paths)
        job[r.PATH_OFFSETS] = self._address(np.append(0, np.flatnonzero(paths == 0) + 1))

    def _geometry(self, request: ReadRequest, program: NativeProgram) -> int:
        from gzarr_kernels import geometry as g

        plan = request.plan
        outputs = request.outputs
        k = plan.chunks.shape[1]
        first = outputs[0]
        itemsize = first.dtype.itemsize
        field_offset = 0
        if request.field is not None:
            fields = request.chunk.dtype.fields
            assert fields is not None
            field_offset = fields[request.field][1]
        self.geometry = geometry = np.zeros(g.SIZE, np.int64)
        geometry[g.K] = max(k, 1)
        geometry[g.ITEMSIZE] = itemsize
        geometry[g.SWAP] = program.swap
        geometry[g.FIELD_OFFSET] = field_offset
        ones = len(plan.start) if k == 0 else 0
        zero, one = np.zeros((ones, 1), np.int64), np.ones((ones, 1), np.int64)
        geometry[g.START] = self._address(zero if k == 0 else plan.start)
        geometry[g.COUNT] = self._address(one if k == 0 else plan.count)
        geometry[g.TARGET] = self._address(zero if k == 0 else plan.target)
        geometry[g.OUTPUT] = self._address(plan.output)
        geometry[g.STEP] = self._address(np.ones(1, np.int64) if k == 0 else plan.step)
        geometry[g.SOURCE_STRIDES] = address(program.strides)
        geometry[g.ORDER] = address(program.order)
        geometry[g.CHUNK_SHAPE] = address(program.shape)
        if plan.points is not None:
            self._points(request, program, geometry)
            bases, strides = [address(first)], [0] * max(k, 1)
        elif len(outputs) == 1:
            bases, strides = [address(first)], list(first.strides) or [0]
        else:
            bases = [address(output) for output in outputs]
            strides = [stride for output in outputs for stride in (output.strides or (0,))]
        tables = [0] * (2 * max(k, 1))
        dense = plan.points is None and first.dtype.itemsize == program.itemsize
        for d, table in enumerate(plan.tables):
            if table is not None:
                tables[d] = self._address(table.source)
                tables[max(k, 1) + d] = self._address(table.target)
        if dense and k:
            d = int(program.order[-1])
            dense = (
                plan.tables[d] is None
                and plan.step[d] == 1
                and program.strides[d] == itemsize
                and program.swap in (0, itemsize)
            )
            if dense:
                rows = all(stride == itemsize for stride in strides[d::k])
                geometry[g.DENSE_ROWS] = g.ANY_ROWS if rows else g.SINGLE_ELEMENTS
        geometry[g.STREAM] = sum(output.nbytes for output in outputs) > STREAM_BYTES
        arena = np.array([*bases, *strides, *tables], np.int64)
        start = self._address(arena)
        geometry[g.BASES] = start
        geometry[g.TARGET_STRIDES] = start + 8 * len(bases)
        geometry[g.TABLE_SOURCE] = start + 8 * (len(bases) + len(strides))
        geometry[g.TABLE_TARGET] = start + 8 * (len(bases) + len(strides) + max(k, 1))
        return address(geometry)

    def _points(self, request: ReadRequest, program: NativeProgram, geometry: IntArray) -> None:
        from gzarr_kernels import geometry as g

        points = request.plan.points
        assert points is not None
        output = request.outputs[0]
        k = points.source.shape[1]
        source = points.source @ program.strides if k else np.zeros(len(points.target), np.int64)
        if output.flags.c_contiguous:
            target = points.target * output.dtype.itemsize
        else:
            index = np.unravel_index(points.target, output.shape)
            target = np.zeros(len(points.target), np.int64)
            for i, stride in zip(index, output.strides, strict=True):
                target += i * stride
        geometry[g.POINT_SOURCE] = self._address(source)
        geometry[g.POINT_TARGET] = self._address(target + address(output))

    def check(self, request: ReadRequest) -> None:
        """Raise the error of the first chunk that failed."""
        from gzarr_kernels import status as s

        codes = self.status[:, 0]
        if not codes.any():
            return
        bad = codes != s.OK
        if request.missing == "fill":
            bad &= codes != s.ABSENT
        if bad.any():
            row = int(np.argmax(bad))
            kind, reason = failures.chunk_failure(request, row, int(codes[row]), int(self.status[row, 1]))
            raise request.failure(kind, row, reason)


def take_stats() -> dict[str, float]:
    """Return and clear what the native loop did in this process, summed over threads; of reads under way, nothing.

    Returns
    -------
    ``read_ms``, ``decode_ms``, ``place_ms`` (milliseconds of thread time), ``encoded_bytes``, ``chunks``.
    """
    from gzarr_kernels import context as c

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
