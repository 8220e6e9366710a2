"""Writing from a device: chunks are gathered, shuffled and compressed on it, and encoded values are copied out.

::

    wave 0   gather ▶ shuffle ▶ compress ▶ containers ▶ copy out ▶ store
    wave 1                      gather   ▶ shuffle    ▶ compress ▶ …

While the host stores the values of one wave, the device compresses the next. Only chunks and shards that are written
whole are encoded here; partly changed ones, and those that the device cannot encode, are left to the CPU.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...errors import ChunkWriteError
from ...reasons import reason_of
from ...stores import locks
from ...stores.buffers import store_value
from .. import failures, pool
from ..access.shard import NewShard
from ..cpu.write_threads import complete_values, kept_in_part
from . import loss, slots
from .budget import Budget
from .columns import output_memory, pieces_of
from .write_layout import Gathering
from .write_program import write_program
from .write_shape import shape_for
from .write_wave import WriteWave

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..write_request import WriteRequest
    from .device_protocol import Compressor, Device
    from .write_program import WriteProgram
    from .write_shape import WriteShape
    from .write_wave import Encoded

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]

#: Most waves in flight: one is compressed while the other is stored.
MAX_WAVES_IN_FLIGHT: Final = 2
#: Approximate uncompressed bytes of a wave.
WAVE_BYTES: Final = 64 << 20
#: Approximate bytes of elements in host memory at a time.
HOST_BYTES: Final = 64 << 20


def write(device: Device, request: WriteRequest, stream: Any, budget_bytes: int | None = None) -> IntArray:
    """Encode chunks on the device, as far as it can, and store them.

    Parameters
    ----------
    device
        Device that holds the inputs.
    request
        The write. Its inputs are device arrays.
    stream
        Stream that produces the inputs: they are read after everything enqueued on it so far.
    budget_bytes
        Most bytes of device and page-locked memory to hold, besides the inputs; None for the default. Chunks that do
        not fit are left to the CPU.

    Returns
    -------
    int64, planned chunks that are left to the CPU, in order. A stored value is either written whole, or all of its
    chunks are left.

    Raises
    ------
    ChunkWriteError
        If the store fails. Every stored value is then complete: either new, or as it was before.
    ArgumentError
        If ``budget_bytes`` is not a positive integer.
    MemoryError
        If the device has no room.
    """
    every = np.arange(len(request.plan))
    program = write_program(request)
    if program is None or not len(every):
        return every
    with device:
        compressor = None
        if program.algorithm is not None:
            compressor = device.compressor(program.algorithm)
            if compressor is None or program.largest_frame > compressor.max_frame_bytes:
                return every
            if (program.frame_at % compressor.input_alignment).any():
                # Frames are compressed in place, so they must be aligned within the chunk.
                return every
        input_of = _inputs_of(request)
        taken = _taken(device, request, input_of)
        if not taken.any():
            return every
        budget = Budget(device, budget_bytes)

        while True:
            try:
                left = _Writing(device, request, program, compressor, stream, budget, input_of).run(every[taken])
                break
            except MemoryError as error:
                # The device has less free memory than was assumed: start again with smaller waves, or on the CPU.
                if not budget.tighten(error):
                    raise
    return np.sort(np.concatenate([every[~taken], *left]))


def on_host(device: Device, request: WriteRequest, rows: IntArray, stream: Any) -> Iterator[WriteRequest]:
    """Yield the write of some planned chunks with their elements in host memory, in parts of bounded size.

    Parameters
    ----------
    device, request, stream
        As for :func:`write`.
    rows
        Planned chunks; for each stored value, all of its chunks in ``request`` or none.
    """
    plan = request.plan
    if plan.points is not None or any(table is not None for table in plan.tables):
        with device:
            whole = tuple(device.to_host(array, stream) for array in request.inputs)
        yield _some_of(request, rows, plan.target, plan.output, whole)
        return
    rows = rows[np.argsort(request.value_of[rows], kind="stable")]
    chunks = max(1, HOST_BYTES // max(request.chunk.nbytes, 1))
    for part in cut(rows, request.value_of, chunks):
        pieces, _ = pieces_of(plan, part)
        inputs = []
        with device:
            for piece in pieces.tolist():
                begin, count = plan.target[piece].tolist(), plan.count[piece].tolist()
                box = tuple(slice(b, b + n) for b, n in zip(begin, count, strict=True))
                inputs.append(device.to_host(request.inputs[int(plan.output[piece])][(*box, ...)], stream))
        target = np.zeros_like(plan.target)
        output = np.zeros_like(plan.output)
        output[pieces] = np.arange(len(pieces))
        yield _some_of(request, part, target, output, tuple(inputs))


def _some_of(
    request: WriteRequest, rows: IntArray, target: IntArray, output: IntArray, inputs: tuple[Any, ...]
) -> WriteRequest:
    """Return the write of some planned chunks whose pieces are at new positions in new inputs."""
    plan = request.plan
    pieces, owner = pieces_of(plan, rows)
    offsets = np.searchsorted(owner, np.arange(len(rows) + 1))
    part = replace(
        plan,
        chunks=plan.chunks[rows],
        piece_offsets=offsets,
        start=plan.start[pieces],
        count=plan.count[pieces],
        target=target[pieces],
        output=output[pieces],
    )
    return replace(request, plan=part, value_of=request.value_of[rows], inputs=inputs, whole=request.whole[rows])


def cut(rows: IntArray, value_of: IntArray, most: int) -> Iterator[IntArray]:
    """Divide planned chunks, sorted by their stored values, into parts of at most ``most``, between stored values.

    A stored value with more chunks is a part by itself.
    """
    values = value_of[rows]
    begin = 0
    while begin < len(rows):
        end = min(begin + most, len(rows))
        if end < len(rows) and values[end] == values[end - 1]:
            first = int(np.searchsorted(values, values[end]))
            end = first if first > begin else int(np.searchsorted(values, values[end], side="right"))
        yield rows[begin:end]
        begin = end


def _inputs_of(request: WriteRequest) -> IntArray:
    """Return the index of each planned chunk's input; -1 for chunks with several inputs."""
    plan = request.plan
    begin = plan.piece_offsets[:-1]
    low = np.minimum.reduceat(plan.output, begin)
    return np.where(np.maximum.reduceat(plan.output, begin) == low, low, -1)


def _taken(device: Device, request: WriteRequest, input_of: IntArray) -> BoolArray:
    """Return which planned chunks the device may encode: for each stored value, all or none."""
    plan = request.plan
    if plan.points is not None or request.field is not None or any(table is not None for table in plan.tables):
        return np.zeros(len(plan), np.bool_)
    if not all(device.is_array(array) and array.dtype == request.chunk.dtype for array in request.inputs):
        return np.zeros(len(plan), np.bool_)
    whole = complete_values(request)
    whole[request.value_of[input_of < 0]] = False
    return whole[request.value_of]


@dataclass(slots=True, eq=False)
class _Shard:
    """A shard with some of its inner chunks encoded."""

    missing: int
    made: NewShard
    failed: bool = False


class _Writing:
    """One write: divides it into waves and runs them; holds their shared state."""

    def __init__(
        self,
        device: Device,
        request: WriteRequest,
        program: WriteProgram,
        compressor: Compressor | None,
        stream: Any,
        budget: Budget,
        input_of: IntArray,
    ) -> None:
        self._device = device
        self._request = request
        self._program = program
        self._compressor = compressor
        self._budget = budget
        self._ready = device.event()
        stream.record(self._ready)
        k = max(len(request.chunk.shape), 1)
        one = np.zeros(1, request.chunk.dtype)
        if request.fill_value is not None:
            one[0] = request.fill_value
        self._gathering = Gathering(
            plan=request.plan,
            shape=request.chunk.shape,
            itemsize=request.chunk.dtype.itemsize,
            fill=one.view(np.uint8),
            inputs=tuple(output_memory(device, array, (array,), k) for array in request.inputs),
            input_of=input_of,
        )
        self._pieces = np.diff(request.plan.piece_offsets)
        self._shards: dict[int, _Shard] = {}
        self._inner = np.zeros(len(request.plan), np.int64)
        # Number of planned chunks of each stored value; number of values stored.
        self._size = np.zeros(0, np.int64)
        self._done = 0
        self._left: list[IntArray] = []

    def run(self, rows: IntArray) -> list[IntArray]:
        """Write the stored values of some planned chunks; return the chunks that are left to the CPU."""
        request = self._request
        if request.shard is not None:
            self._inner[rows] = request.shard.entries(request.plan.chunks[rows])
        rows = rows[np.lexsort((self._inner[rows], request.value_of[rows]))]
        chunks = self._chunks_of_a_wave(rows)
        if not chunks:
            return [rows]
        self._size = np.bincount(request.value_of[rows], minlength=len(request.keys))
        waves: deque[WriteWave] = deque()
        try:
            # A shard may be larger than a wave.
            parts = (
                part[i : i + chunks]
                for part in cut(rows, request.value_of, chunks)
                for i in range(0, len(part), chunks)
            )
            for part in parts:
                shape = self._shape(part)
                nbytes = shape.staging_bytes + shape.results_bytes
                most = (shape.staging_bytes, shape.results_bytes) if self._budget.strict else None
                slot = slots.take(self._device, nbytes, most)
                wave = WriteWave(self._device, slot, self._program, self._compressor, shape, self._gathering, part)
                waves.append(wave)
                wave.enqueue(self._ready)
                if len(waves) == MAX_WAVES_IN_FLIGHT:
                    self._finish(waves)
            while waves:
                self._finish(waves)
        except BaseException as error:
            # Page-locked memory must not be given to another write while copies to it may still run, nor may the caller
            # free the inputs while they may still be read.
            for wave in waves:
                slots.settle(self._device, wave.slot, memory=(wave.memory, request.inputs))
            chunks = request.plan.chunks[np.concatenate([wave.rows for wave in waves] or [rows[:0]])]
            loss.explain(self._device, error, f"encoding array {request.node!r}", chunks)
            raise
        return self._left

    def _shape(self, rows: IntArray, chunks: int = 0) -> WriteShape:
        """Return the shape of a wave of some rows, or of ``chunks`` chunks with as many pieces as the largest row."""
        pieces = int(self._pieces[rows].sum()) if not chunks else chunks * int(self._pieces[rows].max())
        return shape_for(
            self._program, self._compressor, chunks=chunks or len(rows), pieces=pieces,
            k=max(len(self._request.chunk.shape), 1), inputs=len(self._gathering.inputs),
        )  # fmt: skip

    def _chunks_of_a_wave(self, rows: IntArray) -> int:
        """Return how many chunks a wave may have; 0 if none fits."""
        chunks = min(len(rows), max(1, WAVE_BYTES // self._program.nbytes))
        while chunks:
            needed = (1 if chunks == len(rows) else MAX_WAVES_IN_FLIGHT) * self._shape(rows, chunks).nbytes
            budget = self._budget.limit(needed)
            if needed <= budget:
                break
            chunks = min(chunks - 1, int(chunks * budget / needed))
        return chunks

    def _finish(self, waves: deque[WriteWave]) -> None:
        """Store the values that the oldest wave has encoded."""
        wave = waves[0]
        encoded = wave.finish(keep_empty=self._request.write_empty_chunks, packed=self._request.shard is not None)
        values = self._request.value_of[wave.rows]
        first = np.flatnonzero(np.diff(values, prepend=np.int64(-1)))
        ready = []
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(values)], strict=True):
            parts = self._value(wave.rows, encoded, begin, end)
            if parts is not None:
                ready.append((int(wave.rows[begin]), parts))
        self._store(ready)
        waves.popleft()
        slots.give_back(self._device, wave.slot)

    def _value(self, rows: IntArray, encoded: Encoded, begin: int, end: int) -> list[Any] | None:
        """Return the bytes of a stored value, in parts; its chunks in the wave are rows ``begin`` to ``end``.

        None if the value is not complete, or is left to the CPU; no parts if it is not to be stored.
        """
        value = int(self._request.value_of[rows[begin]])
        failed = bool(encoded.failed[begin:end].any())
        if self._request.shard is None:
            if failed:
                self._left.append(rows[begin:end])
                return None
            return [self._bytes(encoded, begin, end)] if encoded.nbytes[begin] else []
        shard = self._shards.get(value) or _Shard(int(self._size[value]), NewShard(self._request.shard))
        self._shards[value] = shard
        shard.failed |= failed
        shard.missing -= end - begin
        here = np.flatnonzero(encoded.nbytes[begin:end]) + begin
        body = self._bytes(encoded, begin, end)
        # Another wave reuses the memory before the shard is complete.
        shard.made.add(self._inner[rows[here]], encoded.nbytes[here], [body.tobytes() if shard.missing else body])
        if shard.missing:
            return None
        del self._shards[value]
        if shard.failed:
            self._left.append(np.flatnonzero(self._request.value_of == value))
            return None
        return shard.made.parts()

    def _bytes(self, encoded: Encoded, begin: int, end: int) -> memoryview:
        last = end - 1
        return encoded.data[encoded.begin[begin] : encoded.begin[last] + encoded.nbytes[last]].data

    def _store(self, ready: Sequence[tuple[int, list[Any]]]) -> None:
        """Store values in host threads."""
        request = self._request
        done = count(self._done)

        def store_one(i: int) -> None:
            row, parts = ready[i]
            value = int(request.value_of[row])
            key = request.keys[value]
            try:
                with locks.lock_of(request.store, key):
                    if kept_in_part(request, np.array([value])).any():
                        self._left.append(np.flatnonzero(request.value_of == value))
                        return
                    store_value(request.store, key, parts)
            # Third-party stores may raise anything.
            except Exception as cause:
                raise request.failure(ChunkWriteError, row, f"the store failed: {reason_of(cause)}") from cause
            next(done)

        try:
            pool.each(store_one, len(ready), pool.thread_count())
        except ChunkWriteError as error:
            # Counted here: only now have the other threads finished.
            total = int(np.count_nonzero(self._size))
            raise failures.with_count(error, next(done), total) from error.__cause__
        self._done = next(done)
