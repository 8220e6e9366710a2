"""Encoders of the CPU behind nvCOMP's batched interface, for the simulated device.

Alignments and largest frames are queried from nvCOMP itself, which needs no GPU for this, except for the scratch size
of zstd. A frame that fails leaves garbage and a status.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numcodecs
import numpy as np
from support.nvcomp_encoders import gdeflate_frame
from support.simulated_decoders import _check_apart
from support.simulated_faults import SimulatedFault

from gzarr.engines.cuda import nvcomp_compress

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulated_device import SimulatedDevice

#: ``nvcompErrorCudaError``.
CANNOT_COMPRESS: Final = 1000
_GARBAGE: Final = 0x99


class SimulatedCompressor:
    """See :class:`gzarr.engines.cuda.device_protocol.Compressor`."""

    def __init__(self, device: SimulatedDevice, algorithm: str) -> None:
        self._device = device
        self._algorithm = algorithm
        self._real = real = nvcomp_compress.NvcompCompressor(algorithm)
        self.input_alignment = real.input_alignment
        self.output_alignment = real.output_alignment
        self.temp_alignment = real.temp_alignment
        self.max_frame_bytes = real.max_frame_bytes

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        if frames < 1 or not 0 < largest <= self.max_frame_bytes or not 0 < total <= frames * largest:
            raise SimulatedFault(f"scratch of {frames} frames, the largest of {largest}, all of {total} bytes")
        if self._algorithm == "zstd":
            return 4096 * frames + 3 * total
        return self._real.temp_nbytes(frames, largest, total)

    def max_encoded_nbytes(self, largest: int) -> int:
        if not 0 < largest <= self.max_frame_bytes:
            raise SimulatedFault(f"a frame of {largest} bytes")
        return self._real.max_encoded_nbytes(largest)

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        if frames < 1:
            raise SimulatedFault(f"a batch of {frames} frames")
        if temp_nbytes and temp % self.temp_alignment:
            raise SimulatedFault(f"scratch at {temp:#x}")
        at = (sources, source_nbytes, targets)
        batch = partial(self._encode, frames, largest, at, produced, statuses, temp, temp_nbytes)
        self._device.enqueue_batch(stream, batch)
        self._device.counts[f"encoded batches {self._algorithm}"] += 1
        self._device.counts[f"encoded frames {self._algorithm}"] += frames

    def _encode(
        self,
        frames: int,
        largest: int,
        at: tuple[int, int, int],
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        device = self._device
        source, nbytes, target = (device.bytes_at(address, 8 * frames, 8).view(np.int64).copy() for address in at)
        gave = device.bytes_at(produced, 8 * frames, 8).view(np.int64)
        status = device.bytes_at(statuses, 4 * frames, 4).view(np.int32)
        if (source % self.input_alignment).any() or (target % self.output_alignment).any():
            raise SimulatedFault(f"{self._algorithm} frames are not aligned")
        if nbytes.min() < 1 or nbytes.max() > largest:
            raise SimulatedFault(f"{self._algorithm} frames of no bytes, or of more than {largest}")
        if temp_nbytes < self.temp_nbytes(frames, largest, int(nbytes.sum())):
            raise SimulatedFault(f"{temp_nbytes} bytes of scratch are too few")
        room = self.max_encoded_nbytes(largest)
        scratch = device.bytes_at(temp, temp_nbytes) if temp_nbytes else np.empty(0, np.uint8)
        _check_apart(
            np.array([produced, statuses, temp, *target]),
            np.array([8 * frames, 4 * frames, temp_nbytes, *[room] * frames]),
            np.array([*at, *source]),
            np.array([*(8 * frames,) * 3, *nbytes]),
        )
        scratch[:] = _GARBAGE
        for i in range(frames):
            # The encoder may write to all of it.
            into = device.bytes_at(int(target[i]), room)
            into[:] = _GARBAGE
            refused = device.refuse(self._algorithm, i)
            status[i] = CANNOT_COMPRESS if refused else 0
            gave[i] = -1
            if refused:
                continue
            encoded = ENCODERS[self._algorithm](device.bytes_at(int(source[i]), int(nbytes[i])).tobytes())
            if len(encoded) > room:
                raise SimulatedFault(f"{self._algorithm} made {len(encoded)} bytes, nvCOMP says {room} at most")
            into[: len(encoded)] = np.frombuffer(encoded, np.uint8)
            gave[i] = len(encoded)


def _deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(1, wbits=-15)
    return encoder.compress(data) + encoder.flush()


ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "zstd": lambda data: bytes(numcodecs.Zstd(1).encode(data)),
    # Without the size that numcodecs puts before it.
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data))[4:],
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "deflate": _deflate,
    "gdeflate": gdeflate_frame,
}
