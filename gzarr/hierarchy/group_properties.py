"""What a group is, in properties: what is known without a store request, and a table that may cost some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .. import display
from ..nodes.attributes import Attributes
from ..stores.base import ListableStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ..display import Info, MemberCounts
    from ..metadata.model import GroupMetadata, ZarrFormat
    from ..nodes.entries import Entry
    from ..nodes.reader import NodeReader
    from ..stores.base import ReadableStore


class GroupProperties:
    """The half of :class:`gzarr.Group` that does not look at the nodes below."""

    _metadata: GroupMetadata
    _reader: NodeReader
    _path: str
    _consolidated: dict[str, Entry] | None
    _mode: Literal["r", "r+"]

    @property
    def metadata(self) -> GroupMetadata:
        """Metadata of this group."""
        return self._metadata

    @property
    def store(self) -> ReadableStore:
        """Store that the group is in."""
        return self._reader.store

    @property
    def path(self) -> str:
        """Path in the store, without a leading slash; ``""`` for the root."""
        return self._path

    @property
    def name(self) -> str:
        """Path in the store with a leading slash; ``"/"`` for the root."""
        return "/" + self._path

    @property
    def basename(self) -> str:
        """Last part of the path; ``""`` for the root."""
        return self._path.rpartition("/")[2]

    @property
    def attrs(self) -> Attributes:
        """User attributes; each change is written at once."""
        return Attributes(self, self._become)

    def update_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """Change some user attributes in one write, as ``attrs.update`` does; return this group."""
        self.attrs.update(attributes)
        return self

    def _become(self, metadata: GroupMetadata) -> None:
        self._metadata = metadata

    @property
    def zarr_format(self) -> ZarrFormat:
        """1, 2, ``"3-draft-2022"`` or 3."""
        return self._metadata.zarr_format

    @property
    def implicit(self) -> bool:
        """True for a group without a metadata document of its own."""
        return self._metadata.implicit

    @property
    def consolidated(self) -> bool:
        """Whether consolidated metadata names all nodes below, so that none costs a store request.

        Never so in a group that is open to read and write, which shows what is in the store.
        """
        return self._consolidated is not None

    @property
    def read_only(self) -> bool:
        """Whether changes are refused: the group was opened for reading, or its store is read-only."""
        return self._mode == "r" or getattr(self._reader.store, "read_only", True)

    @property
    def info(self) -> Info:
        """Table of what the group is and how many members it has."""
        countable = self.consolidated or isinstance(self.store, ListableStore)
        return display.group_info(self, self._member_counts() if countable else None)

    def _member_counts(self) -> MemberCounts:
        raise NotImplementedError

    def __repr__(self) -> str:
        return display.group_repr(self, self._known_counts())

    def _repr_html_(self) -> str:
        return display.group_html(self, self._known_counts())

    def _known_counts(self) -> MemberCounts | None:
        """Return how many nodes are directly below, where consolidated metadata tells it without a store request."""
        return self._member_counts() if self.consolidated else None
