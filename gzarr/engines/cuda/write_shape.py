"""Sizes of the waves of a write, and the regions of their arena.

The arena of a wave, in bytes::

    columns | more columns || plain | second | frames | containers | scratch
    └ copied from the host ┘

The columns include the results of frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .arena import aligned
from .write_containers import most_nbytes, most_numbers

if TYPE_CHECKING:
    from .device_protocol import Compressor
    from .write_program import WriteProgram

#: Bytes that one block of threads copies.
COPY_BYTES: Final = 64 << 10
#: Most words of a kernel's header, including alignment.
_HEADER_WORDS: Final = 32
#: Most words of a fill value: one per byte of the largest element.
_FILL_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class WriteShape:
    """Sizes of a wave of a write.

    Attributes
    ----------
    chunks, frames
        Number of chunks and frames.
    words, more_words
        int64 words for the columns of the first and of the second part.
    slot
        Bytes of a chunk's slot in ``plain`` and in ``second``.
    second
        Bytes of that region; 0 if there is none.
    frame
        Bytes of a compressed frame's slot.
    container
        Most bytes of a container.
    scratch
        Bytes of the encoder's scratch.
    """

    chunks: int
    frames: int
    words: int
    more_words: int
    slot: int
    second: int
    frame: int
    container: int
    scratch: int

    @property
    def staging_bytes(self) -> int:
        """Page-locked bytes for copies to the device."""
        return 8 * (self.words + self.more_words)

    @property
    def plain_at(self) -> int:
        """Offset of the gathered chunks."""
        return aligned(self.staging_bytes)

    @property
    def second_at(self) -> int:
        """Offset of the chunks' second slots."""
        return self.plain_at + self.chunks * self.slot

    @property
    def frames_at(self) -> int:
        """Offset of the compressed frames."""
        return self.second_at + self.second

    @property
    def containers_at(self) -> int:
        """Offset of the containers."""
        return self.frames_at + aligned(self.frames * self.frame)

    @property
    def scratch_at(self) -> int:
        """Offset of the encoder's scratch."""
        return self.containers_at + aligned(self.containers_bytes)

    @property
    def arena_bytes(self) -> int:
        """Device bytes of the arena."""
        return self.scratch_at + self.scratch

    @property
    def containers_bytes(self) -> int:
        """Most bytes of all containers."""
        return self.chunks * self.container

    @property
    def results_bytes(self) -> int:
        """Page-locked bytes for copies from the device: the larger one of two."""
        return max(12 * self.frames + 8 * self.chunks, self.containers_bytes)

    @property
    def nbytes(self) -> int:
        """Page-locked and device bytes together."""
        return self.staging_bytes + self.results_bytes + self.arena_bytes


def shape_for(
    program: WriteProgram, compressor: Compressor | None, *, chunks: int, pieces: int, k: int, inputs: int
) -> WriteShape:
    """Return the shape of a wave.

    Parameters
    ----------
    program, compressor
        How chunks are encoded.
    chunks, pieces
        Number of chunks and pieces in the wave.
    k, inputs
        Number of dimensions, and of arrays that the chunks are gathered from.
    """
    frames = frame = most_encoded = scratch = 0
    if compressor is not None:
        frames = chunks * len(program.frame_at)
        most_encoded = compressor.max_encoded_nbytes(program.largest_frame)
        frame = aligned(most_encoded, max(compressor.output_alignment, 16))
        scratch = compressor.temp_nbytes(frames, program.largest_frame, chunks * program.nbytes)
    # Columns of gathering (targets, piece offsets, marks, pieces), of shuffles, and of the encoder with its
    # results.
    words = 3 * chunks + (2 * k + 1) * pieces + inputs * (_HEADER_WORDS + _FILL_WORDS + 3 * k)
    words += program.shuffles * (6 * chunks + _HEADER_WORDS) + 5 * frames
    container = aligned(most_nbytes(program, most_encoded), 16)
    copies = chunks * (len(program.frame_at) + container // COPY_BYTES + 1)
    sums = program.checksums + 1
    more = 3 * copies + 2 * chunks * most_numbers(program) + sums * (4 * chunks + _HEADER_WORDS) + 2 * _HEADER_WORDS
    slot = aligned(program.nbytes)
    return WriteShape(
        chunks=chunks,
        frames=frames,
        words=aligned(words, 32),
        more_words=aligned(more, 32),
        slot=slot,
        second=chunks * slot if program.shuffles else 0,
        frame=frame,
        container=container,
        scratch=aligned(scratch),
    )
