"""Batches of frames on a device, decoded by its batched decoders alone, and times of enqueued work.

Written for :class:`gzarr.engines.cuda.device_protocol.Device`, so that tests can watch it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gzarr.engines.cuda.device_protocol import CoderBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from gzarr.engines.cuda.device_protocol import Decompressor, Device

    Bytes = npt.NDArray[np.uint8]
    IntArray = npt.NDArray[np.int64]

#: Alignment of memory on a device, in bytes.
ALIGNMENT = 256
#: Unused bytes after every frame: decoders may read whole words.
PADDING = 64


def aligned(nbytes: int, to: int = ALIGNMENT) -> int:
    """Return the least multiple of the alignment that is at least ``nbytes``."""
    return -(-nbytes // to) * to


@dataclass(frozen=True)
class Timing:
    """Seconds of a run: by the host's clock, synchronized, and between two events of the device."""

    host_s: float
    device_s: float


def time_runs(stream: Any, enqueue: Callable[[], object], runs: int = 5, seconds: float = 2.0) -> Timing:
    """Return the median times of a call that enqueues work on a stream, after a warm-up run.

    Parameters
    ----------
    stream
        Stream of the device.
    enqueue
        Function called once per run.
    runs
        Most runs; at least one.
    seconds
        Time after the first run in which other runs may begin.
    """
    import cupy

    events = cupy.cuda.Event(), cupy.cuda.Event()
    host: list[float] = []
    device: list[float] = []
    enqueue()
    stream.synchronize()
    begin = time.perf_counter()
    while not host or (len(host) < runs and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        events[0].record(stream.cupy)
        enqueue()
        events[1].record(stream.cupy)
        stream.synchronize()
        host.append(time.perf_counter() - start)
        device.append(cupy.cuda.get_elapsed_time(*events) / 1e3)
    return Timing(statistics.median(host), statistics.median(device))


def pack(frames: Sequence[bytes], alignment: int) -> tuple[Bytes, IntArray, IntArray]:
    """Join frames, each aligned.

    Returns
    -------
    uint8, all frames; int64 each, the start and size of every frame.
    """
    sizes = np.array([len(frame) for frame in frames], np.int64)
    steps = -(-(sizes + PADDING) // max(alignment, 16)) * max(alignment, 16)
    begins = np.cumsum(steps) - steps
    memory = np.zeros(int(steps.sum()), np.uint8)
    for begin, frame in zip(begins.tolist(), frames, strict=True):
        memory[begin : begin + len(frame)] = np.frombuffer(frame, np.uint8)
    return memory, begins, sizes


class FrameBatch:
    """Frames on a device, and memory for their decoded bytes.

    Parameters
    ----------
    device
        Device, current in this thread for the lifetime of this object.
    algorithm
        ``"zstd"``, ``"lz4"``, ``"snappy"``, ``"deflate"`` or ``"gdeflate"``.
    memory
        uint8, page-locked or not: the frames.
    source, source_nbytes
        int64 ``(n,)``: start and size of each frame in ``memory``.
    target, target_nbytes
        int64 ``(n,)``: start and size of each decoded frame in memory of this object.
    stream
        Stream for all work; None for a new one.

    Raises
    ------
    ValueError
        If the device has no decoder for the algorithm.
    MemoryError
        If the device has no room, or if a batch of one frame needs more scratch than a quarter of it.
    """

    def __init__(
        self,
        device: Device,
        algorithm: str,
        memory: Bytes,
        source: IntArray,
        source_nbytes: IntArray,
        target: IntArray,
        target_nbytes: IntArray,
        stream: Any = None,
    ) -> None:
        decoder = device.decompressor(algorithm)
        if decoder is None:
            raise ValueError(f"{device.name} has no decoder of {algorithm}")
        self.stream = device.stream() if stream is None else stream
        self._device = device
        self._decoder: Decompressor = decoder
        self._target, self._sizes = target, target_nbytes
        n = self._n = len(source)
        columns = aligned(memory.size)
        self._results = aligned(columns + 8 * 4 * n)
        decoded = self._decoded = aligned(self._results + 12 * n)
        self.decoded_nbytes = int((target + target_nbytes).max())
        self._encoded = device.allocate(decoded, self.stream)
        self._output = device.allocate(aligned(self.decoded_nbytes), self.stream)
        at = self._address = device.address(self._encoded)
        staging = device.pinned(self._results)
        staging[: memory.size] = memory
        table = staging[columns : columns + 32 * n].view(np.int64).reshape(4, n)
        table[0], table[1] = at + source, source_nbytes
        table[2], table[3] = device.address(self._output) + target, target_nbytes
        device.copy_in(self._encoded[: self._results], staging, self.stream)
        self.stream.synchronize()
        self._columns = columns
        self._launches = self._cut(device.free_bytes() // 4)
        self._temp = device.allocate(max(need for _, _, _, need in self._launches), self.stream)

    @classmethod
    def of(cls, device: Device, algorithm: str, frames: Sequence[bytes], nbytes: Sequence[int]) -> FrameBatch:
        """Return a batch of some frames, each decoded to memory of its own."""
        decoder = device.decompressor(algorithm)
        memory, source, source_nbytes = pack(frames, 1 if decoder is None else decoder.input_alignment)
        sizes = np.array(nbytes, np.int64)
        steps = -(-sizes // ALIGNMENT) * ALIGNMENT
        return cls(device, algorithm, memory, source, source_nbytes, np.cumsum(steps) - steps, sizes)

    def _cut(self, room: int) -> list[tuple[int, int, int, int]]:
        """Return (first, frames, largest, scratch) of each batch, so that the scratch fits."""
        found = []
        begin = 0
        while begin < self._n:
            end = self._n
            while True:
                sizes = self._sizes[begin:end]
                largest = int(sizes.max())
                need = self._decoder.temp_nbytes(end - begin, largest, int(sizes.sum()))
                if need <= room:
                    break
                if end - begin == 1:
                    raise MemoryError(f"a frame of {largest} bytes takes {need} bytes of scratch, {room} are free")
                end = begin + (end - begin) // 2
            found.append((begin, end - begin, largest, need))
            begin = end
        return found

    def run(self) -> None:
        """Enqueue the decoding of all frames."""
        columns, results, n = self._address + self._columns, self._address + self._results, self._n
        for first, frames, largest, need in self._launches:
            batch = CoderBatch(
                frames=frames,
                largest=largest,
                sources=columns + 8 * first,
                source_nbytes=columns + 8 * (n + first),
                targets=columns + 8 * (2 * n + first),
                target_nbytes=columns + 8 * (3 * n + first),
                produced=results + 8 * first,
                statuses=results + 8 * n + 4 * first,
                temp=self._device.address(self._temp),
                temp_nbytes=need,
            )
            self._decoder.run(self.stream, batch)

    def results(self) -> tuple[IntArray, npt.NDArray[np.int32]]:
        """Wait, and return the decoded size and the status of each frame."""
        back = self._device.pinned(12 * self._n)
        self._device.copy_out(back, self._encoded[self._results : self._results + back.size], self.stream)
        self.stream.synchronize()
        return back[: 8 * self._n].view(np.int64).copy(), back[8 * self._n :].view(np.int32).copy()

    def decoded(self, frame: int) -> bytes:
        """Wait, and return a decoded frame."""
        begin, nbytes = int(self._target[frame]), int(self._sizes[frame])
        back = self._device.pinned(nbytes)
        self._device.copy_out(back, self._output[begin : begin + nbytes], self.stream)
        self.stream.synchronize()
        return back.tobytes()

    def succeeded(self) -> bool:
        """Wait, and return whether every frame decoded to its size."""
        produced, statuses = self.results()
        return bool((statuses == 0).all() and (produced == self._sizes).all())
