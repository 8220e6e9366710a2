"""The codecs ``cast_value`` and ``scale_offset``: against their specifications' examples and other libraries."""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any

import cast_value_rs
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.zarr_arrays import LITTLE, codec, same, v3

import gzarr
from gzarr.codecs import casting
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.registry import codec_from_v3, codecs_from_v3

if TYPE_CHECKING:
    from support.devices import TestedDevice

RNG = np.random.default_rng(4)


def made(name: str, **configuration: Any) -> Any:
    return codec_from_v3(codec(name, **configuration), "$")


def like(array: np.ndarray[Any, Any]) -> ArrayRepresentation:
    return ArrayRepresentation(array.shape, array.dtype)


NUMBERS = [*(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64"]


def _edges(name: str) -> np.ndarray[Any, Any]:
    """Return numbers of a type around all limits of other types."""
    dtype = np.dtype(name)
    powers = [sign * ((1 << k) + d) for k in range(65) for d in (-1, 0, 1) for sign in (1, -1)]
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        bits = np.frombuffer(RNG.bytes(30 * dtype.itemsize), dtype)
        inside = [n for n in (*powers, limits.min, limits.max) if limits.min <= n <= limits.max]
        return np.concatenate([np.array(inside, dtype), bits])
    values = [float(n) for n in powers] + [n / 4 for n in range(-12, 13)] + [math.nan, math.inf, -math.inf, -0.0]
    for other in (np.float16, np.float32, np.float64):
        info = np.finfo(other)
        ends = (float(info.max), float(info.tiny), float(info.smallest_subnormal))
        values += [
            sign * end * (1 + d) for end in ends for d in (0, 2**-12, -(2**-12), 2**-26, 0.5) for sign in (1, -1)
        ]
    bits = np.frombuffer(RNG.bytes(60 * dtype.itemsize), dtype)
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(values).astype(dtype), bits])


def _each(cast: Any, values: np.ndarray[Any, Any], dtype: str) -> list[bytes | None]:
    """Return the bytes of each converted number; None for refused numbers, b"nan" for NaN."""
    result: list[bytes | None] = []
    for i in range(values.size):
        try:
            one = np.asarray(cast(values[i : i + 1]), dtype)
        except ValueError:
            result.append(None)
        else:
            result.append(b"nan" if one.dtype.kind == "f" and np.isnan(one[0]) else one.tobytes())
    return result


@pytest.mark.parametrize("target", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_casting_is_that_of_cast_value_rs(source: str, target: str) -> None:
    """zarr-python casts with that library."""
    values = _edges(source)
    values = values[RNG.permutation(values.size)[:40]]
    ways = [(rounding, "clamp") for rounding in casting.ROUNDINGS] + [("nearest-even", None), ("towards-zero", None)]
    if not target.startswith("float"):
        ways += [("towards-negative", "wrap"), ("nearest-away", "wrap")]
    for rounding, out_of_range in ways:

        def ours(part: Any, way: Any = (rounding, out_of_range)) -> Any:
            return casting.cast(part, np.dtype(target), *way)

        def theirs(part: Any, way: Any = (rounding, out_of_range)) -> Any:
            return cast_value_rs.cast_array(part, target_dtype=target, rounding_mode=way[0], out_of_range_mode=way[1])

        assert _each(ours, values, target) == _each(theirs, values, target), (rounding, out_of_range, values.tolist())


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3", "float8_e5m2", "float8_e3m4", "float6_e2m3fn", "float4_e2m1fn"]
)
def test_casting_to_small_floats_is_that_of_ml_dtypes(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    largest = float(ml_dtypes.finfo(dtype).max)
    values = np.concatenate([RNG.uniform(-largest, largest, 300), RNG.standard_normal(300), [0.0, -0.0, largest]])
    values = values.astype("f4")
    nearest = casting.cast(values, dtype, "nearest-even", None)
    assert nearest.tobytes() == values.astype(dtype).tobytes()
    low = casting.cast(values, dtype, "towards-negative", None).astype("f8")
    high = casting.cast(values, dtype, "towards-positive", None).astype("f8")
    assert (low <= values).all()
    assert (values <= high).all()
    assert (
        np.minimum(abs(low), abs(high)) == abs(casting.cast(values, dtype, "towards-zero", None).astype("f8"))
    ).all()
    # Nothing of the type lies between them.
    every = np.arange(256, dtype="u1").view(dtype).astype("f8") if dtype.itemsize == 1 else np.zeros(0)
    assert not any(((every > a) & (every < b)).any() for a, b in zip(low, high, strict=True))
    back = casting.cast(nearest, np.dtype("f8"), "nearest-even", None)
    same(back, nearest.astype("f8"))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_casting_to_small_integers(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    bits = int(name[-1])
    low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = np.arange(-20, 20)
    clamped = casting.cast(values, dtype, "nearest-even", "clamp")
    assert clamped.astype(int).tolist() == np.clip(values, low, high).tolist()
    wrapped = casting.cast(values.astype("f4"), dtype, "nearest-even", "wrap").astype(int)
    assert wrapped.tolist() == [(n - low) % 2**bits + low for n in values.tolist()]
    with pytest.raises(ValueError, match="is not a number of"):
        casting.cast(values, dtype, "nearest-even", None)
    same(casting.cast(clamped, np.dtype("i8"), "nearest-even", None), clamped.astype("i8"))


@pytest.mark.parametrize(
    ("data_type", "values", "codecs", "stored", "back"),
    [
        # The examples of the two specifications.
        (
            "uint16",
            [1000, 1255],
            [codec("scale_offset", offset=1000), codec("cast_value", data_type="uint8")],
            [0, 255],
            None,
        ),
        (
            "float64",
            [0.0, 2540.0, math.nan, 1270.0],
            [
                codec("scale_offset", offset=-10, scale=0.1),
                codec(
                    "cast_value",
                    data_type="uint8",
                    rounding="nearest-even",
                    scalar_map={"encode": [["NaN", 0]], "decode": [[0, "NaN"]]},
                ),
            ],
            [1, 255, 0, 128],
            None,
        ),
        (
            "float64",
            [math.nan, math.inf, -math.inf, 255.9, 257.2, -1.7],
            [
                codec(
                    "cast_value",
                    data_type="uint8",
                    rounding="towards-zero",
                    out_of_range="wrap",
                    scalar_map={"encode": [["NaN", 0], ["+Infinity", 0], ["-Infinity", 0]]},
                )
            ],
            [0, 0, 0, 255, 1, 255],
            [0.0, 0.0, 0.0, 255.0, 1.0, 255.0],
        ),
        # The first of equal keys counts.
        (
            "int8",
            [1, 2],
            [codec("cast_value", data_type="int16", scalar_map={"encode": [[1, 7], [1, 9]]})],
            [7, 2],
            [7, 2],
        ),
        ("float32", [128.0], [codec("cast_value", data_type="int8", out_of_range="clamp")], [127], [127.0]),
        ("float32", [128.0], [codec("cast_value", data_type="int8", out_of_range="wrap")], [-128], [-128.0]),
    ],
)
def test_examples(data_type: str, values: list[Any], codecs: list[Any], stored: list[Any], back: Any) -> None:
    array = np.array(values, data_type)
    chain = codecs_from_v3(codecs, "$")
    assert codecs_from_v3([c.to_json() for c in chain], "$") == chain
    data, between = array, [like(array)]
    for step in chain:
        data = step.encode(data, between[-1])
        between.append(step.encoded(between[-1]))
        assert like(data) == between[-1]
    assert data.tolist() == stored
    for step, decoded in zip(reversed(chain), reversed(between[:-1]), strict=True):
        data = step.decode(data, decoded)
    same(data, array if back is None else np.array(back, data_type))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"data_type": "float32", "out_of_range": "wrap"}, "out_of_range"),
        ({"data_type": "string"}, "data_type"),
        ({"data_type": "complex64"}, "data_type"),
        ({"data_type": "int9"}, "data_type"),
        ({"data_type": "int8", "rounding": "up"}, "rounding"),
        ({"data_type": "int8", "scalar_map": {"encode": [[1]]}}, "scalar_map"),
        ({"data_type": "int8", "scalar_map": {"both": []}}, "scalar_map"),
        ({"data_type": "int8", "scalar_map": {"encode": [[1, 300]]}}, "scalar_map"),
        ({"data_type": "int8", "scalar_map": {"decode": [["NaN", 0]]}}, "scalar_map"),
        ({"data_type": "int8", "more": 1}, "more"),
        ({}, "data_type"),
    ],
)
def test_cast_value_configured_wrongly(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(gzarr.MetadataError, match=fault):
        made("cast_value", **values).encoded(like(np.zeros(1, "f8")))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_scale_offset_of_integers_is_exact_or_refused(dtype: str, data: Any) -> None:
    limits = np.iinfo(dtype)
    whole = st.integers(int(limits.min), int(limits.max))
    near = st.sampled_from([n for n in (-3, -1, 1, 2, 7) if limits.min <= n]) | whole.filter(bool)
    offset, scale = data.draw(whole), data.draw(near)
    value = data.draw(
        whole
        | st.just(offset)
        | st.integers(-4, 4).map(lambda d: min(max(offset + d, int(limits.min)), int(limits.max)))
    )
    ours = made("scale_offset", offset=offset, scale=scale)
    array = np.array([value], dtype)

    def inside(*numbers: int) -> bool:
        return all(limits.min <= n <= limits.max for n in numbers)

    shifted, scaled = value - offset, (value - offset) * scale
    if inside(shifted, scaled):
        encoded = ours.encode(array, like(array))
        assert encoded.tolist() == [scaled]
        same(ours.decode(encoded, like(array)), array)
    else:
        with pytest.raises(ValueError, match="range"):
            ours.encode(array, like(array))
    exact = value % scale == 0 and inside(value // scale, value // scale + offset)
    if exact:
        assert ours.decode(array, like(array)).tolist() == [value // scale + offset]
    else:
        with pytest.raises(ValueError, match=r"range|multiples"):
            ours.decode(array, like(array))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_scale_offset_of_floats_stays_in_their_type(dtype: str) -> None:
    values = np.array([0.1, 3, -7, math.inf, math.nan, 60000], dtype)
    ours = made("scale_offset", offset=5, scale=0.1)
    offset, scale = np.dtype(dtype).type(5), np.dtype(dtype).type(0.1)
    with np.errstate(all="ignore"):
        same(ours.encode(values, like(values)), (values - offset) * scale)
        same(ours.decode(values, like(values)), values / scale + offset)
    with pytest.raises(gzarr.MetadataError, match="offset"):
        made("scale_offset", offset="x").encoded(like(values))
    with pytest.raises(gzarr.MetadataError, match="scale of 0"):
        made("scale_offset", scale=0).encoded(like(np.zeros(1, "i4")))


# -- fill values -----------------------------------------------------------------------------------------------------


def _sharded(fill: Any, *before: Any, data_type: str = "float64") -> dict[str, Any]:
    inner = {"chunk_shape": [2], "codecs": [LITTLE], "index_codecs": [LITTLE], "index_location": "end"}
    return v3((8,), (4,), data_type, [*before, codec("sharding_indexed", **inner)], fill=fill)


def test_missing_inner_chunks_hold_the_encoded_fill_value() -> None:
    nan = {"encode": [["NaN", 7]], "decode": [[7, "NaN"]]}
    before = (codec("scale_offset", offset=-10, scale=0.1), codec("cast_value", data_type="uint8", scalar_map=nan))
    index = np.array([[0, 2], [2**64 - 1, 2**64 - 1]], "<u8")
    stored = {"zarr.json": json.dumps(_sharded("NaN", *before)).encode(), "c/0": bytes([1, 255]) + index.tobytes()}
    found = gzarr.open_array(stored, device="cpu")[...]
    same(found, np.array([0.0, 2540.0, *[math.nan] * 6]))


@pytest.mark.parametrize(
    ("fill", "values", "reason"),
    [
        (300.0, {"data_type": "uint8"}, "cannot be encoded"),
        (0.5, {"data_type": "uint8"}, "would decode the fill value"),
        ("NaN", {"data_type": "int16"}, "cannot be encoded"),
    ],
)
def test_a_fill_value_that_a_cast_loses_is_an_error(fill: Any, values: dict[str, Any], reason: str) -> None:
    document = v3((8,), (4,), "float64", [codec("cast_value", **values), LITTLE], fill=fill)
    with pytest.raises(gzarr.MetadataError, match=reason) as caught:
        gzarr.open_array({"zarr.json": json.dumps(document).encode()}, device="cpu")
    assert caught.value.json_path == "$.codecs[0]"


@pytest.mark.parametrize("place", ["last", "before shards"])
def test_a_fill_value_is_encoded_only_if_it_is_needed(place: str) -> None:
    # NumPy does not subtract a negative offset from unsigned numbers.
    scale = codec("numcodecs.fixedscaleoffset", offset=-5, scale=1, dtype="|u1", astype="<i2")
    if place == "before shards":
        with pytest.raises(gzarr.MetadataError, match=r"the fill value np.uint8\(0\) cannot be encoded") as caught:
            gzarr.open_array({"zarr.json": json.dumps(_sharded(0, scale, data_type="uint8")).encode()})
        assert caught.value.json_path == "$.codecs[0]"
        return
    document = v3((8,), (4,), "uint8", [scale, LITTLE], fill=7)
    stored = {"zarr.json": json.dumps(document).encode(), "c/0": np.array([5, 6, 260, 5], "<i2").tobytes()}
    array = gzarr.open_array(stored, mode="r+", device="cpu")
    same(array[...], np.array([0, 1, 255, 0, 7, 7, 7, 7], "u1"))
    with pytest.raises(gzarr.ChunkWriteError, match="cannot be encoded"):
        array[0] = 3


# -- in compiled code ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", -0.0, 1e30, "hex"])
def test_a_number_for_an_integer_as_in_host_memory(device: TestedDevice, stored: str, dtype: str, value: Any) -> None:
    kind, limits = np.dtype(stored), np.iinfo(stored)
    if value == "hex":
        value = {"float32": "0x7fc00123", "float64": "0x7ff8000000000456"}[dtype]
    for key in (0, int(limits.min), int(limits.max), 5):
        cast = codec("cast_value", data_type=stored, scalar_map={"decode": [[key, value]]})
        values = np.concatenate([_edges(stored), np.full(5, key, kind)])
        values = np.tile(values, -(-5000 // len(values)))[:4998].reshape(34, 147)
        for before in ([], [codec("transpose", order=[1, 0])]):
            shape = values.shape[::-1] if before else values.shape
            document = v3(shape, shape, dtype, [*before, cast, LITTLE], fill=3)
            store = {"zarr.json": json.dumps(document).encode(), "c/0/0": values.tobytes()}
            array = gzarr.open_array(store, device=device.name)
            if device.name == "cpu":
                assert array.decode_path.startswith("cpu-native")
            one = made("cast_value", **cast["configuration"])
            expected = one.decode(values, ArrayRepresentation(values.shape, np.dtype(dtype)))
            found = device.to_numpy(array[...])
            same(found.view("u1"), np.ascontiguousarray(expected.T if before else expected).view("u1"))
            part = device.to_numpy(array[3:9, 5:7])
            same(part, (expected.T if before else expected)[3:9, 5:7])


def test_a_chunk_of_another_size_is_damaged() -> None:
    cast = codec("cast_value", data_type="int16", scalar_map={"decode": [[0, "NaN"]]})
    document = v3((8,), (8,), "float32", [cast, LITTLE, codec("gzip", level=1)], fill=3)
    store = {"zarr.json": json.dumps(document).encode(), "c/0": gzip.compress(bytes(15))}
    with pytest.raises(gzarr.ChunkDecodeError):
        gzarr.open_array(store, device="cpu")[...]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", {"data_type": "int16", "scalar_map": {"decode": [[0, "NaN"], [1, "NaN"]]}}),
        ("float32", {"data_type": "int32", "rounding": "towards-zero", "scalar_map": {"decode": [[0, "NaN"]]}}),
        ("float64", {"data_type": "int64", "scalar_map": {"decode": [[0, "NaN"]]}}),
        ("int16", {"data_type": "uint8", "scalar_map": {"decode": [[0, 7]]}}),
    ],
)
def test_what_is_left_to_host_codecs(dtype: str, values: dict[str, Any]) -> None:
    assert made("cast_value", **values).operations(like(np.zeros(3, dtype))) is None
