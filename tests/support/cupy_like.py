"""Arrays that are as strange to NumPy as CuPy's, in the place of a simulated device's, which are NumPy's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from support.simulated_device import DeviceArray

import gzarr
from gzarr.arrays.index import Indexer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.devices import TestedDevice


class _Device:
    """The device of arrays: current inside its ``with`` block."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> _Device:
        self.depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


DEVICE = _Device()


class CupyLike(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that only :meth:`get` brings to the host.

    As in CuPy, ``np.asarray`` of it is an error, so is arithmetic with NumPy's arrays, and no index gives scalars.
    """

    def __init__(self, elements: np.ndarray[Any, Any]) -> None:
        assert type(elements) is np.ndarray
        self._elements = elements

    shape = property(lambda self: self._elements.shape)
    dtype = property(lambda self: self._elements.dtype)
    ndim = property(lambda self: self._elements.ndim)
    size = property(lambda self: self._elements.size)
    nbytes = property(lambda self: self._elements.nbytes)
    device = property(lambda self: DEVICE)

    def get(self) -> np.ndarray[Any, Any]:
        return self._elements.copy()

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, key: Any) -> CupyLike:
        return CupyLike(np.asarray(self._elements[_unwrapped(key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        # CuPy launches kernels on the current device.
        assert DEVICE.depth
        self._elements[_unwrapped(key)] = _unwrapped(value)

    def astype(self, dtype: Any, *, copy: bool = True, **options: Any) -> CupyLike:
        return CupyLike(self._elements.astype(dtype, copy=copy, **options))

    def view(self, dtype: Any) -> CupyLike:
        return CupyLike(self._elements.view(dtype))

    def copy(self) -> CupyLike:
        return CupyLike(self._elements.copy())

    def sum(self, *args: Any, **options: Any) -> CupyLike:
        return _wrapped(self._elements.sum(*args, **options))

    def transpose(self, *axes: Any) -> CupyLike:
        return CupyLike(self._elements.transpose(*axes))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(value, np.ndarray) for value in inputs):
            raise TypeError(f"Unsupported type {np.ndarray}")
        if "out" in options:
            options["out"] = tuple(_unwrapped(value) for value in options["out"])
            assert DEVICE.depth
        found = getattr(ufunc, method)(*map(_unwrapped, inputs), **options)
        return _wrapped(found)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return _wrapped(function(*_unwrapped(args), **{name: _unwrapped(value) for name, value in options.items()}))


def _unwrapped(value: Any) -> Any:
    if isinstance(value, CupyLike):
        return value._elements
    if isinstance(value, tuple | list):
        return type(value)(map(_unwrapped, value))
    return value


def _wrapped(value: Any) -> Any:
    return CupyLike(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value


@contextmanager
def results() -> Iterator[None]:
    """Let reads to a simulated device return such arrays."""
    with _returning(gzarr.Array), _returning(Indexer):
        yield


def _returning(owner: type) -> Any:
    original = owner.read

    def read(self: Any, *args: Any, **options: Any) -> Any:
        found = original(self, *args, **options)
        return CupyLike(found.get()) if isinstance(found, DeviceArray) else found

    return mock.patch.object(owner, "read", read)


@contextmanager
def values(device: TestedDevice) -> Iterator[None]:
    """Let writes take such arrays, as values in the memory of a simulated device."""
    original = gzarr.Array.write

    def write(self: Any, selection: Any, value: Any, **options: Any) -> None:
        if isinstance(value, CupyLike):
            value = device.array(value.get())
        original(self, selection, value, **options)

    with mock.patch.object(gzarr.Array, "write", write):
        yield
