"""The CUDA engine: a read becomes waves, several of them in flight; the CPU engine decodes what the device cannot.

::

    wave 0   read ▶ copy in ▶ decode ▶ assemble
    wave 1          read    ▶ copy in ▶ decode ▶ assemble
    wave 2                    read    ▶ …

The host reads into page-locked memory while the device decodes the previous wave. Each wave has its own stream; the
host waits for it once, until the statuses of the wave's chunks have arrived. Results are written on the caller's
stream. The host waits for that one only if a read has more waves than are in flight: a later wave reuses the memory of
an earlier one after its results are written.

Chunks that the device failed to decode are decoded by the CPU engine afterwards, which yields the right data or the
same error as on the CPU. The device may not get that far: nvCOMP's decoders are undefined on corrupt frames
(:mod:`gzarr.engines.cuda.nvcomp`), which may end the use of the device (:mod:`gzarr.engines.cuda.loss`). With
``verify="cpu"``, such frames do not reach them.

Uncompressed chunks may bypass host memory, with rules of their own (:mod:`gzarr.engines.cuda.direct`).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from gzarr_kernels.operations import ALGORITHMS

from ...errors import ArgumentError
from .. import failures, pool, stack
from ..monitor import spent
from . import calibration, loss, router, slots
from .budget import Budget
from .columns import output_memory, placement
from .device_program import device_program, host_program
from .direct import DirectStaging, files_for
from .host_decoding import HostStaging, read_on_host
from .staging import ABSENT, DEFERRED, FALLBACK, READY, Frames, Staged, Staging
from .wave import Wave
from .wave_shape import WaveShape, shape_for

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...plan.decode_program import Decoding
    from ...stores.base import ReadableStore
    from ..cpu.engine import CpuEngine
    from ..request import ReadRequest, Verify
    from .columns import Output, Placement
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor, Device, DirectFiles
    from .router import Decode, Route
    from .slots import Slot
    from .staging import FrameFormat

    IntArray = npt.NDArray[np.int64]

#: Most waves in flight.
MAX_WAVES_IN_FLIGHT: Final = 3
#: Approximate decoded bytes of a wave: more in one wave would only make the next one wait.
WAVE_BYTES: Final = 64 << 20


class _Source(Protocol):
    """Stages the chunks of a wave: in page-locked memory, or on the device (DirectStaging)."""

    def stage(
        self, rows: IntArray, staging: npt.NDArray[np.uint8], capacity: int, most_frames: int
    ) -> tuple[Staged, Frames]: ...


class CudaEngine:
    """Runs the reads of one array on one device.

    Parameters
    ----------
    device
        Device that holds the results.
    decoding
        Analysed codec chain of the array.
    cpu
        Engine for chunks that the device cannot decode.
    """

    def __init__(self, device: Device, decoding: Decoding, cpu: CpuEngine) -> None:
        self._device = device
        self._decoding = decoding
        self._cpu = cpu
        self._program = device_program(decoding)
        self._decoder: Decompressor | None = None
        if self._program is not None and self._program.algorithm is not None:
            self._decoder = device.decompressor(self._program.algorithm)
            if self._decoder is None or self._program.frames.nbytes > self._decoder.max_frame_bytes:
                self._program = None

    def route(
        self,
        chunks: int,
        needed_nbytes: int,
        decode: Decode = "auto",
        verify: Verify = "none",
        *,
        may_measure: bool = True,
    ) -> Route:
        """Return where the chunks of a read are decoded, and why.

        Parameters
        ----------
        chunks
            Number of chunks that the read touches.
        needed_nbytes
            Bytes of its results.
        decode
            ``"auto"``, or the caller's choice.
        verify
            ``"cpu"`` to have the CPU first decode chunks without a crc32c checksum.
        may_measure
            Whether to measure the device and the CPU if that has not been done; otherwise rates are assumed.
        """
        if self._program is None:
            return router.only_on_cpu("no decoder for this chain on the device")
        algorithm = self._program.algorithm
        if decode == "auto" and self._verifies(verify):
            return router.only_on_cpu('verify="cpu" decodes on the CPU anyway')
        rates = None
        if decode == "auto" and algorithm is not None:
            rates = calibration.rates(self._device, may_measure=may_measure)
        return router.route(self._decoding, algorithm, chunks, needed_nbytes, pool.thread_count(), decode, rates)

    def path(self, chunks: int, needed_nbytes: int, store: ReadableStore | None = None, verify: Verify = "none") -> str:
        """Describe how a read of this size, from this store if given, will be decoded.

        Initialises CUDA only to ask kvikio, so that a process can still fork after showing an array.
        """
        if self._device.lost is not None:
            return f"cuda: nothing can be read, since {self._device.name} was lost to this process"
        route = self.route(chunks, needed_nbytes, verify=verify, may_measure=False)
        where, _, what = self._decoding.path.partition(": ")
        if route.decode == "cuda":
            direct = store is not None and self._files(store) is not None
            return f"cuda: {what}, by GPUDirect Storage" if direct else f"cuda: {what}"
        return f"cuda, decoded on the host ({where}; {route.reason}): {what}"

    def read(
        self,
        request: ReadRequest,
        whole: Any,
        stream: Any,
        budget_bytes: int | None = None,
        decode: Decode = "auto",
        verify: Verify = "none",
    ) -> None:
        """Read every chunk of ``request.plan`` into ``request.outputs``, on the device.

        Parameters
        ----------
        request
            The read. Its outputs are device arrays, C-contiguous for points.
        whole
            Device array that all outputs are views of.
        stream
            Stream on which results are written.
        budget_bytes
            Most bytes of device and page-locked memory to hold, besides the results; None for the default.
        decode
            Where to decode chunks.
        verify
            As for :meth:`route`.

        Raises
        ------
        ChunkError
            If a chunk fails; the outputs then hold some chunks and not others.
        ArgumentError
            If ``budget_bytes`` is too small for one chunk.
        MemoryError
            If the device has no room.
        """
        if not len(request.plan):
            return
        needed = stack.nbytes(request.outputs)
        budget = Budget(self._device, budget_bytes)
        with self._device:
            # Measuring takes memory that a caller's budget does not cover.
            route = self.route(len(request.plan), needed, decode, verify, may_measure=budget_bytes is None)
            if route.decode == "cpu" and read_on_host(self._device, self._cpu, request, stream, budget, needed):
                return
            rows: IntArray = np.arange(len(request.plan))
            with _Read(self._device, request, whole, stream, budget) as read:
                if route.decode == "cuda":
                    assert self._program is not None
                    frames = router.frames_in_chunk(self._decoding)
                    source = self._source(request, self._program.frames, verify)
                    rows = read.run(self._program, self._decoder, source, rows, request.most_encoded, frames)
                if len(rows):
                    chunk = request.chunk
                    read.run(host_program(chunk), None, HostStaging(self._cpu, request), rows, chunk.nbytes, 0)

    def _files(self, store: ReadableStore) -> DirectFiles | None:
        """Return the reader of chunks past host memory, or None."""
        return files_for(self._device, store, self._program.frames) if self._program is not None else None

    def _source(self, request: ReadRequest, form: FrameFormat, verify: Verify) -> _Source:
        """Return the source of the chunks that the device decodes."""
        files = self._files(request.store)
        if files is not None:
            return DirectStaging(self._device, files, request, form.nbytes)
        return Staging(request, form, verify=self._verifies(verify))

    def _verifies(self, verify: Verify) -> bool:
        """Return whether the host decodes chunks before the device does."""
        assert self._program is not None
        # A crc32c checksum of the encoded bytes proves as much, and uncompressed chunks reach no decoder.
        return verify == "cpu" and self._program.algorithm is not None and not self._program.frames.checksums


class _Read:
    """One read: cuts it into waves and runs them; holds their shared state."""

    def __init__(self, device: Device, request: ReadRequest, whole: Any, stream: Any, budget: Budget) -> None:
        self._device = device
        self._request = request
        self._stream = stream
        self._budget = budget
        self._place: Placement = placement(request)
        self._output: Output = output_memory(device, whole, request.outputs, self._place.k)
        self._tables: Any = None
        self._tables_slot: Slot | None = None
        self._pieces: IntArray = np.diff(request.plan.piece_offsets)
        # Held on the device and in page-locked memory for the duration of the read.
        self._tables_bytes = 2 * self._place.tables.nbytes if len(self._place.tables) > 1 else 0

    def __enter__(self) -> _Read:
        """Copy the plan's tables to the device."""
        if len(self._place.tables) > 1:
            device, tables = self._device, self._place.tables
            slot = self._tables_slot = self._slot(tables.nbytes, 0)
            try:
                staging = slot.staging(tables.nbytes)
                staging[:] = tables.view(np.uint8)
                memory = self._tables = device.allocate(tables.nbytes, slot.stream)
                device.copy_in(memory, staging, slot.stream)
                slot.stream.record(slot.decoded)
                self._stream.wait_event(slot.decoded)
            except BaseException:
                slots.settle(device, slot, memory=self._tables)
                raise
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        slot = self._tables_slot
        if slot is None:
            return
        try:
            # Nothing may reuse the memory of the tables before the last kernel that reads them.
            slot.gate(self._stream)
            self._tables = None
            slot.decoded.synchronize()
        except BaseException:
            slots.settle(self._device, slot, self._stream, self._tables)
            # If an error is being raised already, that one matters.
            if kind is None:
                raise
        else:
            slots.give_back(self._device, slot)

    def _slot(self, staging: int, results: int) -> Slot:
        """Return a slot with this many bytes in each direction; within a caller's budget, it holds no more."""
        return slots.take(self._device, staging + results, (staging, results) if self._budget.strict else None)

    def _shape(
        self,
        program: DeviceProgram,
        decoder: Decompressor | None,
        rows: IntArray,
        most_encoded: int,
        frames: int,
        *,
        direct: bool,
    ) -> tuple[WaveShape, int]:
        """Return the shape of the waves, and how many are in flight."""
        n = len(rows)
        pieces = self._pieces[rows]

        def shape(chunks: int) -> WaveShape:
            share = min(int(pieces.sum()), max(int(pieces.max()), -(-2 * int(pieces.sum()) * chunks // n)))
            return shape_for(
                program, decoder, chunks=chunks, pieces=share, frames=frames, most_encoded=most_encoded,
                k=self._place.k, outputs=len(self._request.outputs), direct=direct,
            )  # fmt: skip

        chunks = min(n, max(1, WAVE_BYTES // program.most_nbytes))
        while True:
            found = shape(chunks)
            flight = min(MAX_WAVES_IN_FLIGHT, -(-n // chunks))
            limit = self._budget.limit(found.nbytes * flight + self._tables_bytes)
            budget = limit - self._tables_bytes
            if found.nbytes * flight <= budget or chunks == 1:
                break
            chunks = max(1, min(chunks - 1, int(chunks * max(budget, 0) / (found.nbytes * flight))))
        while found.nbytes * flight > budget and flight > 1:
            flight -= 1
        if self._budget.strict and found.nbytes > budget:
            raise ArgumentError(
                f"budget_bytes={limit} is too small: reading and decoding one chunk of shape "
                f"{self._request.chunk.shape}, dtype {self._request.chunk.dtype}, takes {found.nbytes} bytes"
                + (f", and the selection's indices take {self._tables_bytes}" if self._tables_bytes else "")
            )
        return found, flight

    def run(
        self,
        program: DeviceProgram,
        decoder: Decompressor | None,
        source: _Source,
        rows: IntArray,
        most_encoded: int,
        expected_frames: int,
    ) -> IntArray:
        """Read some chunks in waves.

        Returns
        -------
        int64, rows that the CPU has to decode, in order.
        """
        try:
            return self._run(program, decoder, source, rows, most_encoded, expected_frames)
        except MemoryError:
            # The device has less free memory than was assumed: start again with smaller waves.
            if not self._budget.tighten():
                raise
        return self._run(program, decoder, source, rows, most_encoded, expected_frames)

    def _run(
        self,
        program: DeviceProgram,
        decoder: Decompressor | None,
        source: _Source,
        rows: IntArray,
        most_encoded: int,
        expected_frames: int,
    ) -> IntArray:
        direct = isinstance(source, DirectStaging)
        shape, flight = self._shape(program, decoder, rows, most_encoded, expected_frames, direct=direct)
        pending = rows
        waves: deque[Wave] = deque()
        left: list[IntArray] = []
        try:
            while len(pending):
                if self._request.monitor is not None:
                    self._request.monitor.check()
                if len(waves) == flight:
                    failed, slot = self._finish(waves)
                    left.append(failed)
                else:
                    slot = self._slot(shape.staging_bytes, shape.results_bytes)
                wave = Wave(self._device, slot, program, decoder, shape)
                waves.append(wave)
                staging = slot.staging(shape.staging_bytes)
                part = pending[: self._fitting(pending, shape)]
                memory = wave.encoded_memory() if direct else staging
                with spent(self._request.monitor if direct else None, "store", pool.thread_count()):
                    staged, frames = source.stage(part, memory, shape.encoded, shape.frames)
                # A view of the arena, which would otherwise live on while the next wave's is allocated.
                del memory
                self._refuse_absent(staged)
                frames = _without_foreign(staged, frames, program, decoder)
                wave.enqueue(staged, frames, staging, self._place, self._tables, self._output, self._stream)
                left.append(staged.rows[staged.state == FALLBACK])
                pending = np.concatenate([staged.rows[staged.state == DEFERRED], pending[len(part) :]])
            while waves:
                failed, slot = self._finish(waves)
                left.append(failed)
                slots.give_back(self._device, slot)
        except BaseException as error:
            # Page-locked memory must not be given to another read while copies from it may still run.
            for wave in waves:
                slots.settle(self._device, wave.slot, self._stream, wave.memory)
            request = self._request
            chunks = request.plan.chunks[np.concatenate([wave.rows for wave in waves] or [rows[:0]])]
            loss.explain(self._device, error, f"reading array {request.node!r}", chunks)
            raise
        return np.sort(np.concatenate(left)) if left else pending

    def _finish(self, waves: deque[Wave]) -> tuple[IntArray, Slot]:
        """Wait for the oldest wave's statuses; return the rows that failed, and its slot for another wave."""
        wave = waves[0]
        with spent(self._request.monitor, "device", pool.thread_count()):
            wave.slot.decoded.synchronize()
        failed = wave.failed_rows()
        waves.popleft()
        return failed, wave.slot

    def _fitting(self, pending: IntArray, shape: WaveShape) -> int:
        """Return how many of the first pending rows fit a wave."""
        ends = np.cumsum(self._pieces[pending[: shape.chunks]])
        return max(1, int(np.searchsorted(ends, shape.pieces, side="right")))

    def _refuse_absent(self, staged: Staged) -> None:
        """Raise the error of the first absent chunk if missing chunks are errors."""
        absent = staged.state == ABSENT
        if self._request.missing == "fill" or not absent.any():
            return
        from gzarr_kernels import status as s

        row = int(staged.rows[absent].min())
        kind, reason = failures.chunk_failure(self._request, row, s.ABSENT, 0)
        raise self._request.failure(kind, row, reason)


def _without_foreign(staged: Staged, frames: Frames, program: DeviceProgram, decoder: Decompressor | None) -> Frames:
    """Leave chunks to the CPU that the device's decoder cannot handle; return the frames of the others.

    These are chunks whose container does not match the metadata, and chunks whose frames would be decoded to addresses
    that are not aligned for the decoder: frames are decoded in place.
    """
    expected = ALGORITHMS[program.algorithm].code if program.algorithm is not None else 0
    foreign = np.zeros(len(staged.rows), np.bool_)
    refused = frames.algorithm != expected
    if decoder is not None:
        refused |= frames.target % decoder.output_alignment != 0
    foreign[frames.chunk[(frames.algorithm != 0) & refused]] = True
    if not program.bits:
        foreign |= (staged.state == READY) & staged.bits.astype(np.bool_)
    if not foreign.any():
        return frames
    staged.state[foreign] = FALLBACK
    keep = ~foreign[frames.chunk]
    return Frames(*(getattr(frames, field.name)[keep] for field in dataclasses.fields(frames)))
