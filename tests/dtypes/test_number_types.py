"""The table of number types: its rows against NumPy and ml_dtypes, and the effect of a new row."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from support.devices import KINDS, holds
from support.zarr_arrays import BIG, LITTLE, codec, same, v2, v3

import gzarr
from gzarr.dtypes import number_types
from gzarr.dtypes.number_types import NUMBER_TYPES, NumberType, NumberTypes
from gzarr.dtypes.properties import bits, component, is_in_cupy, mantissa_bits, number_limits, storage, swap_unit
from gzarr.dtypes.v2 import parse_v2, to_v2
from gzarr.dtypes.v3 import parse_v3, to_v3

if TYPE_CHECKING:
    from support.devices import TestedDevice

ZSTD = codec("zstd", level=1, checksum=False)


# -- the rows


@pytest.mark.parametrize("row", NUMBER_TYPES.rows, ids=lambda row: row.names[0])
class TestRows:
    def test_dtype(self, row: NumberType) -> None:
        dtype = row.dtype()
        package = np if row.is_numpys else ml_dtypes
        assert dtype == np.dtype(getattr(package, "bool_" if row.kind == "b" else row.dtype_name))
        assert dtype.name == row.dtype_name
        assert dtype.itemsize == row.nbytes
        assert not row.is_numpys or dtype.kind == row.kind
        assert number_types.of(dtype) is number_types.of(dtype.newbyteorder()) is row

    def test_names(self, row: NumberType) -> None:
        dtype = row.dtype()
        for name in row.names:
            assert parse_v3(name) == (dtype, name)
        assert to_v3(dtype) == row.names[0]
        for order in "<>":
            stored = dtype.newbyteorder(order)
            if order == "<" or row.is_numpys:
                assert parse_v2(to_v2(stored)) == stored
        assert to_v2(dtype) == (dtype.str if row.is_numpys else row.names[0])

    def test_bytes(self, row: NumberType) -> None:
        for dtype in (row.dtype(), row.dtype().newbyteorder(">")):
            plain = storage(dtype)
            assert plain.itemsize == dtype.itemsize
            assert plain.fields is not None or plain.kind in "biufc"
            if row.is_numpys:
                assert plain == dtype
        # What a swap of NumPy's, which is right for its own types, reverses.
        assert swap_unit(row.dtype()) == (row.nbytes // 2 if row.kind == "c" else row.nbytes)

    def test_numbers(self, row: NumberType) -> None:
        dtype = row.dtype()
        package = np if row.is_numpys else ml_dtypes
        if row.kind in "iu":
            limits = package.iinfo(dtype)
            assert number_limits(dtype) == (int(limits.min), int(limits.max))
            assert bits(dtype) == int(limits.bits)
        elif row.kind == "f":
            limits = package.finfo(dtype)
            assert mantissa_bits(dtype) == limits.nmant
            assert bits(dtype) == limits.bits
        elif row.kind == "c":
            real = np.zeros(1, dtype).real.dtype if row.is_numpys else component(dtype)
            assert component(dtype) == real
            assert 2 * bits(real) == bits(dtype)
            # Real and imaginary part of ml_dtypes' own.
            assert complex(np.array([1.5, -2], real).view(dtype)[0]) == 1.5 - 2j
        if row.kind != "c":
            assert component(dtype) == dtype
        if row.kind != "f":
            assert mantissa_bits(dtype) is None

    def test_on_a_device(self, row: NumberType) -> None:
        # CuPy has no numbers of ml_dtypes but this.
        assert is_in_cupy(row.dtype()) == (row.is_numpys or row.names[0] == "bfloat16")
        if row.swap_unit > 1:
            assert not is_in_cupy(row.dtype().newbyteorder())


def test_no_name_is_there_twice() -> None:
    names = [name for row in NUMBER_TYPES.rows for name in row.names]
    assert len(set(names)) == len(names)
    spelled = [row.type_string or row.names[0] for row in NUMBER_TYPES.rows]
    assert len(set(spelled)) == len(spelled)
    assert len({row.dtype_name for row in NUMBER_TYPES.rows}) == len(NUMBER_TYPES.rows)


# -- a new type is one row

#: Types that gzarr does not have, or not by that name: type of ml_dtypes, bytes of its units, fill value and its units.
NEW: dict[str, tuple[str, int, Any, list[int]]] = {
    "bit": ("uint1", 1, 1, [1]),
    "brain16": ("bfloat16", 2, "0x7f80", [0x7F80]),
    "pair": ("bcomplex32", 2, [1.5, "NaN"], [0x3FC0, 0x7FC0]),
}


@pytest.fixture
def new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give two types other names, and add a type, by changing only the table."""
    rows = [row for row in NUMBER_TYPES.rows if row.dtype_name not in ("bfloat16", "bcomplex32")]
    brain16 = replace(NUMBER_TYPES.by_v3_name["bfloat16"], names=("brain16", "half_of_float32"))
    bit = NumberType(("bit",), None, "ml_dtypes.uint1", "u", 1)
    pair = NumberType(("pair",), None, "ml_dtypes.bcomplex32", "c", 32, part="brain16")
    monkeypatch.setattr(number_types, "NUMBER_TYPES", NumberTypes([*rows, brain16, bit, pair]))


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, NEW[name][0]))


def patterns(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return elements of many bit patterns, including NaNs and infinities."""
    unit = NEW[name][1]
    count = math.prod(shape) * dtype_of(name).itemsize // unit
    units = np.arange(count) * 40503 % (2 if name == "bit" else 256**unit)
    return units.astype(f"u{unit}").view(dtype_of(name)).reshape(shape)


def units_of(name: str, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(data).view(f"u{NEW[name][1]}")


def stored(name: str, data: np.ndarray[Any, Any], order: str = "<") -> bytes:
    return units_of(name, data).astype(f"{order}u{NEW[name][1]}").tobytes()


@pytest.mark.parametrize("name", NEW)
def test_names_without_their_rows(name: str) -> None:
    with pytest.raises(gzarr.UnsupportedError, match=f"'{name}' is not known"):
        parse_v3(name)
    with pytest.raises(gzarr.MetadataError, match=f"'{name}' is not a v2 type string"):
        parse_v2(name)


@pytest.mark.usefixtures("new_rows")
def test_names_of_other_rows() -> None:
    with pytest.raises(gzarr.UnsupportedError, match="'bfloat16' is not known"):
        parse_v3("bfloat16")
    assert parse_v3("half_of_float32")[0] == dtype_of("brain16")
    assert to_v3(dtype_of("brain16")) == to_v2(dtype_of("brain16")) == "brain16"
    fields = np.dtype([("n", dtype_of("bit")), ("z", dtype_of("pair"))])
    assert to_v2(fields) == [["n", "bit"], ["z", "pair"]]
    assert parse_v2(to_v2(fields)) == parse_v3(to_v3(fields))[0] == fields
    assert storage(fields) == np.dtype([("n", "u1"), ("z", [("real", "u2"), ("imag", "u2")])])


@pytest.mark.usefixtures("new_rows")
@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("device", KINDS, indirect=True)
class TestNewRows:
    def test_read(self, name: str, device: TestedDevice) -> None:
        data = patterns(name, (4, 6))
        parts = (data[:2, :3], data[:2, 3:], data[2:, :3])
        fill = NEW[name][2]
        stores: list[dict[str, bytes]] = []
        for endian, order in ((LITTLE, "<"), (BIG, ">")):
            document = json.dumps(v3((4, 6), (2, 3), name, [endian], fill)).encode()
            keys = zip(("c/0/0", "c/0/1", "c/1/0"), (stored(name, part, order) for part in parts), strict=True)
            stores.append({"zarr.json": document, **dict(keys)})
        keys = zip(("0.0", "0.1", "1.0"), (stored(name, part) for part in parts), strict=True)
        stores.append({".zarray": json.dumps(v2((4, 6), (2, 3), name, fill=fill)).encode(), **dict(keys)})
        for i, store in enumerate(stores):
            if name == "bit":
                # The other bits of a byte mean nothing.
                store = {k: v if k[0] in ".z" else bytes(byte | 0xA4 for byte in v) for k, v in store.items()}
            array = device.open(store)
            assert array.dtype == dtype_of(name)
            assert (array.device == device.name) == (name == "brain16" or not device.is_cuda)
            result = device.read(array)
            same(result[:2], data[:2], i)
            same(result[2:, :3], data[2:, :3], i)
            same(device.read(array, (slice(None, None, -1), 1)), data[::-1, 1], i)
            assert units_of(name, result[2:, 3:]).ravel().tolist() == 6 * NEW[name][3]

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_write(self, name: str, zarr_format: Any, device: TestedDevice) -> None:
        data, fill = patterns(name, (4, 6)), NEW[name][2]
        store: dict[str, bytes] = {}
        array = gzarr.create_array(
            store,
            shape=(4, 6),
            dtype=name,
            chunks=(2, 3),
            codecs=None,
            fill_value=fill,
            zarr_format=zarr_format,
        )
        document = json.loads(store["zarr.json" if zarr_format == 3 else ".zarray"])
        assert document["data_type" if zarr_format == 3 else "dtype"] == name
        assert document["fill_value"] == ("Infinity" if name == "brain16" else fill)
        array = gzarr.open_array(store, mode="r+", device=device.name if holds(array.dtype) else "cpu")
        values = device.array(data) if array.device == device.name else data
        array[...] = values
        array[1, 1:5] = values[0, 1:5]
        data[1, 1:5] = data[0, 1:5]
        for i, j in np.ndindex(2, 2):
            key = f"c/{i}/{j}" if zarr_format == 3 else f"{i}.{j}"
            assert store[key] == stored(name, data[2 * i : 2 * i + 2, 3 * j : 3 * j + 3]), key
        same(device.read(device.open(store)), data)

    def test_numbers(self, name: str, device: TestedDevice) -> None:
        """Values that the type can't represent are refused, and codecs of numbers know it."""
        if name == "pair":
            codecs = [codec("packbits")]
            data = patterns(name, (10,))
        else:
            stored_type = "uint8" if name == "bit" else "float32"
            codecs = [codec("cast_value", data_type=stored_type), LITTLE, ZSTD]
            data = np.array([0, 1, 1, 0, 1]).astype(dtype_of(name))
        store: dict[str, bytes] = {}
        array = gzarr.create_array(store, shape=data.shape, dtype=name, chunks=4, codecs=codecs)
        array[...] = data
        same(device.read(device.open(store)), data)
        if name == "bit":
            with pytest.raises(gzarr.ArgumentError, match=r"2\) cannot be stored as uint1"):
                array[0] = 2
            with pytest.raises(gzarr.MetadataError, match="from 0 to 1"):
                gzarr.open_array({"zarr.json": json.dumps(v3((3,), (2,), name, [LITTLE], 2)).encode()})


@pytest.mark.parametrize("zarr_format", [1, 2, "3-draft-2022", 3])
@pytest.mark.parametrize(
    "dtype", [ml_dtypes.int1, ml_dtypes.uint1, [("a", ml_dtypes.int1)], np.longdouble, np.dtype(("i4", 3))], ids=str
)
def test_dtypes_without_a_data_type(dtype: Any, zarr_format: Any) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match=r"no data type for .*(int1|128|i4).* int8, .*from ml_dtypes int2, "):
        gzarr.create_array(store, shape=4, dtype=dtype, zarr_format=zarr_format, device="cpu")
    assert not store
