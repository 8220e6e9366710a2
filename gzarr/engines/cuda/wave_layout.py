"""Layout of one wave of a read: where everything lies in its arena, and the device work that decodes its chunks.

It is computed on the host from the staged chunks and the arena's address; :mod:`gzarr.engines.cuda.wave` enqueues it.
:class:`gzarr.engines.cuda.wave_shape.WaveShape` has the regions of the arena.

Every step reads a chunk where the previous one left it, and writes it to the chunk's slot in ``decoded`` or ``second``,
whichever it does not read from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ...errors import DeviceError
from .arena import MARK_BYTES, NOT_WRITTEN, RESULT_BYTES, aligned
from .columns import Columns
from .device_protocol import CoderBatch
from .launches import KernelLaunch, copy_launch
from .placing import DecodedChunks, placings
from .staging import ABSENT, READY

if TYPE_CHECKING:
    import numpy.typing as npt

    from .columns import Output, Placement
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor
    from .placing import PlacingLaunch
    from .staging import Frames, Staged
    from .wave_shape import WaveShape

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]


Step: TypeAlias = CoderBatch | KernelLaunch


class Decoding(NamedTuple):
    """How the chunks of a read are decoded.

    Attributes
    ----------
    program
        The kernels, and the format of frames.
    decoder
        Decoder of the program's algorithm; None for uncompressed chunks.
    """

    program: DeviceProgram
    decoder: Decompressor | None


@dataclass(frozen=True, slots=True)
class CopyOut:
    """A copy of statuses to the host.

    Attributes
    ----------
    source, target, nbytes
        Offset in the arena, offset in the slot's results, and bytes.
    """

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Statuses:
    """How to read the statuses of a wave.

    Attributes
    ----------
    rows
        int64 ``(n,)``, rows of the plan of all staged chunks.
    owner
        int64 ``(f,)``, index in ``rows`` of each frame's chunk.
    target_nbytes
        int64 ``(f,)``, expected decoded bytes of each frame.
    raw
        bool ``(f,)``, whether a frame is uncompressed.
    checked
        int64, indices of the frames with a checksum.
    marked
        int64, indices in ``rows`` of the chunks that filters may mark as faulty.
    marks_at
        Offset of the marks in the slot's results.
    """

    rows: IntArray
    owner: IntArray
    target_nbytes: IntArray
    raw: BoolArray
    checked: IntArray
    marked: IntArray
    marks_at: int

    def failed_rows(self, results: npt.NDArray[np.uint8]) -> IntArray:
        """Return the rows of the plan whose chunks the device failed to decode.

        Parameters
        ----------
        results
            The slot's results, after all copies out.
        """
        count, checked, marked = len(self.owner), self.checked, self.marked
        failed = np.zeros(len(self.rows), np.bool_)
        produced = results[: 8 * count].view(np.int64)
        statuses = results[8 * count : 12 * count].view(np.int32)
        bad = ~self.raw & ((statuses != 0) | (produced != self.target_nbytes))
        checks = results[12 * count : 12 * count + 4 * len(checked)].view(np.int32)
        bad[checked[checks != 0]] = True
        failed[self.owner[bad]] = True
        marks = results[self.marks_at : self.marks_at + MARK_BYTES * len(marked)].view(np.int64)
        failed[marked[marks != 0]] = True
        return self.rows[failed]


@dataclass(frozen=True, slots=True, eq=False)
class WaveLayout:
    """A wave, ready to be enqueued.

    Attributes
    ----------
    copied, copied_to
        Page-locked memory to copy to the arena, and its offset there.
    steps
        Decoder batches and kernels that decode the chunks, in order.
    copies_out
        Copies of the statuses to the host, after all steps.
    placings
        Launches that place the decoded chunks in the results.
    statuses
        How to read the statuses.
    """

    copied: npt.NDArray[np.uint8]
    copied_to: int
    steps: tuple[Step, ...]
    copies_out: tuple[CopyOut, ...]
    placings: tuple[PlacingLaunch, ...]
    statuses: Statuses


def lay_out(
    shape: WaveShape,
    decoding: Decoding,
    staged: Staged,
    frames: Frames,
    staging: npt.NDArray[np.uint8],
    place: Placement,
    output: Output,
    arena: int,
) -> WaveLayout:
    """Lay out a wave, and write its columns to page-locked memory.

    Parameters
    ----------
    shape, decoding
        Sizes of the wave, and how its chunks are decoded.
    staged, frames
        The staged chunks, and their frames.
    staging
        uint8 ``(shape.staging_bytes,)``, page-locked: the encoded chunks, unless the wave is direct, then the columns.
    place, output
        Placement of the read, and memory of its results.
    arena
        Address of the arena.

    Raises
    ------
    DeviceError
        If the wave does not fit its shape.
    """
    begin = aligned(staged.used, 16)
    # Offset in the arena of the first byte that comes from page-locked memory.
    copied_to = begin if shape.direct else 0
    host = staging[: begin - copied_to + 8 * shape.words]
    if not shape.direct:
        host[staged.used : begin] = 0
    columns = Columns(host[begin - copied_to :].view(np.int64), begin // 8)
    taken = (staged.state == READY) | (staged.state == ABSENT)
    chunks = _Chunks(shape, staged)
    program = decoding.program
    decoded_frames = _FrameDecoding(shape, decoding.decoder, columns, chunks, frames, arena)
    kernels, marked, marks = _after_decoding(program, columns, chunks, taken)
    decoded = DecodedChunks(
        staged.rows[taken], chunks.source[taken], chunks.typesize[taken], chunks.blocksize[taken], program.nbytes,
        program.strides, program.swap, program.conversion,
    )  # fmt: skip
    launches = placings(columns, place, decoded, output)
    statuses = Statuses(
        rows=staged.rows,
        owner=decoded_frames.owner,
        target_nbytes=decoded_frames.target_nbytes,
        raw=decoded_frames.raw,
        checked=decoded_frames.checked,
        marked=marked,
        marks_at=RESULT_BYTES * shape.frames,
    )
    copies_out = (
        CopyOut(8 * decoded_frames.results, 0, 8 * decoded_frames.result_words),
        CopyOut(8 * marks, statuses.marks_at, MARK_BYTES * len(marked)),
    )
    return WaveLayout(
        copied=host[: begin - copied_to + 8 * columns.used],
        copied_to=copied_to,
        steps=(*decoded_frames.steps, *kernels),
        copies_out=tuple(copy for copy in copies_out if copy.nbytes),
        placings=tuple(launches),
        statuses=statuses,
    )


class _Chunks:
    """Where each chunk of a wave is in the arena, and its layout, from step to step."""

    def __init__(self, shape: WaveShape, staged: Staged) -> None:
        n = len(staged.rows)
        self.slots: IntArray = shape.decoded_at + shape.slot * np.arange(n)
        self._second: IntArray = shape.second_at + shape.slot * np.arange(n)
        self.source: IntArray = np.where(staged.direct >= 0, staged.direct, self.slots)
        self.typesize: IntArray = np.where(staged.state == ABSENT, 0, staged.typesize)
        self.blocksize: IntArray = staged.blocksize.copy()
        self.bits: BoolArray = staged.bits.astype(np.bool_)

    def move(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return where some chunks are and where the next step writes them; from now on they are there."""
        source = self.source[rows]
        target = np.where(source == self.slots[rows], self._second[rows], self.slots[rows])
        self.source[rows] = target
        return source, target


class _FrameDecoding:
    """Decoding of all frames, uncompressed ones first.

    Attributes
    ----------
    steps
        Copies of uncompressed frames and of frames to be aligned, decoder batches, and checksums.
    owner, target_nbytes, raw, checked
        As for :class:`Statuses`.
    results, result_words
        Index and words of the column of results: bytes produced, statuses of the decoder, and of checksums.
    """

    def __init__(
        self,
        shape: WaveShape,
        decoder: Decompressor | None,
        columns: Columns,
        chunks: _Chunks,
        frames: Frames,
        arena: int,
    ) -> None:
        self._shape = shape
        self._columns = columns
        self._arena = arena
        # Mostly all frames are of one kind: a slice copies nothing.
        same = not len(frames.algorithm) or bool((frames.algorithm == frames.algorithm[0]).all())
        order: Any = slice(None) if same else np.argsort(frames.algorithm, kind="stable")
        algorithm = frames.algorithm[order]
        self.owner: IntArray = frames.chunk[order]
        self.target_nbytes: IntArray = frames.target_nbytes[order]
        self.raw: BoolArray = algorithm == 0
        self.checked: IntArray = np.flatnonzero(frames.check[order])
        self.steps: list[Step] = []
        count = len(self.owner)
        # nvCOMP need not write anything for a damaged frame, and the arena may hold the results of a wave before.
        self.result_words: int = -(-(12 * count + 4 * len(self.checked)) // 8)
        self.results, results = columns.place(self.result_words)
        results[:] = NOT_WRITTEN
        if not count:
            return
        source, source_nbytes = frames.source[order], frames.source_nbytes[order]
        target = chunks.slots[self.owner] + frames.target[order]
        raw = int(np.searchsorted(algorithm, 1))
        if raw:
            self.steps.append(copy_launch(columns, source[:raw], target[:raw], self.target_nbytes[:raw]))
        if raw < count:
            assert decoder is not None
            aligned_source = self._align(decoder, source[raw:], source_nbytes[raw:])
            self._decode(decoder, raw, aligned_source, source_nbytes[raw:], target[raw:])
        if len(self.checked):
            kinds = frames.check[order][self.checked]
            self._verify(target[self.checked], frames.expected[order][self.checked], kinds)

    def _align(self, decoder: Decompressor, source: IntArray, nbytes: IntArray) -> IntArray:
        """Return offsets of the compressed frames that are aligned for the decoder, copying the frames if need be."""
        if not (source % decoder.input_alignment).any():
            return source
        # Frames inside a Blosc container, and after some headers, begin anywhere.
        shape = self._shape
        sizes = aligned(nbytes, shape.frame_alignment)
        target = shape.realigned_at + np.cumsum(sizes) - sizes
        if target[-1] + sizes[-1] > shape.scratch_at:
            raise DeviceError("a wave's frames need more memory than is reserved to align them")
        self.steps.append(copy_launch(self._columns, source, target, nbytes))
        return target

    def _decode(
        self, decoder: Decompressor, first: int, source: IntArray, source_nbytes: IntArray, target: IntArray
    ) -> None:
        """Divide the compressed frames, from ``first`` on, into batches whose scratch fits."""
        columns, arena, room = self._columns, self._arena, self._shape.scratch
        results = arena + 8 * self.results
        target_nbytes = self.target_nbytes[first:]
        ends = np.cumsum(target_nbytes)
        largest = int(target_nbytes.max())
        sources, sizes = columns.put(source + arena), columns.put(source_nbytes)
        targets, capacities = columns.put(target + arena), columns.put(target_nbytes)
        n, count = len(source), len(self.owner)
        begin = 0
        while begin < n:
            before = int(ends[begin - 1]) if begin else 0
            end = n
            while (need := decoder.temp_nbytes(end - begin, largest, int(ends[end - 1]) - before)) > room:
                if end - begin == 1:
                    raise DeviceError(f"nvCOMP needs {need} bytes of scratch for one frame, but has {room}")
                end = begin + (end - begin) // 2
            batch = CoderBatch(
                frames=end - begin,
                largest=largest,
                sources=arena + 8 * (sources + begin),
                source_nbytes=arena + 8 * (sizes + begin),
                targets=arena + 8 * (targets + begin),
                target_nbytes=arena + 8 * (capacities + begin),
                produced=results + 8 * (first + begin),
                statuses=results + 8 * count + 4 * (first + begin),
                temp=arena + self._shape.scratch_at,
                temp_nbytes=room,
            )
            self.steps.append(batch)
            begin = end

    def _verify(self, source: IntArray, expected: IntArray, kind: IntArray) -> None:
        """Compare the checksums of decoded frames with the expected ones."""
        from gzarr_kernels.device import checksums as c

        columns = self._columns
        header = np.zeros(c.SIZE, np.int64)
        header[c.FRAMES] = len(source)
        header[c.SOURCE], header[c.NBYTES] = columns.put(source), columns.put(self.target_nbytes[self.checked])
        header[c.EXPECTED], header[c.KIND] = columns.put(expected), columns.put(kind)
        header[c.STATUS_BASE] = 2 * self.results + 3 * len(self.owner)
        self.steps.append(KernelLaunch(c.checksums, c.blocks(len(source)), columns.put(header), views=3))


def _after_decoding(
    program: DeviceProgram, columns: Columns, chunks: _Chunks, taken: BoolArray
) -> tuple[list[KernelLaunch], IntArray, int]:
    """Bring all decoded chunks into a form that can be placed: undo shuffles and filters.

    Returns
    -------
    launches
        The kernels, in order.
    marked
        int64, indices of the chunks that filters may mark as faulty.
    marks
        Index of the column of their marks; 0 if there is none.
    """
    from gzarr_kernels.device import planes as p

    launches: list[KernelLaunch] = []
    none: IntArray = np.zeros(0, np.int64)
    present = taken & (chunks.typesize > 0)

    def unshuffle(which: BoolArray, kernel: Any) -> None:
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        source, target = chunks.move(rows)
        nbytes = np.full(len(rows), program.frames.nbytes)
        header, blocks = p.job(columns.put, source, target, chunks.typesize[rows], chunks.blocksize[rows], nbytes)
        launches.append(KernelLaunch(kernel, blocks, header))

    unshuffle(present & chunks.bits, p.bit_planes_to_byte_planes)
    chunks.bits[:] = False
    if program.shuffle:
        unshuffle(present & (chunks.typesize > 1), p.byte_planes_to_plain)
        chunks.typesize[present] = program.shuffle
        chunks.blocksize[present] = program.frames.nbytes
    rows = np.flatnonzero(present)
    if not program.filters or not len(rows):
        return launches, none, 0
    unshuffle(present & (chunks.typesize > 1), p.byte_planes_to_plain)
    chunks.typesize[rows] = 1
    marked, marks = none, 0
    if program.marks:
        marked, marks = rows, columns.put(np.zeros(len(rows)))
    for step in program.filters:
        kernel, blocks, header = step.launch(columns, *chunks.move(rows), marks)
        launches.append(KernelLaunch(kernel, blocks, header))
    return launches, marked, marks
