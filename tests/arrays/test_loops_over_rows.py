"""Loops over the rows of an array, which read ahead, and may write to the array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.counting_store import CountingStore

import gzarr
from gzarr.arrays.write import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.devices import TestedDevice


def made(data: Any, **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, data=data, device="cpu", **{"chunks": 3, **options})


WAYS: dict[str, Callable[[gzarr.Array, int, Any], Any]] = {
    "setitem": lambda a, i, row: a.__setitem__(i + 1, row + 1),
    "write": lambda a, i, row: a.write(i + 1, row + 1),
    "write_many": lambda a, i, row: a.write_many([i + 1], [row + 1]),
    "oindex": lambda a, i, row: a.oindex.write([i + 1], [row + 1]),
    "vindex": lambda a, i, row: a.vindex.write(([i + 1],), [row + 1]),
    "coordinates": lambda a, i, row: a.set_coordinate_selection(([i + 1],), [row + 1]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"shards": 6}, {"zarr_format": 2}, {"chunks": 1}, {"chunks": 100}])
def test_loops_see_what_they_write(way: str, options: dict[str, Any]) -> None:
    array = made(np.ones(20, "i4"), **options)
    for i, row in enumerate(array):
        if i + 1 < len(array):
            WAYS[way](array, i, row)
    assert array[...].tolist() == list(range(1, 21))


def test_loops_over_rows_of_several_elements(device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path, data=np.ones((7, 2), "i4"), chunks=(4, 1))
    array = device.open(tmp_path, mode="r+")
    rows = []
    for i, row in enumerate(array):
        rows.append(device.to_numpy(row).tolist())
        if i < 6:
            array[i + 1] = row + 1
    assert rows == device.to_numpy(array[...]).tolist() == [[i, i] for i in range(1, 8)]


def test_loops_over_views_see_what_is_written_to_the_array() -> None:
    array = made(np.ones(8, "i4"), chunks=8)
    for view in (array.view[::-1], array.view[:].view[::-1]):
        array[...] = 1
        seen = []
        for i, row in enumerate(view):
            seen.append(int(row))
            if i < 7:
                array[6 - i] = row + 1
        assert seen == list(range(1, 9))


def test_writes_that_fail_in_part_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    array = made(np.zeros(6, "i4"), chunks=3)

    write = Writer.write

    def fail(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise gzarr.StoreError("the network is gone")

    rows = iter(array)
    assert next(rows) == 0
    with monkeypatch.context() as patched:
        patched.setattr(Writer, "write", fail)
        with pytest.raises(gzarr.StoreError):
            array[...] = 5
    assert list(rows) == [5] * 5


def test_rows_that_are_gone() -> None:
    array = made(np.arange(10), chunks=5)
    rows = []
    for row in array:
        rows.append(int(row))
        if row == 1:
            array.resize(3)
    assert rows == [0, 1, 2]


def test_rows_that_are_new() -> None:
    """They are not part of a loop that has begun."""
    array = made(np.arange(4), chunks=3)
    rows = [int(row) for row in array if array.append([row])]
    assert rows == [0, 1, 2, 3]
    assert array[...].tolist() == [0, 1, 2, 3] * 2


def test_chunks_are_read_once_without_writes() -> None:
    store = CountingStore()
    array = gzarr.create_array(store, data=np.arange(20), chunks=5, codecs=None, device="cpu")
    read = gzarr.open_array(store, device="cpu")
    for of in (array, array.view[:], read, read.view[:]):
        store.asked.clear()
        assert list(of) == list(range(20))
        assert [request.key for request in store.asked] == ["c/0", "c/1", "c/2", "c/3"]


def test_reading_ahead_grows_again_after_a_write() -> None:
    store = CountingStore()
    array = gzarr.create_array(store, data=np.arange(64), chunks=64, codecs=None, device="cpu")
    rows = []
    for row in array:
        rows.append(int(row))
        if row == 0:
            array[40] = -1
            store.asked.clear()
    assert rows == [*range(40), -1, *range(41, 64)]
    # For 1, 2, 4, 8, 16 and 32 rows.
    assert len(store.asked) == 6
