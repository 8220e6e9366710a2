"""OME-Zarr images."""

from .writing.creating import create, create_labels
from .writing.plates import create_field, create_plate
from .writing.pyramid import pyramid

__all__ = ["create", "create_field", "create_labels", "create_plate", "pyramid"]
