"""Blocks of strings are as large as blocks of numbers, by the length of the strings."""

from __future__ import annotations

import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
COUNT = 8000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> gzarr.Array:
    """16 MB of strings, in chunks of 200 kB."""
    array = gzarr.create_array(tmp_path_factory.mktemp("strings") / "a", shape=COUNT, dtype=str, chunks=100)
    for i in range(0, COUNT, 100):
        array[i : i + 100] = np.array([f"{n:02000}" for n in range(i, i + 100)], object)
    return array


def nbytes_of(x: Any) -> int:
    return x.nbytes + sum(map(sys.getsizeof, x.ravel().tolist()))


@pytest.mark.parametrize("halo", [0, 5])
@pytest.mark.parametrize("out", [False, True])
def test_blocks_have_the_bytes_that_are_aimed_at(tmp_path: Path, source: gzarr.Array, halo: int, out: bool) -> None:
    found: list[int] = []

    def function(x: Any) -> Any:
        found.append(nbytes_of(x[halo : len(x) - halo]) * (2 if out else 1))
        return x if out else 0

    reduces: dict[str, Any] = {"out": tmp_path / "b"} if out else {"reduce": max}
    # An eighth of the budget is aimed at, in one thread.
    gzarr.map_blocks(function, source, halo=halo, budget_bytes=8 * MIB, overlap=False, **reduces)
    assert MIB // 3 < max(found) <= MIB
    if out:
        assert gzarr.open_array(tmp_path / "b")[[0, -1]].tolist() == source[[0, -1]].tolist()


def test_outputs_of_another_type_count_as_they_are(source: gzarr.Array) -> None:
    found: list[int] = []

    def function(x: Any) -> Any:
        found.append(nbytes_of(x))
        return np.array(list(map(len, x)))

    lengths = gzarr.map_blocks(function, source, dtype="i8", budget_bytes=8 * MIB, overlap=False)
    assert (lengths == 2000).all()
    assert MIB // 2 < max(found) <= MIB


def test_the_budget_holds(tmp_path: Path, source: gzarr.Array) -> None:
    budget = 4 * MIB
    gzarr.map_blocks(lambda x: x, source.view[:300], out=tmp_path / "warm", halo=5)
    tracemalloc.start()
    try:
        gzarr.map_blocks(lambda x: x, source, out=tmp_path / "b", halo=5, budget_bytes=budget)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of 16 MB.
    assert peak < 2 * budget
