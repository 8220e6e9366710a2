"""Values of ``write_many``, one for each selection, in containers of all kinds; and results for no selections."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = np.array([[5, 6, 7], [8, 9, 10]], "i4")


class Exported:
    """An array of another library, which is iterated over by something else than its rows."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter((0, 0))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(ROWS, dtype)


CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": ROWS.tolist,
    "tuple of arrays": lambda: tuple(ROWS),
    "array": lambda: ROWS,
    "matrix": lambda: ROWS.view(np.matrix),
    "masked": lambda: np.ma.masked_array(ROWS),
    "deque": lambda: deque(ROWS),
    "values of a dictionary": lambda: dict(enumerate(ROWS)).values(),
    "exported": Exported,
    "gzarr": lambda: gzarr.array(ROWS, device="cpu"),
    "torch": lambda: pytest.importorskip("torch").from_numpy(ROWS.copy()),
    "xarray": lambda: pytest.importorskip("xarray").DataArray(ROWS),
    "pandas": lambda: pytest.importorskip("pandas").Series(list(ROWS)),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_one_value_for_each_selection(name: str) -> None:
    a = gzarr.zeros((2, 3), dtype="i4", device="cpu")
    a.write_many([1, 0], CONTAINERS[name]())
    np.testing.assert_array_equal(a[...], ROWS[::-1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: {0: 1, 1: 2},
        lambda: "ab",
        lambda: iter([1, 2]),
        lambda: np.array(1),
        lambda: pytest.importorskip("scipy.sparse").csr_array(ROWS),
        lambda: pytest.importorskip("xarray").Dataset({"a": ("x", [1, 2])}),
    ],
    ids=["dict", "text", "iterator", "no dimensions", "sparse", "dataset"],
)
def test_what_lists_no_values(make: Callable[[], Any]) -> None:
    a = gzarr.zeros((2, 3), dtype="i4", device="cpu")
    with pytest.raises(gzarr.ArgumentError, match="values must be a sequence with one value for each selection, not "):
        a.write_many([0, 1], make())
    assert not a[...].any()


def test_results_for_no_selections() -> None:
    a = gzarr.zeros((2, 3), dtype="i4", device="cpu")
    assert a.read_many([]) == []
    for shape in ((0,), (0, 3), (0, 2, 5)):
        out = np.empty(shape, "i4")
        assert a.read_many([], out=out) is out
    wrong: tuple[tuple[Any, str], ...] = (
        (np.empty((2, 3), "i4"), r"shape \(2, 3\), but the selection gives \(0, 3\)"),
        (np.empty(0, "f4"), "dtype float32"),
        ("text", "must be a numpy.ndarray"),
    )
    for out, message in wrong:
        with pytest.raises(gzarr.OutputError, match=message):
            a.read_many([], out=out)
