"""Writing: the result is the same as with NumPy, read back by gzarr and by zarr-python; and refused writes."""

from __future__ import annotations

import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import zarr_arrays as z

import gzarr
from gzarr.arrays.casting import _check_same
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SHAPE, CHUNKS = (20, 13, 7), (6, 5, 7)


def writable(path: Path | MemoryStore, **options: Any) -> gzarr.Array:
    """Return an array created by zarr-python, to be changed by gzarr."""
    opened = gzarr.open_array(path, device="cpu")
    store = path if isinstance(path, MemoryStore) else LocalStore(path)
    return gzarr.Array(opened.metadata, store, opened.path, device="cpu", mode="r+", **options)


def make(path: Path, **options: Any) -> gzarr.Array:
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": "i4", "fill_value": 7, **options}
    zarr.create_array(path, **options)
    return writable(path)


def check(array: gzarr.Array, path: Path, expected: np.ndarray[Any, Any]) -> None:
    z.same(array[...], expected)
    z.same(gzarr.open_array(path, device="cpu")[...], expected)
    theirs = np.asarray(zarr.open_array(path, mode="r")[...])
    z.same(theirs.astype(theirs.dtype.newbyteorder("=")), expected)


LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {},
    "v3 sharded": {"chunks": (3, 5, 7), "shards": (12, 10, 7)},
    "v3 raw": {"compressors": None},
    "v3 blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "v3 crc": {"compressors": [zarr.codecs.GzipCodec(level=1), zarr.codecs.Crc32cCodec()]},
    "v3 transposed": {"filters": zarr.codecs.TransposeCodec(order=(2, 0, 1))},
    "v3 big": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "v2": {"zarr_format": 2},
    "v2 F": {"zarr_format": 2, "order": "F", "compressors": numcodecs.Blosc("zstd", 3, 1)},
    "v2 big": {"zarr_format": 2, "dtype": ">i4", "compressors": numcodecs.LZ4()},
    "v2 filters": {"zarr_format": 2, "filters": [numcodecs.Delta("<i4")], "compressors": numcodecs.Zlib(1)},
}
WRITES: list[tuple[Any, Any]] = [
    (..., 3),
    (np.s_[2:19:5], np.arange(4 * 13 * 7).reshape(4, 13, 7)),
    (np.s_[::-1, 4, ::-2], np.arange(20 * 4).reshape(20, 4)),
    (np.s_[:, None, :, 0], np.arange(20 * 13).reshape(20, 1, 13)),
    (np.s_[5], np.arange(7)),
    (np.s_[-1, -1, -1], -5),
    (np.s_[6:12, 5:10], np.arange(7, dtype="u1")),
    (np.s_[3:3], 99),
    (np.s_[[1, 19, 1, 0]], np.arange(4).reshape(4, 1, 1)),
    (np.s_[:, [12, 0], 3], np.arange(40).reshape(20, 2)),
    (np.s_[0:20], np.int64(7)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_are_numpy_s(layout: str, tmp_path: Path) -> None:
    array = make(tmp_path, **LAYOUTS[layout])
    expected = np.full(SHAPE, 7, "i4")
    for selection, value in WRITES:
        array[selection] = value
        expected[selection] = value
        check(array, tmp_path, expected)
    rows, columns, depths = [19, 0, 7, 7], [12, 0, 5], [6, 2]
    for value in (np.arange(24).reshape(4, 3, 2), 5):
        array.oindex[rows, columns, depths] = value
        expected[np.ix_(rows, columns, depths)] = value
        check(array, tmp_path, expected)
    points = ([3, 19, 3], [1, 12, 1], [0, 6, 0])
    array.vindex[points] = [10, 11, 12]
    expected[points] = [10, 11, 12]
    check(array, tmp_path, expected)
    mask = expected % 3 == 1
    array.vindex[mask] = np.arange(mask.sum())
    expected[mask] = np.arange(mask.sum())
    check(array, tmp_path, expected)
    array.blocks[1, 0] = 77
    block = array.metadata.chunk_shape
    expected[block[0] : 2 * block[0], : block[1]] = 77
    check(array, tmp_path, expected)
    windows = [np.s_[0:8], np.s_[5:9], np.s_[19:20, 1:3]]
    values = [np.full((8, 13, 7), 1), np.full((4, 13, 7), 2), np.full((1, 2, 7), 3)]
    array.write_many(windows, values)
    for window, value in zip(windows, values, strict=True):
        expected[window] = value
    check(array, tmp_path, expected)


@pytest.mark.parametrize("layout", ["v3", "v3 sharded", "v2"])
def test_chunks_of_the_fill_value_are_not_stored(layout: str, tmp_path: Path) -> None:
    array = make(tmp_path, **LAYOUTS[layout])
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    array[...] = 7
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == before
    array[0, 0, 0] = 1
    assert array.nchunks_initialized == (8 if array.shards else 1)
    array[0, 0, 0] = 7
    assert array.nchunks_initialized == 0
    kept = writable(tmp_path, write_empty_chunks=True)
    kept[...] = 7
    assert kept.nchunks_initialized == kept.nchunks
    check(kept, tmp_path, np.full(SHAPE, 7, "i4"))
    array[...] = 7
    assert array.nchunks_initialized == 0


@pytest.mark.parametrize("name", ["float32", "float64", "complex64"])
def test_fill_values_are_compared_bit_for_bit(name: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=(6,), chunks=(2,), dtype=name, fill_value=0)
    array = writable(tmp_path)
    array[:2], array[2:4], array[4:] = 0.0, -0.0, np.nan
    assert array.nchunks_initialized == 2
    assert np.signbit(zarr.open_array(tmp_path)[2:4].real).all()


def test_inner_chunks_that_are_not_touched_keep_their_bytes(tmp_path: Path) -> None:
    array = make(tmp_path, chunks=(3, 5, 7), shards=(12, 10, 7))
    data = np.random.default_rng(0).integers(0, 100, SHAPE).astype("i4")
    array[...] = data
    file = tmp_path / "c" / "0" / "0" / "0"
    before = file.read_bytes()
    index = np.frombuffer(before[-4 - 8 * 16 : -4], "<u8").reshape(-1, 2)
    array[0, 0, 0] = 1
    data[0, 0, 0] = 1
    after = file.read_bytes()
    again = np.frombuffer(after[-4 - 8 * 16 : -4], "<u8").reshape(-1, 2)
    for (offset, nbytes), (now, size) in zip(index[1:].tolist(), again[1:].tolist(), strict=True):
        assert before[offset : offset + nbytes] == after[now : now + size]
    # An inner chunk that cannot be decoded is in nobody's way but its own.
    broken = bytearray(after)
    offset, nbytes = again[3].tolist()
    broken[offset : offset + nbytes] = b"\xff" * nbytes
    file.write_bytes(broken)
    array[0, 0, 1] = 2
    with pytest.raises(gzarr.ChunkDecodeError, match=r"changes only part.*decoded") as caught:
        array[4, 6, 0] = 2
    assert caught.value.key == "c/0/0/0"


@pytest.mark.parametrize("at", ["start", "end"])
def test_shards_as_zarr_python_has_them(at: str, tmp_path: Path) -> None:
    config = {"shape": (12, 10, 7), "index_location": at}
    array = make(tmp_path, chunks=(3, 5, 7), shards=config)
    expected = np.full(SHAPE, 7, "i4")
    expected[1:11, 3:9] = np.arange(7)
    array[1:11, 3:9] = np.arange(7)
    check(array, tmp_path, expected)
    other = zarr.open_array(tmp_path, mode="r+")
    other[10:15] = 4
    expected[10:15] = 4
    array[14:16] = 5
    expected[14:16] = 5
    check(array, tmp_path, expected)


def test_shards_in_shards(tmp_path: Path) -> None:
    inner = z.shard([2, 5], [z.LITTLE, z.codec("zstd", level=1, checksum=False)])
    document = z.v3((20, 10), (8, 10), "int32", [z.shard([4, 5], [inner])])
    expected = np.zeros((20, 10), "i4")
    z.write(tmp_path, document, expected)
    array = writable(tmp_path)
    array[3:17, 2:9] = 5
    expected[3:17, 2:9] = 5
    z.same(array[...], expected)
    z.same(gzarr.open_array(tmp_path)[...], expected)


def test_fields_strings_and_other_types(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "<i2"), ("b", "<f8"), ("c", "S3")])
    zarr.create_array(tmp_path / "r", shape=(10,), chunks=(4,), dtype=dtype, zarr_format=2, fill_value=None)
    records = writable(tmp_path / "r")
    expected = np.zeros(10, dtype)
    for name, selection, value in (("a", np.s_[2:7], np.arange(5)), ("b", np.s_[::3], 0.5), ("c", np.s_[9], b"xyz")):
        records[(*np.index_exp[selection], name)] = value
        expected[name][selection] = value
    records[0] = (1, 2.0, b"q")
    expected[0] = (1, 2.0, b"q")
    check(records, tmp_path / "r", expected)
    for name, values in (
        ("U4", np.array(["a", "täxt", "", "xyz"])),
        ("M8[s]", np.array(["2020-01-01", "NaT", "1969-12-31T23:59:59", "1970-01-01"], "M8[s]")),
        ("?", np.array([True, False, True, True])),
        ("float16", np.array([1, 0.5, np.inf, -2], "f2")),
    ):
        path = tmp_path / name.replace("?", "bool")
        zarr.create_array(path, shape=(4,), chunks=(3,), dtype=name, zarr_format=2, fill_value=None)
        array = writable(path)
        array[...] = values
        check(array, path, values.astype(name))
    zarr.create_array(tmp_path / "s", shape=(5,), chunks=(2,), dtype="string")
    texts = writable(tmp_path / "s")
    texts[1:4] = ["ä", "", "long" * 100]
    texts[4] = "one"
    assert texts[...].tolist() == ["", "ä", "", "long" * 100, "one"]
    assert zarr.open_array(tmp_path / "s")[...].tolist() == texts[...].tolist()


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("u1", 256, "256.*uint8"),
        ("u1", -1, "-1.*uint8"),
        ("i8", np.array([2**63], "u8"), "9223372036854775808"),
        ("u8", np.array([-1]), "-1"),
        ("i4", 0.5, "0.5"),
        ("i4", np.nan, "nan"),
        ("i4", [1, 2.5], "2.5"),
        ("f4", 1e39, "out of the range"),
        ("f2", np.array([70000.0]), "out of the range"),
        ("f8", 1 + 2j, "1"),
        ("?", 2, "2"),
        ("i4", "text", "not elements"),
        ("i4", None, "not elements|NoneType"),
        ("i4", [[1, 2], [3]], "not elements"),
        ("i4", 10**30, "out of the range"),
        ("S2", b"abc", "longer"),
        ("U2", "abc", "longer"),
        ("M8[D]", np.datetime64("2020-01-01T12"), "cannot be stored"),
        ("i4", np.zeros(3, "i4"), r"\(3,\) does not broadcast to \(4,\)"),
        ("i4", np.zeros((2, 4), "i4"), "broadcast"),
    ],
)
def test_nothing_is_lost_silently(dtype: str, value: Any, message: str, tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=(4,), chunks=(2,), dtype=dtype, zarr_format=2, fill_value=None)
    array = writable(tmp_path)
    with pytest.raises(gzarr.ArgumentError, match=message):
        array[...] = value
    assert array.nchunks_initialized == 0


def test_values_that_fit(tmp_path: Path) -> None:
    zarr.create_array(tmp_path, shape=(4,), chunks=(2,), dtype="f4")
    array = writable(tmp_path)
    for value in (
        True, 3, 2.5, np.float64(1 / 3), np.array([[1, 2, 3, 4]], "i8"), [1, 2, 3, 4.5], range(4),
        memoryview(b"abcd"), np.arange(4, dtype=">i2"), array,
    ):  # fmt: skip
        array[...] = value
        given_elements = np.asarray(value)
        z.same(array[...], np.broadcast_to(given_elements.reshape(given_elements.shape[-1:]), 4).astype("f4"))
    array[1:] = array[:-1]
    array[:0] = []


def test_read_only(tmp_path: Path) -> None:
    make(tmp_path)
    before = sorted(p for p in tmp_path.rglob("*"))
    reading = gzarr.open_array(tmp_path)
    store = LocalStore(tmp_path, read_only=True)
    for array in (reading, gzarr.Array(reading.metadata, store, "", mode="r+")):
        assert array.read_only
        for change in (
            lambda a=array: a.__setitem__(..., 1),
            lambda a=array: a.oindex.__setitem__((0,), 1),
            lambda a=array: a.write_many([...], [1]),
            # Before the value is looked at.
            lambda a=array: a.write("nonsense", object()),
        ):
            with pytest.raises(gzarr.ReadOnlyError, match=r"mode='r\+'"):
                change()
    assert sorted(p for p in tmp_path.rglob("*")) == before
    copied = pickle.loads(pickle.dumps(writable(tmp_path)))
    assert not copied.read_only
    copied[0] = 1


def test_aligned(tmp_path: Path) -> None:
    for options, good, bad in (
        ({}, [..., np.s_[6:18, 5:], np.s_[18:], np.s_[0:0]], [np.s_[5:12], np.s_[0], np.s_[::2], np.s_[[0, 1]]]),
        (
            {"chunks": (3, 5, 7), "shards": (12, 10, 7)},
            [..., np.s_[12:], np.s_[:12, 10:]],
            [np.s_[3:6], np.s_[:12, :5], np.s_[0:9]],
        ),
    ):
        array = make(tmp_path / str(len(options)), **options)
        for selection in good:
            array.write(selection, 1, aligned=True)
        before = array[...]
        for selection in bad:
            with pytest.raises(gzarr.ArgumentError, match=r"'c/0.*in part.*multiples of"):
                array.write(selection, 2, aligned=True)
        z.same(array[...], before)


class FailingStore(MemoryStore):
    """A store that fails to write some keys."""

    broken: Iterable[str] = ()
    unreadable: Iterable[str] = ()

    def set(self, key: str, value: bytes) -> None:
        if key in self.broken:
            raise OSError(28, "No space left on device")
        super().set(key, value)

    def get(self, key: str) -> bytes | None:
        if key in self.unreadable:
            raise TimeoutError("took too long")
        return super().get(key)


def test_failures_name_the_chunk_and_keep_the_old_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "1")
    store = FailingStore()
    memory = zarr.storage.MemoryStore()
    zarr.create_array(memory, shape=(8,), chunks=(2,), dtype="i4", name="a")
    for key, value in memory._store_dict.items():
        store.set(key, value.to_bytes())
    opened = gzarr.open_array(store, path="a", device="cpu")
    array = gzarr.Array(opened.metadata, store, "a", device="cpu", mode="r+")
    array[...] = np.arange(8)
    store.broken = ("a/c/2",)
    with pytest.raises(gzarr.ChunkWriteError, match=r"No space left.*; 2 of 4 stored values were written") as caught:
        array[...] = 5
    assert (caught.value.node, caught.value.chunk, caught.value.key) == ("/a", (2,), "a/c/2")
    z.same(array[...], np.array([5, 5, 5, 5, 4, 5, 6, 7], "i4"))
    store.broken, store.unreadable = (), ("a/c/3",)
    with pytest.raises(gzarr.ChunkReadError, match=r"chunk \(3,\).*changes only part.*took too long"):
        array[7] = 0
    array[6:] = 0
    store.unreadable = ()
    z.same(array[6:], np.zeros(2, "i4"))
    store.mapping["a/c/0"] = b"garbage"
    with pytest.raises(gzarr.ChunkDecodeError, match=r"chunk \(0,\)"):
        array[0] = 1
    assert store.mapping["a/c/0"] == b"garbage"


@pytest.mark.parametrize("sharded", [False, True])
def test_threads_that_share_chunks_lose_nothing(sharded: bool, tmp_path: Path) -> None:
    zarr.create_array(
        tmp_path, shape=(240,), chunks=(8,) if sharded else (120,), shards=(120,) if sharded else None, dtype="i4"
    )
    n = 12
    arrays = [writable(tmp_path) for _ in range(3)]
    barrier = threading.Barrier(n)

    def run(i: int) -> None:
        barrier.wait()
        # Neighbours and interleaved elements, through different Array objects.
        for k in range(i, 240, n):
            arrays[i % 3][k] = k + 1

    with ThreadPoolExecutor(n) as pool:
        list(pool.map(run, range(n)))
    z.same(arrays[0][...], np.arange(1, 241, dtype="i4"))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_sequence_of_writes(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(0, 3))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(ndim))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in range(ndim))
    shards = tuple(c * data.draw(st.integers(1, 3)) for c in chunks) if data.draw(st.booleans()) else None
    memory = zarr.storage.MemoryStore()
    kwargs: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": "i2", "fill_value": 1}
    zarr.create_array(memory, shards=shards, **kwargs)
    store = MemoryStore()
    for key, value in memory._store_dict.items():
        store.set(key, value.to_bytes())
    array = writable(store, write_empty_chunks=data.draw(st.booleans()))
    expected = np.full(shape, 1, "i2")
    for step in range(data.draw(st.integers(1, 5))):
        index = tuple(data.draw(st.slices(n) | st.integers(-n, n - 1)) for n in shape)
        count = data.draw(st.integers(0, ndim))
        index = (*index[:count], ...) if count < ndim else index
        value: Any = np.arange(expected[index].size).reshape(expected[index].shape) % 4 + step
        if data.draw(st.booleans()):
            value = data.draw(st.integers(0, 2))
        array[index] = value
        expected[index] = value
        z.same(array[...], expected)


@pytest.mark.parametrize("bits", [63, 64])
def test_processors_that_give_the_largest_integer(bits: int) -> None:
    """For numbers that are too large, as those of Arm do: as a floating-point number, it is equal to the first one."""
    dtype = np.dtype("i8" if bits == 63 else "u8")
    for kind in ("f4", "f8", "g"):
        fits = np.array([np.nextafter(np.array(2.0**bits, "f4"), np.array(0, "f4")), 0], kind)
        _check_same(fits, fits.astype(dtype), dtype, "/")
        with pytest.raises(gzarr.ArgumentError, match="cannot be stored"):
            _check_same(np.array([2.0**bits], kind), np.array([np.iinfo(dtype).max]), dtype, "/")


@pytest.mark.parametrize(
    ("zarr_format", "dtype"), [(1, "f4"), (2, "f4"), (2, ">i2"), (2, [("a", "u1"), ("b", "M8[s]")]), (2, object)]
)
def test_without_a_fill_value_all_chunks_are_stored(zarr_format: Any, dtype: Any) -> None:
    """The document says nothing of absent chunks: elsewhere, these may be anything."""
    codec: dict[str, Any] = {"filters": [numcodecs.JSON()]} if dtype is object else {}
    store: dict[str, Any] = {}
    zeros = np.zeros(6, dtype)
    gzarr.create_array(store, shape=6, chunks=2, dtype=dtype, zarr_format=zarr_format, device="cpu", **codec)
    name = ".zarray" if zarr_format == 2 else "meta"
    store[name] = json.dumps({**json.loads(bytes(store[name])), "fill_value": None}).encode()
    array = gzarr.open_array(store, mode="r+", device="cpu")
    assert array.write_empty_chunks
    array[:2] = array[2:4] = zeros[:2]
    array.write_many([slice(4, 6)], [zeros[:2]])
    assert array.nchunks_initialized == 3
    # What is asked for is done.
    asked = gzarr.Array(array.metadata, array.store, "", device="cpu", mode="r+", write_empty_chunks=False)
    asked[:3] = zeros[:3]
    assert asked.nchunks_initialized == 1
    # As in JavaScript, where null of version 3 is zero.
    new = {**z.v3((4,), (2,), "int16", [z.LITTLE], 0), "fill_value": None}
    third = gzarr.open_array(MemoryStore({"zarr.json": json.dumps(new).encode()}), mode="r+", device="cpu")
    third[...] = 0
    assert third.nchunks_initialized == 0
