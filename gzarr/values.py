"""What a user writes, as elements of an array: from any library's array, broadcast, and never changed on the way."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .dtypes import kind_of
from .errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .results import DeviceResults

#: Kinds of NumPy's own numbers.
_NUMBERS: Final = "biufc"


def as_elements(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], node: str) -> npt.NDArray[Any]:
    """Return a value as an array of a dtype and shape.

    Parameters
    ----------
    value
        A scalar or an array: of NumPy, CuPy (copied to the host), or anything with ``__array__`` or ``__dlpack__``.
    dtype
        In native byte order.
    shape
        That it has to broadcast to. Leading dimensions of 1 may be there besides, as for NumPy.
    node
        Path of the array, for messages.

    Returns
    -------
    An array that may share memory with the value, with strides of 0 where it was broadcast.

    Raises
    ------
    ArgumentError
        If it does not broadcast, or if an element of it is not one of ``dtype``.
    """
    array = _host(value, dtype, node)
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    # Checked and converted before it is broadcast: a scalar is one element.
    elements = _converted(array, dtype, node)
    try:
        return np.broadcast_to(elements, shape)
    except ValueError as error:
        raise ArgumentError(f"{node}: a value of shape {array.shape} does not broadcast to {shape}") from error


def all_elements(
    values: Sequence[Any],
    dtype: np.dtype[Any],
    shapes: Sequence[tuple[int, ...]],
    node: str,
    memory: DeviceResults | None,
) -> tuple[list[Any], DeviceResults | None]:
    """Return several values as arrays, all on a device or all in host memory.

    They stay on the device if all are there, and none has elements that have to be looked at to know whether they are
    elements of ``dtype``: that is done in host memory.

    Parameters
    ----------
    values, dtype, shapes, node
        As for :func:`as_elements`; a shape for each value.
    memory
        The array's device, and the stream on which values that are there can be read; None for the CPU.

    Returns
    -------
    The arrays, and ``memory`` if they are on the device, else None.

    Raises
    ------
    ArgumentError
        As for :func:`as_elements`.
    """
    if memory is not None:
        found = [_exported(value, memory, node) for value in values]
        if all(array is not None and np.can_cast(array.dtype, dtype, "safe") for array in found):
            pairs = zip(found, shapes, strict=True)
            return [_on_device(array, dtype, shape, memory, node) for array, shape in pairs], memory
        with memory.device as device:
            values = [
                value if array is None else device.to_host(array, memory.stream)
                for value, array in zip(values, found, strict=True)
            ]
    return [as_elements(value, dtype, shape, node) for value, shape in zip(values, shapes, strict=True)], None


def _exported(value: Any, memory: DeviceResults, node: str) -> Any:
    """Return a value as an array of a device, or None if it is not there."""
    try:
        with memory.device as device:
            return device.as_array(value, memory.stream)
    except DeviceError:
        raise
    # Whatever another library says about its arrays.
    except Exception as error:
        raise ArgumentError(
            f"{node}: a value of type {type(value).__name__} cannot be taken from its library: {error}"
        ) from error


def _on_device(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], memory: DeviceResults, node: str) -> Any:
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    with memory.device as device:
        if array.dtype != dtype:
            array = device.converted(array, dtype, memory.stream)
        try:
            return device.broadcast(array, shape)
        except ValueError as error:
            raise ArgumentError(f"{node}: a value of shape {array.shape} does not broadcast to {shape}") from error


def _host(value: Any, dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    try:
        if isinstance(value, np.ndarray):
            # Derived classes index, compare and broadcast as they like; a matrix never has less than two dimensions.
            return np.asarray(value)
        if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):
            return np.asarray(value.get())
        if dtype.hasobject and not hasattr(value, "__array__"):
            return _objects(value)
        if hasattr(value, "__array__") or not hasattr(value, "__dlpack__"):
            # Elements of a type that NumPy would not guess: records as tuples, dates as text, bytes.
            plain = kind_of(dtype) in "VMm" and not hasattr(value, "__array__")
            return _guided(value, dtype, node) if plain else np.asarray(value)
        return np.from_dlpack(value)
    except ArgumentError:
        raise
    # Whatever an array of another library, or NumPy, says about a value.
    except Exception as error:
        raise ArgumentError(
            f"{node}: a value of type {type(value).__name__} is not elements of {dtype}: {error}"
        ) from error


def _guided(value: Any, dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return elements of a type that NumPy has to be told: records, raw bytes, moments, durations."""
    if dtype.kind in "Mm":
        # NumPy finds the unit itself; given one, it would wrap what is out of its range around. Integers have none.
        with contextlib.suppress(ValueError, TypeError):
            return np.asarray(value, dtype.kind)
    elif dtype.fields is None:
        # Given a length, NumPy would cut them.
        for item in np.asarray(value, object).flat:
            if isinstance(item, bytes | bytearray) and len(item) > dtype.itemsize:
                raise ArgumentError(f"{node}: {item!r} cannot be stored as {dtype}: it has {len(item)} bytes")
    return np.asarray(value, dtype)


def _objects(value: Any) -> npt.NDArray[Any]:
    """Return objects one by one: a list of lists of texts is two dimensions, a text is one element."""
    if isinstance(value, list | tuple):
        return np.array(value, object)
    single = np.empty((), object)
    single[()] = value
    return single


def _converted(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return elements of a dtype; raise if one would become another."""
    if array.dtype == dtype:
        return array
    if dtype.hasobject:
        return array.astype(object)
    refused = ArgumentError(
        f"{node}: elements of type {array.dtype} are not elements of {dtype}; convert them first, with .astype"
    )
    if array.dtype.hasobject:
        if not array.size:
            return array.astype(dtype)
        try:
            plain = np.asarray(array.tolist())
        # Whatever an object says when NumPy asks what it is.
        except Exception:
            raise refused from None
        if plain.dtype.hasobject or plain.shape != array.shape:
            raise refused
        return _converted(plain, dtype, node)
    if dtype.kind in "mM" and array.dtype.kind == dtype.kind:
        try:
            result = array.astype(dtype, casting="same_kind")
        except TypeError:
            raise refused from None
        # There and back: what is out of a unit's range wraps around, also where NumPy compares two units.
        one_unit = "generic" in (np.datetime_data(array.dtype)[0], np.datetime_data(dtype)[0])
        _check_same(array, result if one_unit else result.astype(array.dtype), dtype, node)
        return result
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    if array.dtype.kind in "SU" and dtype.kind == array.dtype.kind:
        result = array.astype(dtype)
        _check_same(array, result, dtype, node, "a text is longer than the array's elements")
        return result
    if dtype.fields is not None and array.dtype.fields:
        try:
            result = array.astype(dtype)
            _check_same(array, result, dtype, node)
        except TypeError:
            raise refused from None
        return result
    here, there = kind_of(array.dtype), kind_of(dtype)
    if here not in _NUMBERS or there not in _NUMBERS:
        raise refused
    if array.dtype.kind not in _NUMBERS:
        # NumPy's own hold all of ml_dtypes' numbers, and compare with each other.
        return _converted(array.astype({"i": "i8", "u": "u8", "f": "f8", "c": "c16"}[here]), dtype, node)
    if here == "c" and there != "c":
        if (array.imag != 0).any():
            wrong = array[array.imag != 0].flat[0]
            raise ArgumentError(f"{node}: {wrong!r} cannot be stored as {dtype}: it has an imaginary part")
        return _converted(array.real, dtype, node)
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
        if there in "fc":
            # Rounding is what floating-point numbers are for; a number that becomes infinite is lost.
            lost = np.isfinite(array) & ~np.isfinite(result)
            if dtype.kind not in _NUMBERS:
                lost = lost | _has_no_such(array, result)
            if lost.any():
                raise ArgumentError(f"{node}: {array[lost].flat[0]!r} is out of the range of {dtype}")
        else:
            _check_same(array, result if dtype.kind in _NUMBERS else result.astype(np.int64), dtype, node)
    return result


def _has_no_such(array: npt.NDArray[Any], result: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a type of ml_dtypes, without infinities, NaN or a sign, has something else in their place."""
    lost = (np.isfinite(array) != np.isfinite(result)) | (np.isnan(array) != np.isnan(result))
    if not np.isnan(np.array(np.nan).astype(result.dtype)):
        import ml_dtypes

        # Types without NaN stop at their largest number.
        lost |= np.abs(array) > float(ml_dtypes.finfo(result.dtype).max)
    return np.asarray(lost)


def _check_same(
    array: npt.NDArray[Any],
    result: npt.NDArray[Any],
    dtype: np.dtype[Any],
    node: str,
    reason: str = "it is not one of its elements",
) -> None:
    """Raise if what elements became as elements of ``dtype`` is something else."""
    with np.errstate(all="ignore"):
        equal = np.asarray(array == result)
        if array.dtype.kind in "ui" and result.dtype.kind in "ui":
            # Of different signs NumPy may compare as floating-point numbers, or wrap around.
            equal &= (array < 0) == (result < 0)
        if array.dtype.kind in "mM":
            equal |= np.isnat(array) & np.isnat(result)
    if not equal.all():
        wrong = np.atleast_1d(array)[np.atleast_1d(~equal)].flat[0]
        raise ArgumentError(f"{node}: {wrong!r} cannot be stored as {dtype}: {reason}")
