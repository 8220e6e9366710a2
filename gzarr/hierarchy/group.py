"""Groups: a hierarchy of any Zarr version as nested mappings."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..arrays.array import Array
from ..arrays.device_choice import resolve_device
from ..display import Info, MemberCounts, Tree
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, NodeNotFoundError, NodeTypeError, ReadOnlyError
from ..flags import check_flags
from ..integers import as_integer
from ..metadata.formats import FORMATS
from ..metadata.model import ArrayMetadata, GroupMetadata
from ..nodes.change import writable
from ..nodes.erasing import delete_node
from ..nodes.location import advising
from ..nodes.moving import move_node
from ..nodes.reader import NodeReader, suggest
from ..stores.base import is_listable
from ..stores.keys import join_path, normalize_path
from ..stores.same_values import have_same_values
from .array_spec import check_names
from .group_properties import GroupProperties
from .keywords import MemberArguments
from .new_nodes import NewArray, check_required, new_group

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Unpack

    from ..engines.access.access import Missing, Verify
    from ..metadata.model import ZarrFormat
    from ..nodes.entries import Entry
    from ..stores.base import Store
    from .keywords import LayoutArguments

Node: TypeAlias = "Array | Group"


class Group(GroupProperties, Mapping[str, "Array | Group"]):
    """A group: a mapping from names (and paths, ``g["a/b"]``) to arrays and groups.

    Get one from :func:`open`, :func:`open_group`, :func:`create_group` or another group. The constructor is not meant
    to be called by users.

    Parameters
    ----------
    metadata
        Metadata of this group.
    reader
        Reader of the nodes below.
    path
        Normalised path in the store, ``""`` for the root.
    device, missing, verify
        Options of the arrays below, as for :func:`open`.
    children
        Nodes directly below, by name, from consolidated metadata, which saves store requests. Ignored if ``mode``
        allows changes and the store can list its keys.
    mode
        ``"r"`` (read) or ``"r+"`` (read and write), also for the nodes below.
    """

    def __init__(
        self,
        metadata: GroupMetadata,
        reader: NodeReader,
        path: str,
        *,
        device: str = "auto",
        missing: Missing = "fill",
        verify: Verify = "none",
        children: Mapping[str, Entry] | None = None,
        mode: Literal["r", "r+"] = "r",
    ) -> None:
        if mode != "r" and is_listable(reader.store):
            # Consolidated metadata may be out of date, so writable groups read the store. (A store that cannot list
            # has nothing else.)
            children = None
            if reader.use_consolidated is not False:
                reader = replace(reader, use_consolidated=False)
        self._metadata = metadata
        self._reader = reader
        self._path = path
        self._device = device
        self._missing: Missing = missing
        self._verify: Verify = verify
        self._consolidated = children
        self._mode: Literal["r", "r+"] = mode

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return self._path == other._path and have_same_values(self.store, other.store)

    def __hash__(self) -> int:
        return hash((Group, self._path))

    def __reduce__(self) -> tuple[Any, ...]:
        own = self._reader
        # True applies only to the opened group; groups below it have no consolidated metadata themselves.
        use_consolidated = False if own.use_consolidated is False else None
        reader = NodeReader(own.store, own.allow_pickle, use_consolidated, own.allow_fallback)
        make = partial(_unpickled, device=self._device, missing=self._missing, verify=self._verify, mode=self._mode)
        return make, (reader, self._path, self._metadata.children_format)

    # -- children

    def _node(self, path: str, entry: Entry) -> Node:
        """Return the node at ``path`` below this group."""
        if isinstance(entry.metadata, MetadataError):
            raise entry.metadata
        return make_node(
            entry.metadata,
            self._reader,
            join_path(self._path, path),
            device=self._device,
            missing=self._missing,
            verify=self._verify,
            children=entry.children,
            mode=self._mode,
        )

    def _entries(self) -> Mapping[str, Entry]:
        """Return the nodes directly below, by name."""
        if self._consolidated is not None:
            return self._consolidated
        return self._reader.children(self._path, self._metadata.children_format)

    def _find(self, path: str) -> Entry | None:
        if self._consolidated is None:
            return self._reader.node(join_path(self._path, path), self._metadata.children_format)
        first, *others = path.split("/")
        entry = self._consolidated.get(first)
        for name in others:
            # Whether there are children depends on the documents of the node, which are then parsed.
            children = None if entry is None else entry.children
            entry = None if children is None else children.get(name)
        return entry

    def __getitem__(self, path: str) -> Node:
        """Return the array or group at ``path``, relative to this group.

        Raises
        ------
        NodeNotFoundError
            If there is no such node. It is a ``KeyError``.
        ArgumentError
            If ``path`` is not a valid path.
        MetadataError
            If the metadata of the node is malformed.
        StoreError
            If the store fails.
        """
        relative = normalize_path(path)
        if not relative:
            raise ArgumentError(f"{path!r} names no member of the group {self.name!r}")
        entry = self._find(relative)
        if entry is None:
            known = "" if self._consolidated is None else suggest(relative, self._consolidated)
            raise NodeNotFoundError(
                f"no array or group {relative!r} in the group {self.name!r} of {self.store!r}{known}"
            )
        return self._node(relative, entry)

    def __contains__(self, path: object) -> bool:
        try:
            relative = normalize_path(path)  # type: ignore[arg-type]
        except ArgumentError:
            return False
        if not relative:
            return False
        if self._consolidated is not None:
            return self._find(relative) is not None
        return self._reader.exists(join_path(self._path, relative), self._metadata.children_format)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._entries())

    def items(self) -> ItemsView[str, Node]:
        """Return the names and the nodes directly below; two store requests, or none with consolidated metadata."""
        return dict(self._direct()).items()

    def values(self) -> ValuesView[Node]:
        """Return the nodes directly below; two store requests, or none with consolidated metadata."""
        return dict(self._direct()).values()

    def _direct(self) -> Iterator[tuple[str, Node]]:
        for name, entry in self._entries().items():
            yield name, self._node(name, entry)

    def info_complete(self) -> Info:
        """Return the table of properties, with the number of all members, at any depth. Lists the store.

        Raises
        ------
        StoreError
            If the store fails, or cannot list its keys.
        """
        return Info([*self.info.rows, ("All members", f"{sum(1 for _ in self.walk()):,}")])

    def walk(self, max_depth: int | None = None) -> Iterator[tuple[str, Array | Group | MetadataError]]:
        """Yield the nodes below with their paths relative to this group, parents first, sorted by name in each group.

        Unlike :meth:`members`, it does not stop at an unreadable node, but yields the :class:`MetadataError` in its
        place.

        Parameters
        ----------
        max_depth
            Number of levels below the children: 0 for the children only, None for all levels.

        Yields
        ------
        Path, and array, group or error.

        Raises
        ------
        ArgumentError
            If ``max_depth`` is neither None nor a non-negative integer.
        StoreError
            If the store fails or cannot list its keys.
        """
        for path, entry in self._walk(max_depth):
            yield path, entry.metadata if isinstance(entry.metadata, MetadataError) else self._node(path, entry)

    def _walk(self, max_depth: int | None) -> Iterator[tuple[str, Entry]]:
        """Yield the same nodes as :meth:`walk`, as entries."""
        deepest = as_integer(max_depth)
        if max_depth is not None and (deepest is None or deepest < 0):
            raise ArgumentError(f"max_depth must be None or an integer of at least 0, not {quote(max_depth)}")
        levels = [("", iter(self._entries().items()))]
        while levels:
            base, left = levels[-1]
            following = next(left, None)
            if following is None:
                levels.pop()
                continue
            name, entry = following
            path = join_path(base, name)
            yield path, entry
            if isinstance(entry.metadata, GroupMetadata) and (deepest is None or len(levels) <= deepest):
                below = self._node(path, entry)
                assert isinstance(below, Group)
                levels.append((path, iter(below._entries().items())))

    def members(self, max_depth: int | None = 0) -> tuple[tuple[str, Node], ...]:
        """Return the nodes below with their paths relative to this group.

        Parameters
        ----------
        max_depth
            Number of levels below the children: 0 for the children only, None for all levels.

        Returns
        -------
        Pairs of path and node, parents first, sorted by name in each group.

        Raises
        ------
        MetadataError
            If the metadata of a node is malformed or requires something unknown.
        StoreError
            If the store fails or cannot list its keys.
        """
        return tuple((path, self._node(path, entry)) for path, entry in self._walk(max_depth))

    def nmembers(self, max_depth: int | None = 0) -> int:
        """Return the number of nodes below; ``max_depth`` as in :meth:`members`."""
        return sum(1 for _ in self._walk(max_depth))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield the arrays directly below with their names, sorted by name."""
        for name, entry in self._entries().items():
            if not isinstance(entry.metadata, GroupMetadata):
                node = self._node(name, entry)
                assert isinstance(node, Array)
                yield name, node

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Yield the groups directly below with their names, sorted by name."""
        for name, entry in self._entries().items():
            if isinstance(entry.metadata, GroupMetadata):
                node = self._node(name, entry)
                assert isinstance(node, Group)
                yield name, node

    def array_keys(self) -> Iterator[str]:
        """Yield the names of the arrays directly below, sorted."""
        return (name for name, entry in self._entries().items() if isinstance(entry.metadata, ArrayMetadata))

    def group_keys(self) -> Iterator[str]:
        """Yield the names of the groups directly below, sorted."""
        return (name for name, entry in self._entries().items() if isinstance(entry.metadata, GroupMetadata))

    def array_values(self) -> Iterator[Array]:
        """Yield the arrays directly below, sorted by name."""
        return (array for _, array in self.arrays())

    def group_values(self) -> Iterator[Group]:
        """Yield the groups directly below, sorted by name."""
        return (group for _, group in self.groups())

    # -- changes

    def _writable(self) -> Store:
        if self.read_only:
            raise ReadOnlyError(f"{self.name} in {self.store!r} is read-only; open it with mode='r+' to change it")
        return writable(self.store, self.name)

    def _path_to_change(self, name: str) -> str:
        """Return the path in the store of a node about to be changed; drop the loaded consolidated metadata."""
        relative = normalize_path(name)
        if not relative:
            raise ArgumentError(f"{name!r} names no member of the group {self.name!r}")
        self._consolidated = None
        return join_path(self._path, relative)

    def _path_of_member(self, name: str) -> str:
        if name not in self:
            raise NodeNotFoundError(f"no array or group {quote(name)} in the group {self.name!r} of {self.store!r}")
        return self._path_to_change(name)

    def create_array(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        *,
        data: Any = None,
        overwrite: bool = False,
        write_empty_chunks: bool | None = None,
        fill_masked: bool = False,
        **arguments: Unpack[LayoutArguments],
    ) -> Array:
        """Create an array below, in this group's format.

        Parameters
        ----------
        name
            Path of the array, relative to this group.
        shape, dtype, data, overwrite, write_empty_chunks, fill_masked, **arguments
            As for :func:`gzarr.create_array`.

        Returns
        -------
        The array, open for reading and writing.

        Raises
        ------
        ReadOnlyError, ArgumentError, NodeTypeError, StoreError, ChunkWriteError
            As for :func:`gzarr.create_array`.
        """
        new = NewArray(
            self._writable(),
            self._path_to_change(name),
            self.zarr_format,
            {
                "shape": shape,
                "dtype": dtype,
                "data": data,
                "write_empty_chunks": write_empty_chunks,
                "fill_masked": fill_masked,
                **arguments,
            },
            overwrite=overwrite,
            device=self._device,
            missing=self._missing,
            verify=self._verify,
        )
        return new.create()

    def create_group(self, name: str, *, attributes: Mapping[str, Any] | None = None, overwrite: bool = False) -> Group:
        """Create a group below, in this group's format.

        Parameters
        ----------
        name
            Path of the group, relative to this group.
        attributes, overwrite
            As for :func:`gzarr.create_group`.

        Returns
        -------
        The group, open for reading and writing.

        Raises
        ------
        ReadOnlyError, ArgumentError, NodeTypeError, StoreError
            As for :func:`gzarr.create_group`.
        """
        path = self._path_to_change(name)
        metadata = new_group(self._writable(), path, self.zarr_format, attributes=attributes, overwrite=overwrite)
        return Group(
            metadata,
            self._reader,
            path,
            device=self._device,
            missing=self._missing,
            verify=self._verify,
            mode="r+",
        )

    def require_array(
        self, name: str, *, shape: Any, dtype: Any = None, exact: bool = False, **arguments: Unpack[MemberArguments]
    ) -> Array:
        """Return the array below, created if absent.

        Parameters
        ----------
        name
            Path of the array, relative to this group.
        shape, dtype, exact, **arguments
            As for :func:`gzarr.require_array`.

        Returns
        -------
        The array, open for reading and writing.

        Raises
        ------
        NodeTypeError
            If there is a group, or an array of another shape or dtype.
        ReadOnlyError, ArgumentError, StoreError
            As for :func:`gzarr.create_array`.
        """
        self._writable()
        check_flags(exact=exact)
        # Of those for a new array, only the names matter where there is one.
        check_names(arguments, MemberArguments.__optional_keys__)
        if name not in self:
            try:
                with _advising(name):
                    return self.create_array(name, shape=shape, dtype=dtype, **arguments)
            except ArgumentError:
                # Another thread or process may have been faster.
                if name not in self:
                    raise
        node = self[name]
        if not isinstance(node, Array):
            raise NodeTypeError(f"{node.name} in {self.store!r} is a group, not an array")
        return check_required(node, shape, dtype, exact=exact)

    def require_group(self, name: str, *, attributes: Mapping[str, Any] | None = None) -> Group:
        """Return the group below, created if absent; an implicit group becomes explicit.

        Parameters
        ----------
        name
            Path of the group, relative to this group.
        attributes
            User attributes of a new group.

        Returns
        -------
        The group, open for reading and writing.

        Raises
        ------
        NodeTypeError
            If there is an array at that path.
        ReadOnlyError, ArgumentError, StoreError
            As for :func:`gzarr.create_group`.
        """
        self._writable()
        node = self.get(name)
        if not _is_explicit(node):
            try:
                return self.create_group(name, attributes=attributes)
            except ArgumentError:
                # Another thread or process may have been faster.
                node = self.get(name)
                if not _is_explicit(node):
                    raise
        if not isinstance(node, Group):
            raise NodeTypeError(f"'/{self._path_to_change(name)}' in {self.store!r} is an array, not a group")
        return node

    def require_groups(self, *names: str) -> tuple[Group, ...]:
        """Return several groups below, ``names``, created if absent; see :meth:`require_group`."""
        return tuple(self.require_group(name) for name in names)

    def __setitem__(self, name: str, value: Any) -> None:
        """Create an array from data: ``create_array(name, data=value)``.

        Raises
        ------
        ArgumentError
            If the node exists (to write to an array, use ``g[name][...] = value``), or the value cannot be stored as an
            array (to copy a group, use :func:`gzarr.copy`).
        """
        with _advising(name):
            self.create_array(name, data=value)

    def __delitem__(self, name: str) -> None:
        """Erase the array or group at ``name``, with everything below it.

        Raises
        ------
        NodeNotFoundError
            If there is no such node. It is a ``KeyError``.
        ReadOnlyError
            If the group is read-only; nothing was touched.
        StoreError
            If the store fails.
        """
        delete_node(self._writable(), self._path_of_member(name))

    def move(self, source: str, dest: str) -> None:
        """Move a node, with everything below it.

        In a local directory, this is one step. Elsewhere, and where links are in it, values are copied within the store
        one by one, and then erased.

        Parameters
        ----------
        source, dest
            Present and new path of the node, both relative to this group.

        Raises
        ------
        NodeNotFoundError
            If there is no such node.
        ArgumentError
            If there is a node at ``dest``, the node would become part of a hierarchy of another format, or a dimension
            of NCZarr would not be in a group above its array any more; nothing was changed.
        ReadOnlyError
            If the group is read-only; nothing was touched.
        StoreError
            If the store fails. The source is only erased once everything is at ``dest``.
        """
        children_format = self._metadata.children_format
        move_node(self._writable(), self._path_of_member(source), self._path_to_change(dest), children_format)

    def tree(self, level: int | None = None) -> Tree:
        """Return the hierarchy below as a tree that prints.

        Parameters
        ----------
        level
            Deepest level to show, as in zarr-python: 0 for the children only, None for all levels.
        """
        return Tree(self.name, self.walk(level))

    def _member_counts(self) -> MemberCounts:
        """Return the number of nodes directly below; may cost store requests."""
        found = [entry.metadata for entry in self._entries().values()]
        groups = sum(isinstance(metadata, GroupMetadata) for metadata in found)
        unreadable = sum(isinstance(metadata, MetadataError) for metadata in found)
        return MemberCounts(len(found) - groups - unreadable, groups, unreadable)


def _advising(name: str) -> AbstractContextManager[None]:
    return advising(f"call create_array({quote(name)}, ..., overwrite=True) of the group")


def _is_explicit(node: Node | None) -> bool:
    return node is not None and not (isinstance(node, Group) and node.implicit)


def make_node(
    metadata: ArrayMetadata | GroupMetadata | MetadataError,
    reader: NodeReader,
    path: str,
    *,
    device: str,
    missing: Missing,
    verify: Verify = "none",
    children: Mapping[str, Entry] | None = None,
    mode: Literal["r", "r+"] = "r",
) -> Node:
    """Return the array or group that ``metadata`` describes; raise ``metadata`` if it is an error."""
    if isinstance(metadata, MetadataError):
        raise metadata
    if not FORMATS[metadata.zarr_format].features.writable:
        # In a directory with nodes of several formats, which may be changed.
        mode = "r"
    if isinstance(metadata, ArrayMetadata):
        return Array(metadata, reader.store, path, device=device, missing=missing, verify=verify, mode=mode)
    return Group(metadata, reader, path, device=device, missing=missing, verify=verify, children=children, mode=mode)


def _unpickled(
    reader: NodeReader,
    path: str,
    zarr_format: ZarrFormat | None,
    *,
    device: str,
    missing: Missing,
    verify: Verify,
    mode: Literal["r", "r+"],
) -> Group:
    """Restore a pickled group by reading it from its store again."""
    resolve_device(device)
    entry = reader.node(path, zarr_format)
    if entry is None:
        raise NodeNotFoundError(f"the group '/{path}' no longer exists in {reader.store!r}")
    node = make_node(
        entry.metadata,
        reader,
        path,
        device=device,
        missing=missing,
        verify=verify,
        children=entry.children,
        mode=mode,
    )
    if not isinstance(node, Group):
        raise NodeTypeError(f"'/{path}' in {reader.store!r} has become an array")
    return node
