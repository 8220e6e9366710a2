"""Variables of xarray on a GPU: read there, masked and scaled there, chunked as arrays of the GPU.

xarray's own decoding copies elements with ``np.array``, which CuPy refuses, and tells dask that all lazily read arrays
are NumPy's. So xarray decodes a variable that stands for the same array in host memory, which says what its attributes
and its dtype become, and the elements are decoded by the same steps (:mod:`.xarray_masking`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import xarray as xr
from xarray.core import indexing

from .xarray_masking import DecodedArray

if TYPE_CHECKING:
    import gzarr

    from .xarray_masking import Masking

#: Kinds of dtypes that GPUs have.
_KINDS: Final = "biufc"


def belongs_on_device(stored: xr.Variable, decoded: xr.Variable) -> bool:
    """Return whether a data variable is of numbers, stored and decoded; strings and times stay on the host."""
    return stored.dtype.kind in _KINDS and decoded.dtype.kind in _KINDS and stored.dims == decoded.dims


class DeviceVariable(xr.Variable):  # type: ignore[misc]
    """A variable whose elements are read to a device; in chunks of dask too, which know that they are there."""

    __slots__ = ()

    @classmethod
    def decoded(cls, array: gzarr.Array, masking: Masking, variable: xr.Variable) -> Self:
        """Return a decoded variable with elements on the array's device."""
        data = indexing.LazilyIndexedArray(DecodedArray(array, masking))
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
