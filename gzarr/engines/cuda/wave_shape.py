"""How large the waves of a read are: see :mod:`gzarr.engines.cuda.wave` for what lies where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .arena import MARK_BYTES, RESULT_BYTES, aligned
from .placing import placing_words

if TYPE_CHECKING:
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor

#: Encoded bytes a frame, on average, that there are columns for.
FRAME_BYTES: Final = 512
#: Fewest frames that there are columns for.
LEAST_FRAMES: Final = 128
#: Frames that are moved begin at multiples of this many bytes, or more: copies are made of words.
LEAST_FRAME_ALIGNMENT: Final = 16
#: Words a frame takes: its columns for the decoder, for a copy, for its checksum.
_FRAME_WORDS: Final = 5 + 3 + 4
#: Words a chunk takes in the job of a kernel between decoding and assembling, and words of the job itself.
_STEP_WORDS: Final = 6
_STEP_HEADER_WORDS: Final = 32


@dataclass(frozen=True, slots=True)
class WaveShape:
    """How large the waves of a read are.

    Attributes
    ----------
    chunks, pieces, frames
        In a wave, at most.
    encoded
        Bytes for encoded chunks.
    words
        int64 words for columns.
    slot
        Bytes of a chunk's slot in ``decoded`` and in ``second``.
    decoded, second
        Whether there are such regions.
    aligned, frame_alignment
        Bytes for frames that must be moved to aligned memory before they can be decoded, and where they begin in it:
        at multiples of this many bytes.
    scratch
        Bytes for the decoders.
    marks
        Chunks that are marked if a filter finds them to be faulty: all or none.
    direct
        Whether encoded chunks do not come by page-locked memory, but are read to the device.
    """

    chunks: int
    pieces: int
    frames: int
    encoded: int
    words: int
    slot: int
    decoded: bool
    second: bool
    aligned: int
    frame_alignment: int
    scratch: int
    marks: int
    direct: bool

    @property
    def staging_bytes(self) -> int:
        """Page-locked bytes that go to the device."""
        return (0 if self.direct else self.encoded) + 8 * self.words

    @property
    def input_bytes(self) -> int:
        """Device bytes for encoded chunks and columns."""
        return self.encoded + 8 * self.words

    @property
    def results_bytes(self) -> int:
        """Page-locked bytes that come back."""
        return RESULT_BYTES * self.frames + MARK_BYTES * self.marks

    @property
    def arena_bytes(self) -> int:
        """Device bytes."""
        regions = self.chunks * self.slot * (int(self.decoded) + int(self.second))
        return aligned(self.input_bytes) + regions + aligned(self.results_bytes) + self.aligned + self.scratch

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.staging_bytes + self.results_bytes + self.arena_bytes


def shape_for(
    program: DeviceProgram,
    decoder: Decompressor | None,
    *,
    chunks: int,
    pieces: int,
    frames: int,
    most_encoded: int,
    k: int,
    outputs: int,
    direct: bool,
) -> WaveShape:
    """Return the shape of a wave of some chunks.

    Parameters
    ----------
    program, decoder
        What runs.
    chunks, pieces
        Of the wave.
    frames
        That a chunk is expected to have.
    most_encoded
        Encoded bytes of a chunk, at most.
    k, outputs
        Of the plan.
    direct
        Whether encoded chunks are read to the device.
    """
    slot = aligned(program.most_nbytes)
    # 64 bytes behind each for decoders that read whole words, and what alignment and headers cost.
    encoded = aligned(chunks * (aligned(most_encoded, 64) + 128))
    compressed = program.frames.compressor is not None
    most_frames = max(LEAST_FRAMES, 2 * chunks * frames, encoded // FRAME_BYTES) if compressed else 0
    words = placing_words(k, outputs, chunks, pieces) + _FRAME_WORDS * most_frames
    marks = chunks if program.marks else 0
    words += program.steps * (_STEP_WORDS * chunks + _STEP_HEADER_WORDS) + marks
    total = chunks * program.frames.nbytes
    scratch = moved = 0
    frame_alignment = LEAST_FRAME_ALIGNMENT
    if decoder is not None:
        frame_alignment = max(frame_alignment, decoder.input_alignment)
        # Containers begin at multiples of 64 bytes; what is inside of one, or behind a header, may begin anywhere.
        moved = aligned(encoded + frame_alignment * most_frames) if decoder.input_alignment > 1 else 0
        alone = decoder.temp_nbytes(1, program.frames.nbytes, program.frames.nbytes)
        largest = max(1, program.frames.nbytes // max(frames, 1))
        scratch = max(alone, decoder.temp_nbytes(chunks * max(frames, 1), largest, total))
    return WaveShape(
        chunks=chunks,
        pieces=pieces,
        frames=most_frames,
        encoded=encoded,
        words=aligned(words, 32),
        slot=slot,
        decoded=compressed or program.steps > 0,
        # A first step takes an uncompressed chunk from where it was copied to.
        second=program.steps > (0 if compressed else 1),
        aligned=moved,
        frame_alignment=frame_alignment,
        scratch=aligned(scratch),
        marks=marks,
        direct=direct,
    )
