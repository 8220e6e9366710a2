"""One wave: some chunks, from their encoded bytes in page-locked memory to the results on the device.

The arena of a wave, in bytes::

    encoded | columns || decoded | second | results | aligned | scratch
    └ copied from the host ┘

Encoded chunks may also be read straight to where they go (:mod:`gzarr.engines.cuda.direct`); then only the columns are
copied. A step reads a chunk where the last one left it and writes it to the slot of the chunk in ``decoded`` or
``second``, whichever that is not. Nothing here waits but :meth:`Wave.encoded_memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DeviceError
from .arena import MARK_BYTES, RESULT_BYTES, aligned
from .columns import Columns
from .placing import DecodedChunks, placings
from .staging import ABSENT, READY

if TYPE_CHECKING:
    import numpy.typing as npt

    from .columns import Output, Placement
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor, Device
    from .placing import Placing
    from .slots import Slot
    from .staging import Frames, Staged
    from .wave_shape import WaveShape

    IntArray = npt.NDArray[np.int64]


class Wave:
    """One wave of a read; made and enqueued by one thread.

    Parameters
    ----------
    device, slot
        Where it runs; the slot's stream must have nothing of another wave to wait for.
    program, decoder, shape
        What runs, and how large it may be.

    Attributes
    ----------
    rows
        int64, rows of the plan that it decodes; none before :meth:`enqueue`.
    memory
        The arena, as soon as there is one.
    """

    def __init__(
        self, device: Device, slot: Slot, program: DeviceProgram, decoder: Decompressor | None, shape: WaveShape
    ) -> None:
        self.slot = slot
        self.rows: IntArray = np.zeros(0, np.int64)
        self._device = device
        self._program = program
        self._decoder = decoder
        self._shape = shape
        self._rows: IntArray = np.zeros(0, np.int64)
        self._owner: IntArray = np.zeros(0, np.int64)
        self._target_nbytes: IntArray = np.zeros(0, np.int64)
        self._raw: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._checked: IntArray = np.zeros(0, np.int64)
        self._marked: IntArray = np.zeros(0, np.int64)
        self.memory: Any = None

    def encoded_memory(self) -> Any:
        """Return the device memory for encoded chunks, ``shape.encoded`` bytes, to be written before :meth:`enqueue`.

        Waits for the slot's stream, and so, where the slot is gated, for the caller's. Memory of CuPy's pools is free
        in the order of the stream that it was allocated for: kernels that are enqueued may still read what was there
        before, and with some pools it is not even there yet. Reads of files are in no order with any stream.
        """
        arena = self.memory = self._device.allocate(self._shape.arena_bytes, self.slot.stream)
        self.slot.stream.synchronize()
        return arena[: self._shape.encoded]

    def enqueue(
        self,
        staged: Staged,
        frames: Frames,
        staging: npt.NDArray[np.uint8],
        place: Placement,
        tables: Any,
        output: Output,
        stream: Any,
    ) -> None:
        """Enqueue everything: copy in, decode, assemble, copy the statuses out.

        Parameters
        ----------
        staged, frames
            What lies in ``staging``, or in :meth:`encoded_memory`.
        staging
            The slot's page-locked memory, ``shape.staging_bytes``.
        place, tables, output
            The read; ``tables`` are ``place.tables`` on the device, or None if there are none.
        stream
            The caller's, on which results are written.
        """
        shape, device, own = self._shape, self._device, self.slot.stream
        if self.memory is None:
            self.memory = device.allocate(shape.arena_bytes, own)
        arena = self.memory
        base = device.address(arena)
        begin = aligned(staged.used, 16)
        # Of the arena, where the host's part of it begins.
        copied = begin if shape.direct else 0
        host = staging[: begin - copied + 8 * shape.words]
        if not shape.direct:
            host[staged.used : begin] = 0
        columns = Columns(host[begin - copied :].view(np.int64), begin // 8)
        taken = (staged.state == READY) | (staged.state == ABSENT)
        self._rows = staged.rows
        self.rows = staged.rows[staged.state == READY]
        decoded_at = aligned(shape.input_bytes)
        steps = _Steps(shape, columns, decoded_at, staged)
        results = decoded_at + shape.chunks * shape.slot * (int(shape.decoded) + int(shape.second))
        batches = self._frame_columns(frames, columns, steps, base, results)
        jobs, marks = self._steps_jobs(steps, taken)
        layout = DecodedChunks(
            staged.rows[taken],
            steps.source[taken],
            steps.typesize[taken],
            steps.blocksize[taken],
            self._program.nbytes,
        )
        launches = placings(columns, place, layout, output, self._program.strides, self._program.swap)
        nbytes = begin - copied + 8 * columns.used
        device.copy_in(arena[copied : copied + nbytes], host[:nbytes], own)
        for enqueue in (*batches, *jobs):
            enqueue(base, own)
        back = self.slot.results(shape.results_bytes)
        for source, size, at in (
            (results, RESULT_BYTES * len(frames.chunk), 0),
            (8 * marks, MARK_BYTES * len(self._marked), RESULT_BYTES * shape.frames),
        ):
            if size:
                device.copy_out(back[at : at + size], arena[source : source + size], own)
        own.record(self.slot.decoded)
        if launches:
            self._place(arena, launches, tables, output, stream)

    def _place(self, arena: Any, launches: list[Placing], tables: Any, output: Output, stream: Any) -> None:
        from gzarr_kernels.device.target import THREADS

        base = self._device.address(arena)
        more = base if tables is None else self._device.address(tables)
        stream.wait_event(self.slot.decoded)
        for one in launches:
            memory = (base, base, more) if one.word == 0 else (base, base, base, more)
            self._device.launch(
                one.kernel, one.blocks, THREADS, stream, *memory, output.address, one.header, word=one.word
            )
        # The arena is let go of in the order of the slot's stream: what takes its place comes after the results.
        self.slot.gate(stream)

    def _frame_columns(self, frames: Frames, columns: Columns, steps: _Steps, base: int, results: int) -> list[Any]:
        """Write the columns of all frames, raw ones first; return what to enqueue."""
        count = len(frames.chunk)
        if not count:
            return []
        order = np.argsort(frames.algorithm, kind="stable")
        algorithm = frames.algorithm[order]
        self._owner = owner = frames.chunk[order]
        self._target_nbytes = target_nbytes = frames.target_nbytes[order]
        self._raw = algorithm == 0
        source, source_nbytes = frames.source[order], frames.source_nbytes[order]
        target = steps.slots[owner] + frames.target[order]
        work: list[Any] = []
        aligned_at = results + aligned(self._shape.results_bytes)
        scratch_at = aligned_at + self._shape.aligned
        raw = int(np.searchsorted(algorithm, 1))
        if raw:
            work.append(self._copies(columns, source[:raw], target[:raw], target_nbytes[:raw]))
        if raw < count:
            decoder = self._decoder
            assert decoder is not None
            here = source[raw:]
            if (here % decoder.input_alignment).any():
                # Frames inside of a Blosc container, and behind some headers, begin anywhere.
                sizes = aligned(source_nbytes[raw:], self._shape.frame_alignment)
                moved = aligned_at + np.cumsum(sizes) - sizes
                if moved[-1] + sizes[-1] > scratch_at:
                    raise DeviceError("a wave's frames do not fit where they are to be aligned")
                work.append(self._copies(columns, here, moved, source_nbytes[raw:]))
                here = moved
            work += self._batches(
                columns, base, results, scratch_at, raw, here, source_nbytes[raw:], target[raw:], target_nbytes[raw:]
            )
        checked = self._checked = np.flatnonzero(frames.check[order])
        if len(checked):
            statuses = results + 12 * count
            work.append(
                self._checksums(
                    columns, target[checked], target_nbytes[checked], frames.expected[order][checked],
                    frames.check[order][checked], statuses,
                )
            )  # fmt: skip
        return work

    def _batches(
        self,
        columns: Columns,
        base: int,
        results: int,
        scratch: int,
        first: int,
        source: IntArray,
        source_nbytes: IntArray,
        target: IntArray,
        target_nbytes: IntArray,
    ) -> list[Any]:
        """Cut the compressed frames into batches whose scratch fits; return what to enqueue."""
        decoder = self._decoder
        assert decoder is not None
        ends = np.cumsum(target_nbytes)
        largest = int(target_nbytes.max())
        n = len(source)
        sources, sizes = columns.put(source + base), columns.put(source_nbytes)
        targets, capacities = columns.put(target + base), columns.put(target_nbytes)
        room = self._shape.scratch
        work = []
        begin = 0
        count = len(self._owner)
        while begin < n:
            before = int(ends[begin - 1]) if begin else 0
            end = n
            while (need := decoder.temp_nbytes(end - begin, largest, int(ends[end - 1]) - before)) > room:
                if end - begin == 1:
                    raise DeviceError(f"nvCOMP asks for {need} bytes of scratch for one frame, there are {room}")
                end = begin + (end - begin) // 2
            arguments = {
                "frames": end - begin,
                "largest": largest,
                "sources": base + 8 * (sources + begin),
                "source_nbytes": base + 8 * (sizes + begin),
                "targets": base + 8 * (targets + begin),
                "target_nbytes": base + 8 * (capacities + begin),
                "produced": base + results + 8 * (first + begin),
                "statuses": base + results + 8 * count + 4 * (first + begin),
                "temp": base + scratch,
                "temp_nbytes": room,
            }
            work.append(_Batch(decoder, arguments))
            begin = end
        return work

    def _copies(self, columns: Columns, source: IntArray, target: IntArray, nbytes: IntArray) -> Any:
        from gzarr_kernels.device import copies as c

        header = np.zeros(c.SIZE, np.int64)
        header[c.FRAMES] = len(source)
        header[c.SOURCE], header[c.TARGET] = columns.put(source), columns.put(target)
        header[c.NBYTES] = columns.put(nbytes)
        job = columns.put(header)
        return _Launch(self._device, c.copy_frames, c.blocks(len(source)), c.THREADS, job)

    def _checksums(
        self, columns: Columns, source: IntArray, nbytes: IntArray, expected: IntArray, kind: IntArray, statuses: int
    ) -> Any:
        from gzarr_kernels.device import checksums as c

        header = np.zeros(c.SIZE, np.int64)
        header[c.FRAMES] = len(source)
        header[c.SOURCE], header[c.NBYTES] = columns.put(source), columns.put(nbytes)
        header[c.EXPECTED], header[c.KIND] = columns.put(expected), columns.put(kind)
        header[c.STATUS_BASE] = statuses // 4
        job = columns.put(header)
        return _Launch(self._device, c.checksums, c.blocks(len(source)), c.THREADS, job, statuses=True)

    def _steps_jobs(self, steps: _Steps, taken: npt.NDArray[np.bool_]) -> tuple[list[Any], int]:
        """Bring all chunks to what the assemble kernel reads.

        Returns
        -------
        What to enqueue, and the index of the column of marks that filters leave, a row for each of ``self._marked``.
        """
        from gzarr_kernels.device import planes as p

        device, program = self._device, self._program
        present = taken & (steps.typesize > 0)
        work: list[Any] = []

        def planes(which: npt.NDArray[np.bool_], kernel: Any) -> None:
            rows = np.flatnonzero(which)
            if not len(rows):
                return
            source, target = steps.move(rows)
            header, blocks = p.job(
                steps.columns.put, source, target, steps.typesize[rows], steps.blocksize[rows],
                np.full(len(rows), program.frames.nbytes),
            )  # fmt: skip
            work.append(_Launch(device, kernel, blocks, p.THREADS, header))

        planes(present & steps.bits, p.bit_planes_to_byte_planes)
        steps.bits[:] = False
        if program.shuffle:
            planes(present & (steps.typesize > 1), p.byte_planes_to_plain)
            steps.typesize[present] = program.shuffle
            steps.blocksize[present] = program.frames.nbytes
        rows = np.flatnonzero(present)
        if not program.filters or not len(rows):
            return work, 0
        planes(present & (steps.typesize > 1), p.byte_planes_to_plain)
        steps.typesize[rows] = 1
        marks = 0
        if program.marks:
            self._marked = rows
            marks = steps.columns.put(np.zeros(len(rows)))
        for step in program.filters:
            kernel, blocks, header = step.launch(steps.columns, *steps.move(rows), marks)
            work.append(_Launch(device, kernel, blocks, p.THREADS, header))
        return work, marks

    def failed_rows(self) -> IntArray:
        """Return the rows of the plan of which the device says that they did not decode.

        The slot's ``decoded`` event must have passed.
        """
        count = len(self._owner)
        back = self.slot.results(self._shape.results_bytes)
        failed = np.zeros(len(self._rows), np.bool_)
        produced = back[: 8 * count].view(np.int64)
        statuses = back[8 * count : 12 * count].view(np.int32)
        bad = ~self._raw & ((statuses != 0) | (produced != self._target_nbytes))
        checks = back[12 * count : 12 * count + 4 * len(self._checked)].view(np.int32)
        bad[self._checked[checks != 0]] = True
        failed[self._owner[bad]] = True
        at = RESULT_BYTES * self._shape.frames
        marks = back[at : at + MARK_BYTES * len(self._marked)].view(np.int64)
        failed[self._marked[marks != 0]] = True
        return self._rows[failed]


class _Steps:
    """Where each chunk of a wave is, and how it lies there, from step to step."""

    def __init__(self, shape: WaveShape, columns: Columns, decoded_at: int, staged: Staged) -> None:
        n = len(staged.rows)
        self.columns = columns
        self.slots: IntArray = decoded_at + shape.slot * np.arange(n)
        self._other: IntArray = self.slots + shape.slot * shape.chunks
        self.source: IntArray = np.where(staged.direct >= 0, staged.direct, self.slots)
        self.typesize: IntArray = np.where(staged.state == ABSENT, 0, staged.typesize)
        self.blocksize: IntArray = staged.blocksize.copy()
        self.bits: npt.NDArray[np.bool_] = staged.bits.astype(np.bool_)

    def move(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return where some chunks are and where their next form goes; from now on they are there."""
        source = self.source[rows]
        target = np.where(source == self.slots[rows], self._other[rows], self.slots[rows])
        self.source[rows] = target
        return source, target


@dataclass(frozen=True, slots=True)
class _Batch:
    decoder: Decompressor
    arguments: dict[str, int]

    def __call__(self, base: int, stream: Any) -> None:
        self.decoder.run(stream, **self.arguments)


@dataclass(frozen=True, slots=True)
class _Launch:
    device: Device
    kernel: Any
    blocks: int
    threads: int
    job: int
    statuses: bool = False

    def __call__(self, base: int, stream: Any) -> None:
        more = (base,) if self.statuses else ()
        self.device.launch(self.kernel, self.blocks, self.threads, stream, base, base, *more, self.job)
