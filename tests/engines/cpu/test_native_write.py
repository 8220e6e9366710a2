"""The native path of writing: zarr-python and tensorstore read what was written; and refused writes."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorstore
import zarr
from support import zarr_arrays as z

import gzarr
from gzarr.engines.cpu import native_write, write_job, write_threads
from gzarr.errors import ChunkWriteError
from gzarr.plan.encode_program import analyse_encoding
from gzarr.stores import atomic_files, directories, leftovers, temporary_names
from gzarr.stores.local import LocalStore
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.engines.write_request import WriteRequest

pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs Linux and the encoders' wheels")

SHAPE, CHUNKS = (20, 13, 7), (6, 5, 4)
DTYPES_V3 = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
DTYPES_V2 = ["|b1", "<u2", ">u2", ">f8", "<c8", ">c16", "<M8[ns]", "|S5", ">U3", "|V3", [["a", "<i2"], ["b", "<f4"]]]
COMPRESSORS: dict[str, list[z.Json]] = {
    "raw": [],
    "zstd": [z.codec("zstd", level=3, checksum=True)],
    "gzip": [z.codec("gzip", level=5)],
    "gzip 0": [z.codec("gzip", level=0)],
    "crc": [z.CRC32C],
    "zstd crc": [z.codec("zstd", level=-3, checksum=False), z.CRC32C],
    **{
        f"blosc {cname} {shuffle}": [z.blosc3(cname, shuffle, 4)]
        for cname in ("lz4", "lz4hc", "blosclz", "zstd", "zlib")
        for shuffle in ("noshuffle", "shuffle", "bitshuffle")
    },
    "blosc 0": [z.blosc3("lz4", "shuffle", 2, clevel=0)],
    "shuffle lz4": [z.codec("numcodecs.shuffle", elementsize=4), z.codec("numcodecs.lz4", acceleration=1)],
    "zlib": [z.codec("numcodecs.zlib", level=9)],
}
#: What tensorstore reads.
COMMON = ["raw", "zstd", "gzip", "crc", "zstd crc", "blosc lz4 shuffle", "blosc zstd bitshuffle"]


@pytest.fixture(autouse=True)
def _only_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything falls back to host threads."""

    def refuse(request: WriteRequest, rows: Any = None) -> None:
        pytest.fail(f"{request.node}: written by host threads")

    monkeypatch.setattr(write_threads, "write", refuse)


def document(path: Path, content: z.Json) -> gzarr.Array:
    """Store a metadata document; return its array, opened for writing."""
    path.mkdir(parents=True, exist_ok=True)
    (path / ("zarr.json" if content["zarr_format"] == 3 else ".zarray")).write_text(json.dumps(content))
    return writable(LocalStore(path))


def writable(store: Any, **options: Any) -> gzarr.Array:
    opened = gzarr.open_array(store, device="cpu")
    return gzarr.Array(opened.metadata, store, opened.path, device="cpu", mode="r+", **options)


def data(dtype: Any, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    """Elements of every kind, some of them equal to each other."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng(3)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "SU":
        return random.integers(0, 1000, shape).astype(str).astype(dtype)
    if dtype.kind in "iufcM":
        return random.integers(0, 100, shape).astype("M8[ns]" if dtype.kind == "M" else dtype).astype(dtype)
    return np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.itemsize), np.uint8).view(dtype).reshape(shape)


def files(path: Path) -> list[str]:
    return sorted(
        str(p.relative_to(path)) for p in path.rglob("*") if p.is_file() and p.name not in ("zarr.json", ".zarray")
    )


def peers(
    path: Path, expected: np.ndarray[Any, Any], *, by_zarr_python: bool = True, by_tensorstore: bool = False
) -> None:
    if by_zarr_python:
        theirs = np.asarray(zarr.open_array(path, mode="r")[...])
        z.same(theirs.astype(theirs.dtype.newbyteorder("="), copy=False), expected)
    z.same(gzarr.open_array(path, device="cpu")[...], expected)
    if by_tensorstore:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
        z.same(np.asarray(tensorstore.open(spec, read=True).result().read().result()), expected)


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_every_chain(compressor: str, tmp_path: Path) -> None:
    for order in (None, [2, 0, 1]):
        for endian in (z.LITTLE, z.BIG):
            path = tmp_path / f"{order}{endian['configuration']['endian']}"
            chain = [*([] if order is None else [z.codec("transpose", order=order)]), endian, *COMPRESSORS[compressor]]
            array = document(path, z.v3(SHAPE, CHUNKS, "float32", chain, fill=1.5))
            values = data("f4")
            array[...] = values
            assert len(files(path)) == 4 * 3 * 2
            peers(path, values, by_tensorstore=compressor in COMMON)


@pytest.mark.parametrize("dtype", DTYPES_V3)
def test_every_type(dtype: str, tmp_path: Path) -> None:
    fill: Any = False if dtype == "bool" else [0.0, 0.0] if dtype.startswith("complex") else 0
    for endian in (z.LITTLE, z.BIG):
        for compressor in ("raw", "blosc zstd shuffle"):
            path = tmp_path / f"{endian['configuration']['endian']} {compressor}"
            array = document(path, z.v3(SHAPE, CHUNKS, dtype, [endian, *COMPRESSORS[compressor]], fill=fill))
            values = data(dtype)
            array[...] = values
            peers(path, values, by_tensorstore=True)


@pytest.mark.parametrize("dtype", DTYPES_V2, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_type_of_version_2(dtype: Any, order: str, tmp_path: Path) -> None:
    name = [tuple(field) for field in dtype] if isinstance(dtype, list) else dtype
    for number, compressor in enumerate([None, {"id": "zlib", "level": 1}, {"id": "lz4", "acceleration": 1}]):
        path = tmp_path / str(number)
        array = document(path, z.v2(SHAPE, CHUNKS, dtype, compressor, order=order, fill=None))
        values = data(np.dtype(name).newbyteorder("="))
        array[...] = values
        theirs = np.asarray(zarr.open_array(path, mode="r")[...])
        z.same(theirs.astype(theirs.dtype.newbyteorder("=")), values)
        z.same(array[...], values)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("version", [2, 3])
def test_any_number_of_dimensions(shape: tuple[int, ...], version: int, tmp_path: Path) -> None:
    chunks = tuple(max(n // 2, 1) for n in shape)
    content = z.v3(shape, chunks, "int16", [z.LITTLE]) if version == 3 else z.v2(shape, chunks, "<i2")
    array = document(tmp_path, content)
    values = np.arange(1, 1 + int(np.prod(shape)), dtype="i2").reshape(shape)
    array[...] = values
    peers(tmp_path, values)


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("order", [None, [1, 0]])
def test_complete_shards(location: str, order: list[int] | None, tmp_path: Path) -> None:
    shards = z.shard([3, 4], [z.LITTLE, z.codec("zstd", level=1, checksum=False)], location)
    if order is not None:
        shards["configuration"]["chunk_shape"] = [4, 3]
    chain = [shards] if order is None else [z.codec("transpose", order=order), shards]
    # The array ends within shards, and within inner chunks.
    array = document(tmp_path, z.v3((22, 15), (9, 8), "int32", chain, fill=-1))
    values = np.arange(22 * 15, dtype="i4").reshape(22, 15)
    values[3:6, 4:8] = -1
    values[9:18, :8] = -1
    array[...] = values
    assert files(tmp_path) == [f"c/{i}/{j}" for i in range(3) for j in range(2) if (i, j) != (1, 0)]
    # zarr-python does not read shards that are transposed.
    peers(tmp_path, values, by_zarr_python=order is None, by_tensorstore=True)
    array[0:9, 0:8] = -1
    values[0:9, 0:8] = -1
    assert "c/0/0" not in files(tmp_path)
    peers(tmp_path, values, by_zarr_python=order is None, by_tensorstore=True)


def test_shards_with_another_index(tmp_path: Path) -> None:
    for number, index in enumerate([[z.LITTLE], [z.BIG, z.CRC32C]]):
        chain = [z.shard([3, 4], [z.LITTLE], index=index)]
        array = document(tmp_path / str(number), z.v3((9, 8), (9, 8), "int32", chain))
        values = np.arange(72, dtype="i4").reshape(9, 8)
        array[...] = values
        z.same(array[...], values)
        peers(tmp_path / str(number), values)


def test_inner_chunks_are_laid_out_in_order_by_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GZARR_THREADS", "8")
    chain = [z.shard([4, 4], [z.LITTLE, z.codec("zstd", level=1, checksum=False)])]
    array = document(tmp_path, z.v3((256, 256), (128, 128), "uint16", chain, fill=9999))
    values = np.random.default_rng(0).integers(0, 40, (256, 256)).astype("u2")
    for _ in range(5):
        array[...] = values
        for name in files(tmp_path):
            raw = (tmp_path / name).read_bytes()
            index = np.frombuffer(raw[-(16 * 1024 + 4) : -4], "<u8").reshape(-1, 2).astype(np.int64)
            np.testing.assert_array_equal(index[1:, 0], np.cumsum(index[:-1, 1]))
    peers(tmp_path, values, by_tensorstore=True)


STRIDED: dict[str, Any] = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "reversed": lambda a: a[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "every other": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "unaligned": lambda a: np.frombuffer(b"." + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "scalar": lambda a: np.broadcast_to(a[0, 0, 0], a.shape),
    "read-only": lambda a: np.lib.stride_tricks.as_strided(a, writeable=False),
}


@pytest.mark.parametrize("layout", STRIDED)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
def test_inputs_of_any_strides(layout: str, dtype: str, tmp_path: Path) -> None:
    values = STRIDED[layout](data(dtype))
    for number, chain in enumerate([[z.LITTLE], [z.codec("transpose", order=[1, 2, 0]), z.BIG, *COMPRESSORS["zstd"]]]):
        array = document(tmp_path / str(number), z.v3(SHAPE, CHUNKS, dtype, chain, fill=111))
        array[...] = values
        peers(tmp_path / str(number), values)


def test_windows_that_overlap(tmp_path: Path) -> None:
    array = document(tmp_path, z.v3((12, 10), (6, 5), "int32", [z.LITTLE, *COMPRESSORS["zstd"]]))
    expected = np.zeros((12, 10), "i4")
    windows = [np.s_[0:12, 0:10], np.s_[2:8, 3:10], np.s_[7:12]]
    values = [np.full((12, 10), 1), np.arange(42).reshape(6, 7), np.full((5, 10), 3)]
    array.write_many(windows, values)
    for window, value in zip(windows, values, strict=True):
        expected[window] = value
    peers(tmp_path, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fill_values_are_compared_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    unsigned = {"float32": "u4", "float64": "u8"}[dtype]
    quiet = np.array([np.nan], dtype)
    for endian in (z.LITTLE, z.BIG):
        array = document(tmp_path / endian["configuration"]["endian"], z.v3((8,), (4,), dtype, [endian], fill="NaN"))
        where = tmp_path / endian["configuration"]["endian"]
        array[...] = quiet[0]
        assert files(where) == []
        payload = (quiet.view(unsigned) + 1).view(dtype)
        array[:4] = payload[0]
        assert files(where) == ["c/0"]
        assert (array[:4].view(unsigned) == payload.view(unsigned)).all()
    array = document(tmp_path / "zero", z.v3((8,), (4,), dtype, [z.LITTLE], fill=0.0))
    array[...] = -0.0
    assert len(files(tmp_path / "zero")) == 2
    array[...] = 0.0
    assert files(tmp_path / "zero") == []


def test_chunks_of_the_fill_value_are_erased_or_stored_as_asked(tmp_path: Path) -> None:
    content = z.v3(SHAPE, CHUNKS, "int32", [z.LITTLE, *COMPRESSORS["zstd"]], fill=7)
    array = document(tmp_path, content)
    array[...] = 7
    assert not (tmp_path / "c").exists()
    array[...] = data("i4") + 10
    array[0:6] = 7
    assert len(files(tmp_path)) == 18
    assert not (tmp_path / "c" / "0").exists()
    writable(LocalStore(tmp_path), write_empty_chunks=True)[0:6] = 7
    assert len(files(tmp_path)) == 24


@pytest.mark.parametrize("dtype", ["u2", ">f4", "S3"])
@pytest.mark.parametrize("slab_nbytes", [1, 200, 1000])
def test_uncompressed_chunks_in_parts(
    dtype: str, slab_nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large chunks are gathered and written in parts, with any fill values and any order."""
    monkeypatch.setattr(write_job, "_LEAST_SLABS_BYTES", 0)
    monkeypatch.setattr(write_job, "_SLAB_BYTES", slab_nbytes)
    native = np.dtype(dtype).newbyteorder("=")
    for order in ("C", "F"):
        path = tmp_path / order
        array = document(
            path, z.v2(SHAPE, CHUNKS, np.dtype(dtype).str, None, order=order, fill="" if dtype == "S3" else 0)
        )
        fill = np.zeros((), native)
        values = data(native)
        # One chunk of nothing but fill, one that begins with it, one that ends with it.
        values[:6, :5, :4] = fill
        values[6:10, :5, :4] = fill
        values[14:18, :5, :4] = fill
        array[...] = values
        assert "0.0.0" not in files(path)
        peers(path, values)
        # Inputs that are reversed or broadcast, and windows of which the later one counts.
        expected = np.broadcast_to(values[-1:], SHAPE).copy()
        array[...] = values[-1:]
        peers(path, expected)
        array.write_many([(slice(0, 12),), (slice(6, 12),)], [values[11::-1], values[2:8, :, ::-1]])
        expected[:12] = values[11::-1]
        expected[6:12] = values[2:8, :, ::-1]
        peers(path, expected)
        array[:6] = fill
        assert not [file for file in files(path) if file.startswith("0.")]


@pytest.mark.parametrize(
    "codecs", [[z.LITTLE, *COMPRESSORS["zstd"]], [z.shard([3, 5, 2], [z.LITTLE, *COMPRESSORS["crc"]])]]
)
def test_other_stores(codecs: list[z.Json]) -> None:
    store = MemoryStore()
    store.set("zarr.json", json.dumps(z.v3(SHAPE, CHUNKS, "int32", codecs, fill=7)).encode())
    array = writable(store)
    values = data("i4")
    values[6:12] = 7
    array[...] = values
    z.same(writable(store)[...], values)
    assert not any(key.startswith("c/1/") for key in store.list())
    array[0:6] = 7
    values[0:6] = 7
    z.same(writable(store)[...], values)
    assert not any(key.startswith("c/0/") for key in store.list())


class Failing(MemoryStore):
    """A store that refuses a key."""

    def set(self, key: str, value: Any) -> None:
        if key == "c/1/0/0":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().set(key, value)


def test_a_failing_store_names_the_chunk_and_what_was_written() -> None:
    store = Failing()
    store.set("zarr.json", json.dumps(z.v3(SHAPE, CHUNKS, "int32", [z.LITTLE])).encode())
    with pytest.raises(ChunkWriteError, match=r"key 'c/1/0/0': the store failed: .*No space left.*\d+ of 24 stored"):
        writable(store)[...] = 5


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    array = document(tmp_path, z.v3((8,), (4,), "int32", [z.LITTLE]))
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(ChunkWriteError, match=r"ENOTDIR.*0 of 2 stored values") as caught:
        array[...] = 1
    assert caught.value.errno == errno.ENOTDIR
    assert files(tmp_path) == ["c"]


def test_a_file_that_cannot_be_written_leaves_the_others_and_no_temporary_file(tmp_path: Path) -> None:
    array = document(tmp_path, z.v3((40,), (4,), "int32", [z.LITTLE, *COMPRESSORS["zstd"]]))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "3").mkdir()
    (tmp_path / "c" / "3" / "inside").write_bytes(b"")
    with pytest.raises(
        ChunkWriteError, match=r"chunk \(3,\), key 'c/3': the file cannot be written: .*\d of 10 stored"
    ) as caught:
        array[...] = 1
    assert caught.value.errno in (errno.EISDIR, errno.ENOTEMPTY)
    assert not [name for name in files(tmp_path) if "temporary" in name]
    assert set(files(tmp_path)) - {"c/3/inside"} <= {f"c/{i}" for i in range(10)}


FULL = """
import json, pathlib, resource, signal, sys
import numpy as np
import gzarr
from gzarr.engines.cpu import native_write
from gzarr.stores.local import LocalStore

native_write.write  # compiled, or loaded, before files are limited
path = pathlib.Path(sys.argv[1])
opened = gzarr.open_array(path, device="cpu")
array = gzarr.Array(opened.metadata, LocalStore(path), opened.path, device="cpu", mode="r+")
array[...] = 1
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    array[...] = np.random.default_rng(0).integers(0, 2**31, array.shape).astype("i4")
except gzarr.errors.ChunkWriteError as error:
    print(error.errno, str(error).count("of 2 stored values were written"))
    print(bool((array[...] == 1).all()))
"""


@pytest.mark.parametrize("sharded", [False, True])
def test_a_file_that_does_not_fit(sharded: bool, tmp_path: Path) -> None:
    codecs = [z.LITTLE, *COMPRESSORS["zstd"]]
    document(tmp_path, z.v3((20_000,), (10_000,), "int32", [z.shard([1000], codecs)] if sharded else codecs))
    ran = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.stdout.split() == [str(errno.EFBIG), "1", "True"], ran.stderr
    assert files(tmp_path) == ["c/0", "c/1"]


KILLED = """
import pathlib, sys
import numpy as np
import gzarr
from gzarr.stores.local import LocalStore

path = pathlib.Path(sys.argv[1])
opened = gzarr.open_array(path, device="cpu")
array = gzarr.Array(opened.metadata, LocalStore(path), opened.path, device="cpu", mode="r+")
print("ready", flush=True)
for value in range(2, 100_000):
    array[...] = value
"""


def test_killed_at_any_moment_chunks_are_old_or_new_and_leftovers_go(tmp_path: Path) -> None:
    codecs = [z.shard([16], [z.LITTLE, *COMPRESSORS["zstd"]])]
    array = document(tmp_path, z.v3((4096,), (1024,), "int32", codecs))
    array[...] = 1
    random = np.random.default_rng(1)
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        threading.Event().wait(float(random.uniform(0, 0.05)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = gzarr.open_array(tmp_path, device="cpu")[...].reshape(4, 1024)
        assert (found == found[:, :1]).all()
        assert (found > 0).all()
        assert sorted(LocalStore(tmp_path).list()) == ["c/0", "c/1", "c/2", "c/3", "zarr.json"]
    (tmp_path / "c" / f"{temporary_names.TEMPORARY}{_dead()}-left").write_bytes(b"half")
    leftovers._scanned.clear()
    array[...] = 3
    assert files(tmp_path) == ["c/0", "c/1", "c/2", "c/3"]


def _dead() -> str:
    """Return the start of the names of temporary files of an ended process of this machine."""
    code = "from gzarr.stores import temporary_names as a; print(a.temporary_prefix()[len(a.TEMPORARY) : -1])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_durable_writes_flush_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = z.v3(SHAPE, CHUNKS, "int32", [z.LITTLE])
    document(tmp_path, content)
    synced: list[str] = []
    real = directories.sync_directory

    def note(directory: int | None, base: str) -> None:
        synced.append(base)
        real(directory, base)

    for module in (directories, atomic_files):
        monkeypatch.setattr(module, "sync_directory", note)
    writable(LocalStore(tmp_path, durable=True))[...] = 2
    folders = [f"{tmp_path}/c/{i}/{j}" for i in range(4) for j in range(3)]
    # Those that hold chunks at the end; those above them when they are made.
    assert synced[-len(folders) :] == folders
    assert {str(tmp_path), f"{tmp_path}/c", *(f"{tmp_path}/c/{i}" for i in range(4))} <= set(synced[: -len(folders)])
    peers(tmp_path, np.full(SHAPE, 2, "i4"))


def test_read_only_stores_are_refused(tmp_path: Path) -> None:
    document(tmp_path, z.v3((8,), (4,), "int32", [z.LITTLE]))
    store = LocalStore(tmp_path, read_only=True)
    opened = gzarr.open_array(store, device="cpu")
    with pytest.raises(gzarr.errors.ReadOnlyError):
        gzarr.Array(opened.metadata, store, opened.path, device="cpu", mode="r+")[...] = 1
    assert files(tmp_path) == []


def test_many_threads_write_one_array(tmp_path: Path) -> None:
    codecs = [z.LITTLE, *COMPRESSORS["blosc zstd bitshuffle"]]
    array = document(tmp_path, z.v3((64, 64), (8, 8), "int32", codecs, fill=-1))
    values = np.arange(64 * 64, dtype="i4").reshape(64, 64)

    def write(i: int) -> None:
        array[8 * i : 8 * i + 8] = values[8 * i : 8 * i + 8]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, [*range(8)] * 5))
    peers(tmp_path, values)


@pytest.mark.parametrize(
    "codecs",
    [
        [z.LITTLE, z.codec("numcodecs.bz2", level=1)],
        [z.LITTLE, *[z.CRC32C] * 9],
    ],
)
def test_what_the_loop_cannot_encode(codecs: list[z.Json], tmp_path: Path) -> None:
    metadata = document(tmp_path, z.v3((8,), (4,), "int32", codecs)).metadata
    from gzarr.codecs.codec import ArrayRepresentation

    chunk = ArrayRepresentation((4,), metadata.dtype)
    assert analyse_encoding(metadata.codecs, chunk, native_write.available()) is None


@pytest.mark.parametrize(
    ("cname", "level", "typesize"), [("lz4", 5, 2), ("zstd", 5, 2), ("zlib", 5, 2), ("lz4hc", 9, 4)]
)
def test_bounds_hold_for_what_does_not_compress(cname: str, level: int, typesize: int, tmp_path: Path) -> None:
    values = np.frombuffer(np.random.default_rng(0).bytes(4 * 300_000), "i4")
    for number, compressor in enumerate(
        [
            z.blosc3(cname, "shuffle", typesize, level),
            z.codec("zstd", level=level, checksum=True),
            z.codec("gzip", level=1),
        ]
    ):
        array = document(tmp_path / str(number), z.v3((300_000,), (100_003,), "int32", [z.LITTLE, compressor]))
        array[...] = values
        peers(tmp_path / str(number), values)
