"""Creating and opening sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

import numpy as np

from ..arrays.device_choice import resolve_device
from ..codecs.again import kept_by
from ..codecs.choice import AUTO
from ..codecs.codec import ArrayRepresentation
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, NodeTypeError
from ..hierarchy.create import create_array, create_group
from ..hierarchy.group import Group
from ..hierarchy.open import open_group
from ..metadata.formats import is_another
from ..stores.keys import join_path, normalize_path
from ..stores.memory import MemoryStore
from .appending import append, reopened
from .block import added_to, on_host
from .layout import MOST_MINOR, NUMBERS, OLD_NAMES, layout_of
from .matrix import Matrix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from ..metadata.model import NewFormat, ZarrFormat
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
    zarr_format: NewFormat
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
        Device that it is read to, as for :func:`gzarr.open`; a group has its own, which this must not contradict.
    storage_options
        Options for the store of a URL, not for a group: see :func:`gzarr.open_store`.

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
    ArgumentError
        If an argument contradicts a group.
    ArgumentError, DeviceError, StoreError
        As for :func:`gzarr.open_group`.
    """
    if mode not in ("r", "r+"):
        raise ArgumentError(f"mode must be 'r' or 'r+', not {mode!r:.100}; gzarr.sparse.create makes new matrices")
    if not isinstance(store, Group):
        return Matrix(open_group(store, path=path, mode=mode, device=device, storage_options=storage_options))
    _check_beside_group(store, device, storage_options)
    if mode == "r+" and store.read_only:
        raise ArgumentError(
            f"the group {store.name!r} was opened for reading only, and a group has its own mode: open it with 'r+'"
        )
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
        Device that it is read to; a group has its own, which this must not contradict.
    **layout
        How it is stored:

        - ``format``: ``"csr"`` or ``"csc"``; by default that of ``data`` if it is one of these, else ``"csr"``.
        - ``index_dtype``: data type of ``indices``, ``int32`` by default: integers that hold the number of each column.
        - ``chunks``: elements of a chunk of ``data`` and of ``indices``, 32,768 by default.
        - ``shards``: elements of a shard, a multiple of ``chunks``; None (default) for no shards.
        - ``codecs``, ``zarr_format``, ``storage_options``: as for :func:`gzarr.create_array`; a group has its own
          format, which this must not contradict, and its own store. ``indices`` get those of the ``codecs`` that keep
          every integer, or the default ones if none does: codecs that round are for values.
        - ``attributes``: more attributes of the group.

    Returns
    -------
    The matrix, open for reading and appending.

    Raises
    ------
    ArgumentError
        If an argument is wrong or contradicts a group, if the arrays of ``data`` do not fit together, if the types
        cannot hold an element of it, or if a node exists and ``overwrite`` is False; nothing was changed.
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
    within, zarr_format = "", layout.get("zarr_format", 3)
    if isinstance(store, Group):
        _check_beside_group(store, device, layout.get("storage_options"), layout.get("zarr_format"))
        # create_group refuses those that are only read.
        within, zarr_format = store.path, cast("NewFormat", store.zarr_format)
    where = join_path(within, normalize_path(path))
    wanted = None if shape is None and data is not None else _checked_shape(shape)
    block = None if data is None else on_host(data, form, f"/{where}")
    if block is not None:
        if wanted not in (None, block.shape):
            raise ArgumentError(f"shape is {shape}, but data has {block.shape}")
        dtype = block.dtype if dtype is None else dtype
        # Its rows are appended.
        wanted = (0, block.shape[1]) if form == "csr" else (block.shape[0], 0)
    assert wanted is not None
    _check_minor(form, wanted[form == "csr"], layout.get("index_dtype", np.int32))
    # Anything that is wrong is found before what is there is erased.
    draft = create_group(
        MemoryStore(), path=where, attributes=layout.get("attributes"), zarr_format=zarr_format, device="cpu"
    )
    index_codecs = _codecs_of_indices(layout, zarr_format)
    _fill(draft, form, wanted, dtype, layout, index_codecs)
    added = None if block is None else added_to(layout_of(draft), block)
    group = _new_group(store, path, overwrite=overwrite, device=device, layout=layout)
    _fill(group, form, wanted, dtype, layout, index_codecs, overwrite=overwrite)
    if added is not None:
        append(group, added, lock=False)
    return Matrix(reopened(group))


def _codecs_of_indices(layout: MatrixArguments, zarr_format: NewFormat) -> Any:
    """Return the codecs of ``indices``: those of the values that take integers and keep each of them.

    An index that is rounded is another column, which no check would find.
    """
    codecs = layout.get("codecs", AUTO)
    if codecs is None or (isinstance(codecs, str) and codecs == AUTO):
        return codecs
    if _keep_integers(codecs, layout, zarr_format):
        return codecs
    kept: list[Any] = []
    for codec in codecs if isinstance(codecs, list | tuple) else [codecs]:
        # After those before it: it may take, or keep, what they make, but not integers.
        if _keep_integers([*kept, codec], layout, zarr_format):
            kept.append(codec)
    return kept or AUTO


def _keep_integers(codecs: Any, layout: MatrixArguments, zarr_format: NewFormat) -> bool:
    """Return whether codecs that a caller gave take integers and keep each of them."""
    dtype, chunks = layout.get("index_dtype", np.int32), layout.get("chunks", _CHUNK)
    try:
        array = create_array(
            MemoryStore(), shape=(0,), dtype=dtype, chunks=chunks, codecs=codecs, zarr_format=zarr_format, device="cpu"
        )
        chunk = ArrayRepresentation(array.metadata.chunk_shape, array.metadata.dtype)
    # If they are wrong for values, too, their array is refused.
    except (ArgumentError, MetadataError):
        return False
    return not kept_by(array.metadata.codecs, chunk, None).codecs


def _fill(
    group: Group,
    form: Form,
    shape: tuple[int, int],
    dtype: Any,
    layout: MatrixArguments,
    index_codecs: Any,
    *,
    overwrite: bool = False,
) -> None:
    """Make a group a matrix without values; with ``overwrite``, erase chunks that arrays have left which are gone."""
    values = np.float32 if dtype is None else dtype
    for name, kind, codecs in (
        ("data", values, layout.get("codecs", AUTO)),
        ("indices", layout.get("index_dtype", np.int32), index_codecs),
    ):
        array = group.create_array(
            name,
            (0,),
            kind,
            chunks=layout.get("chunks", _CHUNK),
            shards=layout.get("shards"),
            codecs=codecs,
            overwrite=overwrite,
        )
        if name == "data" and array.dtype.char not in NUMBERS:
            raise ArgumentError(f"dtype must be a type of numbers of NumPy, of up to 128 bits, not {values!r:.100}")
    lines = shape[form == "csc"]
    group.create_array("indptr", (lines + 1,), np.int64, chunks=_INDPTR_CHUNK, overwrite=overwrite)
    said = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": list(shape)}

    def with_those(present: dict[str, Any]) -> dict[str, Any]:
        # Those of another matrix, that were given with its attributes, would say something else.
        return {**{name: value for name, value in present.items() if name not in OLD_NAMES}, **said}

    # Now it is a matrix.
    group.attrs.change(with_those)


def _check_minor(form: Form, count: int, index_dtype: Any) -> None:
    """Refuse more columns (in CSC, rows) than there can be, or than a type has numbers for."""
    what = "columns" if form == "csr" else "rows"
    if count > MOST_MINOR:
        raise ArgumentError(f"there are {count} {what}: in {form.upper()}, there are at most {MOST_MINOR} {what}")
    try:
        found = None if index_dtype is None else np.dtype(index_dtype)
    except (TypeError, ValueError):
        found = None
    if found is None or found.kind not in "iu":
        raise ArgumentError(
            f"index_dtype must be a type of integers of NumPy, such as 'int32', not {index_dtype!r:.100}"
        )
    most = int(np.iinfo(found).max)
    if count - 1 > most:
        raise ArgumentError(
            f"index_dtype is {found}, which has the numbers of {most + 1} {what}, but there are {count}; pass a wider "
            "one, such as 'int32'"
        )


def _check_beside_group(
    group: Group, device: str, storage_options: Mapping[str, Any] | None, zarr_format: ZarrFormat | None = None
) -> None:
    """Refuse arguments that say something else than the group that is given with them."""
    if storage_options is not None:
        raise ArgumentError(f"storage_options= is for URLs of remote stores, not for the group {group.name!r}")
    if is_another(zarr_format, group.zarr_format):
        raise ArgumentError(
            f"zarr_format is {zarr_format!r}, but the group {group.name!r} has Zarr format {group.zarr_format!r}, and "
            "all nodes of a hierarchy have the same; leave it out"
        )
    # A group of "auto" has the device that "auto" means.
    if device != "auto" and resolve_device(device) != (own := resolve_device(group._device)):
        raise ArgumentError(
            f"device is {device!r}, but what is in the group {group.name!r} is read to {own!r}; open the group with "
            f"device={device!r}"
        )


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
