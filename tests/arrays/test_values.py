"""Values for writing: lists and arrays of any library are accepted or refused as a whole, before anything changes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dask.array
import ml_dtypes
import numpy as np
import pytest
import zarr

import gzarr
from gzarr.arrays.elements import all_elements, all_of, as_elements
from gzarr.arrays.objects import ObjectType
from gzarr.hierarchy.new_nodes import arguments_of_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAIR: list[tuple[str, str]] = [("a", "i2"), ("b", "f4")]
TEXTS: list[tuple[str, str]] = [("a", "S2"), ("b", "U1")]
NESTED: list[Any] = [("t", "M8[D]"), ("n", [("u", "u1"), ("s", "U2")])]
ALIGNED = np.dtype([("a", "i1"), ("b", [("x", "i2"), ("y", "f8")])], align=True)
STRING = np.dtypes.StringDType(na_object=None)
JSON: dict[str, Any] = {"dtype": object, "zarr_format": 2, "filters": [{"id": "json2"}]}


def made(**arguments: Any) -> gzarr.Array:
    return gzarr.create_array({}, device="cpu", **arguments)


def objects(*items: Any) -> Any:
    return np.fromiter(items, object, len(items))


class OnlyDlpack:
    """An array of a library that supports only DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class TestRecords:
    @pytest.mark.parametrize(
        ("dtype", "value", "message"),
        [
            (PAIR, [(1.5, 0.1), (2, 0.2)], "field 'a': .*1.5"),
            (PAIR, [(70000, 0.1), (2, 0.2)], "field 'a': .*70000"),
            (PAIR, [(7, 1e39), (2, 0.2)], "field 'b': .*out of the range of float32"),
            (PAIR, [(7, None), (2, 0.2)], "field 'b'"),
            (PAIR, [("7", 1), (2, 0.2)], "field 'a'"),
            (PAIR, 5.7, "field 'a': .*5.7"),
            (PAIR, (1, 2, 3), "3 entries, but elements have 2 fields"),
            (PAIR, [(1, 2), [3, 4]], "must have equal lengths, and records"),
            (PAIR, {"a": 1, "b": 2}, "field 'a'"),
            (TEXTS, [(b"abcdef", "x"), (b"a", "b")], "field 'a': .*abcdef"),
            (TEXTS, [(b"ab", "xyz"), (b"a", "b")], "field 'b': .*xyz"),
            (TEXTS, [(b"ab", "x"), (b"a", 5)], "field 'b': 5 is not an element"),
            (NESTED, ("2020-01-01T23", (1, "a")), "field 't'"),
            (NESTED, ("2020-01-01", (3.5, "a")), "field 'n': field 'u': .*3.5"),
            (NESTED, ("2020-01-01", (3, "long")), "field 'n': field 's': .*long"),
            (PAIR, np.array([(1.5, 0.1)] * 2, [("a", "f8"), ("b", "f4")]), "field 'a': .*1.5"),
            (PAIR, np.array([(1, 0.1)] * 2, [("b", "i2"), ("a", "f4")]), "the fields b, a are not"),
            (PAIR, np.array([(1,)] * 2, [("a", "i2")]), "the fields a are not"),
        ],
    )
    def test_what_is_no_record_is_refused(self, dtype: Any, value: Any, message: str) -> None:
        array = made(shape=(2,), dtype=dtype)
        with pytest.raises(gzarr.ArgumentError, match=message):
            array[...] = value
        assert not any("c/" in key for key in array.store.list_prefix(""))

    @pytest.mark.parametrize("fill", [(1.5, 1), (1, 1e39), 0.5])
    def test_no_fill_value_is_cut(self, fill: Any) -> None:
        with pytest.raises(gzarr.ArgumentError, match="fill_value: field"):
            made(shape=2, dtype=PAIR, fill_value=fill)
        with pytest.raises(gzarr.ArgumentError, match="fill_value: field 'a'"):
            made(shape=2, dtype=TEXTS, fill_value=(b"abcdef", "x"))

    @pytest.mark.parametrize(
        ("dtype", "value", "expected"),
        [
            (PAIR, [(1, 0.5), (2.0, 3)], [(1, 0.5), (2, 3.0)]),
            (PAIR, (1, 0.5), [(1, 0.5)] * 2),
            (PAIR, 5, [(5, 5.0)] * 2),
            (PAIR, [np.array((1, 0.5), PAIR)[()], (2, np.float64(0.25))], [(1, 0.5), (2, 0.25)]),
            (PAIR, np.array([(1, 0.1), (2, np.nan)], [("a", ">i8"), ("b", "f8")]), [(1, 0.1), (2, np.nan)]),
            (PAIR, np.array([(1, 0.5), (2, 0.25)], [("x", "i1"), ("y", "f2")]), [(1, 0.5), (2, 0.25)]),
            (NESTED, [("2020-01-01", (3, "ab")), ("NaT", (4, ""))], [("2020-01-01", (3, "ab")), ("NaT", (4, ""))]),
        ],
    )
    def test_records(self, dtype: Any, value: Any, expected: list[Any]) -> None:
        array = made(shape=(2,), dtype=dtype)
        array[...] = value
        assert array[...].tobytes() == np.array(expected, dtype).tobytes()

    def test_objects_and_arrays_within(self) -> None:
        items = np.empty(2, object)
        items[:] = [(1, 0.5), (2, 0.25)]
        assert as_elements(items, np.dtype(PAIR), (2,), "/").tolist() == [(1, 0.5), (2, 0.25)]
        assert as_elements([], np.dtype(TEXTS), (0,), "/").shape == (0,)
        dtype = np.dtype([("a", "i2"), ("q", "f4", (2,))])
        found = as_elements([(1, [2, 3]), (4, 5)], dtype, (2,), "/")
        assert found["q"].tolist() == [[2, 3], [5, 5]]
        with pytest.raises(gzarr.ArgumentError, match="field 'q'"):
            as_elements([(1, [2, 3, 4])], dtype, (1,), "/")
        with pytest.raises(gzarr.ArgumentError, match=r"arrays of shape \(2,\), not \(3,\)"):
            as_elements(np.zeros(1, [("a", "i2"), ("q", "f4", (3,))]), dtype, (1,), "/")

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_gaps_between_fields_are_not_stored(self, zarr_format: Any) -> None:
        data = np.array([(1, (2, 0.5)), (3, (4, np.nan))], ALIGNED)
        store: dict[str, bytes] = {}
        array = gzarr.create_array(store, data=data, zarr_format=zarr_format, device="cpu")
        assert array.dtype == np.dtype([("a", "i1"), ("b", [("x", "i2"), ("y", "f8")])])
        assert str(array[...].tolist()) == str(data.tolist())
        several = np.array([(1, 5, 0.5)], [("a", "i1"), ("b", "i4"), ("c", "f8")])[["a", "c"]]
        assert made(data=several, zarr_format=zarr_format)[...].tolist() == [(1, 0.5)]


class TestObjects:
    BAD: tuple[Any, ...] = (
        (str, ["a", 5], "5 cannot be stored: elements are of type str, not int"),
        (str, ["a", np.nan], "nan cannot be stored"),
        (str, ["a", b"b"], "of type str, not bytes"),
        (str, ["a", None], "None cannot be stored"),
        (str, ["a", "\ud800"], "surrogate"),
        (str, np.array(["a", None], STRING), "None cannot be stored"),
        (bytes, [b"a", "b"], "of type bytes, not str"),
        (bytes, [b"a", bytearray(b"b")], "of type bytes, not bytearray"),
    )

    @pytest.mark.parametrize(("dtype", "data", "message"), BAD)
    def test_bad_items_are_refused_before_anything_is_erased(self, dtype: Any, data: Any, message: str) -> None:
        store: dict[str, bytes] = {}
        gzarr.save(store, np.arange(3))
        with pytest.raises(gzarr.ArgumentError, match=message):
            gzarr.create_array(store, data=data, dtype=dtype, overwrite=True)
        assert gzarr.load(store, device="cpu").tolist() == [0, 1, 2]

    @pytest.mark.parametrize("item", [{1}, {1: 2}, b"x", 1j])
    def test_what_is_no_json_is_refused(self, item: Any) -> None:
        store: dict[str, bytes] = {}
        with pytest.raises(gzarr.ArgumentError, match=r"JSON|names are strings"):
            gzarr.create_array(store, data=[1, item], **JSON)
        with pytest.raises(gzarr.ArgumentError, match="fill_value"):
            gzarr.create_array(store, shape=2, fill_value=item, **JSON)
        assert not store

    def test_several_values_are_checked_too(self) -> None:
        items = ObjectType("vlen-utf8", unset=False)
        with pytest.raises(gzarr.ArgumentError, match="/x: 5 cannot"):
            all_elements(["a", ["b", 5]], np.dtype(object), [(2,), (2,)], "/x", None, items)

    def test_what_nobody_has_written_can_be_written(self) -> None:
        """Version 2 allows documents without a fill value; for objects it is then NumPy's 0."""
        found = as_elements(["a", 0], np.dtype(object), (2,), "/", ObjectType("vlen-utf8", unset=True))
        assert found.tolist() == ["a", ""]

    def test_derived_classes_become_plain(self) -> None:
        class Loud(str):
            def __str__(self) -> str:
                return self.upper()

        found = made(data=[Loud("é"), np.str_("b")], dtype=str)[...]
        assert found.tolist() == ["é", "b"]
        assert {type(item) for item in found} == {str}

    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_trailing_zeros_stay(self, zarr_format: Any) -> None:
        assert made(data=[b"a\0", b"b"], dtype=bytes, zarr_format=zarr_format)[...].tolist() == [b"a\0", b"b"]
        assert made(data=["a\0", "b"], dtype=str, zarr_format=zarr_format)[...].tolist() == ["a\0", "b"]

    @pytest.mark.parametrize(("dtype", "items"), [(str, ["a", "é"]), (bytes, [b"a", b""]), (bytes, [])])
    def test_arrays_of_texts_of_ours(self, dtype: Any, items: list[Any]) -> None:
        first = made(data=items, dtype=dtype, shape=(len(items),))
        second = made(data=first)
        assert second.codecs[0].label == first.codecs[0].label
        assert second[...].tolist() == items
        empty = type(items[0])() if items else b""
        if items:
            assert gzarr.zeros_like(np.array(items, object), device="cpu")[...].tolist() == [empty] * len(items)

    def test_elements_of_an_array_of_one(self) -> None:
        array = made(shape=(3,), dtype=str)
        array[0] = ["x"]
        array[1] = np.array(["y"], object)
        assert array[...].tolist() == ["x", "y", ""]


class TestData:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"data": [(1, 2.5)], "dtype": PAIR}, [(1, 2.5)]),
            ({"data": ["2020-01-01", "NaT"], "dtype": "M8[D]"}, np.array(["2020-01-01", "NaT"], "M8[D]").tolist()),
            ({"data": [{"a": 1}, [1, 2]], **JSON}, [{"a": 1}, [1, 2]]),
            ({"data": [[1, 2], [3, 4]], "shape": (2,), **JSON}, [[1, 2], [3, 4]]),
            ({"data": [b"abcd"], "dtype": "V4"}, [b"abcd"]),
            ({"data": OnlyDlpack(np.arange(3.0))}, [0.0, 1.0, 2.0]),
        ],
    )
    def test_lists_and_arrays_of_other_libraries(self, arguments: dict[str, Any], expected: list[Any]) -> None:
        assert made(**arguments)[...].tolist() == expected

    def test_dtype_of_what_has_only_dlpack(self) -> None:
        store: dict[str, bytes] = {}
        gzarr.save(store, a=OnlyDlpack(np.ones(1, "i2")))
        assert gzarr.load(store, device="cpu")["a"].dtype == np.int16

    @pytest.mark.parametrize(
        ("arguments", "value", "expected"),
        [
            ({"dtype": PAIR}, [(1, 2.5)], (1, 2.5)),
            ({"dtype": "M8[D]"}, ["2020-01-01"], np.datetime64("2020-01-01").item()),
            ({"dtype": bytes}, [b"a\0"], b"a\0"),
            ({"dtype": "f4"}, OnlyDlpack(np.ones(1)), 1.0),
            (JSON, [[1, {"a": 2}]], [1, {"a": 2}]),
        ],
    )
    def test_append(self, arguments: dict[str, Any], value: Any, expected: Any) -> None:
        array = made(shape=(0,), **arguments)
        assert array.append(value) == (1,)
        assert array[...].tolist() == [expected]

    def test_of_a_device(self) -> None:
        """An array of another library on a GPU stays there, and gives its type in NumPy's terms."""
        tensor = SimpleNamespace(dtype="float32 of theirs", shape=(2,), __cuda_array_interface__={"typestr": "<f4"})
        data, shape, arguments = arguments_of_data(tensor, None, {}, 3)
        assert data is tensor
        assert (shape, arguments) == ((2,), {"dtype": np.dtype("f4")})
        metadata = made(shape=2, dtype="f4").metadata
        assert all_of(tensor, metadata, "/") is tensor

    def test_lists_within_themselves(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        for dtype in (PAIR, str, "f4"):
            with pytest.raises(gzarr.ArgumentError):
                made(data=endless, dtype=dtype)

    def test_ragged_lists(self) -> None:
        ragged = [[1], [1, 2]]
        array = made(shape=(2, 2), dtype="i4")
        for call in (lambda: made(data=ragged), lambda: gzarr.save({}, ragged), lambda: array.append(ragged)):
            with pytest.raises(gzarr.ArgumentError, match="a value of type list is not"):
                call()

    def test_arrays_like_lists(self) -> None:
        array = gzarr.full_like([1, 2], 7, device="cpu")
        assert (array.dtype, array[...].tolist()) == (np.int64, [7, 7])
        assert gzarr.zeros_like(np.array(["a", "b"]), device="cpu")[...].tolist() == ["", ""]


class TestTexts:
    """Neither numbers nor bytes that are no ASCII become text."""

    NOT_ASCII: tuple[Any, ...] = (b"\xff", [b"\xff"], np.array([b"\xff"]), np.array([b"\xff"], object))

    @pytest.mark.parametrize("value", NOT_ASCII)
    def test_bytes_that_are_no_ascii(self, value: Any) -> None:
        message = r"b'\\xff' cannot be stored as <U3: it is not ASCII; decode it first"
        store: dict[str, bytes] = {}
        array = gzarr.create_array(store, shape=(1,), dtype="U3", device="cpu")
        before = dict(store)
        with pytest.raises(gzarr.ArgumentError, match=f"^/: {message}"):
            array[...] = value
        with pytest.raises(gzarr.ArgumentError, match=message):
            array.append(value if np.ndim(value) else [value])
        assert store == before
        with pytest.raises(gzarr.ArgumentError, match=message):
            made(data=value, dtype="U3", shape=np.shape(value))
        with pytest.raises(gzarr.ArgumentError, match=f"^fill_value: {message}"):
            made(shape=1, dtype="U3", fill_value=b"\xff")

    def test_fields_that_are_no_ascii(self) -> None:
        array = made(shape=1, dtype=[("a", "U3")])
        values: tuple[Any, ...] = (b"\xff", (b"\xff",), np.array([(b"\xff",)], [("a", "S1")]), objects((b"\xff",)))
        for value in values:
            with pytest.raises(gzarr.ArgumentError, match=r"field 'a': b'\\xff' cannot be stored as <U3"):
                array[...] = value

    def test_ascii(self) -> None:
        array = made(shape=(2,), dtype="U3")
        for value in ([b"ab", "c"], np.array([b"ab", b"c"]), objects(b"ab", "c"), np.array(["ab", "c"], STRING)):
            array[...] = value
            assert array[...].tolist() == ["ab", "c"]

    @pytest.mark.parametrize("dtype", ["S30", "U30", "V30", "V4", [("a", "U30")]])
    @pytest.mark.parametrize("item", [5, True, 1.5, np.datetime64("2020"), np.timedelta64(1, "D")])
    def test_numbers_and_times(self, dtype: Any, item: Any) -> None:
        array = made(shape=(1,), dtype=dtype)
        for value in (item, [item], np.array([item]), objects(item)):
            with pytest.raises(gzarr.ArgumentError, match=r"not (an element|elements) of"):
                array[...] = value

    @pytest.mark.parametrize(("dtype", "text"), [("U30", "a"), ("S30", b"a"), ("U30", b"a")])
    @pytest.mark.parametrize("item", [5, None, np.nan, True])
    def test_among_objects(self, dtype: str, text: Any, item: Any) -> None:
        array = made(shape=(2,), dtype=dtype)
        for value in ([text, item], objects(text, item)):
            with pytest.raises(gzarr.ArgumentError, match=f"{item} is not an element of"):
                array[...] = value

    def test_text_is_no_raw_bytes(self) -> None:
        for value in (np.array(["a"]), np.array(["a"], object), np.array(["a"], STRING), "a"):
            with pytest.raises(gzarr.ArgumentError):
                made(shape=1, dtype="V30")[...] = value
        assert made(shape=1, dtype="V3", data=np.array([b"abc"]))[0].tobytes() == b"abc"


class TestSavingOverItself:
    @staticmethod
    def of_dask(path: Path, name: str) -> Any:
        return dask.array.from_array(zarr.open_array(path / name, mode="r"))

    @staticmethod
    def of_zarr(path: Path, name: str) -> Any:
        return zarr.open_array(path / name, mode="r")

    @staticmethod
    def of_gzarr(path: Path, name: str) -> Any:
        return gzarr.open_array(path, path=name, device="cpu")

    @pytest.mark.parametrize("kind", ["of_dask", "of_zarr", "of_gzarr"])
    def test_arrays_are_read_before_they_are_erased(self, kind: str, tmp_path: Path) -> None:
        opened: Callable[[Path, str], Any] = getattr(self, kind)
        gzarr.save(tmp_path, a=np.arange(1, 4), b=np.ones(2))
        gzarr.save(tmp_path, overwrite=True, a=opened(tmp_path, "b"), b=opened(tmp_path, "a"))
        found = gzarr.load(tmp_path, device="cpu")
        assert {name: found[name].tolist() for name in found} == {"a": [1.0, 1.0], "b": [1, 2, 3]}

    def test_texts(self) -> None:
        store: dict[str, bytes] = {}
        gzarr.save(store, a=np.array(["x", "y"], object), b=np.array([b"x\0"], object))
        gzarr.save(store, overwrite=True, **dict(gzarr.open_group(store, device="cpu").arrays()))
        found = gzarr.load(store, device="cpu")
        assert (found["a"].tolist(), found["b"].tolist()) == (["x", "y"], [b"x\0"])


class TestNumbers:
    @pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn"])
    @pytest.mark.parametrize("zarr_format", [2, 3])
    def test_less_than_a_byte_without_dimensions(self, dtype: str, zarr_format: Any) -> None:
        array = made(shape=(), dtype=dtype, zarr_format=zarr_format)
        array[...] = 1
        assert array[...] == 1

    def test_integers_that_no_type_holds(self) -> None:
        array = made(shape=(2,), dtype="f8")
        array[...] = [2**70, 0.5]
        assert array[...].tolist() == [2.0**70, 0.5]
        for dtype, value in (("f8", 10**400), ("u8", 2**64), ("f4", [2**200, 1])):
            with pytest.raises(gzarr.ArgumentError, match=f"is out of the range of {np.dtype(dtype)}"):
                made(shape=(2,), dtype=dtype)[...] = value

    def test_units_too_far_apart(self) -> None:
        with pytest.raises(gzarr.ArgumentError, match=r"timedelta64\[W\] are not elements of timedelta64\[as\]"):
            made(shape=1, dtype="m8[as]")[...] = np.timedelta64(1, "W")


class TestFillValues:
    def test_special_numbers_by_name(self) -> None:
        assert np.isnan(made(shape=1, dtype="bfloat16", fill_value="NaN").fill_value)
        assert made(shape=1, dtype="bfloat16", fill_value="-Infinity").fill_value == -ml_dtypes.bfloat16(np.inf)
        found = made(shape=1, dtype="c8", fill_value=["NaN", 1]).fill_value
        assert np.isnan(found.real)
        assert found.imag == 1

    @pytest.mark.parametrize("zarr_format", [1, 2])
    @pytest.mark.parametrize("dtype", ["f4", "c8"])
    def test_bits_that_a_document_cannot_hold(self, dtype: str, zarr_format: Any) -> None:
        odd = np.array([0x7FC00001, 0], "u4").view(dtype)[0]
        store: dict[str, bytes] = {}
        with pytest.raises(gzarr.ArgumentError, match=r"cannot hold the bits of .*0100c07f"):
            gzarr.create_array(store, shape=1, dtype=dtype, fill_value=odd, zarr_format=zarr_format)
        assert not store
        source = made(shape=1, dtype=dtype, fill_value=odd)
        assert source[...].tobytes() == odd.tobytes()
        with pytest.raises(gzarr.ArgumentError, match="cannot hold the bits"):
            gzarr.copy(source, store, zarr_format=zarr_format)
        ordinary = made(shape=1, dtype=dtype, fill_value=np.nan, zarr_format=zarr_format).fill_value
        assert ordinary.tobytes() == np.array(np.nan, dtype).tobytes()


class TestRequired:
    @pytest.mark.parametrize(
        ("made_of", "required", "message"),
        [
            ({"dtype": bytes}, str, "elements of bytes, not str"),
            ({"dtype": str}, bytes, "elements of str, not bytes"),
            ({"dtype": str}, "U5", "elements of str, not <U5"),
            ({"dtype": str}, "i4", "elements of str, not int32"),
            ({"dtype": "U5"}, str, "elements of <U5, not str"),
            (JSON, str, "elements of object, not str"),
        ],
    )
    def test_other_texts_are_refused(self, made_of: dict[str, Any], required: Any, message: str) -> None:
        store: dict[str, bytes] = {}
        gzarr.create_array(store, shape=2, **made_of)
        with pytest.raises(gzarr.NodeTypeError, match=message):
            gzarr.require_array(store, shape=2, dtype=required)

    @pytest.mark.parametrize(
        ("made_of", "required"),
        [
            ({"dtype": str}, str),
            ({"dtype": bytes, "zarr_format": 2}, bytes),
            (JSON, object),
            ({"dtype": [("q", "f4", (2,))], "zarr_format": 1}, [("q", "f4", (2,))]),
            ({"dtype": ">i4", "zarr_format": 2}, ">i4"),
        ],
    )
    def test_the_same_is_found(self, made_of: dict[str, Any], required: Any) -> None:
        store: dict[str, bytes] = {}
        gzarr.create_array(store, shape=2, **made_of)
        assert gzarr.require_array(store, shape=2, dtype=required, exact=True).shape == (2,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk_key_encoding": {"name": "default", "configuration": "/"}}, "configuration must be an object, not '/'"),
        ({"dimension_names": 5}, "dimension_names .* not 5"),
        ({"chunks": [["a"]]}, "expected a length from 1.* got 'a'"),
        ({"chunks": [[1.5, 2.5]]}, r"expected a length from 1.* got 1\.5"),
        ({"chunks": [[[2**20, 2**42]]]}, r"chunks\[0\]: there are at most|chunks\[0\]: chunks of"),
        ({"codecs": [{"id": ["zstd"]}]}, r"codecs\[0\]: a codec needs an \"id\""),
        ({"attributes": {"a": [10**5000]}}, r"attributes\['a'\]\[0\]: .* too large"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match=message):
        gzarr.create_array(store, shape=4, dtype="i4", **arguments)
    assert not store


def test_runs_of_chunks() -> None:
    array = made(shape=(7,), dtype="i4", chunks=[[np.int64(1), [2, 3]]])
    assert array.chunk_lengths == ((1, 2, 2, 2),)


def test_largest_attribute_is_read_again() -> None:
    store: dict[str, bytes] = {}
    gzarr.create_group(store, attributes={"a": 2**14284 - 1})
    assert gzarr.open_group(store).attrs["a"] == 2**14284 - 1
    assert json.loads(store["zarr.json"])["attributes"]["a"] == 2**14284 - 1


def test_arguments_that_nobody_knows() -> None:
    store: dict[str, bytes] = {}
    unknown: Any = {"compressor": None}
    with pytest.raises(gzarr.ArgumentError, match=r"no argument 'compressor'.*compressors"):
        gzarr.open_array(store, mode="a", shape=3, dtype="i4", **unknown)
    named: Any = 5
    with pytest.raises(gzarr.ArgumentError, match="named= must be a mapping"):
        gzarr.save(store, named=named)
    assert not store


class TestWritingObjects:
    """The whole value is checked before anything is written."""

    @pytest.mark.parametrize(("dtype", "data", "message"), TestObjects.BAD)
    def test_bad_items(self, dtype: Any, data: Any, message: str) -> None:
        store: dict[str, bytes] = {}
        array = gzarr.create_array(store, shape=(4,), chunks=1, dtype=dtype, device="cpu")
        before = dict(store)
        changes: list[Callable[[], Any]] = [
            lambda: array.write(slice(0, 2), data),
            lambda: array.write_many([slice(2, 4), slice(0, 2)], [array[:2], data]),
            lambda: array.append(data),
            lambda: array.oindex.__setitem__([1, 3], data),
        ]
        for change in changes:
            with pytest.raises(gzarr.ArgumentError, match=message):
                change()
        assert store == before

    def test_json(self) -> None:
        array = made(shape=(2,), **JSON)
        with pytest.raises(gzarr.ArgumentError, match="a set is not JSON"):
            array[...] = [1, {2}]
        array[...] = [[1, 2], [np.int64(3), {"a": None}]]
        array[0] = [7, 8]
        assert array[...].tolist() == [[7, 8], [3, {"a": None}]]

    def test_what_nobody_has_written(self) -> None:
        """Version 2 allows documents without a fill value; for objects it is then NumPy's 0."""
        store: dict[str, bytes] = {}
        gzarr.create_array(store, shape=3, dtype=str, zarr_format=2)
        store[".zarray"] = json.dumps({**json.loads(store[".zarray"]), "fill_value": None}).encode()
        array = gzarr.open_array(store, mode="r+", device="cpu")
        array[0] = "x"
        array[...] = array[...]
        assert array[...].tolist() == ["x", "", ""]


# -- values without elements, of which none can be wrong


@pytest.mark.parametrize("dtype", ["S4", "U4", "V3", "M8[s]", "m8[s]", "i4", "?", str, PAIR, TEXTS, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "empty",
    [[], np.array([]), np.array([], object), np.array([], "U3"), np.array([], "M8[D]"), np.array([], [("c", "c8")])],
    ids=lambda value: str(getattr(value, "dtype", "list")),
)
def test_empty_values_are_of_any_type(dtype: Any, empty: Any) -> None:
    array, none = made(shape=(4,), dtype=dtype), np.zeros(4, bool)
    before = array[...].tolist()
    for selection in (slice(2, 2), none, []):
        array[selection] = empty
    array.oindex[[]] = empty
    array.vindex[none] = empty
    array.set_coordinate_selection(([],), empty)
    array.write_many([slice(0, 0), slice(3, 3)], [empty, empty])
    array.write(slice(1, 1), empty, fill_masked=True)
    assert array.append(empty) == (4,)
    assert array[...].tolist() == before
    for selection in (slice(0, 3), 0, slice(None)):
        with pytest.raises(gzarr.ArgumentError, match=r"a value of shape \(0,\) does not broadcast to"):
            array[selection] = empty
    new = made(data=empty, dtype=dtype)
    assert new.shape == (0,)
    assert new.dtype == array.dtype


def test_empty_values_broadcast() -> None:
    array = made(shape=(3, 4), dtype="U2")
    array[1:1] = np.zeros((0, 1))
    array[:, 2:2] = [[], [], []]
    array[:, 2:2] = []
    with pytest.raises(gzarr.ArgumentError, match="does not broadcast"):
        array[:, 2:2] = np.zeros((2, 0))
