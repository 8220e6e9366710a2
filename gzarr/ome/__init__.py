"""OME-Zarr images."""
