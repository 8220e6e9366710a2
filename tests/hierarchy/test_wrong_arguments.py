"""Whatever is given as an argument of a function or a method, it works or is an error that says what it may be."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES: list[Any] = [
    *(0, 5, -1, 10**30, 1.5, float("nan"), 1j, True, None, "a", "", "\0", b"x", object(), len),
    *((), (1,), (1, 2, 3, 4, 5), [None], [[1, 2], [3]], range(4), {}, {"x": 1}, {1: 2}, {"x": object()}),
    # Of more than one element, NumPy itself says that they are neither true nor false.
    *(np.array(2.5), np.array("a")),
]
#: What a parameter is given while another one is wrong.
RIGHT: dict[str, Any] = {
    "shape": (4, 4),
    "dtype": "f4",
    "chunks": (2, 2),
    "fill_value": 1,
    "data": np.ones((4, 4)),
    "selection": (0, 0),
    "selections": [(0, 0)],
    "value": 1.0,
    "values": [1.0],
    "attributes": {},
    "name": "new",
    "new_name": "newer",
    "axis": 0,
}

OF_FUNCTION: dict[Any, dict[str, Any]] = {
    gzarr.create_array: {"shape": (4, 4), "dtype": "f4", "chunks": (2, 2), "path": "new", "overwrite": True},
    gzarr.create_group: {"path": "new", "overwrite": True},
    gzarr.open_array: {"path": "a"},
}


def hierarchy() -> gzarr.Group:
    group = gzarr.create_group({})
    group.create_array("a", data=np.arange(16.0).reshape(4, 4), chunks=(2, 2))
    return group


def methods(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and inspect.isfunction(getattr(kind, name))]


def try_each(call: Callable[..., object]) -> None:
    """Call a function with each value for each of its parameters, others being right."""
    every = inspect.signature(call).parameters.values()
    parameters = [p for p in every if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    needed = {p.name: RIGHT.get(p.name, "a") for p in parameters if p.default is p.empty}
    for parameter in parameters:
        for value in VALUES:
            with contextlib.suppress(gzarr.GzarrError):
                result = call(**{**needed, parameter.name: value})
                if isinstance(result, Iterator):
                    deque(result, 0)


@pytest.mark.parametrize(
    "function", [gzarr.create_array, gzarr.open_array, gzarr.open_group, gzarr.open, gzarr.create_group]
)
def test_functions(function: Callable[..., object], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = hierarchy().store

    def call(**options: Any) -> None:
        function(**{"store": store, **OF_FUNCTION.get(function, {}), **options})

    call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    try_each(call)


@pytest.mark.parametrize("name", methods(gzarr.Array))
def test_methods_of_arrays(name: str) -> None:
    try_each(getattr(hierarchy()["a"], name))


@pytest.mark.parametrize("name", methods(gzarr.Group))
def test_methods_of_groups(name: str) -> None:
    try_each(getattr(hierarchy(), name))


def test_lengths_in_arrays() -> None:
    array = gzarr.create_array(
        {}, shape=np.array([8, 8]), dtype="u1", chunks=np.array([2, 4]), shards=np.array([4, 8]), device="cpu"
    )
    assert (array.shape, array.chunks, array.shards) == ((8, 8), (2, 4), (4, 8))


@pytest.mark.parametrize("name", ["chunks", "shards"])
@pytest.mark.parametrize("wrong", ["1 MiB", "keep", b"xy", {0: 2}, {}, {2, 4}, np.timedelta64(2), np.array("a"), 1.5])
def test_what_is_no_shape_of_chunks(name: str, wrong: Any) -> None:
    given: dict[str, Any] = {"chunks": 1, name: wrong}
    with pytest.raises(gzarr.ArgumentError, match=f"{name} must be 'auto', an integer, or a tuple of integers, not "):
        gzarr.create_array({}, (4, 4), "u1", **given)


@pytest.mark.parametrize("wrong", [("2", 2), (b"2", 2), (np.array([2, 2]), 2), (np.timedelta64(2), 2), ("auto", 2)])
def test_what_is_no_length_of_chunks(wrong: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match="lengths must be positive integers, or -1 for the whole dimension"):
        gzarr.create_array({}, (4, 4), "u1", chunks=wrong)


def test_tensors_as_chunks() -> None:
    torch = pytest.importorskip("torch")
    lengths = torch.tensor([2, 2])
    for wrong in (lengths, (lengths, 2), [[2, 2], lengths], [[2, lengths], 2]):
        for name in ("chunks", "shards"):
            given: dict[str, Any] = {"chunks": 1, name: wrong}
            with pytest.raises(gzarr.ArgumentError, match=name):
                gzarr.create_array({}, (4, 4), "u1", **given)


def test_whole_dimensions_by_integers_of_numpy() -> None:
    for whole in (-1, np.int64(-1)):
        array = gzarr.create_array({}, (4, 6), "u1", chunks=(2, whole), device="cpu")
        assert array.chunks == (2, 6)
        assert gzarr.create_array({}, (4, 6), "u1", chunks=whole, device="cpu").chunks == (4, 6)


def test_what_is_said() -> None:
    group = hierarchy()
    array: Any = group["a"]
    for node in (group, array):
        with pytest.raises(gzarr.ArgumentError, match="attributes must be a dict, not 5"):
            node.update_attributes(5)
    with pytest.raises(gzarr.ArgumentError, match="write_many takes a sequence of selections, not 5"):
        array.write_many(5, [1])
    with pytest.raises(gzarr.ArgumentError, match="dtype is an array; give its dtype, or data="):
        gzarr.create_array({}, shape=3, dtype=np.arange(3))
    with pytest.raises(gzarr.SelectionError, match="a mask selection takes one boolean array"):
        array.get_mask_selection([[True], [True, False]])
    with pytest.raises(gzarr.ArgumentError, match="a dict of chunks has numbers of dimensions"):
        array.to_dask(chunks={"x": 2})
    with pytest.raises(gzarr.ArgumentError, match="axis must be an integer from -2 to 1"):
        array.append(np.ones((1, 4)), axis=np.array("a"))
    with pytest.raises(gzarr.ArgumentError, match="max_depth must be None or an integer"):
        list(group.members(max_depth=np.array("a")))


class _Path:
    def __init__(self, text: Any) -> None:
        self.text = text

    def __fspath__(self) -> Any:
        return self.text


@pytest.mark.parametrize("text", ["a\0b", b"a", b"", "", 3, None, "a\ud800"])
@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_what_is_no_path(text: Any, suffix: str) -> None:
    text = text + suffix if isinstance(text, str) and text else text
    calls: list[Callable[[Any], object]] = [
        gzarr.open,
        gzarr.create_group,
        gzarr.open_store,
        lambda given: gzarr.copy(given, {}, progress=False),
        gzarr.LocalStore,
        lambda given: gzarr.ZipStore(given, mode="a"),
        lambda given: gzarr.CachedStore({}, given, 1 << 20, name="x", check="once"),
    ]
    for call in calls:
        for given in (text, _Path(text)):
            with pytest.raises(gzarr.ArgumentError, match="path"):
                call(given)
