"""Parts of stored values, changed by the native loop: what was there stays, and zarr-python reads the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z

import gzarr
from gzarr.engines.cpu import native_write, old_content, write_threads
from gzarr.errors import ChunkDecodeError, ChunkError, ChunkReadError
from gzarr.stores.temporary_names import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gzarr.engines.access.shard import Shard

pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs Linux and the encoders' wheels")

SHAPE, CHUNKS = (20, 13, 9), (6, 5, 4)
ZSTD = z.codec("zstd", level=3, checksum=False)
CHAINS: dict[str, list[z.Json]] = {
    "raw": [],
    "crc32c": [z.CRC32C],
    "zstd": [ZSTD],
    "gzip": [z.codec("gzip", level=1)],
    "blosc lz4": [z.blosc3("lz4", "shuffle", 4)],
    "blosc zstd": [z.blosc3("zstd", "bitshuffle", 4)],
    "shuffle": [z.codec("numcodecs.shuffle", elementsize=4), z.codec("numcodecs.lz4", acceleration=1)],
    "crc32c zstd": [z.CRC32C, ZSTD, z.CRC32C],
}


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if host threads write anything."""
    monkeypatch.setattr(write_threads, "write", lambda *_, **__: pytest.fail("written by host threads"))


def create(path: Path, content: z.Json) -> gzarr.Array:
    """Store a metadata document; return its array, opened for writing."""
    path.mkdir(parents=True, exist_ok=True)
    (path / ("zarr.json" if content["zarr_format"] == 3 else ".zarray")).write_text(json.dumps(content))
    return gzarr.open_array(path, mode="r+", device="cpu")


def boxes(random: np.random.Generator, shape: tuple[int, ...], number: int) -> Iterator[tuple[slice, ...]]:
    for _ in range(number):
        low = random.integers(0, shape)
        high = [int(random.integers(begin + 1, size + 1)) for begin, size in zip(low, shape, strict=True)]
        step = int(random.integers(1, 3))
        yield tuple(slice(int(begin), end, step) for begin, end in zip(low, high, strict=True))


def same_for_all(path: Path, expected: np.ndarray[Any, Any]) -> None:
    theirs = np.asarray(zarr.open_array(path, mode="r")[...])
    z.same(theirs.astype(theirs.dtype.newbyteorder("="), copy=False), expected)
    z.same(gzarr.open_array(path, device="cpu")[...], expected)


def values_of(dtype: Any, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Elements of any bits: they do not compress."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        return random.normal(size=shape).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    if dtype.kind in "SU":
        return random.integers(0, 10**4, shape).astype(str).astype(dtype)
    return random.integers(0, 2, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


@pytest.mark.usefixtures("natively")
@pytest.mark.parametrize("sharded", [False, True], ids=["chunks", "shards"])
@pytest.mark.parametrize("chain", CHAINS)
def test_every_chain(chain: str, sharded: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(list(CHAINS).index(chain))
    for order in (None, [2, 0, 1]):
        for endian in (z.LITTLE, z.BIG):
            path = tmp_path / f"{order}{endian['configuration']['endian']}"
            codecs = [*([] if order is None else [z.codec("transpose", order=order)]), endian, *CHAINS[chain]]
            outer = [z.shard(list(CHUNKS), codecs)] if sharded else codecs
            array = create(path, z.v3(SHAPE, tuple(2 * n for n in CHUNKS) if sharded else CHUNKS, "uint32", outer))
            expected = np.zeros(SHAPE, "u4")
            for box in boxes(random, SHAPE, 6):
                array[box] = expected[box] = values_of("u4", expected[box].shape, random)
            same_for_all(path, expected)


@pytest.mark.usefixtures("natively")
@pytest.mark.parametrize(
    "dtype", ["|b1", "|i1", ">u2", "<f8", ">c16", "|S5", ">U3", "|V3", [["a", "<i2"], ["b", "<f4"]]]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_type_of_version_2(dtype: Any, order: str, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    array = create(tmp_path, z.v2(SHAPE, CHUNKS, dtype, {"id": "zlib", "level": 1}, order=order, fill=None))
    expected = np.zeros(SHAPE, array.dtype)
    for box in boxes(random, SHAPE, 6):
        array[box] = expected[box] = values_of(array.dtype, expected[box].shape, random)
    same_for_all(tmp_path, expected)


@pytest.mark.usefixtures("natively")
@pytest.mark.parametrize("location", ["start", "end"])
def test_untouched_chunks_of_a_shard_keep_their_bytes(location: str, tmp_path: Path) -> None:
    content = z.v3((16, 16), (16, 16), "int32", [z.shard([4, 4], [z.LITTLE, ZSTD], location)])
    array = create(tmp_path, content)
    expected = np.random.default_rng(0).integers(0, 1000, (16, 16)).astype("i4")
    # One inner chunk is missing; that of another writer is longer than ours would be.
    expected[:4, 4:8] = 0
    zarr.open_array(tmp_path, mode="r+")[:] = expected
    before = inner_chunks(tmp_path / "c/0/0", array)
    array[5:11, 5:11] = expected[5:11, 5:11] = 7
    after = inner_chunks(tmp_path / "c/0/0", array)
    touched = {4 * i + j for i in (1, 2) for j in (1, 2)}
    assert {i for i in range(16) if before[i] != after[i]} == touched
    assert before[1] is None
    same_for_all(tmp_path, expected)


def inner_chunks(path: Path, array: gzarr.Array) -> list[bytes | None]:
    """Return the encoded inner chunks of a shard of 16."""
    data = path.read_bytes()
    (codec,) = array.metadata.codecs
    encoded = data[: 16 * 16 + 4] if codec.index_location == "start" else data[-16 * 16 - 4 :]
    index = codec.decode_index(encoded, (16, 16)).reshape(-1, 2).astype(np.int64)
    return [None if offset < 0 else data[offset : offset + nbytes] for offset, nbytes in index.tolist()]


@pytest.mark.usefixtures("natively")
@given(data=st.data())
@settings(max_examples=25)
def test_any_sequence_of_boxes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("boxes")
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)), "shape")
    inner = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)), "chunks")
    codecs = [z.LITTLE, *CHAINS[data.draw(st.sampled_from(["raw", "zstd", "blosc lz4"]), "chain")]]
    chunks = inner
    if data.draw(st.booleans(), "sharded"):
        chunks = tuple(n * data.draw(st.integers(1, 3)) for n in inner)
        codecs = [z.shard(list(inner), codecs, data.draw(st.sampled_from(["start", "end"]), "index"))]
    array = create(path, z.v3(shape, chunks, "int16", codecs, fill=3))
    expected = np.full(shape, 3, "i2")
    for _ in range(data.draw(st.integers(1, 4), "writes")):
        box = tuple(
            slice(low, data.draw(st.integers(low + 1, n)), data.draw(st.integers(1, 3)))
            for n in shape
            for low in [data.draw(st.integers(0, n - 1))]
        )
        # 3 is the fill value: whole chunks of it are erased.
        value = data.draw(st.sampled_from([3, 5]), "value")
        array[box] = expected[box] = value
    same_for_all(path, expected)
    for file in (path / "c").rglob("*"):
        i, j = (int(part) for part in file.relative_to(path / "c").parts) if file.is_file() else (0, 0)
        part = expected[i * chunks[0] : (i + 1) * chunks[0], j * chunks[1] : (j + 1) * chunks[1]]
        assert not file.is_file() or (part != 3).any(), "a chunk of the fill value is stored"


@pytest.mark.usefixtures("natively")
def test_many_shards_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_content, "MOST_SHARDS", 3)
    array = create(tmp_path, z.v3((80,), (8,), "int32", [z.shard([2], [z.LITTLE, ZSTD])]))
    expected = np.arange(80, dtype="i4")
    array[...] = expected
    opened = len(list(Path("/proc/self/fd").iterdir()))
    array[1::8] = expected[1::8] = -1
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    same_for_all(tmp_path, expected)


@pytest.mark.usefixtures("natively")
def test_a_shard_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old index and the old chunks are of one file, whatever another process renames to its path."""
    array = create(tmp_path, z.v3((64,), (64,), "int32", [z.shard([8], [z.LITTLE, ZSTD])]))
    array[...] = expected = np.arange(64, dtype="i4")
    open_shard = old_content._open_shard

    def replaced(root: str, key: str, shard: Shard, fds: list[int]) -> Any:
        found = open_shard(root, key, shard, fds)
        other = tmp_path / "other"
        other.write_bytes(b"\0" * 5000)
        other.rename(f"{root}/{key}")
        return found

    monkeypatch.setattr(old_content, "_open_shard", replaced)
    array[3:5] = expected[3:5] = -1
    same_for_all(tmp_path, expected)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


CHECKED = [z.LITTLE, ZSTD, z.CRC32C]


@pytest.mark.usefixtures("natively")
@pytest.mark.parametrize("layout", ["chunks", "shards"])
def test_what_others_appended_to_a_chunk_is_kept(layout: str, tmp_path: Path) -> None:
    """Of the last chunk or inner chunk, the array knows its first elements only: it writes all or some of these."""
    codecs = [z.LITTLE, ZSTD] if layout == "chunks" else [z.shard([4], [z.LITTLE, ZSTD])]
    array = create(tmp_path, z.v3((30,), (16,), "int32", codecs))
    array[...] = np.arange(30)
    gzarr.open_array(tmp_path, mode="r+", device="cpu").append(np.array([300, 310, 320], "i4"))
    # All that it knows of the last inner chunk, and some of the one before.
    array[26:30] = -1
    array[28] = -2
    expected = np.array([*range(26), -1, -1, -2, -1, 300, 310, 320], "i4")
    same_for_all(tmp_path, expected)


@pytest.mark.parametrize(
    ("layout", "at", "reason"),
    [
        ("chunks", 8, "its stored bytes cannot be decoded"),
        ("shards", 8, "its stored bytes cannot be decoded"),
        ("shards", -3, "whose index cannot be read"),
    ],
)
def test_damaged_old_content_is_an_error_and_stays(layout: str, at: int, reason: str, tmp_path: Path) -> None:
    codecs = CHECKED if layout == "chunks" else [z.shard([4], CHECKED)]
    array = create(tmp_path, z.v3((40,), (8,), "int32", codecs))
    array[...] = expected = np.arange(100, 140, dtype="i4")
    damaged = tmp_path / "c/2"
    flip(damaged, at)
    before = damaged.read_bytes()
    with pytest.raises(ChunkDecodeError, match=rf"{reason}.*4 of 5 stored values were written") as caught:
        array[::2] = -1
    assert caught.value.key == "c/2"
    expected[::2] = -1
    assert damaged.read_bytes() == before
    found = gzarr.open_array(tmp_path, device="cpu")
    z.same(found[:16], expected[:16])
    z.same(found[24:], expected[24:])
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))


def test_a_damaged_chunk_is_healed_by_a_whole_one(tmp_path: Path) -> None:
    """The last inner chunk reaches beyond the array, so its old content is read, but it need not be there."""
    array = create(tmp_path, z.v3((30,), (16,), "int32", [z.shard([4], CHECKED)]))
    array[...] = expected = np.arange(30, dtype="i4")
    data = (tmp_path / "c/1").read_bytes()
    (codec,) = array.metadata.codecs
    flip(tmp_path / "c/1", int(codec.decode_index(data[-4 * 16 - 4 :], (16,)).reshape(-1, 2)[3, 0]) + 2)
    with pytest.raises(ChunkError):
        array[29]
    array[27:30] = expected[27:30] = 5
    same_for_all(tmp_path, expected)


def test_a_directory_in_place_of_a_chunk(tmp_path: Path) -> None:
    array = create(tmp_path, z.v3((8,), (4,), "int32", CHECKED))
    (tmp_path / "c/1").mkdir(parents=True)
    with pytest.raises((ChunkReadError, gzarr.errors.ChunkWriteError)) as caught:
        array[1:7] = 1
    assert caught.value.key == "c/1"
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))
    z.same(gzarr.open_array(tmp_path, device="cpu")[:4], np.array([0, 1, 1, 1], "i4"))


def test_a_chunk_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    array = create(tmp_path, z.v3((8,), (4,), "int32", CHECKED))
    array[...] = 1
    with (tmp_path / "c/0").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ChunkError) as caught:
        array[1:3] = 2
    assert caught.value.key == "c/0"
