"""Arrays of data, arrays of one value, and arrays like others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arrays.array import Array
from ..metadata.formats import DEFAULT_FORMAT
from ..metadata.to_documents import check_shape
from .array_spec import arguments_of
from .create import create_array
from .new_nodes import arguments_of_data

if TYPE_CHECKING:
    from ..stores.resolve import StoreLike


def array(data: Any, store: StoreLike | None = None, **arguments: Any) -> Array:
    """Make an array of data.

    Parameters
    ----------
    data
        As for :func:`create_array`. Of an array of gzarr, chunks, shards, codecs, fill value, dimension names,
        attributes and format are taken over, too.
    store
        As for :func:`create_array`; None: in memory.
    **arguments
        Of :func:`create_array`, in place of what is taken over.

    Returns
    -------
    The array, to read and write.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkError
        As :func:`create_array`.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.array([[1, 2], [3, 4]], chunks=(1, 2))[1].tolist()
    [3, 4]
    """
    if isinstance(data, Array):
        arguments = {"attributes": dict(data.attrs), **_like(data, arguments), **arguments}
        arguments.pop("shape")
    return create_array({} if store is None else store, data=data, **arguments)


def empty(shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Any) -> Array:
    """Make an array whose elements nobody has set: they are the fill value, which absent chunks have.

    Parameters
    ----------
    shape
        In elements.
    store
        As for :func:`create_array`; None: in memory.
    dtype, **arguments
        As for :func:`create_array`.

    Returns
    -------
    The array.
    """
    return create_array({} if store is None else store, shape=shape, dtype=dtype, **arguments)


def zeros(shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Any) -> Array:
    """Make an array of zeros; parameters are those of :func:`empty`. No chunk is stored."""
    return full(shape, 0, store, dtype=dtype, **arguments)


def ones(shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Any) -> Array:
    """Make an array of ones; parameters are those of :func:`empty`. No chunk is stored: one is the fill value."""
    return full(shape, 1, store, dtype=dtype, **arguments)


def full(
    shape: Any, fill_value: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Any
) -> Array:
    """Make an array of one value, its fill value; the other parameters are those of :func:`empty`."""
    return empty(shape, store, dtype=dtype, fill_value=fill_value, **arguments)


def empty_like(array: Any, store: StoreLike | None = None, **arguments: Any) -> Array:
    """Make an array like another one, without its elements and attributes.

    Parameters
    ----------
    array
        An array of gzarr: shape, data type, chunks, shards, codecs, fill value, dimension names and format are taken
        over. Of any other array, and of lists, shape and data type are.
    store
        As for :func:`create_array`; None: in memory.
    **arguments
        Of :func:`create_array`, in place of what is taken over.

    Returns
    -------
    The array.
    """
    return create_array({} if store is None else store, **{**_like(array, arguments), **arguments})


def zeros_like(array: Any, store: StoreLike | None = None, **arguments: Any) -> Array:
    """Make an array of zeros like another one; as :func:`empty_like`."""
    return full_like(array, 0, store, **arguments)


def ones_like(array: Any, store: StoreLike | None = None, **arguments: Any) -> Array:
    """Make an array of ones like another one; as :func:`empty_like`."""
    return full_like(array, 1, store, **arguments)


def full_like(array: Any, fill_value: Any, store: StoreLike | None = None, **arguments: Any) -> Array:
    """Make an array of one value like another array; as :func:`empty_like`."""
    return empty_like(array, store, fill_value=fill_value, **arguments)


def _like(array: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(array, Array):
        _, shape, found = arguments_of_data(array, None, {}, arguments.get("zarr_format", DEFAULT_FORMAT))
        return {"shape": shape, "dtype": found["dtype"]}
    result = {**arguments_of(array.metadata), "zarr_format": array.zarr_format}
    if "shape" in arguments and check_shape(arguments["shape"]) != array.shape:
        for name in ("chunks", "shards", "dimension_names"):
            if len(check_shape(arguments["shape"])) != array.ndim:
                result.pop(name)
    if "dtype" in arguments or any(name in arguments for name in ("filters", "serializer", "compressors")):
        # Codecs are for one type of elements.
        result.pop("codecs")
    if "dtype" in arguments:
        result.pop("fill_value")
    return result
