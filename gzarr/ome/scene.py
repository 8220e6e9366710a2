"""Scenes: images whose coordinate systems are related by transformations (version 0.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from .image import Image, image_of
from .image_systems import InScene
from .nodes import child_group, needed
from .transforms.graph import SystemGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..hierarchy.group import Group
    from .metadata.model import OmeMetadata, SceneMetadata
    from .transforms.graph import SystemName
    from .transforms.maps import CoordinateMap


class Scene(Mapping[str, Image]):
    """Images that are in one space, by their paths; each is opened when it is asked for (one request).

    Parameters
    ----------
    group
        Group of the scene.
    metadata
        OME metadata of the group.

    Examples
    --------
    >>> scene = gzarr.ome.open("tiles.ome.zarr")
    >>> list(scene)
    ['tile_0', 'tile_1']
    >>> scene.coordinate_map(("tile_1", 0), "world")([[0, 0]])
    array([[  0., 348.]])
    """

    def __init__(self, group: Group, metadata: OmeMetadata) -> None:
        needed(metadata, "scene", group)
        assert metadata.scene is not None
        self._group = group
        self._metadata = metadata
        self._scene: SceneMetadata = metadata.scene
        self._images: dict[str, Image] = {}

    def __repr__(self) -> str:
        return f"<gzarr.ome.Scene {self._group.name[:200]!r}, {len(self)} image{'s' * (len(self) != 1)}>"

    def _repr_html_(self) -> str:
        from .pages import names_html

        return names_html(f"gzarr.ome.Scene {self._group.name}", "Images", self.paths)

    @property
    def group(self) -> Group:
        """Group of the scene."""
        return self._group

    @property
    def metadata(self) -> OmeMetadata:
        """All OME metadata of the group."""
        return self._metadata

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the images that transformations refer to, in the order of the document."""
        ends = [end for link in self._scene.links for end in (link.input, link.output)]
        paths = [(end.path or "").strip("/") for end in ends if end is not None]
        return tuple(dict.fromkeys(path for path in paths if path))

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the coordinate systems of the scene itself; the first is the one to show images in."""
        return tuple(system.name for system in self._scene.coordinate_systems)

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __getitem__(self, path: str) -> Image:
        """Return an image.

        Raises
        ------
        KeyError
            If no transformation refers to an image with this path.
        NodeNotFoundError, NodeTypeError, MetadataError, StoreError
            If it cannot be opened.
        """
        if path not in self.paths:
            raise KeyError(path)
        return self._image(path)

    def _image(self, path: str) -> Image:
        if path not in self._images:
            if path not in self.paths and not any(path.startswith(f"{known}/") for known in self.paths):
                raise ArgumentError(
                    f"no transformation of the scene {self._group.name!r} refers to an image {path!r:.100}; there are "
                    f"{', '.join(map(repr, self.paths))}"
                )
            image = image_of(child_group(self._group, path, "image"))
            image._scene = InScene(path, self._scene.coordinate_systems, self.coordinate_map)
            self._images[path] = image
        return self._images[path]

    def coordinate_map(self, source: SystemName, target: SystemName) -> CoordinateMap:
        """Return the map from one coordinate system to another, along the transformations of scene and images.

        Parameters
        ----------
        source, target
            Name of a coordinate system of the scene; or the path of an image, and the name of one of its coordinate
            systems or the index of a level, for the indexes of its elements: ``("tile_0", 0)``.

        Returns
        -------
        The map. Of those that are possible the shortest is taken; transformations are inverted where that is needed.

        Raises
        ------
        ArgumentError, UnsupportedError, MetadataError, NodeNotFoundError, StoreError
            As for :meth:`Image.coordinate_map`.
        """
        return SystemGraph(self._group, self._image, scene=self._scene).find(source, target)
