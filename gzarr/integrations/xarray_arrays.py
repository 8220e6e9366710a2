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


class StoredArray(BackendArray):  # type: ignore[misc]
    """An array that is read when it is indexed.

    Parameters
    ----------
    array
        The array, on any device.
    values
        All its elements, if it has one dimension and they have been read; None to read them when they are used.
    """

    # xarray takes an attribute ``array`` for another array of its own.
    __slots__ = ("_array", "_values", "dtype", "shape")

    def __init__(self, array: gzarr.Array, values: Any = None) -> None:
        self._array = array
        self._values = values
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = dtype_in_xarray(array)

    @property
    def stored(self) -> gzarr.Array:
        """The array."""
        return self._array

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection, given in xarray's way.

        Returns
        -------
        Array on the array's device, of zero dimensions or more.
        """
        if self._values is not None:
            # A copy, for others get the same elements.
            found = np.array(self._values[key.tuple])
        elif isinstance(key, indexing.BasicIndexer):
            found = self._array.read(key.tuple)
        elif isinstance(key, indexing.OuterIndexer):
            found = self._array.oindex.read(key.tuple)
        else:
            found = self._array.vindex.read(key.tuple)
        return found if self.dtype.kind != "T" else found.astype(self.dtype)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read a selection in another thread; see :meth:`__getitem__`."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # It is a view of a store, of which xarray wants no copy.
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._array!r})"
