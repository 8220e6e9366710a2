"""What tells of arrays, and what copies stored values as they are, takes little memory, whatever the metadata say."""

from __future__ import annotations

import os
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkDecodeError, ChunkReadError, SelectionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HUGE = 1 << 30
NUMBERS = np.arange(1, 17, dtype="i4")


@pytest.fixture
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def many_chunks(**options: Any) -> gzarr.Array:
    store: dict[str, Any] = {}
    gzarr.create_array(store, shape=(2**31 - 1,), chunks=(3,), dtype="i1", **options)
    return gzarr.open_array(store, device="cpu")


@pytest.mark.usefixtures("little_memory")
def test_many_chunks_are_counted() -> None:
    array = many_chunks()
    found = gzarr.explain(array)
    count = -(-(2**31 - 1) // 3)
    assert (found.chunks, found.values, found.decoded_nbytes) == (count, count, 3 * count)
    assert found.way == "compiled loop, batches"
    every_other = gzarr.explain(array, np.s_[1::2])
    assert (every_other.chunks, every_other.result_nbytes) == (count - 1, 2**30 - 1)
    some = gzarr.explain(array, np.s_[::-1000])
    assert (some.chunks, some.decoded_nbytes) == (2147484, 3 * 2147484)
    assert array.decode_path
    assert "715,827,883" in str(array.info)


@pytest.mark.usefixtures("little_memory")
def test_inner_chunks_of_many_shards_are_counted() -> None:
    found = gzarr.explain(many_chunks(shards=(3 * 2**10,)))
    assert (found.chunks, found.values) == (-(-(2**31 - 1) // 3), -(-(2**31 - 1) // (3 * 2**10)))


@pytest.mark.usefixtures("little_memory")
def test_small_reads_of_many_chunks() -> None:
    array = many_chunks()
    assert array[2**30] == 0
    assert array[:: 10**8].tolist() == [0] * 22
    assert array[[1, 2**30]].tolist() == [0, 0]
    assert array.vindex[[5, 2**31 - 2]].tolist() == [0, 0]


@pytest.mark.usefixtures("little_memory")
def test_what_cannot_be_read_at_once_is_not_explained() -> None:
    array = gzarr.create_array({}, shape=(2**32,), chunks=(1,), dtype="i1", device="cpu")
    with pytest.raises(SelectionError, match=r"4294967296 pieces of chunks.* read it in parts"):
        gzarr.explain(array)


# -- copies


def made(path: Path, **options: Any) -> None:
    array = gzarr.create_array(path, shape=(16,), dtype="i4", chunks=(4,), **options)
    array[...] = NUMBERS


def spread(shard: Path, nbytes: int, gap: int) -> None:
    """Give the second of four inner chunks some number of bytes, and put a gap before all."""
    data = shard.read_bytes()
    body, index = data[:-68], bytearray(data[-68:-4])
    for i in range(4):
        offset, size = struct.unpack_from("<QQ", index, 16 * i)
        struct.pack_into("<QQ", index, 16 * i, offset + gap, nbytes if i == 1 and nbytes else size)
    with shard.open("wb") as file:
        file.seek(gap)
        file.write(body)
        file.seek(gap + len(body) + nbytes)
        file.write(index + struct.pack("<I", google_crc32c.value(bytes(index))))


@pytest.mark.parametrize("codecs", [["gzip"], []])
@pytest.mark.usefixtures("little_memory")
def test_a_chunk_that_is_too_large_is_not_copied(codecs: Any, tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=codecs)
    os.truncate(tmp_path / "a/c/1", HUGE)
    with pytest.raises(ChunkDecodeError, match=r"chunk \(1,\), key 'c/1': in the source, .* 1073741824 "):
        gzarr.copy(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("little_memory")
def test_a_shard_that_is_too_large_is_not_copied(tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=["gzip"], shards=(16,))
    spread(tmp_path / "a/c/0", HUGE, 0)
    with pytest.raises(ChunkDecodeError, match=r"chunk \(1,\), key 'c/0': in the source, .* gives it 1073741824 bytes"):
        gzarr.copy(tmp_path / "a", tmp_path / "b")


@pytest.mark.usefixtures("little_memory")
def test_gaps_of_a_shard_are_not_copied(tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=["gzip"], shards=(16,))
    size = (tmp_path / "a/c/0").stat().st_size
    spread(tmp_path / "a/c/0", 0, HUGE)
    gzarr.copy(tmp_path / "a", tmp_path / "b", read_back=True)
    assert (tmp_path / "b/c/0").stat().st_size == size
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "b", device="cpu")[...], NUMBERS)


def test_a_copy_without_gaps_is_resumed(tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=["gzip"], shards=(16,))
    spread(tmp_path / "a/c/0", 0, 1 << 20)
    gzarr.copy(tmp_path / "a", tmp_path / "b")
    before = (tmp_path / "b/c/0").stat()
    gzarr.copy(tmp_path / "a", tmp_path / "b", resume=True)
    assert (tmp_path / "b/c/0").stat().st_mtime_ns == before.st_mtime_ns


def test_a_shard_of_short_chunks_and_gaps_is_copied_as_it_is(tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=["gzip"], shards=(16,))
    spread(tmp_path / "a/c/0", 0, 1000)
    gzarr.copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/c/0").read_bytes() == (tmp_path / "a/c/0").read_bytes()


@pytest.mark.usefixtures("little_memory")
def test_what_an_unfinished_copy_has_is_not_read_if_it_is_larger(tmp_path: Path) -> None:
    made(tmp_path / "a", codecs=["gzip"])
    gzarr.copy(tmp_path / "a", tmp_path / "b")
    os.truncate(tmp_path / "b/c/1", HUGE)
    gzarr.copy(tmp_path / "a", tmp_path / "b", resume=True)
    assert (tmp_path / "b/c/1").read_bytes() == (tmp_path / "a/c/1").read_bytes()


def of_zfp(path: Path) -> Any:
    """Make a shard of chunks that lose a little each time they are encoded; return its elements."""
    zfp = {"name": "numcodecs.zfpy", "configuration": {"mode": 2, "rate": 6}}
    data = np.random.default_rng(0).normal(0, 100, 16)
    gzarr.create_array(path, data=data, chunks=(4,), shards=(16,), codecs=[zfp])
    return gzarr.open_array(path, device="cpu")[...]


def test_gaps_do_not_have_lossy_chunks_encoded_again(tmp_path: Path) -> None:
    found = of_zfp(tmp_path / "a")
    spread(tmp_path / "a/c/0", 0, 1 << 20)
    gzarr.copy(tmp_path / "a", tmp_path / "b")
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "b", device="cpu")[...], found)


@pytest.mark.usefixtures("little_memory")
def test_large_gaps_between_lossy_chunks_are_refused(tmp_path: Path) -> None:
    of_zfp(tmp_path / "a")
    spread(tmp_path / "a/c/0", 0, HUGE)
    with pytest.raises(ChunkReadError, match=r"chunk \(0,\), key 'c/0': .*a larger budget_bytes copies it as it is"):
        gzarr.copy(tmp_path / "a", tmp_path / "b")
