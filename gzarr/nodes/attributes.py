"""User attributes of a node: a mapping that writes each change."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import ArgumentError, ReadOnlyError
from ..flags import check_flags
from ..metadata import nczarr
from ..metadata.model import ArrayMetadata
from ..metadata.to_documents import group_with_attributes, plain, plain_changed, with_attributes
from .change import change_node, list_member, writable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ..metadata.model import NodeMetadata
    from ..stores.base import ReadableStore

    class _Node(Protocol):
        @property
        def metadata(self) -> Any: ...
        @property
        def store(self) -> ReadableStore: ...
        @property
        def path(self) -> str: ...
        @property
        def read_only(self) -> bool: ...


# In place of a default that was not given.
_NONE_GIVEN: Final = object()


class Attributes(MutableMapping[str, Any]):
    """User attributes of an array or a group, ``array.attrs`` and ``group.attrs``.

    Compares equal to a dict with the same content. Each change writes the node's document (``.zattrs`` in version 2)
    once; :meth:`update`, :meth:`put` and :meth:`change` are one change. A change starts from the attributes currently
    in the store, so changes by other threads are kept, and those by other processes in object stores, and elsewhere if
    all of them pass ``lock=True`` (to :meth:`put`, :meth:`change`, or the node's ``update_attributes``). Changes inside
    nested lists and mappings are not tracked: assign the attribute again to write them.

    NumPy scalars and arrays become numbers and lists; values that JSON cannot represent are refused: NaN, infinities
    and masked elements, too, and text with unpaired surrogates, such as names of files that are not UTF-8.
    (zarr-python writes a bare ``NaN``, and such text, which browsers, tensorstore and zarrs cannot read. They are
    understood, and stay where they are when other attributes change.)

    Parameters
    ----------
    node
        Array or group.
    changed
        Callback that gets the node's new metadata after it is written, while the node's documents are still held.

    Raises
    ------
    ReadOnlyError
        On a change, if the node is read-only; nothing was touched.
    ArgumentError
        On a change, if JSON cannot represent a value; nothing was written.
    NodeNotFoundError
        On a change, if the node no longer exists.
    StoreError
        On a change, if the store fails; the old attributes are kept.
    """

    __slots__ = ("_changed", "_node")

    def __init__(self, node: _Node, changed: Callable[[Any], None]) -> None:
        self._node = node
        self._changed = changed

    @property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self._node.metadata.attributes
        return values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._values)

    def __repr__(self) -> str:
        return f"Attributes({self._values!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self._values == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def asdict(self) -> dict[str, Any]:
        """Return a copy as a dict."""
        return dict(self._values)

    # -- changes

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        if self._take(lambda _: name) is None:
            raise KeyError(name)

    def pop(self, name: str, default: Any = _NONE_GIVEN) -> Any:
        """Remove an attribute and return its value as it is in the store; ``default``, if given, where there is none.

        Raises
        ------
        KeyError
            If there is no such attribute in the store, and no ``default``.
        """
        taken = None
        # A node that cannot be changed lacks nothing that could be removed.
        if name in self or not self._node.read_only:
            taken = self._take(lambda _: name)
        if taken is not None:
            return taken[1]
        if default is _NONE_GIVEN:
            raise KeyError(name)
        return default

    def popitem(self) -> tuple[str, Any]:
        """Remove the first of the attributes in the store; return its name and value.

        Raises
        ------
        KeyError
            If there are none in the store.
        """
        # A node that cannot be changed needs no change to have none.
        taken = None
        if len(self) or not self._node.read_only:
            taken = self._take(lambda present: next(iter(present), None))
        if taken is None:
            raise KeyError(f"'/{self._node.path}' has no attributes")
        return taken

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute in the store; where there is none, write ``default`` and return it.

        Raises
        ------
        ArgumentError
            If JSON cannot represent ``default``, and it is to be written; nothing was written.
        """
        # A node that cannot be changed needs no change to have it.
        if self._node.read_only and name in self:
            return self[name]
        found: Any = None

        def with_it(present: dict[str, Any]) -> dict[str, Any]:
            nonlocal found
            changed = present if name in present else {**present, **self._checked(plain, {name: default})}
            found = changed[name]
            return changed

        self._change(with_it)
        # What is changed in it later is in no store.
        return copy.deepcopy(found)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change some attributes in one write; arguments as for ``dict.update``."""
        given = self._checked(plain, dict(*args, **kwargs))
        self._change(lambda present: {**present, **given})

    def put(self, attributes: Mapping[str, Any], *, lock: bool = False) -> None:
        """Replace all attributes in one write; ``lock`` as for :meth:`change`."""
        given = self._checked(plain, attributes)
        self._change(lambda _: given, lock=lock)

    def change(self, function: Callable[[dict[str, Any]], Mapping[str, Any]], *, lock: bool = False) -> None:
        """Change attributes depending on those that are there, in one write.

        Parameters
        ----------
        function
            Function from a copy of all attributes as they are in the store to those that are to be there. Other threads
            wait, so that no change is lost. It is called again if another process has changed them meanwhile, and if it
            raises, nothing is changed. It is not to change anything itself: that is refused
            (:class:`gzarr.errors.StoreError`) for the same node, and where it would have to wait for another thread.
        lock
            Whether to exclude other processes that also pass ``lock=True``, by a file lock beside the data. In object
            stores, no lock is needed: attributes that another process has changed meanwhile are read again.

        Examples
        --------
        >>> import gzarr
        >>> group = gzarr.create_group({}, attributes={"wells": ["A/1"]})
        >>> group.attrs.change(lambda found: {**found, "wells": [*found["wells"], "A/2"]})
        >>> group.attrs["wells"]
        ['A/1', 'A/2']
        """
        self._change(lambda present: self._checked(plain_changed, function(copy.deepcopy(present)), present), lock=lock)

    def clear(self) -> None:
        """Remove all attributes in one write."""
        self._change(lambda _: {})

    def _checked(self, check: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
        """Return attributes as they are checked; an error names the node, too."""
        try:
            return check(*given)
        except ArgumentError as error:
            raise ArgumentError(f"'/{self._node.path}': {error}") from None

    def _take(self, choose: Callable[[dict[str, Any]], str | None]) -> tuple[str, Any] | None:
        """Remove the attribute that is chosen of those in the store; return its name and value, or None if absent."""
        taken: tuple[str, Any] | None = None

        def without(present: dict[str, Any]) -> dict[str, Any]:
            nonlocal taken
            name = choose(present)
            # Called again after another process's change, so what an earlier call has found does not count.
            taken = None
            if name is None or name not in present:
                return present
            taken = name, present[name]
            return {key: value for key, value in present.items() if key != name}

        self._change(without)
        return taken

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]], *, lock: bool = False) -> None:
        check_flags(lock=lock)
        node = self._node
        name = f"the attributes of '/{node.path}'"
        if node.read_only:
            raise ReadOnlyError(f"{name} in {node.store!r} are read-only; open it with mode='r+' to change them")

        is_lost = False

        def of_node(metadata: NodeMetadata) -> NodeMetadata:
            attributes = change(metadata.attributes)
            if attributes is metadata.attributes:
                return metadata
            nonlocal is_lost
            after: NodeMetadata
            if isinstance(metadata, ArrayMetadata):
                after = nczarr.with_types(with_attributes(metadata, attributes), metadata.attributes)
            else:
                after = nczarr.with_types(group_with_attributes(metadata, attributes), metadata.attributes)
            is_lost = nczarr.is_member(metadata) and not nczarr.is_member(after)
            return after

        store = writable(node.store, name)
        kind: Literal["array", "group"] = "array" if isinstance(node.metadata, ArrayMetadata) else "group"
        # A folder may have nodes of several formats.
        zarr_format = node.metadata.zarr_format if kind == "array" else node.metadata.children_format
        change_node(store, node.path, zarr_format, of_node, self._changed, node_type=kind, lock=lock)
        if is_lost and node.path:
            # Without its members of NCZarr, netCDF-C must not be told of it.
            list_member(store, node.path, None)
