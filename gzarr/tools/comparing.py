"""Whether two arrays in memory have the same elements, bit by bit; objects by value."""

from __future__ import annotations

import pickle
from types import NoneType
from typing import Any, Final

import numpy as np

from ..arrays.host_copies import host_copy
from ..reasons import pass_on

#: Types whose objects are the same if they are equal.
_PLAIN: Final = {str, bytes, int, float, bool, NoneType}


def identical(a: Any, b: Any) -> bool:
    """Return whether two NumPy or CuPy arrays of the same shape and dtype are bitwise equal.

    Objects are compared by value, with NaN equal to itself. Padding between the fields of records is ignored.
    """
    one, other = (host_copy(array) if hasattr(array, "get") else array for array in (a, b))
    if one.dtype.fields is not None:
        return all(identical(one[name], other[name]) for name in one.dtype.names)
    if one.dtype.hasobject:
        return _all_same(one.ravel().tolist(), other.ravel().tolist())
    if not one.size or not one.dtype.itemsize:
        return True
    one, other = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    return np.array_equal(one, other)


def _all_same(a: list[Any], b: list[Any]) -> bool:
    kinds = list(map(type, a))
    # As most are: no call for each. What is not equal may be NaN.
    if _PLAIN.issuperset(kinds) and kinds == list(map(type, b)) and a == b:
        return True
    return all(map(_same_objects, a, b))


def _same_objects(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and identical(a, b)
    if type(a) is type(b) and isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same_objects, a, b))
    if type(a) is type(b) and isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_objects(a[name], b[name]) for name in a)
    return type(a) is type(b) and (_are_equal(a, b) or _are_pickled_alike(a, b))


def _are_equal(a: Any, b: Any) -> bool:
    # Objects of other libraries may raise anything, or answer with arrays, tables, or what is neither true nor false.
    try:
        return _is_true(a == b) or (_is_true(a != a) and _is_true(b != b))
    except Exception as error:
        pass_on(error)
        return False


def _is_true(answer: Any) -> bool:
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _are_pickled_alike(a: Any, b: Any) -> bool:
    """Return whether two objects that have no equality, or another one than that of their values, are stored alike."""
    # Objects of other libraries may refuse with anything. What is not known to be alike counts as different.
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception as error:
        pass_on(error)
        return False
