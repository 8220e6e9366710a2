"""Functions that zarr-python's users know, by gzarr's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arrays.array import Array
from ..arrays.view import ArrayView
from ..errors import ArgumentError
from ..flags import check_flags, flag
from ..hierarchy.create import create_array
from ..hierarchy.create_filled import array as array_of
from ..hierarchy.create_filled import empty_like, meaning_of
from ..hierarchy.open import open_array
from ..metadata.to_documents import SourceAttributes
from .save import save

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..metadata.model import NewFormat
    from ..stores.resolve import StoreLike

#: Arguments of zarr-python's ``create`` that have no meaning here, or none any more in zarr-python.
_WITHOUT_MEANING = (
    "synchronizer", "chunk_store", "cache_metadata", "cache_attrs", "object_codec", "meta_array", "config",
)  # fmt: skip


def create(
    shape: Any,
    *,
    store: StoreLike | None = None,
    path: str | None = None,
    chunks: Any = None,
    dtype: Any = "float64",
    compressor: Any = "auto",
    fill_value: Any = None,
    **arguments: Any,
) -> Array:
    """Create an array by the names of arguments that zarr-python's ``create`` has; see :func:`create_array` for others.

    Parameters
    ----------
    shape
        Shape in elements.
    store
        As for :func:`create_array`; None for memory.
    path
        Path of the array in the store; None for its root.
    chunks
        As for :func:`create_array`; None or True for ``"auto"``, False for one chunk.
    dtype, fill_value
        As for :func:`create_array`.
    compressor
        The compressor, or None for none; ``"auto"`` as for ``codecs`` there.
    **arguments
        Other arguments of :func:`create_array`; ``chunk_shape``, ``dimension_separator`` and ``zarr_version``, which
        zarr-python has for them; and ``read_only``. Those that only zarr-python has (``synchronizer``,
        ``object_codec``, …) are taken if they are None.

    Returns
    -------
    The array, open for reading and writing.

    Raises
    ------
    ArgumentError
        If an argument has no meaning here.
    ArgumentError, ReadOnlyError, NodeTypeError, StoreError
        As for :func:`create_array`.
    """
    for name in _WITHOUT_MEANING:
        if arguments.pop(name, None) is not None:
            raise ArgumentError(f"create() takes no {name}=: gzarr has no such thing")
    for theirs, ours in (
        ("chunk_shape", "chunks"), ("dimension_separator", "chunk_key_encoding"), ("zarr_version", "zarr_format"),
    ):  # fmt: skip
        value = arguments.pop(theirs, None)
        if value is not None:
            if arguments.get(ours) is not None or (ours == "chunks" and chunks is not None):
                raise ArgumentError(f"give {ours}= or {theirs}=, not both")
            arguments[ours] = value
    if chunks is None:
        chunks = arguments.pop("chunks", True)
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if chunks is True:
        chunks = "auto"
    elif chunks is False:
        chunks = -1
    if not isinstance(compressor, str) or compressor != "auto":
        arguments["compressors"] = compressor
    read_only = flag("read_only", arguments.pop("read_only", False))
    made = create_array(
        {} if store is None else store,
        shape=shape,
        dtype=dtype,
        path=path or "",
        chunks=chunks,
        fill_value=fill_value,
        **arguments,
    )
    return open_array(made.store, path=made.path, device=made.device) if read_only else made


def from_array(
    store: StoreLike, *, data: Any, write_data: bool = True, name: str | None = None, **arguments: Any
) -> Array:
    """Create an array like another one, with its elements.

    Parameters
    ----------
    store
        As for :func:`create_array`.
    data
        The other one: of gzarr or zarr-python, of which the new one has the chunks, shards, codecs, fill value,
        dimension names, attributes and format; or any array or nested lists.
    write_data
        Whether elements are written; if not, all have the fill value.
    name
        Path of the array in the store; None for its root.
    **arguments
        Other arguments of :func:`create_array`, which override what ``data`` has. ``"keep"`` is as if it were left out.

    Returns
    -------
    The array, open for reading and writing.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkError
        As for :func:`create_array`.
    """
    check_flags(write_data=write_data)
    if type(data).__module__.partition(".")[0] == "zarr" and hasattr(data, "store") and hasattr(data, "path"):
        data = open_array(data.store, path=data.path)
    arguments = {key: value for key, value in arguments.items() if not (isinstance(value, str) and value == "keep")}
    if name is not None:
        arguments["path"] = name
    if write_data:
        return array_of(data, store, **arguments)
    if isinstance(data, Array | ArrayView):
        arguments = {"attributes": SourceAttributes(meaning_of(data, arguments).attributes), **arguments}
    return empty_like(data, store, **arguments)


def save_array(
    store: StoreLike,
    arr: Any,
    *,
    zarr_format: NewFormat | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> None:
    """Save one array. A node that is there is erased first, with everything below it, as by zarr-python.

    Parameters
    ----------
    store, storage_options
        As for :func:`create_array`.
    arr
        The array.
    zarr_format
        As for :func:`create_array`; None for 3.
    path
        Path of the array in the store; None for its root.
    **arguments
        Other arguments of :func:`create_array`.

    Raises
    ------
    ArgumentError, ReadOnlyError, NodeTypeError, StoreError, ChunkWriteError
        As for :func:`create_array`.
    """
    options: dict[str, Any] = {"overwrite": True, "zarr_format": zarr_format or 3, **arguments}
    create_array(store, data=arr, path=path or "", storage_options=storage_options, **options)


def save_group(
    store: StoreLike,
    *args: Any,
    zarr_format: NewFormat | None = None,
    path: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    """Save several arrays in a group. A node that is there is erased first, as by :func:`save_array`.

    Parameters
    ----------
    store, zarr_format, storage_options
        As for :func:`save_array`.
    *args
        Arrays, which are named ``arr_0``, ``arr_1``, ….
    path
        Path of the group in the store; None for its root.
    **kwargs
        Arrays by name.

    Raises
    ------
    ArgumentError
        If there are no arrays, or two of one name.
    ArgumentError, ReadOnlyError, NodeTypeError, StoreError, ChunkWriteError
        As for :func:`save_array`.
    """
    if not args and not kwargs:
        raise ArgumentError("save_group needs at least one array")
    named = {f"arr_{i}": array for i, array in enumerate(args)}
    if taken := set(named) & set(kwargs):
        raise ArgumentError(f"two arrays are named {min(taken)!r}")
    save(
        store,
        path=path or "",
        zarr_format=zarr_format or 3,
        overwrite=True,
        named=named | kwargs,
        storage_options=storage_options,
    )
