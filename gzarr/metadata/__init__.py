"""Metadata documents of every Zarr version, giving one model."""
