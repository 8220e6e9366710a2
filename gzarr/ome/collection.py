"""Collections of images that bioformats2raw made of one file.

Source: https://ngff.openmicroscopy.org/0.5/#bf2raw. Their images are listed in the group ``OME``, or else are ``0``,
``1``, ``2`` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from ..errors import ArgumentError, NodeNotFoundError
from ..hierarchy.group import Group
from .image import Image, image_of
from .nodes import child_group, needed, read_metadata

if TYPE_CHECKING:
    from .metadata.model import OmeMetadata


class Collection(Sequence[Image]):
    """Images that were series of one file, each opened when it is asked for (one request).

    Parameters
    ----------
    group
        Group of the collection.
    metadata
        OME metadata of the group.
    """

    def __init__(self, group: Group, metadata: OmeMetadata) -> None:
        self._group = group
        self._metadata = metadata
        self._series: tuple[str, ...] | None = None
        self._count: int | None = None

    def __repr__(self) -> str:
        return f"<gzarr.ome.Collection {self._group.name[:200]!r}>"

    def _repr_html_(self) -> str:
        from .pages import names_html

        return names_html(f"gzarr.ome.Collection {self._group.name}", "Images", self._series)

    @property
    def group(self) -> Group:
        """Group of the collection."""
        return self._group

    @property
    def metadata(self) -> OmeMetadata:
        """All OME metadata of the group."""
        return self._metadata

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the images; the first use costs a request, and one for each image if the group ``OME`` is absent."""
        if self._series is None:
            self._series = self._listed() or self._counted()
        return self._series

    def _listed(self) -> tuple[str, ...] | None:
        try:
            node = self._group["OME"]
        except (NodeNotFoundError, ArgumentError):
            return None
        if not isinstance(node, Group):
            return None
        metadata = read_metadata(node)
        needed(metadata, "series", node)
        return metadata.series

    def _counted(self) -> tuple[str, ...]:
        found: list[str] = []
        while str(len(found)) in self._group:
            found.append(str(len(found)))
        return tuple(found)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Image]: ...
    def __getitem__(self, index: int | slice) -> Image | Sequence[Image]:
        """Return an image.

        Raises
        ------
        IndexError
            If there is no such image.
        NodeNotFoundError, MetadataError, StoreError
            If it cannot be opened.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        group = child_group(self._group, self.paths[index], "image")
        return image_of(group)
