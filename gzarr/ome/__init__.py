"""OME-Zarr images."""

from .creating import create, create_labels
from .plates import create_field, create_plate
from .pyramid import pyramid

__all__ = ["create", "create_field", "create_labels", "create_plate", "pyramid"]
