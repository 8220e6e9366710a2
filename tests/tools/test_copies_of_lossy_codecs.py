"""Copies of arrays whose codecs lose something: elements stay the same, or the copy is refused, and nothing is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
from support.counting_store import CountingStore

import gzarr
from gzarr.cli.main import main
from gzarr.codecs.again import kept_by
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.errors import ArgumentError, ChunkWriteError
from gzarr.stores.memory import MemoryStore
from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_options import CopyOptions

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = (np.random.default_rng(0).normal(size=(130, 110)) * 1000).astype("f4")
ZFPY = {"name": "numcodecs.zfpy", "configuration": {"mode": 4, "tolerance": 0.01}}


def of_numcodecs(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": f"numcodecs.{name}", "configuration": configuration}


def made(store: Any, **arguments: Any) -> gzarr.Array:
    return gzarr.create_array(store, **{"data": NUMBERS, "chunks": (50, 40), "compressors": "zstd", **arguments})


def same(a: Any, b: Any) -> None:
    assert a[...].tobytes() == b[...].tobytes()


DELTA = of_numcodecs("delta", dtype="<f4", astype="<f8")
#: Filters, and whether their copies in other chunks are the same; some are read back.
FILTERS: dict[str, tuple[list[Any], Any]] = {
    "bitround": ([of_numcodecs("bitround", keepbits=7)], True),
    "quantize": ([of_numcodecs("quantize", digits=1, dtype="<f4")], True),
    "quantize narrow": ([of_numcodecs("quantize", digits=1, dtype="<f4", astype="<f2")], True),
    "astype": ([of_numcodecs("astype", encode_dtype="<f2", decode_dtype="<f4")], True),
    "packed in 2 bytes": (
        [of_numcodecs("fixedscaleoffset", offset=0, scale=7.7, dtype="<f4", astype="<i2")],
        True,
    ),
    "packed in 4 bytes": (
        [of_numcodecs("fixedscaleoffset", offset=3.3, scale=7.7, dtype="<f4", astype="<i4")],
        "read back",
    ),
    "scaled and cast": (
        [
            {"name": "scale_offset", "configuration": {"offset": 5, "scale": 4}},
            {"name": "cast_value", "configuration": {"data_type": "int16", "out_of_range": "clamp"}},
        ],
        True,
    ),
    "scaled": ([{"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.1}}], "read back"),
    "delta": ([DELTA], "stops"),
    "delta of rounded": ([of_numcodecs("delta", dtype="<f4"), of_numcodecs("bitround", keepbits=7)], False),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("sharded", [False, True])
def test_filters_in_other_chunks(name: str, sharded: bool) -> None:
    """What a codec has decoded once goes through it unchanged, or the copy is refused."""
    filters, expected = FILTERS[name]
    source: dict[str, Any] = {}
    array = made(source, filters=filters, shards=(100, 80) if sharded else None)
    again: dict[str, Any] = {"chunks": (25, 40)}
    if expected == "stops":
        with pytest.raises(ChunkWriteError, match=r"numcodecs\.delta may make .*codecs='auto'.*lossy=True"):
            gzarr.copy(source, {}, **again)
    elif expected:
        kept = kept_by(array.metadata.codecs, ArrayRepresentation(array.metadata.chunk_shape, array.dtype), 0)
        assert kept.elements == ("most" if expected == "read back" else "all")
        same(gzarr.copy(source, {}, read_back=True, **again), array)
        same(gzarr.copy(source, {}, **again), array)
        return
    else:
        copied: dict[str, Any] = {}
        with pytest.raises(ArgumentError, match=r"'/' cannot be copied without loss: .*codecs='auto'.*lossy=True"):
            gzarr.copy(source, copied, **again)
        assert not copied
    same(gzarr.copy(source, {}, codecs="auto", **again), array)
    # They do change.
    with pytest.raises(ChunkWriteError, match="the data read back is not the data written"):
        gzarr.copy(source, {}, lossy=True, read_back=True, **again)
    assert np.allclose(gzarr.copy(source, {}, lossy=True, **again)[...], array[...], atol=60)


@pytest.mark.parametrize("change", [{"zarr_format": 3}, {"zarr_format": 2}])
@pytest.mark.parametrize("filters", [DELTA, *(FILTERS[name][0][0] for name in ("bitround", "packed in 4 bytes"))])
def test_another_format_takes_the_chunks_as_they_are(filters: Any, change: Any, tmp_path: Path) -> None:
    zarr_format: Any = 5 - change["zarr_format"]
    array = made(tmp_path / "a", filters=[filters], zarr_format=zarr_format)
    copied = gzarr.copy(tmp_path / "a", tmp_path / "b", **change)
    same(copied, array)
    same(np.asarray(zarr.open_array(tmp_path / "b")[...]), array)
    keys = [{2: "1.2", 3: "c/1/2"}[f] for f in (zarr_format, change["zarr_format"])]
    assert (tmp_path / "a" / keys[0]).read_bytes() == (tmp_path / "b" / keys[1]).read_bytes()


def test_big_endian_chunks_are_other_ones() -> None:
    """Version 3 has filters before the byte order, so chunks of big-endian numbers are encoded again."""
    source: dict[str, Any] = {}
    array = made(
        source,
        data=NUMBERS.astype("i4"),
        dtype=">i4",
        zarr_format=2,
        filters=[numcodecs.Delta(">i4")],
        compressors=None,
    )
    copied = gzarr.copy(source, {}, zarr_format=3)
    same(copied, array)
    assert copied.store.get("c/0/0") != source["0.0"]


@pytest.mark.parametrize("change", [{"chunks": (25, 40)}, {"shards": None}, {"zarr_format": 2}])
def test_zfp_is_refused(change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = made(tmp_path / "a", shards=(100, 80), serializer=ZFPY, compressors=None)
    with pytest.raises(ArgumentError, match=r"numcodecs\.zfpy loses a little each time; other codecs keep them"):
        gzarr.copy(tmp_path / "a", tmp_path / "b", **change)
    assert not (tmp_path / "b").exists()
    same(gzarr.copy(tmp_path / "a", tmp_path / "c"), array)
    same(gzarr.copy(tmp_path / "a", tmp_path / "d", codecs="auto", **change), array)
    # Codecs that the caller asks for are not questioned.
    gzarr.copy(tmp_path / "a", tmp_path / "e", codecs=[ZFPY], **change)
    flags = [f"--{name.replace('_', '-')}={str(value).strip('()').lower()}" for name, value in change.items()]
    flags = [flag.replace(" ", "") for flag in flags]
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), *flags]) == 2
    assert "--lossy" in capsys.readouterr().err
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), *flags, "--lossy", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "elements may change" in said.out
    assert "numcodecs.zfpy loses a little each time" in said.err
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), *flags, "--lossy"]) == 0


def test_a_view_is_encoded_again() -> None:
    array = made({}, serializer=ZFPY, compressors=None)
    with pytest.raises(ArgumentError, match="cannot be copied without loss"):
        gzarr.copy(array.view[:50], {})
    same(gzarr.copy(array.view[:50], {}, codecs="auto"), array.view[:50])


def test_a_fill_value_that_the_codecs_change() -> None:
    """An absent chunk has it, and in a chunk with others it would be rounded."""
    source: dict[str, Any] = {}
    array = gzarr.create_array(
        source, shape=(4,), chunks=(2,), dtype="f4", fill_value=0.3, zarr_format=3,
        filters=[of_numcodecs("quantize", digits=0, dtype="<f4")],
    )  # fmt: skip
    array[:2] = [1, 2]
    with pytest.raises(ChunkWriteError, match="the data read back is not the data written"):
        gzarr.copy(source, {}, chunks=(4,))
    same(gzarr.copy(source, {}, chunks=(4,), codecs="auto"), array)


def test_differences_that_do_not_fit(tmp_path: Path) -> None:
    """Where a chunk begins, a filter of differences stores a whole number, which must fit, too."""
    array = gzarr.create_array(
        tmp_path / "a", data=np.arange(0, 40000, 100, dtype="i4"), chunks=(400,),
        filters=[of_numcodecs("delta", dtype="<i4", astype="<i2")],
    )  # fmt: skip
    same(gzarr.copy(tmp_path / "a", tmp_path / "b", zarr_format=2), array)
    same(gzarr.copy(tmp_path / "a", tmp_path / "c", chunks=(100,)), array)
    with pytest.raises(ChunkWriteError):
        gzarr.copy(tmp_path / "a", tmp_path / "d", chunks=(350,))


def half_written(dtype: str, fill_value: Any, **arguments: Any) -> tuple[dict[str, Any], gzarr.Array]:
    """Return an array with a chunk of small numbers, and an absent one."""
    source: dict[str, Any] = {}
    array = gzarr.create_array(source, shape=6, chunks=3, dtype=dtype, fill_value=fill_value, **arguments)
    array[:3] = [1, 2, 3]
    return source, array


PACKBITS = {"name": "packbits", "configuration": {"first_bit": 0, "last_bit": 4}}
REVERSIBLE = {"name": "zfp", "configuration": {"mode": "reversible"}}
PACKED = numcodecs.FixedScaleOffset(offset=273.15, scale=100, dtype="<f8", astype="<i2")
#: Type, fill value, what makes another one of it, and an element that stays.
CHANGING: dict[str, tuple[str, Any, dict[str, Any], Any]] = {
    "packbits": ("u1", 200, {"codecs": [PACKBITS]}, 31),
    "zfp u4": ("u4", 2**32 - 1, {"codecs": [REVERSIBLE]}, 2**31 - 1),
    "zfp u8": ("u8", 2**64 - 1, {"codecs": [REVERSIBLE]}, 2**63 - 1),
    "packbits in shards": ("u1", 200, {"serializer": PACKBITS, "compressors": None, "shards": 6}, 31),
    "filters of bytes": (">f4", 0.3, {"zarr_format": 2, "filters": [numcodecs.Quantize(0, ">f4")]}, 3),
    "packed": ("f8", np.nan, {"zarr_format": 2, "filters": [PACKED]}, 273.15),
}


@pytest.mark.parametrize("name", CHANGING)
def test_fill_values_that_codecs_change(name: str) -> None:
    """Also those that make bytes. A copy stops, and says why; with ``lossy`` it says so beforehand."""
    dtype, fill_value, arguments, kept = CHANGING[name]
    source, array = half_written(dtype, fill_value, **arguments)
    again: dict[str, Any] = {"chunks": 6, "shards": 6 if array.shards else None}
    says = r"(packbits|zfp|quantize|fixedscaleoffset)\S* may make .* the fill value; .*codecs='auto'\), and lossy=True"
    with pytest.raises(ChunkWriteError, match=says):
        gzarr.copy(source, {}, **again)
    same(gzarr.copy(source, {}, codecs="auto", **again), array)
    planned = prepare_copy(source, {}, CopyOptions(lossy=True, **again))
    assert "such as the fill value" in planned.differences.losses["/"][0]
    assert not np.array_equal(gzarr.copy(source, {}, lossy=True, **again)[3:], array[3:])
    # Chunks that stay are not encoded.
    assert not prepare_copy(source, {}, CopyOptions(lossy=True)).differences.losses
    source, array = half_written(dtype, kept, **arguments)
    same(gzarr.copy(source, {}, **again), array)


def test_a_copy_that_stopped_goes_on_with_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, array = half_written("f8", np.nan, zarr_format=2, filters=[PACKED])
    gzarr.copy(source, tmp_path / "a")
    assert main(["copy", str(tmp_path / "a"), str(tmp_path / "b"), "--chunks=6"]) == 1
    assert "(--codecs auto), and --lossy copies it" in capsys.readouterr().err
    gzarr.copy(source, tmp_path / "b", chunks=6, codecs="auto", overwrite=True)
    same(gzarr.open_array(tmp_path / "b"), array)
    with pytest.raises(ChunkWriteError):
        gzarr.copy(source, tmp_path / "c", chunks=6)
    np.testing.assert_array_equal(gzarr.copy(source, tmp_path / "c", chunks=6, resume=True, lossy=True)[:3], array[:3])


DELTAS: dict[str, tuple[Any, Any]] = {
    "f8": ("f8", numcodecs.Delta("<f8")),
    "f8 in i4": ("f8", numcodecs.Delta("<f8", astype="<i4")),
    "u8 in i8": ("u8", numcodecs.Delta("<u8", astype="<i8")),
    ">f4": (">f4", numcodecs.Delta(">f4")),
}


@pytest.mark.parametrize("name", DELTAS)
def test_differences_of_whole_numbers(name: str) -> None:
    """Sums of whole numbers are exact, as on a time axis."""
    dtype, filter = DELTAS[name]
    source: dict[str, Any] = {}
    values = (np.arange(100) * 6).astype(dtype)
    array = gzarr.create_array(source, data=values, chunks=25, zarr_format=2, filters=[filter])
    same(gzarr.copy(source, {}, chunks=40), array)
    same(gzarr.copy(source, {}, zarr_format=3), array)


@pytest.mark.parametrize("filters", [[DELTA, ZFPY], [ZFPY]])
def test_nothing_is_lost_of_nothing(filters: list[Any]) -> None:
    source: dict[str, Any] = {}
    dtype = "f8" if len(filters) == 1 else "f4"
    gzarr.create_array(source, shape=0, chunks=3, dtype=dtype, codecs=filters, zarr_format=3)
    assert gzarr.copy(source, {}, chunks=5).shape == (0,)
    assert not prepare_copy(source, {}, CopyOptions(chunks=5, lossy=True)).differences.losses


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (numcodecs.Base64(), np.arange(6, dtype="<i4")),
        (numcodecs.Categorize(["a", "b"], "<U1"), np.array(["a", "b", "a"], "<U1")),
    ],
    ids=["base64", "categorize"],
)
def test_codecs_that_no_other_library_reads(codec: Any, values: Any, tmp_path: Path) -> None:
    """In version 3, zarr-python does not know them."""
    made(tmp_path / "source", data=values, chunks=3, zarr_format=2, filters=[codec], compressors=None)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "source", mode="r")[...], values)
    for options in ({}, {"lossy": True}, {"chunks": 2}):
        with pytest.raises(
            ArgumentError, match=rf"do not know the codec numcodecs\.{codec.codec_id}; other .*codecs='auto'"
        ):
            gzarr.copy(tmp_path / "source", tmp_path / "other", zarr_format=3, **options)
    assert not (tmp_path / "other").exists()
    gzarr.copy(tmp_path / "source", tmp_path / "other", zarr_format=3, codecs="auto")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "other", mode="r")[...], values)
    # Although a copy of so few elements is larger.
    assert main(["optimize", str(tmp_path / "source"), str(tmp_path / "optimized"), "--zarr-format", "3"]) == 0
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "optimized", mode="r")[...], values)
    # What is asked for by name is written, and what is in version 3 already stays.
    gzarr.copy(tmp_path / "source", tmp_path / "named", zarr_format=3, codecs=[codec])
    gzarr.copy(tmp_path / "named", tmp_path / "again", chunks=2)
    assert f"numcodecs.{codec.codec_id}" in (tmp_path / "again" / "zarr.json").read_text()
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "again")[...], values)


class Unlisted(MemoryStore):
    """A store that cannot list its keys."""

    def can_list(self) -> bool:
        return False


#: Type, fill value and filter of arrays whose absent chunks version 2 has to store; and whether the filter keeps it.
STORED: dict[str, tuple[str, Any, dict[str, Any], bool]] = {
    "packed": ("f4", np.nan, of_numcodecs("fixedscaleoffset", offset=0, scale=10, dtype="<f4", astype="<i2"), False),
    "quantize": ("f4", 1.2345, of_numcodecs("quantize", digits=1, dtype="<f4"), False),
    "bitround": ("f4", 0.1, of_numcodecs("bitround", keepbits=7), False),
    "delta": ("i4", 1000, of_numcodecs("delta", dtype="<i4", astype="|u1"), False),
    "bitround of 0.5": ("f4", 0.5, of_numcodecs("bitround", keepbits=7), True),
    "zfp of 0": ("f4", 0, ZFPY, True),
}


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("lists", [True, False])
def test_absent_chunks_that_are_stored(name: str, lists: bool) -> None:
    """Stored values are copied as they are, but absent chunks are encoded."""
    dtype, fill_value, codec, keeps = STORED[name]
    values: dict[str, Any] = {}
    array = gzarr.create_array(
        values, shape=6, chunks=3, dtype=dtype, fill_value=fill_value, dimension_names=["x"],
        attributes={"scale_factor": 2.0}, codecs=[codec] if codec is ZFPY else [codec, "bytes"], device="cpu",
    )  # fmt: skip
    array[:3] = [1, 2, 3]
    source = values if lists else Unlisted(values)
    if keeps:
        same(gzarr.copy(source, {}, zarr_format=2), array)
    else:
        with pytest.raises(ChunkWriteError, match=r"absent chunks are stored, and .*codecs='auto'.*lossy=True"):
            gzarr.copy(source, {}, zarr_format=2)
    planned = prepare_copy(source, {}, CopyOptions(zarr_format=2, lossy=True))
    assert ("absent chunks are stored" in str(planned.differences.losses)) == (not keeps or codec is ZFPY)
    same(gzarr.copy(source, {}, zarr_format=2, codecs="auto"), array)
    # Without absent chunks, nothing is encoded.
    array[3:] = [4, 5, 6]
    same(gzarr.copy(source, {}, zarr_format=2), array)
    assert not lists or not prepare_copy(source, {}, CopyOptions(zarr_format=2, lossy=True)).differences.losses


def test_only_absent_chunks_are_read_back() -> None:
    """What is copied as it is cannot change, however many chunks that are."""
    values: dict[str, Any] = {}
    array = gzarr.create_array(
        values, shape=9, chunks=3, dtype="f4", fill_value=0, dimension_names=["x"], codecs=[ZFPY], device="cpu"
    )
    array[:6] = [1, 2, 3, 4, 5, 6]
    target = CountingStore()
    copied = gzarr.copy(values, target, zarr_format=2)
    assert {request.key for request in target.asked} & {"0", "1", "2"} == {"2"}
    same(copied, array)
