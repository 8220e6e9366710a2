"""Opening nodes, or creating them if the mode says so, in a path, a URL, a mapping or a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..arrays.read_options import check_missing, check_verify
from ..choices import choice
from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, ReadOnlyError, StoreError
from ..flags import check_flags, flag, optional_flag
from ..metadata.formats import DEFAULT_FORMAT, FORMATS, check_zarr_format, looked_for
from ..metadata.model import ArrayMetadata, GroupMetadata, ZarrFormat
from ..nodes.change import writable
from ..nodes.location import advising
from ..nodes.reader import NodeReader, suggest
from ..stores.base import flushing, is_listable
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store
from .array_spec import check_names
from .group import Group, make_node
from .keywords import NewArrayArguments, OpenGroupArguments, RequireArrayArguments, RequireGroupArguments
from .new_nodes import NewArray, check_required, new_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from ..engines.access.access import Missing, Verify
    from ..nodes.entries import Entry
    from ..stores.resolve import StoreLike

__all__ = [
    "Array",
    "Group",
    "group",
    "open",
    "open_array",
    "open_consolidated",
    "open_group",
    "require_array",
    "require_group",
]

#: Read; read and write; read and write, created if absent; created or replaced; created, must be absent.
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]
_Node = TypeVar("_Node", Array, Group)


def open(  # noqa: PLR0913
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    verify: Verify = "none",
    allow_pickle: bool = False,
    use_consolidated: bool | None = None,
    allow_fallback: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **creation: Unpack[NewArrayArguments],
) -> Array | Group:
    """Open the array or group at ``path``.

    Opening costs one store request for a node of version 3 with a metadata document. Where there is none, the documents
    of the others are asked for at the same time: a node of version 2 costs three or four requests after the first one,
    which ``zarr_format=2`` saves. An implicit group costs more, and so do older formats.

    Parameters
    ----------
    store
        Directory (path or ``file://`` URL), URL of an object store or a web server, zip archive in any of them (a path
        or URL that ends in ``.zip``, or ``zip://PATH_OR_URL``), mutable mapping of keys to bytes, or store object, of
        gzarr or of obstore. ``#PATH`` at the end of a URL names a node. ``n5://PATH_OR_URL`` is the same place, which
        need not be told to have N5 in it.
    path
        Path of the node in the store.
    mode
        ``"r"`` to read an existing node, ``"r+"`` to read and write it. Modes that create nodes: ``"w"`` erases an
        existing node and everything below it first, ``"w-"`` fails if the node exists, and ``"a"`` opens it for reading
        and writing, and only creates it if it does not exist.
    device
        Device that arrays are read to: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    zarr_format
        1, 2, ``"3-draft-2022"``, 3 or ``"n5"``, if known. By default all are looked for: version 3 wins over version 2,
        and both win over N5, which is only read, and over the older formats.
    missing
        Meaning of an absent chunk: ``"fill"`` (the fill value) or ``"error"``.
    verify
        Check of compressed frames before a GPU decodes them, whose decoders have undefined behaviour for corrupt
        frames: ``"cpu"`` (the CPU decodes frames without a crc32c first; see :meth:`Array.read` for the cost) or
        ``"none"``. Ignored on the CPU. To look for corrupt chunks, use :func:`gzarr.verify`.
    allow_pickle
        Whether codecs that run pickled code are allowed. Only for trusted data.
    use_consolidated
        None to use consolidated metadata if the group has any, False to ignore it, True to raise
        :class:`ArgumentError` if the group has none. In modes other than ``"r"``, nodes are always read from their own
        documents.
    allow_fallback
        Whether elements of a data type unknown to gzarr are read as the fallback type that the array's metadata
        document names, if any; otherwise they are an error.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.
    **creation
        Arguments of :func:`gzarr.create_array`, for modes that create nodes. With ``shape`` or ``data``, the node is an
        array; otherwise a new node is a group.

    Returns
    -------
    The node.

    Raises
    ------
    NodeNotFoundError
        If there is no such node.
    ArgumentError, DeviceError
        If an argument is wrong, or the node exists with ``mode="w-"``; nothing was changed.
    ReadOnlyError
        If ``mode`` is not ``"r"`` and the store is read-only; nothing was touched.
    MetadataError
        If a metadata document is malformed; :class:`UnsupportedError` if it requires something unknown.
    StoreError
        If the store fails.

    Examples
    --------
    >>> import gzarr
    >>> store = {"zarr.json": b'{"zarr_format": 3, "node_type": "group"}'}
    >>> gzarr.open(store).name
    '/'
    """
    request = _prepare(
        store,
        path,
        _Use(mode, device, zarr_format, missing, verify),
        storage_options,
        allow_pickle=allow_pickle,
        use_consolidated=use_consolidated,
        allow_fallback=allow_fallback,
    )
    _check_creation(creation, mode)
    if "shape" in creation or "data" in creation:
        return _array(request, creation)
    for name in creation:
        if name != "attributes":
            raise ArgumentError(f"{name}= is for an array, which also needs shape= or data=")
    if mode not in ("r", "r+", "a"):
        return _group(request, creation.get("attributes"))
    entry = request.reader.node(request.path, zarr_format)
    if entry is None:
        if mode == "a":
            return _group(request, creation.get("attributes"))
        raise _not_found("array or group", request)
    return request.node(entry)


def open_array(  # noqa: PLR0913
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    verify: Verify = "none",
    allow_pickle: bool = False,
    allow_fallback: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **creation: Unpack[NewArrayArguments],
) -> Array:
    """Open the array at ``path``; one store request for an array of version 3, and as for :func:`open` for others.

    Parameters
    ----------
    store, path, mode, device, zarr_format, missing, verify, allow_pickle, allow_fallback, storage_options
        As for :func:`open`.
    **creation
        Arguments of :func:`gzarr.create_array`, for modes that create an array: ``shape`` and ``dtype``, or ``data``,
        and others. Its format is 3 unless ``zarr_format`` is given. An existing array is opened as it is.

    Returns
    -------
    The array.

    Raises
    ------
    NodeTypeError
        If there is a group at ``path``.
    ReadOnlyError
        If ``mode`` is not ``"r"`` and the store is read-only; nothing was touched.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As for :func:`open`.
    """
    request = _prepare(
        store,
        path,
        _Use(mode, device, zarr_format, missing, verify),
        storage_options,
        allow_pickle=allow_pickle,
        allow_fallback=allow_fallback,
    )
    _check_creation(creation, mode)
    return _array(request, creation)


def open_group(  # noqa: PLR0913
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    verify: Verify = "none",
    allow_pickle: bool = False,
    use_consolidated: bool | None = None,
    allow_fallback: bool = False,
    attributes: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Group:
    """Open the group at ``path``; one store request for a group of version 3, and as for :func:`open` for others.

    Parameters
    ----------
    store, path, mode, device, zarr_format, missing, verify, allow_pickle, use_consolidated, allow_fallback
        As for :func:`open`. A new group is of format 3 unless ``zarr_format`` is given.
    attributes
        User attributes of a new group, for modes that create one.
    storage_options
        Options for the store of a URL: see :func:`gzarr.open_store`.

    Returns
    -------
    The group.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``.
    ReadOnlyError
        If ``mode`` is not ``"r"`` and the store is read-only; nothing was touched.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As for :func:`open`.
    """
    request = _prepare(
        store,
        path,
        _Use(mode, device, zarr_format, missing, verify),
        storage_options,
        allow_pickle=allow_pickle,
        use_consolidated=use_consolidated,
        allow_fallback=allow_fallback,
    )
    if attributes is not None:
        _check_creation({"attributes": attributes}, mode)
    return _group(request, attributes)


def require_group(store: StoreLike, *, path: str = "", **arguments: Unpack[RequireGroupArguments]) -> Group:
    """Open the group at ``path`` for reading and writing, or create it.

    Parameters
    ----------
    store, path
        Store, and path of the group in it, as for :func:`open`.
    **arguments
        Arguments of :func:`open_group`, except ``mode``.

    Returns
    -------
    The group.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``.
    """
    _check_keywords("require_group", arguments, RequireGroupArguments.__optional_keys__)
    return open_group(store, path=path, mode="a", **arguments)


def require_array(
    store: StoreLike,
    *,
    path: str = "",
    shape: Any,
    dtype: Any = None,
    exact: bool = False,
    **arguments: Unpack[RequireArrayArguments],
) -> Array:
    """Open the array at ``path`` for reading and writing, or create it.

    Parameters
    ----------
    store, path
        Store, and path of the array in it, as for :func:`open`.
    shape
        Required shape in elements; an existing array must have the same.
    dtype
        Required dtype; None for any. The dtype of an existing array must hold its elements without loss.
    exact
        Whether the dtype of an existing array must be ``dtype`` itself, rather than any that holds its elements.
    **arguments
        Arguments of :func:`open_array`, except ``mode``, and of :func:`create_array`, for a new array.

    Returns
    -------
    The array.

    Raises
    ------
    NodeTypeError
        If there is a group at ``path``, or an array of another shape or dtype.
    """
    check_flags(exact=exact)
    check_names(arguments, RequireArrayArguments.__optional_keys__, ("shape", "dtype", "exact", "path"))
    array = open_array(store, path=path, mode="a", shape=shape, dtype=dtype, **arguments)
    return check_required(array, shape, dtype, exact=exact)


def group(
    store: StoreLike | None = None,
    *,
    path: str = "",
    overwrite: bool = False,
    **arguments: Unpack[RequireGroupArguments],
) -> Group:
    """Open the group at ``path`` for reading and writing, or create it.

    Parameters
    ----------
    store
        As for :func:`open`; None for memory.
    path
        Path of the group in the store.
    overwrite
        Whether to erase an existing node, with everything below it, and create a new group.
    **arguments
        Arguments of :func:`open_group`, except ``mode``.

    Returns
    -------
    The group.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``, and ``overwrite`` is False.
    ArgumentError, ReadOnlyError, DeviceError, MetadataError, StoreError
        As for :func:`open_group`.
    """
    check_flags(overwrite=overwrite)
    _check_keywords("group", arguments, RequireGroupArguments.__optional_keys__)
    return open_group({} if store is None else store, path=path, mode="w" if overwrite else "a", **arguments)


def open_consolidated(
    store: StoreLike, *, use_consolidated: Literal[True] = True, **arguments: Unpack[OpenGroupArguments]
) -> Group:
    """Open a group with consolidated metadata: :func:`open_group` with ``use_consolidated=True``.

    Parameters
    ----------
    store, **arguments
        As for :func:`open_group`.
    use_consolidated
        True.

    Returns
    -------
    The group.

    Raises
    ------
    ArgumentError
        If the group has no consolidated metadata.
    NodeNotFoundError, NodeTypeError, DeviceError, MetadataError, StoreError
        As for :func:`open_group`.
    """
    if use_consolidated is not True:
        raise ArgumentError("open_consolidated opens groups with consolidated metadata; open others with open_group")
    _check_keywords("open_consolidated", arguments, OpenGroupArguments.__optional_keys__)
    return open_group(store, use_consolidated=True, **arguments)


@dataclass(frozen=True, slots=True)
class _Use:
    """How a node is opened; parameters as for :func:`open`, checked."""

    mode: Mode
    device: str
    zarr_format: ZarrFormat | None
    missing: Missing
    verify: Verify

    def __post_init__(self) -> None:
        choice("mode", self.mode, ("r", "r+", "a", "w", "w-"))
        resolve_device(self.device)
        check_zarr_format(self.zarr_format, optional=True, new=self.mode not in ("r", "r+"))
        check_missing(self.missing)
        check_verify(self.verify)


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    """Checked arguments of a function that opens a node."""

    given: StoreLike
    reader: NodeReader
    path: str
    use: _Use

    def node(self, entry: Entry) -> Array | Group:
        """Return an existing node."""
        if self.use.mode != "r" and not isinstance(entry.metadata, MetadataError):
            format = FORMATS[entry.metadata.zarr_format]
            if not format.features.writable:
                raise ReadOnlyError(
                    f"'/{self.path}' in {self.reader.store!r}: {format.title} is read, not written; open it with "
                    "mode='r', or copy it to Zarr: gzarr.copy, `gzarr copy`"
                )
        return make_node(
            entry.metadata,
            self.reader,
            self.path,
            device=self.use.device,
            missing=self.use.missing,
            verify=self.use.verify,
            children=entry.children,
            mode="r" if self.use.mode == "r" else "r+",
        )

    def group(self, metadata: GroupMetadata) -> Group:
        """Return a new group."""
        return Group(
            metadata,
            self.reader,
            self.path,
            device=self.use.device,
            missing=self.use.missing,
            verify=self.use.verify,
            mode="r+",
        )


def _open_or_make(
    request: _OpenRequest, present: Callable[[_OpenRequest], _Node | None], make: Callable[[], _Node], kind: str
) -> _Node:
    if request.use.mode not in ("w", "w-"):
        found = present(request)
        if found is not None:
            return found
        if request.use.mode != "a":
            raise _not_found(kind, request)
    try:
        with flushing(request.given, request.reader.store, flush=False), advising("open with mode='w'"):
            return make()
    except ArgumentError:
        # Another thread or process may have been faster; the node that it created will do.
        found = present(request) if request.use.mode == "a" else None
        if found is None:
            raise
        return found


def _array(request: _OpenRequest, creation: NewArrayArguments) -> Array:
    """Open or create an array, depending on the mode."""

    def make() -> Array:
        new = NewArray(
            writable(request.reader.store, f"'/{request.path}'"),
            request.path,
            request.use.zarr_format or DEFAULT_FORMAT,
            creation,
            overwrite=request.use.mode == "w",
            device=request.use.device,
            missing=request.use.missing,
            verify=request.use.verify,
        )
        return new.create()

    return _open_or_make(request, _present_array, make, "array")


def _present_array(request: _OpenRequest) -> Array | None:
    """Return the existing array, or None."""
    # Only arrays are looked for, which saves requests: implicit groups only matter when an array is created.
    entry = request.reader.node(request.path, request.use.zarr_format, groups=False)
    if entry is None:
        return None
    if isinstance(entry.metadata, GroupMetadata):
        raise NodeTypeError(
            f"'/{request.path}' in {request.reader.store!r} is a group, not an array; open it with open_group"
        )
    array = request.node(entry)
    assert isinstance(array, Array)
    return array


def _group(request: _OpenRequest, attributes: Mapping[str, Any] | None) -> Group:
    """Open or create a group, depending on the mode."""

    def make() -> Group:
        metadata = new_group(
            writable(request.reader.store, f"'/{request.path}'"),
            request.path,
            request.use.zarr_format or DEFAULT_FORMAT,
            attributes=attributes,
            overwrite=request.use.mode == "w",
        )
        return request.group(metadata)

    return _open_or_make(request, _present_group, make, "group")


def _present_group(request: _OpenRequest) -> Group | None:
    """Return the existing group, or None."""
    entry = request.reader.node(request.path, request.use.zarr_format)
    if entry is None:
        return None
    if isinstance(entry.metadata, ArrayMetadata):
        raise NodeTypeError(
            f"'/{request.path}' in {request.reader.store!r} is an array, not a group; open it with open_array"
        )
    group = request.node(entry)
    assert isinstance(group, Group)
    return group


def _check_creation(creation: Mapping[str, Any], mode: Mode) -> None:
    """Refuse names of arguments that there are not, also where a node exists, and those that the mode does not take."""
    check_names(creation, NewArrayArguments.__optional_keys__, OpenGroupArguments.__optional_keys__)
    for name in creation:
        if mode in ("r", "r+"):
            raise ArgumentError(f"{name}= is for a new node; mode={mode!r} opens an existing one")


def _check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise as Python does, by the name of the function that was called, if it does not have an argument."""
    for name in given:
        if name not in known:
            close = suggest(name, dict.fromkeys(known))
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{close}")


def _prepare(
    store: StoreLike,
    path: str,
    use: _Use,
    storage_options: Mapping[str, Any] | None,
    *,
    allow_pickle: bool,
    use_consolidated: bool | None = None,
    allow_fallback: bool,
) -> _OpenRequest:
    """Check all arguments before the store is touched."""
    mode = use.mode
    allow_pickle, allow_fallback = flag("allow_pickle", allow_pickle), flag("allow_fallback", allow_fallback)
    use_consolidated = optional_flag("use_consolidated", use_consolidated)
    where = normalize_path(path)
    opened, base = as_store(store, mode, storage_options)
    where = join_path(base, where)
    if mode != "r":
        writable(opened, f"mode={mode!r} for '/{where}'")
    if use_consolidated is None and mode != "r" and is_listable(opened, ask=False):
        use_consolidated = False  # not used by writable groups: see Group
    reader = NodeReader(opened, allow_pickle, use_consolidated, allow_fallback)
    return _OpenRequest(store, reader, where, use)


def _not_found(what: str, request: _OpenRequest) -> NodeNotFoundError:
    """Return the error for a missing node, with a hint at existing ones."""
    reader, path, zarr_format = request.reader, request.path, request.use.zarr_format
    documents = looked_for(zarr_format)
    hint = ""
    parent, _, name = path.rpartition("/")
    try:
        if is_listable(reader.store):
            keys, prefixes = reader.store.list_dir(f"{parent}/" if parent else "")
            names = {key.rstrip("/").rpartition("/")[2]: None for key in prefixes}
            if path:
                hint = suggest(name, names, lambda other: reader.exists(join_path(parent, other), zarr_format))
            elif not keys and not prefixes:
                hint = "; it is empty"
            elif zarr_format is not None:
                hint = f"; only documents of Zarr version {zarr_format} were looked for"
    except StoreError:
        pass  # the listing was only for a better message
    return NodeNotFoundError(f"no {what} at '/{path}' in {reader.store!r}: there is no {documents}{hint}")
