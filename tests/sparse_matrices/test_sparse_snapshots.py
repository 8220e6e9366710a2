"""Matrices that grow while other threads read them through the same object: each read sees one state."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from support.sparse_groups import dense

import gzarr
from gzarr.sparse import matrix as matrices
from gzarr.sparse import offsets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = dense((20, 60))
BLOCK = sp.csr_array(DATA)


def check(found: np.ndarray[Any, Any]) -> None:
    """Check that these are whole blocks."""
    assert len(found) % len(DATA) == 0
    np.testing.assert_array_equal(found, np.tile(DATA, (len(found) // len(DATA), 1)))


def all_rows(m: gzarr.sparse.Matrix) -> None:
    check(m.to_dense())


def sparse_rows(m: gzarr.sparse.Matrix) -> None:
    check(m[:].toarray())


def last_row(m: gzarr.sparse.Matrix) -> None:
    np.testing.assert_array_equal(m[-1].toarray()[0], DATA[-1])


def columns(m: gzarr.sparse.Matrix) -> None:
    found = m.to_dense(columns=[5, 3])
    np.testing.assert_array_equal(found, np.tile(DATA[:, [5, 3]], (len(found) // len(DATA), 1)))


def view(m: gzarr.sparse.Matrix) -> None:
    check(m.dense()[:])


def sizes(m: gzarr.sparse.Matrix) -> None:
    assert m.nnz % BLOCK.nnz == 0
    assert (len(m.indptr) - 1) % len(DATA) == 0


@pytest.mark.parametrize("read", [all_rows, sparse_rows, last_row, columns, view, sizes])
def test_reads_while_another_thread_appends(read: Callable[[gzarr.sparse.Matrix], None]) -> None:
    failures: list[BaseException] = []
    for _ in range(4):
        m = gzarr.sparse.create({}, BLOCK, chunks=256, device="cpu")
        done = threading.Event()

        def look(m: gzarr.sparse.Matrix = m, done: threading.Event = done) -> None:
            try:
                while not done.is_set():
                    read(m)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            m.append(BLOCK)
        done.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert len(m.indptr) == m.shape[0] + 1 == 121
        check(m.to_dense())


def once(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that does something more after its first call, before it returns the result."""
    calls = [then]

    def call(*arguments: Any) -> Any:
        result = function(*arguments)
        if calls:
            calls.pop()()
        return result

    return call


def test_offsets_that_were_read_before_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not taken for those of the matrix afterwards."""
    m = gzarr.sparse.create({}, BLOCK, device="cpu")
    monkeypatch.setattr(offsets, "element_on_host", once(offsets.element_on_host, lambda: m.append(BLOCK)))
    last_row(m)
    assert m.shape == (40, 60)
    assert len(m.indptr) == 41
    check(m.to_dense())


def test_a_slow_look_does_not_undo_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    m = gzarr.sparse.create({}, BLOCK, device="cpu")
    monkeypatch.setattr(matrices, "reopened", once(matrices.reopened, lambda: m.append(BLOCK)))
    m.refresh()
    assert m.shape == (40, 60)
    check(m.to_dense())


def test_threads_that_append_see_their_own_rows() -> None:
    m = gzarr.sparse.create({}, shape=(0, 60), device="cpu")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            before = 0
            for _ in range(8):
                m.append(BLOCK)
                now = m.shape[0]
                assert now >= before + len(DATA)
                before = now
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert m.shape == (3 * 8 * 20, 60)
    check(m.to_dense())


def test_a_view_keeps_its_rows() -> None:
    store = gzarr.MemoryStore()
    m = gzarr.sparse.create(store, BLOCK, device="cpu")
    found = m.dense()
    m.append(BLOCK)
    assert found.shape == (20, 60)
    check(found[:])
    check(m.dense()[:])


def test_a_pickled_view_keeps_its_rows(tmp_path: Path) -> None:
    """Also one of columns, whether its own matrix or another one was appended to."""
    m = gzarr.sparse.create(tmp_path / "x", BLOCK, device="cpu")
    views = [m.dense(), m.dense(columns=[5, 3])]
    other = pickle.loads(pickle.dumps(m))
    m.append(BLOCK)
    for view in (*views, other.dense()):
        again = pickle.loads(pickle.dumps(view))
        assert again == view
        assert again.shape == view.shape == (20, view.shape[1])
        assert again.matrix.shape == (20, 60)
        np.testing.assert_array_equal(again[...], view[...])
    assert m.dense() != views[0]
    assert m.dense(columns=[5, 3]) != views[1]
    other.refresh()
    assert other.shape == (40, 60)
    assert other.dense() == m.dense()
