"""Zarr v2: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html."""
