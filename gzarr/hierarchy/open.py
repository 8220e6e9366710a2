"""Opening nodes, and making them where the mode says so: from a path, a URL, a mapping or a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from ..arrays.array import Array, check_verify
from ..arrays.device import resolve_device
from ..errors import ArgumentError, NodeNotFoundError, NodeTypeError, StoreError
from ..metadata.formats import DEFAULT_FORMAT, check_zarr_format, looked_for
from ..metadata.model import ArrayMetadata, GroupMetadata, ZarrFormat
from ..nodes.change import writable
from ..nodes.reader import NodeReader, suggest
from ..stores.base import ListableStore
from ..stores.keys import join_path, normalize_path
from ..stores.resolve import as_store
from .group import Group, make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from ..engines.request import Missing, Verify
    from ..nodes.entries import Entry
    from ..stores.resolve import StoreLike
    from .array_spec import ArrayArguments, NewArrayArguments

__all__ = ["Array", "Group", "open", "open_array", "open_group"]

#: Read; read and write; the same, made if absent; made anew; made, if absent.
Mode: TypeAlias = Literal["r", "r+", "a", "w", "w-"]
_Node = TypeVar("_Node", Array, Group)


def open(
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
    **creation: Unpack[NewArrayArguments],
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
        ``"r"`` to read, ``"r+"`` to read and write. To make a node: ``"w"`` erases what is there, with all that is
        below it, ``"w-"`` fails if something is there, ``"a"`` opens what is there to read and write, and makes it only
        if nothing is.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``: where arrays are read to.
    zarr_format
        1, 2, ``"3-draft-2022"`` or 3, where it is known. By default all are looked for: version 3 wins over 2, and both
        over the older ones.
    missing
        What an absent chunk means: ``"fill"`` (the fill value) or ``"error"``.
    verify
        ``"host"``: the host decodes frames that no crc32c vouches for, before a GPU's decoder sees them, which is
        undefined on corrupt ones. :meth:`Array.read` says what that costs. Means nothing on the CPU.
    allow_pickle
        Allow codecs that run pickled code. Only for data that you trust.
    use_consolidated
        None: use consolidated metadata where a group has some. False: never. True: raise :class:`ArgumentError` if the
        group opened has none. Other modes than ``"r"`` show nodes as they are in the store, and only look whether there
        is some.
    allow_fallback
        Read elements of an unknown data type as the fallback that its document names, if it does.
    **creation
        Arguments of :func:`gzarr.create_array`, for modes that may make a node. With ``shape`` or ``data`` an array is
        opened or made, else a group is made.

    Returns
    -------
    The node.

    Raises
    ------
    NodeNotFoundError
        If there is no such node.
    ArgumentError, DeviceError
        If an argument is wrong, or ``mode="w-"`` finds a node; nothing was changed.
    ReadOnlyError
        If ``mode`` is not ``"r"``, and the store is read-only; nothing was touched.
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
    said = _prepare(
        store, path, mode, device, zarr_format, missing, verify, allow_pickle, use_consolidated, allow_fallback
    )
    if mode in ("r", "r+"):
        _check_creation(creation, mode)
    elif "shape" in creation or "data" in creation:
        return _array(said, creation)
    else:
        _check_creation(creation, mode, group=True)
        if mode != "a":
            return _group(said, creation.get("attributes"))
    entry = said.reader.node(said.path, zarr_format)
    if entry is None:
        if mode == "a":
            return _group(said, creation.get("attributes"))
        raise _not_found("array or group", said)
    return said.node(entry)


def open_array(
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
    **creation: Unpack[NewArrayArguments],
) -> Array:
    """Open the array at ``path``; one store request for an array of version 2 or 3.

    Parameters are those of :func:`open`. An array that has to be made (``mode`` ``"a"``, ``"w"``, ``"w-"``) needs
    ``shape`` and ``dtype``, or ``data``; the format is 3 where ``zarr_format`` does not say. One that is there keeps
    what it is.

    Returns
    -------
    The array.

    Raises
    ------
    NodeTypeError
        If there is a group at ``path``.
    ReadOnlyError
        If ``mode`` is not ``"r"``, and the store is read-only; nothing was touched.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As :func:`open`.
    """
    said = _prepare(store, path, mode, device, zarr_format, missing, verify, allow_pickle, None, allow_fallback)
    if mode in ("r", "r+"):
        _check_creation(creation, mode)
    return _array(said, creation)


def open_group(
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
) -> Group:
    """Open the group at ``path``; one or two store requests for a group of version 2 or 3, as :func:`open`.

    Parameters are those of :func:`open`. ``attributes`` are for a group that has to be made (``mode`` ``"a"``, ``"w"``,
    ``"w-"``), in format 3 where ``zarr_format`` does not say.

    Returns
    -------
    The group.

    Raises
    ------
    NodeTypeError
        If there is an array at ``path``.
    ReadOnlyError
        If ``mode`` is not ``"r"``, and the store is read-only; nothing was touched.
    NodeNotFoundError, ArgumentError, DeviceError, MetadataError, StoreError
        As :func:`open`.
    """
    said = _prepare(
        store, path, mode, device, zarr_format, missing, verify, allow_pickle, use_consolidated, allow_fallback
    )
    if attributes is not None and mode in ("r", "r+"):
        _check_creation({"attributes": attributes}, mode)
    return _group(said, attributes)


@dataclass(frozen=True, slots=True)
class _Said:
    """What a caller said of a node, checked."""

    reader: NodeReader
    path: str
    mode: Mode
    device: str
    zarr_format: ZarrFormat | None
    missing: Missing
    verify: Verify

    def node(self, entry: Entry) -> Array | Group:
        """Return a node that is there."""
        return make_node(
            entry.metadata,
            self.reader,
            self.path,
            device=self.device,
            missing=self.missing,
            verify=self.verify,
            children=entry.children,
            mode="r" if self.mode == "r" else "r+",
        )


def _open_or_make(said: _Said, present: Callable[[_Said], _Node | None], make: Callable[[], _Node], kind: str) -> _Node:
    if said.mode not in ("w", "w-"):
        found = present(said)
        if found is not None:
            return found
        if said.mode != "a":
            raise _not_found(kind, said)
    try:
        return make()
    except ArgumentError:
        # Another thread or process may have been faster; what it made is what was asked for.
        found = present(said) if said.mode == "a" else None
        if found is None:
            raise
        return found


def _array(said: _Said, creation: NewArrayArguments) -> Array:
    """Open or make an array, as the mode says."""

    def make() -> Array:
        from .create import make_array

        arguments = dict(creation)
        return make_array(
            writable(said.reader.store, f"'/{said.path}'"),
            said.path,
            said.zarr_format or DEFAULT_FORMAT,
            overwrite=said.mode == "w",
            device=said.device,
            missing=said.missing,
            verify=said.verify,
            write_empty=bool(arguments.pop("write_empty", False)),
            shape=arguments.pop("shape", None),
            data=arguments.pop("data", None),
            arguments=cast("ArrayArguments", arguments),
        )

    return _open_or_make(said, _present_array, make, "array")


def _present_array(said: _Said) -> Array | None:
    """Return the array that is there, or None."""
    # A group would not be found as long as only arrays are looked for: one is in the way of a new array only.
    entry = said.reader.node(said.path, said.zarr_format, groups=False)
    if entry is None:
        return None
    if isinstance(entry.metadata, GroupMetadata):
        raise NodeTypeError(
            f"'/{said.path}' in {said.reader.store!r} is a group, not an array; open it with open_group"
        )
    array = said.node(entry)
    assert isinstance(array, Array)
    return array


def _group(said: _Said, attributes: Mapping[str, Any] | None) -> Group:
    """Open or make a group, as the mode says."""

    def make() -> Group:
        from .create import make_group

        return make_group(
            writable(said.reader.store, f"'/{said.path}'"),
            said.path,
            said.zarr_format or DEFAULT_FORMAT,
            attributes=attributes,
            overwrite=said.mode == "w",
            device=said.device,
            missing=said.missing,
            verify=said.verify,
            reader=said.reader,
        )

    return _open_or_make(said, _present_group, make, "group")


def _present_group(said: _Said) -> Group | None:
    """Return the group that is there, or None."""
    entry = said.reader.node(said.path, said.zarr_format)
    if entry is None:
        return None
    if isinstance(entry.metadata, ArrayMetadata):
        raise NodeTypeError(
            f"'/{said.path}' in {said.reader.store!r} is an array, not a group; open it with open_array"
        )
    group = said.node(entry)
    assert isinstance(group, Group)
    return group


def _check_creation(creation: Mapping[str, Any], mode: Mode, *, group: bool = False) -> None:
    """Refuse arguments that mean nothing here."""
    for name in creation:
        if not group:
            raise ArgumentError(f"{name}= is for a node to be made; mode={mode!r} opens what is there")
        if name != "attributes":
            raise ArgumentError(f"{name}= is for an array, which needs shape= or data=, too")


def _prepare(
    store: StoreLike,
    path: str,
    mode: Mode,
    device: str,
    zarr_format: ZarrFormat | None,
    missing: Missing,
    verify: Verify,
    allow_pickle: bool,
    use_consolidated: bool | None,
    allow_fallback: bool,
) -> _Said:
    """Check all arguments before the store is touched."""
    if mode not in ("r", "r+", "a", "w", "w-"):
        raise ArgumentError(f'mode must be "r", "r+", "a", "w" or "w-", not {mode!r}')
    resolve_device(device)
    check_zarr_format(zarr_format, optional=True)
    if missing not in ("fill", "error"):
        raise ArgumentError(f'missing must be "fill" or "error", not {missing!r}')
    check_verify(verify)
    where = normalize_path(path)
    opened, base = as_store(store, mode)
    where = join_path(base, where)
    if mode != "r":
        writable(opened, f"mode={mode!r} for '/{where}'")
    if use_consolidated is None and mode != "r" and isinstance(opened, ListableStore):
        use_consolidated = False  # it would be read for nothing: see Group
    reader = NodeReader(opened, bool(allow_pickle), use_consolidated, bool(allow_fallback))
    return _Said(reader, where, mode, device, zarr_format, missing, verify)


def _not_found(what: str, said: _Said) -> NodeNotFoundError:
    """Return the error for a node that is not there, with a look at what is there instead."""
    reader, path, zarr_format = said.reader, said.path, said.zarr_format
    documents = looked_for(zarr_format)
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
