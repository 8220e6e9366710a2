"""What a read keeps to: page-locked memory, the size of nvCOMP's frames, and waves after a lack of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.device_writes import on_host

import gzarr
from gzarr.codecs.zstd import ZstdCodec
from gzarr.engines.cuda import slots, wave_plan
from gzarr.engines.cuda.nvcomp import NvcompDecompressor
from gzarr.engines.cuda.staging import READY, Staging

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.watched_device import WatchedDevice

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def device() -> Iterator[WatchedDevice]:
    with on_host() as made:
        yield made


def on_cuda(values: np.ndarray[Any, Any], **options: Any) -> gzarr.Array:
    """Return an array on the device of values in a store that is not local files."""
    return gzarr.open_array(gzarr.create_array({}, data=values, device="cpu", **options).store, device="cuda")


def test_chunks_decoded_on_the_host_take_no_more_page_locked_memory_than_is_kept(
    device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).integers(0, 60, 3 * MIB, dtype="u1")
    array = on_cuda(values, chunks=(64 * KIB,))
    for module in (slots, wave_plan):
        monkeypatch.setattr(module, "MAX_IDLE_PINNED_BYTES", 2 * MIB)
    taken: list[int] = []
    pinned = type(device).pinned

    def watched(self: WatchedDevice, nbytes: int) -> Any:
        taken.append(nbytes)
        return pinned(self, nbytes)

    monkeypatch.setattr(type(device), "pinned", watched)
    assert (array.read(decode="cpu").get() == values).all()
    assert 0 < sum(taken) <= 2 * MIB
    # A read of less is one copy, and so is one with a caller's budget for it.
    for part, budget_bytes in ((values[: 3 * MIB // 2], None), (values, 8 * MIB)):
        device.counts.clear()
        result = array.read(slice(len(part)), decode="cpu", budget_bytes=budget_bytes)
        assert (result.get() == part).all()
        assert device.counts["copy_in"] == 1
    # Waves of a larger chunk would take more.
    gzarr.release_memory()
    taken.clear()
    part = values[: 5 * MIB // 2]
    assert (on_cuda(values, chunks=(3 * MIB,)).read(slice(len(part)), decode="cpu").get() == part).all()
    assert sum(taken) == len(part)


def test_waves_after_a_lack_of_memory_are_full(device: WatchedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next wave is being staged, and so is cancelled, when the device has no room for one."""
    values = np.random.default_rng(0).integers(0, 60, (600, 16 * KIB), dtype="u1")
    array = on_cuda(values, chunks=(1, 16 * KIB), compressors=ZstdCodec())
    monkeypatch.setattr(wave_plan, "WAVE_BYTES", 16 * KIB)
    monkeypatch.setattr(wave_plan, "WAVE_FRAMES", 150)
    waves: list[tuple[int, int]] = []
    stage = Staging.stage

    def watched(self: Staging, rows: Any, *given: Any) -> Any:
        staged, frames = stage(self, rows, *given)
        waves.append((len(rows), int((staged.state == READY).sum())))
        return staged, frames

    monkeypatch.setattr(Staging, "stage", watched)
    device.cuda.host.fail("allocate_device", 2, times=3)
    assert (array.read(decode="cuda").get() == values).all()
    assert len(waves) > 4, "nothing was tried again"
    assert [ready for n, ready in waves[2:]] == [n for n, _ in waves[2:]]


def test_frames_larger_than_the_decoder_takes_are_left_to_the_cpu(
    device: WatchedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of random bytes are larger than the chunk."""
    values = np.ones((4, 16 * KIB), "u1")
    values[1] = np.random.default_rng(0).integers(0, 256, 16 * KIB)
    array = on_cuda(values, chunks=(1, 16 * KIB), compressors=ZstdCodec())
    decoder = device.decompressor("zstd")
    assert isinstance(decoder, NvcompDecompressor)
    monkeypatch.setattr(decoder, "max_frame_bytes", 16 * KIB)
    device.given = []
    assert (array.read(decode="cuda").get() == values).all()
    assert len(device.given) == 3
    assert max(len(frame) for _, frame, _ in device.given) <= 16 * KIB
