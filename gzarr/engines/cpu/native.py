"""The native path of the CPU engine: a read becomes a job, and a few threads run the compiled loop over it.

No Python runs per chunk: ``gzarr_kernels.read.work`` opens, reads, decodes and places without the GIL. Stores other
than local files hand over encoded bytes in batches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels import status as s
from gzarr_kernels.slots import context as c
from gzarr_kernels.slots import geometry as g

from .. import failures, kernels, pool, result_memory, stack
from ..access.files import Places
from ..job_slots import PlacedMemory, ReadSlots, placed_pieces
from ..kernels import address
from ..monitor import spent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ...plan.planner import Plan, Points
    from ..access.access import ReadRequest
    from ..job_slots import ChunkElements
    from .native_program import NativeProgram

    IntArray = npt.NDArray[np.int64]

#: A read of at most this many chunks and bytes runs in the caller's thread alone: starting a helper would cost more.
FEW_CHUNKS = 8
FEW_BYTES = 256 << 10
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
    if job.places.in_memory:
        rows = np.arange(n)
        request.access.each(request, rows, workers, partial(job.decode, work), budget_bytes=request.budget_bytes)
    else:
        if workers > 1:
            job.share_first_touch()
        kernels.run(work, job.address, job.shared, job.places.turns, workers, request.monitor)
    job.check(request)


class _Job:
    """The job of a read; keeps all memory alive to which compiled code has addresses."""

    def __init__(self, request: ReadRequest, program: NativeProgram) -> None:
        plan = request.plan
        self._outputs = request.outputs
        self._monitor = request.monitor
        self.status = np.zeros((len(plan), 2), np.int64)
        self.shared = np.zeros(3, np.int64)
        self._slots = slots = ReadSlots()
        self.address = slots.address
        self.places: Places = Places(slots, request, join=True)
        slots.set_rows(self.places.turns, self.shared, self.places.rows)
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

    def decode(self, work: Any, rows: IntArray, values: Sequence[Any]) -> bool:
        """Decode and place a batch of chunks, given their encoded bytes; return False if one of them failed."""
        alive = self.places.put(rows, values)
        shared = np.zeros(3, np.int64)
        slots = self._slots.copy()
        slots.set_rows(len(rows), shared, rows)
        worker = kernels.take_worker()
        try:
            with spent(self._monitor, "decoder"):
                work(slots.address, worker.context_address, worker.scratch_address)
        finally:
            kernels.give_worker_back(worker)
            del alive
        return not shared[1]

    def share_first_touch(self) -> None:
        """Have the workers make the pages of a new result ready before they read."""
        # Of several pieces of memory, one is as good as another: the others get their pages as they are written.
        self._slots.set_first_touch(*result_memory.take_untouched(stack.held_in(self._outputs)[0]))

    def _geometry(self, request: ReadRequest, program: NativeProgram, field_offset: int) -> IntArray:
        plan = request.plan
        outputs = request.outputs
        pieces = placed_pieces(plan)
        k = len(pieces.step)
        first = outputs[0]
        points = None
        bases: Sequence[int] | IntArray
        strides: Sequence[int] | IntArray
        if plan.points is not None:
            points = _point_addresses(plan.points, program, first)
            bases, strides = [address(first)], [0] * k
        elif len(outputs) == 1:
            # Compiled code takes as many numbers as the plan has dimensions.
            assert first.ndim == plan.chunks.shape[1]
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
        elements = program.elements._replace(itemsize=first.dtype.itemsize, field_offset=field_offset)
        return self._slots.geometry(
            pieces,
            elements,
            PlacedMemory(numbers[: len(bases)], numbers[len(bases) : -2 * k], numbers[-2 * k :]),
            points=points,
            dense_rows=_dense_rows(plan, elements, strides),
            stream=stack.nbytes(outputs) > STREAM_BYTES,
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
            raise failures.chunk_failure(request, row, int(codes[row]), int(self.status[row, 1]))


def _dense_rows(plan: Plan, chunk: ChunkElements, strides: Sequence[int] | IntArray) -> int:
    """Return which rows are contiguous in the chunk and in the outputs: a value of the geometry's ``DENSE_ROWS``."""
    k = plan.chunks.shape[1]
    if not k or plan.points is not None or chunk.conversion:
        return 0
    itemsize, d = chunk.itemsize, int(chunk.order[-1])
    if plan.tables[d] is not None or plan.step[d] != 1:
        return 0
    if chunk.strides[d] != itemsize or chunk.swap not in (0, itemsize):
        return 0
    inner = strides[d::k]
    dense = (inner == itemsize).all() if isinstance(inner, np.ndarray) else all(s == itemsize for s in inner)
    return g.ANY_ROWS if dense else g.SINGLE_ELEMENTS


def _point_addresses(points: Points, program: NativeProgram, output: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return, for each point, its byte offset in the chunk and the address of its element in the output."""
    k = points.source.shape[1]
    source = points.source @ program.elements.strides if k else np.zeros(len(points.target), np.int64)
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
