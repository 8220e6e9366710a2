"""The interface of arrays against zarr-python's, and costs of a read: Python calls, blocks, bytes, decoded chunks."""

from __future__ import annotations

import gc
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.zarr_arrays import BIG, CRC32C, LITTLE, blosc3, codec, in_memory, same, sample, shard, v2, v3, write

import gzarr
from gzarr.engines import pool
from gzarr.engines.cpu import native

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice

ZSTD = codec("zstd", level=1, checksum=False)
GZIP = codec("gzip", level=1)

DOCUMENTS: dict[str, dict[str, Any]] = {
    "v3": {**v3((20, 15), (8, 6), "float32", [LITTLE, ZSTD], "NaN"), "attributes": {"unit": "m", "n": [1, {"a": 2}]}},
    "v3-names": {**v3((20, 15), (8, 6), "int16", [BIG], -1), "dimension_names": ["y", None]},
    "v3-shard": v3((20, 15), (8, 6), "uint8", [shard([4, 3], [LITTLE, CRC32C])], 7),
    "v3-0d": v3((), (), "float64", [LITTLE], 1.5),
    "v3-empty": v3((0, 3), (2, 2), "float64", [LITTLE], 1.5),
    "v2": v2((20, 15), (8, 6), "<f8", {"id": "zlib", "level": 1}, fill=2.5),
    "v2-F": v2((20, 15), (8, 6), "|b1", None, order="F", fill=True, separator="/"),
}


def opened(tmp_path: Path, document: dict[str, Any], data: Any = None) -> tuple[gzarr.Array, zarr.Array[Any]]:
    reference = write(tmp_path, document, data)
    return gzarr.open_array(tmp_path), reference


# -- properties


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_properties(document: dict[str, Any], tmp_path: Path) -> None:
    array, reference = opened(tmp_path, document)
    for name in ("shape", "chunks", "shards", "ndim", "size", "nbytes", "dtype", "path", "name", "basename"):
        assert getattr(array, name) == getattr(reference, name), name
    assert array.zarr_format == reference.metadata.zarr_format
    same(array.fill_value, reference.fill_value)
    assert dict(array.attrs) == dict(reference.attrs) == document.get("attributes", {})
    names = document.get("dimension_names")
    assert array.dimension_names == (None if names is None else tuple(names))
    assert array.device == "cpu"
    assert array.read_only
    assert array.decode_path.startswith("cpu-native: ")
    assert array.codecs
    assert array.nchunks == reference.nchunks
    with pytest.raises(gzarr.ReadOnlyError):
        array.attrs["x"] = 1
    with pytest.raises(AttributeError):
        array.shape = (1,)  # type: ignore[misc]


def test_path_in_a_hierarchy(tmp_path: Path) -> None:
    root = zarr.create_group(str(tmp_path))
    reference = root.create_array("a/b/c", shape=(3,), dtype="i4")
    reference[...] = [1, 2, 3]
    for array in (gzarr.open_array(tmp_path, path="a/b/c"), gzarr.open_group(tmp_path)["a"]["b/c"]):
        assert (array.path, array.name, array.basename) == ("a/b/c", "/a/b/c", "c")
        assert (array.path, array.name, array.basename) == (reference.path, reference.name, reference.basename)
        same(array[...], reference[...])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_stored_chunks_are_counted(name: str, tmp_path: Path) -> None:
    array, reference = opened(tmp_path, DOCUMENTS[name])
    assert array.nchunks_initialized == 0
    if array.ndim == 0:
        reference[...] = 3
        assert array.nchunks_initialized == 1
    elif array.size:
        reference[:9, 2:7] = sample((9, 5), reference.dtype)
        count = array.nchunks_initialized
        assert count == reference.nchunks_initialized == (16 if array.shards else 4)
        # Files of others are not chunks.
        for stray in ("notes.txt", "c.9.9", "9.9", "00.0", "0.0.0", "0.0.partial", "c/0/0.tmp", "c/9/0", "c/x"):
            (tmp_path / stray).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / stray).write_bytes(b"x")
        assert array.nchunks_initialized == count
        # Chunks beyond the array's end do not count, even in stored shards.
        reference[...] = sample(array.shape, reference.dtype)
        assert array.nchunks_initialized == array.nchunks
    assert gzarr.open_array(in_memory(tmp_path)).nchunks_initialized == array.nchunks_initialized


def test_reprs(tmp_path: Path) -> None:
    array, _ = opened(tmp_path / "<i>", DOCUMENTS["v3-shard"])
    for text in (repr(array), str(array.info), array._repr_html_()):
        assert "uint8" in text
        assert "20" in text
        assert "15" in text
    assert "<i>" not in array._repr_html_()
    assert "&lt;i&gt;" in array._repr_html_()
    assert repr(array.oindex).endswith(".oindex")
    assert "cpu-native" in str(array.info)


def test_equality_and_hash(tmp_path: Path) -> None:
    array, _ = opened(tmp_path / "a", DOCUMENTS["v3"])
    other, _ = opened(tmp_path / "b", DOCUMENTS["v3"])
    assert array == gzarr.open_array(tmp_path / "a")
    assert array != other
    assert array != 3
    with pytest.raises(TypeError):
        hash(array)


def test_arguments(tmp_path: Path) -> None:
    write(tmp_path, DOCUMENTS["v3"], None)
    for wrong in ({"mode": "w"}, {"missing": "maybe"}, {"device": "tpu"}, {"zarr_format": 4}):
        with pytest.raises(gzarr.ArgumentError):
            gzarr.open_array(tmp_path, **wrong)
    assert gzarr.open_array(tmp_path, device="cpu").device == "cpu"
    with pytest.raises(gzarr.DeviceError):
        gzarr.open_array(tmp_path, device="cuda:99")


# -- protocols


@pytest.fixture
def volume(tmp_path: Path) -> tuple[gzarr.Array, np.ndarray[Any, Any]]:
    data = sample((20, 15, 12), "u2")
    document = v3(data.shape, (8, 6, 5), "uint16", [LITTLE, blosc3("lz4", "shuffle", 2)])
    return opened(tmp_path / "volume", document, data)[0], data


def test_numpy_protocol(volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = volume
    same(np.asarray(array), data)
    same(np.array(array), data)
    same(np.asarray(array, "f8"), data.astype("f8"))
    same(np.array(array, copy=True), data)
    same(np.add(array, 1), data + 1)
    assert np.sum(array) == np.sum(data)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(array, copy=False)


def test_dlpack(volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = volume
    assert array.__dlpack_device__() == (1, 0)
    for each, expected in ((array, data), (array.view[3:, ::2], data[3:, ::2])):
        same(np.from_dlpack(each), expected)
        with pytest.raises(BufferError, match="without copying"):
            each.__dlpack__(copy=False)
        copied: Any = np.from_dlpack(each, copy=True)
        same(copied, expected)
        copied[...] = 0
        same(each[...], expected)


def test_rows_of_a_device(device: TestedDevice, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = device.open(volume[0].store), volume[1]
    rows = list(array)
    assert len(rows) == len(array) == 20
    for row, expected in zip(rows, data, strict=True):
        same(device.to_numpy(row), expected)


def test_length_and_iteration(volume: tuple[gzarr.Array, np.ndarray[Any, Any]], tmp_path: Path) -> None:
    array, data = volume
    assert len(array) == 20
    native.take_stats()
    rows = list(array)
    # Three rows of chunks, each chunk decoded once.
    assert native.take_stats()["chunks"] == array.nchunks == 27
    assert len(rows) == 20
    for row, expected in zip(rows, data, strict=True):
        same(row, expected)
    line, _ = opened(tmp_path / "line", v3((7,), (3,), "int32", [LITTLE]), np.arange(7, dtype="i4"))
    assert list(line) == list(range(7))
    assert 3 in line


def test_zero_dimensions(tmp_path: Path) -> None:
    scalar, _ = opened(tmp_path / "scalar", DOCUMENTS["v3-0d"])
    for wrong in (len, iter, list):
        with pytest.raises(TypeError):
            wrong(scalar)
    assert scalar[()] == 1.5
    assert isinstance(scalar[...], float)
    assert scalar.read().shape == ()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int, tmp_path: Path) -> None:
    data = sample((20, 15), "u1")
    _, _ = opened(tmp_path, DOCUMENTS["v3-shard"], data)
    for read_first in (False, True):
        array = gzarr.open_array(tmp_path, missing="error")
        if read_first:
            array[...]
        copy = pickle.loads(pickle.dumps(array, protocol))
        assert copy == array
        assert (copy.shape, copy.dtype, copy.decode_path) == (array.shape, array.dtype, array.decode_path)
        same(copy[...], data)
    (tmp_path / "c" / "0" / "0").unlink()
    with pytest.raises(gzarr.MissingChunkError):
        copy[0, 0]
    memory = gzarr.open_array(in_memory(tmp_path))
    same(pickle.loads(pickle.dumps(memory, protocol))[8:], data[8:])


def test_indexers_take_outputs(device: TestedDevice, volume: tuple[gzarr.Array, np.ndarray[Any, Any]]) -> None:
    array, data = device.open(volume[0].store), volume[1]
    mesh = data[np.ix_([3, 1], [0, 14, 7], [2, 2])]
    for _ in range(2):
        out = device.empty(mesh.shape[::-1], "u2").T
        same(device.read(array.oindex, ([3, 1], [0, 14, 7], [2, 2]), out=out), mesh)
        points = device.empty((6,), "u2")[::2]
        three = ([3, 1, 19], [0, 14, 7], [2, 2, 11])
        same(device.read(array.vindex, three, out=points), data[three])
        block = device.empty((4, 6, 12), "u2")
        same(device.read(array.blocks, (2, 1), out=block), data[16:, 6:12])
    for indexer in (array.oindex, array.vindex, array.blocks):
        with pytest.raises(gzarr.OutputError):
            indexer.read((0, 0, 0), out=device.empty((77,), "u2"))


# -- what a read costs


def calls_of(
    read: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, which: tuple[str, ...] = ("call", "c_call")
) -> int:
    """Count the Python calls of a read in all threads, of functions and of builtins."""
    events: list[str] = []
    run = pool.run

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event in which:
            events.append(event)

    def profiled(worker: Callable[[int], None], workers: int) -> None:
        def work(i: int) -> None:
            sys.setprofile(profile)
            try:
                worker(i)
            finally:
                # The first is the caller's own thread.
                if i:
                    sys.setprofile(None)

        run(work, workers)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "run", profiled)
        # What the garbage collector calls is not of the read.
        gc.disable()
        sys.setprofile(profile)
        try:
            read()
        finally:
            sys.setprofile(None)
            gc.enable()
    return len(events)


EVERYTHING, STEPS, INDEX = ..., (slice(1, None), slice(None, None, 2)), ([5, 1, 3],)
UNSHARDED = [
    (kind, selection) for kind in ("raw", "blosc", "transposed", "v2") for selection in (EVERYTHING, STEPS, INDEX)
]
SHARDED = [(f"shards-of-{n}", selection) for n in (128, 16) for selection in (EVERYTHING, STEPS)]


@pytest.mark.parametrize(("kind", "selection"), [*UNSHARDED, *SHARDED])
def test_python_calls_a_chunk(kind: str, selection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "2")
    counts = []
    for columns in (8, 128):
        shape, chunks = (32, 4 * columns), (4, 4)
        document = {
            "raw": v3(shape, chunks, "uint16", [LITTLE]),
            "blosc": v3(shape, chunks, "uint16", [LITTLE, blosc3("lz4", "shuffle", 2), CRC32C]),
            "transposed": v3(shape, chunks, "uint16", [codec("transpose", order=[1, 0]), BIG, ZSTD]),
            "v2": v2(shape, chunks, "<u2", {"id": "zlib", "level": 1}, order="F"),
            "shards-of-128": v3(shape, (32, 64), "uint16", [shard([4, 4], [LITTLE, ZSTD])]),
            "shards-of-16": v3(shape, (16, 16), "uint16", [shard([4, 4], [LITTLE, ZSTD])]),
        }[kind]
        data = sample(shape, "u2")
        array, _ = opened(tmp_path / str(columns), document, data)
        same(array[selection], data[selection])
        fresh = gzarr.open_array(tmp_path / str(columns))
        native.take_stats()
        calls = calls_of(lambda a=fresh: a[selection], monkeypatch)
        counts.append((calls, native.take_stats()["chunks"]))
    (few_calls, few), (many_calls, many) = counts
    assert many == 16 * few
    if selection is ...:
        assert (few, many) == (64, 1024)
    assert (many_calls - few_calls) / (many - few) <= 3, counts


@pytest.mark.parametrize("kind", ["chunks", "shards"])
def test_python_calls_of_small_reads(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sample((160, 160), "u2")
    array = gzarr.create_array(tmp_path, data=data, chunks=(10, 10), shards=(160, 160) if kind == "shards" else None)
    array = gzarr.open_array(array.store, device="cpu")

    def calls(side: int) -> int:
        def read() -> None:
            array[:side, :side]

        # Indexes of shards are known after one read, and a job is prepared by the next.
        for _ in range(2):
            same(array[:side, :side], data[:side, :side])
        return calls_of(read, monkeypatch, ("call",))

    one, many = calls(10), calls(100)
    # Of shards, the versions are looked at, before and afterwards.
    most = 29 if kind == "chunks" else 75
    assert one <= most, "one chunk"
    assert (many - one) / 99 <= (0.2 if kind == "chunks" else 2), "each of 99 more chunks"


def test_python_calls_of_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for rows in (40, 160):
        data = sample((rows, 1600), "u2")
        array = gzarr.create_array(tmp_path / str(rows), data=data, chunks=(10, 10))
        counts.append(calls_of(lambda a=array, d=data: a.write(..., d), monkeypatch, ("call",)))
        same(array[...], data)
    few, many = counts
    assert (many - few) / (12 * 160) <= 0.1, counts


def test_the_calls_of_host_threads_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count above can fail: host codecs cost many calls per chunk, some of them in threads of the pool."""
    monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    monkeypatch.setenv("GZARR_THREADS", "2")
    array, _ = opened(tmp_path, v3((32, 32), (4, 4), "uint16", [LITTLE]), sample((32, 32), "u2"))
    assert calls_of(lambda: array[...], monkeypatch) > 3 * 64 * 3


def corrupt_block(path: Path, block: int) -> tuple[int, int]:
    """Damage one block of a Blosc container; return the block size in bytes, and the number of blocks."""
    value = bytearray(path.read_bytes())
    nbytes, blocksize = struct.unpack_from("<II", value, 4)
    (start,) = struct.unpack_from("<I", value, 16 + 4 * block)
    # The length of the block's first stream.
    struct.pack_into("<I", value, start, 0x7FFFFFFF)
    path.write_bytes(value)
    return blocksize, -(-nbytes // blocksize)


@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("cname", ["lz4", "zstd", "blosclz", "zlib"])
def test_a_partial_read_decodes_the_blocks_that_it_needs(cname: str, shuffle: str, tmp_path: Path) -> None:
    # Blosc enlarges blocks that it splits into streams to 64 KiB.
    n = 4001 if cname == "zstd" else 15 * 16384 + 161
    data = (np.arange(n, dtype="i4") // 3) * 5
    document = v3((n,), (n,), "int32", [LITTLE, blosc3(cname, shuffle, 4, blocksize=1024)])
    array, _ = opened(tmp_path, document, data)
    same(array[...], data)
    value = (tmp_path / "c" / "0").read_bytes()
    for bad in (0, 7, 15):
        (tmp_path / "c" / "0").write_bytes(value)
        blocksize, blocks = corrupt_block(tmp_path / "c" / "0", bad)
        size = blocksize // 4
        assert blocks == 16
        for block in range(blocks):
            begin, end = block * size, min((block + 1) * size, n)
            selections = [slice(begin, end), slice(begin, end, 7), begin, end - 1, slice(end - 2, begin, -3)]
            for selection in selections:
                if block == bad:
                    with pytest.raises(gzarr.ChunkDecodeError) as caught:
                        array[selection]
                    assert (caught.value.chunk, caught.value.key) == ((0,), "c/0")
                else:
                    same(array[selection], data[selection])
        with pytest.raises(gzarr.ChunkDecodeError):
            array[...]
        good = [slice(b * size, b * size + 9) for b in range(blocks - 1) if b != bad]
        same(array.read_many(good), np.stack([data[s] for s in good]))


def test_a_row_decodes_the_blocks_that_it_needs(tmp_path: Path) -> None:
    data = np.arange(64 * 64, dtype="i4").reshape(64, 64) // 7
    document = v3((64, 64), (64, 64), "int32", [LITTLE, blosc3("zstd", "shuffle", 4, blocksize=2048)])
    array, _ = opened(tmp_path, document, data)
    blocksize, _ = corrupt_block(tmp_path / "c" / "0" / "0", 3)
    rows = blocksize // 256
    for row in range(64):
        if 3 * rows <= row < 4 * rows:
            with pytest.raises(gzarr.ChunkDecodeError):
                array[row]
        else:
            same(array[row], data[row])
            same(array[row, 3:60:2], data[row, 3:60:2])
    with pytest.raises(gzarr.ChunkDecodeError):
        array[:, 0]


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("codecs", [[LITTLE, ZSTD], [LITTLE, GZIP], [LITTLE, CRC32C]], ids=["zstd", "gzip", "crc32c"])
def test_a_partial_read_of_a_shard_reads_the_chunks_that_it_needs(codecs: Any, location: str, tmp_path: Path) -> None:
    data = sample((16, 16), "i4")
    array, _ = opened(tmp_path, v3((16, 16), (16, 16), "int32", [shard([4, 4], codecs, location)]), data)
    path = tmp_path / "c" / "0" / "0"
    value = bytearray(path.read_bytes())
    index = np.frombuffer(value, "<u8", 32, 0 if location == "start" else len(value) - 260).reshape(4, 4, 2)
    bad = (1, 2)
    offset, nbytes = (int(n) for n in index[bad])
    del index
    value[offset : offset + nbytes] = b"\xff" * nbytes
    path.write_bytes(value)
    for coords in np.ndindex(4, 4):
        box = tuple(slice(4 * c, 4 * c + 4) for c in coords)
        if coords == bad:
            with pytest.raises(gzarr.ChunkDecodeError) as caught:
                array[box]
            assert caught.value.chunk == bad
            assert caught.value.key == "c/0/0"
        else:
            same(array[box], data[box])
    same(array[:, :8], data[:, :8])
    with pytest.raises(gzarr.ChunkDecodeError):
        array[4]


class Recorded(gzarr.MemoryStore):
    """A store that records its requests."""

    asked: list[Any]

    def get(self, key: str) -> Any:
        value = super().get(key)
        self.asked.append([(key, None if value is None else len(value))])
        return value

    def get_partial_values(self, key_ranges: Any) -> Any:
        values = super().get_partial_values(key_ranges)
        pairs = zip(key_ranges, values, strict=True)
        self.asked.append([(key, None if value is None else len(value)) for (key, _), value in pairs])
        return values


def recorded(values: dict[str, bytes]) -> Recorded:
    store = Recorded()
    store.asked = []
    for key, value in values.items():
        store.set(key, value)
    return store


def test_bytes_asked_of_a_store(tmp_path: Path) -> None:
    data = sample((64, 64), "i4")
    write(tmp_path, v3((64, 64), (32, 32), "int32", [shard([8, 8], [LITTLE])]), data)
    store = recorded(in_memory(tmp_path))
    array = gzarr.open_array(store)
    store.asked.clear()
    same(array[40:44, 3], data[40:44, 3])
    # One index (16 chunks, 16 bytes each, and a checksum), one inner chunk.
    assert store.asked == [[("c/1/0", 16 * 16 + 4)], [("c/1/0", 8 * 8 * 4)]]
    store.asked.clear()
    assert array[5:5].shape == (0, 64)
    assert store.asked == []
    # zarr-python writes the chunks of a shard in Morton order: these four are neighbours, so they are one request.
    same(array[:16, :16], data[:16, :16])
    assert store.asked == [[("c/0/0", 16 * 16 + 4)], [("c/0/0", 4 * 8 * 8 * 4)]]


def test_read_many_decodes_each_chunk_once(tmp_path: Path) -> None:
    data = sample((64, 64), "u2")
    for name, codecs in {
        "raw": [LITTLE],
        "blosc": [LITTLE, blosc3("lz4", "shuffle", 2)],
        "shard": [shard([16, 16], [LITTLE, ZSTD])],
    }.items():
        chunks = (32, 32) if name == "shard" else (16, 16)
        array, _ = opened(tmp_path / name, v3((64, 64), chunks, "uint16", codecs), data)
        rng = np.random.default_rng(1)
        corners = rng.integers(0, 24, (200, 2)).tolist()
        windows = [(slice(a, a + 8), slice(b, b + 8)) for a, b in corners]
        native.take_stats()
        same(array.read_many(windows), np.stack([data[w] for w in windows]))
        # The windows lie in the first 2 × 2 chunks.
        assert native.take_stats()["chunks"] == 4
        for window in windows[:10]:
            array[window]
        assert native.take_stats()["chunks"] >= 10


# -- shards that change


@pytest.mark.parametrize("in_files", [True, False], ids=["local", "memory"])
def test_a_rewritten_shard_is_read_anew(in_files: bool, device: TestedDevice, tmp_path: Path) -> None:
    document = v3((32, 32), (16, 16), "int32", [shard([4, 4], [LITTLE, ZSTD])])
    write(tmp_path, document, None)
    values: dict[str, bytes] = in_memory(tmp_path)
    array = device.open(tmp_path if in_files else values)
    same(device.read(array), np.zeros((32, 32), "i4"))
    for seed in range(6):
        # Compressed chunks of other sizes, so an old index would point to the wrong bytes.
        data = sample((32, 32), "i4", seed) if seed % 2 else np.full((32, 32), seed, "i4")
        write(tmp_path, document, data)
        values.update(in_memory(tmp_path))
        same(device.read(array), data)
        same(device.read(array, np.s_[17:21, 3]), data[17:21, 3])
    (tmp_path / "c" / "0" / "1").unlink()
    values.pop("c/0/1")
    data[:16, 16:] = 0
    same(device.read(array), data)


def test_indexes_of_shards_are_kept(tmp_path: Path) -> None:
    data = sample((32, 32), "i4")
    write(tmp_path, v3((32, 32), (16, 16), "int32", [shard([4, 4], [LITTLE, ZSTD])]), data)
    asked: list[Any] = []

    class Watched(gzarr.LocalStore):
        def get_partial_values(self, key_ranges: Any) -> Any:
            asked.append(list(key_ranges))
            return super().get_partial_values(key_ranges)

    array = gzarr.open_array(Watched(tmp_path))
    assert array.decode_path.startswith("cpu-native")
    same(array[...], data)
    # Chunks are read by the native loop, so these are the four indexes.
    assert len(asked) == 4
    same(array[...], data)
    same(array[3], data[3])
    assert len(asked) == 4


# -- what a device cannot hold


def test_no_room_for_a_result(device: TestedDevice) -> None:
    """A device's memory may be free later: that is no fault of the selection."""
    if not device.is_cuda:
        # The CPU's memory is not shared with anybody's model.
        array = gzarr.create_array({}, shape=(1 << 61,), dtype="u1", chunks=(1 << 20,), device="cpu")
        with pytest.raises(gzarr.SelectionError, match="more than can be allocated; read it in parts"):
            array[...]
        return
    import cupy

    array = gzarr.create_array({}, shape=(8 << 20,), dtype="u1", chunks=(1 << 20,), device=device.name)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.used_bytes() + (4 << 20))
    reads: list[Callable[[], Any]] = [
        lambda: array[...],
        lambda: array.read(...),
        lambda: array.read(dtype="u2"),
        lambda: array.read_many([slice(0, 4 << 20)] * 2),
        lambda: array.read_windows([0, 1], 4 << 20),
        lambda: array.vindex[np.zeros(8 << 20, "i8")],
    ]
    try:
        for read in reads:
            with pytest.raises(MemoryError, match=r"takes \d+ bytes, more than cuda:0 has free .*; free some"):
                read()
    finally:
        pool.set_limit(size=0)
    same(device.to_numpy(array[...]), np.zeros(8 << 20, "u1"))


def test_fields_that_a_device_cannot_hold(device: TestedDevice) -> None:
    dtype = np.dtype([("x", "i4"), ("d", "f2", (2,)), ("r", [("y", "i4")]), ("s", "S3")])
    data = np.zeros((3, 4), dtype)
    data["x"], data["d"], data["r"]["y"], data["s"] = 1, 2, 3, b"abc"
    array = gzarr.create_array({}, data=data, chunks=(2, 2), zarr_format=2, device="cpu")
    opened = gzarr.open_array(array.store, device=device.name)
    same(device.to_numpy(opened["x"]), data["x"])
    if not device.is_cuda:
        for name in ("d", "r", "s"):
            same(opened[name], data[name])
        return
    with pytest.raises(
        gzarr.DeviceError, match=r"""open the array with device="cpu", or read a single field, such as array\['x'\]$"""
    ):
        opened[...]
    for name in ("d", "r", "s"):
        for read in (opened.__getitem__, opened.oindex.__getitem__):
            with pytest.raises(gzarr.DeviceError, match=rf"the field '{name}', .* open the array with device=\"cpu\"$"):
                read(name)
