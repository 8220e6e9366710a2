"""Copies in another Zarr format, judged by xarray: what it reads of the copy is what it reads of the source."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr
import zarr
from support import zarr_arrays as z

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Dataset = Any

X = ("x",)
NUMBERS = np.array([0, 1, 2, 100, 7])
DATES = np.array(["2000-01-01", "NaT", "2000-01-03T12", "1999-12-31", "2024-02-29"], "M8[ns]")


def numbers(dtype: str, **encoding: Any) -> tuple[Dataset, dict[str, Any]]:
    """Return a data set of numbers, and how it is stored."""
    return xr.Dataset({"v": (X, NUMBERS.astype(dtype), {"units": "m"})}), {"v": encoding}


def floats(unpacked: str = "f8", **encoding: Any) -> tuple[Dataset, dict[str, Any]]:
    return xr.Dataset({"v": (X, np.array([0, 1.5, np.nan, 3, -2.25], unpacked))}), {"v": encoding}


def one(values: Any, encoding: dict[str, Any] | None = None, dims: Any = X, **attributes: Any) -> Any:
    return xr.Dataset({"v": (dims, values, attributes)}), {"v": encoding or {}}


def with_coordinates() -> tuple[Dataset, dict[str, Any]]:
    found = xr.Dataset(
        {
            "t": (("time", "y", "x"), np.arange(24.0).reshape(2, 3, 4), {"grid_mapping": "crs"}),
            "n": ("x", [0, 1, 2, 3]),
        },
        coords={
            "time": ("time", DATES[[0, 2]]),
            "y": ("y", [10.0, 20, 30]),
            "x": ("x", [0, 1, 2, 3]),
            "lat": (("y", "x"), np.linspace(0, 1, 12).reshape(3, 4)),
            "crs": ((), 0, {"epsg": 4326}),
        },
        attrs={"title": "t", "history": ["a", "b"]},
    )
    return found, {"t": {"_FillValue": 5.0, "chunks": (1, 2, 2)}}


DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", "f4", "f8", ">f8"]
SETS: dict[str, Callable[[], tuple[Dataset, dict[str, Any]]]] = {
    **{f"numbers {dtype}": (lambda dtype=dtype: numbers(dtype)) for dtype in DTYPES},
    **{f"masked {dtype}": (lambda dtype=dtype: numbers(dtype, _FillValue=np.dtype(dtype).type(7))) for dtype in DTYPES},
    "zero masked": lambda: numbers("i4", _FillValue=np.int32(0)),
    "f2": lambda: floats("f2"),
    "floats": floats,
    "floats -9999": lambda: floats(_FillValue=-9999.0),
    "f4 -9999.9": lambda: floats("f4", _FillValue=np.float32(-9999.9)),
    "f4 1e20": lambda: floats("f4", _FillValue=1e20),
    "infinity": lambda: floats(_FillValue=np.inf),
    "no mask": lambda: floats(_FillValue=None),
    "missing_value": lambda: floats(_FillValue=-1.0, missing_value=-1.0),
    "only missing_value": lambda: floats(_FillValue=None, missing_value=-1.0),
    "packed": lambda: floats(dtype="i2", scale_factor=0.25, add_offset=1.0, _FillValue=-32768),
    "packed without mask": lambda: one(np.array([0, 0.25, 5]), {"dtype": "i2", "scale_factor": 0.25}),
    "packed u1": lambda: floats(dtype="u1", scale_factor=0.25, add_offset=-5.0, _FillValue=255),
    "packed zero": lambda: floats(dtype="i4", scale_factor=0.25, _FillValue=0),
    "packed floats": lambda: floats(dtype="f4", scale_factor=2.0, _FillValue=-1.0),
    "unsigned": lambda: one(
        np.array([0, 1, np.nan, 255.0]), {"dtype": "i1", "_Unsigned": "true", "_FillValue": np.int8(-2)}
    ),
    "signed in unsigned": lambda: one(
        np.array([-1, 1, np.nan, 0.0]), {"dtype": "u1", "_Unsigned": "false", "_FillValue": np.uint8(100)}
    ),
    "booleans": lambda: one(np.array([True, False, True])),
    "complex": lambda: one(np.array([1j, 0, 2 + 3j])),
    "complex NaN": lambda: one(np.array([1j, complex(np.nan, 0), 0])),
    "U": lambda: one(np.array(["a", "", "ünï"])),
    "strings": lambda: one(np.array(["a", "", "long " * 30], object)),
    "strings in chunks": lambda: one(np.array(["a", "", "b", "", ""], object), {"chunks": (2,)}),
    "bytes": lambda: one(np.array([b"a", b"", b"abc"])),
    "characters": lambda: one(np.array([[b"a", b"b"], [b"c", b""]], "S1"), dims=("x", "n")),
    "encoded text": lambda: one(np.array(["a", "", "ünï"]), {"dtype": "S1"}),
    "dates": lambda: one(DATES),
    "dates as i4": lambda: one(DATES, {"units": "minutes since 2000-01-01", "dtype": "i4", "_FillValue": -1}),
    "dates as f8": lambda: one(DATES, {"units": "days since 1990-01-01", "dtype": "f8"}),
    "dates without NaT": lambda: one(DATES[[0, 2]], {"units": "hours since 2000-01-01"}),
    "differences": lambda: one(np.array([1, 0, 3], "m8[h]").astype("m8[ns]")),
    "differences with NaT": lambda: one(np.array([1, "NaT", 3], "m8[s]").astype("m8[ns]")),
    "scalar": lambda: one(5, dims=()),
    "scalar zero": lambda: one(0, dims=()),
    "scalar NaN": lambda: one(np.nan, {"_FillValue": -1.0}, dims=()),
    "scalar string": lambda: one(np.array("a", object), dims=()),
    "scalar date": lambda: one(np.datetime64("2000-01-01", "ns"), dims=()),
    "empty": lambda: one(np.zeros((0, 3), "i4"), dims=("y", "x")),
    "zeros in chunks": lambda: one(np.zeros((6, 4), "i4"), {"chunks": (2, 2)}, dims=("y", "x")),
    "sparse": lambda: one(np.eye(6, dtype="i4"), {"chunks": (2, 2)}, dims=("y", "x")),
    "sparse masked": lambda: one(np.eye(6, dtype="f8"), {"chunks": (2, 2), "_FillValue": -1.0}, dims=("y", "x")),
    "bounds": lambda: (
        xr.Dataset(
            {"time_bnds": (("time", "two"), DATES[[0, 2, 2, 4]].reshape(2, 2))},
            coords={"time": ("time", DATES[[0, 2]], {"bounds": "time_bnds"})},
        ),
        {},
    ),
    "coordinates": with_coordinates,
    "flags": lambda: one(
        np.array([0, 1, 2], "i1"), {"_FillValue": np.int8(-1)}, flag_values=[0, 1, 2], flag_meanings="a b c"
    ),
    "attributes": lambda: one([1, 2], None, X, a=[1, 2.5], b="", c={"d": None}, valid_range=[0, 5]),
    "nothing": lambda: (xr.Dataset(attrs={"a": 1}), {}),
}
assert len(SETS) >= 60


def write(found: Dataset, path: Path, zarr_format: int, encoding: dict[str, Any], **more: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoding = {name: value for name, value in encoding.items() if value}
        found.to_zarr(path, zarr_format=zarr_format, encoding=encoding, **more)  # type: ignore[call-overload]


def check_same(source: Path, copied: Path) -> None:
    """Compare what both engines read of both."""
    for engine in ("zarr", "gzarr"):
        options: dict[str, Any] = {"engine": engine, "decode_timedelta": True}
        with xr.open_dataset(source, **options) as one, xr.open_dataset(copied, **options) as other:
            xr.testing.assert_identical(one.load(), other.load())
            for name in one.variables:
                assert one[name].dtype == other[name].dtype


def optimized(source: Path, dest: Path, *options: str) -> None:
    assert main(["optimize", str(source), str(dest), *options]) == 0


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", SETS)
def test_xarray_reads_copies_as_the_source(name: str, zarr_format: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    found, encoding = SETS[name]()
    write(found, source, zarr_format, encoding)
    other: Any = 5 - zarr_format
    gzarr.copy(source, tmp_path / "copy", zarr_format=other, read_back=True)
    check_same(source, tmp_path / "copy")
    gzarr.copy(tmp_path / "copy", tmp_path / "back", zarr_format=zarr_format, read_back=True)  # type: ignore[arg-type]
    check_same(source, tmp_path / "back")
    gzarr.copy(source, tmp_path / "chunks", chunks="auto", codecs="auto", read_back=True)
    check_same(source, tmp_path / "chunks")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", ["masked i2", "floats -9999", "packed", "strings", "sparse", "coordinates", "scalar"])
def test_xarray_reads_what_optimize_writes(name: str, zarr_format: int, tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "source"
    found, encoding = SETS[name]()
    write(found, source, zarr_format, encoding)
    optimized(source, tmp_path / "same")
    check_same(source, tmp_path / "same")
    assert gzarr.open_group(tmp_path / "same").zarr_format == zarr_format
    optimized(source, tmp_path / "other", "--zarr-format", str(5 - zarr_format))
    check_same(source, tmp_path / "other")
    assert f"Zarr format {zarr_format} becomes {5 - zarr_format}" in capsys.readouterr().out


def tree() -> Any:
    found, _ = with_coordinates()
    below = xr.Dataset({"n": ("x", [0, 1, 2, 3]), "m": ((), 0)}, attrs={"a": 1})
    return xr.DataTree.from_dict({"/": found, "/g": below, "/g/deep": xr.Dataset({"s": ("k", ["a", ""])})})


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_trees(zarr_format: Any, consolidated: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree().to_zarr(tmp_path / "source", zarr_format=zarr_format, consolidated=consolidated)
    gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=5 - zarr_format, read_back=True)
    optimized(tmp_path / "source", tmp_path / "same")
    for copied in ("copy", "same"):
        for engine in ("zarr", "gzarr"):
            options: dict[str, Any] = {"engine": engine, "consolidated": consolidated}
            one = xr.open_datatree(tmp_path / "source", **options).load()
            xr.testing.assert_identical(one, xr.open_datatree(tmp_path / copied, **options).load())
        assert (gzarr.open_group(tmp_path / copied).metadata.consolidated is not None) == consolidated
    assert (zarr.open_group(tmp_path / "copy").metadata.consolidated_metadata is not None) == consolidated


def old(path: Path, dtype: Any = "f8", data: Any = (1, -9999, 3), **arguments: Any) -> None:
    """Write a data set of version 2 as others do."""
    root = zarr.open_group(path, mode="w", zarr_format=2)
    attributes = {"_ARRAY_DIMENSIONS": ["x"], **arguments.pop("attributes", {})}
    array = root.create_array("v", shape=(len(data),), dtype=dtype, attributes=attributes, **arguments)
    array[...] = np.array(data, object if dtype is str else dtype)


NOTED = {"attributes": {"_FillValue": -9999}}
OLDER: dict[str, dict[str, Any]] = {
    "number in attributes": {**NOTED, "fill_value": None},
    "number in both": {**NOTED, "fill_value": -9999},
    "numbers that differ": {**NOTED, "fill_value": 0},
    "integers": {**NOTED, "dtype": "i4", "fill_value": None},
    "number with a fraction": {"attributes": {"_FillValue": -9999.0}, "dtype": "i4", "fill_value": None},
    "strings": {"dtype": str, "data": ["a", "", "c"], "fill_value": ""},
    "strings, two masks": {
        "dtype": str,
        "data": ["a", "", "-"],
        "fill_value": "",
        "attributes": {"missing_value": "-"},
    },
    "U": {"dtype": "U2", "data": ["a", "", "c"], "fill_value": ""},
    "booleans": {"dtype": "bool", "data": [True, False, True], "fill_value": False},
    "complex": {"dtype": "c16", "data": [1j, 0, 2], "fill_value": 0},
}


@pytest.mark.parametrize("name", OLDER)
def test_xarray_reads_copies_of_what_others_wrote(name: str, tmp_path: Path) -> None:
    old(tmp_path / "source", **OLDER[name])
    gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=3, read_back=True)
    check_same(tmp_path / "source", tmp_path / "copy")
    gzarr.copy(tmp_path / "copy", tmp_path / "back", zarr_format=2, read_back=True)
    check_same(tmp_path / "source", tmp_path / "back")
    gzarr.copy(tmp_path / "source", tmp_path / "same", chunks=2, codecs="auto", read_back=True)
    check_same(tmp_path / "source", tmp_path / "same")


@pytest.mark.parametrize(
    ("arguments", "lost"),
    [
        ({"dtype": "S2", "data": [b"a", b"", b"c"], "fill_value": b""}, "xarray masks elements equal to"),
        (
            {"dtype": "i4", "fill_value": None, "attributes": {"_FillValue": 0.5}},
            "0.5",
        ),
        ({"dtype": "?", "data": [0, 1], "fill_value": None, "attributes": {"_FillValue": -999}}, "-999"),
        ({"dtype": "M8[s]", "data": [0, 1], "fill_value": np.datetime64(0, "s")}, "1970"),
    ],
)
def test_masks_without_words_are_refused_by_name(
    arguments: dict[str, Any], lost: str, tmp_path: Path, capsys: Any
) -> None:
    old(tmp_path / "source", **arguments)
    with pytest.raises(
        ArgumentError, match=rf"'/v' cannot be copied to Zarr format 3 without loss: .*{lost}.*lossy=True"
    ):
        gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=3)
    assert not (tmp_path / "copy").exists()
    flags = ["--zarr-format", "3"]
    assert main(["copy", str(tmp_path / "source"), str(tmp_path / "copy"), *flags]) == 2
    assert main(["copy", str(tmp_path / "source"), str(tmp_path / "copy"), *flags, "--lossy"]) == 0
    assert lost in capsys.readouterr().err
    z.same(gzarr.open_array(tmp_path / "copy", path="v")[...], gzarr.open_array(tmp_path / "source", path="v")[...])
    assert main(["optimize", str(tmp_path / "source"), str(tmp_path / "again"), *flags, "--lossy"]) == 0
    assert lost in capsys.readouterr().out


def test_names_of_some_dimensions_only(tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "source", path="v", data=np.ones((2, 3)), dimension_names=(None, "x"))
    with pytest.raises(ArgumentError, match="some of its dimensions have names"):
        gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=2)
    copied = gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=2, lossy=True)
    assert copied["v"].dimension_names is None  # type: ignore[index]


def test_absent_chunks_are_stored_where_the_fill_value_changes_its_meaning(tmp_path: Path) -> None:
    found = {"chunks": (2,), "dimension_names": ["x"]}
    source = gzarr.create_array(tmp_path / "source", path="v", shape=8, dtype="i4", **found)
    source[:2] = 5
    for resume in (False, True):
        copied = gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=2, read_back=True, resume=resume)
        array = copied["v"]  # type: ignore[index]
        assert array.fill_value is None
        assert array.nchunks_initialized == 4
        (tmp_path / "copy/v/2").unlink()
    named = gzarr.create_array(tmp_path / "other", path="v", shape=8, dtype="i4", chunks=2)
    assert gzarr.copy(tmp_path / "other", tmp_path / "d", zarr_format=2)["v"].nchunks_initialized == 0  # type: ignore[index]
    assert named.dimension_names is None


def test_what_optimize_says_changes(tmp_path: Path, capsys: Any) -> None:
    found, encoding = floats(_FillValue=-9999.0)
    write(found, tmp_path / "source", 2, encoding)
    source, dest = str(tmp_path / "source"), str(tmp_path / "dest")
    assert main(["optimize", source, dest, "--dry-run"]) == 0
    assert "becomes 3" not in capsys.readouterr().out
    assert main(["optimize", source, dest, "--dry-run", "--zarr-format", "3"]) == 0
    said = capsys.readouterr().out
    for line in (
        "the keys of chunks, such as 0, become c/0",
        "the attribute _ARRAY_DIMENSIONS is left out",
        "the attribute _FillValue is added: 'AAAAAICHw8A='",
        "Zarr format 2 becomes 3",
        "/  consolidated metadata is written anew",
    ):
        assert line in said
    assert main(["optimize", source, dest, "--dry-run", "--json"]) == 0
    (forecast,) = json.loads(capsys.readouterr().out)
    assert (forecast["zarr_format"], forecast["changes"]) == ([2, 2], [])


def test_optimize_proposes_nothing_that_it_finds_worse(tmp_path: Path, capsys: Any) -> None:
    data = np.random.default_rng(0).integers(0, 2, (64, 64, 64)).astype("u1")
    tight: Any = {"name": "numcodecs.lzma", "configuration": {"preset": 9}}
    gzarr.create_array(tmp_path / "source", data=data, chunks=(64, 64, 64), codecs=[tight])
    assert main(["optimize", str(tmp_path / "source"), str(tmp_path / "dest"), "--json"]) == 0
    (forecast,) = json.loads(capsys.readouterr().out)
    assert "would take" in forecast["kept"]
    assert forecast["now"] == forecast["then"]
    one, other = (gzarr.open_array(tmp_path / name) for name in ("source", "dest"))
    assert (one.chunks, one.compressors) == (other.chunks, other.compressors)


NOT_JSON = {"missing_value": float("nan"), "range": [float("-inf"), {"most": float("inf")}], "units": "m"}


def of_others(path: Path, zarr_format: Any) -> Path:
    """Write an array with attributes that are no JSON, as zarr-python writes them."""
    array = zarr.create_group(path, zarr_format=zarr_format).create_array(
        "t", data=np.array([1, np.nan, 3, 4], "f4"), chunks=(4,), attributes=NOT_JSON
    )
    assert str(array.attrs["missing_value"]) == "nan"
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": 2}, {"codecs": "zstd"}, {"zarr_format": 2}, {"zarr_format": 3}, {"zarr_format": "3-draft-2022"}],
    ids=str,
)
def test_attributes_of_others_that_are_no_json_stay(options: dict[str, Any], zarr_format: Any, tmp_path: Path) -> None:
    source = of_others(tmp_path / "source", zarr_format)
    for again in ({}, {"resume": True}):
        made = gzarr.copy(source, tmp_path / "copy", read_back=True, **options, **again)
        # As text, for NaN equals nothing.
        assert json.dumps(dict(made["t"].attrs)) == json.dumps(NOT_JSON)
    part = gzarr.copy(gzarr.open_array(source, path="t").view[1:], {}, **options)
    assert json.dumps(dict(part.attrs)) == json.dumps(NOT_JSON)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_missing_values_of_nan_are_read_from_copies(zarr_format: Any, tmp_path: Path) -> None:
    dataset = xr.Dataset({"t": ("x", np.array([1, np.nan, 3, 4], "f4"))})
    dataset.to_zarr(tmp_path / "source", zarr_format=zarr_format, encoding={"t": {"missing_value": np.float32("nan")}})
    optimized(tmp_path / "source", tmp_path / "optimized", "--zarr-format", str(5 - zarr_format))
    assert main(["copy", str(tmp_path / "source"), str(tmp_path / "copied"), "--codecs", "zstd"]) == 0
    for name in ("optimized", "copied"):
        check_same(tmp_path / "source", tmp_path / name)
        assert np.isnan(xr.open_zarr(tmp_path / name).t.encoding["missing_value"])


@pytest.mark.parametrize("write_data", [True, False])
def test_attributes_of_others_stay_in_new_arrays(write_data: bool, tmp_path: Path) -> None:
    array = gzarr.open_array(of_others(tmp_path / "source", 3), path="t")
    for data in (array, array.view[1:]):
        made = gzarr.from_array({}, data=data, write_data=write_data)
        assert json.dumps(dict(made.attrs)) == json.dumps(NOT_JSON)
    with pytest.raises(ArgumentError, match=r"attributes\['q'\]: JSON has no nan"):
        gzarr.from_array({}, data=array, write_data=write_data, attributes={"q": float("nan")})


def test_a_refused_copy_of_the_same_format_names_no_format() -> None:
    store: dict[str, bytes] = {}
    gzarr.create_array(store, path="t", data=np.zeros(4))
    with pytest.raises(ArgumentError, match=r"^'/t' cannot be copied: "):
        gzarr.copy(store, {}, shards=3, chunks=2)


NEWER: dict[str, dict[str, Any]] = {
    "packed": {"data": np.array([1, 2, np.nan], "f4"), "fill_value": np.nan, "attributes": {"scale_factor": 0.1}},
    "moved": {"data": np.array([1, 2, 3], "f4"), "fill_value": np.nan, "attributes": {"add_offset": 2}},
    "dates": {"data": np.array([1, 2, "NaT"], "M8[ns]"), "fill_value": np.datetime64("NaT", "ns")},
    "differences": {"data": np.array([1, 2, "NaT"], "m8[ns]"), "fill_value": np.timedelta64("NaT", "ns")},
}


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning", "ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("name", NEWER)
def test_fill_values_of_newer_arrays_mask_nothing_in_older_ones(name: str, tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "source", zarr_format=3)
    root.create_array("v", chunks=(1,), dimension_names=["x"], **NEWER[name])
    gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=2, read_back=True)
    check_same(tmp_path / "source", tmp_path / "copy")
    assert zarr.open_array(tmp_path / "copy/v").nchunks_initialized == 3


@pytest.mark.parametrize("packing", [{"scale_factor": 0.1}, {"add_offset": 1.0}, {}], ids=str)
def test_masks_of_nan_choose_the_data_type(packing: dict[str, Any], tmp_path: Path) -> None:
    old(tmp_path / "source", "f4", [1, np.nan, 3], fill_value=np.nan, attributes=packing)
    gzarr.copy(tmp_path / "source", tmp_path / "copy", zarr_format=3, read_back=True)
    check_same(tmp_path / "source", tmp_path / "copy")
    assert ("_FillValue" in zarr.open_array(tmp_path / "copy/v").attrs) == bool(packing)
    gzarr.copy(tmp_path / "copy", tmp_path / "back", zarr_format=2, read_back=True)
    check_same(tmp_path / "source", tmp_path / "back")


def test_arrays_without_dimensions_by_themselves(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "source", zarr_format=3)
    root.create_array("v", data=np.array(0), fill_value=0)
    array = gzarr.open_array(tmp_path / "source", path="v")
    gzarr.copy(tmp_path / "source", tmp_path / "path", path="v", dest_path="v", zarr_format=2)
    gzarr.copy(array, tmp_path / "array", dest_path="v", zarr_format=2)
    gzarr.copy(array.view[...], tmp_path / "view", dest_path="v", zarr_format=2)
    for name in ("path", "array", "view"):
        check_same(tmp_path / "source", tmp_path / name)
    # Nor does it matter what else is in the group.
    root.create_array("unnamed", data=np.zeros(3))
    gzarr.copy(tmp_path / "source", tmp_path / "both", zarr_format=2)
    assert zarr.open_array(tmp_path / "both/v").attrs["_ARRAY_DIMENSIONS"] == []
    with xr.open_dataset(tmp_path / "both", engine="gzarr", drop_variables=["unnamed"], consolidated=False) as copied:
        assert (copied.v.dtype, copied.v.item()) == (np.dtype(int), 0)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_members_of_others_stay(zarr_format: Any, tmp_path: Path, capsys: Any) -> None:
    source, name = tmp_path / "source", "zarr.json" if zarr_format == 3 else ".zarray"
    zarr.create_group(source, zarr_format=zarr_format).create_array("v", data=np.arange(8), chunks=(2,))
    of_others = {"proj": {"must_understand": False, "code": 4326}, "q": {"must_understand": False}}
    document = json.loads((source / "v" / name).read_bytes())
    (source / "v" / name).write_text(json.dumps({**document, **of_others}))
    gzarr.copy(source, tmp_path / "copy", chunks=4, codecs="zstd", read_back=True)
    gzarr.copy(gzarr.open_array(source, path="v").view[2:], tmp_path / "view/v", chunks=3)
    optimized(source, tmp_path / "optimized", "--chunks", "8")
    for copied in ("copy", "view", "optimized"):
        found = json.loads((tmp_path / copied / "v" / name).read_bytes())
        assert {key: found.get(key) for key in of_others} == of_others
        assert gzarr.open_array(tmp_path / copied, path="v").chunks != (2,)
        assert found.keys() - of_others.keys() == document.keys()
    capsys.readouterr()
    optimized(source, tmp_path / "other", "--zarr-format", str(5 - zarr_format))
    assert "the member proj of its document is left out" in capsys.readouterr().out
