"""Writes and changes of documents that all ask for locks between processes never wait for each other in a circle."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 12


def change_attributes(array: gzarr.Array, i: int) -> None:
    array.attrs.change(lambda found: {**found, str(i): i}, lock=True)


def resize(array: gzarr.Array, i: int) -> None:
    array.resize(2995 if i % 2 else 2005, lock=True)


def append(array: gzarr.Array, i: int) -> None:
    array.append([i], lock=True)


@pytest.mark.parametrize("change", [change_attributes, resize, append], ids=lambda change: change.__name__)
def test_threads(tmp_path: Path, change: Callable[[gzarr.Array, int], Any]) -> None:
    # Its chunks have all the locks that chunks can have.
    gzarr.create_array(tmp_path, shape=3000, chunks=10, dtype="i4")[...] = 1
    errors: list[BaseException] = []

    def repeat(work: Callable[[gzarr.Array, int], Any]) -> None:
        array = gzarr.open_array(tmp_path, mode="r+", device="cpu")
        try:
            for i in range(COUNT):
                work(array, i)
        except BaseException as error:
            errors.append(error)

    def write(array: gzarr.Array, i: int) -> None:
        array.write(slice(5, 1995), np.full(1990, i, "i4"), lock=True)

    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in (write, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "they wait for each other"
    assert errors == []
    array = gzarr.open_array(tmp_path, device="cpu")
    assert (array[5:1995] == COUNT - 1).all()
    if change is append:
        assert array[3000:].tolist() == list(range(COUNT))
    elif change is change_attributes:
        assert dict(array.attrs) == {str(i): i for i in range(COUNT)}
