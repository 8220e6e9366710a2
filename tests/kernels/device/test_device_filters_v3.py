"""``packbits``, ``scale_offset`` and ``cast_value`` decoded by device kernels, bitwise equal to gzarr's own codecs."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import devices
from support.device_arena import random_bytes
from support.device_filters import CHUNKS, SHAPE, data_for, kernels_for, undo, write3
from support.zarr_arrays import BIG, CRC32C, LITTLE, blosc3, codec, same, shard, v3

import gzarr
from gzarr.codecs.casting import ROUNDINGS
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.registry import codec_from_v3
from gzarr.engines.cuda.filters import Filter, device_filters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

INTEGERS = [f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)]
FLOATS = ("f2", "f4", "f8")
SMALL = {"blocks": 1, "threads": 2}


def made(name: str, **configuration: Any) -> Any:
    return codec_from_v3(codec(name, **configuration), "$")


def like(n: int, dtype: Any) -> ArrayRepresentation:
    return ArrayRepresentation((n,), np.dtype(dtype))


def steps_of(ours: Any, decoded: ArrayRepresentation, swap: int = 0) -> tuple[Filter, ...] | None:
    return device_filters(ours, ours.encoded(decoded), decoded, swap)


def step_of(ours: Any, decoded: ArrayRepresentation, swap: int = 0) -> Filter:
    steps = steps_of(ours, decoded, swap)
    assert steps is not None
    (step,) = steps
    return step


def check(ours: Any, chunks: list[np.ndarray[Any, Any]], dtype: Any, **how: int) -> None:
    """Compare the kernel's results for encoded arrays of one length with those of the codec, in either byte order."""
    decoded = like(chunks[0].size, dtype)
    expected = [ours.decode(chunk, decoded) for chunk in chunks]
    for swap in {0, chunks[0].itemsize} - {1}:
        stored = [(chunk.byteswap() if swap else chunk).tobytes() for chunk in chunks]
        found, _ = undo(step_of(ours, decoded, swap), stored, **how)
        for result, wanted in zip(found, expected, strict=True):
            assert result == wanted.tobytes(), (ours, swap, np.frombuffer(result, dtype), wanted)


def numbers(dtype: Any) -> np.ndarray[Any, Any]:
    """Arbitrary bits, and the numbers of a type around all limits of other types."""
    dtype = np.dtype(dtype)
    bits = np.frombuffer(random_bytes(200 * dtype.itemsize, dtype.itemsize), dtype)
    powers = [sign * ((1 << k) + d) for k in range(65) for d in (-1, 0, 1) for sign in (1, -1)]
    if dtype.kind != "f":
        # Half-way between neighbours of float32 and float64, and next to that.
        powers += [(1 << k) + (1 << (k - m)) + d for m in (24, 53) for k in range(m, 64) for d in (-1, 0, 1)]
        limits = np.iinfo(dtype)
        return np.concatenate([np.array([n for n in powers if limits.min <= n <= limits.max], dtype), bits])
    values = [*map(float, powers), math.inf, -math.inf, -0.0]
    for other in FLOATS:
        info = np.finfo(other)
        ends = (float(info.max), float(info.tiny), float(info.smallest_subnormal))
        values += [s * end * (1 + d) for end in ends for d in (0, 2**-12, -(2**-25), 2**-26, 0.5) for s in (1, -1)]
    quiet = np.array([math.nan, -math.nan])
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(values).astype(dtype), quiet.astype(dtype), bits])


# -- packbits

PADDINGS = ("none", "first_byte", "last_byte")
RANGES: list[tuple[str, int | None, int | None]] = [
    ("?", None, None),
    ("i1", 0, 2),
    ("u1", 1, 7),
    ("i2", None, 11),
    ("i2", 2, 12),
    ("u2", 3, 3),
    ("i4", 5, 30),
    ("u4", None, 16),
    ("i8", 1, 63),
    ("i8", None, 62),
    ("u8", 63, None),
    ("u8", 7, 40),
    ("f2", 6, None),
    ("f4", 13, None),
    ("f8", 30, None),
    ("c8", 10, 31),
    ("c16", 1, None),
    ("M8[s]", None, 33),
    ("m8[ms]", 2, 60),
]


def packed(dtype: Any, n: int, first: int | None, last: int | None, padding: str) -> tuple[Any, list[bytes]]:
    """Return the codec and three encoded chunks of arbitrary bits."""
    limits = {name: bit for name, bit in (("first_bit", first), ("last_bit", last)) if bit is not None}
    ours = made("packbits", padding_encoding=padding, **limits)
    array = like(n, dtype)
    chunks = []
    for seed in range(3):
        raw = np.frombuffer(random_bytes(array.nbytes, seed), np.uint8)
        data = (raw & 1).view("?") if dtype == "?" else raw.view(dtype)
        chunks.append(bytes(ours.encode(data, array)))
    return ours, chunks


@pytest.mark.parametrize(("dtype", "first", "last"), RANGES, ids=lambda value: str(value))
def test_packed_bits(dtype: Any, first: int | None, last: int | None) -> None:
    for n, padding in itertools.product((1, 5, 8, 37), PADDINGS):
        ours, chunks = packed(dtype, n, first, last, padding)
        array = like(n, dtype)
        step = step_of(ours, array)
        assert step.marks == (padding != "none")
        found, marks = undo(step, chunks, offset=n % 8)
        assert found == [ours.decode(chunk, array).tobytes() for chunk in chunks]
        assert marks == [0] * 3


@pytest.mark.parametrize("offset", range(8))
def test_packed_bits_that_begin_anywhere(offset: int) -> None:
    for dtype, first, last in (("?", None, None), ("i2", 2, 12), ("u8", 1, 63), ("f4", None, 30)):
        ours, chunks = packed(dtype, 21, first, last, "first_byte")
        found, _ = undo(step_of(ours, like(21, dtype)), chunks, offset)
        assert found == [ours.decode(chunk, like(21, dtype)).tobytes() for chunk in chunks]


@pytest.mark.parametrize("dtype", ["u1", "i2", "f8", "c8", "M8[s]"])
def test_whole_elements_are_packed_as_they_are(dtype: Any) -> None:
    assert steps_of(made("packbits"), like(9, dtype)) == ()
    for padding in PADDINGS[1:]:
        # Not all writers write the byte then.
        assert steps_of(made("packbits", padding_encoding=padding), like(9, dtype)) is None


@pytest.mark.parametrize("padding", PADDINGS[1:])
def test_wrong_padding_is_marked(padding: str) -> None:
    for dtype, last in (("?", None), ("i2", 10), ("u4", 30)):
        ours, chunks = packed(dtype, 13, None, last, padding)
        array, step = like(13, dtype), step_of(ours, like(13, dtype))
        at = 0 if padding == "first_byte" else -1
        for wrong in (1, 8, 128):
            damaged = bytearray(chunks[1])
            damaged[at] ^= wrong
            found, marks = undo(step, [chunks[0], bytes(damaged), chunks[2]], 5)
            assert marks == [0, 1, 0]
            assert [found[0], found[2]] == [ours.decode(chunks[i], array).tobytes() for i in (0, 2)]
            with pytest.raises(ValueError, match="bits of padding"):
                ours.decode(bytes(damaged), array)


# -- scale_offset

LINES = [
    (0, 10),
    (1000, 0.1),
    (-273.15, 100.0),
    (5, -3),
    (0.1, 1 / 3),
    (0, 1),
    (-7, 1e-40),
    ("0x00000001", "0x7f7fffff"),
]


@pytest.mark.parametrize(("offset", "scale"), LINES)
def test_scale_offset(offset: Any, scale: Any) -> None:
    for dtype in ("f4", "f8"):
        values = [f"{v}{v[2:]}" if isinstance(v, str) and dtype == "f8" else v for v in (offset, scale)]
        ours = made("scale_offset", offset=values[0], scale=values[1])
        check(ours, [numbers(dtype)], dtype, **SMALL)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_line_that_changes_no_integer(dtype: str) -> None:
    for swap in (0, np.dtype(dtype).itemsize):
        assert steps_of(made("scale_offset"), like(3, dtype), swap) == ()


@pytest.mark.parametrize(
    ("dtype", "offset", "scale"),
    [
        ("f4", 0, 0),
        ("f4", 0, "Infinity"),
        ("f8", "NaN", 1),
        ("f8", "-Infinity", 1),
        ("f4", 0, 1e-60),
        ("f2", 0, 1),
        ("u2", 1, 1),
        ("i4", 0, 2),
        ("i4", 0, -1),
    ],
)
def test_lines_that_are_left_to_the_cpu(dtype: str, offset: Any, scale: Any) -> None:
    assert steps_of(made("scale_offset", offset=offset, scale=scale), like(3, dtype)) is None


# -- cast_value


@pytest.mark.parametrize("encoded", [*INTEGERS, *FLOATS])
def test_cast_value(encoded: str) -> None:
    names = {dtype: np.dtype(dtype).name for dtype in (*INTEGERS, *FLOATS)}
    values = numbers(encoded)
    for decoded, rounding, out_of_range in itertools.product(names, ROUNDINGS, (None, "clamp", "wrap")):
        if out_of_range == "wrap" and np.dtype(encoded).kind == "f":
            continue
        limits = {} if out_of_range is None else {"out_of_range": out_of_range}
        ours = made("cast_value", data_type=names[encoded], rounding=rounding, **limits)
        if decoded == encoded:
            assert steps_of(ours, like(3, decoded), 2) == ()
        elif steps_of(ours, like(3, decoded)) is not None:
            check(ours, [values], decoded, **SMALL)


def test_which_casts_the_device_does() -> None:
    def does(encoded: str, decoded: str, **more: Any) -> bool:
        ours = made("cast_value", data_type=np.dtype(encoded).name, **more)
        return steps_of(ours, like(3, decoded)) is not None

    for encoded, decoded in itertools.product(INTEGERS, INTEGERS):
        # What always fits; the rest only where it wraps.
        assert does(encoded, decoded) == np.can_cast(encoded, decoded)
        assert does(encoded, decoded, out_of_range="clamp") == np.can_cast(encoded, decoded)
        assert does(encoded, decoded, out_of_range="wrap")
    for encoded in INTEGERS:
        assert [does(encoded, decoded) for decoded in FLOATS] == [False, True, True]
    for rounding in ROUNDINGS[1:]:
        assert [does(encoded, "f4", rounding=rounding) for encoded in ("i1", "u2", "i4", "u8")] == [
            *(True, True, False, False)
        ]
        assert [does(encoded, "f8", rounding=rounding) for encoded in ("i4", "u4", "i8", "u8")] == [
            *(True, True, False, False)
        ]
        assert not does("f8", "f4", rounding=rounding, out_of_range="clamp")
        assert does("f4", "f8", rounding=rounding)
    assert does("f2", "f8")
    assert not does("f2", "f4")
    assert not does("f8", "f4")
    assert does("f8", "f4", out_of_range="clamp")
    for encoded, decoded in (("f4", "u1"), ("f8", "i8"), ("f4", "f2")):
        assert not does(encoded, decoded)
        assert not does(encoded, decoded, out_of_range="clamp")
    assert not does("u1", "f4", scalar_map={"decode": [[0, "NaN"]]})
    assert does("u1", "f4", scalar_map={"encode": [["NaN", 0]]})


def test_every_half() -> None:
    ours = made("cast_value", data_type="float16")
    check(ours, [np.arange(65536, dtype="u2").view("f2")], "f8", **SMALL)


# -- reads

ZSTD = codec("zstd", level=1, checksum=False)
GZIP = codec("gzip", level=1)
SWAPPED = codec("transpose", order=[1, 0])
FLAGS = codec("packbits", padding_encoding="first_byte")
SHORT = codec("packbits", padding_encoding="last_byte", first_bit=0, last_bit=5)
LINE = codec("scale_offset", offset=-0.5, scale=8)
ROUNDED = codec("bitround", keepbits=8)
BYTES = codec("cast_value", data_type="uint8")

READS: list[tuple[str, str, list[Any], set[str]]] = [
    ("flags", "bool", [FLAGS], {"unpack_bits"}),
    ("flags-zstd", "bool", [codec("packbits"), ZSTD], {"unpack_bits"}),
    ("flags-transposed", "bool", [SWAPPED, FLAGS, CRC32C], {"unpack_bits"}),
    ("flags-gzip", "bool", [codec("packbits", padding_encoding="last_byte"), GZIP, CRC32C], {"unpack_bits"}),
    ("short", "int16", [SHORT], {"unpack_bits"}),
    ("short-transposed", "int32", [SWAPPED, SHORT, ZSTD], {"unpack_bits"}),
    ("short-blosc", "uint32", [SHORT, blosc3("lz4", "noshuffle", 1)], {"unpack_bits"}),
    ("short-blosc-shuffled", "int64", [SHORT, blosc3("lz4", "shuffle", 4)], {"unpack_bits"}),
    ("short-blosc-bits", "int16", [SHORT, blosc3("zstd", "bitshuffle", 2)], {"unpack_bits"}),
    ("high", "float32", [codec("packbits", first_bit=12), ZSTD], {"unpack_bits"}),
    ("complex", "complex64", [codec("packbits", first_bit=9, last_bit=31), ZSTD], {"unpack_bits"}),
    ("complex-whole", "complex128", [codec("packbits"), ZSTD], set()),
    ("whole", "uint32", [codec("packbits"), CRC32C], set()),
    ("line", "float32", [LINE, LITTLE, ZSTD], {"assemble_converted"}),
    ("line-big", "float64", [LINE, BIG], {"assemble_converted"}),
    ("line-transposed", "float64", [LINE, SWAPPED, BIG, ZSTD], {"assemble_converted"}),
    ("line-blosc", "float32", [LINE, LITTLE, blosc3("lz4", "shuffle", 4)], {"assemble_converted"}),
    ("line-of-integers", "int16", [codec("scale_offset"), SWAPPED, BIG, ZSTD], set()),
    ("cast", "float32", [BYTES, codec("bytes"), ZSTD], {"assemble_converted"}),
    ("cast-big", "float64", [codec("cast_value", data_type="int16"), BIG, ZSTD], {"assemble_converted"}),
    ("cast-transposed", "int64", [codec("cast_value", data_type="int16"), SWAPPED, BIG], {"assemble_converted"}),
    ("cast-wraps", "int8", [codec("cast_value", data_type="uint32", out_of_range="wrap"), BIG], {"assemble_converted"}),
    (
        "line-cast-packed",
        "float64",
        [LINE, BYTES, SWAPPED, SHORT, ZSTD],
        {"assemble_converted", "convert", "unpack_bits"},
    ),
    (
        "all",
        "float32",
        [SWAPPED, LINE, codec("cast_value", data_type="int32"), SHORT, ZSTD],
        {"assemble_converted", "convert", "unpack_bits"},
    ),
    (
        "reshaped",
        "int32",
        [SWAPPED, codec("reshape", shape=[-1]), codec("bitround", keepbits=8), SHORT],
        {"unpack_bits"},
    ),
    ("squeezed", "int32", [codec("zarrs.squeeze"), BIG, ZSTD], set()),
]


def data_type_of(name: str) -> np.ndarray[Any, Any]:
    """Return data that the chains above encode without loss."""
    data = data_for("f8") * 8 % 32
    whole = data % 2 == 0 if name == "bool" else data.astype(name)
    return whole - 1j * whole[::-1] if name.startswith("complex") else whole


@pytest.fixture
def on_host() -> Iterator[devices.TestedDevice]:
    with devices.use("on host") as tested:
        yield tested


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(("data_type", "codecs", "kernels"), [c[1:] for c in READS], ids=[c[0] for c in READS])
def test_reads(
    data_type: str, codecs: Any, kernels: set[str], sharded: bool, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    chunks, chain = (CHUNKS, codecs) if not sharded else ((16, 10), [shard(list(CHUNKS), codecs)])
    fill: Any = {"bool": False, "complex": [0, 0]}.get(data_type.rstrip("0123456789"), 0)
    document = v3(SHAPE, chunks, data_type, chain, fill)
    data = data_type_of(data_type)
    if "scale_offset" in json.dumps(codecs) and data_type.startswith("float"):
        data = data / 8 - 0.5
    write3(tmp_path / "a", document, data)
    same(gzarr.open_array(tmp_path / "a", device="cpu")[...], data)
    assert kernels_for(tmp_path / "a", document, on_host) == kernels


@pytest.mark.parametrize("compressor", [[], [ZSTD], [CRC32C]], ids=["raw", "zstd", "crc32c"])
@pytest.mark.parametrize("padding", PADDINGS[1:])
def test_faulty_padding_is_the_error_of_the_cpu(
    padding: str, compressor: Any, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    packing = codec("packbits", padding_encoding=padding)
    data = data_for("?", (30,))
    write3(tmp_path / "a", v3((30,), (9,), "bool", [packing, *compressor], False), data)
    ours = made("packbits", padding_encoding=padding)
    stored = bytearray(bytes(ours.encode(data[9:18], like(9, "?"))))
    stored[0 if padding == "first_byte" else -1] = 6
    encoded: Any = bytes(stored)
    for step in compressor:
        encoded = bytes(codec_from_v3(step, "$").encode(encoded, ours.encoded(like(9, "?"))))
    (tmp_path / "a" / "c" / "1").write_bytes(encoded)
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    same(on_host.read(array, slice(18, None), decode="cuda"), data[18:])
    errors = []
    for read in (lambda: on_host.read(array, decode="cuda"), gzarr.open_array(tmp_path / "a", device="cpu").read):
        with pytest.raises(gzarr.ChunkDecodeError, match="states 6 bits of padding, expected 7") as caught:
            read()
        assert (caught.value.chunk, caught.value.key) == ((1,), "c/1")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_waves_of_packed_chunks(tmp_path: Path, on_host: devices.TestedDevice) -> None:
    """Absent chunks, and waves of a small budget, which limits the memory held."""
    document = v3((64, 40), (8, 8), "float32", [LINE, BYTES, SHORT, ZSTD], 1.5)
    data = (data_for("f4", (64, 40)) * 8 % 32 / 8 - 0.5).astype("f4")
    write3(tmp_path / "a", document, data)
    (tmp_path / "a" / "c" / "3" / "2").unlink()
    host = gzarr.open_array(tmp_path / "a", device="cpu")[...]
    assert (host[24:32, 16:24] == 1.5).all()
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    assert on_host.watched is not None
    for budget in (200_000, 1_500_000):
        on_host.watched.reset_peak()
        same(on_host.read(array, decode="cuda", budget_bytes=budget), host)
        assert 0 < on_host.watched.peak <= budget


@pytest.mark.parametrize(
    ("data_type", "codecs"),
    [
        ("int16", [codec("scale_offset", offset=7), LITTLE, ZSTD]),
        ("uint32", [codec("packbits", padding_encoding="last_byte"), ZSTD]),
        ("float32", [codec("cast_value", data_type="uint8", scalar_map={"decode": [[0, "NaN"]]}), codec("bytes")]),
        ("uint8", [codec("cast_value", data_type="uint16"), LITTLE]),
        ("int32", [codec("reshape", shape=[[0, 1]]), codec("transpose", order=[0]), LITTLE]),
    ],
    ids=["offset", "whole", "map", "narrower", "transposed-behind-another-shape"],
)
def test_other_chains_are_decoded_by_the_cpu(
    data_type: str, codecs: Any, tmp_path: Path, on_host: devices.TestedDevice
) -> None:
    data = data_for(data_type) + np.dtype(data_type).type(7)
    write3(tmp_path / "a", v3(SHAPE, CHUNKS, data_type, codecs, 7), data)
    array = gzarr.open_array(tmp_path / "a", device=on_host.name)
    assert "no decoder for this chain on the device" in array.decode_path
    same(on_host.read(array, decode="cuda"), gzarr.open_array(tmp_path / "a", device="cpu")[...])
