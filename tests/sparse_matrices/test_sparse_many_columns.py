"""Matrices whose attributes declare very many columns (rows, in CSC): reads take memory for what they choose."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sparse_groups import compressed, dense, stored, to_dense, write

import gzarr
from gzarr.sparse import chosen

if TYPE_CHECKING:
    from support.devices import TestedDevice

MOST = 2**31 - 1
SHAPE = (20, 35)
DATA = dense(SHAPE)
#: Where the columns of ``DATA`` are among all.
PLACES = np.sort(np.random.default_rng(0).choice(MOST, SHAPE[1], replace=False))
PLACES[[0, -1]] = 0, MOST - 1


def spread(form: str, device: str = "cpu") -> gzarr.sparse.Matrix:
    """Return a matrix with the elements of ``DATA``, far apart along the axis that is not compressed."""
    values, numbers, offsets = compressed(DATA if form == "csr" else DATA.T, form)
    shape = (SHAPE[0], MOST) if form == "csr" else (MOST, SHAPE[0])
    store = gzarr.MemoryStore()
    write(store, shape, (values, PLACES[numbers], offsets), form)
    return gzarr.sparse.open(store, path="X", device=device)


def selections(length: int) -> st.SearchStrategy[Any]:
    some = st.none() | st.integers(-length - 3, length + 3)
    return st.one_of(
        st.integers(-length, length - 1),
        st.builds(slice, some, some, st.none() | st.integers(1, 9) | st.integers(-9, -1)),
        st.lists(st.integers(-length, length - 1), max_size=40).map(lambda found: np.array(found, np.int64)),
        st.lists(st.booleans(), min_size=length, max_size=length).map(np.array),
    )


@pytest.mark.parametrize("tabled", [False, True])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_any_columns(form: str, tabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a table of all columns or by the ranks of some, as SciPy has them."""
    sparse = pytest.importorskip("scipy.sparse")
    if not tabled:
        monkeypatch.setattr(chosen, "_TABLED", -1)
        monkeypatch.setattr(chosen, "_TIMES", 0)
    matrix = getattr(sparse, f"{form}_array")(DATA)
    m = gzarr.sparse.open(stored(DATA, form, index="u1"), path="X", device="cpu")

    @settings(max_examples=60, deadline=None)
    @given(selections(SHAPE[0]), selections(SHAPE[1]))
    def check(rows: Any, columns: Any) -> None:
        taken = [np.arange(n)[one].ravel() for n, one in zip(SHAPE, (rows, columns), strict=True)]
        wanted = matrix[taken[0]][:, taken[1]]
        found = m[rows, columns]
        assert (found.format, found.dtype, found.shape) == (form, wanted.dtype, wanted.shape)
        assert (found != wanted).nnz == 0
        np.testing.assert_array_equal(m.to_dense(rows, columns), wanted.toarray())

    check()


def test_ranks_change_no_bit_of_scaled_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    m = gzarr.sparse.open(stored(DATA), path="X", device="cpu")
    genes = [5, 3, 34, 3, -1]

    def read() -> Any:
        return m.to_dense([4, 2, 3], genes, missing="zero", normalize=1e4, log1p=True)

    wanted = read()
    monkeypatch.setattr(chosen, "_TABLED", -1)
    monkeypatch.setattr(chosen, "_TIMES", 0)
    np.testing.assert_array_equal(read(), wanted)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_few_of_many(form: str, device: TestedDevice) -> None:
    m = spread(form, device.name)
    between = PLACES[4] + 1
    assert between not in PLACES
    whole = np.column_stack([DATA, np.zeros(SHAPE[0], "f4")])
    cases: list[tuple[Any, Any, Any]] = [
        (1, int(PLACES[1]), whole[[1]][:, [1]]),
        (slice(0, 2), PLACES[[3, 3, 0, 34]], whole[0:2, [3, 3, 0, 34]]),
        ([3, 1, 3], [-1, between, PLACES[4]], whole[[3, 1, 3]][:, [34, 35, 4]]),
        (None, slice(0, 3), whole[:, [0, 35, 35]]),
    ]
    assert (PLACES[1:3] > 2).all()
    tracemalloc.start()
    try:
        for major, minor, expected in cases:
            selection = (major, minor) if form == "csr" else (minor, major)
            wanted = expected if form == "csr" else expected.T
            np.testing.assert_array_equal(device.to_numpy(m.to_dense(*selection)), wanted)
            np.testing.assert_array_equal(to_dense(m.read_parts(*selection), form, device.to_numpy), wanted)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_views_of_many_columns(device: TestedDevice) -> None:
    m = spread("csr", device.name)
    tracemalloc.start()
    try:
        view = m.dense(columns=PLACES[[7, 2]])
        np.testing.assert_array_equal(device.to_numpy(view[[3, 1]]), DATA[[3, 1]][:, [7, 2]])
        np.testing.assert_array_equal(device.to_numpy(view[3:5, 1:]), DATA[3:5, [2]])
        last = m.dense()[2:6, MOST - 3 : MOST]
        np.testing.assert_array_equal(device.to_numpy(last), np.pad(DATA[2:6, 34:], ((0, 0), (2, 0))))
        assert m.dense() == m.dense() != view
        assert view == m.dense(columns=PLACES[[7, 2]]) != m.dense(columns=PLACES[[2, 7]])
        tokens = {one.__dask_tokenize__() for one in (m.dense(), m.dense(), view, m.dense(columns=PLACES[[2, 7]]))}
        assert len(tokens) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
