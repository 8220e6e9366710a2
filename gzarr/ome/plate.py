"""Plates of wells, and wells of images. Nothing is opened before it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ..documents.json import quote
from ..errors import ArgumentError, NodeNotFoundError
from ..integers import as_integer
from .image import Image, image_of
from .metadata.plates import node_path
from .nodes import child_group, needed, place, read_metadata
from .picture_methods import PlatePictures, WellPictures

if TYPE_CHECKING:
    from ..hierarchy.group import Group
    from .metadata.model import Acquisition, FieldEntry, OmeMetadata, PlateMetadata, WellMetadata


class Well(WellPictures, Sequence[Image]):
    """A well: a sequence of the images of its fields of view, each opened when it is asked for (one request).

    Parameters
    ----------
    group
        Group of the well.
    metadata
        OME metadata of the group.
    """

    def __init__(self, group: Group, metadata: OmeMetadata) -> None:
        needed(metadata, "well", group)
        if metadata.well is None:
            raise NodeNotFoundError(f"{place(group)} has no metadata of a well")
        self._group = group
        self._metadata = metadata
        self._well: WellMetadata = metadata.well

    def __repr__(self) -> str:
        return f"<gzarr.ome.Well {self._group.name[:200]!r}, {len(self)} field{'s' * (len(self) != 1)}>"

    def _repr_html_(self) -> str:
        from .pages import well_html

        return well_html(self)

    @property
    def group(self) -> Group:
        """Group of the well."""
        return self._group

    @property
    def metadata(self) -> OmeMetadata:
        """All OME metadata of the group."""
        return self._metadata

    @property
    def fields(self) -> tuple[FieldEntry, ...]:
        """Paths and acquisitions of the fields of view; costs no request."""
        return self._well.images

    def __len__(self) -> int:
        return len(self._well.images)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Image]: ...
    def __getitem__(self, index: int | slice) -> Image | Sequence[Image]:
        """Return the image of a field of view.

        Raises
        ------
        IndexError
            If there is no such field.
        NodeNotFoundError, MetadataError, StoreError
            If the image cannot be opened.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self.image(self._well.images[index].path)

    def image(self, path: str) -> Image:
        """Return the image of a field of view by its ``path``, such as ``"0"``; one request."""
        if node_path(path) not in [node_path(field.path) for field in self._well.images]:
            raise NodeNotFoundError(f"{place(self._group)} has no field {quote(path)}")
        group = child_group(self._group, path, "field")
        return image_of(group)


class Plate(PlatePictures, Mapping[str, Well]):
    """A plate: a mapping from paths (``"B/3"``) to wells, each opened when it is asked for (one request).

    Parameters
    ----------
    group
        Group of the plate.
    metadata
        OME metadata of the group.
    """

    def __init__(self, group: Group, metadata: OmeMetadata) -> None:
        needed(metadata, "plate", group)
        if metadata.plate is None:
            raise NodeNotFoundError(f"{place(group)} has no metadata of a plate")
        self._group = group
        self._metadata = metadata
        self._plate: PlateMetadata = metadata.plate
        self._paths = {(well.row, well.column): well.path for well in self._plate.wells}
        self._known = frozenset(node_path(well.path) for well in self._plate.wells)

    def __repr__(self) -> str:
        rows, columns = len(self.rows), len(self.columns)
        return f"<gzarr.ome.Plate {self._group.name[:200]!r}, {rows} × {columns}, {len(self)} wells>"

    def _repr_html_(self) -> str:
        from .pages import plate_html

        return plate_html(self)

    @property
    def group(self) -> Group:
        """Group of the plate."""
        return self._group

    @property
    def metadata(self) -> OmeMetadata:
        """All OME metadata of the group."""
        return self._metadata

    @property
    def name(self) -> str | None:
        """Name of the plate."""
        return self._plate.name

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows."""
        return self._plate.rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._plate.columns

    @property
    def acquisitions(self) -> tuple[Acquisition, ...]:
        """Acquisitions."""
        return self._plate.acquisitions

    def __iter__(self) -> Iterator[str]:
        return (well.path for well in self._plate.wells)

    def __len__(self) -> int:
        return len(self._plate.wells)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and node_path(path) in self._known

    def __getitem__(self, path: str) -> Well:
        """Return a well by its path; one request.

        Raises
        ------
        NodeNotFoundError
            If the plate has no such well. It is a ``KeyError``.
        MetadataError, StoreError
            If the well cannot be opened.
        """
        if path not in self:
            raise NodeNotFoundError(f"{place(self._group)} has no well {quote(path)}; list(plate) gives all")
        group = child_group(self._group, path, "well")
        return Well(group, read_metadata(group))

    def well(self, row: str | int, column: str | int) -> Well:
        """Return a well by its ``row`` and ``column``, each a name or an index; one request.

        A text is a name, and an integer an index, from 0 on. Where columns are named from ``"1"`` on,
        ``well("B", "3")`` is the well of ``create_field(…, "B", 3, …)``, which takes integers as names, and
        ``well("B", 3)`` the next one.

        Raises
        ------
        ArgumentError
            If the plate has no such row or column.
        NodeNotFoundError
            If that well was not acquired.
        """
        place_of = _index(row, self.rows, "row"), _index(column, self.columns, "column")
        path = self._paths.get(place_of)
        if path is None:
            names = self.rows[place_of[0]], self.columns[place_of[1]]
            raise NodeNotFoundError(f"{place(self._group)} has no well in row {names[0]!r}, column {names[1]!r}")
        return self[path]


def _index(which: str | int, names: tuple[str, ...], what: str) -> int:
    if isinstance(which, str) and which in names:
        return names.index(which)
    number = as_integer(which)
    if number is not None and -len(names) <= number < len(names):
        return number % len(names)
    known = ", ".join(names[:50])
    raise ArgumentError(f"there is no {what} {quote(which)}; the plate has {known}")
