"""How a read is divided into waves: chunks in each, waves in flight, and the memory that they hold.

nvCOMP decodes frames side by side, so a wave should have many: :data:`WAVE_FRAMES` if the read has them, however large
they are, as far as memory allows; and at least :data:`WAVE_BYTES`, since a wave has a fixed cost.

Memory for encoded chunks is not reserved for the worst case, but for what is stored. Byte ranges (of shards) tell;
sizes of whole files do not, so that at first chunks are expected to take :data:`EXPECTED_RATIO` of their decoded
bytes, and later as much as in the first wave (:class:`Expected`). Chunks that do not fit are left for the
next wave. One chunk of any size always fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .slots import MAX_IDLE_PINNED_BYTES
from .staging import FALLBACK, READY
from .wave_shape import WaveContent, WaveShape, shape_for

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .budget import Budget
    from .device_program import DeviceProgram
    from .device_protocol import Decompressor
    from .staging import FrameFormat, Frames, Staged

    IntArray = npt.NDArray[np.int64]

#: Most waves in flight.
MAX_WAVES_IN_FLIGHT: Final = 3
#: Approximate least decoded bytes of a wave, if the read has them.
WAVE_BYTES: Final = 64 << 20
#: Frames of a wave, if the read has them.
WAVE_FRAMES: Final = 2048
#: Encoded bytes of a compressed chunk, relative to decoded ones, as long as nothing is known.
EXPECTED_RATIO: Final = 1.1
#: Room for encoded bytes and frames of a wave, relative to what is expected: chunks are not alike.
ROOM: Final = 1.1


@dataclass(frozen=True, slots=True)
class Expected:
    """What a chunk of a read is expected to be.

    Attributes
    ----------
    encoded
        Encoded bytes.
    frames
        Frames; 0 if chunks are not compressed.
    """

    encoded: float
    frames: float


def expected(program: DeviceProgram, frames: int, stored: IntArray) -> Expected:
    """Return what is expected of a chunk before any is read.

    Parameters
    ----------
    program
        How chunks are decoded.
    frames
        Frames in a chunk, estimated from metadata.
    stored
        int64, encoded bytes of the chunks that the read needs; negative if not known.
    """
    form = program.frames
    if form.compressor is None:
        return Expected(form.nbytes + 4 * form.checksums, 0)
    known = stored[stored >= 0]
    if len(known):
        return Expected(ROOM * float(known.mean()), frames)
    return Expected(EXPECTED_RATIO * form.nbytes, frames)


def learnt(form: FrameFormat, staged: Staged, frames: Frames) -> Expected | None:
    """Return what a wave's chunks lead to expect of others; None if they do not tell."""
    read = int(((staged.state == READY) | (staged.state == FALLBACK)).sum())
    if form.compressor is None or not staged.used:
        return None
    return Expected(ROOM * staged.used / read, max(len(frames.chunk) / read, 1))


def wave_chunks(program: DeviceProgram, n: int, frames: float) -> int:
    """Return how many of ``n`` chunks, each with a number of frames, a wave should have, whatever memory they take."""
    return _chunks(n, program.most_nbytes, frames)


def usual_waves(n: int, nbytes: int, frames: float) -> tuple[int, int]:
    """Return how many of ``n`` chunks of ``nbytes`` a wave has, and the waves in flight, if memory does not matter.

    Page-locked memory does.
    """
    room = int(MAX_IDLE_PINNED_BYTES / EXPECTED_RATIO / MAX_WAVES_IN_FLIGHT)
    chunks = max(1, min(_chunks(n, nbytes, frames), room // max(nbytes, 1)))
    return chunks, min(MAX_WAVES_IN_FLIGHT, -(-n // chunks))


def _chunks(n: int, nbytes: int, frames: float) -> int:
    by_frames = math.ceil(WAVE_FRAMES / frames) if frames else 0
    return max(1, min(n, max(WAVE_BYTES // max(nbytes, 1), by_frames)))


@dataclass(frozen=True, slots=True)
class Waves:
    """The waves of a read.

    Attributes
    ----------
    shape
        Their sizes.
    flight
        How many are in flight at most.
    """

    shape: WaveShape
    flight: int


@dataclass(frozen=True, slots=True, eq=False)
class WavePlanner:
    """Divides the chunks of a read into waves.

    Attributes
    ----------
    program, decoder
        How chunks are decoded.
    most_encoded
        Most encoded bytes of a chunk.
    pieces
        int64 ``(n,)``, pieces of each chunk of the read.
    k, outputs
        Number of placement dimensions and outputs of the plan.
    direct
        Whether encoded chunks are read directly to the device.
    reserved
        Bytes that the read holds besides its waves.
    """

    program: DeviceProgram
    decoder: Decompressor | None
    most_encoded: int
    pieces: IntArray
    k: int
    outputs: int
    direct: bool
    reserved: int = 0

    def plan(self, expected: Expected, budget: Budget, before: Waves | None = None) -> Waves:
        """Return the waves.

        Parameters
        ----------
        expected
            What chunks are expected to be.
        budget
            Limit on the memory that the read holds.
        before
            The waves that are in flight already, if they were planned with less knowledge.

        Returns
        -------
        The waves; if a single chunk needs more than the budget, they are of that chunk.
        """
        n, pieces = len(self.pieces), self.pieces
        total, most = int(pieces.sum()), int(pieces.max())

        def shape(chunks: int) -> WaveShape:
            pieces = min(total, max(most, -(-2 * total * chunks // n)))
            content = WaveContent(chunks, pieces, expected.frames, expected.encoded, self.most_encoded)
            return shape_for(self.program, self.decoder, content, k=self.k, outputs=self.outputs, direct=self.direct)

        most_flight = MAX_WAVES_IN_FLIGHT if before is None else before.flight
        chunks = wave_chunks(self.program, n, expected.frames)
        while True:
            found = shape(chunks)
            flight = most_flight if before is not None else min(most_flight, -(-n // chunks))
            room = budget.limit(found.nbytes * flight + self.reserved) - self.reserved
            # Page-locked memory takes long to make: no more than is kept for the next read.
            least = max(room / (found.nbytes * flight), 0)
            if not budget.strict and found.staging_bytes * flight > MAX_IDLE_PINNED_BYTES:
                least = min(least, MAX_IDLE_PINNED_BYTES / (found.staging_bytes * flight))
            if least >= 1 or chunks == 1:
                break
            chunks = max(1, min(chunks - 1, int(chunks * least)))
        while found.nbytes * flight > room and flight > 1 and before is None:
            flight -= 1
        if before is not None and found.nbytes * flight > room:
            # Each of the waves before, and of these, takes at most its share of the room.
            return before
        return Waves(found, flight)
