"""Writes that change stored values in part have the limits of reads: damaged old content is refused before memory."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkDecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

HUGE = 1 << 30
INDEX_NBYTES = 4 * 16 + 4
CODECS: list[Any] = [[], ["gzip"], ["zstd"], [{"name": "numcodecs.bz2", "configuration": {"level": 1}}]]
NUMBERS = np.arange(1, 17, dtype="i4")


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def opened(path: Path, kind: str) -> gzarr.Array:
    return gzarr.open_array(f"fsspec+file://{path}" if kind == "fsspec" else path, mode="r+", device="cpu")


def lengthened(path: Path, nbytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(nbytes)


def spread(path: Path, sizes: dict[int, int], gap: int = 0, entries: int = 4) -> None:
    """Put the inner chunks of a shard in new places: some with other sizes, all of it after a gap."""
    data = path.read_bytes()
    nbytes = entries * 16 + 4
    body, index = data[:-nbytes], bytearray(data[-nbytes:-4])
    end = len(body) + gap
    for i in range(entries):
        offset, size = struct.unpack_from("<QQ", index, 16 * i)
        if i in sizes:
            struct.pack_into("<QQ", index, 16 * i, end, sizes[i])
            end += sizes[i]
        else:
            struct.pack_into("<QQ", index, 16 * i, offset + gap, size)
    with path.open("wb") as file:
        file.seek(gap)
        file.write(body)
        file.seek(end)
        file.write(index + struct.pack("<I", google_crc32c.value(bytes(index))))


CHANGES: dict[str, Callable[[gzarr.Array], Any]] = {
    "part": lambda array: array.__setitem__(0, 9),
    "points": lambda array: array.vindex.__setitem__([0, 2], 9),
    "resize": lambda array: array.resize(2),
}

INNER_CHANGES: dict[str, Callable[[gzarr.Array], Any]] = {
    **CHANGES,
    "neighbour": lambda array: array.__setitem__(slice(8, 12), 9),
    "itself": lambda array: array.__setitem__(5, 9),
    "resize": lambda array: array.resize(10),
}


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("kind", ["files", "fsspec"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_chunk_that_is_too_large(codecs: Any, kind: str, change: str, tmp_path: Path) -> None:
    made = gzarr.create_array(tmp_path / "a", shape=(8,), dtype="i4", chunks=(4,), codecs=codecs)
    made[...] = NUMBERS[:8]
    lengthened(tmp_path / "a/c/0", HUGE)
    array = opened(tmp_path / "a", kind)
    with little_memory():
        with pytest.raises(ChunkDecodeError) as of_read:
            array[0]
        with pytest.raises(
            ChunkDecodeError, match=r"the write changes only part of it.*truncated, or too large"
        ) as error:
            CHANGES[change](array)
        assert (error.value.chunk, error.value.key) == (of_read.value.chunk, of_read.value.key) == ((0,), "c/0")
        assert (tmp_path / "a/c/0").stat().st_size == HUGE
        # All of it is replaced without a look.
        array = opened(tmp_path / "a", kind)
        array[:4] = 7
    np.testing.assert_array_equal(array[:4], 7)


def test_a_cut_chunk_that_is_too_large(tmp_path: Path) -> None:
    """A chunk at the array's end is read for what others may have appended, and replaced if it cannot be."""
    array = gzarr.create_array(tmp_path / "a", shape=(6,), dtype="i4", chunks=(4,), codecs=["gzip"], device="cpu")
    array[...] = NUMBERS[:6]
    lengthened(tmp_path / "a/c/1", HUGE)
    with little_memory():
        array.write(slice(4, 6), 7, lock=True)
    np.testing.assert_array_equal(array[...], [1, 2, 3, 4, 7, 7])


@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("kind", ["files", "fsspec"])
@pytest.mark.parametrize("change", INNER_CHANGES)
def test_an_inner_chunk_that_is_too_large(codecs: Any, kind: str, change: str, tmp_path: Path) -> None:
    made = gzarr.create_array(tmp_path / "a", shape=(16,), dtype="i4", chunks=(4,), shards=(16,), codecs=codecs)
    made[...] = NUMBERS
    shard = tmp_path / "a/c/0"
    spread(shard, {1: HUGE})
    before = shard.stat().st_size
    array = opened(tmp_path / "a", kind)
    with little_memory():
        with pytest.raises(ChunkDecodeError, match="index gives it 1073741824 bytes") as of_read:
            array[4]
        with pytest.raises(
            ChunkDecodeError, match=r"part of its shard, whose index gives it 1073741824 bytes"
        ) as error:
            INNER_CHANGES[change](array)
        assert (error.value.chunk, error.value.key) == (of_read.value.chunk, of_read.value.key) == ((1,), "c/0")
        assert shard.stat().st_size == before
        if change == "resize":
            return
        # It is replaced without a look, and so is the shard.
        array[4:8] = 7
        assert shard.stat().st_size < 4096
    np.testing.assert_array_equal(array[...], np.where((NUMBERS > 4) & (NUMBERS < 9), 7, NUMBERS))


@pytest.mark.parametrize("kind", ["files", "fsspec"])
def test_a_shard_that_is_replaced(kind: str, tmp_path: Path) -> None:
    made = gzarr.create_array(tmp_path / "a", shape=(14,), dtype="i4", chunks=(4,), shards=(16,), codecs=["gzip"])
    made[...] = NUMBERS[:14]
    array = opened(tmp_path / "a", kind)
    for lock in (False, kind == "files"):
        spread(tmp_path / "a/c/0", {1: HUGE, 3: HUGE})
        with little_memory():
            array.write(..., 7, lock=lock)
        np.testing.assert_array_equal(array[...], np.full(14, 7))


BYTES = [{"name": "bytes", "configuration": {"endian": "little"}}]


def sharding(length: int, codecs: Any) -> list[Any]:
    configuration = {"chunk_shape": [length], "codecs": codecs, "index_codecs": [*BYTES, {"name": "crc32c"}]}
    return [{"name": "sharding_indexed", "configuration": configuration}]


LAYOUTS: dict[str, Any] = {
    "shards": {"chunks": (4,), "shards": (16,), "codecs": ["gzip"]},
    "nested": {"chunks": (16,), "codecs": sharding(4, sharding(2, BYTES))},
}


@pytest.mark.parametrize("kind", ["files", "fsspec"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gaps_in_a_shard(layout: str, kind: str, tmp_path: Path) -> None:
    """A shard may have bytes that belong to no chunk; they are not read."""
    made = gzarr.create_array(tmp_path / "a", shape=(16,), dtype="i4", **LAYOUTS[layout])
    made[...] = NUMBERS
    shard = tmp_path / "a/c/0"
    spread(shard, {}, HUGE)
    array = opened(tmp_path / "a", kind)
    np.testing.assert_array_equal(array[...], NUMBERS)
    with little_memory():
        array.vindex[[3]] = 50
    assert shard.stat().st_size < 4096
    np.testing.assert_array_equal(array[...], np.where(NUMBERS == 4, 50, NUMBERS))
    if layout == "nested":
        spread(shard, {1: HUGE})
        with little_memory(), pytest.raises(ChunkDecodeError, match=r"'c/0': inner chunk 1: the write") as error:
            array[0] = 3
        assert error.value.chunk == (0,)


@pytest.mark.parametrize("layout", ["nested in shards", "nested"])
def test_small_gaps_in_inner_shards(layout: str, tmp_path: Path) -> None:
    """Each inner shard has some padding, and there are more bytes than without gaps."""
    codecs = sharding(8, sharding(2, BYTES))
    options: dict[str, Any] = {"chunks": (16,), "codecs": codecs}
    if layout == "nested in shards":
        options = {"chunks": (16,), "codecs": sharding(16, codecs)}
    made = gzarr.create_array(tmp_path / "a", shape=(16,), dtype="i4", **options)
    made[...] = NUMBERS
    spread_within(tmp_path / "a/c/0", depth=2 if layout == "nested in shards" else 1)
    array = opened(tmp_path / "a", "files")
    np.testing.assert_array_equal(array[...], NUMBERS)
    array[:3] = 50
    np.testing.assert_array_equal(array[...], [50, 50, 50, *NUMBERS[3:]])


def parts_of(shard: bytes, entries: int) -> list[bytes]:
    index = shard[-(16 * entries + 4) : -4]
    places = [struct.unpack_from("<QQ", index, 16 * i) for i in range(entries)]
    return [shard[begin : begin + size] for begin, size in places]


def joined(parts: Sequence[bytes], padding: bytes) -> bytes:
    body, index = b"", b""
    for part in parts:
        body += padding
        index += struct.pack("<QQ", len(body), len(part))
        body += part
    return body + index + struct.pack("<I", google_crc32c.value(index))


def spread_within(path: Path, depth: int) -> None:
    """Pad the chunks of the inner shards, which have four each; there are two, in one shard or ``depth`` shards."""

    def padded(shard: bytes, depth: int) -> bytes:
        if depth == 0:
            return joined(parts_of(shard, 4), bytes(8))
        entries = 1 if depth == 2 else 2
        return joined([padded(part, depth - 1) for part in parts_of(shard, entries)], b"")

    path.write_bytes(padded(path.read_bytes(), depth))
