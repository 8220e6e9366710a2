"""Opening nodes: from a path, a URL, a mapping or a store to an array or a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from .array import Array
from .device import resolve_device
from .documents import NodeReader
from .errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, StoreError
from .group import Group, make_node, suggest
from .metadata import v3_draft
from .metadata.model import ArrayMetadata, GroupMetadata, ZarrFormat
from .stores.base import ListableStore
from .stores.keys import join_path, normalize_path
from .stores.resolve import as_store

if TYPE_CHECKING:
    from .engines.request import Missing
    from .stores.resolve import StoreLike

__all__ = ["Array", "Group", "open", "open_array", "open_group"]

Mode: TypeAlias = Literal["r"]

# What makes a node, by format, for messages.
_LOOKED_FOR: Final[dict[ZarrFormat | None, str]] = {
    None: "zarr.json, .zarray, .zgroup or meta, nor a document of a 2022 draft",
    1: "meta",
    2: ".zarray or .zgroup",
    3: "zarr.json",
    v3_draft.FORMAT: "document of a 2022 draft under meta/ beside a zarr.json that is the entry point of a hierarchy",
}


def open(
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    allow_pickle: bool = False,
    use_consolidated: bool | None = None,
    allow_fallback: bool = False,
) -> Array | Group:
    """Open the array or group at ``path``.

    Costs one store request for a node of version 2 or 3 with a metadata document, two for an implicit group; finding an
    older format costs more.

    Parameters
    ----------
    store
        A directory (path or ``file://`` URL), a mutable mapping of keys to bytes, or a store object.
    path
        Path of the node in the store.
    mode
        ``"r"``; this release does not write.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``: where arrays are read to.
    zarr_format
        1, 2, ``"3-draft-2022"`` or 3, where it is known. By default all are looked for: version 3 wins over 2, and both
        over the older ones.
    missing
        What an absent chunk means: ``"fill"`` (the fill value) or ``"error"``.
    allow_pickle
        Allow codecs that run pickled code. Only for data that you trust.
    use_consolidated
        None: use consolidated metadata where a group has some. False: never. True: raise :class:`ArgumentError` if the
        group opened has none.

    Returns
    -------
    The node.

    Raises
    ------
    NodeNotFoundError
        If there is no such node.
    ArgumentError, DeviceError
        If an argument is wrong; nothing was read.
    MetadataError
        If a metadata document is malformed; :class:`UnsupportedError` if it asks for something unknown.
    StoreError
        If the store fails.

    Examples
    --------
    >>> import gzarr
    >>> store = {"zarr.json": b'{"zarr_format": 3, "node_type": "group"}'}
    >>> gzarr.open(store).name
    '/'
    """
    reader, where = _prepare(
        store, path, mode, device, zarr_format, missing, allow_pickle, use_consolidated, allow_fallback
    )
    entry = reader.node(where, zarr_format)
    if entry is None:
        raise _not_found("array or group", where, reader, zarr_format)
    assert not isinstance(entry.metadata, MetadataError)
    return make_node(entry.metadata, reader, where, device=device, missing=missing, children=entry.children)


def open_array(
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    allow_pickle: bool = False,
    allow_fallback: bool = False,
) -> Array:
    """Open the array at ``path``; one store request for an array of version 2 or 3.

    Parameters are those of :func:`open`.

    Returns
    -------
    The array.

    Raises
    ------
    NodeTypeError
        If there is a group at ``path``.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As :func:`open`.
    """
    reader, where = _prepare(store, path, mode, device, zarr_format, missing, allow_pickle, None, allow_fallback)
    entry = reader.node(where, zarr_format, groups=False)
    if entry is None:
        raise _not_found("array", where, reader, zarr_format)
    if isinstance(entry.metadata, GroupMetadata):
        raise NodeTypeError(f"'/{where}' in {reader.store!r} is a group, not an array; open it with open_group")
    array = make_node(entry.metadata, reader, where, device=device, missing=missing)
    assert isinstance(array, Array)
    return array


def open_group(
    store: StoreLike,
    *,
    path: str = "",
    mode: Mode = "r",
    device: str = "auto",
    zarr_format: ZarrFormat | None = None,
    missing: Missing = "fill",
    allow_pickle: bool = False,
    use_consolidated: bool | None = None,
    allow_fallback: bool = False,
) -> Group:
    """Open the group at ``path``; one or two store requests for a group of version 2 or 3, as :func:`open`.

    Parameters are those of :func:`open`.

    Returns
    -------
    The group.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As :func:`open`.
    """
    reader, where = _prepare(
        store, path, mode, device, zarr_format, missing, allow_pickle, use_consolidated, allow_fallback
    )
    entry = reader.node(where, zarr_format)
    if entry is None:
        raise _not_found("group", where, reader, zarr_format)
    if isinstance(entry.metadata, ArrayMetadata):
        raise NodeTypeError(f"'/{where}' in {reader.store!r} is an array, not a group; open it with open_array")
    group = make_node(entry.metadata, reader, where, device=device, missing=missing, children=entry.children)
    assert isinstance(group, Group)
    return group


def _prepare(
    store: StoreLike,
    path: str,
    mode: Mode,
    device: str,
    zarr_format: ZarrFormat | None,
    missing: str,
    allow_pickle: bool,
    use_consolidated: bool | None,
    allow_fallback: bool,
) -> tuple[NodeReader, str]:
    """Check all arguments before the store is touched; return the reader and the normalised path."""
    if mode != "r":
        if mode in ("r+", "a", "w", "w-"):
            raise ArgumentError(f'mode={mode!r}: this release only reads; open with mode="r"')
        raise ArgumentError(f'mode must be "r", "r+", "a", "w" or "w-", not {mode!r}')
    resolve_device(device)
    if zarr_format not in (None, 1, 2, v3_draft.FORMAT, 3):
        raise ArgumentError(f'zarr_format must be 1, 2, "3-draft-2022", 3 or None, not {zarr_format!r}')
    if missing not in ("fill", "error"):
        raise ArgumentError(f'missing must be "fill" or "error", not {missing!r}')
    where = normalize_path(path)
    opened, base = as_store(store, mode)
    return NodeReader(opened, bool(allow_pickle), use_consolidated, bool(allow_fallback)), join_path(base, where)


def _not_found(what: str, path: str, reader: NodeReader, zarr_format: ZarrFormat | None) -> NodeNotFoundError:
    """Return the error for a node that is not there, with a look at what is there instead."""
    documents = _LOOKED_FOR[zarr_format]
    hint = ""
    if isinstance(reader.store, ListableStore):
        parent, _, name = path.rpartition("/")
        try:
            keys, prefixes = reader.store.list_dir(f"{parent}/" if parent else "")
            names = {key.rstrip("/").rpartition("/")[2]: None for key in prefixes}
            if path:
                hint = suggest(name, names)
            elif not keys and not prefixes:
                hint = "; it is empty"
            elif zarr_format is not None:
                hint = f"; only documents of Zarr version {zarr_format} were looked for"
        except StoreError:
            pass  # the search has its answer already; this was only for a better message
    return NodeNotFoundError(f"no {what} at '/{path}' in {reader.store!r}: there is no {documents}{hint}")
