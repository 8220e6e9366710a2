"""Lists of many items are looked at without a call of Python for each of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.dtypes.masks import has_masked
from gzarr.tools.comparing import identical

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 2000
MASKED = np.ma.array([1, 2], mask=[False, True])


def calls(function: Callable[[], Any]) -> int:
    """Return how many functions of Python are called."""
    found: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: found.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(before)
    return len(found)


def objects(items: list[Any]) -> Any:
    return np.fromiter(items, object, len(items))


ROWS: dict[str, Any] = {
    "tuples": [(i, i + 1) for i in range(MANY)],
    "lists of tuples": [[(i, i + 1)] for i in range(MANY)],
    "tuples of arrays": [(i, np.arange(2)) for i in range(MANY)],
}


@pytest.mark.parametrize("case", ROWS)
def test_masks_are_looked_for(case: str) -> None:
    assert calls(lambda: has_masked(ROWS[case])) < MANY / 10
    rows = [*ROWS[case]]
    rows[-2] = (1, MASKED)
    assert has_masked(rows)


def test_masks_in_lists_of_several_depths() -> None:
    assert has_masked([1, [2, [3, (MASKED,)]], "a"])
    assert not has_masked([1, [2, [3, (MASKED.data,)]], [], "a"])


def test_raw_bytes() -> None:
    data = np.arange(MANY).view("V8")
    a = gzarr.create_array({}, shape=MANY, dtype="V8", device="cpu")
    a[...] = b""
    assert calls(lambda: a.__setitem__(..., list(data))) < MANY
    assert a[...].tobytes() == data.tobytes()
    # Those of other lengths are taken one by one.
    b = gzarr.create_array({}, shape=3, dtype="V3", device="cpu")
    b[...] = [np.void(b"abc"), np.void(b"d"), b"ef"]
    assert b[...].tobytes() == b"abcd\0\0ef\0"
    with pytest.raises(gzarr.ArgumentError, match="has 4 bytes"):
        b[...] = [np.void(b"abcd")] * 3


PLAIN: dict[str, list[Any]] = {
    "texts": [f"text {i}" for i in range(MANY)],
    "texts and None": [f"text {i}" if i % 9 else None for i in range(MANY)],
    "bytes": [b"%d" % i for i in range(MANY)],
    "numbers": [i / 3 if i % 2 else i + 1000 for i in range(MANY)],
}


@pytest.mark.parametrize("case", PLAIN)
def test_objects_are_compared(case: str) -> None:
    one, other = objects(PLAIN[case]), objects([eval(repr(item)) for item in PLAIN[case]])
    found: list[bool] = []
    assert calls(lambda: found.append(identical(one, other))) < MANY / 10
    assert found == [True]
    other[-1] = "another"
    assert not identical(one, other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1, 2], [1.0, 2], False),
        ([1, 0], [True, False], False),
        ([float("nan"), 1.0], [float("nan"), 1.0], True),
        ([float("nan"), 1.0], [float("nan"), 2.0], False),
    ],
    ids=str,
)
def test_types_count(one: list[Any], other: list[Any], same: bool) -> None:
    assert identical(objects(one), objects(other)) is same
