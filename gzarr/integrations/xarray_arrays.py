"""Arrays of gzarr as xarray's lazily read arrays."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

if TYPE_CHECKING:
    import gzarr

#: Codecs of strings of any length.
_STRING_CODECS = ("vlen-utf8", "numcodecs.vlen-utf8")


def dtype_in_xarray(array: gzarr.Array) -> np.dtype[Any]:
    """Return the dtype that variables of an array have: strings of any length are NumPy's, not objects."""
    dtype = array.dtype
    if dtype.kind == "O" and array.serializer.to_json().get("name") in _STRING_CODECS:
        return np.dtypes.StringDType()
    return dtype


def dtype_as_stored(array: gzarr.Array) -> np.dtype[Any]:
    """Return the same, but numbers of version 2 have the byte order that their document states, as in zarr-python."""
    dtype = dtype_in_xarray(array)
    if array.zarr_format != 2 or dtype.kind not in "iufc":
        return dtype
    order: Any = str(array.metadata.data_type)[0]
    stored = dtype.newbyteorder(order) if order in "<>" else dtype
    return dtype if stored.isnative else stored


class StoredArray(BackendArray):  # type: ignore[misc]
    """An array that is read when it is indexed.

    Parameters
    ----------
    array
        The array, on any device.
    values
        All its elements, if it has one dimension and they have been read; None to read them when they are used.
    dtype
        Dtype of the results: that of :func:`dtype_in_xarray` by default.
    """

    # xarray takes an attribute ``array`` for another array of its own.
    __slots__ = ("_array", "_values", "dtype", "shape")

    def __init__(self, array: gzarr.Array, values: Any = None, dtype: np.dtype[Any] | None = None) -> None:
        self._array = array
        self._values = values
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = dtype_in_xarray(array) if dtype is None else dtype

    @property
    def stored(self) -> gzarr.Array:
        """The array."""
        return self._array

    def native(self) -> StoredArray:
        """Return the same with results in native byte order, which are read without a copy."""
        return StoredArray(self._array, self._values)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection, given in xarray's way.

        Returns
        -------
        Array on the array's device, of zero dimensions or more.
        """
        found = self._read(key)
        return found if found.dtype == self.dtype else found.astype(self.dtype)

    def _read(self, key: indexing.ExplicitIndexer) -> Any:
        """Return a selection with the dtype of the array."""
        if self._values is not None:
            # A copy, for others get the same elements.
            return np.array(self._values[key.tuple])
        if isinstance(key, indexing.BasicIndexer):
            return self._array.read(key.tuple)
        if isinstance(key, indexing.OuterIndexer):
            return self._array.oindex.read(key.tuple)
        return self._array.vindex.read(key.tuple)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection in another thread; see :meth:`__getitem__`."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # It is a view of a store, of which xarray wants no copy.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._array!r})"
