"""Properties of a group. Only the table of its properties may cost store requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .. import display, plugins
from ..documents.json import quote
from ..errors import ArgumentError
from ..nodes.attributes import Attributes
from ..stores.base import is_listable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ..display import Info, MemberCounts
    from ..metadata.model import GroupMetadata, ZarrFormat
    from ..nodes.entries import Entry
    from ..nodes.reader import NodeReader
    from ..stores.base import ReadableStore


class GroupProperties:
    """The part of :class:`gzarr.Group` that does not access the nodes below."""

    _metadata: GroupMetadata
    _reader: NodeReader
    _path: str
    _consolidated: Mapping[str, Entry] | None
    _mode: Literal["r", "r+"]

    @property
    def metadata(self) -> GroupMetadata:
        """Metadata of this group."""
        return self._metadata

    @property
    def store(self) -> ReadableStore:
        """Store that holds the group."""
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
        """Last segment of the path; ``""`` for the root."""
        return self._path.rpartition("/")[2]

    @property
    def attrs(self) -> Attributes:
        """User attributes, as a mapping. Each change is written at once; a read-only group refuses changes."""
        return Attributes(self, self._become)

    def update_attributes(self, attributes: Mapping[str, Any], *, lock: bool = False) -> Self:
        """Change some user ``attributes`` in one write, as ``attrs.update`` does; return this group.

        ``lock`` excludes other processes that also pass ``lock=True``, by a file lock beside the data.
        """
        try:
            given = dict(attributes)
        except (TypeError, ValueError):
            raise ArgumentError(f"{self.name}: attributes must be a dict, not {quote(attributes)}") from None
        self.attrs.change(lambda present: {**present, **given}, lock=lock)
        return self

    def _become(self, metadata: GroupMetadata) -> None:
        self._metadata = metadata

    @property
    def zarr_format(self) -> ZarrFormat:
        """Zarr format of the group: 2, 3 or ``"3-draft-2022"``; ``"n5"`` for a group of N5, which is only read."""
        return self._metadata.zarr_format

    @property
    def implicit(self) -> bool:
        """Whether the group has no metadata document of its own and only exists through the nodes below it."""
        return self._metadata.implicit

    @property
    def consolidated(self) -> bool:
        """Whether all nodes below are known from consolidated metadata, so that opening them costs no store request.

        False for groups that are open for writing in a store that can list its keys: they show the current nodes.
        """
        return self._consolidated is not None

    @property
    def read_only(self) -> bool:
        """Whether the group was opened for reading only, or its store is read-only."""
        return self._mode == "r" or getattr(self._reader.store, "read_only", True)

    @property
    def info(self) -> Info:
        """Table of the group's properties and the number of its members."""
        countable = self.consolidated or is_listable(self.store)
        return display.group_info(self, self._member_counts() if countable else None)

    def _member_counts(self) -> MemberCounts:
        raise NotImplementedError

    def to_dask(self, chunks: Any = "auto", **options: Any) -> dict[str, Any]:
        """Return the arrays below as dask arrays, by their paths.

        Parameters
        ----------
        chunks, **options
            As for :func:`gzarr.to_dask`; so are the errors.
        """
        arrays: dict[str, Any] = plugins.integration("dask").to_dask(self, chunks, **options)
        return arrays

    def __repr__(self) -> str:
        return display.group_repr(self, self._known_counts())

    def _repr_html_(self) -> str:
        from ..display.page import group_html
        from .known_members import known_members

        return group_html(self, self._known_counts(), known_members(self))

    def _known_counts(self) -> MemberCounts | None:
        """Return the number of nodes directly below if consolidated metadata has it, else None; no store request."""
        return self._member_counts() if self.consolidated else None
