"""Elements that ``resize(..., erase=False)`` leaves outside the shape stay until it grows, whatever is written."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

DATA = np.arange(1, 11)
LAYOUTS: dict[str, dict[str, Any]] = {
    "chunks": {"chunks": (4,)},
    "shards": {"chunks": (2,), "shards": (4,)},
    "shards of cut chunks": {"chunks": (4,), "shards": (8,)},
    "rectilinear": {"chunks": [[4, 4, 2]]},
    "host threads": {"chunks": (4,), "codecs": ["bz2"], "zarr_format": 2},
}


def shrunk(store: Any, **options: Any) -> gzarr.Array:
    a = gzarr.create_array(store, data=DATA, device="cpu", **options)
    a.resize(5, erase=False)
    return a


@pytest.mark.parametrize("value", [50, 0])
@pytest.mark.parametrize("in_directory", [False, True], ids=["memory", "directory"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_write_to_the_edge(layout: dict[str, Any], in_directory: bool, value: int, tmp_path: Path) -> None:
    a = shrunk(tmp_path / "x" if in_directory else {}, **layout)
    a[4:5] = value
    a[...] = a[...]
    a.update_attributes({"still": "known"})
    a[4] = value
    a.resize(10)
    np.testing.assert_array_equal(a[...], [*DATA[:4], value, *DATA[5:]])


def test_an_erasing_resize_ends_it() -> None:
    a = shrunk({}, chunks=(4,))
    a.resize(5)
    a.resize(10)
    np.testing.assert_array_equal(a[...], [*DATA[:5], *[0] * 5])


class Full(MemoryStore):
    """A store that takes no chunk while it is full, and has room again after it has refused one."""

    full = False

    def set_parts(self, key: str, parts: Any) -> None:
        if self.full and "/" in key:
            self.full = False
            raise OSError(errno.ENOSPC, "No space left on device")
        super().set_parts(key, parts)


@pytest.mark.parametrize(("value", "full"), [([1.5], False), ([9], True)], ids=["refused", "not stored"])
def test_an_append_that_fails(value: list[float], full: bool) -> None:
    store = Full()
    a = shrunk(store, chunks=(4,))
    store.full = full
    with pytest.raises(gzarr.GzarrError):
        a.append(value)
    a.resize(10)
    np.testing.assert_array_equal(a[...], DATA)


def test_a_refused_append_changes_no_chunk() -> None:
    # Another object does not know what was kept.
    store = MemoryStore()
    shrunk(store, chunks=(4,))
    before = {key: store.get(key) for key in store.list()}
    with pytest.raises(gzarr.ArgumentError):
        gzarr.open_array(store, mode="r+").append([1.5])
    assert {key: store.get(key) for key in store.list()} == before
