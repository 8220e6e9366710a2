"""Memory of answers: one after the other in slabs, which are used again when nobody holds an answer in them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from gzarr.stores import received
from gzarr.stores.received import SLAB_BYTES, Received


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


@pytest.fixture(autouse=True)
def no_slabs() -> None:
    # What other tests have left gives its slabs back when it is found.
    gc.collect()
    received._kept.clear()


def test_answers_do_not_overlap() -> None:
    memory = Received()
    sizes = [1, 63, 64, 65, 1000, 100_000, SLAB_BYTES, 5, SLAB_BYTES - 1, SLAB_BYTES + 1, 7]
    views = [memory.take(nbytes) for nbytes in sizes]
    for i, view in enumerate(views):
        view[:] = bytes([i + 1]) * len(view)
    assert [len(view) for view in views] == sizes
    assert all(bytes(view) == bytes([i + 1]) * len(view) for i, view in enumerate(views))
    assert all(address(view) % 64 == 0 for view in views[:7])


def test_a_slab_is_used_again_only_when_all_its_answers_are_gone() -> None:
    memory = Received()
    first, second = memory.take(SLAB_BYTES // 2), memory.take(SLAB_BYTES // 4)
    second[:4] = b"kept"
    at = address(first)
    del first
    other = memory.take(SLAB_BYTES)
    assert address(other) != at
    other[:] = bytes(SLAB_BYTES)
    assert bytes(second[:4]) == b"kept"
    part = second[1:3]
    del second
    gc.collect()
    assert not received._kept
    del part
    assert len(received._kept) == 1
    del other
    again = memory.take(SLAB_BYTES)
    assert address(again) == at


def test_few_slabs_are_kept() -> None:
    memory = Received()
    views = [memory.take(SLAB_BYTES) for _ in range(received._MOST_KEPT + 3)]
    views.clear()
    assert len(received._kept) == received._MOST_KEPT


def test_empty_answers() -> None:
    assert len(Received().take(0)) == 0
