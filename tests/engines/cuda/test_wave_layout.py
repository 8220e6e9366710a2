"""The layout of a wave of a read, computed and carried out in host memory, without any device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.host_arena import HostArena, aligned_zeros
from support.staged_chunks import CONTAINERS, NBYTES, Volume, compressor_of, encode, mixed, smooth

from gzarr.codecs.blosc import BloscCodec
from gzarr.engines.cuda.columns import Output, placement
from gzarr.engines.cuda.device_program import DeviceProgram, _algorithm
from gzarr.engines.cuda.device_protocol import CoderBatch
from gzarr.engines.cuda.nvcomp import NvcompDecompressor
from gzarr.engines.cuda.staging import FrameFormat, Staging
from gzarr.engines.cuda.wave_layout import Decoding, WaveLayout, lay_out
from gzarr.engines.cuda.wave_shape import WaveContent, WaveShape, shape_for
from gzarr.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence


class LaidOut:
    """A wave of chunks in a store, from its layout to its results."""

    def __init__(self, kind: str, values: Sequence[bytes | None], **changed: Any) -> None:
        n = len(values)
        request = Volume(values).request()
        compressor = compressor_of(kind)
        codec: Any = BloscCodec(kind.split("-")[1]) if compressor == "blosc" else None
        self.algorithm = None if compressor is None else _algorithm(compressor, codec)
        form = FrameFormat(compressor, self.algorithm, 0, NBYTES)
        program = DeviceProgram(form, shuffle=0, swap=0, strides=(1,), bits=True)
        decoder = NvcompDecompressor(self.algorithm) if self.algorithm is not None else None
        content = WaveContent(chunks=n, pieces=n, frames=8, encoded=2 * NBYTES, most_encoded=2 * NBYTES)
        shape = shape_for(program, decoder, content, k=1, outputs=1, direct=False)
        self.shape: WaveShape = replace(shape, **changed)
        staging = aligned_zeros(self.shape.staging_bytes)
        self.staged, frames = Staging(request, form).stage(np.arange(n), staging, self.shape.encoded, self.shape.frames)
        self.place = placement(request)
        self.output = aligned_zeros(n * NBYTES)
        output = Output(self.output, self.output.ctypes.data, 1, np.zeros(1, np.int64), np.ones((1, 1), np.int64))
        decoding = Decoding(program, decoder)
        self.layout: WaveLayout = lay_out(
            self.shape, decoding, self.staged, frames, staging, self.place, output, HostArena.ADDRESS
        )

    def run(self) -> np.ndarray[Any, Any]:
        """Carry the layout out; return the rows that failed."""
        arena, layout, shape = HostArena(self.shape.arena_bytes), self.layout, self.shape
        arena.memory[layout.copied_to :][: layout.copied.size] = layout.copied
        for step in layout.steps:
            if isinstance(step, CoderBatch):
                assert self.algorithm is not None
                arena.decode(self.algorithm, step)
            else:
                arena.run_kernel(step)
        results = np.full(shape.results_bytes, 0xFF, np.uint8)
        for copy in layout.copies_out:
            results[copy.target :][: copy.nbytes] = arena.memory[copy.source :][: copy.nbytes]
        for launch in layout.placings:
            arena.run_placing(launch, self.place.tables, self.output)
        return layout.statuses.failed_rows(results)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_chunks_come_out_as_they_went_in(kind: str) -> None:
    plain = [smooth(NBYTES, seed=1), mixed(NBYTES), None, smooth(NBYTES, 2, seed=3)]
    wave = LaidOut(kind, [None if one is None else encode(kind, one) for one in plain])
    assert wave.run().tolist() == []
    assert wave.output.tobytes() == b"".join(bytes(NBYTES) if one is None else one for one in plain)


@pytest.mark.parametrize("kind", ["zlib", "gzip"])
def test_a_wrong_checksum_is_a_failed_row(kind: str) -> None:
    values = [bytearray(encode(kind, smooth(NBYTES, seed=seed))) for seed in range(4)]
    values[2][-7 if kind == "gzip" else -2] ^= 1
    assert LaidOut(kind, [bytes(value) for value in values]).run().tolist() == [2]


@pytest.mark.parametrize("kind", ["zstd", "blosc-zstd-1"])
def test_a_frame_that_does_not_decode_is_a_failed_row(kind: str) -> None:
    values = [bytearray(encode(kind, smooth(NBYTES, seed=seed))) for seed in range(3)]
    # The last bytes of a zstd frame are the state of its last bit stream.
    values[1][-4:] = bytes(4)
    assert LaidOut(kind, [bytes(value) for value in values]).run().tolist() == [1]


def test_batches_fit_the_scratch() -> None:
    """Where it is small, batches are; every frame is in one of them, and in no other."""
    values = [encode("zstd", smooth(NBYTES, seed=seed)) for seed in range(5)]
    (whole,) = (step for step in LaidOut("zstd", values).layout.steps if isinstance(step, CoderBatch))
    assert whole.frames == 5
    scratch = NvcompDecompressor("zstd").temp_nbytes(2, NBYTES, 2 * NBYTES)
    wave = LaidOut("zstd", values, scratch=scratch)
    batches = [step for step in wave.layout.steps if isinstance(step, CoderBatch)]
    assert sum(batch.frames for batch in batches) == 5
    assert max(batch.frames for batch in batches) <= 2
    assert wave.run().tolist() == []
    assert wave.output.tobytes() == b"".join(smooth(NBYTES, seed=seed) for seed in range(5))


def test_a_wave_that_does_not_fit_its_shape_is_refused() -> None:
    values = [encode("zlib", smooth(NBYTES))]
    with pytest.raises(DeviceError, match="words reserved"):
        LaidOut("zlib", values, words=8)
    with pytest.raises(DeviceError, match=r"needs \d+ bytes of scratch for one frame, but has 0"):
        LaidOut("zstd", [encode("zstd", smooth(NBYTES))], scratch=0)
