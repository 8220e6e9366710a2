"""Decoding of filters by the device kernels, bitwise equal to numcodecs; and reads through them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
from support import devices
from support.device_arena import random_bytes
from support.device_filters import CHUNKS, SHAPE, data_for, kernels_for, undo, write3
from support.zarr_arrays import BIG, CRC32C, LITTLE, blosc3, codec, same, shard, v2, v3, write

import gzarr
from gzarr.codecs.codec import ArrayRepresentation, BytesRepresentation, Codec
from gzarr.codecs.numcodecs_adapter import NumcodecsArrayToArray, NumcodecsBytesToBytes
from gzarr.engines.cuda.filters import Filter, device_filters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LENGTHS = (0, 1, 7, 8, 9, 1000)
INTEGERS = [f"{order}{kind}{size}" for size in (1, 2, 4, 8) for kind in "iu" for order in ("<", ">")[: min(size, 2)]]
FLOATS = ("<f4", ">f4", "<f8", ">f8")
#: A launch in which each thread still strides over the work.
SMALL = {"blocks": 1, "threads": 2}


# -- kernels


def the_filter(encoder: Any, encoded_nbytes: int, decoded_nbytes: int) -> Filter:
    """Return the step that decodes a codec of numcodecs."""
    config = encoder.get_config()
    made = NumcodecsBytesToBytes(config.pop("id"), config)
    found = device_filters(made, BytesRepresentation(encoded_nbytes), BytesRepresentation(decoded_nbytes), 0)
    assert found is not None
    (step,) = found
    return step


def check(encoder: Any, chunks: list[np.ndarray[Any, Any]], **how: int) -> None:
    """Compare the kernel's results for encoded chunks of one length with those of numcodecs."""
    with np.errstate(all="ignore"):
        expected = [encoder.decode(chunk).tobytes() for chunk in chunks]
    step = the_filter(encoder, chunks[0].nbytes, len(expected[0]))
    found, _ = undo(step, [chunk.tobytes() for chunk in chunks], **how)
    for result, wanted in zip(found, expected, strict=True):
        if result != wanted:
            actual, right = np.frombuffer(result, step.decoded), np.frombuffer(wanted, step.decoded)
            at = np.flatnonzero(actual.view((np.void, actual.itemsize)) != right.view((np.void, actual.itemsize)))[0]
            raise AssertionError(f"{encoder}: {actual[at : at + 1]} for {right[at : at + 1]} at {at} of {len(right)}")


def values(dtype: Any, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return arbitrary bits; for integers and floats, the extremes first."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.random.default_rng(seed).integers(0, 2, n).astype(np.bool_)
    result = np.frombuffer(random_bytes(n * dtype.itemsize, seed + n), dtype).copy()
    if dtype.kind == "f":
        largest, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, tiny, -tiny, 1.5, -0.1]
    else:
        special = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    result[: len(special)] = np.array(special, dtype)[:n]
    return result


@pytest.mark.parametrize("decoded", INTEGERS)
def test_delta(decoded: str) -> None:
    for encoded in INTEGERS:
        if np.result_type(encoded, decoded).kind != "f":
            check(numcodecs.Delta(decoded, encoded), [values(encoded, 20)], **SMALL)


@pytest.mark.parametrize("n", LENGTHS)
def test_delta_of_every_length(n: int) -> None:
    for decoded, encoded in (("<i4", "<i2"), ("|u1", "|u1"), (">i8", "<u4"), ("<u2", ">i8"))[: 1 if n > 9 else None]:
        check(numcodecs.Delta(decoded, encoded), [values(encoded, n, seed) for seed in range(4)])


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_delta_in_blocks_of_any_number_of_threads(threads: int) -> None:
    for n in (31, 120):
        chunks = [values("<i2", n, seed) for seed in range(5)]
        check(numcodecs.Delta("<i4", "<i2"), chunks, blocks=2, threads=threads, offset=1)


def test_delta_of_what_was_encoded() -> None:
    for dtype in ("u1", "<i2", ">i4", "<u8"):
        data = np.cumsum(np.random.default_rng(3).integers(-3, 4, 100)).astype(dtype)
        encoder = numcodecs.Delta(dtype)
        encoded = encoder.encode(data)
        found, _ = undo(the_filter(encoder, encoded.nbytes, data.nbytes), [encoded.tobytes()])
        assert found == [data.tobytes()]


@pytest.mark.parametrize("encoded", [*INTEGERS, "|b1"])
def test_astype_of_integers(encoded: str) -> None:
    for i, decoded in enumerate((*INTEGERS, *FLOATS, "|b1")):
        if decoded != encoded:
            check(numcodecs.AsType(encoded, decoded), [values(encoded, 61, i)], offset=i % 5, **SMALL)


def test_astype_of_every_length() -> None:
    for (encoded, decoded), n in itertools.product((("<u1", "<f8"), ("<i8", ">i2"), ("<f8", "<f4")), LENGTHS):
        check(numcodecs.AsType(encoded, decoded), [values(encoded, n, seed) for seed in range(3)], offset=3)


def test_integers_are_rounded_once() -> None:
    near = np.array([2**60 + 2**36 + d for d in range(-2, 3)] + [2**63 - 1, 2**53 + 1, 2**24 + 1], "<i8")
    for encoded, decoded in itertools.product(("<i8", "<u8"), FLOATS):
        check(numcodecs.AsType(encoded, decoded), [near.astype(encoded), (-near).astype(encoded)])


@pytest.mark.parametrize(("encoded", "decoded"), list(itertools.permutations(FLOATS, 2)))
def test_floats_between_types(encoded: str, decoded: str) -> None:
    chunks = [values(encoded, 1000)]
    check(numcodecs.AsType(encoded, decoded), chunks, **SMALL)
    check(numcodecs.Quantize(3, decoded, encoded), chunks, **SMALL)


def test_every_half() -> None:
    halves = np.arange(65536, dtype="<u2").view("<f2")
    for encoded, decoded in itertools.product(("<f2", ">f2"), FLOATS):
        chunk = halves.astype(encoded) if encoded[0] == "<" else halves.view("<u2").byteswap().view(">f2")
        check(numcodecs.AsType(encoded, decoded), [chunk], **SMALL)
    check(numcodecs.AsType("<f2", ">f2"), [halves])


SCALES = [(0, 10), (1000, 0.1), (-273.15, 100.0), (5, -3), (0.1, 1 / 3), (1e300, 1e-300), (-7, 1e-40), (2**53, 1)]


@pytest.mark.parametrize(("offset", "scale"), SCALES)
def test_fixedscaleoffset(offset: float, scale: float) -> None:
    for encoded, decoded in [*itertools.product(INTEGERS, ("<f4", ">f8")), ("<f8", "<f8"), (">f8", "<f4")]:
        encoder = numcodecs.FixedScaleOffset(offset, scale, decoded, encoded)
        check(encoder, [values(encoded, 61)], **SMALL)


@pytest.mark.parametrize(("offset", "scale"), SCALES[:5])
def test_fixedscaleoffset_in_single_precision(offset: float, scale: float) -> None:
    for encoded, decoded in itertools.product(("<f4", ">f4"), FLOATS):
        check(numcodecs.FixedScaleOffset(offset, scale, decoded, encoded), [values(encoded, 200)], **SMALL)


@pytest.mark.parametrize("n", LENGTHS)
def test_fixedscaleoffset_to_integers(n: int) -> None:
    for offset, scale, decoded, encoded in (
        (1000, 10, "<i4", "|u1"),
        (-5, 0.1, ">i2", "|i1"),
        (0.5, 3, "|u1", "|u1"),
        (-0.75, 1000.0, "|i1", "<u2"),
        (2.0**63, 1.0, "<u8", "<u4"),
        (0, 0.001, "<i8", "<i4"),
    ):
        chunks = [values(encoded, n, seed) for seed in range(2)]
        check(numcodecs.FixedScaleOffset(offset, scale, decoded, encoded), chunks)


@pytest.mark.parametrize("n", [*LENGTHS[1:], 15, 16, 17])
def test_packbits(n: int) -> None:
    encoder = numcodecs.PackBits()
    data = [values("?", n, seed) for seed in range(4)]
    chunks = [encoder.encode(chunk) for chunk in data]
    step = the_filter(encoder, chunks[0].nbytes, n)
    for offset in range(8):
        found, marks = undo(step, [chunk.tobytes() for chunk in chunks], offset)
        assert found == [chunk.tobytes() for chunk in data]
        assert marks == [0] * 4
    # What numcodecs would cut off is not what the chunk has: such a chunk is marked, and no other.
    wrong = [chunk.tobytes() for chunk in chunks]
    for bad in (1, 3):
        wrong[bad] = bytes([wrong[bad][0] ^ 1, *wrong[bad][1:]])
    found, marks = undo(step, wrong)
    assert marks == [0, 1, 0, 1]
    assert found == [chunk.tobytes() for chunk in data]


# -- which filters


def found_for(made: Codec, decoded: Any, swap: int = 0) -> tuple[Filter, ...] | None:
    return device_filters(made, made.encoded(decoded), decoded, swap)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "configuration"),
    [
        ("delta", {"dtype": "<f4"}),
        ("delta", {"dtype": "<f8", "astype": "<i4"}),
        ("delta", {"dtype": "<u8", "astype": "<i8"}),
        ("delta", {"dtype": "<M8[s]", "astype": "<i8"}),
        ("astype", {"encode_dtype": "<f4", "decode_dtype": "<i4"}),
        ("astype", {"encode_dtype": "<f8", "decode_dtype": "|b1"}),
        ("astype", {"encode_dtype": "<f4", "decode_dtype": "<f2"}),
        ("astype", {"encode_dtype": "<f4", "decode_dtype": "<c8"}),
        ("quantize", {"digits": 1, "dtype": "<f2", "astype": "<f4"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 1, "dtype": "<f2", "astype": "|u1"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 1, "dtype": "<f4", "astype": "<f2"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 1, "dtype": "<i4", "astype": "<f4"}),
        ("fixedscaleoffset", {"offset": 1, "scale": 1, "dtype": "<i4", "astype": "<i4"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 0.5, "dtype": "|u1", "astype": "|u1"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 1e-320, "dtype": "<i4", "astype": "<i4"}),
        ("fixedscaleoffset", {"offset": -1, "scale": 1, "dtype": "|u1", "astype": "|u1"}),
        ("fixedscaleoffset", {"offset": 0, "scale": float("inf"), "dtype": "<f8"}),
        ("fixedscaleoffset", {"offset": float("nan"), "scale": 1, "dtype": "<f8"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 1e-60, "dtype": "<f4"}),
        ("fixedscaleoffset", {"offset": 2**53 + 1, "scale": 1, "dtype": "<f8"}),
        ("fixedscaleoffset", {"offset": 0, "scale": 10**400, "dtype": "<f8", "astype": "<i4"}),
        ("base64", {}),
        ("crc32", {}),
    ],
)
def test_what_is_left_to_the_cpu(name: str, configuration: dict[str, Any]) -> None:
    assert found_for(NumcodecsBytesToBytes(name, configuration), BytesRepresentation(64)) is None


def test_filters_that_take_no_step() -> None:
    data = BytesRepresentation(64)
    for name, configuration in (
        ("bitround", {"keepbits": 3}),
        ("quantize", {"digits": 2, "dtype": ">f4"}),
        ("astype", {"encode_dtype": "<i4", "decode_dtype": "<i4"}),
    ):
        for swap in (0, 4):
            assert found_for(NumcodecsBytesToBytes(name, configuration), data, swap) == ()
    assert found_for(NumcodecsArrayToArray("quantize", {"digits": 2}), ArrayRepresentation((4,), np.dtype("f8"))) == ()


def test_a_step_takes_a_swap_with_it() -> None:
    made = NumcodecsArrayToArray("delta", {"dtype": "<i4", "astype": ">i2"})
    array = ArrayRepresentation((3,), np.dtype("i4"))
    for swap, encoded in ((0, ">i2"), (2, "<i2")):
        found = found_for(made, array, swap)
        assert found is not None
        assert [step.encoded for step in found] == [np.dtype(encoded)]
    assert found_for(made, array, 4) is None


# -- reads

SHUFFLE2 = {"id": "shuffle", "elementsize": 2}
LZ4 = {"id": "lz4", "acceleration": 1}
ZSTD = {"id": "zstd", "level": 1}
ZSTD3 = codec("zstd", level=1, checksum=False)
SWAPPED = codec("transpose", order=[1, 0])
NO_FILTERS = ("shuffle", "bytes", "transpose", "zstd", "blosc", "crc32c", "bitround")


def filter2(name: str, **configuration: Any) -> dict[str, Any]:
    return {"id": name, **configuration}


def filter3(name: str, **configuration: Any) -> dict[str, Any]:
    return codec(f"numcodecs.{name}", **configuration)


def blosc2(shuffle: int, clevel: int = 5) -> dict[str, Any]:
    return {"id": "blosc", "cname": "lz4", "clevel": clevel, "shuffle": shuffle, "blocksize": 0}


DELTA = filter2("delta", dtype="<i4", astype="<i2")
SCALE = filter2("fixedscaleoffset", offset=-10.5, scale=10, dtype=">f8", astype="|u1")
TO_SHORT = filter2("astype", encode_dtype="<i2", decode_dtype="<i4")
DELTA3 = filter3("delta", dtype="<i4", astype="<i2")
SCALE3 = filter3("fixedscaleoffset", offset=2, scale=10, dtype="<f8", astype="<i2")

V2: list[tuple[str, str, list[dict[str, Any]], dict[str, Any] | None]] = [
    ("delta-zstd", "<i4", [DELTA], ZSTD),
    ("delta-raw", "<i4", [DELTA], None),
    ("delta-shuffle-lz4", "<i4", [DELTA, SHUFFLE2], LZ4),
    ("delta-shuffle-raw", "<i4", [DELTA, SHUFFLE2], None),
    *((f"delta-blosc-{shuffle}", "<i4", [DELTA], blosc2(shuffle)) for shuffle in (0, 1, 2)),
    *((f"delta-shuffle-blosc-{shuffle}", "<i4", [DELTA, SHUFFLE2], blosc2(shuffle)) for shuffle in (1, 2)),
    ("delta-blosc-memcpyed", "<i4", [DELTA], blosc2(1, clevel=0)),
    ("delta-big", ">i4", [filter2("delta", dtype=">i4", astype=">i8")], ZSTD),
    ("scale-zstd", ">f8", [SCALE], ZSTD),
    ("scale-delta", ">f8", [SCALE, filter2("delta", dtype="|u1")], ZSTD),
    ("astype-delta", "<i4", [TO_SHORT, filter2("delta", dtype="<i2")], None),
    ("astype-delta-blosc", "<i4", [TO_SHORT, filter2("delta", dtype="<i2", astype=">i8")], blosc2(1)),
    ("packbits-zstd", "|b1", [filter2("packbits")], ZSTD),
    ("packbits-raw", "|b1", [filter2("packbits")], None),
    ("bitround", "<f4", [filter2("bitround", keepbits=5)], ZSTD),
    ("quantize-astype", "<f8", [filter2("quantize", digits=2, dtype="<f8", astype="<f4")], ZSTD),
]
V3: list[tuple[str, str, list[dict[str, Any]]]] = [
    ("delta", "int32", [DELTA3, LITTLE, ZSTD3]),
    ("delta-big", "int32", [DELTA3, BIG, ZSTD3, CRC32C]),
    ("transpose-delta", "int32", [SWAPPED, DELTA3, BIG]),
    ("scale", "float64", [SCALE3, LITTLE, blosc3("lz4", "shuffle", 2)]),
    ("scale-transpose-delta", "float64", [SCALE3, SWAPPED, filter3("delta", dtype="<i2"), BIG, ZSTD3]),
    ("bitround-transpose", "float32", [filter3("bitround", keepbits=9), SWAPPED, BIG, ZSTD3]),
    ("quantize", "float64", [filter3("quantize", digits=2, dtype="<f8", astype="<f4"), LITTLE, ZSTD3]),
    ("astype", "float64", [filter3("astype", encode_dtype="<f4", decode_dtype="<f8"), BIG, ZSTD3]),
    ("packbits", "bool", [filter3("packbits"), LITTLE, ZSTD3]),
]


@pytest.fixture
def on_host() -> Iterator[devices.TestedDevice]:
    with devices.use("on host") as tested:
        yield tested


def kernels_of(filters: list[dict[str, Any]]) -> set[str]:
    kernels = {"delta": "accumulate", "packbits": "unpack_bits"}
    names = [(f.get("id") or f["name"]).removeprefix("numcodecs.") for f in filters]
    names = [name for name in names if name not in NO_FILTERS]
    # What is converted last is converted when it is placed.
    return {kernels.get(name, "convert" if i else "assemble_converted") for i, name in enumerate(names)}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("dtype", "filters", "compressor"), [c[1:] for c in V2], ids=[c[0] for c in V2])
def test_reads_of_v2(
    dtype: str, filters: Any, compressor: Any, order: str, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    document = v2(SHAPE, CHUNKS, dtype, compressor, filters, order)
    write(tmp_path / "a", document, data_for(dtype))
    assert kernels_for(tmp_path / "a", document, on_host) == kernels_of(filters)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(("data_type", "codecs"), [c[1:] for c in V3], ids=[c[0] for c in V3])
def test_reads_of_v3(data_type: str, codecs: Any, sharded: bool, tmp_path: Path, on_host: devices.TestedDevice) -> None:
    chunks, chain = (CHUNKS, codecs) if not sharded else ((16, 10), [shard(list(CHUNKS), codecs)])
    document = v3(SHAPE, chunks, data_type, chain, False if data_type == "bool" else 0)
    write3(tmp_path / "a", document, data_for(data_type))
    assert kernels_for(tmp_path / "a", document, on_host) == kernels_of(codecs)


@pytest.mark.parametrize(("dtype", "stored"), [(">f8", "<f8"), ("<f8", ">f8")])
def test_byte_orders_of_a_filter_and_of_the_array(
    dtype: str, stored: str, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    """If they differ, the elements are those of the bytes that the filter returns."""
    document = v2((40,), (40,), dtype, None, [filter2("astype", encode_dtype="<f4", decode_dtype=stored)])
    (tmp_path / ".zarray").write_text(json.dumps(document))
    numbers = np.arange(40, dtype="<f4") / 8
    (tmp_path / "0").write_bytes(numbers.tobytes())
    expected = numbers.astype(stored).view(dtype).astype("f8")
    np.testing.assert_array_equal(gzarr.open_array(tmp_path, device="cpu")[...], expected)
    same(on_host.read(gzarr.open_array(tmp_path, device=on_host.name), decode="cuda"), expected)


def test_fields_of_elements_that_are_converted(tmp_path: Path, on_host: devices.TestedDevice) -> None:
    """The numbers that a filter converts need not be the elements, even of the same size."""
    dtype = np.dtype([("a", "<i4"), ("b", "<i2"), ("c", "<i2")])
    numbers = (np.arange(40) * 1_000_003 - 20_000_060).astype("<i4")
    elements = numbers.astype("<i8").view(dtype)
    filters = [{"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<i8"}]
    document = v2((40,), (40,), dtype.descr, None, filters)
    (tmp_path / ".zarray").write_text(json.dumps(document | {"fill_value": None}))
    (tmp_path / "0").write_bytes(numbers.tobytes())
    array = gzarr.open_array(tmp_path, device=on_host.name)
    host = gzarr.open_array(tmp_path, device="cpu")
    for name in dtype.names or ():
        for selection in (slice(None), slice(5, 39, 3)):
            np.testing.assert_array_equal(host.read((name, selection)), elements[name][selection])
            same(on_host.read(array, (name, selection), decode="cuda"), elements[name][selection])


def test_waves_with_absent_and_foreign_chunks(tmp_path: Path, on_host: devices.TestedDevice) -> None:
    """Chunks of every kind in waves of a small budget, which limits the memory held."""
    document = v2((64, 40), (8, 8), "<i4", blosc2(1), [DELTA, SHUFFLE2], fill=7)
    data = data_for("<i4", (64, 40))
    write(tmp_path / "a", document, data)
    (tmp_path / "a" / "3.2").unlink()
    encoded = numcodecs.Delta("<i4", "<i2").encode(data[:8, :8].reshape(-1))
    for key, other in (("0.0", numcodecs.Blosc("zstd", 5, 1)), ("0.1", numcodecs.Blosc("lz4", 0, 1))):
        chunk = numcodecs.Shuffle(2).encode(encoded)
        (tmp_path / "a" / key).write_bytes(bytes(other.encode(np.frombuffer(chunk, "<i2"))))
    host = gzarr.open_array(tmp_path / "a", device="cpu")[...]
    same(host[:8, 8:16], data[:8, :8])
    assert (host[24:32, 16:24] == 7).all()
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    assert on_host.watched is not None
    for budget in (400_000, 1_500_000):
        on_host.watched.reset_peak()
        same(on_host.read(array, decode="cuda", budget_bytes=budget), host)
        assert 0 < on_host.watched.peak <= budget


@pytest.mark.parametrize("compressor", [None, ZSTD], ids=["raw", "zstd"])
def test_faulty_packed_chunks_are_named(compressor: Any, tmp_path: Path, on_host: devices.TestedDevice) -> None:
    document = v2((30,), (9,), "|b1", compressor, [filter2("packbits")])
    data = data_for("?", (30,))
    write(tmp_path / "a", document, data)
    packed = bytearray(numcodecs.PackBits().encode(data[9:18]).tobytes())
    packed[0] = 6
    (tmp_path / "a" / "1").write_bytes(bytes(packed if compressor is None else numcodecs.Zstd(1).encode(packed)))
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    same(on_host.read(array, slice(18, None), decode="cuda"), data[18:])
    with pytest.raises(gzarr.ChunkDecodeError, match="packbits") as caught:
        on_host.read(array, decode="cuda")
    assert (caught.value.chunk, caught.value.key) == ((1,), "1")


@pytest.mark.parametrize(
    ("dtype", "filters", "compressor"),
    [
        ("<f4", [filter2("delta", dtype="<f4")], ZSTD),
        ("<i4", [filter2("crc32"), filter2("delta", dtype="<i4")], ZSTD),
        ("<i4", [SHUFFLE2, filter2("delta", dtype="<i2")], ZSTD),
    ],
    ids=["floats", "checksum", "shuffle-first"],
)
def test_other_chains_are_decoded_by_the_cpu(
    dtype: str, filters: Any, compressor: Any, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    data = data_for(dtype)
    write(tmp_path / "a", v2(SHAPE, CHUNKS, dtype, compressor, filters), data)
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    assert "no decoder for this chain on the device" in array.decode_path
    same(on_host.read(array, decode="cuda"), gzarr.open_array(tmp_path / "a", device="cpu")[...])


def test_transpositions_behind_filters_of_neighbours(tmp_path: Path, on_host: devices.TestedDevice) -> None:
    codecs = [filter3("delta", dtype="<i4"), SWAPPED, LITTLE, ZSTD3]
    store = {"zarr.json": json.dumps(v3((1 << 20, 64), CHUNKS, "int32", codecs)).encode()}
    assert "no decoder for this chain" in gzarr.open_array(store, device=on_host.name).decode_path
