"""The C decoders of the CPU behind nvCOMP's batched interface, for the simulated device.

Alignments, largest frames and scratch sizes are those of nvCOMP 6.0; ``test_simulated_device.py`` compares them with
the library. A frame that does not decode leaves garbage, as nvCOMP may, and a status.
"""

from __future__ import annotations

import ctypes
import threading
import zlib
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numpy as np
from gzarr_kernels import libraries
from support.simulated_faults import SimulatedFault

from gzarr.codecs import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.simulated_device import SimulatedDevice

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

#: ``nvcompErrorCannotDecompress``.
CANNOT_DECOMPRESS: Final = 12
_GARBAGE: Final = 0x99
_ONE_CONTEXT = threading.Lock()


@dataclass(frozen=True)
class Algorithm:
    """One of nvCOMP's decoders.

    ``decode`` takes a frame and its target, and returns the number of bytes written, or None if it does not decode.
    """

    name: str
    decode: Callable[[Bytes, Bytes], int | None]
    input_alignment: int
    temp_alignment: int
    max_frame_bytes: int
    temp_nbytes: Callable[[int, int, int], int]


class SimulatedDecompressor:
    """See :class:`gzarr.engines.cuda.device_protocol.Decompressor`."""

    output_alignment = 1

    def __init__(self, device: SimulatedDevice, algorithm: Algorithm) -> None:
        self._device = device
        self._algorithm = algorithm
        self.input_alignment = algorithm.input_alignment
        self.temp_alignment = algorithm.temp_alignment
        self.max_frame_bytes = algorithm.max_frame_bytes

    def temp_nbytes(self, frames: int, largest: int, total: int) -> int:
        if frames < 1 or not 0 < largest <= self.max_frame_bytes or total < 1:
            raise SimulatedFault(f"scratch of {frames} frames, the largest of {largest}, all of {total} bytes")
        return self._algorithm.temp_nbytes(frames, largest, total)

    def run(
        self,
        stream: Any,
        *,
        frames: int,
        largest: int,
        sources: int,
        source_nbytes: int,
        targets: int,
        target_nbytes: int,
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        if frames < 1:
            raise SimulatedFault(f"a batch of {frames} frames")
        if temp % self.temp_alignment:
            raise SimulatedFault(f"scratch at {temp:#x}")
        at = (sources, source_nbytes, targets, target_nbytes)
        batch = partial(self._decode, frames, largest, at, produced, statuses, temp, temp_nbytes)
        self._device.enqueue_batch(stream, batch)
        self._device.counts[f"batches {self._algorithm.name}"] += 1
        self._device.counts[f"frames {self._algorithm.name}"] += frames

    def _decode(
        self,
        frames: int,
        largest: int,
        at: tuple[int, int, int, int],
        produced: int,
        statuses: int,
        temp: int,
        temp_nbytes: int,
    ) -> None:
        device = self._device
        columns = [device.bytes_at(address, 8 * frames, 8).view(np.int64).copy() for address in at]
        source, source_nbytes, target, target_nbytes = columns
        gave = device.bytes_at(produced, 8 * frames, 8).view(np.int64)
        status = device.bytes_at(statuses, 4 * frames, 4).view(np.int32)
        if (source % self.input_alignment).any() or (target % self.output_alignment).any():
            raise SimulatedFault(f"{self._algorithm.name} frames are not aligned to {self.input_alignment} bytes")
        if source_nbytes.min() < 1 or target_nbytes.min() < 1 or target_nbytes.max() > largest:
            raise SimulatedFault(f"{self._algorithm.name} frames of no bytes, or of more than {largest}")
        if temp_nbytes < self.temp_nbytes(frames, largest, int(target_nbytes.sum())):
            raise SimulatedFault(f"{temp_nbytes} bytes of scratch are too few")
        scratch = device.bytes_at(temp, temp_nbytes) if temp_nbytes else np.empty(0, np.uint8)
        _check_apart(
            np.array([produced, statuses, temp, *target]),
            np.array([8 * frames, 4 * frames, temp_nbytes, *target_nbytes]),
            np.array([*at, *source]),
            np.array([*(8 * frames,) * 4, *source_nbytes]),
        )
        scratch[:] = _GARBAGE
        for i in range(frames):
            encoded = device.bytes_at(int(source[i]), int(source_nbytes[i]))
            decoded = device.bytes_at(int(target[i]), int(target_nbytes[i]))
            if device.given is not None:
                device.given.append((self._algorithm.name, encoded.tobytes(), decoded.size))
            if device.kills(self._algorithm.name, encoded.tobytes()):
                device.calls.die()
            refused = device.refuse(self._algorithm.name, i)
            nbytes = None if refused else self._algorithm.decode(encoded, decoded)
            if nbytes is None:
                decoded[:] = _GARBAGE
            status[i] = CANNOT_DECOMPRESS if nbytes is None else 0
            gave[i] = -1 if nbytes is None else nbytes


def _check_apart(begins: IntArray, sizes: IntArray, read_begins: IntArray, read_sizes: IntArray) -> None:
    """Check that outputs overlap neither each other nor inputs."""
    some = sizes > 0
    order = np.argsort(begins[some])
    begins, ends = begins[some][order], (begins + sizes)[some][order]
    if (begins[1:] < ends[:-1]).any():
        raise SimulatedFault("a batch writes some memory twice")
    before = np.searchsorted(begins, read_begins + read_sizes) - 1
    if ((before >= 0) & (ends[before] > read_begins)).any():
        raise SimulatedFault("a batch writes what it reads")


@cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    address, _ = libraries.decoder_addresses()[name]
    return ctypes.CFUNCTYPE(result, *arguments)(address)


@cache
def _zstd_context() -> int:
    context: int = _function("gzarr_zstd_create", ctypes.c_void_p)()
    return context


def _zstd(source: Bytes, target: Bytes) -> int | None:
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    decode = _function("gzarr_zstd_decompress", size, pointer, pointer, size, pointer, size)
    with _ONE_CONTEXT:
        nbytes: int = decode(_zstd_context(), target.ctypes.data, target.size, source.ctypes.data, source.size)
    return nbytes if nbytes <= target.size else None


def _lz4(source: Bytes, target: Bytes) -> int | None:
    pointer, size = ctypes.c_void_p, ctypes.c_int
    decode = _function("gzarr_lz4_decompress", size, pointer, pointer, size, size)
    nbytes: int = decode(source.ctypes.data, target.ctypes.data, source.size, target.size)
    return nbytes if nbytes >= 0 else None


def _snappy(source: Bytes, target: Bytes) -> int | None:
    try:
        return int(cramjam.snappy.decompress_raw_into(source.data, target.data))
    except cramjam.DecompressionError:
        return None


def _deflate(source: Bytes, target: Bytes) -> int | None:
    decoder = zlib.decompressobj(-15)
    try:
        decoded = decoder.decompress(source.tobytes(), target.size + 1)
    except zlib.error:
        return None
    if not decoder.eof or len(decoded) > target.size:
        return None
    target[: len(decoded)] = np.frombuffer(decoded, np.uint8)
    return len(decoded)


def _gdeflate(source: Bytes, target: Bytes) -> int | None:
    """The decoder of nvCOMP's library for CPUs, for frames of up to 64 KiB."""
    decode = native.gdeflate()
    assert decode is not None
    try:
        decoded = decode(source, target.size)
    except ValueError:
        return None
    target[: decoded.size] = decoded
    return decoded.size


def _zstd_temp(frames: int, largest: int, total: int) -> int:
    return 3468 * max(2 * frames, total // (64 << 10)) + 3 * total


def _no_temp(frames: int, largest: int, total: int) -> int:
    return 0


ALGORITHMS: Final = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("zstd", _zstd, 1, 8, 2**31 - 1, _zstd_temp),
        Algorithm("lz4", _lz4, 1, 1, 2**32 - 1, _no_temp),
        Algorithm("snappy", _snappy, 1, 1, 2**31 - 1, _no_temp),
        Algorithm("deflate", _deflate, 4, 1, 2**32 - 1, _no_temp),
        Algorithm("gdeflate", _gdeflate, 4, 1, 2**32 + 288, _no_temp),
    )
}
