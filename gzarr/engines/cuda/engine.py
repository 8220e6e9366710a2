"""The CUDA engine: a read becomes waves, several of them in flight; the CPU engine decodes what the device cannot.

::

    wave 0   read ▶ copy in ▶ decode ▶ assemble
    wave 1          read    ▶ copy in ▶ decode ▶ assemble
    wave 2                    read    ▶ …

The host reads into page-locked memory while the device decodes the previous wave. It reads wave ``k + 1`` in a thread
of the pool while the caller's thread lays out and enqueues wave ``k`` (:mod:`gzarr.engines.cuda.staged_wave`).

Waves are sized by :mod:`gzarr.engines.cuda.wave_plan`. Each has its own stream; the
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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.operations import ALGORITHMS

from ...errors import ArgumentError
from .. import failures, pool, stack
from ..monitor import spent
from . import calibration, driver, loss, router, slots, wave_plan
from .budget import Budget
from .columns import output_memory, placement
from .device_program import device_program, host_program
from .direct import DirectStaging, files_for
from .host_decoding import HostStaging, read_on_host
from .staged_wave import StagedWave
from .staging import ABSENT, DEFERRED, FALLBACK, READY, Frames, Staged, Staging
from .wave import Wave
from .wave_plan import WavePlanner, expected, learnt

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ...plan.decode_program import Decoding
    from ..access.access import Access, ReadRequest, Verify
    from ..cpu.engine import CpuEngine
    from .columns import Output, Placement
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor, Device, DirectFiles
    from .router import Decode, Route
    from .slots import Slot
    from .staged_wave import Source
    from .staging import FrameFormat
    from .wave_shape import WaveShape

    IntArray = npt.NDArray[np.int64]


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
        self._frames = router.frames_of(decoding)
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
        budget: Budget | None = None,
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
        budget
            Limit on the memory of the read; None for the default, as far as it is known without using the device.
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
        waves = self._waves(chunks, budget)
        return router.route(self._decoding, algorithm, chunks, needed_nbytes, pool.thread_count(), decode, rates, waves)

    def _waves(self, chunks: int, budget: Budget | None) -> tuple[int, int]:
        """Return about how many chunks a wave of a read will have, and how many waves are in flight."""
        assert self._program is not None
        frames, strict = self._frames.count, budget is not None and budget.strict
        if not chunks or (not strict and chunks * self._program.most_nbytes <= wave_plan.WAVE_BYTES // 8):
            # Small reads have one wave, whatever the device's memory.
            return max(chunks, 1), 1
        if budget is None:
            budget = Budget(self._device, None, ask=driver.is_initialised())
        # Waves of a read of more chunks are no other.
        most = (wave_plan.MAX_WAVES_IN_FLIGHT + 1) * wave_plan.wave_chunks(self._program, chunks, max(frames, 1))
        pieces, none = np.ones(min(chunks, most), np.int64), np.zeros(0, np.int64)
        most_encoded, k = self._decoding.most_encoded, max(len(self._decoding.chunk.shape), 1)
        planner = WavePlanner(self._program, self._decoder, most_encoded, pieces, k, 1, direct=False)
        waves = planner.plan(expected(self._program, max(frames, 1), none), budget)
        return waves.shape.chunks, waves.flight

    def path(self, chunks: int, needed_nbytes: int, access: Access | None = None, verify: Verify = "none") -> str:
        """Describe how a read of this size, by this access if given, will be decoded.

        Initialises CUDA only to ask kvikio, so that a process can still fork after showing an array.
        """
        if self._device.lost is not None:
            return f"cuda: nothing can be read, since {self._device.name} was lost to this process"
        route = self.route(chunks, needed_nbytes, verify=verify, may_measure=False)
        where, _, what = self._decoding.path.partition(": ")
        if route.decode == "cuda":
            direct = access is not None and self._files(access) is not None
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
            route = self.route(
                len(request.plan), needed, decode, verify, budget=budget, may_measure=budget_bytes is None
            )
            if route.decode == "cpu" and read_on_host(self._device, self._cpu, request, stream, budget, needed):
                return
            rows: IntArray = np.arange(len(request.plan))
            with _Read(self._device, request, whole, stream, budget) as read:
                if route.decode == "cuda":
                    assert self._program is not None
                    frames = max(1, self._frames.count)
                    source = partial(self._source, request, self._program.frames, verify)
                    rows = read.run(self._program, self._decoder, source, rows, request.most_encoded, frames)
                if len(rows):
                    chunk = request.chunk
                    decoded = partial(HostStaging, self._cpu, request)
                    read.run(host_program(chunk), None, decoded, rows, chunk.nbytes, 0)

    def _files(self, access: Access) -> DirectFiles | None:
        """Return the reader of chunks past host memory, or None."""
        return files_for(self._device, access, self._program.frames) if self._program is not None else None

    def _source(self, request: ReadRequest, form: FrameFormat, verify: Verify) -> Source:
        """Return the source of the chunks that the device decodes."""
        files = self._files(request.access)
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
            slot = self._tables_slot = self._slot(tables.nbytes, 0, tables.nbytes)
            try:
                staging = slot.staging(tables.nbytes)
                staging[:] = tables.view(np.uint8)
                memory = self._tables = slot.allocate(tables.nbytes)
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

    def _slot(self, staging: int, results: int, arena: int) -> Slot:
        """Return a slot with this many bytes in each direction; within a caller's budget, it holds no more.

        It waits for waves of earlier reads if their memory and ``arena``, that of the device, exceed the budget.
        """
        most = (staging, results) if self._budget.strict else None
        return slots.take(self._device, staging + results, most, arena, self._budget)

    def _planner(
        self, program: DeviceProgram, decoder: Decompressor | None, rows: IntArray, most_encoded: int, *, direct: bool
    ) -> WavePlanner:
        """Return what divides some chunks into waves."""
        return WavePlanner(
            program, decoder, most_encoded, self._pieces[rows], self._place.k, len(self._request.outputs), direct,
            self._tables_bytes,
        )  # fmt: skip

    def _refuse_too_large(self, shape: WaveShape) -> None:
        """Raise an error if a wave of one chunk takes more than the caller's budget."""
        if not self._budget.strict:
            return
        limit = self._budget.limit(shape.nbytes + self._tables_bytes)
        if shape.nbytes > limit - self._tables_bytes:
            raise ArgumentError(
                f"budget_bytes={limit} is too small: reading and decoding one chunk of shape "
                f"{self._request.chunk.shape}, dtype {self._request.chunk.dtype}, takes {shape.nbytes} bytes"
                + (f", and the selection's indices take {self._tables_bytes}" if self._tables_bytes else "")
            )

    def run(
        self,
        program: DeviceProgram,
        decoder: Decompressor | None,
        source: Callable[[], Source],
        rows: IntArray,
        most_encoded: int,
        expected_frames: int,
    ) -> IntArray:
        """Read some chunks in waves, from a new source at each try: one that was cancelled stages nothing more.

        Returns
        -------
        int64, rows that the CPU has to decode, in order.
        """
        while True:
            try:
                return self._run(program, decoder, source(), rows, most_encoded, expected_frames)
            except MemoryError as error:
                # The device has less free memory than was assumed: start again with smaller waves.
                if not self._budget.tighten(error):
                    raise

    def _run(
        self,
        program: DeviceProgram,
        decoder: Decompressor | None,
        source: Source,
        rows: IntArray,
        most_encoded: int,
        expected_frames: int,
    ) -> IntArray:
        planner = self._planner(program, decoder, rows, most_encoded, direct=isinstance(source, DirectStaging))
        stored = self._request.sources.nbytes[rows]
        waves = planner.plan(expected(program, expected_frames, stored), self._budget)
        self._refuse_too_large(waves.shape)
        knows = False
        pending = rows
        enqueued: deque[Wave] = deque()
        left: list[IntArray] = []
        current: StagedWave | None = None
        ahead: StagedWave | None = None
        try:
            current = self._begin(planner, source, waves.shape, pending, None)
            while current is not None:
                if self._request.monitor is not None:
                    self._request.monitor.check()
                staged, frames = current.result()
                self._refuse_absent(staged)
                pending = np.concatenate([staged.rows[staged.state == DEFERRED], pending[len(staged.rows) :]])
                if len(pending) and not knows:
                    # The next waves are sized by what this one held.
                    knows = True
                    found = learnt(program.frames, staged, frames)
                    waves = waves if found is None else planner.plan(found, self._budget, waves)
                # The next wave is staged while this one is laid out and enqueued, unless its memory is still in use.
                if len(pending) and len(enqueued) + 1 < waves.flight:
                    ahead = self._begin(planner, source, waves.shape, pending, None, aside=True)
                elif len(pending) and enqueued and enqueued[0].slot.decoded.done:
                    failed, slot = self._finish(enqueued)
                    left.append(failed)
                    ahead = self._begin(planner, source, waves.shape, pending, slot, aside=True)
                frames = _without_foreign(staged, frames, program, decoder)
                wave = current.wave
                current = None
                enqueued.append(wave)
                wave.enqueue(staged, frames, self._place, self._tables, self._output, self._stream)
                # Its memory is free as soon as it is finished.
                del wave
                left.append(staged.rows[staged.state == FALLBACK])
                if len(pending) and ahead is None:
                    failed, slot = self._finish(enqueued)
                    left.append(failed)
                    ahead = self._begin(planner, source, waves.shape, pending, slot)
                current, ahead = ahead, None
            while enqueued:
                failed, slot = self._finish(enqueued)
                left.append(failed)
                slots.give_back(self._device, slot)
        except BaseException as error:
            # Page-locked memory must not be given to another read while it is filled, or copies from it may still run.
            for staging in (current, ahead):
                if staging is not None:
                    staging.close(source)
                    enqueued.append(staging.wave)
            for wave in enqueued:
                slots.settle(self._device, wave.slot, self._stream, wave.memory)
            request = self._request
            chunks = request.plan.chunks[np.concatenate([wave.rows for wave in enqueued] or [rows[:0]])]
            loss.explain(self._device, error, f"reading array {request.node!r}", chunks)
            raise
        return np.sort(np.concatenate(left)) if left else pending

    def _begin(
        self,
        planner: WavePlanner,
        source: Source,
        shape: WaveShape,
        pending: IntArray,
        slot: Slot | None,
        *,
        aside: bool = False,
    ) -> StagedWave:
        """Begin to stage the first pending chunks; ``aside``: in another thread, if one is free."""
        if slot is None:
            slot = self._slot(shape.staging_bytes, shape.results_bytes, shape.arena_bytes)
        elif self._budget.strict:
            slot.shrink(shape.staging_bytes, shape.results_bytes)
            if slot.arena_bytes < shape.arena_bytes:
                # CuPy would keep the memory of the smaller wave before beside that of this one.
                slot.free_cached()
        wave = Wave(self._device, slot, planner.program, planner.decoder, shape)
        try:
            wave.staging = slot.staging(shape.staging_bytes)
            memory = wave.encoded_memory() if planner.direct else wave.staging
            part = pending[: self._fitting(pending, shape)]
            monitor = self._request.monitor if planner.direct else None

            def stage() -> tuple[Staged, Frames]:
                with spent(monitor, "store", pool.thread_count()):
                    return source.stage(part, memory, shape.encoded, shape.frames)

            return StagedWave(wave, stage, aside=aside)
        except BaseException:
            slots.settle(self._device, slot, self._stream, wave.memory)
            raise

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
        if not absent.any():
            return
        if self._request.missing == "fill":
            if self._request.monitor is not None:
                self._request.monitor.absent = True
            return
        from gzarr_kernels import status as s

        row = int(staged.rows[absent].min())
        raise failures.chunk_failure(self._request, row, s.ABSENT, 0)


def _without_foreign(staged: Staged, frames: Frames, program: DeviceProgram, decoder: Decompressor | None) -> Frames:
    """Leave chunks to the CPU that the device's decoder cannot handle; return the frames of the others.

    These are chunks whose container does not match the metadata, and chunks whose frames are larger than the decoder
    takes, as those of a chunk just within its limit may be, or would be decoded to addresses that are not aligned for
    it: frames are decoded in place.
    """
    expected = ALGORITHMS[program.algorithm].code if program.algorithm is not None else 0
    foreign = np.zeros(len(staged.rows), np.bool_)
    refused = frames.algorithm != expected
    if decoder is not None:
        refused |= frames.target % decoder.output_alignment != 0
        refused |= frames.source_nbytes > decoder.max_frame_bytes
    foreign[frames.chunk[(frames.algorithm != 0) & refused]] = True
    if not program.bits:
        foreign |= (staged.state == READY) & staged.bits.astype(np.bool_)
    if not foreign.any():
        return frames
    staged.state[foreign] = FALLBACK
    keep = ~foreign[frames.chunk]
    return Frames(*(getattr(frames, field.name)[keep] for field in dataclasses.fields(frames)))
