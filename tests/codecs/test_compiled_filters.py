"""Filters of numbers that compiled code undoes: the same bits as numcodecs and zarr-python give."""

from __future__ import annotations

import warnings
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.errors import ChunkDecodeError

Array = np.ndarray[Any, Any]
INTEGERS = ["<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"]
FLOATS = ["<f4", "<f8"]
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


def bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view("u1")


def numbers(dtype: str, shape: tuple[int, ...] = (21, 17), seed: int = 1) -> Array:
    """Return numbers of all sizes, for floats also those that are none, or infinite."""
    made = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        values = made.normal(0, 10.0 ** made.integers(-30, 30, shape)).astype(kind)
        values.flat[:4] = np.nan, np.inf, -np.inf, -0.0
        return values
    limits = np.iinfo(kind)
    values = made.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    values.flat[:2] = limits.min, limits.max
    return values


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": f"numcodecs.{name}", "configuration": configuration}


def in_version_2(shape: tuple[int, ...], dtype: str, filters: list[Any], encoded: Array, **options: Any) -> gzarr.Array:
    """Return an array whose only chunk is stored as filters are configured, whatever these would have made of data."""
    store = gzarr.MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.create_array(
            made := zarr.storage.MemoryStore(), shape=shape, chunks=shape, dtype=dtype, zarr_format=2, filters=filters,
            compressors=None, fill_value=0, **options,
        )  # fmt: skip
    for key, value in made._store_dict.items():
        store.set(key, value.to_bytes())
    store.set(".".join("0" * len(shape)), encoded.tobytes())
    return gzarr.open_array(store, device="cpu")


def undone(filters: list[Any], encoded: Array, dtype: str) -> Array:
    """Undo filters as numcodecs does."""
    data: Any = encoded
    with np.errstate(all="ignore"):
        for one in reversed(filters):
            data = one.decode(np.ascontiguousarray(data).view("u1"))
    result: Array = np.asarray(data).view("u1").reshape(-1).view(dtype)
    return result


@settings(max_examples=200)
@given(drawn=st.data())
def test_lines_and_differences_of_any_numbers(drawn: st.DataObject) -> None:
    kind = drawn.draw(st.sampled_from(["delta", "fixedscaleoffset", "quantize", "astype"]))
    dtype = drawn.draw(st.sampled_from(INTEGERS + FLOATS))
    astype = drawn.draw(st.sampled_from(INTEGERS + FLOATS))
    if kind == "delta":
        one: Any = numcodecs.Delta(dtype, astype)
    elif kind == "fixedscaleoffset":
        some = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6))
        scale = drawn.draw(some.filter(lambda n: abs(n) > 1e-6))
        one = numcodecs.FixedScaleOffset(drawn.draw(some), scale, dtype, astype)
    elif kind == "quantize":
        dtype, astype = drawn.draw(st.sampled_from(FLOATS)), drawn.draw(st.sampled_from(FLOATS))
        one = numcodecs.Quantize(2, dtype, astype)
    else:
        one = numcodecs.AsType(astype, dtype)
    shape = drawn.draw(st.sampled_from([(1,), (7,), (21, 17), (3, 5, 89)]))
    stored = numbers(astype, shape, drawn.draw(st.integers(0, 99)))
    array = in_version_2(shape, dtype, [one], stored)
    with warnings.catch_warnings():
        # Floats that are no integers, which numcodecs alone undoes.
        warnings.simplefilter("ignore")
        found, expected = array[...], undone([one], stored, dtype)
    np.testing.assert_array_equal(bits(found), bits(expected.reshape(shape)))
    if array.decode_path.startswith("cpu-native"):
        partial = array[..., shape[-1] // 3 :]
        np.testing.assert_array_equal(bits(partial), bits(found[..., shape[-1] // 3 :]))


NATIVE: list[Any] = [
    ("<f4", [numcodecs.FixedScaleOffset(250, 100, "<f4", "<i2")]),
    ("<f4", [numcodecs.FixedScaleOffset(-1.5, 0.25, "<f4", "<u1")]),
    ("<f8", [numcodecs.FixedScaleOffset(2**40 + 1, 1e-3, "<f8", "<i4")]),
    ("<f8", [numcodecs.FixedScaleOffset(0, 3, "<f8", "<f4")]),
    ("<f4", [numcodecs.Quantize(3, "<f4")]),
    ("<f8", [numcodecs.Quantize(3, "<f8", "<f4")]),
    ("<f4", [numcodecs.BitRound(5)]),
    ("<f4", [numcodecs.AsType("<u2", "<f4")]),
    ("<u4", [numcodecs.AsType("<i4", "<u4")]),
    ("<i8", [numcodecs.Delta("<i8", "<i2")]),
    ("<u2", [numcodecs.Delta("<u2")]),
    ("<f8", [numcodecs.Delta("<f8")]),
    ("<i4", [numcodecs.Fletcher32()]),
    ("|b1", [numcodecs.PackBits()]),
    ("|b1", [numcodecs.PackBits(), numcodecs.Fletcher32()]),
    ("<f4", [numcodecs.FixedScaleOffset(2600, 10, "<f4", "<i4"), numcodecs.Delta("<i4", "<i2"), numcodecs.Shuffle(2),
             numcodecs.Zlib(1), numcodecs.Fletcher32()]),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "filters"), NATIVE, ids=lambda value: "-".join(map(repr, value)))
def test_what_climate_archives_have_is_compiled(dtype: str, filters: list[Any], tmp_path: Any) -> None:
    """Written and read by zarr-python, in both orders, with windows that cross chunks and an uneven end."""
    numbers_ = (np.random.default_rng(2).normal(260, 9, (45, 70)) * 10).round().astype(dtype)
    for order in "CF":
        path = str(tmp_path / order)
        theirs = zarr.create_array(
            path, shape=numbers_.shape, chunks=(20, 32), dtype=dtype, zarr_format=2, filters=filters, order=order,
            compressors=None if len(filters) > 1 else numcodecs.Blosc("lz4"),
        )  # fmt: skip
        theirs[...] = numbers_
        ours = gzarr.open_array(path, device="cpu")
        assert ours.decode_path.startswith("cpu-native: ")
        for window in (np.s_[...], np.s_[3:41, 7:66:5], np.s_[::-4, 31], np.s_[44:45]):
            np.testing.assert_array_equal(bits(ours[window]), bits(np.asarray(theirs[...])[window]))
        # Some chunks are replaced, and some in part.
        writable = gzarr.open_array(path, mode="r+", device="cpu")
        writable[10:30, 5:50] = numbers_[10:30, 5:50] // 2
        np.testing.assert_array_equal(bits(ours[...]), bits(np.asarray(zarr.open_array(path)[...])))


CHAINS: list[Any] = [
    ("f4", [named("fixedscaleoffset", offset=250, scale=100, dtype="<f4", astype="<i2"), LITTLE, ZSTD], True),
    ("f4", [named("fixedscaleoffset", offset=250, scale=100, astype="<i2"), LITTLE, ZSTD], True),
    # Bytes would be swapped before the filter; placing swaps after it.
    ("f4", [named("fixedscaleoffset", offset=250, scale=100, dtype="<f4", astype="<i2"), BIG, ZSTD], False),
    ("i4", [named("delta", dtype="<i4"), LITTLE, ZSTD], True),
    ("f4", [named("fixedscaleoffset", offset=250, scale=2, astype="<i4"), named("delta", dtype="<i4"), LITTLE], True),
    ("i4", [{"name": "transpose", "configuration": {"order": [1, 0]}}, named("delta", dtype="<i4"), LITTLE], True),
    # Differences are of elements in another order than the one that they are stored in.
    ("i4", [named("delta", dtype="<i4"), {"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE], False),
    ("f8", [named("fixedscaleoffset", offset=1, scale=4, dtype="<f8", astype="<i4"),
            {"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE], True),
    # Placing would convert before differences are added up.
    ("i4", [named("delta", dtype="<i4"), named("astype", encode_dtype="<i2", decode_dtype="<i4"), LITTLE], False),
    ("f4", [named("astype", encode_dtype="<i4", decode_dtype="<f4"), named("delta", dtype="<i4", astype="<i2"), LITTLE],
     True),
    ("f4", [named("quantize", digits=2, dtype="<f4"), named("bitround", keepbits=9), LITTLE, ZSTD], True),
    ("f4", [{"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}, LITTLE, ZSTD], True),
    ("f8", [{"name": "scale_offset", "configuration": {"offset": -0.5, "scale": 8}}, LITTLE, ZSTD], True),
    ("i4", [{"name": "scale_offset", "configuration": {"offset": 0, "scale": 1}}, LITTLE, ZSTD], True),
    ("i4", [{"name": "scale_offset", "configuration": {"offset": 5, "scale": 2}}, LITTLE, ZSTD], False),
    ("f4", [LITTLE, ZSTD, named("fletcher32")], True),
    ("bool", [{"name": "transpose", "configuration": {"order": [1, 0]}}, named("packbits"), LITTLE, ZSTD], True),
    # Bits are not elements of the array that could be exchanged.
    ("bool", [named("packbits"), {"name": "transpose", "configuration": {"order": [0]}}, LITTLE], False),
    ("i4", [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "packbits"}, ZSTD], True),
    ("i4", [named("delta", dtype="<i4"), {"name": "packbits", "configuration": {"last_bit": 13}}, ZSTD], True),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "codecs", "native"), CHAINS, ids=str)
def test_chains_of_version_3(dtype: str, codecs: list[Any], native: bool, tmp_path: Any) -> None:
    """What compiled code undoes is what host codecs undo, one by one."""
    data = (np.random.default_rng(2).integers(-300, 300, (45, 70)) * 2 + 250).astype(dtype)
    array = gzarr.create_array(
        str(tmp_path), shape=data.shape, chunks=(20, 32), dtype=dtype, codecs=codecs, device="cpu"
    )
    array[...] = data
    assert array.decode_path.startswith("cpu-native: ") is native
    expected = np.full((60, 96), array.fill_value, dtype)
    chain = array.metadata.codecs
    for i, j in np.ndindex(3, 3):
        representations: list[Any] = [ArrayRepresentation((20, 32), np.dtype(dtype))]
        for codec in chain:
            representations.append(codec.encoded(representations[-1]))
        value: Any = np.frombuffer((tmp_path / "c" / str(i) / str(j)).read_bytes(), "u1")
        for codec, decoded in zip(reversed(chain), reversed(representations[:-1]), strict=True):
            value = codec.decode(value, decoded)
        expected[20 * i : 20 * i + 20, 32 * j : 32 * j + 32] = value
    for window in (np.s_[...], np.s_[3:41, 7:66:5], np.s_[::-4, 31]):
        np.testing.assert_array_equal(bits(array[window]), bits(expected[:45, :70][window]))


def one_chunk(dtype: str, shape: tuple[int, ...], codecs: list[Any]) -> tuple[gzarr.Array, Any, ArrayRepresentation]:
    """Return an array of one chunk, the codec of its elements, and the chunk."""
    array = gzarr.create_array(
        gzarr.MemoryStore(),
        shape=shape,
        chunks=shape,
        dtype=dtype,
        codecs=codecs,
        device="cpu",
        write_empty_chunks=True,
    )
    return array, array.metadata.codecs[0], ArrayRepresentation(shape, array.dtype)


@settings(max_examples=300)
@given(drawn=st.data())
def test_packed_bits(drawn: st.DataObject) -> None:
    """Any bits of any elements are unpacked as NumPy does it, from the whole chunk and for a part of it."""
    dtype = drawn.draw(
        st.sampled_from(["bool", *(t[1:] for t in INTEGERS + FLOATS), "f2", "c8", "c16", "int4", "uint2"])
    )
    name = np.dtype(dtype).name if dtype not in ("int4", "uint2") else dtype
    width = {"bool": 1, "int4": 4, "uint2": 2}.get(dtype) or 8 * np.dtype(dtype).itemsize
    width //= 2 if dtype.startswith("c") else 1
    first = drawn.draw(st.integers(0, width - 1))
    last = drawn.draw(st.integers(first, width - 1))
    padding = drawn.draw(st.sampled_from(["none", "first_byte", "last_byte"]))
    configuration = {"padding_encoding": padding, "first_bit": first, "last_bit": last}
    shape = drawn.draw(st.sampled_from([(1,), (7,), (8,), (21, 17), (3, 5, 89)]))
    array, codec, chunk = one_chunk(name, shape, [{"name": "packbits", "configuration": configuration}])
    assert array.decode_path == "cpu-native: packbits"
    count = codec._packed_bits(chunk)
    random = np.random.default_rng(drawn.draw(st.integers(0, 99)))
    stored = np.packbits(random.integers(0, 2, count, np.uint8), bitorder="little")
    mark = np.array([-count % 8], np.uint8)
    parts = {"none": [stored], "first_byte": [mark, stored], "last_byte": [stored, mark]}[padding]
    encoded = np.concatenate(parts).tobytes()
    if last - first + 1 == 8 * np.dtype(array.dtype).itemsize // (2 if dtype.startswith("c") else 1):
        # zarrs leaves the byte out.
        encoded = drawn.draw(st.sampled_from([encoded, stored.tobytes()]))
    key = "c/" + "/".join("0" * len(shape))
    array.store.set(key, encoded)
    expected = codec.decode(encoded, chunk)
    np.testing.assert_array_equal(bits(array[...]), bits(expected))
    part = np.s_[..., shape[-1] // 3 :: 2]
    np.testing.assert_array_equal(bits(array[part]), bits(expected[part]))
    for other in (encoded[:-1], encoded + b"\0", encoded + b"\0\0", b""):
        array.store.set(key, other)
        try:
            # The byte may be left out, or be the last now.
            expected = codec.decode(other, chunk)
        except ValueError:
            with pytest.raises(ChunkDecodeError):
                array[...]
        else:
            np.testing.assert_array_equal(bits(array[...]), bits(expected))


@pytest.mark.parametrize("place", ["first_byte", "last_byte", "numcodecs"])
def test_a_wrong_number_of_padding_bits(place: str) -> None:
    codecs = [named("packbits"), LITTLE]
    if place != "numcodecs":
        codecs = [{"name": "packbits", "configuration": {"padding_encoding": place}}]
    array, _, _ = one_chunk("bool", (13,), codecs)
    array[...] = flags = np.arange(13) % 3 == 0
    assert array.decode_path.startswith("cpu-native: ")
    np.testing.assert_array_equal(array[...], flags)
    stored = array.store.get("c/0")
    assert stored is not None
    at = 2 if place == "last_byte" else 0
    assert bytes(stored)[at] == 3
    for wrong in (0, 2, 4, 11, 255):
        damaged = bytearray(stored)
        damaged[at] = wrong
        array.store.set("c/0", bytes(damaged))
        with pytest.raises(ChunkDecodeError, match=rf"states {wrong} bits of padding, expected 3"):
            array[...]


@pytest.mark.parametrize("nbytes", [0, 1, 2, 3, 719, 720, 721, 1440, 5000, 5001])
def test_checksums_of_hdf5(nbytes: int) -> None:
    """Of any length, also where sums are 0 or 65,535 after each 360 words."""
    for fill in (0, 255, None):
        made = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
        data = made if fill is None else np.full(nbytes, fill, np.uint8)
        stored = np.frombuffer(numcodecs.Fletcher32().encode(data), np.uint8) if nbytes else np.zeros(4, np.uint8)
        array = in_version_2((max(nbytes, 1),), "|u1", [numcodecs.Fletcher32()], stored)
        assert array.decode_path == "cpu-native: numcodecs.fletcher32"
        if not nbytes:
            with pytest.raises(ChunkDecodeError):
                array[...]
            continue
        np.testing.assert_array_equal(array[...], data)
        for place in (0, nbytes - 1, nbytes, nbytes + 3):
            damaged = stored.copy()
            damaged[place] ^= 8
            array.store.set("0", damaged.tobytes())
            with pytest.raises(ChunkDecodeError, match=r"a checksum does not match.*fletcher32"):
                array[...]
        array.store.set("0", b"abc")
        with pytest.raises(ChunkDecodeError):
            array[...]


@pytest.mark.parametrize(
    "one",
    [numcodecs.FixedScaleOffset(1, 2, "<f4", "<i2"), numcodecs.Delta("<i4", "<i2"), numcodecs.AsType("<i2", "<f4")],
)
def test_chunks_of_a_wrong_size(one: Any) -> None:
    dtype = one.get_config().get("dtype") or one.get_config()["decode_dtype"]
    for nbytes in (0, 1, 19, 21, 40):
        array = in_version_2((10,), dtype, [one], np.zeros(nbytes, np.uint8))
        assert array.decode_path.startswith("cpu-native: ")
        with pytest.raises(ChunkDecodeError):
            array[...]


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize(
    ("values", "one", "encoded"),
    [
        (
            np.array([1, 2.5, 3], "f4"),
            named("fixedscaleoffset", offset=0, scale=10, dtype="<f4", astype=">i2"),
            np.array([10, 25, 30], "i2"),
        ),
        (
            np.array([1, 2.5, 3], "f4"),
            named("fixedscaleoffset", offset=0, scale=10, dtype=">f4", astype="<i2"),
            np.array([10, 25, 30], "i2"),
        ),
        (np.array([1, 300, 3], "i4"), named("delta", dtype="<i4", astype=">i4"), np.array([1, 299, -297], "i4")),
        (
            np.array([1, 300, 3], "f4"),
            named("astype", encode_dtype=">i2", decode_dtype="<f4"),
            np.array([1, 300, 3], "i2"),
        ),
        (
            np.array([1, 2.5, 3], "f4"),
            named("quantize", digits=1, dtype="<f4", astype=">f4"),
            np.array([1, 2.5, 3], "f4"),
        ),
    ],
    ids=["packed", "of another order", "delta", "astype", "quantize"],
)
def test_byte_orders_that_filters_state_mean_nothing(
    order: str, values: Array, one: Any, encoded: Array, tmp_path: Any
) -> None:
    """That of the elements in the chunk is the one of ``bytes``; zarr-python 3.1.6 mixes them up."""
    codecs = [one, {"name": "bytes", "configuration": {"endian": order}}]
    array = gzarr.create_array(tmp_path / "a", data=values, codecs=codecs)
    assert array.store.get("c/0") == encoded.astype(encoded.dtype.newbyteorder(order)).tobytes()
    np.testing.assert_array_equal(gzarr.load(tmp_path / "a"), values, strict=True)
    # The documents state what was given.
    assert array.metadata.codecs[0].to_json() == one
    # In version 2, each filter takes and makes bytes, in the order that it states.
    copied = gzarr.copy(tmp_path / "a", tmp_path / "b", zarr_format=2, lossy=True)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b")[...], values)
    np.testing.assert_array_equal(copied[...], values)
