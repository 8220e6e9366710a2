"""Layout of one wave of a write: where everything lies in its arena, and the device work that encodes its chunks.

It is computed on the host, from the plan and the arena's address; :mod:`gzarr.engines.cuda.write_wave` enqueues it. The
work has two parts with separate columns: :func:`lay_out` gathers, shuffles and compresses; once the host knows the
sizes of the frames, :func:`container_writes` puts the containers together.
:class:`gzarr.engines.cuda.write_shape.WriteShape` has the regions of the arena.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .arena import NOT_WRITTEN
from .columns import Columns, pieces_of
from .device_protocol import CoderBatch
from .launches import KernelLaunch, copy_launch
from .write_shape import COPY_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...plan.planner import Plan
    from .columns import Output
    from .device_protocol import Device
    from .write_containers import Containers
    from .write_program import WriteProgram
    from .write_shape import WriteShape

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Gathering:
    """Where chunks are gathered from; shared by all waves of a write.

    Attributes
    ----------
    plan
        Plan of the whole write.
    shape
        Shape of a chunk, in the array's order of dimensions.
    itemsize
        Bytes of an element.
    fill
        uint8, the fill value as one element in native byte order.
    inputs
        Memory of each input.
    input_of
        int64, index of each chunk's input; one per row of the plan.
    """

    plan: Plan
    shape: tuple[int, ...]
    itemsize: int
    fill: npt.NDArray[np.uint8]
    inputs: tuple[Output, ...]
    input_of: IntArray


@dataclass(frozen=True, slots=True)
class GatherLaunch:
    """A launch that gathers chunks from one input.

    Attributes
    ----------
    source
        Memory of the input.
    header
        Index of the kernel's header in the columns.
    words
        Number of words to gather, of ``source.word`` bytes each.
    """

    source: Output
    header: int
    words: int

    def enqueue(self, device: Device, arena: int, stream: Any) -> None:
        """Launch the kernel over the arena at an address."""
        from gzarr_kernels.device import gather as g

        source = self.source
        device.launch(
            g.gather, g.blocks(self.words), g.THREADS, stream, source.address, arena, arena, self.header,
            word=source.word,
        )  # fmt: skip


Step: TypeAlias = GatherLaunch | KernelLaunch | CoderBatch


@dataclass(frozen=True, slots=True, eq=False)
class WriteLayout:
    """A wave of ``c`` chunks of ``f`` frames each, ready to be enqueued.

    Attributes
    ----------
    copied
        Page-locked memory to copy to the beginning of the arena.
    steps
        Kernels that gather and shuffle the chunks, and the encoder's batch, in order.
    by_input
        int64 ``(c,)``, the wave's chunks in the order of their marks: grouped by input.
    marks_at
        Offset in the arena of the marks, int64 ``(c,)``: whether a chunk differs from the fill value.
    plain, shuffled
        int64 ``(c,)``, offset in the arena of each chunk before and after a Blosc container's shuffle.
    frames
        int64 ``(c, f)``, offset in the arena of each compressed frame.
    results_at
        Offset in the arena of the bytes of all frames, int64 ``(c, f)``, followed by their statuses, int32 ``(c, f)``.
    """

    copied: npt.NDArray[np.uint8]
    steps: tuple[Step, ...]
    by_input: IntArray
    marks_at: int
    plain: IntArray
    shuffled: IntArray
    frames: IntArray
    results_at: int


@dataclass(frozen=True, slots=True, eq=False)
class ContainerWrites:
    """The second part of a wave, ready to be enqueued.

    Attributes
    ----------
    copied, copied_to
        Page-locked memory to copy to the arena, and its offset there.
    launches
        Kernels that write the containers, in order.
    """

    copied: npt.NDArray[np.uint8]
    copied_to: int
    launches: tuple[KernelLaunch, ...]


def lay_out(
    shape: WriteShape,
    program: WriteProgram,
    gathering: Gathering,
    rows: IntArray,
    staging: npt.NDArray[np.uint8],
    arena: int,
) -> WriteLayout:
    """Lay out the first part of a wave, and write its columns to page-locked memory.

    Parameters
    ----------
    shape, program
        Sizes of the wave, and how its chunks are encoded.
    gathering, rows
        Where chunks are gathered from; int64, their rows of the plan.
    staging
        uint8 ``(shape.staging_bytes,)``, page-locked.
    arena
        Address of the arena.

    Raises
    ------
    DeviceError
        If the wave does not fit its shape.
    """
    columns = Columns(staging[: 8 * shape.words].view(np.int64), 0)
    gathered = shape.plain_at + shape.slot * np.arange(shape.chunks)
    marks = columns.put(np.zeros(shape.chunks))
    by_input = np.argsort(gathering.input_of[rows], kind="stable")
    steps: list[Step] = []
    inputs = gathering.input_of[rows[by_input]]
    first = np.flatnonzero(np.diff(inputs, prepend=np.int64(-1)))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(inputs)], strict=True):
        which = by_input[begin:end]
        steps.append(_gather(program, gathering, columns, rows[which], gathered[which], marks + begin))
    plain, shuffled = _shuffle(shape, program, columns, gathered, steps)
    frames = (shape.frames_at + shape.frame * np.arange(shape.frames)).reshape(shape.chunks, -1)
    # An encoder need not write anything for a frame that fails, and the arena may hold the results of a wave before.
    results, not_written = columns.place(-(-12 * shape.frames // 8))
    not_written[:] = NOT_WRITTEN
    if shape.frames:
        steps.append(_compress(shape, program, columns, shuffled, frames, arena, results))
    copied = staging[: 8 * columns.used]
    return WriteLayout(copied, tuple(steps), by_input, 8 * marks, plain, shuffled, frames, 8 * results)


def _gather(
    program: WriteProgram, gathering: Gathering, columns: Columns, rows: IntArray, target: IntArray, marks: int
) -> GatherLaunch:
    """Write the columns that gather some chunks of one input to offsets in the arena."""
    from gzarr_kernels.device import gather as g

    plan = gathering.plan
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
    header[g.TARGET] = columns.put(target // word)
    header[g.PIECE_OFFSETS] = columns.put(offsets)
    header[g.START] = columns.put(start)
    header[g.COUNT] = columns.put(count)
    header[g.BASE] = columns.put(base)
    header[g.STEP] = columns.put(step)
    header[g.STRIDES] = columns.put(strides)
    header[g.FILL] = columns.put(gathering.fill.view(f"u{word}").astype(np.uint64).view(np.int64))
    header[g.MARKS] = marks
    return GatherLaunch(source, columns.put(header), len(rows) * (program.nbytes // word))


def _shuffle(
    shape: WriteShape, program: WriteProgram, columns: Columns, gathered: IntArray, steps: list[Step]
) -> tuple[IntArray, IntArray]:
    """Add the shuffles to ``steps``; return each chunk's offset before and after a Blosc container's shuffle."""
    from gzarr_kernels.device import planes as p
    from gzarr_kernels.device import shuffle as s

    def shuffle(source: IntArray, kernel: Any, typesize: int, blocksize: int) -> IntArray:
        in_plain = int(source[0]) == shape.plain_at
        target = source + (shape.second_at - shape.plain_at if in_plain else shape.plain_at - shape.second_at)
        sizes = (np.full(shape.chunks, n) for n in (typesize, blocksize, program.nbytes))
        header, blocks = p.job(columns.put, source, target, *sizes)
        steps.append(KernelLaunch(kernel, blocks, header))
        return target

    plain = gathered
    if program.shuffle:
        plain = shuffle(plain, s.plain_to_byte_planes, program.shuffle, program.nbytes)
    form = program.blosc
    if form is None or form.shuffle == "noshuffle":
        return plain, plain
    kernel = s.plain_to_bit_planes if form.shuffle == "bitshuffle" else s.plain_to_byte_planes
    return plain, shuffle(plain, kernel, form.typesize, form.blocksize)


def _compress(
    shape: WriteShape,
    program: WriteProgram,
    columns: Columns,
    shuffled: IntArray,
    frames: IntArray,
    arena: int,
    results: int,
) -> CoderBatch:
    """Write the columns of the encoder."""
    sources = columns.put(arena + shuffled[:, None] + program.frame_at)
    nbytes = columns.put(np.tile(program.frame_nbytes, shape.chunks))
    targets = columns.put(arena + frames)
    return CoderBatch(
        frames=shape.frames,
        largest=program.largest_frame,
        sources=arena + 8 * sources,
        source_nbytes=arena + 8 * nbytes,
        targets=arena + 8 * targets,
        produced=arena + 8 * results,
        statuses=arena + 8 * (results + shape.frames),
        temp=arena + shape.scratch_at,
        temp_nbytes=shape.scratch,
    )


def container_writes(
    shape: WriteShape,
    program: WriteProgram,
    containers: Containers,
    begin: IntArray,
    shuffled: IntArray,
    staging: npt.NDArray[np.uint8],
) -> ContainerWrites:
    """Lay out the second part of a wave, and write its columns to page-locked memory.

    Parameters
    ----------
    shape, program
        Sizes of the wave, and how its chunks are encoded.
    containers
        Contents of ``n`` containers.
    begin
        int64 ``(n,)``, offset of each container in the arena's region for containers.
    shuffled
        int64 ``(n,)``, offset in the arena of each container's uncompressed chunk.
    staging
        uint8 ``(shape.staging_bytes,)``, page-locked.

    Raises
    ------
    DeviceError
        If the wave does not fit its shape.
    """
    from gzarr_kernels.device import checksums as k
    from gzarr_kernels.device import containers as c

    own = staging[8 * shape.words :]
    columns = Columns(own.view(np.int64), shape.words)
    begin = shape.containers_at + begin
    launches: list[KernelLaunch] = []
    if len(containers.number_chunk):
        header = np.zeros(c.SIZE, np.int64)
        header[c.COUNT] = len(containers.number_chunk)
        header[c.TARGET] = columns.put(begin[containers.number_chunk] + containers.number_target)
        header[c.VALUE] = columns.put(containers.number_value)
        launches.append(KernelLaunch(c.put_numbers, c.number_blocks(int(header[c.COUNT])), columns.put(header)))
    copies = _in_parts(
        containers.copy_source, begin[containers.copy_chunk] + containers.copy_target, containers.copy_nbytes
    )
    launches.append(copy_launch(columns, *copies))
    sums: list[tuple[IntArray, IntArray, IntArray, int]] = []
    if containers.sum_target is not None:
        kind = k.CRC32 if program.around.checksum == "crc32" else k.ADLER32
        sums.append((begin + containers.sum_target, shuffled, 0 * begin + program.nbytes, kind))
    for i in range(program.checksums):
        end = containers.nbytes + 4 * i
        sums.append((begin + end, begin, end, k.CRC32C))
    for target, source, nbytes, kind in sums:
        header = np.zeros(c.SIZE, np.int64)
        header[c.COUNT] = len(target)
        header[c.TARGET], header[c.SOURCE] = columns.put(target), columns.put(source)
        header[c.NBYTES], header[c.KIND] = columns.put(nbytes), columns.put(np.full(len(target), kind))
        launches.append(KernelLaunch(c.put_checksums, k.blocks(len(target)), columns.put(header)))
    return ContainerWrites(own[: 8 * columns.used], 8 * shape.words, tuple(launches))


def _in_parts(source: IntArray, target: IntArray, nbytes: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Divide copies into parts of at most ``COPY_BYTES``."""
    parts = -(-nbytes // COPY_BYTES)
    first = np.cumsum(parts) - parts
    at = COPY_BYTES * (np.arange(int(parts.sum())) - np.repeat(first, parts))
    left = np.repeat(nbytes, parts) - at
    return np.repeat(source, parts) + at, np.repeat(target, parts) + at, np.minimum(left, COPY_BYTES)
