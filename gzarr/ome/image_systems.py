"""The coordinate systems of an image, and the maps between them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, UnsupportedError
from .image_levels import ImageLevels
from .metadata.model import PHYSICAL, CoordinateSystem
from .nodes import child_group, place, read_metadata
from .transforms.graph import SystemGraph

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..hierarchy.group import Group
    from .metadata.model import OmeMetadata
    from .transforms.graph import SystemName
    from .transforms.maps import CoordinateMap, Points


@dataclass(frozen=True, slots=True)
class InScene:
    """The scene that an image belongs to.

    Attributes
    ----------
    path
        Path of the image in the scene.
    systems
        Coordinate systems of the scene.
    coordinate_map
        As :meth:`gzarr.ome.Scene.coordinate_map`.
    """

    path: str
    systems: tuple[CoordinateSystem, ...]
    coordinate_map: Callable[[SystemName, SystemName], CoordinateMap]


class ImageSystems(ImageLevels):
    """The part of :class:`gzarr.ome.Image` that knows coordinate systems."""

    def __init__(self, group: Group, metadata: OmeMetadata, index: int = 0) -> None:
        super().__init__(group, metadata, index)
        self._scene: InScene | None = None

    def coordinate_map(self, source: SystemName, target: SystemName) -> CoordinateMap:
        """Return the map from one coordinate system to another, along the transformations of the document.

        Parameters
        ----------
        source, target
            Name of a coordinate system of the image; or the index of a level, for the indexes of its elements; or, for
            those of another image that a transformation refers to, such as a label image, the path of its group and
            either. Images before version 0.6 have one coordinate system, which has the name ``"physical"`` here, unless
            they have names as SpatialData writes them: then ``"physical"`` stands for :attr:`system`. An image that was
            taken from a :class:`Scene` knows the names of the scene's systems as well.

        Returns
        -------
        The map. Of those that are possible the shortest is taken; transformations are inverted where that is needed.

        Raises
        ------
        ArgumentError
            If there is no such coordinate system or level, or nothing links the two.
        UnsupportedError
            If they are linked only by what has no inverse.
        MetadataError
            If a transformation on the way cannot be read.
        NodeNotFoundError, StoreError
            If another image cannot be opened.

        Examples
        --------
        >>> image.coordinate_map(0, "physical")([[0, 0, 0], [1, 10, 10]])
        array([[0. , 0. , 0. ],
               [2. , 5. , 5. ]])
        """
        scene = self._scene
        if scene is not None and (self._is_of_scene(source) or self._is_of_scene(target)):
            return scene.coordinate_map(self._in_scene(source, scene), self._in_scene(target, scene))
        return SystemGraph(self._group, self._other, self).find(source, target)

    def _other(self, path: str) -> ImageLevels:
        group = child_group(self._group, path, "image")
        return ImageLevels(group, read_metadata(group))

    def _own_systems(self) -> tuple[CoordinateSystem, ...]:
        return self._image.coordinate_systems or (CoordinateSystem(PHYSICAL, self.axis_details),)

    def _is_of_scene(self, name: SystemName) -> bool:
        """Return whether a name is that of a coordinate system which the scene has, and the image has not."""
        of_scene = () if self._scene is None else self._scene.systems
        own = {system.name for system in self._own_systems()}
        return isinstance(name, str) and name not in own and any(system.name == name for system in of_scene)

    def _in_scene(self, name: SystemName, scene: InScene) -> SystemName:
        """Return the name that a coordinate system has in the scene."""
        if self._is_of_scene(name):
            return name
        path: Any
        path, own = name if isinstance(name, tuple) and len(name) == 2 else ("", name)
        # What is no path is refused by the graph.
        return f"{scene.path}/{path.strip('/')}".strip("/") if isinstance(path, str) else path, own

    # -- for reads

    def _system_named(self, name: str) -> CoordinateSystem:
        """Return a coordinate system of the image, or of its scene."""
        systems = self._own_systems() + (() if self._scene is None else self._scene.systems)
        for system in systems:
            if system.name == name:
                return system
        known = ", ".join(repr(system.name[:100]) for system in systems[:20])
        raise ArgumentError(f"{place(self._group)} has no coordinate system {quote(name)}; it has {known}")

    def _of_levels(self) -> Self:
        """Return the image with scale and translation in the coordinate system that its levels are in.

        From there a map leads to each of the others, which are named in the document.
        """
        image = self._image
        if not image.transforms or not image.coordinate_systems:
            return self
        found = copy(self)
        found._image = replace(image, transforms=(), physical=image.system)
        return found

    def _matrix_from(self, system: SystemName) -> Points:
        """Return the map from a coordinate system to the one of scale and translation.

        Returns
        -------
        float64 of shape ``(ndim, axes of the system + 1)``, as :attr:`CoordinateMap.matrix`.

        Raises
        ------
        UnsupportedError
            If the map is not affine.
        """
        own = self.system
        if own is None:
            raise MetadataError(
                f"{place(self._group)} does not say which of its coordinate systems the levels are in; "
                "elements can be read by their indexes",
                json_path="$..multiscales[*].datasets",
            )
        matrix = self.coordinate_map(system, own).matrix
        if matrix is None:
            raise UnsupportedError(
                f"{place(self._group)}: the transformation from {quote(system)} to {own!r:.100} is not affine, so a "
                "box in one is not a box in the other; image.coordinate_map(…) maps points"
            )
        return matrix
