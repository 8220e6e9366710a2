"""OME-Zarr: images of several resolutions with physical coordinates, labels, plates.

::

    image = gzarr.ome.open("image.ome.zarr")
    image.read(level=1, c="DAPI", t=0, z=slice(10, 20))

    gzarr.ome.create("new.ome.zarr", volume, axes="zyx", scale=(2, 0.5, 0.5), units="micrometer")
"""

from .collection import Collection
from .image import Image, Level
from .labels import Labels
from .metadata.model import Acquisition
from .nodes import MetadataWarning
from .open import open
from .plate import Plate, Well
from .scene import Scene
from .transforms.maps import CoordinateMap
from .writing.creating import create, create_labels
from .writing.plates import create_field, create_plate
from .writing.pyramid import pyramid

__all__ = [
    "Acquisition",
    "Collection",
    "CoordinateMap",
    "Image",
    "Labels",
    "Level",
    "MetadataWarning",
    "Plate",
    "Scene",
    "Well",
    "create",
    "create_field",
    "create_labels",
    "create_plate",
    "open",
    "pyramid",
]
