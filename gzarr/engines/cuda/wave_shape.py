"""Sizes of the waves of a read, and the regions of their arena.

The arena of a wave, in bytes::

    encoded | columns || decoded | second | realigned | scratch
    └ copied from the host ┘

Encoded chunks may also be read directly to the device (:mod:`gzarr.engines.cuda.direct`); then only the columns are
copied. The columns include the results of frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .arena import MARK_BYTES, RESULT_BYTES, aligned
from .placing import placing_words

if TYPE_CHECKING:
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor

#: Columns are sized for at least one frame per this many bytes of the largest chunk.
ENCODED_BYTES_PER_FRAME: Final = 512
#: Columns are sized for this multiple of the expected frames.
FRAME_ROOM: Final = 1.25
#: Columns are sized for at least this many frames.
MIN_FRAME_COLUMNS: Final = 128
#: Least alignment of realigned frames in bytes: the copying kernel moves words.
MIN_FRAME_ALIGNMENT: Final = 16
#: Words of columns per frame: for the decoder, for a copy, for its checksum, for its results.
_FRAME_WORDS: Final = 5 + 3 + 4 + RESULT_BYTES // 8
#: Words of columns per chunk for a kernel between decoding and placement, and words of the kernel's header.
_STEP_WORDS: Final = 6
_STEP_HEADER_WORDS: Final = 32


@dataclass(frozen=True, slots=True)
class WaveShape:
    """Sizes of the waves of a read.

    Attributes
    ----------
    chunks, pieces, frames
        Most chunks, pieces and frames in a wave.
    encoded
        Bytes for encoded chunks.
    words
        int64 words for columns.
    slot
        Bytes of a chunk's slot in ``decoded`` and in ``second``.
    has_decoded, has_second
        Whether these regions exist.
    realigned, frame_alignment
        Bytes for frames that have to be moved to aligned memory before they can be decoded, and the alignment of frames
        there, in bytes.
    scratch
        Bytes of the decoders' scratch.
    marks
        Number of chunks that a filter may mark as faulty: all or none.
    direct
        Whether encoded chunks are read directly to the device, not through page-locked memory.
    """

    chunks: int
    pieces: int
    frames: int
    encoded: int
    words: int
    slot: int
    has_decoded: bool
    has_second: bool
    realigned: int
    frame_alignment: int
    scratch: int
    marks: int
    direct: bool

    @property
    def staging_bytes(self) -> int:
        """Page-locked bytes for copies to the device."""
        return (0 if self.direct else self.encoded) + 8 * self.words

    @property
    def input_bytes(self) -> int:
        """Device bytes for encoded chunks and columns."""
        return self.encoded + 8 * self.words

    @property
    def results_bytes(self) -> int:
        """Page-locked bytes for copies from the device."""
        return RESULT_BYTES * self.frames + MARK_BYTES * self.marks

    @property
    def decoded_at(self) -> int:
        """Offset of the decoded chunks."""
        return aligned(self.input_bytes)

    @property
    def second_at(self) -> int:
        """Offset of the chunks' second slots."""
        return self.decoded_at + self.chunks * self.slot

    @property
    def realigned_at(self) -> int:
        """Offset of the realigned frames."""
        return self.decoded_at + self.chunks * self.slot * (int(self.has_decoded) + int(self.has_second))

    @property
    def scratch_at(self) -> int:
        """Offset of the decoders' scratch."""
        return self.realigned_at + self.realigned

    @property
    def arena_bytes(self) -> int:
        """Device bytes of the arena."""
        return self.scratch_at + self.scratch

    @property
    def nbytes(self) -> int:
        """Page-locked and device bytes together."""
        return self.staging_bytes + self.results_bytes + self.arena_bytes


@dataclass(frozen=True, slots=True)
class WaveContent:
    """What a wave is planned for.

    Attributes
    ----------
    chunks, pieces
        Number of chunks and pieces in the wave.
    frames, encoded
        Expected number of frames, and of encoded bytes, of a chunk; chunks that do not fit wait for the next wave.
    most_encoded
        Most encoded bytes of a chunk: one of that size always fits.
    """

    chunks: int
    pieces: int
    frames: float
    encoded: float
    most_encoded: int


def shape_for(
    program: DeviceProgram, decoder: Decompressor | None, content: WaveContent, *, k: int, outputs: int, direct: bool
) -> WaveShape:
    """Return the shape of a wave.

    Parameters
    ----------
    program, decoder
        How chunks are decoded.
    content
        What the wave is planned for.
    k, outputs
        Number of placement dimensions and outputs of the plan.
    direct
        Whether encoded chunks are read directly to the device.
    """
    chunks, frames = content.chunks, content.frames
    slot = aligned(program.most_nbytes)
    # 64 bytes after each chunk for decoders that read whole words, and room for alignment and headers.
    largest_chunk = aligned(content.most_encoded, 64) + 128
    one = min(aligned(math.ceil(content.encoded), 64) + 128, largest_chunk)
    room = aligned(max(largest_chunk, chunks * one))
    compressed = program.frames.compressor is not None
    most_frames = 0
    if compressed:
        of_one = content.most_encoded // ENCODED_BYTES_PER_FRAME
        most_frames = max(MIN_FRAME_COLUMNS, of_one, math.ceil(FRAME_ROOM * chunks * frames))
    words = placing_words(k, outputs, chunks, content.pieces) + _FRAME_WORDS * most_frames
    marks = chunks if program.marks else 0
    words += program.steps * (_STEP_WORDS * chunks + _STEP_HEADER_WORDS) + marks
    total = chunks * program.frames.nbytes
    scratch = realigned = 0
    frame_alignment = MIN_FRAME_ALIGNMENT
    if decoder is not None:
        frame_alignment = max(frame_alignment, decoder.input_alignment)
        # Containers begin at multiples of 64 bytes; frames inside one, or after a header, may begin anywhere.
        realigned = aligned(room + frame_alignment * most_frames) if decoder.input_alignment > 1 else 0
        alone = decoder.temp_nbytes(1, program.frames.nbytes, program.frames.nbytes)
        count = max(chunks, math.ceil(chunks * frames))
        scratch = max(alone, decoder.temp_nbytes(count, max(1, total // count), total))
    return WaveShape(
        chunks=chunks,
        pieces=content.pieces,
        frames=most_frames,
        encoded=room,
        words=aligned(words, 32),
        slot=slot,
        has_decoded=compressed or program.steps > 0,
        # The first step reads an uncompressed chunk from the encoded region.
        has_second=program.steps > (0 if compressed else 1),
        realigned=realigned,
        frame_alignment=frame_alignment,
        scratch=aligned(scratch),
        marks=marks,
        direct=direct,
    )
