"""Arrays of N5: against tensorstore's driver, and an independent writer by the specification."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import tensorstore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.counting_store import CountingStore
from support.n5_files import COMPRESSIONS, block, compressed, lz4_blocks, write_array, write_files, xxhash32
from support.zarr_arrays import same

import gzarr
from gzarr.codecs import native
from gzarr.codecs.codec import BytesRepresentation
from gzarr.codecs.lz4_java import Lz4JavaCodec
from gzarr.metadata.model import ChunkKeyEncoding
from gzarr.plan.planner import chunk_keys

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
#: Compressions of tensorstore's driver.
OF_TENSORSTORE: dict[str, dict[str, Any]] = {
    "raw": {"type": "raw"},
    "gzip": {"type": "gzip", "level": 2},
    "zlib": {"type": "gzip", "level": 2, "useZlib": True},
    "bzip2": {"type": "bzip2", "blockSize": 1},
    "xz": {"type": "xz", "preset": 1},
    "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    "blosc-zstd": {"type": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2},
    "zstd": {"type": "zstd", "level": 2},
}
RNG = np.random.default_rng(11)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return elements of all magnitudes, some runs of which compress well."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        values = RNG.standard_normal(shape).astype(dtype)
        return np.where(RNG.random(shape) < 0.3, np.array(0, dtype), values)
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.where(RNG.random(shape) < 0.3, np.array(7, dtype), values)


def by_tensorstore(directory: Path, metadata: dict[str, Any] | None = None) -> Any:
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{directory}/"}}
    return tensorstore.open(
        spec if metadata is None else {**spec, "metadata": metadata}, create=metadata is not None, open=True
    ).result()


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    blocks = tuple(draw(st.integers(1, 10)) for _ in range(ndim))
    return shape, blocks, draw(st.sampled_from(DTYPES))


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=arrays(), compression=st.sampled_from(sorted(OF_TENSORSTORE)), data=st.data())
def test_what_tensorstore_writes_is_read(
    case: tuple[tuple[int, ...], tuple[int, ...], str],
    compression: str,
    data: st.DataObject,
    device: TestedDevice,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shape, blocks, dtype = case
    values = numbers(shape, dtype)
    directory = tmp_path_factory.mktemp("n5") / "x.n5"
    theirs = by_tensorstore(
        directory,
        {
            "dimensions": list(shape[::-1]),
            "blockSize": list(blocks[::-1]),
            "dataType": np.dtype(dtype).name,
            "compression": OF_TENSORSTORE[compression],
        },
    )
    # Its dimensions are those of N5.
    theirs.write(values.T).result()
    array = device.open(directory)
    assert (array.shape, array.chunks, array.dtype, array.zarr_format) == (shape, blocks, values.dtype, "n5")
    same(device.read(array), values)
    selection = tuple(
        slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))), data.draw(st.integers(1, 3)))
        for n in shape
    )
    same(device.read(array, selection), values[selection])


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "u8"])
@pytest.mark.parametrize("whole", [False, True], ids=["cut", "whole"])
def test_blocks_by_the_specification(compression: str, dtype: str, whole: bool, device: TestedDevice) -> None:
    values = numbers((7, 20, 33), dtype)
    store: dict[str, bytes] = {}
    write_array(store, "a/b", values, (4, 8, 32), COMPRESSIONS[compression], whole=whole, unit="nm")
    array = device.open(store, path="a/b")
    assert dict(array.attrs) == {"unit": "nm"}
    same(device.read(array), values)
    same(device.read(array, (slice(None, None, -2), 5, slice(30, None))), values[::-2, 5, 30:])


@pytest.mark.parametrize("compression", sorted(set(COMPRESSIONS) - {"lz4"}))
def test_tensorstore_reads_what_our_writer_wrote(compression: str, tmp_path: Path) -> None:
    """The writer of these tests is right."""
    values = numbers((5, 6, 7), "u2")
    store: dict[str, bytes] = {}
    options = {k: v for k, v in COMPRESSIONS[compression].items() if k not in ("nthreads", "typesize")}
    write_array(store, "", values, (2, 4, 7), options, sparse=True)
    same(np.asarray(by_tensorstore(write_files(store, tmp_path)).read().result()).T, values)


def test_the_first_dimension_of_n5_is_the_last_axis() -> None:
    values = np.arange(2 * 3 * 5, dtype="u2").reshape(2, 3, 5)
    store: dict[str, bytes] = {}
    write_array(store, "", values, (1, 2, 3))
    assert json.loads(store["attributes.json"])["dimensions"] == [5, 3, 2]
    assert {"0/0/0", "1/0/0", "0/1/0", "1/1/1"} <= store.keys()
    array = gzarr.open_array(store)
    same(array[...], values)
    assert (array.order, array.metadata.chunk_key_encoding.encode((2, 1, 0))) == ("C", "0/1/2")
    # An example of the specification: 1 × 2 × 3 elements, of which the first dimension is the fastest.
    example = bytes.fromhex("0000 0003 00000001 00000002 00000003 0001 0002 0003 0004 0005 0006")
    document = {"dimensions": [1, 2, 3], "blockSize": [1, 2, 3], "dataType": "uint16", "compression": {"type": "raw"}}
    found = gzarr.open_array({"attributes.json": json.dumps(document).encode(), "0/0/0": example})[...]
    same(found, np.array([1, 2, 3, 4, 5, 6], "u2").reshape(3, 2, 1))


#: The examples of the specification: compressed blocks of 1 × 2 × 3 elements, 1 to 6.
EXAMPLES = {
    "bzip2": "425a6839314159265359023e0dd200000040007f002000310c010d31a87394337c5dc914e1424008f83748",
    "gzip": "1f8b08000000000000006360646062606660616065600300aaea6dbf0c000000",
    "xz": (
        "fd377a585a000004e6d6b4460200210116000000742fe5a301000b000100020003000400050006000d0309ca34ec15a70001240c"
        "a618d8d81fb6f37d010000000004595a"
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("old", [False, True], ids=["compression", "compressionType"])
def test_examples_of_the_specification(name: str, old: bool) -> None:
    """Also as documents of version 1.0.0 have the compression."""
    member: dict[str, Any] = {"compressionType": name} if old else {"compression": {"type": name}}
    document = {"dimensions": [1, 2, 3], "blockSize": [1, 2, 3], "dataType": "uint16", **member}
    header = struct.pack(">HHIII", 0, 3, 1, 2, 3)
    store = {"attributes.json": json.dumps(document).encode(), "0/0/0": header + bytes.fromhex(EXAMPLES[name])}
    same(gzarr.open_array(store)[...].ravel(), np.arange(1, 7, dtype="u2"))


@pytest.mark.parametrize("kind", [dict, CountingStore])
def test_many_blocks(kind: Any, device: TestedDevice) -> None:
    values = numbers((30, 20, 5), "u2")
    store: dict[str, bytes] = {}
    write_array(store, "", values, (1, 2, 2))
    assert len(store) == 901
    array = device.open(kind(store))
    same(device.read(array), values)
    same(device.read(array, (slice(3, 29), 7)), values[3:29, 7])


def test_keys_that_are_built_together() -> None:
    encoding = ChunkKeyEncoding("n5", "/")
    chunks = np.argwhere(np.ones((4, 3, 5)))
    keys = chunk_keys(encoding, "a/", chunks)
    assert keys == ["a/" + encoding.encode(tuple(row)) for row in chunks.tolist()]
    assert keys[1] == "a/1/0/0"


def test_absent_blocks_are_zeros(device: TestedDevice) -> None:
    values = np.zeros((6, 6), "f4")
    values[2:4, 3:] = 1.5
    store: dict[str, bytes] = {}
    write_array(store, "", values, (2, 3), COMPRESSIONS["gzip"], sparse=True)
    assert len(store) == 2
    array = device.open(store)
    same(device.read(array), values)
    assert array.fill_value == 0
    with pytest.raises(gzarr.MissingChunkError):
        array.read(missing="error")


@pytest.mark.parametrize("mode", [1, 2])
def test_blocks_of_variable_length_are_refused_with_their_name(mode: int, device: TestedDevice) -> None:
    store: dict[str, bytes] = {}
    write_array(store, "", np.arange(6, dtype="u1"), (3,))
    header = struct.pack(">HHI", mode, 1, 3) + struct.pack(">I", 3) * (mode == 1)
    store["1"] = header + b"\3\4\5"
    array = device.open(store)
    same(device.read(array, slice(3)), np.arange(3, dtype="u1"))
    with pytest.raises(gzarr.ChunkDecodeError, match={1: "mode 1 .varlength.", 2: "mode 2 .object."}[mode]):
        device.read(array)


CORRUPT: dict[str, bytes] = {
    "nothing": b"",
    "half a header": struct.pack(">HH", 0, 2),
    "other dimensions": struct.pack(">HHIII", 0, 3, 4, 4, 1),
    "no dimensions": struct.pack(">HH", 0, 0) + bytes(40),
    "too large": struct.pack(">HHII", 0, 2, 2**32 - 1, 2**32 - 1) + bytes(40),
    "larger along one dimension": struct.pack(">HHII", 0, 2, 5, 3) + bytes(40),
}


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
def test_corrupt_blocks_are_errors_in_bounded_memory(compression: str, device: TestedDevice) -> None:
    options = COMPRESSIONS[compression]
    values = numbers((8, 8), "u2")
    store: dict[str, bytes] = {}
    write_array(store, "", values, (4, 4), options)
    good = store["1/0"]
    array = device.open(store)

    def read() -> None:
        device.read(array)

    # 64 MiB of zeros in place of 32 bytes.
    bomb = struct.pack(">HHII", 0, 2, 4, 4) + compressed(
        bytes(64 << 20) if compression != "lz4" else bytes(1 << 16), options
    )
    cases = [*CORRUPT.values(), bomb, good[:-1], good[:13], good[:12]]
    for number, value in enumerate(cases):
        store["1/0"] = value
        with pytest.raises((gzarr.ChunkDecodeError, gzarr.ChunkReadError), match="'1/0'"):
            read()
        if not device.is_cuda:
            tracemalloc.start()
            with pytest.raises(gzarr.ChunkError):
                read()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 8 << 20, number
    # Bytes in between never give anything but elements or our errors.
    for at in range(0, len(good), 3):
        store["1/0"] = good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :]
        with contextlib.suppress(gzarr.ChunkDecodeError):
            read()
    store["1/0"] = good
    same(device.read(array), values)


def test_blocks_without_elements_and_arrays_without_elements(device: TestedDevice) -> None:
    store: dict[str, bytes] = {}
    write_array(store, "", np.zeros((0, 5), "i4"), (2, 3))
    same(device.read(device.open(store)), np.zeros((0, 5), "i4"))
    write_array(store, "", np.ones((2, 5), "i4"), (2, 5))
    store["0/0"] = struct.pack(">HHII", 0, 2, 0, 2)
    same(device.read(device.open(store)), np.zeros((2, 5), "i4"))


# -- lz4-java's stream -------------------------------------------------------------------------------------------------


def decode(stream: bytes, nbytes: int | None, limit: int | None = None) -> bytes:
    return bytes(Lz4JavaCodec().decode(stream, BytesRepresentation(nbytes, limit)))


@settings(max_examples=60)
@given(
    data=st.binary(max_size=300) | st.integers(0, 6000).map(lambda n: bytes(i // 7 % 256 for i in range(n))),
    block_size=st.sampled_from([64, 1000, 1024, 1 << 16]),
    ends=st.booleans(),
)
def test_lz4_java_streams(data: bytes, block_size: int, ends: bool) -> None:
    stream = lz4_blocks(data, block_size, ends=ends)
    assert decode(stream, len(data)) == data
    ours = Lz4JavaCodec(block_size)
    again = bytes(ours.encode(data, BytesRepresentation(len(data))))
    assert decode(again, None, len(data)) == data
    for wrong in {len(data) - 1, len(data) + 1, 0} - {len(data), -1}:
        with pytest.raises(ValueError, match="lz4"):
            decode(stream, wrong)


def test_lz4_without_a_header_as_z5_writes_it() -> None:
    data = bytes(range(200)) * 20
    block = numcodecs.LZ4().encode(data)[4:]
    assert decode(block, len(data)) == data
    for damaged, nbytes in ((block, len(data) + 1), (block, len(data) - 1), (block[:-1], len(data)), (block, None)):
        with pytest.raises(ValueError, match="lz4"):
            decode(damaged, nbytes, len(data))


def test_xxhash32_of_both_is_that_of_its_specification() -> None:
    assert (xxhash32(b"", 0), xxhash32(b"abc", 0)) == (0x02CC5D05, 0x32D153FF)
    theirs = native.xxhash32()
    assert theirs is not None
    for size in (0, 1, 5, 15, 16, 17, 100):
        data = np.arange(size, dtype="u1")
        assert theirs(data, 0x9747B28C) == xxhash32(data.tobytes(), 0x9747B28C)


def test_lz4_java_streams_that_lie() -> None:
    data = bytes(range(200)) * 20
    stream = lz4_blocks(data, 1024)
    for damaged, reason in (
        (b"LZ4Bloc\0" + stream[8:], "lz4: "),
        (stream[:1100] + b"\0" + stream[1101:], "expected the header|lz4"),
        (b"", "decoded to 0 bytes"),
        (b"\xf0", "neither"),
        (stream[:15], "expected the header"),
        (stream[:40], "states .* but there are"),
        (stream[:8] + b"\x40" + stream[9:], "corrupt"),
        (stream[:13] + struct.pack("<I", 2**32 - 1) + stream[17:], "more than the block can have"),
        (stream[:17] + struct.pack("<I", 5) + stream[21:], "checksum"),
        (stream[:30] + bytes([stream[30] ^ 1]) + stream[31:], "lz4"),
        (stream + b"x", "follow the end"),
    ):
        with pytest.raises(ValueError, match=reason):
            decode(damaged, len(data))
    with pytest.raises(ValueError, match="more than this chunk"):
        decode(stream, None, 1000)


def test_a_block_is_what_the_specification_says() -> None:
    values = np.arange(6, dtype="u2").reshape(2, 3)
    assert block(values, {"type": "raw"}) == struct.pack(">HHII6H", 0, 2, 3, 2, *range(6))
