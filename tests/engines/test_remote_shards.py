"""Shards in remote stores: fetched as a whole if all of them is wanted, else by their index and joined ranges."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
import pytest
import zarr

import gzarr
from gzarr.errors import ChunkDecodeError, ChunkReadError, MissingChunkError
from gzarr.stores.base import ByteRange
from tests.support.counting_store import CountingStore

DATA = np.random.default_rng(3).integers(0, 1000, (50, 64), dtype="u2")


def made(data: Any = DATA, **options: Any) -> tuple[CountingStore, gzarr.Array]:
    """Return an array in shards of 4 × 4 chunks, written by zarr-python, and its store."""
    values: dict[str, Any] = {}
    usual: dict[str, Any] = {"shards": (20, 32), "chunks": (5, 8), "compressors": zarr.codecs.ZstdCodec()}
    zarr.create_array(memory := zarr.storage.MemoryStore(), data=data, **{**usual, **options})
    values.update({key: value.to_bytes() for key, value in memory._store_dict.items()})
    store = CountingStore(values)
    array = gzarr.open_array(store, device="cpu")
    store.asked.clear()
    return store, array


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compressors": None},
        # Decoded by codec objects, in threads.
        {"compressors": None, "filters": zarr.codecs.numcodecs.Delta(dtype="<u2")},
        {"filters": zarr.codecs.TransposeCodec(order=(1, 0)), "serializer": zarr.codecs.BytesCodec(endian="big")},
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_a_whole_shard_is_one_request(options: dict[str, Any]) -> None:
    store, array = made(**options)
    np.testing.assert_array_equal(array[...], DATA)
    # The last shards are cut off by the array's end.
    assert sorted(request.key for request in store.asked) == [f"c/{i}/{j}" for i in range(3) for j in range(2)]
    assert all(request.byte_range == ByteRange() for request in store.asked)
    store.asked.clear()
    # The indexes are known from then on.
    np.testing.assert_array_equal(array[3, :9], DATA[3, :9])
    assert len(store.asked) <= 2
    assert all(request.byte_range.length for request in store.asked)


def test_most_of_a_shard_is_one_request_and_half_of_one_is_not() -> None:
    store, array = made()
    np.testing.assert_array_equal(array[:20, :24], DATA[:20, :24])
    first, *others = (request.byte_range for request in store.asked)
    assert first.offset < 0
    assert others
    assert all(part.length for part in others)
    store, array = made(chunks=(1, 8), shards=(20, 32))
    # 76 of 80 chunks.
    np.testing.assert_array_equal(array[1:20, :32], DATA[1:20, :32])
    assert [request.byte_range for request in store.asked] == [ByteRange()]


def test_large_shards_are_fetched_in_ranges_side_by_side() -> None:
    data = np.random.default_rng(4).integers(0, 255, (24, 1 << 20), dtype="u1")
    store, array = made(data, shards=(12, 1 << 20), chunks=(1, 1 << 20), compressors=None)
    np.testing.assert_array_equal(array[...], data)
    ranges = [request.byte_range for request in store.asked]
    assert sum(part.offset < 0 for part in ranges) == 2
    assert max(part.length or 0 for part in ranges) == store.limits.most_bytes == 4 << 20


def test_absent_shards_and_chunks() -> None:
    data = np.where(np.arange(64) < 40, DATA, 0)
    store, array = made(data, shards=(20, 16))
    absent = {f"c/{i}/3" for i in range(3)}
    assert not absent & set(store.list())
    np.testing.assert_array_equal(array[...], data)
    assert len(store.asked) == 12
    with pytest.raises(MissingChunkError):
        array.read(..., missing="error")


def test_a_damaged_shard_is_an_error_that_names_it() -> None:
    store, array = made()
    whole = store.get("c/1/0")
    assert whole is not None
    beyond = whole[:-260] + bytes([255] * 8) + whole[-252:]
    for damaged in (whole[:100], whole[:-1], whole[:-2] + bytes(2), b"", beyond):
        store.set("c/1/0", damaged)
        with pytest.raises(ChunkDecodeError, match="index") as caught:
            array[...]
        assert caught.value.key == "c/1/0"
    # An entry that no encoder could have made.
    index = np.frombuffer(whole[-260:-4], "<u8").reshape(-1, 2).copy()
    index[3] = 0, 1 << 20
    encoded = index.tobytes()
    store.set("c/1/0", bytes(1 << 20) + encoded + google_crc32c.value(encoded).to_bytes(4, "little"))
    with pytest.raises(ChunkDecodeError, match="a chunk of this array has at most") as caught:
        array[...]
    assert caught.value.chunk == (4, 3)


def test_a_shard_with_wide_gaps_is_read_by_its_index() -> None:
    """Other writers may leave old chunks where they are; such a shard is larger than its chunks can be."""
    store, array = made(compressors=None)
    whole = store.get("c/0/0")
    assert whole is not None
    store.set("c/0/0", whole[:-260] + bytes(40 << 20) + whole[-260:])
    np.testing.assert_array_equal(array[...], DATA)
    ranges = [request.byte_range for request in store.asked if request.key == "c/0/0"]
    assert ranges[0] == ByteRange()
    assert all(part != ByteRange() for part in ranges[1:])


def test_a_store_that_fails() -> None:
    store, array = made()

    def broken(requests: Any) -> Any:
        raise RuntimeError("no connection")

    store.get_many = broken  # type: ignore[method-assign]
    with pytest.raises(ChunkReadError, match="no connection"):
        array[...]


@pytest.mark.parametrize("index_location", ["start", "end"])
def test_nested_shards_and_indexes_at_the_start(index_location: str) -> None:
    inner = zarr.codecs.ShardingCodec(chunk_shape=(5, 8), index_location=index_location)
    outer = zarr.codecs.ShardingCodec(chunk_shape=(10, 16), codecs=[inner], index_location=index_location)
    for codec, requests in ((outer, None), (inner, 6)):
        store, array = made(shards=None, chunks=(20, 32), serializer=codec, compressors=None)
        np.testing.assert_array_equal(array[...], DATA)
        assert requests is None or len(store.asked) == requests
        np.testing.assert_array_equal(gzarr.open_array(store, device="cpu")[3:9, 5], DATA[3:9, 5])
