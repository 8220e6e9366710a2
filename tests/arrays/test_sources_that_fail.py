"""Arrays that are given as values, and cannot be read: the error is the one of the read, not of an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, ChunkDecodeError, ChunkReadError, MissingChunkError, StoreError
from gzarr.stores import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    Way = Callable[[Any], object]


class Refusing(MemoryStore):
    """A store that refuses a chunk."""

    def get(self, key: str) -> bytes | None:
        if key == "c/2":
            raise PermissionError(13, "not yours", key)
        return super().get(key)

    def get_partial_values(self, requests: Any) -> Any:
        return [self.get(key) for key, _ in requests]


def target() -> Any:
    return gzarr.zeros(8, dtype="f8", chunks=2, device="cpu")


WAYS: dict[str, Way] = {
    "create_array": lambda value: gzarr.create_array({}, data=value),
    "array": gzarr.array,
    "save": lambda value: gzarr.save({}, a=value, b=[1]),
    "group": lambda value: gzarr.create_group({}).__setitem__("x", value),
    "assign": lambda value: target().__setitem__(..., value),
    "write": lambda value: target().write((), value, fill_masked=True),
    "write_many": lambda value: target().write_many([slice(8)], [value]),
    "append": lambda value: target().append(value),
}


def source(store: Any, **options: Any) -> Any:
    gzarr.create_array(store, data=np.arange(8.0), chunks=2, codecs=["gzip"])
    return gzarr.open_array(store, device="cpu", **options)


def corrupt() -> Any:
    a = source(store := {})
    store["c/2"] = store["c/2"][:9]
    return a


def absent() -> Any:
    a = source(store := {}, missing="error")
    del store["c/2"]
    return a


SOURCES: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "corrupt": (corrupt, ChunkDecodeError),
    "absent": (absent, MissingChunkError),
    "unreadable": (lambda: source(Refusing()), ChunkReadError),
    "view": (lambda: corrupt().view[:], ChunkDecodeError),
}


@pytest.mark.parametrize("of", SOURCES)
@pytest.mark.parametrize("way", WAYS)
def test_the_error_of_the_read(way: str, of: str) -> None:
    make, kind = SOURCES[of]
    with pytest.raises(kind, match="c/2") as caught:
        WAYS[way](make())
    assert not isinstance(caught.value, ArgumentError)


class OfOthers:
    """An array of another library, whose file cannot be read."""

    shape, dtype, ndim = (8,), np.dtype("f8"), 1

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, selection: Any) -> Any:
        raise self.error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise self.error


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_other_libraries(way: str) -> None:
    with pytest.raises(StoreError, match=r"OfOthers cannot be read: .*Stale") as caught:
        WAYS[way](OfOthers(OSError(116, "Stale file handle")))
    assert caught.value.errno == 116
    with pytest.raises(ArgumentError, match=r"OfOthers is not .*: no elements"):
        WAYS[way](OfOthers(RuntimeError("no elements")))


def test_chunks_beyond_the_end_stay_where_nothing_was_appended() -> None:
    a = gzarr.create_array(store := {}, data=np.arange(8.0), chunks=2, device="cpu")
    # Another process, whose append is about to show it.
    store["c/5"] = beyond = store["c/1"]
    with pytest.raises(ChunkDecodeError):
        a.append(corrupt())
    assert store["c/5"] is beyond
    assert a.shape == (8,)


def test_indexes() -> None:
    a = target()
    for way in (lambda: a[corrupt()], lambda: a.oindex[corrupt()], lambda: a.__setitem__(corrupt(), 1)):
        with pytest.raises(ChunkDecodeError, match="c/2"):
            way()
