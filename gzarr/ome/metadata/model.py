"""The metadata of OME-Zarr: one model for all of its versions.

Source: https://ngff.openmicroscopy.org, versions 0.1 to 0.5, and the candidate of 0.6. After parsing nothing asks which
version a file is of: transformations without ``input`` and ``output``, axes as texts, and the two places of the
attributes exist only in :mod:`gzarr.ome.metadata.parse` and :mod:`gzarr.ome.metadata.documents`.

All classes are frozen, compare by value, and may be made by hand to be written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...errors import MetadataError
    from .problems import BrokenRule

Version: TypeAlias = Literal["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]
#: All versions that are read, oldest first.
VERSIONS: Final[tuple[Version, ...]] = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6")
#: Name that the coordinate system of images before version 0.6 has here.
PHYSICAL: Final = "physical"


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of an image.

    Attributes
    ----------
    name
        Unique name: ``"t"``, ``"c"``, ``"z"``, ``"y"``, ``"x"``, or any other.
    type
        ``"space"``, ``"time"``, ``"channel"``, a custom type, or None.
    unit
        UDUNITS-2 name of the unit of coordinates, such as ``"micrometer"``; None if they have none.
    long_name, discrete
        Description, and whether there is nothing between two elements (version 0.6).
    """

    name: str
    type: str | None = None
    unit: str | None = None
    long_name: str | None = None
    discrete: bool | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiplies coordinates: ``factors`` has a number for each axis."""

    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """Adds to coordinates: ``offsets`` has a number for each axis."""

    offsets: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Leaves coordinates as they are."""


@dataclass(frozen=True, slots=True)
class UnknownTransform:
    """A transformation of a level that gzarr does not apply, kept as it is in the document.

    Attributes
    ----------
    type
        Its type, such as ``"affine"``; None if it has none.
    document
        The JSON object.
    """

    type: str | None
    document: Any


Transform: TypeAlias = Scale | Translation | Identity | UnknownTransform


@dataclass(frozen=True, slots=True)
class CoordinateSystem:
    """Axes with a name."""

    name: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class SystemReference:
    """What refers to a coordinate system: its name, and the path of the image that has it if that is another."""

    name: str | None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class SystemLink:
    """A transformation between two coordinate systems.

    Attributes
    ----------
    input, output
        The coordinate systems; None for one that the document does not tell.
    type
        Type of the transformation, such as ``"affine"``; None if it has none.
    document
        The JSON object.
    json_path
        Its place in the attributes.
    """

    input: SystemReference | None
    output: SystemReference | None
    type: str | None
    document: Any
    json_path: str = "$"


@dataclass(frozen=True, slots=True)
class SceneMetadata:
    """The ``scene`` object (version 0.6): coordinate systems that images share, and transformations between them."""

    coordinate_systems: tuple[CoordinateSystem, ...] = ()
    links: tuple[SystemLink, ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """One level of a pyramid.

    Attributes
    ----------
    path
        Path of the array, relative to the group.
    transforms
        Transformations from elements to physical coordinates, in the order in which they are applied. Empty if the
        document has none, as in versions before 0.4.
    """

    path: str
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class Multiscale:
    """An image at several resolutions, highest first.

    Attributes
    ----------
    axes
        Axes of the physical coordinates, one for each dimension of the arrays; None if the document has none, as in
        versions before 0.3.
    datasets
        Levels, at least one.
    name
        Name of the image.
    transforms
        Transformations applied after each level's own.
    type, metadata
        How the levels were made: a name, and any JSON value.
    coordinate_systems
        All systems of the image, if they have names: in version 0.6, and in images of SpatialData. ``axes`` belong to
        the one that the levels are in.
    further
        Transformations between coordinate systems.
    system
        Name of the coordinate system that the levels' own transformations lead to.
    physical
        Name of the coordinate system of scale and translation, which ``transforms`` lead to: in version 0.6, the same.
        None if the document has several and does not say which.
    """

    axes: tuple[Axis, ...] | None
    datasets: tuple[Dataset, ...]
    name: str | None = None
    transforms: tuple[Transform, ...] = ()
    type: str | None = None
    metadata: Any = None
    coordinate_systems: tuple[CoordinateSystem, ...] = ()
    further: tuple[SystemLink, ...] = ()
    system: str | None = None
    physical: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Range of values of a channel: what is shown, from ``start`` to ``end``, and what is possible."""

    start: float
    end: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Channel:
    """How a channel is shown.

    Attributes
    ----------
    label
        Name, such as ``"DAPI"``.
    color
        Six hexadecimal digits: red, green, blue.
    window
        Range of values.
    active
        Whether it is shown at first.
    extra
        Other members of the object: ``family``, ``coefficient``, ``inverted``, …
    """

    label: str | None = None
    color: str | None = None
    window: Window | None = None
    active: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Omero:
    """The ``omero`` object: channels, and other members (``rdefs``, ``name``, …) as they are."""

    channels: tuple[Channel, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelColor:
    """Colour of the elements with one value: red, green, blue, alpha from 0 to 255; None if the document has none.

    The value is an integer, as labels are, unless a document has a fraction there.
    """

    value: int | float
    rgba: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """What makes an image a label image.

    Attributes
    ----------
    colors
        Colours of values.
    properties
        JSON objects with ``"label-value"`` and any other members.
    source
        Path of the image that was labelled, relative to the label image; None if not said (``"../../"`` by default).
    """

    colors: tuple[LabelColor, ...] = ()
    properties: tuple[Mapping[str, Any], ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Acquisition:
    """One pass over a plate.

    Parameters
    ----------
    id
        Number of the pass, by which fields name it.
    name, description
        Texts for people.
    maximum_field_count
        Most fields that a well has of it.
    start_time, end_time
        Seconds since 1970.
    """

    id: int
    name: str | None = None
    maximum_field_count: int | None = None
    description: str | None = None
    start_time: int | None = None
    end_time: int | None = None


@dataclass(frozen=True, slots=True)
class WellEntry:
    """A well as a plate lists it: path of its group, and indexes of its row and column."""

    path: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class PlateMetadata:
    """The ``plate`` object: names of rows and columns, and the wells that exist."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[WellEntry, ...]
    acquisitions: tuple[Acquisition, ...] = ()
    name: str | None = None
    field_count: int | None = None


@dataclass(frozen=True, slots=True)
class FieldEntry:
    """A field of view as a well lists it: path of its image, and its acquisition."""

    path: str
    acquisition: int | None = None


@dataclass(frozen=True, slots=True)
class WellMetadata:
    """The ``well`` object: the fields of view."""

    images: tuple[FieldEntry, ...]


@dataclass(frozen=True, slots=True)
class OmeMetadata:
    """All OME metadata in the attributes of one group. Parts that the group lacks are None, or empty.

    Attributes
    ----------
    version
        Version whose rules the document was read by.
    multiscales
        Images; nearly always one.
    omero
        Display settings of the image.
    image_label
        Set if the image is a label image.
    labels
        Paths of label images, in the group ``labels`` of an image; None if this is no such group.
    plate, well
        A plate, or a well of one.
    layout
        Number of bioformats2raw's layout: 3 for a collection of images ``0``, ``1``, ….
    series
        Paths of the images of a collection, in its group ``OME``.
    scene
        Coordinate systems of a scene, and how its images' systems are related (version 0.6).
    problems
        Rules of the specification that the document breaks.
    errors
        The parts that could not be read because of a broken rule, by their names in the document.
    """

    version: Version
    multiscales: tuple[Multiscale, ...] = ()
    omero: Omero | None = None
    image_label: ImageLabel | None = None
    labels: tuple[str, ...] | None = None
    plate: PlateMetadata | None = None
    well: WellMetadata | None = None
    layout: int | None = None
    series: tuple[str, ...] | None = None
    scene: SceneMetadata | None = None
    problems: tuple[BrokenRule, ...] = field(default=(), compare=False)
    errors: Mapping[str, MetadataError] = field(default_factory=dict, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether the attributes have no OME metadata at all, not even unreadable ones."""
        parts = (self.omero, self.image_label, self.labels, self.plate, self.well, self.layout, self.series, self.scene)
        return not (self.multiscales or self.errors or any(part is not None for part in parts))
