"""The fast path of small reads: chunks of files, and of shards whose indexes are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z

import gzarr
from gzarr.engines.cpu import native, native_write, small_reads
from gzarr.errors import ChunkDecodeError, MissingChunkError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs the compiled loop")

SHAPE, INNER, SHARDS = (20, 18), (3, 4), (9, 8)
ZSTD = z.codec("zstd", level=3, checksum=False)
CODECS = [z.LITTLE, ZSTD, z.CRC32C]


def stored(path: Path, codecs: list[z.Json], chunks: tuple[int, ...] = SHARDS) -> np.ndarray[Any, Any]:
    """Store an array by zarr-python; return its elements, among them chunks of the fill value."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "zarr.json").write_text(json.dumps(z.v3(SHAPE, chunks, "int32", codecs, fill=0)))
    data = np.arange(1, 361, dtype="i4").reshape(SHAPE)
    data[3:6, :8] = 0
    data[:, 16:] = 0
    zarr.open_array(path, mode="r+")[:] = data
    return data


@pytest.fixture
def only_quickly(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call the normal path fails."""

    def forbid() -> None:
        monkeypatch.setattr(native, "read", lambda *_: pytest.fail("read by the normal path"))

    return forbid


def warm(array: gzarr.Array) -> None:
    """Read a part of each shard: its index is known then."""
    for i in range(0, SHAPE[0], SHARDS[0]):
        for j in range(0, SHAPE[1], SHARDS[1]):
            array[i, j]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("order", [None, [1, 0]])
@pytest.mark.parametrize("alone", [True, False])
def test_every_box_of_shards(
    order: list[int] | None,
    location: str,
    alone: bool,
    tmp_path: Path,
    only_quickly: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not alone:
        monkeypatch.setattr(small_reads, "ALONE_BYTES", 0)
    codecs = CODECS if order is None else [z.codec("transpose", order=order), *CODECS]
    data = stored(tmp_path, [z.shard(list(INNER), codecs, location)])
    array = gzarr.open_array(tmp_path, device="cpu")
    # Shards that hold nothing have no file, and no index to know.
    warm(array)
    only_quickly()
    random = np.random.default_rng(0)
    for _ in range(60):
        low = [int(random.integers(0, n)) for n in (20, 16)]
        box = tuple(
            slice(at, int(random.integers(at + 1, min(at + 10, n) + 1)), int(random.integers(1, 3)))
            for at, n in zip(low, (20, 16), strict=True)
        )
        z.same(array[box], data[box])
        out = np.full((data[box].shape[1], data[box].shape[0]), -1, "i4").T
        array.read(box, out=out)
        z.same(out, data[box])
    z.same(array[4, 5], data[4, 5])


def test_a_transposed_shard(tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    """The dimensions of the index are those of the shard as it is stored."""
    data = stored(tmp_path, [z.codec("transpose", order=[1, 0]), z.shard([4, 3], CODECS)], (12, 12))
    array = gzarr.open_array(tmp_path, device="cpu")
    warm(array)
    only_quickly()
    for i in range(0, 18, 2):
        for j in range(0, 14, 2):
            z.same(array[i : i + 5, j : j + 3], data[i : i + 5, j : j + 3])


def test_missing_chunks_in_shards(tmp_path: Path) -> None:
    data = stored(tmp_path, [z.shard(list(INNER), CODECS)])
    array = gzarr.open_array(tmp_path, device="cpu")
    warm(array)
    z.same(array[2:5, 2:5], data[2:5, 2:5])
    with pytest.raises(MissingChunkError):
        array.read(np.s_[2:5, 2:5], missing="error")
    z.same(array.read(np.s_[6:9, 2:5], missing="error"), data[6:9, 2:5])


def test_a_shard_that_is_replaced_has_a_new_index(tmp_path: Path) -> None:
    data = stored(tmp_path, [z.shard(list(INNER), CODECS)])
    array = gzarr.open_array(tmp_path, device="cpu")
    warm(array)
    z.same(array[2:5, 2:9], data[2:5, 2:9])
    data = data[::-1].copy()
    zarr.open_array(tmp_path, mode="r+")[:] = data
    z.same(array[2:5, 2:9], data[2:5, 2:9])


def test_a_shard_that_is_replaced_during_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read with the old index is not given out: chunks without a checksum, at other places in the new file."""
    data = stored(tmp_path, [z.shard(list(INNER), [z.LITTLE])])
    array = gzarr.open_array(tmp_path, device="cpu")
    warm(array)
    run = small_reads.SmallShardReads._run
    new = (data + 1000).astype("i4")
    new[:3, :4] = 0

    def replaced(self: Any, *arguments: Any, **options: Any) -> bool:
        zarr.open_array(tmp_path, mode="r+")[:] = new
        return run(self, *arguments, **options)

    monkeypatch.setattr(small_reads.SmallShardReads, "_run", replaced)
    z.same(array[6:9, 2:5], new[6:9, 2:5])


@pytest.mark.parametrize("what", ["chunk", "index", "gone"])
def test_damage_is_reported_by_the_normal_path(what: str, tmp_path: Path) -> None:
    stored(tmp_path, [z.shard(list(INNER), CODECS)])
    array = gzarr.open_array(tmp_path, device="cpu")
    warm(array)
    path = tmp_path / "c/0/0"
    content = bytearray(path.read_bytes())
    if what == "gone":
        path.unlink()
        z.same(array[:3, :3], np.zeros((3, 3), "i4"))
        return
    content[2 if what == "chunk" else -20] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ChunkDecodeError) as caught:
        array[:3, :3]
    assert caught.value.key == "c/0/0"


def test_nothing_is_allocated_for_what_is_too_large_for_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = stored(tmp_path, [z.shard(list(INNER), [z.LITTLE], index=[z.LITTLE])])
    path = tmp_path / "c/0/0"
    content = bytearray(path.read_bytes())
    # The size of the first of six inner chunks.
    content[-6 * 16 + 8 : -5 * 16 - 1] = b"\xff" * 7
    path.write_bytes(content)
    array = gzarr.open_array(tmp_path, device="cpu")
    z.same(array[:3, 5:8], data[:3, 5:8])
    z.same(array[:3, 5:8], data[:3, 5:8])
    monkeypatch.setattr(small_reads.SmallShardReads, "_run", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(ChunkDecodeError, match=r"gives it \d+ bytes; a chunk of this array has at most 48"):
        array[:3, :3]


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sequences_of_reads_and_writes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("sequence")
    expected = stored(path, [z.shard(list(INNER), CODECS)] if data.draw(st.booleans(), "sharded") else CODECS)
    array = gzarr.open_array(path, mode="r+", device="cpu")
    for _ in range(data.draw(st.integers(1, 8), "steps")):
        box = tuple(
            slice(low, data.draw(st.integers(low + 1, n)), data.draw(st.integers(1, 4)))
            for n in SHAPE
            for low in [data.draw(st.integers(0, n - 1))]
        )
        if data.draw(st.booleans(), "write"):
            array[box] = expected[box] = data.draw(st.integers(0, 3), "value")
        z.same(array[box], expected[box])


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_chunks_each_to_an_array(shards: bool, count: int, tmp_path: Path, only_quickly: Callable[[], None]) -> None:
    """Chunks at the array's end are cut; the outputs have strides of their own."""
    codecs = [z.shard(list(INNER), CODECS)] if shards else CODECS
    data = stored(tmp_path, codecs, SHARDS if shards else INNER)
    array = gzarr.open_array(tmp_path, device="cpu")
    if shards:
        warm(array)
    only_quickly()
    # Shards without a file have no index to know.
    every = [(i, j) for i in range(7) for j in range(4 if shards else 5)]
    random = np.random.default_rng(0)
    for _ in range(5):
        coords = [every[i] for i in random.permutation(len(every))[:count].tolist()]
        expected = [data[i * 3 : i * 3 + 3, j * 4 : j * 4 + 4] for i, j in coords]
        out = [np.full(x.shape[::-1] if i % 2 else x.shape, -1, "i4") for i, x in enumerate(expected)]
        out = [x.T if i % 2 else x for i, x in enumerate(out)]
        array._read_chunks(coords, out, None)
        for actual, wanted in zip(out, expected, strict=True):
            z.same(actual, wanted)


def test_a_broken_chunk_among_many_is_named(tmp_path: Path) -> None:
    stored(tmp_path, CODECS, INNER)
    (tmp_path / "c" / "2" / "1").write_bytes(b"no zstd")
    array = gzarr.open_array(tmp_path, device="cpu")
    out = [np.empty(INNER, "i4") for _ in range(3)]
    with pytest.raises(ChunkDecodeError, match="c/2/1"):
        array._read_chunks([(0, 0), (2, 1), (3, 1)], out, None)
