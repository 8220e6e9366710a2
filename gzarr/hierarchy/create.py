"""Creation of arrays and groups, with zarr-python's names and conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..arrays.device_choice import resolve_device
from ..arrays.read_options import check_verify
from ..codecs.choice import AUTO
from ..errors import ArgumentError
from ..flags import flag
from ..metadata.formats import check_zarr_format
from ..nodes.change import writable
from ..nodes.reader import NodeReader
from ..stores.base import flushing
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store
from .group import Group
from .keywords import NewArrayArguments
from .new_nodes import NewArray, new_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..arrays.array import Array
    from ..engines.access.access import Missing, Verify
    from ..metadata.model import NewFormat
    from ..stores.resolve import StoreLike


def create_array(  # noqa: PLR0913
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
    zarr_format: NewFormat = 3,
    overwrite: bool = False,
    device: str = "auto",
    missing: Missing = "fill",
    verify: Verify = "none",
    write_empty_chunks: bool | None = None,
    fill_masked: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Array:
    """Create an array, and explicit groups above it.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`.
    shape
        Shape in elements; an integer stands for one dimension. Taken from ``data`` if omitted.
    dtype
        NumPy dtype (``"float32"``, ``"<f4"``, ``np.uint16``, structured dtypes), Zarr v3 data type by name or as an
        object (``"bfloat16"``, ``"int4"``), or ``str`` or ``bytes`` for variable-length elements. Elements are stored
        in the byte order of ``dtype``. Taken from ``data`` if omitted.
    path, name
        Path of the array in the store (``name`` is zarr-python's name for it).
    data
        Array to be stored: NumPy, CuPy, any object with ``__array__`` or ``__dlpack__``, or nested lists of elements of
        ``dtype`` (with tuples as records).
    chunks
        Shape of a chunk (of an inner chunk, in a sharded array) in elements: one length per dimension (-1 for the whole
        dimension), or one integer for all. A list of lengths, or of ``[length, count]`` for runs of them, in place of a
        length makes a rectilinear grid (version 3). ``"auto"``: one chunk for an array of up to 1 MiB; otherwise the
        longest side is halved, rounded up, until a chunk has between 512 KiB and 1 MiB. Along dimensions of length 0,
        chunks are then as long as 512 KiB allow. Strings count as long as some of those in ``data``, at least 16 bytes.
    shards
        Shape of a shard in elements, a multiple of ``chunks``; lists of lengths make a rectilinear grid of shards, each
        of whole chunks. None for no shards. ``"auto"``: no shards for arrays of up to 128 MiB, otherwise shards of 64
        to 128 MiB.
    codecs
        Whole codec chain, or the codecs after its array→bytes codec: codecs of ``array.codecs``, names, or codecs in
        the form of version 3 (``{"name": …, "configuration": …}``), numcodecs (``{"id": …}``) or zarr-python.
        ``"auto"``: Blosc with lz4 and byte shuffle, which reads fastest on CPUs and GPUs; zstd for strings and
        one-byte elements, which gain nothing from shuffling. An explicit compression level is used as it is. Without
        one (``"auto"``, ``"zstd"``, an object without a level), large writes through the returned array try faster
        searches first, and use one if it makes a sample at most 2 % larger; arrays opened later use the level in the
        metadata.
    filters, serializer, compressors
        Codec chain in three parts, as in zarr-python; None for no filters, or no compression.
    fill_value
        Value of elements that were never written. None for zero, False, NaT or the empty string, in each field of a
        structured dtype.
    order
        Order of the stored elements of a chunk: ``"C"`` or ``"F"``.
    attributes
        User attributes.
    dimension_names
        String or None for each dimension. Before version 3 they become the attribute ``_ARRAY_DIMENSIONS``, as in
        xarray.
    chunk_key_encoding
        ``"default"`` or ``"v2"`` in version 3, a separator (``"/"``, ``"."``), or an object with ``name`` and
        ``separator``.
    zarr_format
        3, 2, 1 or ``"3-draft-2022"``.
    overwrite
        Whether an existing node is erased first, with everything below it. If not, an existing node is an error: of
        several threads that create the same node, exactly one succeeds; on local disks this also holds for processes.
    device, missing, verify
        As for :func:`gzarr.open_array`.
    write_empty_chunks
        Whether chunks that hold only the fill value are stored when they are written. None for False, and for True
        where the fill value is ``null`` in a format before 3, as that of another array may be.
    fill_masked
        Whether masked elements of ``data`` become the fill value; otherwise they are an error.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.

    Returns
    -------
    The array, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument is wrong, if the format cannot represent it, or if a node exists and ``overwrite`` is False;
        nothing was changed.
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
    overwrite = flag("overwrite", overwrite)
    opened, base = as_store(store, "w" if overwrite else "a", storage_options)
    where = join_path(base, where)
    target = writable(opened, f"'/{where}'")
    with flushing(store, target, flush=data is not None):
        arguments = NewArrayArguments(
            shape=shape,
            data=data,
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
            write_empty_chunks=write_empty_chunks,
            fill_masked=fill_masked,
        )
        new = NewArray(
            target,
            where,
            zarr_format,
            arguments,
            overwrite=overwrite,
            device=device,
            missing=missing,
            verify=verify,
        )
        return new.create()


def create_group(  # noqa: PLR0913
    store: StoreLike,
    *,
    path: str = "",
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    zarr_format: NewFormat = 3,
    overwrite: bool = False,
    device: str = "auto",
    missing: Missing = "fill",
    verify: Verify = "none",
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Create a group, and explicit groups above it.

    An implicit group, which only exists through the nodes below it, becomes an explicit one and keeps them.

    Parameters
    ----------
    store, path, name, zarr_format, overwrite, device, missing, verify, storage_options
        As for :func:`create_array`; version 1 has no groups.
    attributes
        User attributes.

    Returns
    -------
    The group, open for reading and writing.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, DeviceError, StoreError
        As for :func:`create_array`.
    """
    where = _where(path, name)
    resolve_device(device)
    check_verify(verify)
    check_zarr_format(zarr_format, new=True)
    overwrite = flag("overwrite", overwrite)
    opened, base = as_store(store, "w" if overwrite else "a", storage_options)
    where = join_path(base, where)
    target = writable(opened, f"'/{where}'")
    metadata = new_group(target, where, zarr_format, attributes=attributes, overwrite=overwrite)
    return Group(metadata, NodeReader(target), where, device=device, missing=missing, verify=verify, mode="r+")


def _where(path: str, name: str | None) -> str:
    where = normalize_path(path)
    if name is not None and (alias := normalize_path(name)) != where:
        if where:
            raise ArgumentError(f"name={name!r} and path={path!r} are different paths of the node; pass one of them")
        return alias
    return where
