"""gzarr's codec pipeline in zarr-python: the same results, the same errors, by gzarr's engines."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import obstore.store
import pytest
import zarr
import zarr.errors
import zarr.storage
import zarr.testing.strategies as zst
from hypothesis import HealthCheck, given, settings
from support.zarr_pipelines import SHAPE, elements, opened
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import cpu
from zarr.core.config import config
from zarr.core.sync import sync

import gzarr
import gzarr.integrations.zarr as ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Values = np.ndarray[Any, Any]

LAYOUTS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2, "chunks": (10, 6)},
    "v2 F": {"zarr_format": 2, "chunks": (10, 6), "order": "F"},
    "v2 nested": {"zarr_format": 2, "chunks": (10, 6), "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3": {"chunks": (10, 6)},
    "v3 dots": {"chunks": (10, 6), "chunk_key_encoding": {"name": "default", "separator": "."}},
    "v3 as v2": {"chunks": (10, 6), "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "shards": {"chunks": (10, 5), "shards": (20, 10)},
    "transposed": {"chunks": (10, 6), "filters": [TransposeCodec(order=(1, 0))]},
}
DTYPES = ["i4", ">f8", "bool", "c8", "M8[s]", "m8[ms]", "U5", "S3", "u1", "f2"]
BASIC: list[Any] = [
    np.s_[...],
    np.s_[3:30, 5],
    np.s_[::3, 2:20:2],
    np.s_[36],
    np.s_[5, 6],
    np.s_[-1, :],
    np.s_[0:0],
    np.s_[11:12, 7:8],
    np.s_[:, ::25],
]
ORTHOGONAL: list[Any] = [
    ([1, 30, 2], slice(2, 9)),
    ([1, 5, 30], [2, 3]),
    (slice(None, None, 5), np.arange(SHAPE[1]) % 3 == 0),
    (5, [3, 1, 20]),
    ([4, 4, 36], 22),
    (np.arange(SHAPE[0]) > 35, [0]),
]


def expected(data: Values, selection: tuple[Any, Any]) -> Values:
    """Return what an orthogonal selection of ``data`` is."""
    indices = [
        np.arange(length)[index] if not isinstance(index, int) else np.array([index])
        for index, length in zip(selection, data.shape, strict=True)
    ]
    dropped = tuple(i for i, index in enumerate(selection) if isinstance(index, int))
    return data[np.ix_(*indices)].squeeze(axis=dropped)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return zarr.storage.MemoryStore() if request.param == "memory" else zarr.storage.LocalStore(tmp_path)


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    with config.set({"gzarr.strict": True}):
        yield


# -- the same elements


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reading(store: Any, layout: str, dtype: str) -> None:
    data = elements(dtype)
    written = zarr.create_array(store, name="group/a", data=data, **LAYOUTS[layout])
    written = zarr.open_array(store, path="group/a")
    array = opened(written)
    for selection in BASIC:
        np.testing.assert_array_equal(array[selection], data[selection])
        assert type(array[selection]) is type(written[selection])
    for selection in ORTHOGONAL:
        np.testing.assert_array_equal(array.oindex[selection], expected(data, selection))
    points = ([1, 36, 20, 1, 0], [0, 3, 22, 5, 22])
    np.testing.assert_array_equal(array.vindex[points], data[points])
    mask = np.random.default_rng(1).random(SHAPE) < 0.2
    np.testing.assert_array_equal(array.get_mask_selection(mask), data[mask])
    np.testing.assert_array_equal(array.blocks[1, :2], written.blocks[1, :2])
    assert array[...].dtype == written[...].dtype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_writing(store: Any, layout: str, dtype: str) -> None:
    old, new = elements(dtype), elements(dtype, 1)
    other = zarr.create_array(store, name="group/a", data=old, **LAYOUTS[layout])
    array = opened(other)
    data = old.copy()
    for selection in BASIC:
        array[selection] = new[::-1, ::-1][selection]
        data[selection] = new[::-1, ::-1][selection]
        np.testing.assert_array_equal(other[...], data)
    for selection in ORTHOGONAL[:4]:
        value = expected(new, selection)
        array.oindex[selection] = value
        indices = np.ix_(*[np.atleast_1d(np.arange(n)[index]) for n, index in zip(SHAPE, selection, strict=True)])
        data[indices] = value.reshape(data[indices].shape)
        np.testing.assert_array_equal(other[...], data)
    points = ([1, 36, 20, 0], [0, 3, 22, 22])
    array.vindex[points] = new[:4, 0]
    data[points] = new[:4, 0]
    array[2:5, 3] = new[0, 0]
    data[2:5, 3] = new[0, 0]
    np.testing.assert_array_equal(other[...], data)


@pytest.mark.parametrize(
    "compressors",
    [None, GzipCodec(), ZstdCodec(), [BloscCodec(cname="lz4"), Crc32cCodec()]],
    ids=["none", "gzip", "zstd", "blosc and crc32c"],
)
def test_codecs(store: Any, compressors: Any) -> None:
    data = elements(">i4")
    other = zarr.create_array(
        store, data=data, chunks=(10, 6), serializer=BytesCodec(endian="big"), compressors=compressors
    )
    array = opened(other)
    np.testing.assert_array_equal(array[...], data)
    array[5:] = data[:-5]
    np.testing.assert_array_equal(other[5:], data[:-5])


def object_store(tmp_path: Path) -> Any:
    return zarr.storage.ObjectStore(obstore.store.MemoryStore())


def local_object_store(tmp_path: Path) -> Any:
    return zarr.storage.ObjectStore(obstore.store.LocalStore(tmp_path))


def fsspec_store(tmp_path: Path) -> Any:
    return zarr.storage.FsspecStore.from_url(f"memory://{tmp_path}")


@pytest.mark.parametrize("make", [object_store, local_object_store, fsspec_store])
def test_other_stores(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    data = elements("f4")
    other = zarr.create_array(make(tmp_path), name="a", data=data, chunks=(10, 6))
    array = opened(other)
    for selection in BASIC:
        np.testing.assert_array_equal(array[selection], data[selection])
    array[3:15, 4] = data[5, 5]
    data[3:15, 4] = data[5, 5]
    np.testing.assert_array_equal(other[...], data)
    async_array = array._async_array
    source: Any = async_array.codec_pipeline._source  # type: ignore[attr-defined]
    statuses = ours._Statuses(source._place(), tuple((async_array.store_path / f"c/{i}/0").path for i in (0, 9)))
    assert [status["status"] for status in statuses] == ["present", "missing"]


def test_no_dimensions(store: Any) -> None:
    for layout in ({}, {"zarr_format": 2}):
        other = zarr.create_array(store, shape=(), dtype="f4", fill_value=3, overwrite=True, **layout)
        array = opened(other)
        assert array[()] == 3
        array[...] = 5
        assert array[()] == other[()] == 5
        assert array[...].shape == other[...].shape


def test_empty_chunks(store: Any) -> None:
    other = zarr.create_array(store, shape=SHAPE, chunks=(10, 6), dtype="i4", fill_value=7)
    array = opened(other)
    array[...] = 7
    assert array.nchunks_initialized == 0
    with config.set({"array.write_empty_chunks": True}):
        full = opened(other)
    full[...] = 7
    assert full.nchunks_initialized == 16


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_array(data: st.DataObject) -> None:
    with config.set({"gzarr.strict": False}), ours.enable():
        array = data.draw(zst.arrays(compressors=zst.compressors))
        whole = array[...]
        if array.ndim and array.size:
            selection = data.draw(zst.basic_indices(shape=array.shape))
            np.testing.assert_array_equal(array[selection], whole[selection])
            outer, inner = data.draw(zst.orthogonal_indices(shape=array.shape))
            np.testing.assert_array_equal(array.oindex[outer], whole[inner])
        other = zarr.open_array(array.store, path=array.path, mode="r")
        np.testing.assert_array_equal(other[...], whole)


# -- arrays that change


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resized_arrays(store: Any, layout: str) -> None:
    """An array keeps its pipeline, which knows of no new shape."""
    data, more = elements("i4"), elements("i4", 1)
    other = zarr.create_array(store, data=data, **LAYOUTS[layout])
    array = opened(other)
    array.append(more)
    joined = np.concatenate([data, more])
    np.testing.assert_array_equal(array[...], joined)
    # The first row of this selection is in a chunk that the old array ended in.
    array[37:39] = 5
    joined[37:39] = 5
    np.testing.assert_array_equal(array[...], joined)
    array.resize((12, 30))
    array[10:12, 22:] = 6
    cut = np.zeros((12, 30), "i4")
    cut[:, :23] = joined[:12]
    cut[10:12, 22:] = 6
    np.testing.assert_array_equal(array[...], cut)
    np.testing.assert_array_equal(zarr.open_array(store)[...], cut)


def test_many_threads(store: Any) -> None:
    data = np.arange(400 * 30, dtype="i4").reshape(400, 30)
    array = opened(zarr.create_array(store, shape=data.shape, chunks=(7, 30), dtype="i4"))

    def work(i: int) -> None:
        rows = slice(7 * i, 7 * i + 7)
        array[rows] = data[rows]
        np.testing.assert_array_equal(array[rows], data[rows])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(57)))
    np.testing.assert_array_equal(array[:399], data[:399])


def test_moved_stores(tmp_path: Path) -> None:
    store = zarr.storage.LocalStore(tmp_path / "a")
    array = opened(zarr.create_array(store, data=elements("i4"), chunks=(10, 6)))
    np.testing.assert_array_equal(array[...], elements("i4"))
    moved = tmp_path / "b"
    (tmp_path / "a").rename(moved)
    # What zarr-python's own move() does.
    array.store.root = moved  # type: ignore[attr-defined]
    np.testing.assert_array_equal(array[...], elements("i4"))
    array[0] = 1
    assert (zarr.open_array(moved)[0] == 1).all()


def test_shards_keep_what_is_behind_the_end(store: Any) -> None:
    array = opened(zarr.create_array(store, shape=(4,), chunks=(2,), shards=(4,), dtype="i2"))
    array[:] = [1, 2, 3, 4]
    array.resize((2,))
    array[:] = [9, 9]
    array.resize((4,))
    np.testing.assert_array_equal(array[:], [9, 9, 3, 4])


def test_results_of_other_layouts(store: Any) -> None:
    """Results in Fortran order, and buffers of the caller."""
    data = elements("f8")
    array = opened(zarr.create_array(store, data=data, chunks=(10, 6), zarr_format=2, order="F"))
    result: Any = array[3:30]
    assert result.flags.f_contiguous
    np.testing.assert_array_equal(result, data[3:30])
    memory = np.zeros((54, 46))
    target = memory[::2, ::2]
    buffer = cpu.buffer_prototype.nd_buffer.from_ndarray_like(target)
    array.get_basic_selection(np.s_[3:30], out=buffer)
    np.testing.assert_array_equal(target, data[3:30])
    assert not memory[1::2].any()
    assert not memory[:, 1::2].any()


def test_times_without_a_unit(store: Any) -> None:
    """NumPy takes both byte orders for the same, so these are zarr-python's: the same bits as without gzarr."""
    data = np.arange(10).astype(">i8").view(">m8")
    other = zarr.create_array(store, data=data, chunks=5, zarr_format=2)
    array = opened(other)

    def bits(array: Any) -> bytes:
        result: Any = array[...]
        return bytes(result.view(result.dtype.byteorder + "i8").astype("i8"))

    with config.set({"gzarr.strict": False}):
        assert bits(array) == bits(zarr.open_array(store)) == bytes(np.arange(10))
        other[...] = data[::-1]
        wanted = bits(other)
        other[...] = data
        array[...] = data[::-1]
        assert bits(other) == wanted


def test_many_requests_at_once(tmp_path: Path) -> None:
    """Requests that wait for each other's loop run in other threads, with the same results."""
    data = np.arange(64 * 30, dtype="i4").reshape(64, 30)
    array = opened(zarr.create_array(tmp_path, data=data, chunks=(4, 30)))

    async def rows() -> list[Any]:
        work = array._async_array
        return await asyncio.gather(*[work.getitem(slice(i, i + 5)) for i in range(59)])

    for i, result in enumerate(sync(rows())):
        np.testing.assert_array_equal(result, data[i : i + 5])


def test_small_batches_take_no_other_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shards, only the inner chunks that are read count."""
    monkeypatch.setattr("gzarr.integrations.zarr._QUICK_NBYTES", 1 << 20)
    data = np.arange(1000 * 1000, dtype="f8").reshape(1000, 1000)
    array = opened(zarr.create_array(tmp_path / "a", data=data, chunks=(50, 50), shards=(500, 500)))
    small = opened(zarr.create_array(tmp_path / "b", data=data, chunks=(50, 50)))
    sizes: list[int] = []

    async def to_thread(function: Any, entries: Any, *arguments: Any) -> Any:
        sizes.append(len(entries))
        return function(entries, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    np.testing.assert_array_equal(array[3:5, 4], data[3:5, 4])
    np.testing.assert_array_equal(array[:, 4], data[:, 4])
    assert sizes == []
    np.testing.assert_array_equal(array[:, :400], data[:, :400])
    assert sizes == [2]
    array[3:5, 4] = 0
    assert sizes == [2, 1]
    small[3:5, 4] = 0
    assert (np.asarray(small[3:5, 4]) == 0).all()
    assert sizes == [2, 1]


# -- what is not gzarr's


class Subclass(zarr.storage.MemoryStore):
    pass


def test_what_gzarr_does_not_do(tmp_path: Path) -> None:
    data = elements("i4")
    store = Subclass()
    other = zarr.create_array(store, data=data, chunks=(10, 6))
    array = opened(other)
    with pytest.raises(gzarr.UnsupportedError, match=r"the store is a .*Subclass"):
        array[...]
    with pytest.raises(gzarr.UnsupportedError, match=r"the store is a .*Subclass"):
        array[...] = 1
    with config.set({"gzarr.strict": False}):
        np.testing.assert_array_equal(array[...], data)
        array[...] = data + 1
    np.testing.assert_array_equal(other[...], data + 1)


class Codec(GzipCodec):
    """A codec of someone else, in the place of zarr-python's."""


def test_replaced_codecs(store: Any) -> None:
    array = zarr.create_array(store, data=elements("i4"), chunks=(10, 6), compressors=Codec())
    with ours.enable():
        made = zarr.AsyncArray(array.metadata, array.store_path)
    with pytest.raises(gzarr.UnsupportedError, match=r"Codec is another package's codec"):
        zarr.Array(made)[...]
    with config.set({"gzarr.strict": False}):
        np.testing.assert_array_equal(zarr.Array(made)[...], elements("i4"))


@pytest.mark.skipif(not hasattr(ShardingCodec, "subchunk_write_order"), reason="zarr-python before 3.4 has one order")
def test_orders_of_inner_chunks(store: Any) -> None:
    codec = ShardingCodec(chunk_shape=(5, 3), subchunk_write_order="colexicographic")
    other = zarr.create_array(
        store, shape=(20, 12), chunks=(10, 6), dtype="i4", serializer=codec, compressors=None, filters=None
    )
    with ours.enable():
        array = zarr.Array(zarr.AsyncArray(other.metadata, other.store_path))
    with pytest.raises(gzarr.UnsupportedError, match="colexicographic order"):
        array[...] = 1
    with config.set({"gzarr.strict": False}):
        array[...] = 1
    assert (np.asarray(array[...]) == 1).all()


@pytest.mark.skipif(not hasattr(zarr.errors, "ChunkNotFoundError"), reason="zarr-python before 3.4 cannot refuse them")
@pytest.mark.parametrize("is_missing", [False, True])
def test_absent_chunks_as_errors(store: Any, is_missing: bool) -> None:
    other = zarr.create_array(store, shape=20, chunks=5, dtype="i4", fill_value=3)
    other[: 10 if is_missing else 20] = 1
    with config.set({"gzarr.strict": False, "array.read_missing_chunks": False}):
        array = opened(other, strict=False)
        if not is_missing:
            np.testing.assert_array_equal(array[...], other[...])
            return
        with pytest.raises(zarr.errors.ChunkNotFoundError, match="2 chunk"):
            array[...]
        with config.set({"gzarr.strict": True}), pytest.raises(gzarr.UnsupportedError, match="absent chunks"):
            array[...]


def test_statuses(store: Any) -> None:
    other = zarr.create_array(store, shape=20, chunks=5, dtype="i4")
    other[5:12] = 1
    array = opened(other)._async_array
    out = cpu.buffer_prototype.nd_buffer.create(shape=(20,), dtype=np.dtype("i4"))
    spec = ArraySpec((5,), other._async_array._zdtype, 0, array._config, cpu.buffer_prototype)
    entries = [(array.store_path / f"c/{i}", spec, (slice(0, 5),), (slice(5 * i, 5 * i + 5),), True) for i in range(4)]
    statuses = sync(array.codec_pipeline.read(entries, out))
    assert [status["status"] for status in statuses] == ["missing", "present", "present", "missing"]
    assert [status["status"] for status in statuses[1:3]] == ["present", "present"]


def test_archives(tmp_path: Path) -> None:
    """Archives that are being written are zarr-python's, others are read by gzarr."""
    data = elements("i4")
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        array = opened(zarr.create_array(store, name="a", data=data, chunks=(10, 6)))
        with pytest.raises(gzarr.UnsupportedError, match=r"the store is a .*ZipStore"):
            array[...]
        with config.set({"gzarr.strict": False}):
            np.testing.assert_array_equal(array[...], data)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="r") as store:
        array = opened(zarr.open_array(store, path="a", mode="r"), mode="r")
        for selection in BASIC:
            np.testing.assert_array_equal(array[selection], data[selection])


def test_read_only(tmp_path: Path) -> None:
    other = zarr.create_array(tmp_path, data=elements("i4"), chunks=(10, 6))
    array = opened(other, strict=False, mode="r")
    with config.set({"gzarr.strict": False}), pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    np.testing.assert_array_equal(array[...], elements("i4"))


def test_damaged_chunks(tmp_path: Path) -> None:
    """Without strict, errors are zarr-python's own."""
    other = zarr.create_array(tmp_path, data=elements("i4"), chunks=(10, 6), compressors=GzipCodec())
    (tmp_path / "c/1/1").write_bytes(b"\x1f\x8bno")
    array = opened(other)
    with pytest.raises(gzarr.ChunkDecodeError, match="c/1/1"):
        array[...]
    with config.set({"gzarr.strict": False}):
        with pytest.raises(Exception, match=r".") as caught:
            array[...]
        with pytest.raises(type(caught.value)):
            other[...]
        assert not isinstance(caught.value, gzarr.GzarrError)
        np.testing.assert_array_equal(array[:10], elements("i4")[:10])


def test_fields(store: Any) -> None:
    dtype = np.dtype([("a", "i4"), ("b", "f8")])
    data = np.zeros((20, 5), dtype)
    data["a"] = np.arange(100).reshape(20, 5)
    other = zarr.create_array(store, data=data, chunks=(7, 2), zarr_format=2)
    array = opened(other)
    np.testing.assert_array_equal(array[3:9], data[3:9])
    array[2:4] = data[10:12]
    data[2:4] = data[10:12]
    np.testing.assert_array_equal(other[...], data)
    # zarr-python has no reading of single fields that works.
    with pytest.raises(gzarr.UnsupportedError, match=r"the buffer is of int32, the array of \["):
        array.get_basic_selection(np.s_[3:9], fields="a")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_strings(store: Any, zarr_format: int) -> None:
    data = np.array(["a", "bcd", "", "ü" * 40] * 5, dtype=np.dtypes.StringDType())
    other = zarr.create_array(store, shape=20, chunks=6, dtype=data.dtype, zarr_format=zarr_format)
    array = opened(other)
    with config.set({"gzarr.strict": False}):
        array[...] = data
        np.testing.assert_array_equal(array[...], other[...])
        np.testing.assert_array_equal(array[...], data)


@pytest.mark.parametrize("shape", [(10,), (12,)])
def test_damaged_shards_are_replaced(shape: tuple[int], tmp_path: Path) -> None:
    """By a write of everything, whether the array ends with a shard or not."""
    data = np.arange(shape[0], dtype="i2")
    plain = zarr.create_array(tmp_path / "x", data=data, chunks=(2,), shards=(4,))
    for shard in (tmp_path / "x/c").iterdir():
        shard.write_bytes(shard.read_bytes()[:-3])
    opened(plain)[...] = data + 1
    np.testing.assert_array_equal(plain[...], data + 1)
