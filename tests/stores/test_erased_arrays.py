"""Icechunk's arrays that are no longer in their session, and its lost files: never fill values, as for zarr-python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pytest
import zarr
from support.icechunk_repositories import of_files_below
from zarr.storage import WrapperStore

import gzarr
from gzarr.errors import ChunkReadError, ChunkWriteError, NodeNotFoundError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def erase(session: Any) -> None:
    del gzarr.open_group(session.store, mode="r+")["g/a"]


def move(session: Any) -> None:
    gzarr.open_group(session.store, mode="r+").move("g/a", "b")


def replace(session: Any) -> None:
    zarr.create_group(session.store, path="g/a", overwrite=True)


def discard(session: Any) -> None:
    session.discard_changes()


@pytest.mark.parametrize("shape", [(4,), ()], ids=["chunks", "scalar"])
@pytest.mark.parametrize("lose", [erase, move, replace, discard])
def test_arrays_that_are_gone(lose: Callable[[Any], None], shape: tuple[int, ...], tmp_path: Path) -> None:
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    array = gzarr.create_array(session.store, path="g/a", data=np.ones(shape), chunks=(2,) * len(shape))
    other = zarr.open_array(session.store, path="g/a", mode="r")
    lose(session)
    if lose is not replace and int(icechunk.__version__.split(".")[0]) >= 2:
        # Icechunk itself says that chunks are absent.
        np.testing.assert_array_equal(array[...], other[...])
        return
    with pytest.raises(icechunk.IcechunkError, match=r"node not found|not an array"):
        other[...]
    with pytest.raises(ChunkReadError, match=r"cannot read 'g/a/c.*': there is no such array now: it was era") as read:
        array[...]
    assert isinstance(read.value.__cause__, NodeNotFoundError)
    with pytest.raises(ChunkWriteError, match=r"cannot write 'g/a/c.*': there is no such array now: it was era"):
        array[...] = 5
    store = gzarr.ZarrStore(session.store)
    assert store.get("g/a/.zarray") is store.get("g/a/c/0") is store.get("g/a/c") is None
    assert not list(store.list_prefix("g/a/c/"))
    store.erase("g/a/c/0")
    # There may be a new array, also by a wrapper.
    session.discard_changes()
    cached = gzarr.CachedStore(gzarr.open_store(session.store, read_only=False), tmp_path / "c", 1 << 20, name="x")
    gzarr.create_array(cached, path="g/a", data=np.ones(shape), chunks=(2,) * len(shape))
    np.testing.assert_array_equal(zarr.open_array(session.store, path="g/a", mode="r")[...], np.ones(shape))


@pytest.mark.parametrize("words", ["invalid chunk index", "invalid zarr key", "node not found at", "bad key prefix"])
@pytest.mark.parametrize("named", ["file", "array"])
def test_words_in_names_mean_nothing(named: str, words: str, tmp_path: Path) -> None:
    folder, name = (words, "a") if named == "file" else ("data", words)
    prefix = f"file://{tmp_path}/"
    store = of_files_below(tmp_path).writable_session("main").store
    array = gzarr.create_array(store, path=name, shape=(4,), dtype="<i4", chunks=(4,), codecs=[], fill_value=-1)
    (tmp_path / folder).mkdir()
    store.set_virtual_ref(f"{name}/c/0", f"{prefix}{folder}/lost.bin", offset=0, length=16)
    with pytest.raises(ChunkReadError, match="virtual"):
        array[...]
    assert len(list(gzarr.verify(store))) == 1
    with pytest.raises(StoreError, match="virtual"):
        gzarr.copy(store, {})


class Terminal(WrapperStore[Any]):
    """Icechunk's store with the texts that its errors have in a terminal."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        try:
            return await super().get(key, prototype, byte_range)
        except icechunk.IcechunkError as error:
            text = str(error).replace("  x ", "  \x1b[31m\u00d7\x1b[0m ", 1)
            raise type(error)(text.replace("|-> ", "\x1b[31m\u251c\u2500\u25b6\x1b[0m ")) from None


def test_marks_of_terminals() -> None:
    session = icechunk.Repository.create(icechunk.in_memory_storage()).writable_session("main")
    gzarr.create_array(session.store, path="a", data=np.ones(4), chunks=(2,))
    store = gzarr.ZarrStore(Terminal(session.store))
    assert store.get("a/other") is None
    array = gzarr.open_array(store, path="a", mode="r")
    zarr.create_group(session.store, path="a", overwrite=True)
    with pytest.raises(ChunkReadError, match="there is no such array now"):
        array[...]


def test_marks_are_not_shown() -> None:
    # The errors of a terminal, word for word.
    text = "  \x1b[31m\u00d7\x1b[0m bad metadata\n  \x1b[31m\u2502\x1b[0m \n  \x1b[31m\u2502\x1b[0m context:\n"
    text += "  \x1b[31m\u251c\u2500\u25b6\x1b[0m bad metadata\n  \x1b[31m\u2570\u2500\u25b6\x1b[0m expected value\n"
    shown = importlib.import_module("gzarr.stores.icechunk_errors").without_trace(icechunk.IcechunkError(text))
    assert str(shown) == "bad metadata: expected value"
