"""One wave of a write: some chunks, from arrays on the device to containers in page-locked memory.

It is enqueued in two parts. The first gathers, shuffles and compresses. When the sizes of the frames are known to the
host, the second puts containers together, computes their checksums, and copies what is stored out in one go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import Columns, pieces_of
from .write_containers import lay_out, states_its_size
from .write_shape import COPY_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...plan.planner import Plan
    from .columns import Output
    from .device_protocol import Compressor, Device
    from .slots import Slot
    from .write_containers import Containers
    from .write_program import WriteProgram
    from .write_shape import Shape

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Gathering:
    """Where chunks come from: what all waves of a write share.

    Attributes
    ----------
    plan
        All of the write.
    shape
        Of a chunk, in the array's order of dimensions.
    itemsize
        Bytes of an element.
    fill
        uint8, one element in native byte order.
    inputs
        Where each input lies.
    input_of
        int64, which of them each chunk comes from; one a row of the plan.
    """

    plan: Plan
    shape: tuple[int, ...]
    itemsize: int
    fill: npt.NDArray[np.uint8]
    inputs: tuple[Output, ...]
    input_of: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """The chunks of a wave, a row each.

    Attributes
    ----------
    failed
        bool: not encoded, so that the CPU has to.
    begin, nbytes
        int64: where in ``data`` each is; of no bytes where nothing is to be stored.
    data
        Page-locked memory of the wave's slot.
    """

    failed: BoolArray
    begin: IntArray
    nbytes: IntArray
    data: npt.NDArray[np.uint8]


class WriteWave:
    """One wave of a write; made and enqueued by one thread.

    Parameters
    ----------
    device, slot
        Where it runs; the slot's stream must have nothing of another wave to wait for.
    program, compressor, shape
        What runs, and how large it is.
    gathering, rows
        Where chunks come from, and which: rows of the plan.

    Attributes
    ----------
    memory
        The arena, as long as there is one.
    """

    def __init__(
        self,
        device: Device,
        slot: Slot,
        program: WriteProgram,
        compressor: Compressor | None,
        shape: Shape,
        gathering: Gathering,
        rows: IntArray,
    ) -> None:
        self.slot = slot
        self.rows = rows
        self._device = device
        self._program = program
        self._compressor = compressor
        self._shape = shape
        self._gathering = gathering
        # Marks are grouped by the input that chunks come from.
        self._by_input = np.argsort(gathering.input_of[rows], kind="stable")
        self._marks_at = 0
        self.memory: Any = None
        # Where each chunk is, before and after a Blosc container's shuffle.
        self._plain: IntArray = np.zeros(0, np.int64)
        self._shuffled: IntArray = np.zeros(0, np.int64)

    def enqueue(self, ready: Any) -> None:
        """Enqueue the first part, behind an event from which on the inputs can be read."""
        device, shape, own = self._device, self._shape, self.slot.stream
        arena = self.memory = device.allocate(shape.arena_bytes, own)
        columns = Columns(self.slot.staging(shape.staging_bytes)[: 8 * shape.words].view(np.int64), 0)
        work = [*self._gather(columns), *self._shuffle(columns)]
        if self._compressor is not None:
            work.append(self._compress(columns))
        nbytes = 8 * columns.used
        device.copy_in(arena[:nbytes], self.slot.staging(nbytes), own)
        own.wait_event(ready)
        for enqueue in work:
            enqueue()
        back = self.slot.results(12 * shape.frames + 8 * shape.chunks)
        if shape.frames:
            results = arena[shape.results_at : shape.results_at + 12 * shape.frames]
            device.copy_out(back[: 12 * shape.frames], results, own)
        marks = arena[8 * self._marks_at : 8 * (self._marks_at + shape.chunks)]
        device.copy_out(back[12 * shape.frames :], marks, own)
        own.record(self.slot.decoded)

    def _launch(self, kernel: Any, blocks: int, threads: int, job: int) -> None:
        base = self._device.address(self.memory)
        self._device.launch(kernel, blocks, threads, self.slot.stream, base, base, job)

    def _gather(self, columns: Columns) -> list[Any]:
        """Write the columns of the gather kernel, for each input; return what to enqueue."""
        shape, gathering = self._shape, self._gathering
        self._plain = self._shuffled = shape.plain_at + shape.slot * np.arange(shape.chunks)
        self._marks_at = columns.put(np.zeros(shape.chunks))
        inputs = gathering.input_of[self.rows[self._by_input]]
        first = np.flatnonzero(np.diff(inputs, prepend=np.int64(-1)))
        work = []
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(inputs)], strict=True):
            job, total = self._gather_job(columns, self._by_input[begin:end], self._marks_at + begin)
            work.append(partial(self._run_gather, gathering.inputs[inputs[begin]], job, total))
        return work

    def _gather_job(self, columns: Columns, which: IntArray, marks: int) -> tuple[int, int]:
        """Write the columns for some chunks of the wave, of one input; return the header and their words."""
        from gzarr_kernels.device import gather as g

        program, gathering = self._program, self._gathering
        plan, rows = gathering.plan, self.rows[which]
        source = gathering.inputs[gathering.input_of[rows[0]]]
        word, order = source.word, list(program.order)
        pieces, _ = pieces_of(plan, rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(plan.piece_offsets[rows + 1] - plan.piece_offsets[rows], out=offsets[1:])
        strides = source.strides[0]
        if order:
            extents: Any = [gathering.shape[d] for d in order]
            start, count, step = plan.start[pieces][:, order], plan.count[pieces][:, order], plan.step[order]
            base = source.base[0] + plan.target[pieces] @ strides
            strides = strides[order]
        else:
            extents, step = [1], np.ones(1, np.int64)
            start = np.zeros((len(pieces), 1), np.int64)
            count, base = start + 1, source.base[0] + start[:, 0]
        header = np.zeros(g.SIZE, np.int64)
        header[g.CHUNKS] = len(rows)
        header[g.WORDS] = program.nbytes // word
        header[g.PER] = gathering.itemsize // word
        header[g.K] = len(extents)
        header[g.FLIP] = max(program.swap - 1, 0)
        header[g.SHAPE] = columns.put(extents)
        header[g.TARGET] = columns.put(self._plain[which] // word)
        header[g.PIECE_OFFSETS] = columns.put(offsets)
        header[g.START] = columns.put(start)
        header[g.COUNT] = columns.put(count)
        header[g.BASE] = columns.put(base)
        header[g.STEP] = columns.put(step)
        header[g.STRIDES] = columns.put(strides)
        header[g.FILL] = columns.put(gathering.fill.view(f"u{word}").astype(np.uint64).view(np.int64))
        header[g.MARKS] = marks
        return columns.put(header), len(rows) * (program.nbytes // word)

    def _run_gather(self, source: Output, job: int, words: int) -> None:
        from gzarr_kernels.device import gather as g

        base = self._device.address(self.memory)
        self._device.launch(
            g.gather, g.blocks(words), g.THREADS, self.slot.stream, source.address, base, base, job, word=source.word
        )

    def _shuffle(self, columns: Columns) -> list[Any]:
        """Write the columns of both shuffles; return what to enqueue."""
        from gzarr_kernels.device import planes as p
        from gzarr_kernels.device import shuffle as s

        shape, program = self._shape, self._program
        work = []

        def shuffle(kernel: Any, typesize: int, blocksize: int) -> None:
            source = self._shuffled
            in_plain = int(source[0]) == shape.plain_at
            target = source + (shape.second_at - shape.plain_at if in_plain else shape.plain_at - shape.second_at)
            sizes = (np.full(shape.chunks, n) for n in (typesize, blocksize, program.nbytes))
            job, blocks = p.job(columns.put, source, target, *sizes)
            work.append(partial(self._launch, kernel, blocks, s.THREADS, job))
            self._shuffled = target

        if program.shuffle:
            shuffle(s.plain_to_byte_planes, program.shuffle, program.nbytes)
        self._plain = self._shuffled
        form = program.blosc
        if form is not None and form.shuffle != "noshuffle":
            kernel = s.plain_to_bit_planes if form.shuffle == "bitshuffle" else s.plain_to_byte_planes
            shuffle(kernel, form.typesize, form.blocksize)
        return work

    def _frame_slots(self) -> IntArray:
        """Return where each frame goes when it is compressed, ``(c, f)``."""
        shape = self._shape
        slots = shape.frames_at + shape.frame * np.arange(shape.frames)
        return slots.reshape(shape.chunks, -1)

    def _compress(self, columns: Columns) -> Any:
        """Write the columns of the encoder; return what to enqueue."""
        shape, program, compressor = self._shape, self._program, self._compressor
        assert compressor is not None
        base = self._device.address(self.memory)
        sources = columns.put(base + self._shuffled[:, None] + program.frame_at)
        nbytes = columns.put(np.tile(program.frame_nbytes, shape.chunks))
        targets = columns.put(base + self._frame_slots())
        results = base + shape.results_at
        return partial(
            compressor.run,
            self.slot.stream,
            frames=shape.frames,
            largest=program.largest_frame,
            sources=base + 8 * sources,
            source_nbytes=base + 8 * nbytes,
            targets=base + 8 * targets,
            produced=results,
            statuses=results + 8 * shape.frames,
            temp=base + shape.scratch_at,
            temp_nbytes=shape.scratch,
        )

    def finish(self, *, keep_empty: bool, packed: bool) -> Encoded:
        """Wait for the first part, run the second, and wait for that.

        Parameters
        ----------
        keep_empty
            Whether chunks of nothing but the fill value are stored.
        packed
            Whether containers follow each other without gaps, in the order of the rows.
        """
        device, shape, program, own = self._device, self._shape, self._program, self.slot.stream
        self.slot.decoded.synchronize()
        n, frames = shape.chunks, shape.frames
        back = self.slot.results(12 * frames + 8 * n)
        produced = back[: 8 * frames].view(np.int64).reshape(n, -1).copy()
        statuses = back[8 * frames : 12 * frames].view(np.int32).reshape(n, -1)
        marks = np.zeros(n, np.int64)
        marks[self._by_input] = back[12 * frames : 12 * frames + 8 * n].view(np.int64)
        # Where a frame failed nobody says that its size means anything.
        failed = ((statuses != 0) | (produced < 1) | (produced > max(shape.frame, 1))).any(axis=1)
        kept = np.flatnonzero(~failed & ((marks != 0) | keep_empty))
        containers = lay_out(
            program,
            produced[kept],
            self._frame_slots()[kept],
            self._plain[kept],
            self._shuffled[kept],
        )
        nbytes = np.zeros(n, np.int64)
        nbytes[kept] = containers.nbytes + 4 * program.checksums
        room = nbytes if packed else -(-nbytes // 16) * 16
        begin = np.cumsum(room) - room
        used = int(room.sum())
        data = self.slot.results(used)
        if len(kept):
            self._put_together(containers, kept, begin[kept])
            device.copy_out(data, self.memory[shape.containers_at : shape.containers_at + used], own)
            own.synchronize()
        self.memory = None
        encoded = Encoded(failed, begin, nbytes, data)
        if program.container == "zstd":
            self._refuse_foreign(encoded)
        return encoded

    def _refuse_foreign(self, encoded: Encoded) -> None:
        """Leave chunks to the CPU whose frames not every reader would take."""
        for i in np.flatnonzero(encoded.nbytes).tolist():
            frame = encoded.data[encoded.begin[i] : encoded.begin[i] + encoded.nbytes[i]]
            encoded.failed[i] = not states_its_size(frame, self._program.nbytes)

    def _put_together(self, containers: Containers, kept: IntArray, begin: IntArray) -> None:
        """Enqueue the second part, but for the copy out."""
        from gzarr_kernels.device import checksums as k
        from gzarr_kernels.device import containers as c
        from gzarr_kernels.device import copies as p

        device, shape, program = self._device, self._shape, self._program
        staging = self.slot.staging(shape.staging_bytes)[8 * shape.words :]
        columns = Columns(staging.view(np.int64), shape.words)
        begin = shape.containers_at + begin
        jobs: list[tuple[Any, int, int]] = []
        if len(containers.number_chunk):
            header = np.zeros(c.SIZE, np.int64)
            header[c.COUNT] = len(containers.number_chunk)
            header[c.TARGET] = columns.put(begin[containers.number_chunk] + containers.number_target)
            header[c.VALUE] = columns.put(containers.number_value)
            jobs.append((c.put_numbers, c.number_blocks(int(header[c.COUNT])), columns.put(header)))
        source, target, nbytes = _in_parts(
            containers.copy_source, begin[containers.copy_chunk] + containers.copy_target, containers.copy_nbytes
        )
        header = np.zeros(p.SIZE, np.int64)
        header[p.FRAMES] = len(source)
        header[p.SOURCE], header[p.TARGET] = columns.put(source), columns.put(target)
        header[p.NBYTES] = columns.put(nbytes)
        jobs.append((p.copy_frames, p.blocks(len(source)), columns.put(header)))
        sums: list[tuple[IntArray, IntArray, IntArray, int]] = []
        if containers.sum_target is not None:
            kind = k.CRC32 if program.around.checksum == "crc32" else k.ADLER32
            sums.append((begin + containers.sum_target, self._shuffled[kept], 0 * begin + program.nbytes, kind))
        for i in range(program.checksums):
            end = containers.nbytes + 4 * i
            sums.append((begin + end, begin, end, k.CRC32C))
        for target, source, nbytes, kind in sums:
            header = np.zeros(c.SIZE, np.int64)
            header[c.COUNT] = len(target)
            header[c.TARGET], header[c.SOURCE] = columns.put(target), columns.put(source)
            header[c.NBYTES], header[c.KIND] = columns.put(nbytes), columns.put(np.full(len(target), kind))
            jobs.append((c.put_checksums, k.blocks(len(target)), columns.put(header)))
        used = 8 * columns.used
        at = 8 * shape.words
        device.copy_in(self.memory[at : at + used], staging[:used], self.slot.stream)
        for kernel, blocks, job in jobs:
            self._launch(kernel, blocks, p.THREADS, job)


def _in_parts(source: IntArray, target: IntArray, nbytes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Cut copies into parts of at most ``COPY_BYTES``."""
    parts = -(-nbytes // COPY_BYTES)
    first = np.cumsum(parts) - parts
    at = COPY_BYTES * (np.arange(int(parts.sum())) - np.repeat(first, parts))
    left = np.repeat(nbytes, parts) - at
    return np.repeat(source, parts) + at, np.repeat(target, parts) + at, np.minimum(left, COPY_BYTES)
