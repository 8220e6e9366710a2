"""Staging: chunks of every store, in waves limited by memory; staging memory ends at an inaccessible page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.staged_chunks import (
    CONTAINERS,
    KINDS,
    NBYTES,
    Volume,
    compressor_of,
    encode,
    mixed,
    smooth,
    stage_all,
    with_crc,
    zstd_frame,
)

from gzarr.engines.cuda.staging import ABSENT, DEFERRED, FALLBACK, READY
from gzarr.errors import ChunkReadError, StoreError
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_frames_are_the_chunk(container: str, kind: str, tmp_path: Path) -> None:
    plain = [smooth(NBYTES), mixed(NBYTES), np.random.default_rng(2).bytes(NBYTES), bytes(NBYTES), smooth(NBYTES, 2)]
    for checksums in (0, 2):
        values: list[bytes | None] = [encode(container, chunk) for chunk in plain]
        for _ in range(checksums):
            values = [with_crc(value) for value in values if value is not None]
        values.insert(2, None)
        volume = Volume(values, kind, folder=tmp_path / str(checksums))
        states, decoded, waves = stage_all(volume.staging(compressor_of(container), checksums), 6, NBYTES)
        assert states == {0: READY, 1: READY, 2: ABSENT, 3: READY, 4: READY, 5: READY}
        assert [decoded[i] for i in (0, 1, 3, 4, 5)] == plain
        assert waves == 1


# -- room


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", ["1", "4"])
def test_waves_take_what_fits(kind: str, threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    plain = [np.random.default_rng(i).bytes(1000) for i in range(40)]
    staging = Volume(plain, kind, 1000, tmp_path).staging(None)
    # 1000 bytes and 64 behind, at multiples of 64: 1088.
    states, decoded, waves = stage_all(staging, 40, 1000, capacity=12 * 1088 + 64)
    assert set(states.values()) == {READY}
    assert [decoded[i] for i in range(40)] == plain
    assert waves == 4


def test_a_chunk_larger_than_staging_is_for_the_host() -> None:
    values = [bytes(1000), bytes(3000), bytes(1000)]
    states, decoded, waves = stage_all(Volume(values, nbytes=1000).staging(None), 3, 1000, capacity=2048)
    assert (states, waves) == ({0: READY, 1: FALLBACK, 2: READY}, 2)
    assert decoded == {0: bytes(1000), 2: bytes(1000)}


@pytest.mark.parametrize("threads", ["1", "4"])
def test_waves_take_as_many_frames_as_there_is_room_for(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    parts = [[smooth(1000 // n, seed=n) for _ in range(n)] for n in (1, 4, 2, 8, 2, 4, 1, 5)]
    plain = [b"".join(part) for part in parts]
    values = [b"".join(zstd_frame(frame) for frame in part) for part in parts]
    staging = Volume(values, nbytes=1000).staging("zstd")
    states, decoded, waves = stage_all(staging, 8, 1000, most_frames=5)
    assert states == {i: FALLBACK if i == 3 else READY for i in range(8)}
    assert decoded == {i: plain[i] for i in range(8) if i != 3}
    assert waves >= 4
    # Without frames there is none for compressed chunks, and no need of any for others.
    assert set(stage_all(staging, 8, 1000, most_frames=0)[0].values()) == {FALLBACK}
    raw = Volume(plain, nbytes=1000).staging(None)
    assert set(stage_all(raw, 8, 1000, most_frames=0)[0].values()) == {READY}


@pytest.mark.parametrize(("compressor", "lead"), [(None, 0), ("gzip", 6), ("zlib", 14)])
def test_nothing_old_lies_between_chunks(compressor: str | None, lead: int) -> None:
    plain = smooth(1003)
    value = encode(compressor or "raw", plain)
    memory = np.full(4096, 0xAA, np.uint8)
    staged, frames = Volume([value] * 2, nbytes=1003).staging(compressor).stage(np.arange(2), memory, 4096, 8)
    assert staged.state.tolist() == [READY, READY]
    step = -(-(lead + len(value) + 64) // 64) * 64
    assert staged.used == 2 * step
    for begin in (0, step):
        lies = bytes(lead) + value + bytes(step - lead - len(value))
        assert memory[begin : begin + step].tobytes() == lies
    assert (frames.source % 16 == 0).all()


def test_no_rows() -> None:
    for kind in ("memory", "memory shard"):
        staged, frames = Volume([b""], kind).staging("zstd").stage(np.zeros(0, np.int64), np.zeros(64, np.uint8), 64, 8)
        assert (len(staged.rows), staged.used, len(frames.chunk)) == (0, 0, 0)


# -- stores and files that fail


def test_files_that_cannot_be_staged(tmp_path: Path) -> None:
    volume = Volume([bytes(NBYTES)] * 4 + [None], "local", folder=tmp_path)
    staging = volume.staging(None, most_encoded=2 * NBYTES)
    chunks = tmp_path / "a" / "c"
    (chunks / "0").write_bytes(bytes(2 * NBYTES + 1))
    (chunks / "1").unlink()
    (chunks / "1").mkdir()
    (chunks / "2").write_bytes(bytes(NBYTES - 1))
    states, _, _ = stage_all(staging, 5, NBYTES)
    assert states == {0: FALLBACK, 1: FALLBACK, 2: FALLBACK, 3: READY, 4: ABSENT}


def test_shards_that_cannot_be_staged(tmp_path: Path) -> None:
    staging = Volume([mixed(NBYTES)] * 6, "local shard", folder=tmp_path).staging(None)
    (tmp_path / "a" / "0").unlink()
    shard = tmp_path / "a" / "1"
    # The chunk that lies last in its shard is the first.
    shard.write_bytes(shard.read_bytes()[: 2 * (NBYTES + 3) + 10])
    states, decoded, _ = stage_all(staging, 6, NBYTES)
    assert states == {0: FALLBACK, 2: FALLBACK, 4: FALLBACK, 1: FALLBACK, 3: READY, 5: READY}
    assert decoded == {3: mixed(NBYTES), 5: mixed(NBYTES)}


class Counting(MemoryStore):
    """A store that counts its requests, and fails for one key."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fetched = 0
        self.fails = fails

    def get(self, key: str) -> bytes | None:
        self.fetched += 1
        if key == self.fails:
            raise StoreError("refused", key=key)
        return super().get(key)

    def get_small_values(self, keys: Any, most: int) -> Any:
        return [self.get(key) for key in keys]


def filled(store: Any, values: Sequence[bytes]) -> Any:
    for i, value in enumerate(values):
        store.set(f"a/c/{i}", value)
    return store


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_store_that_fails_names_the_chunk(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", threads)
    values = [bytes(100)] * 50
    staging = Volume(values, nbytes=100, store=filled(Counting("a/c/33"), values)).staging(None)
    with pytest.raises(ChunkReadError, match="refused") as caught:
        staging.stage(np.arange(50), np.zeros(1 << 16, np.uint8), 1 << 16, 0)
    assert (caught.value.key, caught.value.chunk) == ("a/c/33", (33,))


def test_values_for_which_there_is_no_room_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "1")
    values = [bytes(100)] * 640
    store = filled(Counting(), values)
    staging = Volume(values, nbytes=100, store=store).staging(None)
    staged, _ = staging.stage(np.arange(640), np.zeros(1920, np.uint8), 1920, 0)
    assert (staged.state == READY).sum() == 10
    assert (staged.state == DEFERRED).sum() == 630
    assert store.fetched == 64
