"""Variables of xarray on a GPU: read there, masked and scaled there, chunked as arrays of the GPU.

xarray's own decoding copies elements with ``np.array``, which CuPy refuses, and tells dask that all lazily read arrays
are NumPy's. So xarray decodes a variable that stands for the same array in host memory, which says what its attributes
and its dtype become, and the elements are decoded here, by the same steps.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pandas as pd
import xarray as xr
from xarray.core import indexing

from .xarray_arrays import StoredArray

if TYPE_CHECKING:
    import gzarr

#: Kinds of dtypes that GPUs have.
_KINDS: Final = "biufc"


def belongs_on_device(stored: xr.Variable, decoded: xr.Variable) -> bool:
    """Return whether a data variable is of numbers, stored and decoded; strings and times stay on the host."""
    return stored.dtype.kind in _KINDS and decoded.dtype.kind in _KINDS and stored.dims == decoded.dims


@dataclass(frozen=True)
class Masking:
    """What becomes of stored elements: the steps of xarray's ``CFMaskCoder`` and ``CFScaleOffsetCoder``.

    Attributes
    ----------
    dtype
        Dtype of the results.
    integers
        Dtype as which stored integers are read (``_Unsigned``), or None for their own.
    fill_values
        Elements that become NaN, after conversion to ``dtype``.
    scale_factor, add_offset
        What elements are multiplied by, and what is added then; None for nothing.
    """

    dtype: np.dtype[Any]
    integers: np.dtype[Any] | None = None
    fill_values: tuple[Any, ...] = ()
    scale_factor: Any = None
    add_offset: Any = None

    @classmethod
    def of(cls, stored: xr.Variable, decoded: xr.Variable) -> Self:
        """Return what the attributes of a stored variable ask for; ``decoded`` is what xarray made of it."""
        attributes, dtype = stored.attrs, stored.dtype
        fills = {}
        for name in ("missing_value", "_FillValue"):
            # xarray drops those that make no sense.
            if name in attributes and name in decoded.encoding:
                fills[name] = [value for value in np.ravel(attributes[name]) if not pd.isnull(value)]
        integers = None
        other = {("i", "true"): "u", ("u", "false"): "i"}.get((dtype.kind, attributes.get("_Unsigned", "")))
        if other is not None:
            integers = np.dtype(f"{other}{dtype.itemsize}")
            if "_FillValue" in fills:
                fills["_FillValue"] = [_as_integer(value, dtype, integers) for value in fills["_FillValue"]]
        scale, offset = (_scalar(attributes.get(name)) for name in ("scale_factor", "add_offset"))
        values = tuple({value for found in fills.values() for value in found})
        return cls(decoded.dtype, integers, values, scale, offset)

    def apply(self, elements: Any) -> Any:
        """Return decoded elements: an array of the same kind and shape, on the same device.

        Parameters
        ----------
        elements
            New array of CuPy, or one like it.
        """
        device = getattr(elements, "device", None)
        with device if hasattr(device, "__enter__") else contextlib.nullcontext():
            if self.integers is not None:
                elements = elements.view(self.integers)
            if elements.dtype != self.dtype:
                elements = elements.astype(self.dtype)
            masks = [elements == value for value in self.fill_values]
            for mask in masks:
                elements[mask] = np.nan
            if self.scale_factor is not None:
                elements *= self.scale_factor
            if self.add_offset is not None:
                elements += self.add_offset
        return elements


def _as_integer(value: Any, dtype: np.dtype[Any], integers: np.dtype[Any]) -> Any:
    return np.array(value, dtype=dtype).view(integers).item()


def _scalar(value: Any) -> Any:
    return np.asarray(value).item() if np.ndim(value) else value


class DeviceArray(StoredArray):
    """An array that is read to a device, and decoded there, when it is indexed."""

    __slots__ = ("masking",)

    def __init__(self, array: gzarr.Array, masking: Masking) -> None:
        super().__init__(array)
        self.masking = masking
        self.dtype = masking.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read and decode a selection; see :meth:`StoredArray.__getitem__`."""
        return self.masking.apply(super().__getitem__(key))


class DeviceVariable(xr.Variable):  # type: ignore[misc]
    """A variable whose elements are read to a device; in chunks of dask too, which know that they are there."""

    __slots__ = ()

    @classmethod
    def decoded(cls, array: gzarr.Array, masking: Masking, variable: xr.Variable) -> Self:
        """Return a decoded variable with elements on the array's device."""
        data = indexing.LazilyIndexedArray(DeviceArray(array, masking))
        return cls(variable.dims, data, variable.attrs, variable.encoding, fastpath=True)

    def chunk(self, *args: Any, **options: Any) -> xr.Variable:
        """Return the variable as a chunked array; see :meth:`xarray.Variable.chunk`."""
        data = self._data
        if isinstance(data, indexing.ExplicitlyIndexed):
            # What is explicitly indexed, xarray declares to be NumPy's.
            data = _Blocks(data)
        plain = xr.Variable(self._dims, data, self._attrs, self._encoding, fastpath=True)
        return plain.chunk(*args, **options)


class _Blocks:
    """A lazily read array on a device, as :func:`dask.array.from_array` takes one."""

    __slots__ = ("array", "dtype", "ndim", "shape")

    def __init__(self, array: indexing.ExplicitlyIndexed) -> None:
        self.array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, key: Any) -> Any:
        found = indexing.ImplicitToExplicitIndexingAdapter(self.array, indexing.OuterIndexer)[key]
        return found.get_duck_array() if hasattr(found, "get_duck_array") else found

    def __array_function__(self, *args: Any, **options: Any) -> Any:
        # That it is here tells dask not to make NumPy arrays of the blocks.
        return NotImplemented
