"""Lists with masked elements, where those of masked arrays are filled: refused, with a way out that works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

#: As NumPy makes a floating-point number of it beside a masked element.
LARGE = 2**53 + 1
PART = np.ma.masked_array([1, 2], [False, True])

WAYS: dict[str, Callable[[gzarr.Array, Any], Any]] = {
    "write": lambda a, value: a.write((), value, fill_masked=True),
    "points": lambda a, value: a.vindex.write([0, 1, 2], value, fill_masked=True),
    "many": lambda a, value: a.write_many([()], [value], fill_masked=True),
    "append": lambda a, value: a.append(value, fill_masked=True),
    "create": lambda a, value: gzarr.create_array({}, data=value, fill_masked=True),
    "create with a dtype": lambda a, value: gzarr.create_array({}, data=value, dtype="i8", fill_masked=True),
    "set": lambda a, value: gzarr.array(value, fill_masked=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "value", [[LARGE, np.ma.masked, 3], (1, np.ma.masked, 3), [PART, PART, PART]], ids=["list", "tuple", "arrays"]
)
def test_the_error_says_what_to_pass(way: str, value: Any) -> None:
    a = gzarr.full(3, -1, dtype="i8")
    with pytest.raises(gzarr.ArgumentError, match=r"list has masked elements.*np\.ma\.array\(values, mask=") as caught:
        WAYS[way](a, value)
    assert "or pass fill_masked" not in str(caught.value)
    np.testing.assert_array_equal(a[...], [-1, -1, -1])


def test_what_the_error_says_keeps_every_element() -> None:
    a = gzarr.full(3, -1, dtype="i8")
    a.write((), np.ma.array([LARGE, 0, 3], mask=[False, True, False]), fill_masked=True)
    assert a[...].tolist() == [LARGE, -1, 3]


def test_lists_without_masked_elements_are_written() -> None:
    a = gzarr.full(4, -1, dtype="i8")
    a.write((), [1, 2, LARGE, 4], fill_masked=True)
    assert a[...].tolist() == [1, 2, LARGE, 4]


def test_the_error_without_fill_masked_is_the_general_one() -> None:
    a = gzarr.full(3, -1, dtype="i8")
    with pytest.raises(gzarr.ArgumentError, match="fill_masked=True where that is an argument"):
        a[...] = [1, np.ma.masked, 3]
