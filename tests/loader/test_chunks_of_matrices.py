"""Chunks of sparse matrices that samples need, and how many of them are decoded once for several samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.sparse_groups import dense, stored

import gzarr
from gzarr.loader import Loader, Rows, Windows

DATA = dense((600, 40))


def matrix() -> gzarr.sparse.Matrix:
    """Return a matrix whose values and columns have chunks of other lengths."""
    store = stored(DATA)
    group = gzarr.open_group(store, mode="r+", path="X", device="cpu")
    group.create_array("indices", data=group["indices"][...], chunks=40, overwrite=True)
    return gzarr.sparse.open(store, path="X", device="cpu")


def needed(first: range, rows: int) -> int:
    """Return how many chunks of both arrays the rows from each of some first ones on need."""
    ends = [0, *np.cumsum((DATA != 0).sum(axis=1)).tolist()]
    return sum(len({i // length for i in range(ends[a], ends[a + rows])}) for a in first for length in (64, 40))


@pytest.mark.filterwarnings("ignore:shuffling is coarse")
@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_chunks_of_both_arrays_are_counted(shuffle: Any) -> None:
    loader = Loader({"x": matrix()}, Rows(), batch_size=1, shuffle=shuffle, buffer_bytes=1000)
    assert sum(1 for _ in loader) == 600
    stats = loader.stats()
    assert stats.uses == needed(range(600), 1)
    assert 0 <= stats.hit_rate < 1


@pytest.mark.parametrize("shuffle", ["blocks", "full", False])
def test_chunks_of_windows_of_rows_are_counted(shuffle: Any) -> None:
    sampler = Windows(0, {"x": (0, 9)}, stride=8)
    loader = Loader({"x": matrix()}, sampler, batch_size=4, shuffle=shuffle, prefetch=0, drop_last=False)
    assert sum(1 for _ in loader) == 19
    stats = loader.stats()
    # In windows that are read by themselves, a chunk counts for each chunk of the view that has rows of it.
    assert needed(range(0, 592, 8), 10) <= stats.uses < 1.3 * needed(range(0, 592, 8), 10)
    assert 0 <= stats.hit_rate < 1
