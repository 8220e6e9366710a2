"""Objects for writing: what the array's codec would change, or could not read back, is refused before it is written."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import numcodecs
import numpy as np
import pytest

import gzarr

ROWS: dict[str, Any] = {"id": "vlen-array", "dtype": "<i4"}
CATEGORIES: dict[str, Any] = {"id": "categorize", "labels": ["a", "b"], "dtype": "|O", "astype": "|u1"}
MSGPACK: dict[str, Any] = {"id": "msgpack2"}
JSON: dict[str, Any] = {"id": "json2"}
MASKED = np.ma.masked_array([1, 2], [True, False])


def made(codec: dict[str, Any], store: dict[str, bytes] | None = None, **arguments: Any) -> gzarr.Array:
    options: dict[str, Any] = {"shape": (2,), "dtype": object, "zarr_format": 2, "device": "cpu", **arguments}
    return gzarr.create_array({} if store is None else store, filters=[codec], **options)


def objects(*items: Any) -> Any:
    result = np.empty(len(items), object)
    for i, item in enumerate(items):
        result[i] = item
    return result


def written(codec: dict[str, Any], *items: Any, **arguments: Any) -> list[Any]:
    array = made(codec, shape=(len(items),), **arguments)
    array[...] = objects(*items)
    found: list[Any] = array[...].tolist()
    return found


def nested(depth: int) -> list[Any]:
    result: list[Any] = []
    for _ in range(depth):
        result = [result]
    return result


@pytest.mark.parametrize(
    ("codec", "item", "message"),
    [
        (ROWS, np.array([1.5, 3e10]), r"/: element \(1,\): .*1\.5\)? cannot be stored as int32"),
        (ROWS, [1, 2**40], "cannot be stored as int32"),
        (ROWS, 1.5, "cannot be stored as int32"),
        ({**ROWS, "dtype": "|u1"}, np.array([300, -1]), "300.* cannot be stored as uint8"),
        ({**ROWS, "dtype": "<f4"}, np.array([1e300]), "out of the range of float32"),
        ({**ROWS, "dtype": ">i2"}, np.array([2**20]), "cannot be stored as int16"),
        (ROWS, None, "None is not an array of int32; use an empty list"),
        (ROWS, "5", "are not elements of int32"),
        (ROWS, np.zeros((2, 2), "i4"), "the codec holds one dimension"),
        (ROWS, MASKED, "masked"),
        (CATEGORIES, "typo", r"'typo' cannot be stored: it is not one of the labels .*\['a', 'b'\]"),
        (CATEGORIES, None, "None cannot be stored"),
        (CATEGORIES, ["a"], r"\['a'\] cannot be stored"),
        (CATEGORIES, 0.0, "0.0 cannot be stored"),
        (MSGPACK, {1: "x"}, r"\{1: 'x'\} cannot be stored: keys are strings or bytes, not 1"),
        (MSGPACK, [{"a": {None: 1}}], "keys are strings or bytes, not None"),
        (MSGPACK, 2**64, "integers of 64 bits"),
        (MSGPACK, "\ud800", "unpaired surrogate"),
        (MSGPACK, {1, 2}, "msgpack has no set"),
        (MSGPACK, np.datetime64("2020"), "msgpack has no datetime64"),
        (MSGPACK, MASKED, "masked"),
        (MSGPACK, nested(200), "nested more than 127 deep"),
        ({**MSGPACK, "raw": True}, "a", "raw=True, the codec reads text as bytes"),
        ({**MSGPACK, "raw": True}, {"a": 1}, "raw=True"),
        ({**MSGPACK, "use_bin_type": False}, b"a", "use_bin_type=False, the codec reads bytes as text"),
        ({**MSGPACK, "use_single_float": True}, 1e300, "out of the range of use_single_float"),
        ({**JSON, "ensure_ascii": False}, ["\ud800"], "utf-8 cannot encode"),
        ({**JSON, "ensure_ascii": False, "encoding": "ascii"}, "é", "ascii cannot encode 'é'"),
        (JSON, {1, 2}, "a set is not JSON"),
        (JSON, b"a", "a bytes is not JSON"),
        (JSON, [{"a": {None: 1}}], "names are strings, not None"),
        (JSON, nested(200), "nested more than 127 deep"),
        (JSON, [10**5000], "too large"),
        (JSON, MASKED, "masked"),
        ({**JSON, "allow_nan": False}, [np.nan], r"/: .*\[nan\] cannot be stored: .*allow_nan=False"),
    ],
)
def test_what_a_codec_would_change_is_refused(codec: dict[str, Any], item: Any, message: str) -> None:
    """Also within a selection of several elements, of one, and when an array is created; nothing is written."""
    good: Any = {"vlen-array": [1], "categorize": "a"}.get(codec["id"])
    store: dict[str, bytes] = {}
    array = made(codec, store)
    before = dict(store)
    with pytest.raises(gzarr.ArgumentError, match=message):
        array[...] = objects(good, item)
    with pytest.raises(gzarr.ArgumentError):
        array.oindex[[1]] = objects(item)
    with pytest.raises(gzarr.ArgumentError):
        array.write_many([0, slice(1, 2)], [good, objects(item)])
    with pytest.raises(gzarr.ArgumentError):
        array.append(objects(item))
    assert store == before
    with pytest.raises(gzarr.ArgumentError):
        made(codec, store, data=objects(good, item), overwrite=True)
    assert store == before


@pytest.mark.parametrize("labels", [["a", "b"], ["abcd", "b"]])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_categories_of_texts_of_one_length(labels: list[str], zarr_format: Any) -> None:
    codec: dict[str, Any] = {"labels": labels, "dtype": "<U3", "astype": "|u1"}
    arguments: dict[str, Any] = {"filters": [{"id": "categorize", **codec}]}
    if zarr_format == 3:
        little = {"name": "bytes", "configuration": {"endian": "little"}}
        arguments = {"codecs": [little, {"name": "numcodecs.categorize", "configuration": codec}]}
    store: dict[str, bytes] = {}
    array = gzarr.create_array(store, shape=(2,), dtype="U3", zarr_format=zarr_format, device="cpu", **arguments)
    before = dict(store)
    for value in (["b", "abc"], np.array(["b", "abc"]), "abc", objects("b", "abc")):
        with pytest.raises(gzarr.ArgumentError, match="'abc' cannot be stored: it is not one of the labels"):
            array[...] = value
    assert store == before
    array[...] = ["b", ""]
    assert array[...].tolist() == ["b", ""]


@pytest.mark.parametrize(
    ("codec", "item", "expected"),
    [
        (ROWS, [1, 2], [1, 2]),
        (ROWS, (), []),
        (ROWS, 5, [5]),
        (ROWS, np.array([1.0, 2.0]), [1, 2]),
        (ROWS, np.array([1, 2], ">i8"), [1, 2]),
        ({**ROWS, "dtype": ">f4"}, [0.5], [0.5]),
        (CATEGORIES, np.str_("b"), "b"),
        (CATEGORIES, "", ""),
        (MSGPACK, (1, (2,)), [1, [2]]),
        (MSGPACK, {"a": b"b", b"c": bytearray(b"d")}, {"a": b"b", b"c": b"d"}),
        (MSGPACK, np.array([[1, 2]]), [[1, 2]]),
        (MSGPACK, [np.float32(0.5), np.bool_(True), np.bytes_(b"x")], [0.5, True, b"x"]),
        (MSGPACK, [2**64 - 1, -(2**63), None, True], [2**64 - 1, -(2**63), None, True]),
        (MSGPACK, msgpack.ExtType(5, b"a"), msgpack.ExtType(5, b"a")),
        ({**MSGPACK, "raw": True}, {b"k": b"\xff"}, {b"k": b"\xff"}),
        ({**MSGPACK, "use_bin_type": False}, {"k": "é"}, {"k": "é"}),
        ({**MSGPACK, "use_single_float": True}, [np.inf, 0.5], [np.inf, 0.5]),
        (JSON, "\ud800", "\ud800"),
        (JSON, np.inf, np.inf),
        (JSON, np.array([[1.5, -np.inf]]), [[1.5, -np.inf]]),
        (JSON, {"a": (1, np.float32(0.5))}, {"a": [1, 0.5]}),
        ({**JSON, "ensure_ascii": False}, ["é"], ["é"]),
    ],
)
def test_what_a_codec_holds(codec: dict[str, Any], item: Any, expected: Any) -> None:
    found = written(codec, item, item)
    if codec["id"] == "vlen-array":
        assert {row.dtype for row in found} == {np.dtype(codec["dtype"])}
        found = [row.tolist() for row in found]
    assert found == [expected, expected]
    assert type(found[0]) is type(expected)


@pytest.mark.parametrize("fill_value", [None, 0])
def test_what_nobody_has_written_can_be_written_again(fill_value: Any) -> None:
    for codec, item in ((ROWS, [1]), (CATEGORIES, "a"), (MSGPACK, "a")):
        store: dict[str, bytes] = {}
        array = made(codec, store, shape=(4,), chunks=2, fill_value=fill_value)
        # Where nothing says what absent chunks are, those that are written are stored.
        empty = ["0", "1"] if fill_value is None else []
        array[...] = array[...]
        assert sorted(store) == [".zarray", *empty]
        array[0] = item
        array[...] = array[...]
        assert sorted(store) == [".zarray", *(empty or ["0"])]


def test_a_list_without_elements_as_fill_value() -> None:
    store: dict[str, bytes] = {}
    array = made(ROWS, store, fill_value=[])
    array[...] = [[], []]
    assert list(store) == [".zarray"]
    array[...] = objects([np.array([1])[0]], [])
    assert [row.tolist() for row in array[...]] == [[1], []]


class Exported:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class TestOneElement:
    """As in NumPy, an array that is assigned to one element of an array of objects is that element."""

    @pytest.mark.parametrize("row", [np.array([1, 2, 3]), np.array([7]), np.array([], "i2"), np.arange(6, dtype=">i8")])
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_rows(self, row: Any, wrapped: bool) -> None:
        value = Exported(row) if wrapped else row
        array = made(ROWS, shape=(6,), chunks=2)
        array[0] = value
        array.oindex[1] = value
        array.set_basic_selection(2, value)
        array.write(3, value)
        array.write_many([4, -1], [value, value])
        assert [found.tolist() for found in array[...]] == [row.tolist()] * 6
        assert array[0].dtype == np.int32

    def test_without_dimensions(self) -> None:
        array = made(ROWS, shape=())
        array[()] = np.array([1, 2])
        assert array[()].tolist() == [1, 2]
        array[...] = np.array([3])
        assert array[()].tolist() == [3]

    def test_other_codecs(self) -> None:
        for codec in (JSON, MSGPACK):
            array = made(codec)
            array[0] = np.array([[1, 2], [3, 4]])
            array[1] = np.array(["a"])
            assert array[...].tolist() == [[[1, 2], [3, 4]], ["a"]]

    def test_arrays_of_objects_hold_elements(self) -> None:
        array = made(ROWS)
        array[0] = objects(np.array([1, 2]))
        assert array[0].tolist() == [1, 2]
        with pytest.raises(gzarr.ArgumentError, match="does not broadcast"):
            array[0] = objects([1], [2])

    def test_strings_are_elements_themselves(self) -> None:
        array = made(CATEGORIES)
        array[0] = np.array(["b"])
        array[1] = ["a"]
        assert array[...].tolist() == ["b", "a"]

    def test_masked_rows(self) -> None:
        with pytest.raises(gzarr.ArgumentError, match="masked"):
            made(ROWS)[0] = MASKED


@pytest.mark.parametrize("element", [[7], [1, 2], "x", {"a": 1}], ids=str)
def test_an_array_of_messages_without_dimensions(element: Any) -> None:
    """The codec of numcodecs takes the element of such an array for its list of elements."""
    array = gzarr.create_array({}, shape=(), dtype=object, zarr_format=2, filters=[numcodecs.MsgPack()])
    value = np.empty((), object)
    value[()] = element
    array[...] = value
    assert array[...] == element


def test_rows_of_several_kinds_are_converted_each_as_it_is() -> None:
    """Those of one kind are converted together."""
    rows = [
        np.arange(3), [1, 2], [2.0, 4.0], np.array([7], "u1"), [], np.arange(4, 8), (1, 2.0), np.array(9), [2**53 + 1],
        [0.5, 1.5], [np.float32(2.5)], np.array([1.0, 3.0]),
    ]  # fmt: skip
    array = gzarr.create_array({}, shape=len(rows), dtype=object, zarr_format=2, filters=[numcodecs.VLenArray("<i8")])
    fits = [i for i in range(len(rows)) if i not in (9, 10)]
    for i in fits:
        array[i : i + 1] = [rows[i]]
    each = array[...]
    for i in fits:
        np.testing.assert_array_equal(each[i], np.asarray(rows[i]).reshape(-1).astype("i8"))
        assert each[i].dtype == "<i8"
    together = np.fromiter([rows[i] for i in fits], object, len(fits))
    array[: len(fits)] = together
    for found, i in zip(array[: len(fits)], fits, strict=True):
        np.testing.assert_array_equal(found, each[i])
    for i, at in ((9, "(9,)"), (10, "(10,)")):
        given = np.fromiter([row if n in (*fits, i) else [] for n, row in enumerate(rows)], object, len(rows))
        with pytest.raises(gzarr.ArgumentError, match=rf"element \{at[:-1]}\)"):
            array[...] = given


@pytest.mark.parametrize("dtype", ["<i8", "<u8"])
def test_lists_of_the_same_kind_are_no_rows_yet(dtype: str) -> None:
    """The codec would convert them without a check."""
    wrong = {"<i8": [2**63], "<u8": [-1]}[dtype]
    array = gzarr.create_array({}, shape=2, dtype=object, zarr_format=2, filters=[numcodecs.VLenArray(dtype)])
    with pytest.raises(gzarr.ArgumentError, match=r"element \(1,\)"):
        array[...] = np.fromiter([[1, 2], wrong], object, 2)
    array[...] = np.fromiter([[1, 2], [3]], object, 2)
    assert [row.tolist() for row in array[...]] == [[1, 2], [3]]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5, True, None, "x"], [np.float64(0.5)] * 3, [np.int8(-3), np.int8(4)], [np.uint64(2**64 - 1)],
        {"a": 1, "b": [2.5, "y"], "c": {"d": None}}, [[1, 2], [3]], ["ä", "b"], {"ä": "b"}, [b"x", "y"],
    ],
    ids=str,
)  # fmt: skip
def test_what_msgpack_takes_at_once(values: Any) -> None:
    array = gzarr.create_array({}, shape=2, dtype=object, zarr_format=2, filters=[numcodecs.MsgPack()])
    array[...] = np.fromiter([values, "other"], object, 2)
    assert array[0] == values
    assert repr(array[0]) == repr(values).replace("np.float64(0.5)", "0.5").replace("np.int8(-3)", "-3").replace(
        "np.int8(4)", "4"
    ).replace(f"np.uint64({2**64 - 1})", str(2**64 - 1))


@pytest.mark.parametrize("values", [[1, 2**64], [-(2**63) - 1], [1.0, 1e300], {"a": 2**64}], ids=str)
def test_numbers_out_of_range_among_many(values: Any) -> None:
    codec = numcodecs.MsgPack(use_single_float=True)
    array = gzarr.create_array({}, shape=1, dtype=object, zarr_format=2, filters=[codec])
    with pytest.raises(gzarr.ArgumentError, match=r"64 bits|out of the range"):
        array[...] = np.fromiter([values], object, 1)


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=str)
def test_nan_among_objects_is_copied(codec: dict[str, Any]) -> None:
    """JSON has none, but numcodecs writes and reads it; these are elements, not documents that others read."""
    store: dict[str, bytes] = {}
    array = made(codec, store, shape=(3,), chunks=2, compressors=None)
    # As another program wrote it.
    store["0"] = bytes(numcodecs.get_codec(codec).encode(objects(np.nan, {"a": [np.inf]})))
    array[2] = np.nan
    copied = gzarr.copy(store, {}, chunks=3, device="cpu", read_back=True)
    assert repr(copied[...].tolist()) == "[nan, {'a': [inf]}, nan]"


@pytest.mark.parametrize("codec", [{**JSON, "allow_nan": False}, MSGPACK], ids=str)
def test_messages_name_the_element(codec: dict[str, Any]) -> None:
    wrong = objects("a", "b", "c", {"x": [2**70, np.nan] if codec is MSGPACK else np.nan}).reshape(2, 2)
    array = gzarr.create_array({}, path="x/y", shape=(2, 2), dtype=object, zarr_format=2, filters=[codec])
    with pytest.raises(gzarr.ArgumentError, match=r"/x/y: element \(1, 1\): \{'x': .*\} cannot be stored"):
        array[...] = wrong


@pytest.mark.parametrize("dtype", ["<M8[ms]", ">M8[D]", "<m8[s]", ">m8[10us]"])
def test_rows_of_dates_and_durations(dtype: str) -> None:
    """numcodecs, before version 0.16, stored their integers."""
    store: dict[str, bytes] = {}
    array = made({"id": "vlen-array", "dtype": dtype}, store, shape=(3,), chunks=2, compressors=None)
    numbers = [[1, -(2**63)], [], [5, 6, 7]]
    array[...] = np.fromiter([np.array(row, "i8").view(np.dtype(dtype).newbyteorder("=")) for row in numbers], object)
    data = [np.array(row, f"{dtype[0]}i8").tobytes() for row in numbers]
    items = [len(row).to_bytes(4, "little") + row for row in data]
    assert bytes(store["0"]) == (2).to_bytes(4, "little") + items[0] + items[1]
    assert bytes(store["1"])[: 4 + len(items[2])] == (2).to_bytes(4, "little") + items[2]
    array[0] = array[0]
    found = gzarr.copy(store, {}, chunks=3, device="cpu", read_back=True)[...]
    assert [row.dtype for row in found] == [np.dtype(dtype)] * 3
    assert [row.view(f"{dtype[0]}i8").tolist() for row in found] == numbers


def test_dates_of_another_type() -> None:
    array = made({"id": "vlen-array", "dtype": "<M8[D]"})
    array[0] = [np.datetime64("2020-01-01")]
    array[1] = np.array(["2020-01-02T00"], "M8[h]")
    assert [row.astype(str).tolist() for row in array[...]] == [["2020-01-01"], ["2020-01-02"]]
    with pytest.raises(gzarr.ArgumentError, match=r"cannot be stored as datetime64\[D\]"):
        array[1] = np.array(["2020-01-02T01"], "M8[h]")


@pytest.mark.parametrize(
    ("codec", "fill", "items"),
    [
        (JSON, 0.0, [-0.0, 0.0]),
        (JSON, 0, [0.0, False]),
        (JSON, [1], [[True], [1.0], [1]]),
        (JSON, {"a": 1}, [{"a": True}, {"a": 1.0}, {"a": 1}]),
        (JSON, {"a": [0.0]}, [{"a": [-0.0]}]),
        (MSGPACK, {"a": 1, "b": 2}, [{"b": 2, "a": 1}]),
        (ROWS, 0.0, [-0.0, 0.0]),
    ],
)
def test_what_is_only_equal_to_the_fill_value_is_stored(codec: Any, fill: Any, items: list[Any]) -> None:
    for item in items:
        store: dict[str, bytes] = {}
        array = made(codec, store, chunks=(1,))
        store[".zarray"] = json.dumps({**json.loads(bytes(store[".zarray"])), "fill_value": fill}).encode()
        array = gzarr.open_array(store, mode="r+", device="cpu")
        array[:] = objects(item, item)
        is_same = repr(item) == repr(fill)
        assert array.nchunks_initialized == (0 if is_same else 2), item
        expected = item if codec is not ROWS or is_same else np.array([0], "i4")
        assert [repr(found) for found in array[...].tolist()] == [repr(expected)] * 2


def test_what_is_only_equal_to_the_fill_value_is_cleared() -> None:
    store: dict[str, bytes] = {}
    array = made(JSON, store, chunks=(2,), fill_value=0.0)
    array[...] = objects(1.5, -0.0)
    array.resize((1,), erase=False)
    grown = gzarr.open_array(store, mode="r+", device="cpu")
    grown.resize((2,))
    assert repr(grown[...].tolist()) == "[1.5, 0.0]"
