"""Making arrays and groups, with the names and habits of zarr-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ..arrays.array import Array, check_verify
from ..arrays.device import resolve_device
from ..arrays.elements import all_of, as_data, type_on_device
from ..arrays.objects import TEXTS, object_codec
from ..codecs.choice import AUTO
from ..documents.json import quote
from ..dtypes.properties import native
from ..errors import ArgumentError, NodeTypeError
from ..metadata.formats import FORMATS, check_zarr_format
from ..metadata.model import GroupMetadata
from ..metadata.to_documents import check_shape, plain
from ..nodes.change import hold_documents, writable
from ..nodes.create import check_name, look, place_array, place_group
from ..nodes.reader import NodeReader
from ..stores.keys import join_path, normalize_path
from ..stores.locks import hold_node
from ..stores.resolve import as_store
from .array_spec import ArrayArguments, check_names, data_type, new_metadata
from .group import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.request import Missing, Verify
    from ..metadata.model import ZarrFormat
    from ..stores.base import Store
    from ..stores.resolve import StoreLike


def create_array(
    store: StoreLike,
    shape: Any = None,
    dtype: Any = None,
    *,
    path: str = "",
    name: str | None = None,
    data: Any = None,
    chunks: Any = AUTO,
    shards: Any = None,
    codecs: Any = AUTO,
    filters: Any = AUTO,
    serializer: Any = AUTO,
    compressors: Any = AUTO,
    fill_value: Any = None,
    order: Literal["C", "F"] = "C",
    attributes: Mapping[str, Any] | None = None,
    dimension_names: Any = None,
    chunk_key_encoding: Any = None,
    zarr_format: ZarrFormat = 3,
    overwrite: bool = False,
    device: str = "auto",
    missing: Missing = "fill",
    verify: Verify = "none",
    write_empty: bool = False,
) -> Array:
    """Make an array, and explicit groups above it.

    Parameters
    ----------
    store
        A directory (path or ``file://`` URL), a mutable mapping of keys to bytes, or a store object.
    shape
        In elements; an integer is one dimension. Left out where there is ``data``.
    dtype
        NumPy's (``"float32"``, ``"<f4"``, ``np.uint16``, fields), the name or object of a data type of Zarr v3
        (``"bfloat16"``, ``"int4"``), or ``str`` or ``bytes`` for texts of any length. Big-endian types are stored so.
    path, name
        Path of the array in the store (``name`` is zarr-python's word for it).
    data
        Array to be stored: of NumPy, CuPy, with ``__array__`` or ``__dlpack__``, or lists of elements of ``dtype``
        (records are tuples). Gives ``shape`` and ``dtype`` where these are left out.
    chunks
        Shape of what can be read by itself, of an inner chunk where there are shards: one length a dimension (-1: all),
        or one for all. A list of lengths, and of ``[length, count]`` for runs of them, in place of one makes a
        rectilinear grid (version 3). ``"auto"``: the whole array if it has 1 MiB at most; else its longest side is
        halved, rounded up, until a chunk has 1 MiB at most, so that it has between 512 KiB and 1 MiB; along dimensions
        of length 0, as long as 512 KiB allow.
    shards
        Shape of a shard, a multiple of ``chunks``. None: no shards. ``"auto"``: none for arrays of 128 MiB at most;
        else shards of 64 to 128 MiB.
    codecs
        The whole chain, or what follows its array→bytes codec: codecs of ``array.codecs``, names, objects of version 3
        (``{"name": …, "configuration": …}``), of numcodecs (``{"id": …}``), of zarr-python. ``"auto"``: Blosc with lz4
        and byte shuffle, which reads fastest on either engine; zstd for texts and elements of one byte, which have
        nothing to shuffle. A level that is given is taken at its word. Where none is (``"auto"``, ``"zstd"``, an object
        without its level), large writes through the array that is made try faster searches first, and take one by which
        a sample becomes at most 2 % larger; later, opened arrays take the level in the document at its word.
    filters, serializer, compressors
        The chain in three parts, as in zarr-python; None means no filters, or no compression.
    fill_value
        What elements are until they are written. None: zero, false, NaT, no characters.
    order
        Whether the elements of a chunk are stored in C or Fortran order.
    attributes
        User attributes.
    dimension_names
        A string or None a dimension. Before version 3 they become the attribute ``_ARRAY_DIMENSIONS``, as in xarray.
    chunk_key_encoding
        ``"default"`` or ``"v2"`` in version 3, a separator (``"/"``, ``"."``), or an object with ``name`` and
        ``separator``.
    zarr_format
        3, 2, 1 or ``"3-draft-2022"``.
    overwrite
        Erase the node that is there, with all that is below it. Else it is an error: of several threads that make a
        node at one place, one succeeds, and on local disks also of several processes.
    device, missing, verify
        As for :func:`gzarr.open_array`.
    write_empty
        Whether chunks of nothing but the fill value are stored when they are written.

    Returns
    -------
    The array, to read and write.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the format has no words for something, or if there is a node already and
        ``overwrite`` is False; nothing was changed.
    ReadOnlyError, NodeTypeError, DeviceError
        If the store is read-only, there is an array above ``path``, or the device cannot be used; nothing was changed.
    StoreError, ChunkWriteError
        If the store fails.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array({}, shape=(4, 6), dtype="uint16", chunks=(2, 3), fill_value=7)
    >>> array[1, 2]
    np.uint16(7)
    """
    where = _where(path, name)
    resolve_device(device)
    opened, base = as_store(store, "w" if overwrite else "a")
    where = join_path(base, where)
    target = writable(opened, f"'/{where}'")
    return make_array(
        target,
        where,
        zarr_format,
        overwrite=overwrite,
        device=device,
        missing=missing,
        verify=verify,
        write_empty=write_empty,
        shape=shape,
        data=data,
        arguments=ArrayArguments(
            dtype=dtype,
            chunks=chunks,
            shards=shards,
            codecs=codecs,
            filters=filters,
            serializer=serializer,
            compressors=compressors,
            fill_value=fill_value,
            order=order,
            attributes=attributes,
            dimension_names=dimension_names,
            chunk_key_encoding=chunk_key_encoding,
        ),
    )


def make_array(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    *,
    overwrite: bool,
    device: str,
    missing: Missing,
    verify: Verify = "none",
    write_empty: bool,
    shape: Any,
    data: Any,
    arguments: ArrayArguments,
) -> Array:
    """Make an array in a store that can be changed."""
    check_zarr_format(zarr_format)
    check_names(arguments)
    if data is not None:
        data, shape, arguments = of_data(data, shape, arguments, zarr_format)
    elif shape is None:
        raise ArgumentError("a new array needs a shape (or data)")
    # Arguments first: they may be wrong without the store.
    metadata = new_metadata(path, shape, zarr_format, **arguments)
    if data is not None:
        data = all_of(data, metadata, f"/{path}")
    # The node is held until its data are in it, so that who replaces it does not mix them with others.
    with hold_node(store, path):
        with hold_documents(store, path):
            room = look(store, path, zarr_format)
            check_name(path, room, zarr_format)
            if room.layout is not None:
                metadata = new_metadata(path, shape, zarr_format, layout=room.layout, **arguments)
            array = Array(
                metadata, store, path, device=device, missing=missing, verify=verify, mode="r+", write_empty=write_empty
            )
            place_array(store, path, metadata, room, overwrite=overwrite)
        if data is not None and metadata.size:
            array[...] = data
    return array


def of_data(
    data: Any, shape: Any, arguments: ArrayArguments, zarr_format: ZarrFormat
) -> tuple[Any, tuple[int, ...], ArrayArguments]:
    """Return data as an array, with the shape and the arguments (dtype among them) of the array that it fills."""
    dtype = arguments.get("dtype")
    if dtype is None and isinstance(data, Array) and data.dtype.hasobject:
        dtype = TEXTS.get(object_codec(data.metadata.codecs) or "", object)
    wanted = None if dtype is None else data_type(dtype, zarr_format)[0]
    data = as_data(data, wanted, "data", None if shape is None else len(check_shape(shape)))
    if shape is not None and check_shape(shape) != tuple(data.shape):
        raise ArgumentError(f"shape {quote(shape)} is not that of the data, {tuple(data.shape)}")
    if dtype is None:
        on_device = type_on_device(data)
        dtype = data.dtype if on_device is None else on_device
        if dtype.hasobject and dtype.fields is None:
            kinds = {type(item) for item in data.flat}
            if kinds <= {str} or kinds <= {bytes}:
                dtype = bytes if bytes in kinds else str
    return data, tuple(data.shape), cast("ArrayArguments", {**arguments, "dtype": dtype})


def create_group(
    store: StoreLike,
    *,
    path: str = "",
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    zarr_format: ZarrFormat = 3,
    overwrite: bool = False,
    device: str = "auto",
    missing: Missing = "fill",
    verify: Verify = "none",
) -> Group:
    """Make a group, and explicit groups above it.

    A group that is only implied by the nodes below it becomes an explicit one, which keeps them.

    Parameters
    ----------
    store, path, name, zarr_format, overwrite, device, missing, verify
        As for :func:`create_array`; version 1 has no groups.
    attributes
        User attributes.

    Returns
    -------
    The group, to read and write.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, DeviceError, StoreError
        As :func:`create_array`.
    """
    where = _where(path, name)
    resolve_device(device)
    check_verify(verify)
    check_zarr_format(zarr_format)
    opened, base = as_store(store, "w" if overwrite else "a")
    where = join_path(base, where)
    target = writable(opened, f"'/{where}'")
    return make_group(
        target,
        where,
        zarr_format,
        attributes=attributes,
        overwrite=overwrite,
        device=device,
        missing=missing,
        verify=verify,
    )


def make_group(
    store: Store,
    path: str,
    zarr_format: ZarrFormat,
    *,
    attributes: Mapping[str, Any] | None,
    overwrite: bool,
    device: str,
    missing: Missing,
    verify: Verify = "none",
    reader: NodeReader | None = None,
) -> Group:
    """Make a group in a store that can be changed; nodes below it are read with ``reader``'s permissions."""
    format = FORMATS[zarr_format]
    if not format.features.groups:
        raise ArgumentError(f"{format.title} has arrays only; a group needs zarr_format=2 or 3")
    said = plain({} if attributes is None else attributes)
    with hold_node(store, path), hold_documents(store, path):
        room = look(store, path, zarr_format)
        check_name(path, room, zarr_format)
        document = format.new_document(room.layout)
        metadata = GroupMetadata(attributes=said, zarr_format=zarr_format, document=document)
        place_group(store, path, metadata, room, overwrite=overwrite)
    return Group(metadata, reader or NodeReader(store), path, device=device, missing=missing, verify=verify, mode="r+")


def _where(path: str, name: str | None) -> str:
    where = normalize_path(path)
    if name is not None and (alias := normalize_path(name)) != where:
        if where:
            raise ArgumentError(f"name={name!r} and path={path!r} both say where; give one of them")
        return alias
    return where


# -- what must be there ------------------------------------------------------------------------------------------------


def check_like(array: Array, shape: Any, dtype: Any, *, exact: bool) -> Array:
    """Return an array that is there, if it is what was required.

    Raises
    ------
    NodeTypeError
        If shape or dtype are others.
    """
    if shape is not None and check_shape(shape) != array.shape:
        raise NodeTypeError(f"{array.name} in {array.store!r} has shape {array.shape}, not {check_shape(shape)}")
    if dtype is None:
        return array
    stored, text, _ = data_type(dtype, array.zarr_format)
    wanted, found = native(stored), object_codec(array.metadata.codecs)
    if wanted.hasobject or array.dtype.hasobject:
        # Objects of any kind are asked for by object.
        same = wanted == array.dtype and text in (None, found)
    else:
        same = wanted == array.dtype if exact else np.can_cast(wanted, array.dtype)
    if not same:
        names = [
            TEXTS[codec].__name__ if codec in TEXTS else str(t) for t, codec in ((array.dtype, found), (wanted, text))
        ]
        raise NodeTypeError(f"{array.name} in {array.store!r} has elements of {names[0]}, not {names[1]}")
    return array


def require_group(store: StoreLike, *, path: str = "", **arguments: Any) -> Group:
    """Open the group at ``path`` to read and write, or make it; ``arguments`` are those of :func:`create_group`.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``.
    """
    from .open import open_group

    return open_group(store, path=path, mode="a", **arguments)


def require_array(
    store: StoreLike, *, path: str = "", shape: Any, dtype: Any = None, exact: bool = False, **arguments: Any
) -> Array:
    """Open the array at ``path`` to read and write, or make it.

    Parameters
    ----------
    store, path
        Where it is.
    shape, dtype
        What it must have.
    exact
        Whether ``dtype`` must be the array's; else it must be one that can be stored without loss.
    **arguments
        Of :func:`create_array`, if it is made.

    Returns
    -------
    The array.

    Raises
    ------
    NodeTypeError
        If there is a group at ``path``, or an array of another shape or dtype.
    """
    from .open import open_array

    array = open_array(store, path=path, mode="a", shape=shape, dtype=dtype, **arguments)
    return check_like(array, shape, dtype, exact=exact)
