"""Names of zarr-python: methods and properties of arrays that have the same meaning there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from support.zarr_arrays import same

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(5)
DATA = RNG.integers(0, 1000, (13, 9, 7)).astype("i4")
MASK = RNG.random(DATA.shape) < 0.1
POINTS = (np.array([[0, -1], [5, 12]]), np.array([[8, 3], [-9, 0]]), 2)
COLUMN = RNG.random(9) < 0.5
SELECTIONS: list[tuple[str, Any]] = [
    ("basic", ...),
    ("basic", ()),
    ("basic", 3),
    ("basic", (-1, slice(1, 8, 3), slice(None))),
    ("basic", (1, 2, 3)),
    ("orthogonal", ([0, 12, 5], slice(2, 7), COLUMN[:7])),
    ("orthogonal", (slice(1, 11, 2), COLUMN)),
    ("coordinate", POINTS),
    ("coordinate", ([1, 2], [3, 4], [5, 6])),
    ("coordinate", (1, 2, 3)),
    ("mask", MASK),
    ("mask", np.zeros(DATA.shape, bool)),
    ("block", (1, slice(0, 2))),
    ("block", ...),
]


def pair(root: Path, **options: Any) -> tuple[gzarr.Array, Any]:
    """Return an array opened by gzarr for reading and writing, and an equal array of zarr-python."""
    zarr.create_array(str(root / "ours"), data=DATA, chunks=(4, 3, 7), **options)
    theirs = zarr.create_array(str(root / "theirs"), data=DATA, chunks=(4, 3, 7), **options)
    return gzarr.open_array(root / "ours", mode="r+", device="cpu"), theirs


@pytest.mark.parametrize("options", [{}, {"zarr_format": 2}, {"shards": (8, 6, 7)}], ids=["v3", "v2", "shards"])
@pytest.mark.parametrize(("kind", "selection"), SELECTIONS)
def test_selections(kind: str, selection: Any, options: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = pair(tmp_path, **options)
    if kind == "orthogonal" and "shards" in options:
        # zarr-python 3.1.6 cannot write all of these to shards.
        theirs = zarr.create_array({}, data=DATA, chunks=(4, 3, 7))
    expected = getattr(theirs, f"get_{kind}_selection")(selection)
    found = getattr(ours, f"get_{kind}_selection")(selection)
    same(found, expected)
    if np.shape(expected):
        out = np.empty_like(expected)
        assert getattr(ours, f"get_{kind}_selection")(selection, out=out) is out
        same(out, expected)
    for value in (7, np.arange(np.size(expected), dtype="i4").reshape(np.shape(expected))):
        getattr(theirs, f"set_{kind}_selection")(selection, value)
        getattr(ours, f"set_{kind}_selection")(selection, value)
        same(ours[...], theirs[...])
    same(zarr.open_array(str(tmp_path / "ours"))[...], theirs[...])


def test_coordinates_take_flat_values(tmp_path: Path) -> None:
    ours, theirs = pair(tmp_path)
    for array in (ours, theirs):
        array.set_coordinate_selection(POINTS, [1, 2, 3, 4])
    same(ours[...], theirs[...])
    with pytest.raises(gzarr.ArgumentError):
        ours.set_coordinate_selection(POINTS, [1, 2, 3])


def test_fields() -> None:
    dtype = np.dtype([("a", "i4"), ("b", "f8"), ("c", "u1")])
    data = np.array([(i, i / 2, 7 - i) for i in range(7)], dtype)
    array = gzarr.array(data, chunks=3, device="cpu")
    same(array.get_basic_selection(slice(1, 6), fields="b"), data["b"][1:6])
    assert array.get_basic_selection(2, fields="c") == data["c"][2]
    same(array.get_orthogonal_selection([0, 5], fields="a"), data["a"][[0, 5]])
    for names in (["c", "a"], ["b"]):
        wanted = np.dtype([(name, dtype[name]) for name in names])
        expected = np.empty(7, wanted)
        for name in names:
            expected[name] = data[name]
        same(array.get_basic_selection(fields=names), expected)
        out = np.empty(7, wanted)
        assert array.get_block_selection(..., fields=names, out=out) is out
        same(out, expected)
    same(array.get_basic_selection(fields=[]), data)
    array.set_basic_selection(slice(0, 2), 9, fields="a")
    array.set_mask_selection(data["a"] == 3, [4.5], fields=["b"])
    array.set_coordinate_selection(([6],), 1, fields="c")
    data["a"][:2], data["b"][3], data["c"][6] = 9, 4.5, 1
    same(array[...], data)
    with pytest.raises(gzarr.SelectionError, match="one field at a time"):
        array.set_basic_selection(..., 1, fields=["a", "b"])
    for wrong in ("x", ["a", "x"], ["a", "a"], 5, [5]):
        with pytest.raises(gzarr.SelectionError, match="field"):
            array.get_basic_selection(fields=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.get_mask_selection([1, 2]), "boolean array of the array's shape"),
        (lambda a: a.get_mask_selection(MASK[:2]), "boolean array of the array's shape"),
        (lambda a: a.set_mask_selection(([0], [0], [0]), 1), "boolean array of the array's shape"),
        (lambda a: a.get_coordinate_selection(MASK), "get_mask_selection"),
        (lambda a: a.get_coordinate_selection(([0], [1])), "one integer array per dimension"),
        (lambda a: a.set_coordinate_selection(([0], [1], [7]), 1), "out of bounds"),
        (lambda a: a.get_block_selection(9), "out of bounds"),
        (lambda a: a.set_orthogonal_selection(([0], [[1]]), 1), "one-dimensional"),
    ],
)
def test_wrong_selections(call: Any, message: str, tmp_path: Path) -> None:
    ours, _ = pair(tmp_path)
    with pytest.raises(gzarr.SelectionError, match=re.escape(message)):
        call(ours)
    same(ours[...], DATA)


def test_read_only_arrays_are_not_written(tmp_path: Path) -> None:
    pair(tmp_path)
    array = gzarr.open_array(tmp_path / "ours", device="cpu")
    for kind, selection in (("basic", 0), ("coordinate", POINTS), ("mask", MASK), ("block", 0), ("orthogonal", 0)):
        with pytest.raises(gzarr.ReadOnlyError):
            getattr(array, f"set_{kind}_selection")(selection, 1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shards": (8, 6, 7)},
        {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1))], "compressors": None},
        {"compressors": [zarr.codecs.GzipCodec(level=3), zarr.codecs.Crc32cCodec()]},
        {"serializer": zarr.codecs.BytesCodec(endian="big"), "shards": (8, 6, 7)},
    ],
)
def test_codecs_of_version_3(options: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = pair(tmp_path, **options)
    # Of defaults, zarr-python writes more into documents than it needs.
    document = theirs.metadata.to_dict()["codecs"]
    inner = document[0]["configuration"]["codecs"] if "shards" in options else document
    names = [codec["name"] for codec in inner]
    found = [codec.to_json()["name"] for codec in (*ours.filters, ours.serializer, *ours.compressors)]
    assert found == names
    for kind in ("filters", "compressors"):
        expected = [codec.to_dict()["name"] for codec in getattr(theirs, kind)]
        assert [codec.to_json()["name"] for codec in getattr(ours, kind)] == expected
    assert ours.serializer.to_json()["name"] == theirs.serializer.to_dict()["name"]
    again = gzarr.create_array(
        {},
        data=DATA,
        chunks=ours.chunks,
        shards=ours.shards,
        filters=ours.filters,
        serializer=ours.serializer,
        compressors=ours.compressors,
        device="cpu",
    )
    assert again.codecs == ours.codecs
    same(again[...], DATA)


def test_codecs_of_version_2(tmp_path: Path) -> None:
    import numcodecs

    ours, theirs = pair(
        tmp_path, zarr_format=2, filters=[numcodecs.Delta("i4")], compressors=numcodecs.Zstd(level=2), order="F"
    )
    assert ours.order == theirs.order == "F"
    (delta,) = ours.filters
    assert "delta" in delta.label
    assert [codec.codec_id for codec in theirs.filters] == ["delta"]
    assert [codec.to_json()["name"] for codec in ours.compressors] == ["zstd"]
    assert [codec.codec_id for codec in theirs.compressors] == ["zstd"]
    assert ours.serializer.to_json()["name"] == "bytes"
    plain, _ = pair(tmp_path / "plain", zarr_format=2, filters=[numcodecs.Delta("i4")], compressors=None)
    assert (len(plain.filters), plain.compressors, plain.order) == (1, (), "C")
    for array in (ours, plain):
        again = gzarr.create_array(
            {},
            data=DATA,
            chunks=array.chunks,
            filters=array.filters,
            compressors=array.compressors,
            order=array.order,
            zarr_format=2,
            device="cpu",
        )
        assert again.codecs == array.codecs
        same(again[...], DATA)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_order_is_what_was_asked_for(order: Any, zarr_format: Any, tmp_path: Path) -> None:
    made = gzarr.create_array(tmp_path, data=DATA, order=order, zarr_format=zarr_format, device="cpu")
    assert made.order == gzarr.open_array(tmp_path, device="cpu").order == order
    if zarr_format == 2:
        assert zarr.open_array(str(tmp_path)).order == order


def test_cdata_shape(tmp_path: Path) -> None:
    for i, options in enumerate(({}, {"shards": (8, 6, 7)}, {"zarr_format": 2})):
        ours, theirs = pair(tmp_path / str(i), **options)
        assert ours.cdata_shape == theirs.cdata_shape == (4, 3, 1)
    assert gzarr.create_array({}, shape=(10,), dtype="u1", chunks=[[3, 7]], device="cpu").cdata_shape == (2,)
    assert gzarr.create_array({}, shape=(), dtype="u1", device="cpu").cdata_shape == ()


def test_a_writer_analyses_its_codecs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr.arrays import write

    seen = []

    def analyse(*args: Any) -> Any:
        seen.append(args[1].shape)
        return real(*args)

    real = write.analyse_encoding
    monkeypatch.setattr(write, "analyse_encoding", analyse)
    array = gzarr.create_array({}, shape=(0, 6), dtype="i4", chunks=(2, 3), device="cpu")
    for i in range(4):
        array.append(np.full((3, 6), i))
        array[i] = 5
        array.resize((array.shape[0] + 1, 6))
    assert seen == [(2, 3)]
    uneven = gzarr.create_array({}, shape=(9,), dtype="i4", chunks=[[2, 3, 2, 2]], device="cpu")
    for i in range(3):
        uneven[...] = np.arange(9) + i
    same(uneven[...], np.arange(9, dtype="i4") + 2)
    assert sorted(set(seen[1:])) == [(2,), (3,)]
    assert len(seen) == 3
