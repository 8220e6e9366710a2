"""What may be given where the elements of an array are wanted: arrays of gzarr, and what becomes one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..arrays.not_arrays import refuse_tables
from ..arrays.tensors import is_tensor, tensor_on_host
from ..arrays.view import ArrayView
from ..documents.json import quote
from ..dtypes.masks import refuse_masked
from ..dtypes.nulls import as_masked
from ..errors import ArgumentError
from ..hierarchy.create_filled import array as new_array
from ..hierarchy.group import Group
from ..hierarchy.open import open as open_node
from ..sparse.matrix import Matrix
from ..sparse.view import DenseView
from .columns import inputs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: An array of gzarr or a view of one, a group that stands for one, a path or a URL of either, an array of zarr-python,
#: an OME image, or an array in memory.
Input: TypeAlias = Any

#: What it becomes.
AnyArray: TypeAlias = Array | ArrayView | DenseView

#: What that is, in messages.
KINDS = (
    "an array of gzarr or a view of one, the path or URL of one, an array of zarr-python, an OME image (its level 0), "
    "a sparse matrix of gzarr (its dense rows), a group of AnnData that is one or a categorical column, or an array in "
    "memory (of NumPy, pandas, Polars, PyArrow, PyTorch or JAX, or of xarray with loaded elements)"
)


def array_of(value: Input, device: str, wanted: str) -> AnyArray:
    """Return an array for what can be given as one, on a device if it is not open yet.

    Parameters
    ----------
    value
        What was given. Arrays in memory are copied.
    device
        Device of arrays that are not open.
    wanted
        Who takes what, for an error that ends with what was given.

    Raises
    ------
    ArgumentError
        If it is nothing of the kind.
    NodeNotFoundError, NodeTypeError, MetadataError, StoreError, DeviceError
        If it cannot be opened.
    """
    value = opened(value, device)
    if isinstance(value, AnyArray):
        return value
    if isinstance(value, Group):
        return array_of(inputs_of("", value)[""], device, wanted)
    if isinstance(value, Matrix):
        return value.dense()
    if _is_image(value):
        level: Array = value.level(0)
        return level
    names = _dims(value)
    if _package_of(value) == "xarray":
        value = _elements(value, wanted)
    elif not isinstance(value, np.ndarray) and (hasattr(value, "to_numpy") or hasattr(value, "__dlpack__")):
        value = _of_library(value)
    if isinstance(value, np.ndarray):
        # Names are text; dims of xarray may be anything. There is nothing to decode.
        known = names if names is not None and all(isinstance(name, str) for name in names) else None
        return new_array(value, device=device, codecs=None, dimension_names=known)
    raise ArgumentError(f"{wanted}, not {quote(value)}")


def opened(value: Input, device: str) -> Input:
    """Return the node that a path, a URL, or an array or group of zarr-python names; other values as they are.

    Parameters
    ----------
    value, device
        As for :func:`array_of`.

    Raises
    ------
    NodeNotFoundError, MetadataError, StoreError, DeviceError
        If it cannot be opened.
    """
    if isinstance(value, (str, os.PathLike)):
        return open_node(os.fspath(value), device=device)
    if _package_of(value) == "zarr" and hasattr(value, "store") and hasattr(value, "path"):
        return open_node(value.store, path=value.path, device=device)
    return value


def device_of(values: Sequence[Input]) -> str:
    """Return the device that arrays among others are opened on: that of the first one that is open."""
    for value in values:
        if isinstance(value, AnyArray | Matrix):
            return value.device
        if isinstance(value, Group):
            return resolve_device(value._device)
        if _is_image(value):
            return array_of(value, "auto", "").device
    return "auto"


def names_of(value: Input, array: AnyArray) -> tuple[str | None, ...] | None:
    """Return the names of the axes of what was given and of its array, None without any."""
    if _is_image(value):
        return tuple(value.axes)
    dims = _dims(value)
    return array.dimension_names if dims is None else tuple(map(str, dims))


def _dims(value: Any) -> tuple[Any, ...] | None:
    """Return the names of the dimensions of an array of xarray, None of other values."""
    dims = getattr(value, "dims", None)
    return dims if _package_of(value) == "xarray" and isinstance(dims, tuple) else None


def _elements(value: Any, wanted: str) -> Any:
    """Return the elements of an array of xarray as NumPy's, or whatever it has instead, such as those not loaded."""
    # Of a DataArray, its variable.
    data = getattr(getattr(value, "variable", value), "_data", value)
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(getattr(data, "array", None), pandas.Index):
        return data
    # Coordinates that are an index are in memory always; load() leaves them so.
    elements = np.asarray(data)
    if elements.dtype == object:
        kinds = sorted({type(item).__name__ for item in data.array[:100]})
        raise ArgumentError(
            f"{wanted}; the index {getattr(value, 'name', None)!r} of xarray has Python objects ({', '.join(kinds)}), "
            "which are no elements: give numbers or dates of NumPy in their place"
        )
    return elements


def _of_library(value: Any) -> npt.NDArray[Any]:
    """Return the elements of an array in memory of another library: of columns of a table, or of tensors.

    ``__array__`` alone does not tell that they are in memory: files and lazy arrays have it, too. Nulls are NaN among
    floating-point numbers only: integers beside NaN would be rounded.
    """
    try:
        array = tensor_on_host(value) if is_tensor(value) else as_masked(value)
        refuse_tables(value, array, "data")
        if isinstance(array, np.ma.MaskedArray) and array.dtype.kind != "f":
            refuse_masked(array, "data", value)
        return array.filled(np.nan) if isinstance(array, np.ma.MaskedArray) else array
    # Of elements on a GPU, TypeError; of those with gradients, RuntimeError.
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{quote(value)} cannot be made an array of NumPy: {error}") from error


def _package_of(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _is_image(value: object) -> bool:
    # Of an image without a scale, the levels are an error.
    return all(hasattr(type(value), name) for name in ("levels", "multiscale"))
