"""Label images of an image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from ..documents.json import quote
from ..errors import ArgumentError, NodeNotFoundError
from ..hierarchy.group import Group
from .metadata.plates import node_path
from .nodes import child_group, needed, place, read_metadata, warn

if TYPE_CHECKING:
    from .metadata.model import OmeMetadata


ImageT = TypeVar("ImageT")


class Labels(Mapping[str, ImageT]):
    """Label images by name, opened when they are asked for: one request each.

    Parameters
    ----------
    group
        Group ``labels`` of an image; None if it has none.
    names
        Paths of the label images in that group.
    make
        Function that returns the image of a group.
    """

    def __init__(self, group: Group | None, names: tuple[str, ...], make: Callable[[Group], ImageT]) -> None:
        self._make = make
        self._group = group
        self._names = names

    def __getitem__(self, name: str) -> ImageT:
        """Return a label image.

        Raises
        ------
        NodeNotFoundError
            If there is none of this name.
        MetadataError
            If its metadata cannot be read.
        """
        if self._group is None or name not in self:
            where = "the image" if self._group is None else place(self._group)
            known = ", ".join(map(repr, self._names[:20])) or "none"
            raise NodeNotFoundError(f"{where} has no labels {quote(name)}; it has {known}")
        return self._make(child_group(self._group, name, "labels"))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and node_path(name) in map(node_path, self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<gzarr.ome.Labels {', '.join(map(repr, self._names))[:400]}>"

    def _repr_html_(self) -> str:
        from .pages import names_html

        return names_html("gzarr.ome.Labels", "Names", self._names)


def labels_of(image: Group, make: Callable[[Group], ImageT]) -> Labels[ImageT]:
    """Return the labels of an image; one request, or two if there are none."""
    try:
        node = image["labels"]
    except (NodeNotFoundError, ArgumentError):
        return Labels(None, (), make)
    if not isinstance(node, Group):
        warn(f"'labels' in the image {place(image)} must be a group, and is an array")
        return Labels(None, (), make)
    return labels_in(node, read_metadata(node), make)


def labels_in(group: Group, metadata: OmeMetadata, make: Callable[[Group], ImageT]) -> Labels[ImageT]:
    """Return the labels that a group lists."""
    needed(metadata, "labels", group)
    return Labels(group, metadata.labels or (), make)
