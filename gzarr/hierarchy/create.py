"""Making arrays and groups, with the names and habits of zarr-python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..arrays.device_choice import resolve_device
from ..arrays.read_options import check_verify
from ..codecs.choice import AUTO
from ..errors import ArgumentError
from ..metadata.formats import check_zarr_format
from ..nodes.change import writable
from ..nodes.reader import NodeReader
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store
from .array_spec import ArrayArguments
from .group import Group
from .new_nodes import new_array, new_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..arrays.array import Array
    from ..engines.request import Missing, Verify
    from ..metadata.model import ZarrFormat
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
    write_empty_chunks: bool = False,
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
        Shape of a shard, a multiple of ``chunks``; lists of lengths make a rectilinear grid of shards, each of whole
        chunks. None: no shards. ``"auto"``: none for arrays of 128 MiB at most; else shards of 64 to 128 MiB.
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
    write_empty_chunks
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
    return new_array(
        target,
        where,
        zarr_format,
        overwrite=overwrite,
        device=device,
        missing=missing,
        verify=verify,
        write_empty_chunks=write_empty_chunks,
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
    metadata = new_group(target, where, zarr_format, attributes=attributes, overwrite=overwrite)
    return Group(metadata, NodeReader(target), where, device=device, missing=missing, verify=verify, mode="r+")


def _where(path: str, name: str | None) -> str:
    where = normalize_path(path)
    if name is not None and (alias := normalize_path(name)) != where:
        if where:
            raise ArgumentError(f"name={name!r} and path={path!r} both say where; give one of them")
        return alias
    return where
