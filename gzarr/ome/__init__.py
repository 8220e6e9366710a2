"""OME-Zarr."""
