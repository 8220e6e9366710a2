"""The decoders of the simulated device: they give the same results as nvCOMP, and refuse what nvCOMP does not take."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import numcodecs
import numpy as np
import pytest
from support.nvcomp_encoders import gdeflate_frame
from support.simulated_decoders import ALGORITHMS, CANNOT_DECOMPRESS
from support.simulated_device import SimulatedDevice
from support.simulated_faults import SimulatedFault

from gzarr.engines.cuda.nvcomp import NvcompDecompressor

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with SimulatedDevice(eager=False) as device:
        yield device
        device.finish()


PARTS = [np.arange(n, dtype=np.int32).tobytes() * 3 for n in (1, 7, 1000)] + [b"x", bytes(60_000)]


def encoded(algorithm: str, data: bytes) -> bytes:
    if algorithm == "zstd":
        return bytes(numcodecs.Zstd().encode(data))
    if algorithm == "lz4":
        return bytes(numcodecs.LZ4().encode(data))[4:]
    if algorithm == "snappy":
        return bytes(cramjam.snappy.compress_raw(data))
    if algorithm == "gdeflate":
        return gdeflate_frame(data)
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(data) + encoder.flush()


class Batch:
    """Frames on a device, and the arguments of their batch."""

    def __init__(self, device: SimulatedDevice, algorithm: str, frames: list[bytes], sizes: list[int]) -> None:
        self.device, self.stream = device, device.stream()
        decoder = device.decompressor(algorithm)
        assert decoder is not None
        self.decoder = decoder
        n = len(frames)
        ends = np.cumsum([-(-len(frame) // 8) * 8 for frame in frames])
        source = ends - [-(-len(frame) // 8) * 8 for frame in frames]
        self.sources = self._on(b"".join(frame.ljust(-(-len(frame) // 8) * 8) for frame in frames))
        self.targets = device.allocate(sum(sizes), self.stream)
        target = np.cumsum(sizes) - sizes
        columns = np.array(
            [
                source + device.address(self.sources),
                [len(frame) for frame in frames],
                target + device.address(self.targets),
                sizes,
            ]
        )
        self.columns = self._on(columns.tobytes())
        self.produced, self.statuses = device.allocate(8 * n, self.stream), device.allocate(4 * n, self.stream)
        temp_nbytes = decoder.temp_nbytes(n, max(sizes), sum(sizes))
        self.temp = device.allocate(temp_nbytes, self.stream)
        at = device.address(self.columns)
        self.arguments = {
            "frames": n, "largest": max(sizes), "sources": at, "source_nbytes": at + 8 * n, "targets": at + 16 * n,
            "target_nbytes": at + 24 * n, "produced": device.address(self.produced),
            "statuses": device.address(self.statuses), "temp": device.address(self.temp), "temp_nbytes": temp_nbytes,
        }  # fmt: skip
        self._target, self._sizes = target, sizes

    def _on(self, data: bytes) -> Any:
        memory = self.device.allocate(len(data), self.stream)
        memory.view(np.ndarray)[:] = np.frombuffer(data, np.uint8)
        return memory

    def run(self, **changed: int) -> tuple[list[bytes], list[int], list[int]]:
        """Return the target memory of each frame, the sizes produced, and the statuses."""
        self.decoder.run(self.stream, **{**self.arguments, **changed})
        self.stream.synchronize()
        decoded = self.targets.tobytes()
        parts = [decoded[begin : begin + size] for begin, size in zip(self._target, self._sizes, strict=True)]
        return parts, self.produced.view(np.int64).tolist(), self.statuses.view(np.int32).tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_batch_of_frames(algorithm: str, device: SimulatedDevice) -> None:
    batch = Batch(device, algorithm, [encoded(algorithm, part) for part in PARTS], [len(part) for part in PARTS])
    assert batch.run() == (PARTS, [len(part) for part in PARTS], [0] * len(PARTS))
    assert (device.counts[f"batches {algorithm}"], device.counts[f"frames {algorithm}"]) == (1, len(PARTS))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_frames_that_do_not_decode(algorithm: str, device: SimulatedDevice) -> None:
    part = PARTS[2]
    good = encoded(algorithm, part)
    # Too large, too small for its room, cut off, no frame at all, refused.
    frames = [good, good, good, good[: len(good) // 2], b"\xff" * 40, good]
    sizes = [len(part), len(part) - 1, len(part) + 5, len(part), len(part), len(part)]
    device.refuse = lambda name, frame: name == algorithm and frame == 5
    decoded, produced, statuses = Batch(device, algorithm, frames, sizes).run()
    assert statuses == [0, CANNOT_DECOMPRESS, 0, CANNOT_DECOMPRESS, CANNOT_DECOMPRESS, CANNOT_DECOMPRESS]
    assert produced == [len(part), -1, len(part), -1, -1, -1]
    assert decoded[0] == part
    assert decoded[2][: len(part)] == part
    assert part not in (decoded[3], decoded[4], decoded[5])


def test_what_nvcomp_does_not_take(device: SimulatedDevice) -> None:
    def batch(algorithm: str) -> Batch:
        return Batch(device, algorithm, [encoded(algorithm, PARTS[2])] * 2, [len(PARTS[2])] * 2)

    good = batch("zstd").arguments
    for changed, message in (
        ({"frames": 0}, "0 frames"),
        ({"largest": 8}, "more than 8"),
        ({"temp_nbytes": good["temp_nbytes"] - 1}, "scratch"),
        ({"sources": 4096}, "not device memory"),
    ):
        with pytest.raises(SimulatedFault, match=message):
            batch("zstd").run(**changed)
    one = batch("zstd")
    with pytest.raises(SimulatedFault, match="multiple"):
        one.run(statuses=one.arguments["statuses"] + 2)
    with pytest.raises(SimulatedFault, match="scratch"):
        one.run(temp=one.arguments["temp"] + 4)
    with pytest.raises(SimulatedFault, match="not device memory"):
        one.run(produced=one.arguments["produced"] + 8)
    with pytest.raises(SimulatedFault, match="twice"):
        one.run(produced=device.address(one.targets))
    with pytest.raises(SimulatedFault, match="what it reads"):
        one.run(statuses=device.address(one.sources))
    deflate = batch("deflate")
    columns = deflate.columns.view(np.int64)
    deflate.stream.synchronize()
    columns[0] += 1
    with pytest.raises(SimulatedFault, match="aligned"):
        deflate.run()


def test_scratch_of_another_s_is_overwritten(device: SimulatedDevice) -> None:
    batch = Batch(device, "zstd", [encoded("zstd", PARTS[2])], [len(PARTS[2])])
    batch.temp.view(np.ndarray)[:] = 0
    batch.run()
    assert batch.temp.all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decoders_ask_for_what_nvcomp_does(algorithm: str, device: SimulatedDevice) -> None:
    simulated, real = device.decompressor(algorithm), NvcompDecompressor(algorithm)
    assert simulated is not None
    for name in ("input_alignment", "output_alignment", "temp_alignment", "max_frame_bytes"):
        assert getattr(simulated, name) == getattr(real, name), name
    rng = np.random.default_rng(0)
    for _ in range(200):
        frames, largest = int(rng.integers(1, 300)), int(2 ** rng.uniform(0, 24))
        total = int(rng.integers(1, frames * largest, endpoint=True))
        assert simulated.temp_nbytes(frames, largest, total) == real.temp_nbytes(frames, largest, total)
