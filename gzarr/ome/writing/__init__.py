"""Writing OME-Zarr: images with all of their levels, labels, plates."""
