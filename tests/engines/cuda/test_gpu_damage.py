"""Damaged chunks are named in errors, and reads go on: on each device, as in ``test_gpu.py``.

On a GPU, a decoder may react to damage with an error that ends the context, after which everything in the process
fails: there, tests with the mark ``damage`` run last and alone (see ``benchmarks/gpu/stages.py``). If the host decodes
frames first, no decoder of a GPU sees any damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import zarr_arrays as z
from support.volumes import COMPRESSORS, volume, written

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

pytestmark = pytest.mark.slow

DAMAGED = "1.2.0"


def damages(good: bytes) -> dict[str, bytes]:
    flipped = bytearray(good)
    for at in np.random.default_rng(2).integers(0, len(good), 12).tolist():
        flipped[at] ^= 0x10
    return {
        "empty": b"",
        "half": good[: len(good) // 2],
        "one byte short": good[:-1],
        "zeros": good[:60] + bytes(200) + good[260:],
        "flipped": bytes(flipped),
        "backwards": good[::-1],
    }


def outcome(read: Callable[[], Any]) -> Any:
    """Return the result of a read, or its error for a chunk."""
    try:
        return read()
    except gzarr.ChunkDecodeError as error:
        return error


@pytest.mark.parametrize("verify", ["cpu", pytest.param("none", marks=pytest.mark.damage)])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_damaged_chunks_are_named_and_the_next_read_works(
    compressor: str, verify: Any, tmp_path: Path, device: TestedDevice
) -> None:
    data = volume()
    path = written(tmp_path / "group" / "a", compressor, data)
    (tmp_path / "group" / ".zgroup").write_text('{"zarr_format": 2}')
    array, host = (
        gzarr.open_array(tmp_path / "group", path="a", device=name, verify=verify) for name in (device.name, "cpu")
    )
    file = path / DAMAGED
    good = file.read_bytes()
    refused = 0
    for damage, bad in damages(good).items():
        file.write_bytes(bad)
        expected = outcome(lambda: host[...])
        found = outcome(lambda: device.to_numpy(array.read(decode="cuda")))
        if isinstance(expected, gzarr.ChunkDecodeError):
            assert str(found) == str(expected), damage
            assert isinstance(found, gzarr.ChunkDecodeError)
            assert (found.node, found.chunk, found.key) == ("/a", (1, 2, 0), f"a/{DAMAGED}")
            refused += 1
        else:
            # Bits of a format without checksums: what one decoder takes for data, the other does.
            z.same(found, expected, damage)
        # Chunks beside it can be read all the time.
        z.same(device.to_numpy(array.read(slice(0, 16), decode="cuda")), data[:16], damage)
    assert refused >= 3
    file.write_bytes(good)
    z.same(device.to_numpy(array.read(decode="cuda")), data)


# Found by the host, whatever is to be verified.
def test_a_wrong_checksum_is_named(tmp_path: Path, device: TestedDevice) -> None:
    data = volume("<f4", (40, 30))
    codecs = [z.LITTLE, z.codec("zstd", level=1, checksum=False), z.CRC32C]
    z.write(tmp_path / "a", z.v3(data.shape, (20, 10), "float32", [z.shard([10, 10], codecs)]), data)
    array = device.open(tmp_path / "a")
    z.same(device.to_numpy(array.read(decode="cuda")), data)
    file = tmp_path / "a" / "c" / "1" / "2"
    good = file.read_bytes()
    file.write_bytes(good[:20] + bytes([good[20] ^ 1]) + good[21:])
    with pytest.raises(gzarr.ChunkDecodeError, match="crc32c") as caught:
        device.to_numpy(array.read(decode="cuda"))
    assert caught.value.key == "c/1/2"
    z.same(device.to_numpy(array.read(slice(0, 20), decode="cuda")), data[:20])
