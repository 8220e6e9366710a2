"""Runs the layout of a wave in host memory, without any device: kernels as compiled for GPUs, batches by others."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from gzarr_kernels.operations import ALGORITHMS
from support.kernel_ir_launch import launch as run
from support.staged_chunks import Undecodable, decode_frame

if TYPE_CHECKING:
    from gzarr.engines.cuda.device_protocol import CoderBatch
    from gzarr.engines.cuda.launches import KernelLaunch
    from gzarr.engines.cuda.placing import PlacingLaunch
    from gzarr.engines.cuda.write_layout import GatherLaunch

FAILED = 12
_VIEWS = {2: (np.uint8, np.int64), 3: (np.uint8, np.int64, np.int32)}


def aligned_zeros(nbytes: int, to: int = 256) -> np.ndarray[Any, Any]:
    memory = np.zeros(nbytes + to, np.uint8)
    begin = -memory.ctypes.data % to
    return memory[begin : begin + nbytes]


class HostArena:
    """The arena of a wave, at a made-up address, so that offsets and addresses cannot be mixed up unnoticed."""

    ADDRESS = 1 << 44

    def __init__(self, nbytes: int) -> None:
        self.memory = aligned_zeros(nbytes)

    def column(self, address: int, n: int, dtype: Any = np.int64) -> np.ndarray[Any, Any]:
        """Return the column of a batch."""
        begin = address - self.ADDRESS
        nbytes = n * np.dtype(dtype).itemsize
        assert 0 <= begin <= begin + nbytes <= self.memory.size
        return self.memory[begin : begin + nbytes].view(dtype)

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        return self.column(address, nbytes, np.uint8)

    def run_kernel(self, launch: KernelLaunch) -> None:
        views = [self.memory.view(dtype) for dtype in _VIEWS[launch.views]]
        run(launch.kernel, *views, launch.header, blocks=2, threads=4)

    def run_placing(self, launch: PlacingLaunch, tables: np.ndarray[Any, Any], output: np.ndarray[Any, Any]) -> None:
        columns = self.memory.view(np.int64)
        if launch.word:
            unit = f"u{launch.word}"
            given = [self.memory, self.memory.view(unit), columns, tables, output.view(unit)]
        else:
            given = [self.memory, columns, tables, output]
        run(launch.kernel, *given, launch.header, blocks=2, threads=4)

    def run_gather(self, launch: GatherLaunch) -> None:
        from gzarr_kernels.device import gather as g

        unit = f"u{launch.source.word}"
        views = launch.source.memory.view(unit), self.memory.view(unit), self.memory.view(np.int64)
        run(g.gather, *views, launch.header, blocks=2, threads=4)

    def decode(self, algorithm: str, batch: CoderBatch) -> None:
        """Decode a batch of frames, with other decoders than a device's."""
        assert self.bytes_at(batch.temp, batch.temp_nbytes).size == batch.temp_nbytes
        frames = batch.frames
        columns = (batch.sources, batch.source_nbytes, batch.targets, batch.target_nbytes)
        rows = zip(*(self.column(at, frames).tolist() for at in columns), strict=True)
        produced, statuses = self.column(batch.produced, frames), self.column(batch.statuses, frames, np.int32)
        for i, (source, source_nbytes, target, target_nbytes) in enumerate(rows):
            assert target_nbytes <= batch.largest
            try:
                frame = decode_frame(
                    ALGORITHMS[algorithm].code, self.bytes_at(source, source_nbytes).tobytes(), target_nbytes
                )
            except Undecodable:
                statuses[i] = FAILED
                continue
            self.bytes_at(target, len(frame))[:] = np.frombuffer(frame, np.uint8)
            produced[i], statuses[i] = len(frame), 0

    def deflate(self, batch: CoderBatch) -> None:
        """Compress a batch of frames to raw deflate."""
        assert self.bytes_at(batch.temp, batch.temp_nbytes).size == batch.temp_nbytes
        columns = (batch.sources, batch.source_nbytes, batch.targets)
        rows = zip(*(self.column(at, batch.frames).tolist() for at in columns), strict=True)
        produced = self.column(batch.produced, batch.frames)
        for i, (source, source_nbytes, target) in enumerate(rows):
            assert source_nbytes <= batch.largest
            encoder = zlib.compressobj(1, zlib.DEFLATED, -15)
            frame = encoder.compress(self.bytes_at(source, source_nbytes).tobytes()) + encoder.flush()
            self.bytes_at(target, len(frame))[:] = np.frombuffer(frame, np.uint8)
            produced[i] = len(frame)
