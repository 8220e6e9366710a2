"""OME-Zarr: images of several resolutions with physical coordinates, labels, plates.

::

    image = gzarr.ome.open("image.ome.zarr")
    image.read(level=1, c="DAPI", t=0, z=slice(10, 20))
"""

from .collection import Collection
from .image import Image, Level
from .labels import Labels
from .nodes import MetadataWarning
from .open import open
from .plate import Plate, Well

__all__ = ["Collection", "Image", "Labels", "Level", "MetadataWarning", "Plate", "Well", "open"]
