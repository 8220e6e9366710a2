"""The encoders of the simulated device: decoders accept their frames, and misuse is detected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.simulated_decoders import ALGORITHMS
from support.simulated_device import SimulatedDevice
from support.simulated_encoders import CANNOT_COMPRESS, ENCODERS
from support.simulated_faults import SimulatedFault

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = [b"x", bytes(60_000), np.random.default_rng(0).bytes(1000), b"abcd" * 100]


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    with SimulatedDevice(eager=False) as device:
        yield device
        device.finish()


def run(device: SimulatedDevice, algorithm: str, parts: list[bytes], **changes: Any) -> list[tuple[int, bytes]]:
    """Compress some frames in one batch; return statuses and compressed frames."""
    encoder = device.compressor(algorithm)
    assert encoder is not None
    stream, n, largest = device.stream(), len(parts), max(map(len, parts))
    room = -(-encoder.max_encoded_nbytes(largest) // 16) * 16
    offsets = 64 * np.cumsum([0, *(-(-len(part) // 64) for part in parts)])
    temp_nbytes = encoder.temp_nbytes(n, largest, sum(map(len, parts)))
    memory = {
        name: device.allocate(max(int(nbytes), 1), stream)
        for name, nbytes in {
            "source": offsets[-1], "target": n * room, "columns": 24 * n, "produced": 8 * n, "status": 4 * n,
            "temp": temp_nbytes,
        }.items()
    }  # fmt: skip
    source = memory["source"].view(np.ndarray)
    for part, at in zip(parts, offsets.tolist(), strict=False):
        source[at : at + len(part)] = np.frombuffer(part, np.uint8)
    columns = memory["columns"].view(np.ndarray).view(np.int64).reshape(3, n)
    columns[0] = device.address(memory["source"]) + offsets[:-1]
    columns[1] = [len(part) for part in parts]
    columns[2] = device.address(memory["target"]) + room * np.arange(n)
    at = device.address(memory["columns"])
    arguments = {
        "frames": n, "largest": largest, "sources": at, "source_nbytes": at + 8 * n, "targets": at + 16 * n,
        "produced": device.address(memory["produced"]), "statuses": device.address(memory["status"]),
        "temp": device.address(memory["temp"]), "temp_nbytes": temp_nbytes,
    }  # fmt: skip
    encoder.run(stream, **{name: value + changes.get(name, 0) for name, value in arguments.items()})
    stream.synchronize()
    produced = memory["produced"].view(np.ndarray).view(np.int64).tolist()
    status = memory["status"].view(np.ndarray).view(np.int32).tolist()
    target = memory["target"].view(np.ndarray)
    frames = [target[i * room : i * room + max(size, 0)].tobytes() for i, size in enumerate(produced)]
    return list(zip(status, frames, strict=True))


def test_they_are_those_of_nvcomp() -> None:
    assert ENCODERS.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize("algorithm", ENCODERS)
def test_frames_decode(algorithm: str, device: SimulatedDevice) -> None:
    device.refuse = lambda algorithm, frame: frame == 2
    found = run(device, algorithm, PARTS)
    assert [status for status, _ in found] == [0, 0, CANNOT_COMPRESS, 0]
    for (status, frame), part in zip(found, PARTS, strict=True):
        if status:
            continue
        decoded = np.zeros(len(part), np.uint8)
        assert ALGORITHMS[algorithm].decode(np.frombuffer(frame, np.uint8), decoded) == len(part)
        assert decoded.tobytes() == part


@pytest.mark.parametrize(
    ("what", "change", "message"),
    [
        ("temp_nbytes", -1, "scratch"),
        ("largest", -60_000 + 500, "more than"),
        ("sources", -8, "not device memory"),
        ("statuses", 2, "multiple of 4"),
    ],
)
def test_what_is_not_allowed_is_noticed(what: str, change: int, message: str, device: SimulatedDevice) -> None:
    with pytest.raises(SimulatedFault, match=message):
        run(device, "lz4", PARTS, **{what: change})
