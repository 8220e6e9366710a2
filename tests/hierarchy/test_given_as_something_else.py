"""Arguments that could be taken for something else than was meant: nothing is erased, and nothing gets another name."""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

#: More digits than Python prints.
HUGE = 10**5000
MASK = np.array([True, False])
NO_SHAPES: list[Any] = [{0: 20, 1: 30}, {12, 3}, b"12", bytearray(b"12"), "12", "", {}, (True, 12), (np.True_, 12), 1.5]


class Variable(str, enum.Enum):  # noqa: UP042 — StrEnum prints its values
    """Names as programs keep them."""

    t2m = "temperature"


def array(**options: Any) -> Any:
    given: dict[str, Any] = {"shape": (12, 12), "dtype": "i4", "chunks": (4, 4), "device": "cpu", **options}
    result = gzarr.create_array({}, **given)
    result[...] = 7
    return result


@pytest.mark.parametrize("shape", NO_SHAPES, ids=repr)
def test_what_is_no_shape_erases_nothing(shape: Any) -> None:
    a = array()
    before = {key: bytes(a.store.get(key)) for key in a.store.list()}
    calls: list[Callable[[], Any]] = [lambda: a.resize(shape), lambda: gzarr.create_array({}, shape=shape, dtype="i4")]
    for call in calls:
        with pytest.raises(gzarr.ArgumentError, match="shape must be a tuple of integers"):
            call()
    assert a.shape == (12, 12)
    assert {key: bytes(a.store.get(key)) for key in a.store.list()} == before


@pytest.mark.parametrize("shape", [(2, 3), [2, 3], np.array([2, 3]), (np.uint8(2), 3), range(2, 4)], ids=repr)
def test_shapes(shape: Any) -> None:
    assert gzarr.create_array({}, shape=shape, dtype="i4").shape == np.empty(tuple(shape)).shape
    assert gzarr.create_array({}, shape=iter(shape), dtype="i4").shape == (2, 3)


def test_windows_are_not_of_keys_and_bytes() -> None:
    a = array()
    for wrong in ({1: 0, 2: 0}, {1, 2}, b"\1\2", (True, 1), "12"):
        with pytest.raises(gzarr.SelectionError, match="step must be 2 integers"):
            a.read_windows([(0, 0)], (2, 2), step=wrong)
        with pytest.raises(gzarr.SelectionError, match="shape must be 2 integers"):
            a.read_windows([(0, 0)], wrong)


def test_many_are_listed() -> None:
    a = gzarr.create_array({}, data=np.zeros(3, "i4"), device="cpu")
    for wrong in (b"x", {1: 2}, {3}, "x"):
        with pytest.raises(gzarr.ArgumentError, match="values must be a sequence"):
            a.write_many([0], wrong)  # type: ignore[arg-type]
    for selections in ({1: 2}, {1}, b"\1"):
        with pytest.raises(gzarr.ArgumentError, match="takes a sequence of selections"):
            a.read_many(selections)  # type: ignore[arg-type]
    assert a[:].tolist() == [0, 0, 0]
    # Their keys and values have an order.
    new = {(2,): 5, (0,): 3}
    a.write_many(new.keys(), new.values())  # type: ignore[arg-type]
    assert [int(value) for value in a.read_many(new.keys())] == [5, 3]  # type: ignore[arg-type]
    with pytest.raises(gzarr.ArgumentError, match="axis must be an integer from -1 to 0, not True"):
        a.append([1], axis=True)


@pytest.mark.parametrize(
    "names", [{"x", "y"}, frozenset("xy"), b"xy", np.array("x")], ids=["set", "frozen", "b", "0-d"]
)
def test_names_of_dimensions_in_no_order(names: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="dimension_names must be 2 strings"):
        array(dimension_names=names)


def test_members_of_enumerations_are_their_values() -> None:
    ours: dict[str, Any] = {}
    group = gzarr.create_group(ours, attributes={Variable.t2m: Variable.t2m})
    group[Variable.t2m] = np.arange(3)
    theirs: Any = zarr.open_group(zarr.storage.MemoryStore(), mode="w")
    theirs.create_array(Variable.t2m, shape=(3,), dtype="i4")
    assert list(group) == list(theirs) == ["temperature"]
    assert group[Variable.t2m][:].tolist() == [0, 1, 2]
    assert Variable.t2m in group
    assert dict(group.attrs) == json.loads(ours["zarr.json"])["attributes"] == {"temperature": "temperature"}
    made = array(dimension_names=[Variable.t2m, None])
    assert repr(made.dimension_names) == "('temperature', None)"
    assert type(gzarr.create_group({}, path=np.str_("a")).path) is str


@pytest.mark.parametrize(
    "given",
    [
        {"seperator": "."},
        {"name": "v2", "seperator": "/"},
        {"name": "default", "configuration": {"seperator": "."}},
        {1: 2},
        {"separator": MASK},
        {"name": MASK},
    ],
    ids=repr,
)
def test_misspelled_keys_of_an_encoding(given: Any) -> None:
    store: dict[str, Any] = {}
    expected = "did you mean 'separator'" if "seperator" in str(given) else "chunk_key_encoding"
    with pytest.raises(gzarr.ArgumentError, match=expected):
        gzarr.create_array(store, shape=2, dtype="i4", chunk_key_encoding=given)
    assert not store


def test_misspelled_arguments() -> None:
    store: dict[str, Any] = {}
    gzarr.create_array(store, shape=6, dtype="f4", path="t")
    options: Any
    for call, options, meant in (
        (gzarr.open_array, {"mod": "r+"}, "mode"),
        (gzarr.open, {"storage_option": {}}, "storage_options"),
        (gzarr.open_array, {"mode": "a", "codecz": 7}, "codecs"),
        (gzarr.require_array, {"shape": 6, "chunkz": 3}, "chunks"),
    ):
        with pytest.raises(gzarr.ArgumentError, match=f"there is no argument '.*; did you mean '{meant}'"):
            call(store, path="t", **options)
    group, options = gzarr.open_group(store, mode="r+"), {"chunkz": 3}
    with pytest.raises(gzarr.ArgumentError, match=r"no argument 'chunkz'.*; did you mean 'chunks'"):
        group.require_array("t", shape=6, **options)
    for function in (gzarr.require_group, gzarr.group, gzarr.open_consolidated):
        options = {"chunks": 3}
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected keyword argument 'chunks'$"):
            function(store, **options)


@pytest.mark.parametrize("wrong", [MASK, ["r"], HUGE, {}], ids=["array", "list", "huge", "dict"])
def test_choices(wrong: Any) -> None:
    a = array()
    calls: dict[str, Callable[[], Any]] = {
        "missing": lambda: a.read(0, missing=wrong),
        "verify": lambda: a.read(0, verify=wrong),
        "decode": lambda: a.read(0, decode=wrong),
        "mode": lambda: gzarr.open_array(a.store, mode=wrong),
        "order": lambda: array(order=wrong),
        "overwrite": lambda: array(overwrite=wrong),
        "device": lambda: gzarr.open_array(a.store, device=wrong),
        "zarr_format": lambda: gzarr.open_array(a.store, zarr_format=wrong),
    }
    for name, call in calls.items():
        with pytest.raises(gzarr.ArgumentError, match=f"^{name} must be "):
            call()


@pytest.mark.parametrize("kind", ["functions", "array", "group"])
def test_numbers_that_python_does_not_print(kind: str) -> None:
    """An error that names its argument must not fail at printing it."""
    group = gzarr.create_group({})
    a = group.create_array("t", data=np.zeros((4, 4)), chunks=(2, 2))
    needed: dict[str, Any] = {"shape": (4, 4), "dtype": "f8", "value": 1.0, "values": [1.0], "selection": 0, "axis": 0}
    needed |= {"selections": [0], "starts": [(0, 0)], "name": "new", "source": "t", "dest": "u", "level": 0, "mask": 0}
    needed |= {"attributes": {}, "new_name": "newer", "coords": [(0, 0)]}
    functions: list[Any] = {
        "functions": [gzarr.create_array, gzarr.create_group, gzarr.open, gzarr.open_array, gzarr.open_group],
        "array": [a.read, a.read_windows, a.write, a.write_many, a.append, a.resize, a.get_basic_selection],
        "group": [group.create_array, group.require_array, group.walk, group.members, group.move, group.tree],
    }[kind]
    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        given = {
            p.name: needed.get(p.name, "new") for p in parameters if p.default is p.empty and p.kind < p.VAR_KEYWORD
        }
        for p in parameters:
            for value in (HUGE, [HUGE], {"x": HUGE}):
                if p.kind != p.VAR_KEYWORD and p.name != "store":
                    options = {**given, p.name: value, **({"store": {}} if "store" in given else {})}
                    with contextlib.suppress(gzarr.GzarrError):
                        function(**options)


def test_what_is_iterated_over_once() -> None:
    for zarr_format in (3, "3-draft-2022"):
        for name in ("codecs", "compressors"):
            made = gzarr.create_array({}, shape=4, dtype="i4", zarr_format=zarr_format, **{name: iter(["blosc"])})  # type: ignore[arg-type]
            like = gzarr.create_array({}, shape=4, dtype="i4", zarr_format=zarr_format, **{name: ["blosc"]})  # type: ignore[arg-type]
            assert made.codecs == like.codecs
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(gzarr.ArgumentError, match="expected a length"):
        array(shape=4, chunks=itself)
