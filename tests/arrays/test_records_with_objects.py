"""Records of which fields are Python objects: zarr-python 2 pickles them, as NWB-Zarr does columns with references."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import numpy as np
import pytest

import gzarr

COLUMN = np.dtype([("idx", "<i4"), ("count", "<i4"), ("ref", "O")])
NESTED = np.dtype([("x", "<i2"), ("in", [("y", ">f8"), ("o", "O")]), ("pair", "O", (2,))])


class RunsCode:
    """An object whose pickle calls a function."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle in a document was loaded",)


def columns(n: int) -> Any:
    result = np.empty(n, COLUMN)
    for i in range(n):
        result[i] = (i, 2 * i, {"path": f"/p{i}", "at": [i]})
    return result


def nested(shape: tuple[int, ...]) -> Any:
    result = np.empty(shape, NESTED)
    for i, index in enumerate(np.ndindex(shape)):
        result[index] = (i, (i + 0.5, [i]), ("a", i))
    return result


def stored(chunks: dict[str, Any], dtype: Any, shape: list[int], **members: Any) -> dict[str, bytes]:
    """Return an array as zarr-python 2.18 stores it, with chunks of 2."""
    document = {
        "zarr_format": 2, "shape": shape, "chunks": [2] * len(shape), "dtype": dtype, "compressor": None,
        "fill_value": None, "order": "C", "filters": [{"id": "pickle", "protocol": 5}],
    }  # fmt: skip
    document.update(members)
    store = {key: pickle.dumps(chunk, protocol=5) for key, chunk in chunks.items()}
    return {".zarray": json.dumps(document).encode(), **store}


def a_column(**members: Any) -> dict[str, bytes]:
    rows = columns(4)
    return stored({"0": rows[:2], "1": rows[2:]}, [["idx", "<i4"], ["count", "<i4"], ["ref", "|O"]], [5], **members)


def opened(store: dict[str, bytes], **arguments: Any) -> gzarr.Array:
    return gzarr.open_array(store, device="cpu", allow_pickle=True, **arguments)


def test_elements() -> None:
    """The last chunk is absent: zeros and None, as zarr-python 2.18 reads it."""
    array = opened(a_column())
    expected = [*columns(4).tolist(), (0, 0, None)]
    assert array.dtype == COLUMN
    assert array[...].dtype == COLUMN
    assert array[...].tolist() == expected
    assert array[1:4].tolist() == expected[1:4]
    assert array[::-2].tolist() == expected[::-2]
    assert array[3].tolist() == expected[3]
    assert array.oindex[[4, 0]].tolist() == [expected[4], expected[0]]
    assert array.vindex[[2, 4]].tolist() == [expected[2], expected[4]]
    assert array.view[1:][1:3].tolist() == expected[2:4]
    assert array["idx"].tolist() == [0, 1, 2, 3, 0]
    assert array["ref", 3:].tolist() == [expected[3][2], None]
    out = np.empty(2, COLUMN)
    array.read(slice(1, 3), out=out)
    assert out.tolist() == expected[1:3]


@pytest.mark.parametrize("order", ["C", "F"])
def test_nested_records_and_arrays_of_objects(order: str) -> None:
    """A pickle has its own byte order and order of elements."""
    values = nested((2, 3))
    whole = np.zeros((2, 4), NESTED)
    whole[:, :3] = values
    chunks = {f"0.{i}": np.asarray(whole[:, 2 * i : 2 * i + 2], order=order) for i in range(2)}  # type: ignore[call-overload]
    dtype = [["x", "<i2"], ["in", [["y", ">f8"], ["o", "|O"]]], ["pair", "|O", [2]]]
    array = opened(stored(chunks, dtype, [2, 5], order=order))
    assert array.dtype == NESTED.newbyteorder("=")
    found = array[:, :3]
    assert found["x"].tolist() == values["x"].tolist()
    assert found["in"].tolist() == values["in"].tolist()
    assert found["pair"].tolist() == values["pair"].tolist()
    assert array[1, 2]["in"].tolist() == (5.5, [5])
    absent = array[0, 4]
    assert (absent["x"], absent["in"].tolist(), absent["pair"].tolist()) == (0, (0, None), [None, None])


def test_an_element_without_dimensions() -> None:
    one = np.empty((), COLUMN)
    one[()] = (1, 2, "x")
    array = opened(stored({"0": one}, [["idx", "<i4"], ["count", "<i4"], ["ref", "|O"]], []))
    assert array[...].tolist() == (1, 2, "x")


def test_trees_with_such_columns() -> None:
    store: dict[str, bytes] = {}
    gzarr.create_group(store, zarr_format=2)
    gzarr.create_array(store, path="table/n", data=np.arange(4), zarr_format=2)
    store |= {f"table/c/{key}": value for key, value in a_column().items()}
    group = gzarr.open_group(store, device="cpu", allow_pickle=True)
    assert [path for path, _ in group.members(max_depth=None)] == ["table", "table/c", "table/n"]
    # Like other pickles.
    group = gzarr.open_group(store, device="cpu")
    assert "allow_pickle=True" in str(group.tree())
    assert group["table/n"][...].tolist() == [0, 1, 2, 3]
    with pytest.raises(gzarr.UnsupportedError, match="allow_pickle=True"):
        group["table/c"]

    copied: dict[str, bytes] = {}
    gzarr.copy(store, copied, device="cpu", allow_pickle=True, read_back=True)
    assert gzarr.open_array(copied, path="table/c", allow_pickle=True)[...].tolist() == opened(a_column())[...].tolist()
    assert {key: value for key, value in copied.items() if key.startswith("table/c/") and ".z" not in key} == {
        f"table/c/{n}": store[f"table/c/{n}"] for n in range(2)
    }
    for arguments in ({"chunks": 3}, {"zarr_format": 3}):
        with pytest.raises(gzarr.ArgumentError, match=r"'/table/c' cannot be copied.*objects"):
            gzarr.copy(store, {}, device="cpu", allow_pickle=True, path="table/c", **arguments)


@pytest.mark.parametrize("protocol", range(6))
def test_zero_as_fill_value(protocol: int) -> None:
    """It is zarr-python's default, pickled like the chunks; all fields are 0 then."""
    fill_value = base64.b64encode(pickle.dumps(0, protocol)).decode()
    store = a_column(fill_value=fill_value)
    assert opened(store)[4].tolist() == (0, 0, 0)
    assert opened(a_column(fill_value=0))[4].tolist() == (0, 0, 0)
    copied: dict[str, bytes] = {}
    gzarr.copy(store, copied, device="cpu", allow_pickle=True)
    assert json.loads(copied[".zarray"])["fill_value"] == fill_value
    assert opened(copied)[4].tolist() == (0, 0, 0)


@pytest.mark.parametrize("value", [1, None, RunsCode()], ids=["1", "None", "code"])
def test_other_pickles_in_documents_are_not_loaded(value: Any) -> None:
    store = a_column(fill_value=base64.b64encode(pickle.dumps(value)).decode())
    with pytest.raises(gzarr.MetadataError, match="expected null or a pickled 0") as caught:
        opened(store)
    assert caught.value.json_path == "$.fill_value"


@pytest.mark.parametrize(
    "filters",
    [None, [{"id": "json2"}], [{"id": "msgpack2"}], [{"id": "vlen-utf8"}], [{"id": "vlen-array", "dtype": "<i4"}]],
    ids=str,
)
def test_objects_without_pickle(filters: Any) -> None:
    """zarr-python cannot read them either."""
    with pytest.raises(gzarr.MetadataError, match="objects"):
        opened(a_column(filters=filters))


def test_pickles_of_another_type() -> None:
    other = np.zeros(2, [("idx", "<i4"), ("count", "<i8"), ("ref", "O")])
    store = a_column()
    for wrong in (other, np.zeros(2), np.array(["a", "b"], object), columns(3)):
        store["0"] = pickle.dumps(wrong)
        with pytest.raises(gzarr.ChunkDecodeError, match="expected"):
            opened(store)[...]


def test_they_are_not_written() -> None:
    store = a_column()
    array = opened(store, mode="r+")
    before = dict(store)
    values = columns(5)
    changes: list[Any] = [
        lambda: array.write(..., values),
        lambda: array.write_many([0], [values[0]]),
        lambda: array.set_basic_selection(0, 5, fields="idx"),
        lambda: array.append(values),
        lambda: array.resize(3),
    ]
    for change in changes:
        with pytest.raises(gzarr.ArgumentError, match="/: records with objects are read, but not written"):
            change()
    with pytest.raises(gzarr.ArgumentError, match="Python objects"):
        gzarr.create_array({}, shape=2, dtype=COLUMN, zarr_format=2, filters=[{"id": "pickle"}])
    assert store == before
    array.attrs["unit"] = "s"
    assert opened(store).attrs["unit"] == "s"
    with pytest.raises(gzarr.ReadOnlyError):
        opened(store)[0] = values[0]
