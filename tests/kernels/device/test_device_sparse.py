"""The kernels of sparse matrices, as compiled for a GPU, against NumPy, in memory whose ends are guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gzarr_kernels.device import sparse as k
from support.device_arena import launch
from support.guarded_memory import Guarded

pytestmark = pytest.mark.slow

ROWS, COLUMNS = 23, 17


def guarded(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy that ends where memory ends."""
    whole = Guarded(values.nbytes).array
    part: np.ndarray[Any, Any] = whole[whole.size - values.nbytes :].view(values.dtype)
    part[:] = values.ravel()
    return part


class Matrix:
    """Rows with entries in ascending order, and the columns of a kernel's arguments."""

    def __init__(self, dtype: str, chosen: list[int] | None) -> None:
        rng = np.random.default_rng(5)
        dense = rng.integers(1, 99, (ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.4)
        dense[4] = 0
        self.dense = dense.astype(dtype)
        row, column = np.nonzero(self.dense)
        self.offsets = np.concatenate([[0], np.cumsum((self.dense != 0).sum(axis=1))])
        self.indices = guarded(column.astype(np.int32))
        self.itemsize = self.dense.itemsize
        self.word = min(self.itemsize, 8)
        self.values = guarded(self.dense[row, column].view(f"u{self.word}"))
        self.chosen = chosen

    def columns(self, dense: Any = None, new: Any = None, shift: int = 3) -> tuple[Any, int]:
        """Return the columns, and the index of the header, which is not their first word."""
        parts: list[Any] = [np.full(shift, -77), np.zeros(k.SIZE)]

        def put(values: Any) -> int:
            at = sum(map(len, parts))
            parts.append(np.asarray(values, np.int64))
            return at

        header = np.zeros(k.SIZE, np.int64)
        header[k.ROWS], header[k.COLUMNS] = ROWS, COLUMNS
        header[k.BEGINS], header[k.ENDS] = put(self.offsets[:-1]), put(self.offsets[1:])
        header[k.FLAGS] = put([0, 0])
        header[k.NEW] = put(np.zeros(ROWS) if new is None else new)
        header[k.CHOSEN_OFFSETS] = -1
        if self.chosen is not None:
            counts = np.bincount(self.chosen, minlength=COLUMNS)
            header[k.CHOSEN_OFFSETS] = put(np.concatenate([[0], np.cumsum(counts)]))
            header[k.CHOSEN] = put(np.argsort(self.chosen, kind="stable"))
        header[k.PER] = self.itemsize // self.word
        if dense is not None:
            header[k.TARGETS], header[k.COLUMN_STRIDE], header[k.WIDTH] = put(dense[0]), *dense[1:]
        parts[1] = header
        return guarded(np.concatenate(parts).astype(np.int64)), shift


@pytest.mark.parametrize("chosen", [None, [5, 16, 0], [3, 3, 9, 3]])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16"])
def test_densify(dtype: str, chosen: list[int] | None) -> None:
    m = Matrix(dtype, chosen)
    wanted = m.dense if chosen is None else m.dense[:, chosen]
    per = m.itemsize // m.word
    width = wanted.shape[1]
    order = np.random.default_rng(0).permutation(ROWS)
    for way in ("rows in any order", "turned", "reversed"):
        out = guarded(np.zeros(wanted.size * per, f"u{m.word}"))
        stride = {"turned": ROWS, "reversed": -1}.get(way, 1) * per
        targets = order * per if way == "turned" else order * width * per
        if way == "reversed":
            targets += (width - 1) * per
        for shift in (3, 4):
            out[:] = 77
            columns, job = m.columns((targets, stride, width), shift=shift)
            before = columns.copy()
            launch(k.densify, m.values, m.indices, out, columns, job)
            found = out.view(dtype)
            found = found.reshape(width, ROWS).T if way == "turned" else found.reshape(ROWS, width)
            found = found[:, ::-1] if way == "reversed" else found
            np.testing.assert_array_equal(found[order], wanted)
            np.testing.assert_array_equal(columns, before)


@pytest.mark.parametrize("chosen", [None, [3, 3, 9, 3]])
@pytest.mark.parametrize("dtype", ["u8", "f4", "f8", "c16"])
def test_zeros_have_no_sign(dtype: str, chosen: list[int] | None) -> None:
    m = Matrix(dtype, chosen)
    minus_zero = np.array(-0.0, f"f{m.word}").view(f"u{m.word}")
    m.values[::2] = minus_zero
    values = m.values.view(dtype) + np.array(0, dtype)
    row = np.repeat(np.arange(ROWS), np.diff(m.offsets))
    m.dense[row, m.indices] = values
    wanted = m.dense if chosen is None else m.dense[:, chosen]
    out = guarded(np.full(wanted.nbytes // m.word, 77, f"u{m.word}"))
    per = m.itemsize // m.word
    width = wanted.shape[1]
    columns, job = m.columns((np.arange(ROWS) * width * per, per, width))
    columns[job + k.MINUS_ZERO] = 0 if dtype == "u8" else minus_zero.astype(np.int64)
    launch(k.densify, m.values, m.indices, out, columns, job)
    np.testing.assert_array_equal(out.view(f"u{m.word}"), np.ascontiguousarray(wanted).ravel().view(f"u{m.word}"))


@pytest.mark.parametrize("total", [None, 1e4])
@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_scale_rows(dtype: str, with_log: bool, total: float | None) -> None:
    m = Matrix(dtype, None)
    values = m.values.view(dtype)
    values[:] *= 0.37
    # Of a row with the sum 0, nothing is divided.
    first, last = m.offsets[7:9]
    values[first:last] = 0
    values[first : first + 2] = 2.5, -2.5
    if dtype == "f8":
        first, last = m.offsets[9:11]
        values[first:last] = 1e-310
    exact = values.astype("f8")
    for begin, end in zip(m.offsets[:-1], m.offsets[1:], strict=True):
        row = exact[begin:end]
        if total is not None and row.sum():
            row[:] = row / row.sum() * total
    if with_log:
        with np.errstate(invalid="ignore"):
            exact = np.log1p(exact)
    columns, job = m.columns()
    columns[job + k.SCALING] = (total is not None) | with_log << 1
    columns[job + k.TOTAL : job + k.TOTAL + 1].view("f8")[0] = total or 0
    launch(k.scale_rows, m.values, columns, job)
    np.testing.assert_allclose(m.values.view(dtype), exact, rtol=2e-7 if dtype == "f4" else 1e-15)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_logarithms(dtype: str) -> None:
    m = Matrix(dtype, None)
    values = m.values.view(dtype)
    special = [0, np.inf, np.nan, -1, -2, 1e-30, -0.9999, -1e-9, 1e30, 1, 3e-5, 0.4142, 0.4143, -0.2928, -0.2929]
    values[: len(special)] = special
    with np.errstate(all="ignore"):
        wanted = np.log1p(values.astype("f8"))
    columns, job = m.columns()
    columns[job + k.SCALING] = 2
    launch(k.scale_rows, m.values, columns, job)
    np.testing.assert_allclose(m.values.view(dtype), wanted, rtol=1e-7 if dtype == "f4" else 5e-16)


@pytest.mark.parametrize("chosen", [[5, 16, 0], [3, 3, 9, 3], [], None])
@pytest.mark.parametrize("dtype", ["u1", "f4", "c16"])
def test_take_chosen(dtype: str, chosen: list[int] | None) -> None:
    m = Matrix(dtype, chosen)
    wanted = m.dense if chosen is None else m.dense[:, np.array(chosen, int)]
    columns, job = m.columns()
    counts = np.diff(m.offsets)
    if chosen is not None:
        launch(k.count_chosen, m.indices, columns, job)
        at = int(columns[job + k.NEW])
        counts = columns[at : at + ROWS].copy()
    np.testing.assert_array_equal(counts, (wanted != 0).sum(axis=1))
    total = int(counts.sum())
    if not total:
        return
    new_values = guarded(np.zeros(total * m.itemsize // m.word, f"u{m.word}"))
    new_indices = guarded(np.full(total, -1, np.int32))
    columns, job = m.columns(new=np.cumsum(counts) - counts, shift=4)
    launch(k.take_chosen, m.values, m.indices, new_values, new_indices, columns, job)
    found = np.zeros_like(wanted)
    row = np.repeat(np.arange(ROWS), counts)
    found[row, new_indices] = new_values.view(dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("changes", "flags"),
    [({}, (0, 0)), ({0: -1}, (1, 0)), ({-1: COLUMNS}, (1, 0)), ({-1: 0}, (0, 1)), ({6: -(2**31), -1: 0}, (1, 1))],
)
def test_check_rows(changes: dict[int, int], flags: tuple[int, int]) -> None:
    m = Matrix("f4", None)
    for place, index in changes.items():
        m.indices[place] = index
    for shift in (3, 4):
        columns, job = m.columns(shift=shift)
        launch(k.check_rows, m.indices, columns, job)
        at = int(columns[job + k.FLAGS])
        assert columns[at] == flags[0]
        # Where an index is no column, the order may be wrong, too.
        assert columns[at + 1] == flags[1] or flags[0]
