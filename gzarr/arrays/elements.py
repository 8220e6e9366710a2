"""Conversion of values to be written, from any array library, to elements of an array. No value is ever altered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes.masks import has_masked, is_masked_array, refuse_masked
from ..errors import ArgumentError, DeviceError
from ..reasons import pass_on, reason_of
from .casting import casts_safely
from .conversion import (
    as_read,
    fitted,
    is_indexed,
    misfit,
    on_host,
    refuse_masked_list,
    states_its_type,
    taken,
)
from .objects import ObjectType, as_objects, object_type_of
from .tensors import exported_tensor, is_tensor, tensor_on_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..metadata.model import ArrayMetadata
    from .outputs import DeviceResults


def as_elements(
    value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], node: str, object_type: ObjectType | None = None
) -> npt.NDArray[Any]:
    """Return a value as an array of a dtype and shape.

    Parameters
    ----------
    value
        Scalar or array: NumPy, CuPy (copied to the host), or any object with ``__array__`` or ``__dlpack__``.
    dtype
        Target dtype, in native byte order.
    shape
        Target shape, in elements. As in NumPy, the value may have additional leading dimensions of length 1.
    node
        Path of the array, for messages.
    object_type
        Type of elements that are Python objects or categories; None for any.

    Returns
    -------
    An array that may share memory with the value, with strides of 0 where it was broadcast.

    Raises
    ------
    ArgumentError
        If the value does not broadcast, or if ``dtype`` cannot hold one of its elements.
    ChunkError, StoreError
        If the value is an array in a store or a file, and cannot be read.
    """
    # A list or an array can itself be an element, but not where elements are strings.
    ndim = None if object_type is None or object_type.is_text else len(shape)
    array = on_host(value, dtype, node, ndim)
    if ndim == 0 and array.ndim and not array.dtype.hasobject:
        array = as_objects([array], ())
    return fitted(array, dtype, shape, node, object_type)


def all_elements(
    values: Sequence[Any],
    dtype: np.dtype[Any],
    shapes: Sequence[tuple[int, ...]],
    node: str,
    memory: DeviceResults | None,
    object_type: ObjectType | None = None,
) -> tuple[list[Any], DeviceResults | None]:
    """Return several values as arrays, either all on the device or all in host memory.

    They stay on the device if all of them are there and their dtypes cast safely to ``dtype``. Otherwise the elements
    have to be checked one by one, which is done in host memory.

    Parameters
    ----------
    values, dtype, shapes, node, object_type
        As for :func:`as_elements`; one shape for each value.
    memory
        Device of the array, and the stream on which values on that device can be read; None for the CPU.

    Returns
    -------
    The arrays, and ``memory`` if they are on the device, else None.

    Raises
    ------
    ArgumentError
        As for :func:`as_elements`.
    """
    if memory is not None:
        found = [exported(value, memory, node) for value in values]
        if all(array is not None and casts_safely(array.dtype, dtype) for array in found):
            pairs = zip(found, shapes, strict=True)
            return [_on_device(array, dtype, shape, memory, node) for array, shape in pairs], memory
        with memory.device as device:
            values = [
                value if array is None else device.to_host(array, memory.stream)
                for value, array in zip(values, found, strict=True)
            ]
    return [
        as_elements(value, dtype, shape, node, object_type) for value, shape in zip(values, shapes, strict=True)
    ], None


def all_of(data: Any, metadata: ArrayMetadata, node: str, *, fill_masked: bool = False) -> Any:
    """Return data as the elements of a whole array; data on a device stay there if they have the array's dtype."""
    if fill_masked:
        data = filled(data, metadata.dtype, metadata.absent_value, node, object_type_of(metadata))
    found = type_on_device(data)
    # NumPy treats None as its default dtype, so a comparison alone would not do.
    if found is not None and found == metadata.dtype:
        return data
    return as_elements(data, metadata.dtype, metadata.shape, node, object_type_of(metadata))


def type_on_device(value: Any) -> np.dtype[Any] | None:
    """Return the dtype of a CUDA array of any library, or None for any other value.

    Raises
    ------
    ArgumentError
        If its library refuses to export the array.
    """
    dtype = None
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None and is_tensor(value):
            dtype = exported_tensor(value)[1]
    # For example PyTorch, for a tensor that requires gradients.
    except Exception as error:
        raise ArgumentError(f"a value of type {type(value).__name__} cannot be taken: {reason_of(error)}") from error
    if interface is None:
        return None
    if dtype is not None:
        return dtype
    return value.dtype if isinstance(value.dtype, np.dtype) else np.dtype(interface["typestr"])


def as_data(
    value: Any, dtype: np.dtype[Any] | None, node: str, ndim: int | None = None, *, fill_masked: bool = False
) -> Any:
    """Return a value as an array-like with a shape and a NumPy dtype.

    Parameters
    ----------
    value
        Any value. Arrays of numbers, in memory or not, are returned unchanged, and so are arrays on a device.
    dtype
        Intended dtype of the elements; None to take it from the value.
    node
        Path of the array, for messages.
    ndim
        Number of dimensions, if known: lists nested more deeply are elements.
    fill_masked
        Whether a masked array may be returned, also of nulls, whose masked elements will be filled (:func:`filled`).

    Raises
    ------
    ArgumentError
        If the value is ragged, has elements that are not of ``dtype`` or masked ones, or is not exported by its
        library.
    """
    found = getattr(value, "dtype", None)
    if (
        isinstance(found, np.dtype)
        and getattr(value, "shape", None) is not None
        and (isinstance(value, np.ndarray) or not found.hasobject)
    ):
        if not fill_masked:
            refuse_masked(value, node)
        return value
    if type_on_device(value) is not None:
        return value
    return taken(value, dtype, node, ndim, fills=True) if fill_masked else on_host(value, dtype, node, ndim)


def with_type(data: Any, node: str) -> tuple[Any, np.dtype[Any]]:
    """Return data of :func:`as_data`, and the dtype of its elements, which need not be the one that it states.

    Variables of netCDF4 state the dtype of packed numbers, and proxies of nibabel that of numbers to be scaled. A
    part without elements tells what they give; where it does not, the data are returned in memory.

    Parameters
    ----------
    data
        The data.
    node
        Path of the array, for messages.

    Raises
    ------
    ArgumentError
        If the data have to be read, and cannot be.
    """
    found = type_on_device(data)
    if found is not None:
        return data, found
    if states_its_type(data):
        return data, data.dtype
    part: Any = None
    try:
        part = data[:0]
        if not isinstance(part, np.ndarray) and hasattr(part, "__array__"):
            part = np.asarray(part)
    # Other libraries may raise anything.
    except Exception as error:
        pass_on(error)
    if isinstance(part, np.ndarray):
        alike = part.dtype == data.dtype or part.dtype.kind in "biufcmM"
        # How long text is, elements tell; and rows of characters may become text of one dimension less.
        if alike and part.ndim == len(data.shape):
            return data, part.dtype
    elif not hasattr(data, "__array__"):
        # Sparse matrices, for example, are refused where their elements are needed.
        return data, data.dtype
    stated, data = data.dtype, taken(data, None, node, None)
    # NumPy has one masked constant, for elements of any dtype.
    return data, stated if data is np.ma.masked else data.dtype


def exported(value: Any, memory: DeviceResults, node: str) -> Any:
    """Return a value as an array on the device, or None if it is elsewhere."""
    dtype = None
    try:
        if is_tensor(value):
            value, dtype = exported_tensor(value)
        with memory.device as device:
            array = device.as_array(value, memory.stream)
        return array if array is None or dtype is None else array.view(dtype)
    except (DeviceError, MemoryError):
        raise
    # Other libraries may raise anything.
    except Exception as error:
        raise ArgumentError(
            f"{node}: a value of type {type(value).__name__} cannot be taken from its library: {reason_of(error)}"
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
            raise misfit(node, array.shape, shape) from error


def in_numpy(value: Any) -> npt.NDArray[Any]:
    """Return what NumPy makes of a value; of tensors of bfloat16 too, and of those on a device.

    Raises
    ------
    TypeError, ValueError, OverflowError
        If NumPy, or the library of the value, makes no array of it.
    """
    try:
        return tensor_on_host(value) if is_tensor(value) else np.asarray(value)
    # PyTorch's own, for example of a tensor that requires gradients, also in a list.
    except RuntimeError as error:
        raise TypeError(reason_of(error)) from error


def filled(value: Any, dtype: np.dtype[Any], fill: Any, node: str, object_type: ObjectType | None = None) -> Any:
    """Return a value with ``fill`` in place of its masked elements and nulls; any other value unchanged.

    Parameters
    ----------
    value, dtype, node, object_type
        As for :func:`as_elements`.
    fill
        Element of ``dtype``; None for zero.

    Raises
    ------
    ArgumentError
        If ``dtype`` cannot hold an element that is not masked, if only some fields of a record are masked, or if a list
        has masked elements.
    """
    refuse_masked_list(value, node)
    if not is_masked_array(value):
        if type_on_device(value) is not None or not (hasattr(value, "__array__") or is_indexed(value)):
            return value
        value = taken(value, dtype, node, None, fills=True)
    if not has_masked(value):
        return value
    mask, elements = np.ma.getmaskarray(value), np.array(np.ma.getdata(value))
    if mask.dtype != bool:
        raise ArgumentError(f"{node}: fields of records are masked; fill them with value.filled(...)")
    # What is below the mask need not be an element of the dtype.
    if fill is None:
        fill = np.zeros((), dtype)[()]
    elif dtype.kind == "O":
        # A list can itself be an element.
        fill = as_objects([fill], ())
    elements[mask] = fill if elements.dtype.hasobject else np.zeros((), elements.dtype)
    elements = np.array(as_read(elements, dtype, node, object_type))
    elements[mask] = fill
    return elements
