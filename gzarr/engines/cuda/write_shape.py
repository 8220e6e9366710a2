"""How much memory a wave of a write takes, and what lies where in it.

The arena of a wave, in bytes::

    columns | more columns || plain | second | frames | results | containers | scratch
    └ copied from the host ┘
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
#: Words of a job's header, and what alignment costs, at most.
_JOB_WORDS: Final = 32
#: Words that the largest element has, in bytes.
_FILL_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a wave of a write is, in bytes unless said otherwise.

    Attributes
    ----------
    chunks, frames
        Their numbers.
    words, more_words
        int64 words for the columns of the first and of the second part.
    slot
        Of a chunk's slot in ``plain`` and in ``second``.
    second
        Of that region; 0 if there is none.
    frame
        Of a frame's slot.
    container
        Of a container, at most.
    scratch
        For the encoder.
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
        """Page-locked bytes that go to the device."""
        return 8 * (self.words + self.more_words)

    @property
    def plain_at(self) -> int:
        """Where the gathered chunks begin."""
        return aligned(self.staging_bytes)

    @property
    def second_at(self) -> int:
        """Where their other places begin."""
        return self.plain_at + self.chunks * self.slot

    @property
    def frames_at(self) -> int:
        """Where compressed frames begin."""
        return self.second_at + self.second

    @property
    def results_at(self) -> int:
        """Where the sizes of frames and their statuses begin."""
        return self.frames_at + aligned(self.frames * self.frame)

    @property
    def containers_at(self) -> int:
        """Where containers begin."""
        return self.results_at + aligned(12 * self.frames)

    @property
    def scratch_at(self) -> int:
        """Where the encoder's scratch begins."""
        return self.containers_at + aligned(self.containers_bytes)

    @property
    def arena_bytes(self) -> int:
        """Of the device."""
        return self.scratch_at + self.scratch

    @property
    def containers_bytes(self) -> int:
        """Of all containers, at most."""
        return self.chunks * self.container

    @property
    def results_bytes(self) -> int:
        """Page-locked bytes that come back, at most at a time."""
        return max(12 * self.frames + 8 * self.chunks, self.containers_bytes)

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.staging_bytes + self.results_bytes + self.arena_bytes


def shape_for(
    program: WriteProgram, compressor: Compressor | None, *, chunks: int, pieces: int, k: int, inputs: int
) -> Shape:
    """Return the shape of a wave.

    Parameters
    ----------
    program, compressor
        What runs.
    chunks, pieces
        Of the wave.
    k, inputs
        Dimensions, and arrays that the chunks are gathered from.
    """
    frames = frame = most_encoded = scratch = 0
    if compressor is not None:
        frames = chunks * len(program.frame_at)
        most_encoded = compressor.max_encoded_nbytes(program.largest_frame)
        frame = aligned(most_encoded, max(compressor.output_alignment, 16))
        scratch = compressor.temp_nbytes(frames, program.largest_frame, chunks * program.nbytes)
    # For targets, offsets of pieces and marks; for shuffles; for the encoder.
    words = 3 * chunks + (2 * k + 1) * pieces + inputs * (_JOB_WORDS + _FILL_WORDS + 3 * k)
    words += program.shuffles * (6 * chunks + _JOB_WORDS) + 3 * frames
    container = aligned(most_nbytes(program, most_encoded), 16)
    copies = chunks * (len(program.frame_at) + container // COPY_BYTES + 1)
    sums = program.checksums + 1
    more = 3 * copies + 2 * chunks * most_numbers(program) + sums * (4 * chunks + _JOB_WORDS) + 2 * _JOB_WORDS
    slot = aligned(program.nbytes)
    return Shape(
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
