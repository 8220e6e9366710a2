"""Masking and scaling of numbers by CF conventions, on any device."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from xarray.coding.variables import CFScaleOffsetCoder

from .xarray_arrays import StoredArray

if TYPE_CHECKING:
    import xarray as xr
    from xarray.core import indexing

    import gzarr


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
        Elements that become NaN (both parts of complex ones), or, of durations that stay integers, the least integer;
        compared after conversion to ``numbers``.
    scale_factor, add_offset
        What elements are multiplied by, and what is added then; None for nothing.
    numbers
        Dtype in which elements are masked and scaled, or None for that of the results.
    """

    dtype: np.dtype[Any]
    integers: np.dtype[Any] | None = None
    fill_values: tuple[Any, ...] = ()
    scale_factor: Any = None
    add_offset: Any = None
    numbers: np.dtype[Any] | None = None

    @classmethod
    def of(cls, stored: xr.Variable, decoded: xr.Variable) -> Self:
        """Return what the attributes of a stored variable ask for; ``decoded`` is what xarray made of it."""
        attributes, dtype = stored.attrs, stored.dtype.newbyteorder("=")
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
        numbers = None
        if decoded.dtype.kind == "b":
            # The attribute ``dtype`` makes booleans of what has been masked and scaled.
            if scale is not None or offset is not None:
                numbers = CFScaleOffsetCoder().decode(stored).dtype
            else:
                # NaN is true, as are all numbers but 0.
                values = tuple(value for value in values if value == 0)
        return cls(decoded.dtype, integers, values, scale, offset, numbers)

    def apply(self, elements: Any) -> Any:
        """Decode elements.

        Parameters
        ----------
        elements
            New array of NumPy or CuPy, which is overwritten.

        Returns
        -------
        Array of the same kind and shape, on the same device.
        """
        with contextlib.nullcontext() if isinstance(elements, np.ndarray) else elements.device:
            if self.integers is not None:
                elements = elements.view(self.integers)
            dtype = self.dtype if self.numbers is None else self.numbers
            if elements.dtype != dtype:
                elements = elements.astype(dtype)
            masks = [elements == value for value in self.fill_values]
            if masks:
                mask = masks[0]
                for other in masks[1:]:
                    mask |= other
                # One kernel on a device, where ``elements[mask] = ...`` is seven, with a scan. CuPy has it as its own.
                np.copyto(elements, self._masked(dtype), where=mask)
            if self.scale_factor is not None:
                elements *= self.scale_factor
            if self.add_offset is not None:
                elements += self.add_offset
            if dtype != self.dtype:
                elements = elements.astype(self.dtype)
        return elements

    def _masked(self, dtype: np.dtype[Any]) -> Any:
        """Return what masked elements become."""
        found: Any = complex(np.nan, np.nan) if dtype.kind == "c" else np.nan
        if dtype.kind == "i" and self.scale_factor is None and self.add_offset is None:
            # Durations. Others are integers by their scale, and have no place for NaN: an error, as on the host.
            found = np.iinfo(dtype).min
        return dtype.type(found)


def _as_integer(value: Any, dtype: np.dtype[Any], integers: np.dtype[Any]) -> Any:
    return np.array(value, dtype=dtype).view(integers).item()


def _scalar(value: Any) -> Any:
    return np.asarray(value).item() if np.ndim(value) else value


class DecodedArray(StoredArray):
    """An array that is read, and masked and scaled on its device, when it is indexed."""

    __slots__ = ("masking",)

    def __init__(self, array: gzarr.Array, masking: Masking) -> None:
        super().__init__(array, dtype=masking.dtype)
        self.masking: Masking = masking

    def native(self) -> DecodedArray:
        """Return the same with results in native byte order."""
        return DecodedArray(self._array, replace(self.masking, dtype=self.dtype.newbyteorder("=")))

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read and decode a selection; see :meth:`StoredArray.__getitem__`."""
        return self.masking.apply(self._read(key))
