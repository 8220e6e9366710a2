"""Creation of arrays and groups in a writable store. Everything is checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arrays.array import Array
from ..arrays.elements import all_of, as_data, type_on_device
from ..arrays.objects import TEXTS, object_codec
from ..documents.json import quote
from ..dtypes.properties import native
from ..errors import ArgumentError, NodeTypeError
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import check_shape, plain
from ..nodes.change import hold_documents
from ..nodes.create import check_name, inspect_location, write_new_array, write_new_group
from ..stores.locks import hold_node
from .array_spec import ArrayArguments, check_names, data_type, new_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.request import Missing, Verify
    from ..metadata.model import ZarrFormat
    from ..stores.base import Store


def new_array(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    *,
    overwrite: bool,
    device: str,
    missing: Missing,
    verify: Verify = "none",
    write_empty_chunks: bool,
    fill_masked: bool = False,
    shape: Any,
    data: Any,
    arguments: ArrayArguments,
) -> Array:
    """Create an array in a writable store and write its data; parameters are those of ``create_array``."""
    check_zarr_format(zarr_format)
    check_names(arguments)
    if data is not None:
        data, shape, arguments = arguments_of_data(data, shape, arguments, zarr_format, fill_masked=fill_masked)
    elif shape is None:
        raise ArgumentError("a new array needs a shape (or data)")
    # Arguments first: checking them needs no store.
    metadata = new_metadata(path, shape, zarr_format, **arguments)
    if data is not None:
        data = all_of(data, metadata, f"/{path}", fill_masked=fill_masked)
    # The node is held until its data is written, so that nobody replaces the node and gets a mixture of data.
    with hold_node(store, path):
        with hold_documents(store, path):
            location = inspect_location(store, path, zarr_format)
            check_name(path, location, zarr_format)
            if location.layout is not None:
                metadata = new_metadata(path, shape, zarr_format, layout=location.layout, **arguments)
            array = Array(
                metadata,
                store,
                path,
                device=device,
                missing=missing,
                verify=verify,
                mode="r+",
                write_empty_chunks=write_empty_chunks,
            )
            write_new_array(store, path, metadata, location, overwrite=overwrite)
        if data is not None and metadata.size:
            array[...] = data
    return array


def new_group(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    *,
    attributes: Mapping[str, Any] | None,
    overwrite: bool,
) -> GroupMetadata:
    """Create a group in a writable store; return its metadata."""
    format = FORMATS[zarr_format]
    if not format.features.groups:
        raise ArgumentError(f"{format.title} has arrays only; a group needs zarr_format=2 or 3")
    plain_attributes = plain({} if attributes is None else attributes)
    with hold_node(store, path), hold_documents(store, path):
        location = inspect_location(store, path, zarr_format)
        check_name(path, location, zarr_format)
        document = format.new_document(location.layout)
        metadata = GroupMetadata(attributes=plain_attributes, zarr_format=zarr_format, document=document)
        write_new_group(store, path, metadata, location, overwrite=overwrite)
    return metadata


def arguments_of_data(
    data: Any, shape: Any, arguments: ArrayArguments, zarr_format: ZarrFormat, *, fill_masked: bool = False
) -> tuple[Any, tuple[int, ...], ArrayArguments]:
    """Return data as an array, with the shape and the other arguments, including dtype, of the array for it."""
    dtype = arguments.get("dtype")
    if dtype is None and isinstance(data, Array) and data.dtype.hasobject:
        dtype = TEXTS.get(object_codec(data.metadata.codecs) or "", object)
    wanted = None if dtype is None else data_type(dtype, zarr_format)[0]
    data = as_data(data, wanted, "data", None if shape is None else len(check_shape(shape)), fill_masked=fill_masked)
    if shape is not None and check_shape(shape) != tuple(data.shape):
        raise ArgumentError(f"shape {quote(shape)} differs from the shape of the data, {tuple(data.shape)}")
    if dtype is None:
        on_device = type_on_device(data)
        dtype = data.dtype if on_device is None else on_device
        if dtype.hasobject and dtype.fields is None:
            kinds = {type(item) for item in data.flat}
            if kinds <= {str} or kinds <= {bytes}:
                dtype = bytes if bytes in kinds else str
    return data, tuple(data.shape), cast("ArrayArguments", {**arguments, "dtype": dtype})


def check_required(array: Array, shape: Any, dtype: Any, *, exact: bool) -> Array:
    """Check and return an existing array: it must have the shape and dtype that ``require_array`` asked for.

    Raises
    ------
    NodeTypeError
        If shape or dtype differ.
    """
    if shape is not None and check_shape(shape) != array.shape:
        raise NodeTypeError(f"{array.name} in {array.store!r} has shape {array.shape}, not {check_shape(shape)}")
    if dtype is None:
        return array
    stored, text, _ = data_type(dtype, array.zarr_format)
    wanted, found = native(stored), object_codec(array.metadata.codecs)
    if wanted.hasobject or array.dtype.hasobject:
        # dtype=object stands for objects of any kind.
        same = wanted == array.dtype and text in (None, found)
    else:
        same = wanted == array.dtype if exact else np.can_cast(wanted, array.dtype)
    if not same:
        names = [
            TEXTS[codec].__name__ if codec in TEXTS else str(t) for t, codec in ((array.dtype, found), (wanted, text))
        ]
        raise NodeTypeError(f"{array.name} in {array.store!r} has elements of {names[0]}, not {names[1]}")
    return array
