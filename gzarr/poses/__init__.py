"""Boxes of arrays in any pose: rotated, scaled, sheared, moved, and resampled from the chunks that they need."""

from .reading import read_affine

__all__ = ["read_affine"]
