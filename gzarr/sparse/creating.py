"""Creating and opening sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import numpy as np

from ..codecs.choice import AUTO
from ..documents.json import quote
from ..errors import ArgumentError, NodeTypeError
from ..hierarchy.create import create_group
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from .appending import append, on_host, reopened
from .layout import MOST_MINOR
from .matrix import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ..metadata.model import ZarrFormat
    from ..stores.resolve import StoreLike
    from .layout import Form

#: Elements of a chunk of values and of indices: some tens of rows of single cells.
_CHUNK: Final = 1 << 15
#: And of ``indptr``, which is read as a whole.
_INDPTR_CHUNK: Final = 1 << 17


class MatrixArguments(TypedDict, total=False):
    """How a new matrix is stored; see :func:`create`."""

    format: Form
    index_dtype: Any
    chunks: int
    shards: int | None
    codecs: Any
    zarr_format: ZarrFormat
    attributes: Mapping[str, Any] | None
    storage_options: Mapping[str, Any] | None


def open(
    store: StoreLike | Group,
    *,
    path: str = "",
    mode: Literal["r", "r+"] = "r",
    device: str = "auto",
    storage_options: Mapping[str, Any] | None = None,
) -> Matrix:
    """Open a sparse matrix: a group as AnnData writes it, such as ``X`` or ``layers/counts``.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`, or a group: ``gzarr.sparse.open(g["X"])``.
    path
        Path of the matrix in the store, or in the group.
    mode
        ``"r+"`` to append; a group has its own mode.
    device
        Device that it is read to, as for :func:`gzarr.open`; a group has its own.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.

    Returns
    -------
    The matrix. Nothing but documents has been read.

    Raises
    ------
    NodeNotFoundError
        If there is no such group, or if an array of the matrix is missing.
    NodeTypeError
        If there is something else: a dense array, or a group that is no sparse matrix.
    MetadataError
        If its attributes or arrays are wrong.
    ArgumentError, DeviceError, StoreError
        As for :func:`gzarr.open_group`.
    """
    if not isinstance(store, Group):
        if mode not in ("r", "r+"):
            raise ArgumentError(f"mode must be 'r' or 'r+', not {mode!r:.100}; gzarr.sparse.create makes new matrices")
        return Matrix(open_group(store, path=path, mode=mode, device=device, storage_options=storage_options))
    node = store[path] if path else store
    if not isinstance(node, Group):
        raise NodeTypeError(f"{node.name!r} in {node.store!r} is a dense array, not a sparse matrix")
    return Matrix(node)


def create(
    store: StoreLike | Group,
    data: Any = None,
    *,
    path: str = "",
    shape: tuple[int, int] | None = None,
    dtype: Any = None,
    overwrite: bool = False,
    device: str = "auto",
    **layout: Unpack[MatrixArguments],
) -> Matrix:
    """Create a sparse matrix that AnnData reads, to which rows can be appended.

    Parameters
    ----------
    store
        As for :func:`gzarr.open`, or a group that is open for changes.
    data
        Sparse matrix or array of SciPy or CuPy; None for a matrix without values.
    path
        Path of the matrix in the store, or in the group.
    shape
        Rows and columns, without ``data``: ``(0, 20_000)`` for one that begins without rows.
    dtype
        Data type of the values; that of ``data`` by default, else ``float32``.
    overwrite
        Whether what is there is erased first.
    device
        Device that it is read to.
    **layout
        How it is stored:

        - ``format``: ``"csr"`` or ``"csc"``; by default that of ``data`` if it is one of these, else ``"csr"``.
        - ``index_dtype``: data type of ``indices``, ``int32`` by default.
        - ``chunks``: elements of a chunk of ``data`` and of ``indices``, 32,768 by default.
        - ``shards``: elements of a shard, a multiple of ``chunks``; None (default) for no shards.
        - ``codecs``, ``zarr_format``, ``storage_options``: as for :func:`gzarr.create_array`.
        - ``attributes``: more attributes of the group.

    Returns
    -------
    The matrix, open for reading and appending.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or if a node exists and ``overwrite`` is False; nothing was changed.
    ReadOnlyError, NodeTypeError, DeviceError, StoreError, ChunkWriteError
        As for :func:`gzarr.create_array`.

    Examples
    --------
    >>> import gzarr, scipy.sparse
    >>> m = gzarr.sparse.create({}, scipy.sparse.csr_array([[0, 2.5], [1, 0]]))
    >>> m.append(scipy.sparse.csr_array([[3.0, 0]]))
    >>> m.to_dense()
    array([[0. , 2.5],
           [1. , 0. ],
           [3. , 0. ]])
    """
    known = MatrixArguments.__optional_keys__
    for name in layout:
        if name not in known:
            raise ArgumentError(f"there is no argument {name!r}; those of a new matrix are {', '.join(sorted(known))}")
    form = layout.get("format", "csc" if getattr(data, "format", None) == "csc" else "csr")
    if form not in ("csr", "csc"):
        raise ArgumentError(f"format must be 'csr' or 'csc', not {form!r:.100}")
    block = None if data is None else on_host(data, form, f"/{path}")
    if block is not None:
        if shape is not None and tuple(shape) != block.shape:
            raise ArgumentError(f"shape is {shape}, but data has {block.shape}")
        shape = block.shape
    along = int(form == "csc")
    begin = list(_checked_shape(shape))
    if begin[1 - along] > MOST_MINOR:
        what = "rows" if along else "columns"
        raise ArgumentError(f"shape is {shape}: in {form.upper()}, there are at most {MOST_MINOR} {what}")
    if block is not None:
        begin[along] = 0
    group = _new_group(store, path, overwrite=overwrite, device=device, layout=layout)
    values = dtype if dtype is not None else np.float32 if block is None else block.dtype
    for name, kind in (("data", values), ("indices", layout.get("index_dtype", np.int32))):
        group.create_array(
            name,
            (0,),
            kind,
            chunks=layout.get("chunks", _CHUNK),
            shards=layout.get("shards"),
            codecs=layout.get("codecs", AUTO),
        )
    group.create_array("indptr", (begin[along] + 1,), np.int64, chunks=_INDPTR_CHUNK)
    # Now it is a matrix.
    group.update_attributes({"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": begin})
    if block is not None:
        append(group, block, lock=False)
    return Matrix(reopened(group))


def _checked_shape(shape: Any) -> tuple[int, int]:
    found = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    if len(found) != 2 or not all(hasattr(n, "__index__") and 0 <= n < 2**60 for n in found):
        raise ArgumentError(f"shape must be two integers, of rows and columns, not {quote(shape)}; or give data")
    return int(found[0]), int(found[1])


def _new_group(store: Any, path: str, *, overwrite: bool, device: str, layout: MatrixArguments) -> Group:
    attributes = layout.get("attributes")
    if isinstance(store, Group):
        if not path:
            raise ArgumentError("a matrix in a group needs a path: gzarr.sparse.create(g, data, path='X')")
        return store.create_group(path, attributes=attributes, overwrite=overwrite)
    return create_group(
        store,
        path=path,
        attributes=attributes,
        zarr_format=layout.get("zarr_format", 3),
        overwrite=overwrite,
        device=device,
        storage_options=layout.get("storage_options"),
    )
