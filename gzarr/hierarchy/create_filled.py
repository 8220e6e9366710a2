"""Creation of arrays from data, filled with one value, or like other arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arrays.array import Array
from ..arrays.view import ArrayView
from ..metadata.conventions import MASK_ATTRIBUTE, Conventions
from ..metadata.formats import DEFAULT_FORMAT, FORMATS, check_zarr_format, format_of_copies
from ..metadata.to_documents import SourceAttributes, SourceNames, check_shape
from .array_spec import UNDEFINED, arguments_of, data_type
from .create import create_array
from .new_nodes import arguments_of_data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ..metadata.conventions import Meaning
    from ..stores.resolve import StoreLike
    from .keywords import EmptyArguments, FilledArguments, FilledLikeArguments, LikeArguments


def array(data: Any, store: StoreLike | None = None, **arguments: Unpack[LikeArguments]) -> Array:
    """Create an array from data.

    Parameters
    ----------
    data
        As for :func:`create_array`. From a :class:`gzarr.Array`, or a view of one, the new array also takes chunks,
        shards, codecs, fill value, dimension names, attributes and format. In another format, attributes and fill value
        are those of a copy, so that xarray masks the same elements. With another ``dtype``, the fill value is not
        taken: it is zero, or null in version 2 if dimensions have names.
    store
        As for :func:`create_array`; None for memory.
    **arguments
        Arguments of :func:`create_array`, which override those taken from ``data``.

    Returns
    -------
    The array, open for reading and writing.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkError
        As for :func:`create_array`.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.array([[1, 2], [3, 4]], chunks=(1, 2))[1].tolist()
    [3, 4]
    """
    data = _array_of(data)
    if isinstance(data, (Array, ArrayView)):
        meaning = meaning_of(data, arguments)
        found = {"attributes": SourceAttributes(meaning.attributes), **_like_stored(data, meaning, arguments)}
        # That of the data; another one is refused.
        found.pop("shape")
        given: dict[str, Any] = {**found, **arguments}
        return create_array({} if store is None else store, data=data, **given)
    return create_array({} if store is None else store, data=data, **arguments)


def empty(
    shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Unpack[EmptyArguments]
) -> Array:
    """Create an array without chunks: its elements have the fill value until they are written.

    Parameters
    ----------
    shape
        Shape in elements.
    store
        As for :func:`create_array`; None for memory.
    dtype, **arguments
        As for :func:`create_array`.

    Returns
    -------
    The array.
    """
    return create_array({} if store is None else store, shape=shape, dtype=dtype, **arguments)


def zeros(
    shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Unpack[FilledArguments]
) -> Array:
    """Create an array of zeros. No chunk is stored.

    Parameters
    ----------
    shape, store, dtype, **arguments
        As for :func:`empty`.

    Returns
    -------
    The array.
    """
    return full(shape, 0, store, dtype=dtype, **arguments)


def ones(
    shape: Any, store: StoreLike | None = None, *, dtype: Any = "float64", **arguments: Unpack[FilledArguments]
) -> Array:
    """Create an array of ones. No chunk is stored: one is the fill value.

    Parameters
    ----------
    shape, store, dtype, **arguments
        As for :func:`empty`.

    Returns
    -------
    The array.
    """
    return full(shape, 1, store, dtype=dtype, **arguments)


def full(
    shape: Any,
    fill_value: Any,
    store: StoreLike | None = None,
    *,
    dtype: Any = "float64",
    **arguments: Unpack[FilledArguments],
) -> Array:
    """Create an array of one value. No chunk is stored.

    Parameters
    ----------
    shape
        Shape in elements.
    fill_value
        The value, which is the fill value of the array.
    store, dtype, **arguments
        As for :func:`empty`.

    Returns
    -------
    The array.
    """
    return empty(shape, store, dtype=dtype, fill_value=fill_value, **arguments)


def empty_like(array: Any, store: StoreLike | None = None, **arguments: Unpack[LikeArguments]) -> Array:
    """Create an array like another one, without its elements and attributes.

    Parameters
    ----------
    array
        A :class:`gzarr.Array`, or a view of one, for its shape, data type, chunks, shards, codecs, fill value,
        dimension names and format; or any other array or nested lists, for shape and data type.
    store
        As for :func:`create_array`; None for memory.
    **arguments
        Arguments of :func:`create_array`, which override those taken from ``array``.

    Returns
    -------
    The array.
    """
    return create_array({} if store is None else store, **arguments_like(array, arguments))


def arguments_like(array: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of :func:`create_array` for an array like another one; some are given."""
    return {**_like(array, arguments), **arguments}


def zeros_like(array: Any, store: StoreLike | None = None, **arguments: Unpack[FilledLikeArguments]) -> Array:
    """Create an array of zeros like another one.

    Parameters
    ----------
    array, store, **arguments
        As for :func:`empty_like`.

    Returns
    -------
    The array.
    """
    return full_like(array, 0, store, **arguments)


def ones_like(array: Any, store: StoreLike | None = None, **arguments: Unpack[FilledLikeArguments]) -> Array:
    """Create an array of ones like another one.

    Parameters
    ----------
    array, store, **arguments
        As for :func:`empty_like`.

    Returns
    -------
    The array.
    """
    return full_like(array, 1, store, **arguments)


def full_like(
    array: Any, fill_value: Any, store: StoreLike | None = None, **arguments: Unpack[FilledLikeArguments]
) -> Array:
    """Create an array of one value like another array.

    Parameters
    ----------
    array
        As for :func:`empty_like`.
    fill_value
        The value, which is the fill value of the array.
    store, **arguments
        As for :func:`empty_like`.

    Returns
    -------
    The array.
    """
    return empty_like(array, store, fill_value=fill_value, **arguments)


def _array_of(value: Any) -> Any:
    """Return the array of a level of an image; other values as they are."""
    array = getattr(value, "array", None)
    return array if isinstance(array, Array) else value


def _like(array: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    array = _array_of(array)
    if isinstance(array, (Array, ArrayView)):
        meaning = meaning_of(array, arguments)
        # Elements that are not there are fill values, also those that xarray masks.
        meaning.fill_value = array.metadata.fill_value
        return _like_stored(array, meaning, arguments)
    # Its elements are not wanted, so it does not matter which of them are masked.
    zarr_format = arguments.get("zarr_format", DEFAULT_FORMAT)
    _, shape, found = arguments_of_data(array, None, {}, zarr_format, fill_masked=True)
    return {"shape": shape, "dtype": found["dtype"]}


def meaning_of(array: Array | ArrayView, arguments: Mapping[str, Any]) -> Meaning:
    """Return what an array like another one says of its elements; as in a copy, but nothing is refused."""
    before, metadata = array.zarr_format, array.metadata
    after, dtype = arguments.get("zarr_format", format_of_copies(before)), arguments.get("dtype")
    check_zarr_format(after, new=True)
    meaning = Conventions(before, after, {"": metadata}).of_array("", metadata)
    if metadata.dimension_names is not None and meaning.dimension_names is None:
        # Some have none, which is refused where the format needs all.
        meaning.dimension_names = metadata.dimension_names
    if dtype is not None and data_type(dtype, after)[0].kind != metadata.dtype.kind:
        # It is in the notation of another data type.
        meaning.attributes.pop(MASK_ATTRIBUTE, None)
    return meaning


def _like_stored(array: Array | ArrayView, meaning: Meaning, arguments: Mapping[str, Any]) -> dict[str, Any]:
    result = arguments_of(array.metadata)
    if isinstance(array, ArrayView):
        result |= array._layout()
    result["zarr_format"] = format_of_copies(array.zarr_format)
    result["dimension_names"] = meaning.dimension_names
    result["fill_value"] = UNDEFINED if meaning.fill_value is None else meaning.fill_value
    if "shape" in arguments and check_shape(arguments["shape"]) != array.shape:
        for name in ("chunks", "shards", "dimension_names"):
            if len(check_shape(arguments["shape"])) != array.ndim:
                result.pop(name)
    if "dtype" in arguments or any(name in arguments for name in ("filters", "serializer", "compressors")):
        # Codecs depend on the dtype.
        result.pop("codecs")
    if arguments.get("dtype") is not None:
        result.pop("fill_value")
        zarr_format = arguments.get("zarr_format", result["zarr_format"])
        names = arguments.get("dimension_names", result.get("dimension_names"))
        if names is not None and not FORMATS[zarr_format].features.mask_attribute:
            # xarray would mask elements that equal it.
            result["fill_value"] = UNDEFINED
    if result.get("dimension_names") is not None:
        result["dimension_names"] = SourceNames(result["dimension_names"])
    return result
