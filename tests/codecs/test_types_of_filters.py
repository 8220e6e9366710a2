"""Filters of numcodecs that are configured for other elements than they get: no new array stores what they lose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from numcodecs import AsType, BitRound, Delta, FixedScaleOffset, PackBits, Quantize
from support.zarr_arrays import same, v2

import gzarr
from gzarr.codecs.choice import choose

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = np.arange(10, 14)
#: Data type of the array, filters, and what the error says.
OTHER_TYPES: dict[str, tuple[str, list[Any], str]] = {
    "narrower": (
        "<f8",
        [FixedScaleOffset(0, 10, "<f4", "<i2")],
        "fixedscaleoffset is configured for float32, but gets float64; give it dtype='<f8'",
    ),
    "wider": ("<f4", [Quantize(2, "<f8")], "quantize is configured for float64, but gets float32; .* dtype='<f4'"),
    "other kind": ("<f4", [AsType("<i2", "<i4")], "astype is .* int32, but gets float32; give it decode_dtype='<f4'"),
    "differences": ("<u4", [Delta("<i4", "<i2")], "delta is configured for int32, but gets uint32; .* dtype='<u4'"),
    "dates": ("<M8[s]", [Quantize(2, "<f8")], r"float64, but gets datetime64\[s\]; give it dtype='<i8'"),
    "between": (
        "<f8",
        [FixedScaleOffset(0, 10, "<f8", "<i4"), AsType("<i2", "<f4")],
        "astype is configured for float32, but gets int32; give it decode_dtype='<i4'",
    ),
    "behind bits": ("?", [PackBits(), FixedScaleOffset(0, 1, "<i2")], "is configured for int16, but gets uint8"),
    "text": ("<U2", [FixedScaleOffset(0, 1, "<f8")], "is configured for float64, but gets <U2; it takes numbers"),
}
#: The same, where only byte orders differ.
OTHER_ORDERS: dict[str, tuple[str, list[Any], str]] = {
    "big": (">f8", [FixedScaleOffset(0, 10, "<f8", "<i2")], "float64, but gets >f8; give it dtype='>f8'"),
    "little": ("<f8", [Quantize(2, ">f8")], ">f8, but gets float64; give it dtype='<f8'"),
    "between": (">i4", [Delta(">i4", "<i4"), AsType("<i2", ">i4")], ">i4, but gets int32; give it decode_dtype='<i4'"),
}
#: Data type of the array, and filters that fit.
FITTING: list[tuple[str, list[Any]]] = [
    ("<f8", [FixedScaleOffset(0, 10, "<f8", "<i4"), Delta("<i4")]),
    (">f8", [FixedScaleOffset(0, 10, ">f8", "<i4"), Delta("<i4")]),
    (">f8", [BitRound(40), Quantize(2, ">f8", ">f8")]),
    (">M8[s]", [Delta(">i8")]),
    ("|u1", [AsType("<i2", "|u1"), Delta("<i2")]),
    ("?", [PackBits(), Delta("|u1")]),
]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", OTHER_TYPES)
def test_filters_of_other_types_are_refused(name: str, zarr_format: Any) -> None:
    dtype, filters, message = OTHER_TYPES[name]
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.create_array(store, shape=4, dtype=dtype, filters=filters, zarr_format=zarr_format)
    assert not store


@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_filters_of_other_byte_orders_are_refused_before_version_3(name: str) -> None:
    dtype, filters, message = OTHER_ORDERS[name]
    stored = np.dtype(dtype)
    element = stored.newbyteorder("=")
    for argument in ("filters", "codecs"):
        with pytest.raises(gzarr.ArgumentError, match=message):
            choose(element, None, stored=stored, **{argument: filters})
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.create_array({}, shape=4, dtype=dtype, filters=filters, zarr_format=2)
    # Elements have no byte order between the filters of version 3.
    data = NUMBERS.astype(dtype)
    same(gzarr.create_array({}, data=data, filters=filters, zarr_format=3)[...], data)


@pytest.mark.parametrize(("dtype", "filters"), FITTING, ids=str)
def test_filters_that_fit(dtype: str, filters: list[Any], tmp_path: Path) -> None:
    data = NUMBERS.astype(dtype)
    choose(data.dtype.newbyteorder("="), None, filters=filters, stored=data.dtype)
    same(gzarr.create_array({}, data=data, filters=filters, zarr_format=3)[...], data)
    same(gzarr.create_array(tmp_path, data=data, filters=filters, zarr_format=2)[...], data)
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path, mode="r")[...]), data)


@pytest.mark.parametrize("dtype", ["<u4", ">i4", "<f4", "<i2"])
def test_differences_of_any_bits_can_be_undone(dtype: str, tmp_path: Path) -> None:
    """Those of integers; in version 3, filters have elements of their own type only, also if documents become older."""
    data, filters = NUMBERS.astype(dtype), [Delta("<i4")]
    choose(data.dtype.newbyteorder("="), None, filters=filters, stored=data.dtype)
    same(gzarr.create_array(tmp_path, data=data, filters=filters, zarr_format=2)[...], data)
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path, mode="r")[...]), data)
    if dtype != ">i4":
        of_arrays = {"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i4"}}
        for zarr_format in (2, 3):
            with pytest.raises(gzarr.ArgumentError, match="is configured for int32"):
                gzarr.create_array({}, data=data, filters=[of_arrays], zarr_format=zarr_format)  # type: ignore[arg-type]


def test_filters_of_version_3_take_stored_byte_orders_in_version_2() -> None:
    """Those of arrays get the stored type as their own, and those of bytes after them what they make of it."""
    configuration = {"offset": 0, "scale": 10, "dtype": "<f8", "astype": "<i4"}
    codecs = [{"name": "numcodecs.fixedscaleoffset", "configuration": configuration}, {"name": "bytes"}, Delta("<i4")]
    choose(np.dtype("<f8"), None, codecs=codecs, stored=np.dtype(">f8"))
    data = NUMBERS.astype(">f8")
    same(gzarr.create_array({}, data=data, codecs=codecs, zarr_format=2)[...], data)


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("name", ["narrower", "other kind", "differences", "between"])
def test_such_arrays_that_exist_are_read_and_copied(name: str, tmp_path: Path) -> None:
    dtype, filters, _ = OTHER_TYPES[name]
    path, copy = tmp_path / "a", tmp_path / "b"
    array = zarr.create_array(path, shape=4, chunks=4, dtype=dtype, zarr_format=2, filters=filters, compressors=None)
    array[...] = NUMBERS.astype(dtype)
    expected = np.asarray(array[...])
    same(gzarr.open_array(path)[...], expected)
    gzarr.copy(path, copy)
    same(gzarr.open_array(copy)[...], expected)
    assert json.loads((copy / ".zarray").read_text())["filters"] == [one.get_config() for one in filters]


def test_labels_as_numbers_are_of_their_own_type() -> None:
    """What ``categorize`` makes may be of several bytes."""
    filters = [{"id": "categorize", "labels": ["a", "b"], "dtype": "|O", "astype": "<u2"}, Delta("<u2")]
    document = {**v2((2,), (2,), "|O", None, filters[:1]), "fill_value": ""}
    assert gzarr.open_array({".zarray": json.dumps(document).encode()}).dtype == object
    choose(np.dtype(object), None, filters=filters)
