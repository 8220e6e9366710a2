"""User attributes of a node: a mapping that writes each change."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ReadOnlyError
from ..metadata.model import ArrayMetadata
from ..metadata.to_documents import group_with_attributes, plain, plain_changed, with_attributes
from .change import change_node, writable

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
        def without(present: dict[str, Any]) -> dict[str, Any]:
            if name not in present:
                raise KeyError(name)
            return {key: value for key, value in present.items() if key != name}

        self._change(without)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Change some attributes in one write; arguments as for ``dict.update``."""
        given = plain(dict(*args, **kwargs))
        self._change(lambda present: {**present, **given})

    def put(self, attributes: Mapping[str, Any], *, lock: bool = False) -> None:
        """Replace all attributes in one write; ``lock`` as for :meth:`change`."""
        given = plain(attributes)
        self._change(lambda _: given, lock=lock)

    def change(self, function: Callable[[dict[str, Any]], Mapping[str, Any]], *, lock: bool = False) -> None:
        """Change attributes depending on those that are there, in one write.

        Parameters
        ----------
        function
            Function from a copy of all attributes as they are in the store to those that are to be there. Other threads
            wait, so that no change is lost. It is called again if another process has changed them meanwhile, and if it
            raises, nothing is changed.
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
        self._change(lambda present: plain_changed(function(copy.deepcopy(present)), present), lock=lock)

    def clear(self) -> None:
        """Remove all attributes in one write."""
        self._change(lambda _: {})

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]], *, lock: bool = False) -> None:
        node = self._node
        name = f"the attributes of '/{node.path}'"
        if node.read_only:
            raise ReadOnlyError(f"{name} in {node.store!r} are read-only; open it with mode='r+' to change them")

        def of_node(metadata: NodeMetadata) -> NodeMetadata:
            attributes = change(metadata.attributes)
            if isinstance(metadata, ArrayMetadata):
                return with_attributes(metadata, attributes)
            return group_with_attributes(metadata, attributes)

        store = writable(node.store, name)
        kind: Literal["array", "group"] = "array" if isinstance(node.metadata, ArrayMetadata) else "group"
        change_node(store, node.path, node.metadata.zarr_format, of_node, self._changed, node_type=kind, lock=lock)
